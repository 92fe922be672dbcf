// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"

#include <cmath>

#include <warmset/policy/score/decayed_count.hpp>

using namespace warmset;

static_assert(decay_table::factor(0, 16) == 65'536);
static_assert(decay_table{16}.read(256, 16) == 128);

TEST_CASE("decayed_count conforms", "[policy][score]") {
  conformance::check_score<score::decayed_count>();
}

TEST_CASE("decay: the table of half-life 16", "[policy][decay]") {
  constexpr u32 table[16] = {65'536, 62'757, 60'097, 57'549, 55'109, 52'773, 50'535, 48'393,
                             46'341, 44'376, 42'495, 40'693, 38'968, 37'316, 35'734, 34'219};
  for (u32 i = 0; i < 16; ++i) {
    CHECK(decay_table::factor(i, 16) == table[i]);
  }
}

TEST_CASE("decay: T[i] = round(2^16 * 2^(-i/H)) for every half-life", "[policy][decay]") {
  for (u32 h = decay_table::min_half_life; h <= decay_table::max_half_life; ++h) {
    for (u32 i = 0; i < h; ++i) {
      long double const exact = 65'536.0L * std::exp2(-static_cast<long double>(i) / h);
      REQUIRE(decay_table::factor(i, h) == static_cast<u32>(std::floor(exact + 0.5L)));
    }
  }
}

TEST_CASE("decay: read is the formula, for every value and distance", "[policy][decay]") {
  kit::integers random(5);
  for (u32 h = decay_table::min_half_life; h <= decay_table::max_half_life; ++h) {
    decay_table const table{h};
    auto const formula = [h](u32 v, u32 d) -> u32 {
      return d / h >= 32 ? 0 : static_cast<u32>((u64{v} * decay_table::factor(d % h, h)) >> 16 >> (d / h));
    };
    for (u32 d = 0; d < 33 * h; ++d) {
      REQUIRE(table.read(u32_max, d) == formula(u32_max, d));
    }
    for (u32 i = 0; i < 500; ++i) {
      u32 const v = static_cast<u32>(random.next());
      u32 const d = random.below(40 * h);
      REQUIRE(table.read(v, d) == formula(v, d));
    }
    REQUIRE(table.read(u32_max, 32 * h) == 0);
    REQUIRE(table.read(u32_max, 32 * h - 1) != 0);
    REQUIRE(table.read(u32_max, u32_max) == 0);
  }
}

TEST_CASE("decay: half-lives outside 4 to 256 are brought in", "[policy][decay]") {
  CHECK(decay_table{0}.half_life() == 4);
  CHECK(decay_table{1'000}.half_life() == 256);
}

TEST_CASE("decayed_count: a touch writes read + 256, saturating", "[policy][score][R61]") {
  score::decayed_count const count{tuning{}};
  score::decayed_count::state x{};
  count.on_demand(x, {0, 0, 0, 5});
  CHECK((x.value == 256 && x.stamp == 5));
  count.on_demand(x, {0, 0, 0, 21});  // one half-life later
  CHECK((x.value == 384 && x.stamp == 21));
  CHECK(count.heat(x, {}, {0, 0, 0, 21}) == 1);
  CHECK(count.heat(x, {}, {0, 0, 0, 22}) == 1);
  CHECK(count.value(x, {}, {0, 0, 0, 37}) == 192);
  x = {u32_max - 100, 50};
  count.on_demand(x, {0, 0, 0, 50});
  CHECK(x.value == u32_max);
  x = {1'000, u32_max};  // the step clock wraps
  CHECK(count.value(x, {}, {0, 0, 0, 15}) == 500);
}
