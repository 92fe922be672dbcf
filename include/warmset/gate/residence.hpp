// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/integers.hpp"

namespace warmset::inline v0 {
namespace gate {

/// How long a pool keeps what it loads: a pool of S slots that loads L experts in N steps turns over in S N / L steps.
/// A hint whose step is farther off than that would leave before it is used, or keep out what is used sooner: it is
/// dropped with `reason::admission` before any byte moves.
///
/// Old steps fade: both counts are halved every `memory` steps. Integers; allocates nothing; never wraps. O(1).
class residence {
 public:
  static constexpr u32 memory = 1024;

  explicit constexpr residence(u32 n_slots = 0) noexcept : n_slots_(n_slots) {}

  /// A step of the pool has been planned.
  constexpr void step() noexcept {
    if (++steps_ == memory) {
      steps_ /= 2;
      loads_ /= 2;
    }
  }
  /// The pool has begun to load experts, for demand or for hints.
  constexpr void load(u32 experts) noexcept { loads_ = saturating_add(loads_, experts); }

  /// Whether an expert loaded now is expected to be there that many steps of the pool later. True while nothing has
  /// been loaded.
  constexpr bool outlasts(u32 steps_ahead) const noexcept {
    return u64{loads_} * steps_ahead <= u64{n_slots_} * steps_ || loads_ == 0;
  }

 private:
  u32 n_slots_;
  u32 steps_ = 0;
  u32 loads_ = 0;
};

}  // namespace gate
}  // namespace warmset::inline v0
