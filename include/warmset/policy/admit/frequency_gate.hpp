// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::admit {

/// Installs a miss where a slot is free, and otherwise only where its heat, this demand included, is not below
/// the heat of the victim that it would replace. Unit: whole counts after decay; a tie installs. Misses in
/// demand order; a victim that one miss may not replace is compared with the next. Needs a score with heat,
/// and one that fades: with counts that only grow the oldest residents win for ever. O(1), no state of its own:
/// the score's exact counts stand in for the paper's sketch. Source: TinyLFU (Einziger, Friedman and Manes,
/// ACM Transactions on Storage 13(4), 2017).
struct frequency_gate {
  static constexpr bool may_decline = true;
  static constexpr bool compares = true;
  static constexpr bool needs_heat = true;
  static constexpr char const* name = "frequency_gate";

  WARMSET_HD constexpr bool admits(admission_question const&) const noexcept { return true; }
  WARMSET_HD constexpr bool compares_in(admission_step) const noexcept { return true; }
  WARMSET_HD constexpr bool replaces(replacement_question const& q) const noexcept {
    return u64{q.challenger_heat} + 1 >= q.victim_heat;
  }
};

static_assert(admission_policy<frequency_gate>, "admit::frequency_gate must satisfy admission_policy");

}  // namespace warmset::inline v0::admit
