// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/error.hpp"
#include "../core/integers.hpp"

namespace warmset::inline v0 {
namespace gate {

/// The numbers of a race.
struct race_numbers {
  u32 lap_steps = 12;            ///< steps that one way is taken in a trial before the other one is
  u32 settling_steps = 4;        ///< the first ones of a lap, which are not timed; fewer than lap_steps, and 32 less at most
  u32 least_pairs = 4;           ///< at least 2; before them nothing is clear
  u32 most_pairs = 10;           ///< at least least_pairs, at most 256; a trial ends after them
  u32 rest_steps = 1'024;        ///< steps between two trials
  u32 most_rest_steps = 16'384;  ///< at least rest_steps; every trial that the way with loses doubles the rest, up to here
};

/// What the last trial came to.
enum class race_verdict : u8 { none, faster, slower };

/// Decides by the clock which of two ways to take a step is the faster one, such as a graph with branches that look ahead
/// and one without: what either costs beside the bytes it moves, no count of bytes can tell.
///
/// In a trial the ways take turns, lap by lap, beginning and ending with the one without. A lap with is compared with the
/// mean of its neighbours without, so that what drifts (a pool that fills, a context that grows) moves both alike; the first
/// steps of a lap are not timed, since what the other way has left in the pools is paid for there, and neither is the slowest
/// quarter of the others, which something else may have disturbed. A trial ends as soon as the mean of these differences is
/// four of its standard errors away from 0, or after the most pairs, and the sign decides. Until the next trial the way with is
/// taken, unless it was slower. Steps at which nobody wants the way with do not count.
///
/// Integers only; allocates nothing; no function but the constructor throws. One owner thread. O(1), and O(steps of a lap)
/// in a trial.
class race {
 public:
  /// Throws config_error where numbers are not as said above.
  explicit constexpr race(race_numbers const& numbers = {}) : numbers_(numbers), rest_(numbers.rest_steps) {
    if (numbers.settling_steps >= numbers.lap_steps || numbers.lap_steps - numbers.settling_steps > most_timed) {
      throw config_error("race: laps of ", numbers.lap_steps, " steps, of which ", numbers.settling_steps,
                         " are not timed; 1 to 32 that are timed are possible");
    }
    if (numbers.least_pairs < 2 || numbers.most_pairs < numbers.least_pairs || numbers.most_pairs > 256) {
      throw config_error("race: ", numbers.least_pairs, " to ", numbers.most_pairs, " pairs; 2 to 256, in order, are possible");
    }
    if (numbers.rest_steps == 0 || numbers.most_rest_steps < numbers.rest_steps) {
      throw config_error("race: rests of ", numbers.rest_steps, " to ", numbers.most_rest_steps,
                         " steps; at least 1, in order, are possible");
    }
  }

  /// Whether the next step goes the way with, where somebody wants it to.
  constexpr bool ask(bool wanted) noexcept {
    counts_ = wanted;
    return wanted && (is_trying_ ? n_laps_ % 2 == 1 : verdict_ != race_verdict::slower);
  }

  /// How long the step took about which was asked last.
  constexpr void took(u64 ns) noexcept {
    if (!counts_) {
      return;
    }
    counts_ = false;
    if (!is_trying_) {
      if (++rested_ >= rest_) {
        begin();
      }
      return;
    }
    if (n_steps_ >= numbers_.settling_steps) {
      time(min_of(ns, longest));
    }
    if (++n_steps_ == numbers_.lap_steps) {
      end_lap();
      n_steps_ = 0;
      ++n_laps_;
    }
  }

  /// The steps to come have little to do with those before, such as those of an emptied pool: begins the lap again.
  constexpr void interrupt() noexcept { n_steps_ = 0; }

  /// Forgets all but its numbers.
  constexpr void reset() noexcept { *this = race(numbers_); }

  constexpr race_verdict verdict() const noexcept { return verdict_; }
  constexpr bool is_trying() const noexcept { return is_trying_; }
  constexpr u32 trials() const noexcept { return trials_; }

 private:
  static constexpr u32 most_timed = 32;
  static constexpr u64 longest = u64{1} << 40;  // of a step, 18 minutes
  static constexpr u64 parts = 4096;     // of a lap: the unit of differences
  static constexpr u64 most_parts = 1024;  // what a lap can say

  constexpr void begin() noexcept {
    is_trying_ = true;
    n_steps_ = n_laps_ = n_pairs_ = 0;
    sum_ = squares_ = 0;
  }
  /// Keeps the lap's times in order.
  constexpr void time(u64 ns) noexcept {
    u32 i = n_steps_ - numbers_.settling_steps;
    for (; i != 0 && times_[i - 1] > ns; --i) {
      times_[i] = times_[i - 1];
    }
    times_[i] = ns;
  }
  constexpr void end_lap() noexcept {
    u32 const n = numbers_.lap_steps - numbers_.settling_steps;
    u64 ns = 0;
    for (u32 i = 0; i < n - n / 4; ++i) {
      ns += times_[i];
    }
    if (n_laps_ % 2 == 1) {
      with_ = ns;
      return;
    }
    u64 const before = without_;
    without_ = ns;
    if (n_laps_ != 0) {
      add(with_, (before + ns) / 2);
    }
  }
  constexpr void add(u64 with, u64 without) noexcept {
    bool const is_slower = with > without;
    u64 const by = min_of((is_slower ? with - without : without - with) * parts / max_of(without, u64{1}), most_parts);
    i64 const d = is_slower ? static_cast<i64>(by) : -static_cast<i64>(by);
    sum_ += d;
    squares_ += d * d;
    i64 const n = ++n_pairs_;
    i64 const square = sum_ * sum_;
    bool const is_clear = square * (n - 1) > 16 * (n * squares_ - square);
    if ((n_pairs_ >= numbers_.least_pairs && is_clear) || n_pairs_ >= numbers_.most_pairs) {
      end(sum_ > 0 ? race_verdict::slower : race_verdict::faster);
    }
  }
  constexpr void end(race_verdict verdict) noexcept {
    bool const again = verdict == race_verdict::slower && verdict_ == race_verdict::slower;
    rest_ = again ? min_of(saturating_add(rest_, rest_), numbers_.most_rest_steps) : numbers_.rest_steps;
    verdict_ = verdict;
    is_trying_ = false;
    rested_ = 0;
    ++trials_;
  }

  race_numbers numbers_;
  u64 times_[most_timed] = {};  // of the lap, ascending
  u64 with_ = 0;                // of the last lap with
  u64 without_ = 0;
  i64 sum_ = 0;  // of a trial's differences, positive where with was slower
  i64 squares_ = 0;
  u32 n_pairs_ = 0;
  u32 n_laps_ = 0;
  u32 n_steps_ = 0;  // of the lap
  u32 rested_ = 0;
  u32 rest_;
  u32 trials_ = 0;
  race_verdict verdict_ = race_verdict::none;
  bool is_trying_ = true;
  bool counts_ = false;
};

}  // namespace gate
}  // namespace warmset::inline v0
