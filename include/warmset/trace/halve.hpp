// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "trace.hpp"

namespace warmset::inline v0 {
namespace trace {

/// Two parts of a recording that share no event: one to choose on, one to check on.
struct halves {
  recording first;
  recording second;
  bool by_sequence;  ///< else by token
};

/// Halves what is selected. Where it has several sequences, they go in order of their numbers to the
/// first and to the second part in turn; so all sequences from 0 on are parted into even and odd
/// ones. A single sequence is parted in the middle of its decoded tokens, or of its prompt where it
/// has no others; a step belongs to the part where it starts.
///
/// Throws config_error where a part would have no event. O(ids).
inline halves halve(recording const& r, selection const& which) {
  std::vector<u32> sequences;
  struct {
    u64 from = u64_max;
    u64 to = 0;
  } positions[n_phases];
  for (block const& b : r.blocks()) {
    if (which.contains(b)) {
      sequences.push_back(b.sequence);
      auto& [from, to] = positions[static_cast<u32>(b.phase)];
      from = min_of(from, u64{b.first_position});
      to = max_of(to, b.first_position + u64{b.n_steps} * b.n_tokens);
    }
  }
  auto const& decoded = positions[static_cast<u32>(phase::decode)];
  auto const& [from, to] = decoded.to != 0 ? decoded : positions[static_cast<u32>(phase::prefill)];
  std::sort(sequences.begin(), sequences.end());
  sequences.erase(std::unique(sequences.begin(), sequences.end()), sequences.end());
  bool const by_sequence = sequences.size() > 1;
  u64 const middle = from + (to - min_of(from, to)) / 2;
  contents parts[2] = {detail::like(r), detail::like(r)};
  for (block const& b : r.blocks()) {
    if (!which.contains(b)) {
      continue;
    }
    u64 before = b.n_steps;  // steps that belong to the first part
    if (by_sequence) {
      auto const at = std::lower_bound(sequences.begin(), sequences.end(), b.sequence);
      before = (at - sequences.begin()) % 2 == 0 ? b.n_steps : 0;
    } else {
      u64 const steps =
          middle <= b.first_position ? 0 : ceil_div(middle - b.first_position, u64{b.n_tokens});
      before = min_of(steps, u64{b.n_steps});
    }
    if (before != 0) {
      detail::append_steps(r, b, 0, before, 1, parts[0]);
    }
    if (before != b.n_steps) {
      detail::append_steps(r, b, before, b.n_steps - before, 1, parts[1]);
    }
  }
  for (contents& part : parts) {
    if (part.blocks.empty()) {
      throw config_error("halve: the selection has one step only; there is nothing to check on");
    }
  }
  return {recording(std::move(parts[0])), recording(std::move(parts[1])), by_sequence};
}

}  // namespace trace
}  // namespace warmset::inline v0
