// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"
#include "decay.hpp"

namespace warmset::inline v0::score {

/// Exponentially decayed demand count. Stored in 1/256 counts (saturating) with the step stamp of the last
/// touch; a read decays by the steps since, a touch writes read + 256. Unit: 1/256 count; half-life in
/// steps of the layer, 4 … 256, default 16. History survives eviction. O(1). Source: exponential decay as
/// in LRFU (Lee et al., 2001); the count of choice on all real traces of this project.
class decayed_count {
 public:
  struct state {
    u32 value;
    u32 stamp;
  };
  static constexpr char const* name = "decayed_count";
  static constexpr u64 one_count = 256;
  static constexpr bool decays = true;

  WARMSET_HD explicit constexpr decayed_count(tuning const& numbers) noexcept
      : decay_(numbers.half_life) {}

  WARMSET_HD constexpr u32 read(state const& x, u32 step) const noexcept {
    return decay_.read(x.value, age_of(step, x.stamp));
  }
  WARMSET_HD constexpr u64 value(state const& x, expert_facts, clocks c) const noexcept {
    return read(x, c.step);
  }
  WARMSET_HD constexpr u32 heat(state const& x, expert_facts, clocks c) const noexcept {
    return read(x, c.step) >> 8;
  }
  WARMSET_HD constexpr void on_demand(state& x, clocks c) const noexcept {
    x.value = saturating_add(read(x, c.step), 256);
    x.stamp = c.step;
  }
  WARMSET_HD constexpr void rebase(state& x, clocks c) const noexcept {
    x.value = read(x, c.step);
    x.stamp = c.step;
  }
  WARMSET_HD constexpr u32 heat_256(state const& x, clocks c) const noexcept { return read(x, c.step); }
  WARMSET_HD constexpr void seed(state& x, u32 counts_256, clocks c) const noexcept { x = {counts_256, c.step}; }

 private:
  decay_table decay_;
};

static_assert(counting_score<decayed_count>, "score::decayed_count must satisfy counting_score");

}  // namespace warmset::inline v0::score
