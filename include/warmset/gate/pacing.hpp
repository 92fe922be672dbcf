// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "governor.hpp"
#include "race.hpp"

namespace warmset::inline v0 {
namespace gate {

/// Says in front of each step of a captured graph whether it looks ahead: a governor, which counts bytes, and, where that is
/// open, a race, which has a clock. A governor that is not open wants samples, for long where few hints are judged, and
/// looking ahead is not free: it gets them in the first steps, and then in few. One owner thread. O(1), and what a race's
/// trial costs.
class pacing {
 public:
  /// What the governor permits, its slack and its state; ask it before `ask`, tell it what was issued. It is told by `judge`
  /// what became of hints.
  constexpr governor& bytes() noexcept { return governor_; }
  constexpr governor const& bytes() const noexcept { return governor_; }
  constexpr race const& clock() const noexcept { return race_; }

  /// Whether the next step looks ahead, where somebody wants it to.
  constexpr bool ask(bool wanted) noexcept {
    is_raced_ = governor_.state() == governor_state::open;
    is_in_trial_ = is_raced_ && race_.is_trying();
    if (is_raced_) {
      n_samples_ = 0;
      return race_.ask(wanted);
    }
    n_samples_ += wanted ? 1 : 0;
    return wanted && (n_samples_ <= samples_in_a_row || n_samples_ % steps_of_a_sample == 0);
  }
  /// Whether a step about which was asked last, and which does not look ahead though it is wanted, would be slower with.
  constexpr bool is_lost() const noexcept { return is_raced_ && !is_in_trial_; }

  /// How long the step took about which was asked last.
  constexpr void took(u64 ns) noexcept { race_.took(ns); }

  /// What has become of hints; see governor::judge. In a trial half of the steps have no hints, and miss what these have
  /// evicted: no regret of theirs.
  constexpr void judge(u32 used, u32 wasted, u32 regretted) noexcept {
    regretted = is_in_trial_ ? 0 : regretted;
    if ((used | wasted | regretted) != 0) {
      governor_.judge(used, wasted, regretted);
    }
  }

  /// See race::interrupt.
  constexpr void interrupt() noexcept { race_.interrupt(); }

 private:
  static constexpr u32 samples_in_a_row = 8;
  static constexpr u32 steps_of_a_sample = 8;  // after those

  governor governor_;
  race race_;
  u32 n_samples_ = 0;  // steps that wanted one since the governor was open
  bool is_raced_ = false;
  bool is_in_trial_ = false;  // the step about which was asked last
};

}  // namespace gate
}  // namespace warmset::inline v0
