// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::score {

/// Whose recency clock a score reads.
enum class clock_scope : u8 { layer, model };

/// Frequency with a recency bonus: heat * 256 + max(0, 255 - age); never demanded scores 0. Unit: 1/256
/// count; age in ticks of the layer (default) or of the whole model. Under the model's clock an expert
/// used one token ago is older than 255 in any model with more than 255 demands a token, and the bonus is
/// gone. No decay. O(1). Source: the LFRU score of the colibri engine.
template <clock_scope Scope = clock_scope::layer>
struct basic_lfru {
  struct state {
    u32 count;
    u32 stamp;
  };
  static constexpr char const* name = Scope == clock_scope::layer ? "lfru" : "lfru_model";
  static constexpr u64 one_count = 256;
  static constexpr bool decays = false;

  static constexpr bool reads_model_tick = Scope == clock_scope::model;

  WARMSET_HD constexpr u32 heat(state const& x, expert_facts, clocks) const noexcept {
    return x.count;
  }
  WARMSET_HD constexpr u64 value(state const& x, expert_facts, clocks c) const noexcept {
    // count 0 = never demanded: no stamp to compare with
    u32 const bonus = x.count == 0 ? 0 : saturating_sub(255u, age_of(now(c), x.stamp));
    return u64{x.count} * one_count + bonus;
  }
  WARMSET_HD constexpr void on_demand(state& x, clocks c) const noexcept {
    x.count = saturating_add(x.count, 1);
    x.stamp = now(c);
  }
  WARMSET_HD constexpr void rebase(state& x, clocks c) const noexcept {
    if (age_of(now(c), x.stamp) > u32_max / 2) {
      x.stamp = now(c) - u32_max / 2;
    }
  }
  WARMSET_HD constexpr void seed(state& x, u32 counts_256, clocks c) const noexcept {
    x = {counts_256 >> 8, counts_256 >> 8 != 0 ? now(c) : 0};
  }

 private:
  WARMSET_HD static constexpr u32 now(clocks c) noexcept {
    return Scope == clock_scope::layer ? c.layer_tick : c.model_tick;
  }
};

using lfru = basic_lfru<clock_scope::layer>;
using lfru_model = basic_lfru<clock_scope::model>;

static_assert(counting_score<lfru>, "score::lfru must satisfy counting_score");
static_assert(counting_score<lfru_model>, "score::lfru_model must satisfy counting_score");

}  // namespace warmset::inline v0::score
