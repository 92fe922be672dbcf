// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../../core/spelling.hpp"
#include "concept.hpp"

namespace warmset::inline v0::admit {

/// Declines a miss that is colder than the victim: it is installed where a slot is free or its score before
/// this step is at least the victim's. Misses by falling score, equal ones in demand order. Decides in decode
/// only, and only where the layer has committed `AfterSteps` steps: a score that has learned nothing yet
/// undervalues every newcomer. Otherwise everything is installed. Unit: the score's. O(1) per miss and victim,
/// no state. Source: the bypass rule of this project's successor score; bypass as in Belady's MIN with an
/// optional install.
template <u32 AfterSteps = 1024>
struct colder_than_victim {
  static constexpr bool may_decline = true;
  static constexpr bool compares = true;
  static constexpr bool falling_score = true;
  static constexpr spelling spelled{"colder_than_victim", AfterSteps, 1024};
  static constexpr char const* name = spelled.text;

  WARMSET_HD constexpr bool admits(admission_question const&) const noexcept { return true; }
  WARMSET_HD constexpr bool compares_in(admission_step s) const noexcept {
    return s.in_phase == phase::decode && s.layer_steps >= AfterSteps;
  }
  WARMSET_HD constexpr bool replaces(replacement_question const& q) const noexcept {
    return q.challenger_score >= q.victim_score;
  }
};

static_assert(admission_policy<colder_than_victim<>>, "admit::colder_than_victim must satisfy admission_policy");

}  // namespace warmset::inline v0::admit
