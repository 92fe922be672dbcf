// SPDX-License-Identifier: Apache-2.0
#include "admit.hpp"

using namespace warmset;

namespace {

template <u32 AfterSteps>
using bundle = admit_test::over_counts<admit::colder_than_victim<AfterSteps>>;

}  // namespace

TEST_CASE("colder_than_victim conforms", "[policy][admit]") {
  conformance::check_admission<admit::colder_than_victim<>>();
}

TEST_CASE("colder_than_victim: compares scores, in decode, once the layer has learned", "[policy][admit]") {
  constexpr admit::colder_than_victim<> rule{};
  CHECK(rule.replaces({7, 7, 0, 100}));
  CHECK(rule.replaces({8, 7, 0, 100}));
  CHECK_FALSE(rule.replaces({6, 7, 100, 0}));
  CHECK(rule.replaces({u64_max, u64_max, 0, 0}));
  CHECK(rule.compares_in({1024, phase::decode}));
  CHECK_FALSE(rule.compares_in({1023, phase::decode}));
  CHECK_FALSE(rule.compares_in({5000, phase::prefill}));
  CHECK(std::string(admit::colder_than_victim<>::name) == "colder_than_victim");
  CHECK(std::string(admit::colder_than_victim<0>::name) == "colder_than_victim_0");
}

TEST_CASE("colder_than_victim: the hottest misses are served first", "[policy][admit]") {
  // Residents a, b; c and d are demanded meanwhile and declined. Half-life 256, so that scores are nearly counts.
  play::player<bundle<0>> p(8, 2, tuning{.half_life = 256});
  CHECK(p.run("aaabbbb") == ".hh.hhh");
  CHECK(p.run("ccc") == "...");  // 0, 256, 511 against the 757, 755, 753 that a has left
  CHECK(p.order() == "ab");
  CHECK(p.run("cdddd") == ".....");  // c replaces a: 765 against 751. d comes to 765 against the 999 of b
  CHECK(p.order() == "bc");
  // d, now 1018 against 996, stands last in demand order and is served first: it gets b's slot. e gets none.
  (void)p.step(std::vector<u32>{4, 3});
  CHECK(p.order() == "cd");
  auto const& plan = p.last_plan();
  CHECK(plan.how[0] == access_kind::declined);
  CHECK(plan.how[1] == access_kind::load);
  CHECK(plan.no_victim.guarded == 0);
}

TEST_CASE("colder_than_victim: free slots go to the hottest misses", "[policy][admit]") {
  // Residents e, f, g and one free slot; e and f are demanded, with c (never before) and b (three times).
  outcome out{};
  for (phase const in : {phase::decode, phase::prefill}) {
    play::player<bundle<0>> p(8, 4, tuning{.half_life = 256});
    CHECK(p.run("bbb") == ".hh");
    invalidate<bundle<0>>(p.tested().view(), 0, out);
    CHECK(p.run("efg") == "...");
    (void)p.step(std::vector<u32>{4, 5, 2, 1}, in);
    // decode: b takes the free slot and c, colder than g, gets none. Prefill: c takes it and b replaces g
    CHECK(p.order() == (in == phase::decode ? "gefb" : "cefb"));
  }
  // equally cold ones in demand order: d takes the free slot and c, behind it, gets none
  play::player<bundle<0>> p(8, 4, tuning{.half_life = 256});
  CHECK(p.run("efg") == "...");
  (void)p.step(std::vector<u32>{4, 5, 3, 2});
  CHECK(p.order() == "gdef");
}

TEST_CASE("colder_than_victim is always until it compares, at every size", "[policy][admit]") {
  admit_test::at_every_size([](auto size) {
    constexpr u32 n = decltype(size)::value;
    constexpr u32 experts = 2 * n + 5;
    play::player<bundle<1024>> p(experts, n);
    play::player<bundles::of<score::decayed_count>> plain(experts, n);
    kit::integers random(n);
    u64 differ = 0;
    for (u32 i = 0; i < 2000; ++i) {
      u32 const x = random.below(1 + random.below(experts));
      bool const same = p.hits(x) == plain.hits(x);
      differ += same ? 0 : 1;
      if (i < 1024) {
        REQUIRE(same);
      }
    }
    CHECK(differ != 0);
    CHECK(audit(p.tested().view()));
  });
}

TEST_CASE("colder_than_victim: over lru an expert comes in when it is more recent than the victim", "[policy][admit]") {
  play::player<admit_test::over_lru<admit::colder_than_victim<0>>> p(8, 2);
  // c is declined at tick 3; at tick 5 its last demand (3) is more recent than that of a (1): it replaces a
  CHECK(p.run("abcbc") == "...h.");
  CHECK(p.order() == "bc");
  CHECK(p.run("dd") == "..");  // declined at tick 6; at tick 7 more recent than b (4)
  CHECK(p.order() == "cd");
}
