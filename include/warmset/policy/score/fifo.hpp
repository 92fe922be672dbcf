// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::score {

/// First in, first out: an expert is worth as much as its install is recent; hits change nothing. Unit:
/// ticks of the pool. A speculated expert counts as installed at its first demand. O(1). Source: folklore.
struct fifo {
  struct state {
    u32 installed;
  };
  static constexpr char const* name = "fifo";

  WARMSET_HD constexpr u64 value(state const& x, expert_facts e, clocks c) const noexcept {
    return e.accessed ? u64{u32_max - age_of(c.tick, x.installed)} : 0;
  }
  WARMSET_HD constexpr void on_demand(state&, clocks) const noexcept {}
  WARMSET_HD constexpr void on_install(state& x, clocks c) const noexcept { x.installed = c.tick; }
  WARMSET_HD constexpr void rebase(state& x, clocks c) const noexcept {
    if (age_of(c.tick, x.installed) > u32_max / 2) {
      x.installed = c.tick - u32_max / 2;
    }
  }
};

static_assert(score_policy<fifo>, "score::fifo must satisfy score_policy");

}  // namespace warmset::inline v0::score
