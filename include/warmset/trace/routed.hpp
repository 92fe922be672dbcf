// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <type_traits>
#include <vector>

#include "../predict/concept.hpp"
#include "trace.hpp"

namespace warmset::inline v0 {
namespace trace {

/// The events of a recording as a predictor sees them, one after the other, and what it would have to say.
///
/// Not a copy: it makes one snapshot at a time out of the recording, which must outlive it.
class routed_steps {
 public:
  routed_steps(recording const& r, selection const& which)
      : r_(r), which_(which), marks_(detail::most_experts(r.geometry())) {}

  /// Calls f(event, snapshot, next) for every selected event in recorded order: `next` are the distinct experts that
  /// the row `horizon` further on demands at its next event, empty where there is none. The look-ahead of a snapshot
  /// is what the recording has for the row after it in the same step; of several tokens best ranks first. Where f
  /// returns a bool, false ends the walk.
  template <class F>
  void for_each(u32 horizon, F&& f) {
    std::vector<block> const& blocks = r_.blocks();
    u32 const n_rows = static_cast<u32>(r_.geometry().layers().size());
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      if (!which_.contains(blocks[b])) {
        continue;
      }
      for (u64 step = 0; step < blocks[b].n_steps; ++step) {
        for (u32 row = 0; row < blocks[b].n_rows; ++row) {
          event const e = r_.at(blocks[b], step, row);
          set(e.ids, experts_);
          std::optional<event> const next = find(b, step, e.row, (e.row + horizon) % n_rows);
          next_.clear();
          if (next) {
            set(next->ids, next_);
          }
          lookahead_.clear();
          if (row + 1 < blocks[b].n_rows) {
            add_lookahead(r_.at(blocks[b], step, row + 1));
          }
          routing_snapshot seen;
          seen.layer = e.layer;
          seen.row = e.row;
          seen.in_phase = e.phase;
          seen.sequence = e.sequence;
          seen.token = e.tokens.empty() ? routing_snapshot::no_token : token_of(e);
          seen.experts = experts_;
          seen.lookahead = lookahead_;
          if (!call(f, e, seen)) {
            return;
          }
        }
      }
    }
  }

 private:
  template <class F>
  bool call(F&& f, event const& e, routing_snapshot const& seen) {
    array_view<u32 const> const next = next_;
    if constexpr (std::is_same_v<decltype(f(e, seen, next)), bool>) {
      return f(e, seen, next);
    } else {
      f(e, seen, next);
      return true;
    }
  }

  void set(std::span<u16 const> ids, std::vector<u32>& out) {
    out.clear();
    append_distinct(ids, marks_, out);
  }

  static u32 token_of(event const& e) noexcept {
    u32 hash = e.tokens.front();
    for (std::size_t i = 1; i < e.tokens.size(); ++i) {
      hash = (hash ^ e.tokens[i]) * 0x0100'0193u;
    }
    return hash & 0x7FFF'FFFF;
  }

  void add_lookahead(event const& e) {
    for (u32 rank = 0; rank < e.lookahead_width && !e.lookahead.empty(); ++rank) {
      for (u32 token = 0; token < e.n_tokens; ++token) {
        lookahead_.push_back(routed(e.lookahead[token * e.lookahead_width + rank]));
      }
    }
  }

  /// The first selected event of a row after (block, step, from). O(1) but where blocks lack the row.
  std::optional<event> find(std::size_t b, u64 step, u32 from, u32 row) const {
    std::vector<block> const& blocks = r_.blocks();
    for (u32 after = from; b < blocks.size(); ++b, step = 0, after = u32_max) {
      block const& in = blocks[b];
      if (!which_.contains(in) || row < in.first_row || row >= in.first_row + in.n_rows) {
        continue;
      }
      u64 const at = after == u32_max || row > after ? step : step + 1;
      if (at < in.n_steps) {
        return r_.at(in, at, row - in.first_row);
      }
    }
    return std::nullopt;
  }

  recording const& r_;
  selection which_;
  detail::row_marks marks_;
  std::vector<u32> experts_;
  std::vector<u32> next_;
  std::vector<routed_id> lookahead_;
};

}  // namespace trace
}  // namespace warmset::inline v0
