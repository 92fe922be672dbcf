// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::guard {

/// Drops the hint when the victim has heat >= 2 and victim > challenger + challenger/4 + 4 counts: the
/// victim must be hotter by a margin to be defended. O(1). Source: the prose of colibri #497, which its
/// code does not do.
struct victim_must_be_hotter {
  static constexpr bool needs_heat = true;
  static constexpr bool keeps_reserve = false;
  static constexpr char const* name = "victim_must_be_hotter";

  WARMSET_HD constexpr bool permits(duel const& d) const noexcept {
    return d.victim_heat < 2 || d.victim_score <= with_margin(d.challenger_score, d.one_count);
  }
};

static_assert(guard_policy<victim_must_be_hotter>, "guard::victim_must_be_hotter must satisfy guard_policy");

}  // namespace warmset::inline v0::guard
