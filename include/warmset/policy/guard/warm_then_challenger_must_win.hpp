// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::guard {

/// Drops the hint when the victim has heat >= 2 and victim + victim/4 + 4 counts > challenger: once-used
/// residents are replaceable, warm ones are defended. O(1). Source: the colibri engine (#497).
struct warm_then_challenger_must_win {
  static constexpr bool needs_heat = true;
  static constexpr bool keeps_reserve = false;
  static constexpr char const* name = "warm_then_challenger_must_win";

  WARMSET_HD constexpr bool permits(duel const& d) const noexcept {
    return d.victim_heat < 2 || with_margin(d.victim_score, d.one_count) <= d.challenger_score;
  }
};

static_assert(guard_policy<warm_then_challenger_must_win>, "guard::warm_then_challenger_must_win must satisfy guard_policy");

}  // namespace warmset::inline v0::guard
