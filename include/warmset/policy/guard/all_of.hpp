// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::guard {

/// Permits what every one of the guards permits; they are asked in order, until one refuses. O(guards).
/// Source: this project.
template <guard_policy... Guards>
struct all_of {
  static constexpr bool needs_heat = (false || ... || Guards::needs_heat);
  static constexpr bool keeps_reserve = (false || ... || Guards::keeps_reserve);
  static constexpr char const* name = "all_of";

  WARMSET_HD constexpr bool permits(duel const& d) const noexcept {
    return (true && ... && Guards{}.permits(d));
  }
};

static_assert(guard_policy<all_of<>>, "guard::all_of must satisfy guard_policy");

}  // namespace warmset::inline v0::guard
