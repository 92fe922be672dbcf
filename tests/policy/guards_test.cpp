// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"

#include <warmset/policy/score/lfru.hpp>

using namespace warmset;

static_assert(guard::spare_only{}.permits({0, 0, 0, 0, true}));
static_assert(!guard::challenger_must_win{}.permits({512, 1664, 256, 2, false}));

TEST_CASE("guard none conforms", "[policy][guard]") {
  conformance::check_guard<guard::none>(kit::rule::none);
}
TEST_CASE("guard spare_only conforms", "[policy][guard]") {
  conformance::check_guard<guard::spare_only>(kit::rule::spare_only);
}
TEST_CASE("guard challenger_must_win conforms", "[policy][guard]") {
  conformance::check_guard<guard::challenger_must_win>(kit::rule::challenger_must_win);
}
TEST_CASE("guard warm_then_challenger_must_win conforms", "[policy][guard]") {
  conformance::check_guard<guard::warm_then_challenger_must_win>(kit::rule::warm_then_challenger_must_win);
}
TEST_CASE("guard victim_must_be_hotter conforms", "[policy][guard]") {
  conformance::check_guard<guard::victim_must_be_hotter>(kit::rule::victim_must_be_hotter);
}

namespace {

struct standing {
  u32 heat;
  u32 age;
};
constexpr standing unseen{0, 0};

u64 score_of(standing s) {
  return score::lfru{}.value({s.heat, 1'000}, {}, {0, 1'000 + s.age, 0, 0});
}
duel between(standing victim, standing challenger) {
  return {score_of(victim), score_of(challenger), score::lfru::one_count, victim.heat, false};
}

}  // namespace

TEST_CASE("guards: the truth table of (heat, age)", "[policy][guard][B03][B04]") {
  guard::none const g0;
  guard::challenger_must_win const g1;
  guard::warm_then_challenger_must_win const g2;
  guard::victim_must_be_hotter const g3;
  guard::spare_only const spare;
  struct row {
    standing victim, challenger;
    bool g1, g2, g3;
  };
  row const table[] = {
      {{2, 0}, unseen, false, false, true},
      {{4, 0}, unseen, false, false, false},
      {{4, 255}, unseen, false, false, true},      // 1024 is not more than 1024
      {{2, 255}, {6, 127}, false, true, true},     // 1664 against 1664
      {{2, 300}, {6, 127}, false, true, true},
      {{2, 255}, {6, 128}, false, false, true},
      {{2, 255}, {6, 126}, true, true, true},
      {{1, 0}, unseen, false, true, true},         // once-used residents are replaceable
      {unseen, unseen, false, true, true},
  };
  for (row const& r : table) {
    duel const d = between(r.victim, r.challenger);
    INFO("victim (" << r.victim.heat << ", " << r.victim.age << ") " << d.victim_score << ", challenger ("
                    << r.challenger.heat << ", " << r.challenger.age << ") " << d.challenger_score);
    CHECK(g0.permits(d));
    CHECK_FALSE(spare.permits(d));
    CHECK(g1.permits(d) == r.g1);
    CHECK(g2.permits(d) == r.g2);
    CHECK(g3.permits(d) == r.g3);
  }
}

TEST_CASE("guards: saturated counts neither wrap nor swap", "[policy][guard][B13]") {
  u64 const top = u32_max;
  CHECK_FALSE(guard::challenger_must_win{}.permits({top - 1, top, 1, u32_max, false}));
  CHECK_FALSE(guard::warm_then_challenger_must_win{}.permits({top - 1, top, 1, u32_max, false}));
  CHECK(guard::victim_must_be_hotter{}.permits({top, top - 1, 1, u32_max, false}));
  CHECK_FALSE(guard::challenger_must_win{}.permits({u64_max - 1, u64_max, 256, 2, false}));
  CHECK(guard::with_margin(u64_max - 1, 256) == u64_max);
}

TEST_CASE("all_of: permits what each permits, asks no further after a refusal", "[policy][guard]") {
  using both = guard::all_of<guard::victim_must_be_hotter, guard::spare_only>;
  static_assert(guard_policy<both> && both::needs_heat && both::keeps_reserve);
  static_assert(!guard::all_of<>::needs_heat);
  conformance::check_guard<guard::all_of<>>(kit::rule::none);
  CHECK(kit::disagreements(both{}, [](duel const& d) {
          return kit::rule::victim_must_be_hotter(d) && kit::rule::spare_only(d);
        }).empty());
  using watched = guard::all_of<kit::probed<guard::spare_only>, kit::probed<guard::none>>;
  kit::recorder seen;
  CHECK_FALSE(watched{}.permits({0, 0, 0, 0, false}));
  CHECK(seen.consultations.size() == 1);
}
