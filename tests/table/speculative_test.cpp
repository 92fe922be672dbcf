// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include "support.hpp"

using namespace warmset;
using namespace warmset::table_test;

namespace {

template <class Guard, class Selector = select::coldest>
struct watched : bundles::of<score::decayed_count, Selector> {
  using guard = kit::probed<Guard>;
  using predictor = predict::supplied;
};

u32 dropped(outcome const& o, reason r) { return o.hints_dropped[static_cast<u32>(r)]; }

struct only_heat_three {
  static constexpr bool needs_heat = true;
  static constexpr bool keeps_reserve = false;
  static constexpr char const* name = "only_three";
  bool permits(duel const& d) const noexcept { return d.victim_heat == 3; }
};

}  // namespace

TEST_CASE("hints: skipped by reason", "[table][hints][B93][B100][R44]") {
  using policy = watched<guard::none>;
  auto c = sized(8, 4);
  c.numbers.speculative_slots = 2;
  bench<policy> b(c);
  b.demand({0});
  b.plan({1});
  REQUIRE(b.commit());
  auto& p = b.hint({-1, 8, 0, 1, 2, 2, 3, 4}, 0, 1);
  REQUIRE(p.n_loads == 1);
  REQUIRE(b.commit());
  CHECK(dropped(b.sum, reason::sentinel) == 1);
  CHECK(dropped(b.sum, reason::out_of_range) == 1);
  CHECK(dropped(b.sum, reason::resident) == 1);
  CHECK(dropped(b.sum, reason::in_flight) == 1);
  CHECK(dropped(b.sum, reason::duplicate) == 1);
  CHECK(dropped(b.sum, reason::limited) == 2);
  CHECK(b.sum.hints_offered == 8);
  CHECK(b.sum.issued[1] == 1);
  b.hint({5}, 0, 10, 0);  // for the step that has been planned
  REQUIRE(b.commit());
  CHECK(dropped(b.sum, reason::too_late) == 1);
  CHECK(b.sound());
}

TEST_CASE("hints: the guard is asked exactly when an eviction is next (I2)", "[table][hints][B09][B12][R8]") {
  using policy = watched<guard::challenger_must_win>;
  auto c = sized(8, 3);
  c.numbers.speculative_slots = 2;
  bench<policy> b(c);
  kit::recorder seen;
  b.demand({0, 1});
  CHECK(seen.consultations.empty());
  b.hint({5});  // a free slot
  REQUIRE(b.commit());
  CHECK(seen.consultations.empty());
  b.arrive();
  b.hint({6, 7, 0});  // full: two questions, and none for a resident
  CHECK(seen.consultations.size() == 2);
  CHECK(b.decided->guard_asked == 2);
  CHECK(b.decided->guard_refused == 2);
  CHECK(b.decided->n_loads == 0);
  // the same victim for both, the coldest
  CHECK(seen.consultations[0] == seen.consultations[1]);
  CHECK(seen.consultations[0].asked.one_count == 256);
}

TEST_CASE("hints: refused ones leave the block identical (I7) and plans made meanwhile good",
          "[table][hints][R7]") {
  using policy = watched<guard::challenger_must_win>;
  bench<policy> b(sized(8, 2));
  bench<policy> same(sized(8, 2));
  for (auto* each : {&b, &same}) {
    for (i32 i = 0; i < 4; ++i) {
      each->demand({0, 1});
    }
  }
  auto const before = b.bytes();
  same.plan({1});
  b.hint({5, 6});
  REQUIRE(b.decided->guard_refused == 2);
  REQUIRE(b.commit());
  CHECK(b.bytes() == before);
  CHECK(b.sum.guard_refused == 2);
  *b.decided = *same.decided;
  CHECK(b.commit());
}

TEST_CASE("hints: one-touch residents are replaceable, warm ones are not", "[table][hints][B03][R6]") {
  using policy = watched<guard::warm_then_challenger_must_win>;
  bench<policy> b(sized(8, 2));
  b.demand({0, 1});
  auto& p = b.hint({5});
  CHECK(p.n_loads == 1);
  CHECK(p.guard_refused == 0);
  b.demand({0, 1});
  b.demand({0, 1});  // two whole counts after decay
  CHECK(b.hint({5}).n_loads == 0);
}

TEST_CASE("hints: head of line, and the selector that asks again", "[table][hints][B06][R7]") {
  auto const build = []<class Policy>(Policy*) {
    return kit::table_builder<Policy>(sized(8, 3))
        // the coldest by score is warm; the others are not
        .place({.slot = 0, .expert = 0, .heat = 2, .age = 9})
        .place({.slot = 1, .expert = 1, .heat = 3, .age = 5})
        .place({.slot = 2, .expert = 2, .heat = 4, .age = 1})
        .build();
  };
  using single = watched<only_heat_three>;
  using again = watched<only_heat_three, select::first_permitted>;
  bench<single> s(build(static_cast<single*>(nullptr)));
  CHECK(s.hint({6}).n_loads == 0);
  CHECK(s.decided->guard_asked == 1);
  bench<again> a(build(static_cast<again*>(nullptr)));
  REQUIRE(a.hint({6}).n_loads == 1);
  CHECK(a.decided->loads[0].slot == 1);
  CHECK(a.decided->guard_asked == 2);
}

TEST_CASE("hints: asking again goes on behind a refused spare", "[table][hints]") {
  using policy = watched<guard::challenger_must_win, select::first_permitted>;
  auto c = sized(8, 3);
  c.numbers.speculative_slots = 2;
  bench<policy> b(kit::table_builder<policy>(c)
                      .place({.slot = 0, .expert = 0, .heat = 9, .speculated = true, .target = 0})
                      .place({.slot = 1, .expert = 1, .heat = 0, .speculated = true, .target = 0})
                      .place({.slot = 2, .expert = 2, .heat = 9})
                      .place({.expert = 5, .heat = 8})
                      .build());
  REQUIRE(b.hint({5}).n_loads == 1);
  CHECK(b.decided->loads[0].slot == 1);
  CHECK(b.decided->guard_asked == 2);
}

TEST_CASE("hints: the budget bounds what speculation holds, whatever comes", "[table][hints][R5]") {
  using policy = watched<guard::none>;
  auto c = sized(64, 8);
  c.numbers.speculative_slots = 3;
  bench<policy> b(c);
  b.demand({0, 1});
  for (i32 i = 2; i < 34; ++i) {
    b.hint({i});
    REQUIRE(b.commit());
    b.arrive();
    CHECK(b.made.view().header().unused <= 3);
    REQUIRE(b.sound());
  }
  CHECK(b.sum.issued[1] == 3);
  CHECK(dropped(b.sum, reason::speculative_budget) == 29);
  b.demand({2, 3});
  CHECK(b.sum[access_kind::first_use] == 2);
  b.hint({40, 41, 42, 43});  // the third is still there, and its step has passed: it goes first
  REQUIRE(b.commit());
  CHECK(b.sum.evicted_unused == 1);
  table_counts const now = count_slots(b.made.view());
  CHECK(b.sum.issued[1] ==
        2 + b.sum.evicted_unused + now.resident_unused + now.in_flight[1] + b.sum.failed[1]);
}

TEST_CASE("hints: a speculated slot is a last resort before its step and the first victim after it",
          "[table][hints]") {
  using policy = watched<guard::none>;
  bench<policy> b(sized(8, 3));
  b.demand({0, 1});
  b.hint({5}, 0, 1, 2);  // for the step after next
  REQUIRE(b.commit());
  b.arrive();
  u32 const spare = b.slot_of(5);
  CHECK(b.plan({6}).loads[0].slot != spare);
  b.demand({0});
  CHECK(b.plan({6}).loads[0].slot != spare);
  b.demand({1});
  CHECK(b.plan({6}).loads[0].slot == spare);
}

TEST_CASE("hints: speculation leaves score, tick and step alone (I3)", "[table][hints][B08]") {
  using policy = watched<guard::none>;
  bench<policy> b(sized(8, 3));
  b.demand({0, 1});
  auto const history = kit::history_bytes<policy>(b.made.view());
  b.hint({5, 6});
  REQUIRE(b.commit());
  b.arrive();
  b.hint({5});
  REQUIRE(b.commit());
  CHECK(kit::history_bytes<policy>(b.made.view()) == history);
  CHECK(dropped(b.sum, reason::resident) == 1);
}

TEST_CASE("hints: a failed one frees its slot, whether or not a demand has joined", "[table][hints][B29][R10]") {
  using policy = watched<guard::none>;
  bench<policy> b(sized(8, 2));
  for (i32 i = 0; i < 20; ++i) {
    b.hint({i % 8});
    REQUIRE(b.commit());
    b.arrive(transfer::failed);
    CHECK(b.made.view().header().free() == 2);
    REQUIRE(b.sound());
  }
  CHECK(b.sum.failed[1] == 20);
  b.hint({3});
  REQUIRE(b.commit());
  b.plan({3});
  CHECK(b.decided->how[0] == access_kind::late);
  REQUIRE(b.commit());
  b.arrive(transfer::failed);
  CHECK(b.sum.late_failed == 1);
  CHECK(b.sum.late_of_hint == 1);
  CHECK(b.made.view().header().free() == 2);
  CHECK(b.sound());
}
