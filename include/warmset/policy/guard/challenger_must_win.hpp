// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::guard {

/// Drops the hint when challenger <= victim + victim/4 + 4 counts: the challenger must win by a margin. A
/// pool of once-used residents refuses every unseen challenger: watch the drop rate. O(1). Source: the
/// first guard of the colibri engine (#474).
struct challenger_must_win {
  static constexpr bool needs_heat = true;
  static constexpr bool keeps_reserve = false;
  static constexpr char const* name = "challenger_must_win";

  WARMSET_HD constexpr bool permits(duel const& d) const noexcept {
    return d.challenger_score > with_margin(d.victim_score, d.one_count);
  }
};

static_assert(guard_policy<challenger_must_win>, "guard::challenger_must_win must satisfy guard_policy");

}  // namespace warmset::inline v0::guard
