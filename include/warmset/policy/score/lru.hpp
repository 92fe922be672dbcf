// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::score {

/// Least recently used: an expert is worth as much as its last demand is recent. Unit: ticks of the pool.
/// O(1), no state of its own. Source: folklore; the default of most MoE caches.
struct lru {
  using state = no_state;
  static constexpr char const* name = "lru";

  WARMSET_HD constexpr u64 value(state const&, expert_facts e, clocks c) const noexcept {
    return e.accessed ? u64{u32_max - age_of(c.tick, e.last)} : 0;
  }
  WARMSET_HD constexpr void on_demand(state&, clocks) const noexcept {}
};

static_assert(score_policy<lru>, "score::lru must satisfy score_policy");

}  // namespace warmset::inline v0::score
