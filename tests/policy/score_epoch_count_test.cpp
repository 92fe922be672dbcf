// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"

#include <warmset/policy/score/epoch_count.hpp>

using namespace warmset;

static_assert(score::epoch_count{tuning{}}.read({5, 3}, 4) == 2);

TEST_CASE("epoch_count conforms", "[policy][score]") {
  conformance::check_score<score::epoch_count>();
}

TEST_CASE("epoch_count: halved once per epoch", "[policy][score][B27]") {
  score::epoch_count const count{tuning{}};
  CHECK(count.read({5, 3}, 3) == 5);
  CHECK(count.read({5, 3}, 4) == 2);
  CHECK(count.read({5, 3}, 5) == 1);
  CHECK(count.read({5, 3}, 6) == 0);
  CHECK(count.read({5, 3}, 40) == 0);
  CHECK(count.read({u32_max, 0}, 31) == 1);
  CHECK(count.read({u32_max, 0}, 32) == 0);
  CHECK(count.read({5, 7}, 6) == 5);  // ahead of the clock: elapsed 0, and not plausible
  CHECK_FALSE(count.plausible({5, 7}, {0, 0, 0, 6 * 16}));
  CHECK(count.plausible({5, 7}, {0, 0, 0, 7 * 16}));
}

TEST_CASE("epoch_count: every length of an epoch", "[policy][score]") {
  for (u32 length = 1; length <= 32'768; length *= 2) {
    score::epoch_count const count{tuning{.epoch = length}};
    score::epoch_count::state x{};
    for (u32 i = 0; i < 4; ++i) {
      count.on_demand(x, {0, 0, 0, length - 1});
    }
    CHECK(count.heat(x, {}, {0, 0, 0, length - 1}) == 4);
    CHECK(count.heat(x, {}, {0, 0, 0, length}) == 2);
    CHECK(count.heat(x, {}, {0, 0, 0, 3 * length - 1}) == 1);
  }
}

TEST_CASE("epoch_count: saturates", "[policy][score][R61]") {
  score::epoch_count const count{tuning{}};
  score::epoch_count::state x{u32_max, 0};
  count.on_demand(x, {0, 0, 0, 3});
  CHECK(x.count == u32_max);
}
