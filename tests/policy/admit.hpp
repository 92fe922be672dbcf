// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "conformance.hpp"
#include "play.hpp"

namespace warmset::admit_test {

/// admission_question with defaults, so that a test names only what its rule reads.
struct question {
  u64 score = 0, expert_bytes = 1;
  u32 age = 0, installs = 0, misses = 1, free_slots = 0;
  bool accessed = false;
  phase in_phase = phase::decode;
  operator admission_question() const {
    return {score, expert_bytes, age, installs, misses, free_slots, accessed, in_phase};
  }
};

template <class Admission>
using over_lru = bundles::admitted<bundles::of<score::lru>, Admission>;
template <class Admission>
using over_counts = bundles::admitted<bundles::of<score::decayed_count>, Admission>;

/// f(std::integral_constant) for pools of 1, 2, 3, k = 4, 8 and 42 slots.
template <class F>
void at_every_size(F&& f) {
  [&]<u32... N>(std::integer_sequence<u32, N...>) {
    (f(std::integral_constant<u32, N>{}), ...);
  }
  (std::integer_sequence<u32, 1, 2, 3, 4, 8, 42>{});
}

}  // namespace warmset::admit_test
