// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>

#include "governor.hpp"
#include "race.hpp"

namespace warmset::inline v0 {
namespace gate {

/// Says in front of each step of a captured graph whether it looks ahead: a governor, which counts bytes, and, where that is
/// open, a race, which has a clock. A governor that is not open wants samples, for long where few hints are judged or where it
/// opens for a moment again and again, and looking ahead is not free: it gets them in the first steps, and then so seldom that
/// what they cost by the clock is no more than 1/256 of the time. One owner thread. O(1), and what a race's trial costs.
class pacing {
 public:
  /// What the governor permits, its slack and its state; ask it before `ask`, tell it what was issued. It is told by `judge`
  /// what became of hints.
  constexpr governor& bytes() noexcept { return governor_; }
  constexpr governor const& bytes() const noexcept { return governor_; }
  constexpr race const& clock() const noexcept { return race_; }

  /// Experts that the next step's branches may move, where `permitted` are: as many as `most`, or the next power of two below.
  /// Down at once, up only after eight steps in a row that permit it, since a device has to be told of each change.
  constexpr u64 budget(u64 permitted, u64 most) noexcept {
    u64 const to = permitted >= most ? most : std::bit_floor(permitted);
    n_above_ = budget_ != 0 && to > budget_ ? n_above_ + 1 : 0;
    if (n_above_ == 0 || n_above_ == steps_before_more) {
      n_above_ = 0;
      budget_ = to;
    }
    return budget_;
  }

  /// Whether the next step looks ahead, where somebody wants it to.
  constexpr bool ask(bool wanted) noexcept {
    is_raced_ = governor_.state() == governor_state::open;
    is_in_trial_ = is_raced_ && race_.is_trying();
    since_sample_ = saturating_add(since_sample_, 1u);
    if (is_raced_) {
      is_ahead_ = race_.ask(wanted);
      return is_ahead_;
    }
    is_ahead_ = wanted && (n_samples_ < samples_at_first || since_sample_ >= steps_of_a_sample());
    if (is_ahead_) {
      since_sample_ = 0;
      n_samples_ = min_of(n_samples_ + 1, samples_at_first);
    }
    return is_ahead_;
  }
  /// Whether a step about which was asked last, and which does not look ahead though it is wanted, would be slower with.
  constexpr bool is_lost() const noexcept { return is_raced_ && !is_in_trial_; }

  /// Whether the step about which was asked last is one of a trial.
  constexpr bool is_in_trial() const noexcept { return is_in_trial_; }

  /// How long the step took about which was asked last.
  constexpr void took(u64 ns) noexcept {
    race_.took(ns);
    if (!is_raced_) {
      ns = min_of(ns, u64_max / (2 * share_of_samples));  // no product below wraps
      u64& least = is_ahead_ ? with_ns_ : without_ns_;
      least = least == 0 ? ns : min_of(ns, least + least / 64 + 1);
    }
  }

  /// What has become of hints; see governor::judge. In a trial half of the steps have no hints, and miss what these have
  /// evicted: no regret of theirs.
  constexpr void judge(u32 used, u32 wasted, u32 regretted) noexcept { judge(used, wasted, regretted, is_in_trial_); }
  /// The same, later: of a step for which `is_in_trial` said so.
  constexpr void judge(u32 used, u32 wasted, u32 regretted, bool in_trial) noexcept {
    regretted = in_trial ? 0 : regretted;
    if ((used | wasted | regretted) != 0) {
      governor_.judge(used, wasted, regretted);
    }
  }

  /// The steps to come have little to do with those before; see race::interrupt.
  constexpr void interrupt() noexcept {
    race_.interrupt();
    budget_ = 0;
  }

 private:
  static constexpr u32 steps_before_more = 8;
  static constexpr u32 samples_at_first = 8;
  static constexpr u32 least_steps_of_a_sample = 8;
  static constexpr u32 most_steps_of_a_sample = 1024;
  static constexpr u64 share_of_samples = 256;  // one in so many of the time, for what they cost

  constexpr u32 steps_of_a_sample() const noexcept {
    u64 const by = saturating_sub(with_ns_, without_ns_);
    if (without_ns_ == 0 || by > without_ns_ * (most_steps_of_a_sample / share_of_samples)) {
      return without_ns_ == 0 ? least_steps_of_a_sample : most_steps_of_a_sample;
    }
    return max_of(static_cast<u32>(by * share_of_samples / without_ns_), least_steps_of_a_sample);
  }

  governor governor_;
  race race_;
  u64 budget_ = 0;   // the last one, in experts
  u32 n_above_ = 0;  // steps in a row that permitted more
  u64 with_ns_ = 0;  // the least of the last steps that were not raced; 0 = none yet
  u64 without_ns_ = 0;
  u32 n_samples_ = 0;  // of the first ones
  u32 since_sample_ = 0;
  bool is_raced_ = false;
  bool is_in_trial_ = false;  // the step about which was asked last
  bool is_ahead_ = false;     // the same
};

}  // namespace gate
}  // namespace warmset::inline v0
