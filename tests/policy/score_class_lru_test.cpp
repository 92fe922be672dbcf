// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"

#include <warmset/policy/score/class_lru.hpp>

using namespace warmset;

TEST_CASE("class_lru conforms", "[policy][score]") {
  conformance::check_score<score::class_lru>();
}

TEST_CASE("class_lru: the largest age << (7 - class) goes first", "[policy][score]") {
  score::class_lru const score;
  score::decayed_count const count{tuning{.half_life = 128}};
  kit::integers random(6);
  for (u32 i = 0; i < 20'000; ++i) {
    score::class_lru::state const x{random.below(1u << (1 + random.below(31))), random.below(5'000)};
    clocks const now{random.below(1u << 30), 0, 0, x.stamp + random.below(2'000)};
    expert_facts const e{now.tick - random.below(1u << 20), true, true};
    u64 whole = count.value(x, e, now) / 256;
    u32 cls = 0;  // floor(log2(max(1, whole))), at most 7
    while (whole >= 2 && cls < 7) {
      whole /= 2;
      ++cls;
    }
    REQUIRE(score.value(x, e, now) == u64_max - (u64{now.tick - e.last} << (7 - cls)));
  }
  CHECK(score.value({}, {0, false, false}, {77, 0, 0, 0}) == 0);
  // 64 bits: the oldest age of the lowest class does not wrap
  CHECK(score.value({}, {1, true, true}, {0, 0, 0, 0}) == u64_max - (u64{u32_max} << 7));
}
