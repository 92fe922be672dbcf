// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"

#include <warmset/policy/score/lfu.hpp>

using namespace warmset;

TEST_CASE("lfu conforms", "[policy][score]") {
  conformance::check_score<score::lfu>();
}
TEST_CASE("lfu_forget conforms", "[policy][score]") {
  conformance::check_score<score::lfu_forget>();
}

TEST_CASE("lfu: a count survives eviction, or starts again", "[policy][score]") {
  conformance::small_layer<score::lfu> keep(0);
  conformance::small_layer<score::lfu_forget> forget(0);
  for (u32 i = 0; i < 5; ++i) {
    keep.demand(0, i == 0);
    forget.demand(0, i == 0);
  }
  CHECK(keep.value(0) == 5);
  CHECK(forget.value(0) == 5);
  keep.resident[0] = forget.resident[0] = false;
  CHECK(keep.value(0) == 5);
  CHECK(forget.value(0) == 0);
  keep.demand(0, true);
  forget.demand(0, true);
  CHECK(keep.value(0) == 6);
  CHECK(forget.value(0) == 1);
}

TEST_CASE("lfu: 2^32 demands saturate", "[policy][score][R61]") {
  score::lfu const lfu;
  score::lfu::state x{u32_max - 1};
  lfu.on_demand(x, {});
  lfu.on_demand(x, {});
  lfu.on_demand(x, {});
  CHECK(lfu.value(x, {0, true, true}, {}) == u32_max);
}
