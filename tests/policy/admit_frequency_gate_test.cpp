// SPDX-License-Identifier: Apache-2.0
#include "admit.hpp"

using namespace warmset;

TEST_CASE("frequency_gate conforms", "[policy][admit]") {
  conformance::check_admission<admit::frequency_gate>();
}

TEST_CASE("frequency_gate: this demand counts, and a tie installs", "[policy][admit]") {
  constexpr admit::frequency_gate gate{};
  auto const replaces = [&](u32 challenger, u32 victim) {
    // the score is not asked
    return gate.replaces({0, u64_max, challenger, victim});
  };
  CHECK(replaces(0, 0));
  CHECK(replaces(0, 1));
  CHECK_FALSE(replaces(0, 2));
  CHECK(replaces(1, 2));
  CHECK(replaces(u32_max, u32_max));
  CHECK_FALSE(replaces(u32_max - 2, u32_max));
  CHECK(gate.compares_in({0, phase::prefill}));
}

TEST_CASE("frequency_gate: a newcomer must have come as often as the victim", "[policy][admit]") {
  // a half-life of 256 steps: counts stay whole for these few
  play::player<admit_test::over_counts<admit::frequency_gate>> p(8, 2, tuning{.half_life = 256});
  CHECK(p.run("aaabbb") == ".hh.hh");  // 759 and 765 of 256 to a count: heat 2 each
  CHECK(p.run("c") == ".");            // 0 + 1 < 2: declined, but counted
  CHECK(p.run("bc") == "h.");          // 255 is heat 0: 0 + 1 < 2
  CHECK(p.order() == "ab");
  CHECK(p.run("bc") == "h.");  // 509 is heat 1, a has 750 left: 1 + 1 >= 2, c replaces a
  CHECK(p.order() == "cb");
  CHECK(p.run("c") == "h");
}

TEST_CASE("frequency_gate: a victim that one miss may not replace is the next one's", "[policy][admit]") {
  play::player<admit_test::over_counts<admit::frequency_gate>> p(8, 2, tuning{.half_life = 256});
  CHECK(p.run("aaabbbbcdc") == ".hh.hhh...");  // c is declined twice and has heat 1, a has heat 2
  CHECK(p.order() == "ab");
  // e, never demanded, may not replace a; c may
  CHECK(p.step(std::vector<u32>{4, 2}) == std::vector<u32>(2, no_slot.value));
  CHECK(p.order() == "cb");
  auto const& plan = p.last_plan();
  CHECK(plan.how[0] == access_kind::declined);
  CHECK(plan.how[1] == access_kind::load);
  CHECK(plan.n_declined == 1);
  CHECK(plan.no_victim.guarded + plan.no_victim.leased + plan.no_victim.loading + plan.no_victim.pinned == 0);
}

TEST_CASE("frequency_gate: one-time experts flush no pool of any size", "[policy][admit]") {
  admit_test::at_every_size([](auto size) {
    constexpr u32 n = decltype(size)::value;
    constexpr u32 experts = n + 200;
    play::player<admit_test::over_counts<admit::frequency_gate>> p(experts, n, tuning{.half_life = 256});
    std::vector<u32> hot;
    for (u32 x = 0; x < n; ++x) {
      hot.push_back(x);
    }
    for (u32 i = 0; i < 8; ++i) {
      (void)p.step(hot);
    }
    for (u32 x = n; x < experts; ++x) {
      CHECK_FALSE(p.hits(x));
    }
    for (u32 const slot : p.step(hot)) {
      CHECK(slot != no_slot.value);
    }
  });
}
