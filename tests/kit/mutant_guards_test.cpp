// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <kit/mutant_guards.hpp>

using namespace warmset;

namespace {

template <class Guard, class Rule>
void keeps(Rule&& rule) {
  static_assert(guard_policy<Guard>);
  INFO(Guard::name);
  CHECK(kit::disagreements(Guard{}, rule).empty());
}

template <class... Mutants, class Rule>
void kills(Rule&& rule) {
  auto const one = [&]<class Mutant>(Mutant const& m) {
    static_assert(guard_policy<Mutant>);
    INFO(Mutant::name);
    CHECK_FALSE(kit::disagreements(m, rule).empty());
  };
  (one(Mutants{}), ...);
}

}  // namespace

TEST_CASE("guards: each keeps its rule at every boundary", "[kit][guard]") {
  keeps<guard::none>(kit::rule::none);
  keeps<guard::spare_only>(kit::rule::spare_only);
  keeps<guard::challenger_must_win>(kit::rule::challenger_must_win);
  keeps<guard::warm_then_challenger_must_win>(kit::rule::warm_then_challenger_must_win);
  keeps<guard::victim_must_be_hotter>(kit::rule::victim_must_be_hotter);
  keeps<guard::all_of<>>(kit::rule::none);
  keeps<guard::all_of<guard::challenger_must_win>>(kit::rule::challenger_must_win);
  keeps<guard::all_of<guard::victim_must_be_hotter, guard::spare_only>>([](duel const& d) {
    return kit::rule::victim_must_be_hotter(d) && kit::rule::spare_only(d);
  });
}

TEST_CASE("guards: every mutant is killed", "[kit][guard]") {
  using namespace kit::mutant;
  kills<inverted, equality_wins, no_margin, no_quarter, no_counts, four_units, narrow, swapped,
        margin_on_challenger, off_by_one>(kit::rule::challenger_must_win);
  kills<no_gate, gate_at_one, gate_at_three, gate_inverted, equality_loses, gate_and>(
      kit::rule::warm_then_challenger_must_win);
  kills<as_the_code_did, hotter_equality, hotter_no_gate, hotter_no_margin>(kit::rule::victim_must_be_hotter);
  kills<spare_ignored, spare_inverted, always_yes, always_no, cold_is_spare>(kit::rule::spare_only);
  using both = guard::all_of<guard::victim_must_be_hotter, guard::challenger_must_win>;
  auto const rule = [](duel const& d) {
    return kit::rule::victim_must_be_hotter(d) && kit::rule::challenger_must_win(d);
  };
  CHECK(kit::disagreements(both{}, rule).empty());
  kills<any_of<guard::victim_must_be_hotter, guard::challenger_must_win>,
        first_of<guard::victim_must_be_hotter, guard::challenger_must_win>>(rule);
}
