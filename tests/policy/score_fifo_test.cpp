// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"

#include <warmset/policy/score/fifo.hpp>

using namespace warmset;

TEST_CASE("fifo conforms", "[policy][score]") {
  conformance::check_score<score::fifo>();
}

TEST_CASE("fifo: hits change nothing, an install does", "[policy][score]") {
  conformance::small_layer<score::fifo> a(0);
  a.demand(0, true);
  a.demand(1, true);
  a.demand(0, false);
  a.demand(0, false);
  CHECK(a.value(0) < a.value(1));
  a.demand(0, true);
  CHECK(a.value(0) > a.value(1));
}

TEST_CASE("fifo: a rebase keeps the oldest oldest", "[policy][score][R61]") {
  score::fifo const fifo;
  score::fifo::state old{0};
  clocks const late{0xF000'0000, 0, 0, 0};
  fifo.rebase(old, late);
  CHECK(fifo.value(old, {0, true, true}, late) == u32_max - u32_max / 2);
}
