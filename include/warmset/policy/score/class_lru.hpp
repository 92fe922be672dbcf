// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "decayed_count.hpp"

namespace warmset::inline v0::score {

/// LRU weighted by a frequency class: class = min(7, floor(log2(max(1, whole counts)))) of a decayed count
/// with half-life 128; the coldest has the largest u64(age) << (7 - class). Unit: weighted ticks of the
/// pool; the value is its complement, so that larger = keep. Never demanded is coldest. O(1). Source: this
/// project's reading of the replacement rule of llama.cpp's expert cache.
class class_lru {
 public:
  using state = decayed_count::state;
  static constexpr char const* name = "class_lru";
  static constexpr u32 half_life = 128;

  WARMSET_HD constexpr class_lru() noexcept : count_(tuning{.half_life = half_life}) {}

  WARMSET_HD constexpr u32 class_of(state const& x, u32 step) const noexcept {
    return min_of(7u, floor_log2(max_of(1u, count_.read(x, step) >> 8)));
  }
  WARMSET_HD constexpr u64 value(state const& x, expert_facts e, clocks c) const noexcept {
    return e.accessed ? u64_max - (u64{age_of(c.tick, e.last)} << (7 - class_of(x, c.step))) : 0;
  }
  WARMSET_HD constexpr void on_demand(state& x, clocks c) const noexcept { count_.on_demand(x, c); }
  WARMSET_HD constexpr void rebase(state& x, clocks c) const noexcept { count_.rebase(x, c); }

 private:
  decayed_count count_;
};

static_assert(score_policy<class_lru>, "score::class_lru must satisfy score_policy");

}  // namespace warmset::inline v0::score
