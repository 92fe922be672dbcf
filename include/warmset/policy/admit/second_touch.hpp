// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../../core/spelling.hpp"
#include "concept.hpp"

namespace warmset::inline v0::admit {

/// Installs a miss where the pool has a free slot for it, and otherwise only an expert that was demanded
/// within the last `Window` ticks of the pool: what is used once does not evict what is used again. Unit of
/// the window: ticks of the pool (one per distinct expert of a step), so that a shared pool's passes faster
/// than a layer's. O(1), no state. Source: admission on the second request within a window, as in the
/// cache-on-second-hit rule of content delivery networks (Maggs and Sitaraman 2015).
template <u32 Window = 128>
struct second_touch {
  static_assert(Window >= 1, "a window of no ticks admits nothing");
  static constexpr bool may_decline = true;
  static constexpr spelling spelled{"second_touch", Window, 128};
  static constexpr char const* name = spelled.text;

  WARMSET_HD constexpr bool admits(admission_question const& q) const noexcept {
    // age 0: demanded at the last tick
    return q.installs < q.free_slots || (q.accessed && q.age < Window);
  }
};

static_assert(admission_policy<second_touch<>>, "admit::second_touch must satisfy admission_policy");

}  // namespace warmset::inline v0::admit
