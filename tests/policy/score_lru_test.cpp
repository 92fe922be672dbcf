// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"

#include <warmset/policy/score/lru.hpp>

using namespace warmset;

static_assert(score::lru{}.value({}, {7, true, true}, {9, 0, 0, 0}) == u32_max - 2);

TEST_CASE("lru conforms", "[policy][score]") {
  conformance::check_score<score::lru>();
}

TEST_CASE("lru: an age across the wrap", "[policy][score][B15]") {
  static_assert(age_of(3, u32_max) == 4);
  score::lru const lru;
  CHECK(lru.value({}, {u32_max, true, true}, {3, 0, 0, 0}) == u32_max - 4);
  CHECK(lru.value({}, {0, false, false}, {10, 0, 0, 0}) == 0);
}
