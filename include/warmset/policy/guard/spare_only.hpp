// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::guard {

/// Speculation takes a free slot or one that was speculated and never demanded, never a demanded resident.
/// The default. The pool keeps `speculative_slots` for it: demand takes those last, and when a demand
/// turns a speculated slot into its own, the coldest resident makes way. O(1). Source: this project.
struct spare_only {
  static constexpr bool needs_heat = false;
  static constexpr bool keeps_reserve = true;
  static constexpr char const* name = "spare_only";

  WARMSET_HD constexpr bool permits(duel const& d) const noexcept { return d.victim_spare; }
};

static_assert(guard_policy<spare_only>, "guard::spare_only must satisfy guard_policy");

}  // namespace warmset::inline v0::guard
