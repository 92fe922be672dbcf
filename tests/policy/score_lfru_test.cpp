// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"

#include <warmset/policy/score/lfru.hpp>

using namespace warmset;

static_assert(score::lfru{}.value({4, 10}, {10, true, true}, {0, 10, 0, 0}) == 4 * 256 + 255);

TEST_CASE("lfru conforms", "[policy][score]") {
  conformance::check_score<score::lfru>();
}
TEST_CASE("lfru_model conforms", "[policy][score]") {
  conformance::check_score<score::lfru_model>();
}

TEST_CASE("lfru: heat times 256 and a recency bonus", "[policy][score][B15]") {
  score::lfru const lfru;
  CHECK(lfru.value({2, 100}, {}, {0, 100, 0, 0}) == 767);
  CHECK(lfru.value({2, 100}, {}, {0, 101, 0, 0}) == 766);
  CHECK(lfru.value({2, 100}, {}, {0, 355, 0, 0}) == 512);
  CHECK(lfru.value({2, 100}, {}, {0, 100'000, 0, 0}) == 512);
  CHECK(lfru.value({2, u32_max}, {}, {0, 3, 0, 0}) == 512 + 251);  // age 4 across the wrap
  CHECK(lfru.value({0, 0}, {}, {0, 10, 0, 0}) == 0);               // never: no recency of 245
  CHECK(lfru.value({u32_max, 7}, {}, {0, 7, 0, 0}) == u64{u32_max} * 256 + 255);
}

TEST_CASE("lfru: the scope of the clock", "[policy][score][B17]") {
  // 78 layers of k = 8; an expert that was used one token ago
  score::lfru const layer;
  score::lfru_model const model;
  clocks const then{0, 800, 62'400, 100};
  clocks const now{0, 808, 63'024, 101};
  score::lfru::state a{};
  score::lfru_model::state b{};
  layer.on_demand(a, then);
  model.on_demand(b, then);
  CHECK(layer.value(a, {}, now) == 256 + 247);
  CHECK(model.value(b, {}, now) == 256);
}

TEST_CASE("lfru: counts saturate and stamps are rebased", "[policy][score][R61]") {
  score::lfru const lfru;
  score::lfru::state x{u32_max, 0};
  lfru.on_demand(x, {0, 5, 0, 0});
  CHECK(x.count == u32_max);
  lfru.rebase(x, {0, 0xF000'0000, 0, 0});
  CHECK(age_of(0xF000'0000, x.stamp) == u32_max / 2);
}
