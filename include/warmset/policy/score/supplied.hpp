// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::score {

/// Keys that the engine computes itself and hands over with the step, one per expert of the layer: larger =
/// keep. Where a step brings none, the keys of the layer's last step stay. Units are the engine's own. O(E) per
/// step. They are an input: two runs that are given the same keys decide the same. Source: this project, for
/// retention heads (a second router that says which experts come back).
class supplied {
 public:
  struct state {
    i32 key;
  };
  static constexpr char const* name = "supplied";
  static constexpr u32 columns = 16;
  static constexpr bool uses_previous_layer = false;
  static constexpr bool uses_supplied = true;

  WARMSET_HD constexpr u64 value(state const& x, expert_facts, clocks) const noexcept {
    return x.key > 0 ? static_cast<u64>(x.key) : 0;
  }
  WARMSET_HD constexpr void on_demand(state&, clocks) const noexcept {}
  WARMSET_HD constexpr i32 key_of(state const& x) const noexcept { return x.key; }
  WARMSET_HD constexpr i32 aged(i32 key) const noexcept { return key; }
  WARMSET_HD constexpr u64 context_bytes(u32) const noexcept { return 0; }

  template <class Experts>
  WARMSET_HD constexpr u32 list_contexts(unsigned char const*, Experts const&, step_context const&,
                                         u32*) const noexcept {
    return 0;
  }
  template <class Experts>
  WARMSET_HD constexpr void keys(unsigned char const*, state const* states, Experts const&,
                                 step_context const& step, u32 first, u32 end, i32* out) const noexcept {
    for (u32 x = first; x < end; ++x) {
      out[x] = step.supplied != nullptr ? step.supplied[x] : states[x].key;
    }
  }
  template <class Experts>
  WARMSET_HD constexpr void learn(unsigned char*, state* states, Experts const&, step_context const&,
                                  i32 const* keys, u32 first, u32 end) const noexcept {
    for (u32 x = first; x < end; ++x) {
      states[x].key = keys[x];
    }
  }
  WARMSET_HD constexpr void end_step(unsigned char*, step_context const&) const noexcept {}
};

static_assert(contextual_score<supplied>, "score::supplied must satisfy contextual_score");

}  // namespace warmset::inline v0::score
