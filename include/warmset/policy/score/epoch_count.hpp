// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::score {

/// Demand count that is halved once per epoch of a fixed number of steps: count >> elapsed epochs, 0 from
/// 32 epochs on. A stored epoch ahead of the clock reads as elapsed 0 (audit names it). Unit: counts;
/// the steps of an epoch
/// are a power of two, default 16. O(1). Source: the device-side rule of the engine fork that this project
/// started from.
class epoch_count {
 public:
  struct state {
    u32 count;
    u32 epoch;
  };
  static constexpr char const* name = "epoch_count";
  static constexpr u64 one_count = 1;
  static constexpr bool decays = true;

  WARMSET_HD explicit constexpr epoch_count(tuning const& numbers) noexcept
      : shift_(floor_log2(numbers.epoch)) {}

  /// The count as it stands in `epoch`. Epochs wrap with the step clock; one that lies ahead is elapsed 0.
  WARMSET_HD constexpr u32 read(state const& x, u32 epoch) const noexcept {
    u32 const steps = (epoch << shift_) - (x.epoch << shift_);
    u32 const elapsed = steps > u32_max / 2 ? 0 : steps >> shift_;
    return elapsed >= 32 ? 0 : x.count >> elapsed;
  }
  WARMSET_HD constexpr u32 heat(state const& x, expert_facts, clocks c) const noexcept {
    return read(x, c.step >> shift_);
  }
  WARMSET_HD constexpr u64 value(state const& x, expert_facts e, clocks c) const noexcept {
    return heat(x, e, c);
  }
  WARMSET_HD constexpr void on_demand(state& x, clocks c) const noexcept {
    u32 const now = c.step >> shift_;
    x.count = saturating_add(read(x, now), 1);
    x.epoch = now;
  }
  WARMSET_HD constexpr void rebase(state& x, clocks c) const noexcept {
    u32 const now = c.step >> shift_;
    x.count = read(x, now);
    x.epoch = now;
  }
  WARMSET_HD constexpr void seed(state& x, u32 counts_256, clocks c) const noexcept {
    x = {counts_256 >> 8, c.step >> shift_};
  }
  /// Whether this clock could have written the state; audit asks.
  WARMSET_HD constexpr bool plausible(state const& x, clocks c) const noexcept {
    return c.step - (x.epoch << shift_) <= u32_max / 2;
  }

 private:
  u32 shift_;
};

static_assert(counting_score<epoch_count>, "score::epoch_count must satisfy counting_score");

}  // namespace warmset::inline v0::score
