// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "trace.hpp"

namespace warmset::inline v0 {
namespace trace {

/// Puts events, handed over in recorded order, together to the fewest blocks.
///
/// Members of `parts` other than `blocks`, `ids` and `tokens` are the caller's; `add` appends to
/// these three. `tokens` are the event's input token ids, n_tokens or none, and all layers of a step
/// name the same: those of the first are kept.
/// What it is given is checked when the recording is made. O(1) amortized per id.
class builder {
 public:
  contents parts;

  void add(u32 sequence, u32 position, phase what, u32 row, u32 n_tokens, u32 k,
           std::span<u16 const> ids, std::span<u32 const> tokens = {}) {
    bool starts_step = true;
    if (!extends(sequence, position, what, row, n_tokens, k)) {
      close();
      open_ = {};
      open_.sequence = sequence;
      open_.first_position = position;
      open_.phase = what;
      open_.first_row = row;
      open_.n_tokens = n_tokens;
      open_.k = k;
      filled_ = 1;
      first_step_ = true;
    } else if (row == open_.first_row) {
      // The first step is over: its rows are the shape of the block.
      if (first_step_) {
        open_.n_rows = filled_;
        first_step_ = false;
      }
      ++open_.n_steps;
      filled_ = 1;
    } else {
      ++filled_;
      starts_step = false;
    }
    parts.ids.insert(parts.ids.end(), ids.begin(), ids.end());
    if (starts_step) {
      parts.tokens.insert(parts.tokens.end(), tokens.begin(), tokens.end());
    }
  }

  /// The contents; the builder is empty afterwards.
  contents take() {
    close();
    return std::move(parts);
  }

 private:
  /// While a block is open: n_steps counts the complete steps before the current one, of which
  /// `filled_` rows are there.
  bool extends(u32 sequence, u32 position, phase what, u32 row, u32 n_tokens,
               u32 k) const noexcept {
    if (filled_ == 0 || sequence != open_.sequence || what != open_.phase ||
        n_tokens != open_.n_tokens || k != open_.k) {
      return false;
    }
    u64 const now = open_.first_position + u64{open_.n_steps} * n_tokens;
    bool const next_row = position == now && row == open_.first_row + filled_ &&
                          (first_step_ || filled_ < open_.n_rows);
    bool const next_step = position == now + n_tokens && row == open_.first_row &&
                           (first_step_ || filled_ == open_.n_rows);
    return next_row || next_step;
  }

  void close() {
    if (filled_ == 0) {
      return;
    }
    if (first_step_) {
      open_.n_rows = filled_;
    }
    if (filled_ == open_.n_rows) {
      ++open_.n_steps;
      parts.blocks.push_back(open_);
    } else {
      // An unfinished step becomes a block of its own.
      parts.blocks.push_back(open_);
      block rest = open_;
      rest.first_position = open_.first_position + open_.n_steps * open_.n_tokens;
      rest.n_rows = filled_;
      rest.n_steps = 1;
      parts.blocks.push_back(rest);
    }
    filled_ = 0;
  }

  block open_;
  u32 filled_ = 0;
  bool first_step_ = true;
};

}  // namespace trace
}  // namespace warmset::inline v0
