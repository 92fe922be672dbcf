// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::score {

/// What happens to a count when its expert is evicted.
enum class history : u8 { keep, forget };

/// Least frequently used: the number of steps that demanded the expert, saturating at 2^32-1. Unit:
/// counts, no decay. `history::forget` starts again at 1 with each install (an absent expert has heat 0).
/// O(1). Source: folklore; the kept form is what engines with a persistent usage table do.
template <history History = history::keep>
struct basic_lfu {
  struct state {
    u32 count;
  };
  static constexpr char const* name = History == history::keep ? "lfu" : "lfu_forget";
  static constexpr u64 one_count = 1;
  static constexpr bool decays = false;

  WARMSET_HD constexpr u32 heat(state const& x, expert_facts e, clocks) const noexcept {
    return History == history::forget && !e.resident ? 0 : x.count;
  }
  WARMSET_HD constexpr u64 value(state const& x, expert_facts e, clocks c) const noexcept {
    return heat(x, e, c);
  }
  WARMSET_HD constexpr void on_demand(state& x, clocks) const noexcept {
    x.count = saturating_add(x.count, 1);
  }
  WARMSET_HD constexpr void on_install(state& x, clocks) const noexcept {
    if constexpr (History == history::forget) {
      x.count = 0;
    }
  }
  WARMSET_HD constexpr void seed(state& x, u32 counts_256, clocks) const noexcept { x.count = counts_256 >> 8; }
};

using lfu = basic_lfu<history::keep>;
using lfu_forget = basic_lfu<history::forget>;

static_assert(counting_score<lfu>, "score::lfu must satisfy counting_score");
static_assert(counting_score<lfu_forget>, "score::lfu_forget must satisfy counting_score");

}  // namespace warmset::inline v0::score
