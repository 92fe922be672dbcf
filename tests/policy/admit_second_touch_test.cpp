// SPDX-License-Identifier: Apache-2.0
#include "admit.hpp"

using namespace warmset;

TEST_CASE("second_touch conforms", "[policy][admit]") {
  conformance::check_admission<admit::second_touch<>>();
  conformance::check_admission<admit::second_touch<1>>();
}

TEST_CASE("second_touch: a free slot, or demanded within the window", "[policy][admit]") {
  admit::second_touch<4> const four{};
  CHECK(four.admits(admit_test::question{.installs = 2, .free_slots = 3}));
  CHECK_FALSE(four.admits(admit_test::question{.installs = 3, .free_slots = 3}));
  CHECK(four.admits(admit_test::question{.age = 0, .accessed = true}));
  CHECK(four.admits(admit_test::question{.age = 3, .accessed = true}));
  CHECK_FALSE(four.admits(admit_test::question{.age = 4, .accessed = true}));
  CHECK_FALSE(four.admits(admit_test::question{.age = 0}));  // never demanded has no age
  CHECK(std::string(admit::second_touch<>::name) == "second_touch");
  CHECK(std::string(admit::second_touch<64>::name) == "second_touch_64");
}

TEST_CASE("second_touch: what is used once evicts nothing", "[policy][admit]") {
  // 2 slots, a window of 3 ticks. Free slots first: a and b are installed.
  // c is declined, and again two ticks later it is remembered: it replaces b, the least recent.
  play::player<admit_test::over_lru<admit::second_touch<3>>> p(8, 2);
  CHECK(p.run("ab") == "..");
  CHECK(p.run("ca") == ".h");
  CHECK(p.run("c") == ".");
  CHECK(p.order() == "ac");
  // d at ticks 6 and 9: two others between them, the third tick back is the last that counts
  CHECK(p.run("dacd") == ".hh.");
  CHECK(p.order() == "cd");
  // e at ticks 10 and 14 is four back: declined both times
  CHECK(p.run("ecdce") == ".hhh.");
  CHECK(p.order() == "dc");
}

TEST_CASE("second_touch keeps to its rule at every size", "[policy][admit]") {
  admit_test::at_every_size([](auto size) {
    constexpr u32 n = decltype(size)::value;
    constexpr u32 experts = 2 * n + 3;
    play::player<admit_test::over_lru<admit::second_touch<n + 1>>> p(experts, n);
    // a scan of what does not come back within the window fills the pool once and changes nothing afterwards
    for (u32 round = 0; round < 3; ++round) {
      for (u32 x = 0; x < experts; ++x) {
        INFO("size " << n << ", round " << round << ", expert " << x);
        CHECK(p.hits(x) == (round != 0 && x < n));
      }
    }
  });
}
