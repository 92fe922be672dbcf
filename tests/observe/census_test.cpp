// SPDX-License-Identifier: Apache-2.0

#include <catch2/catch_test_macros.hpp>

#include <warmset/observe/census.hpp>

namespace warmset {
namespace {

/// Each state of a group as far as verdicts can differ, and some beyond.
template <class F>
void for_each_group(F&& f) {
  for (bool const cached : {false, true}) {
    for (bool const here : {false, true}) {
      for (u32 const consumers : {0u, 1u, 2u, 7u}) {
        for (u32 unproven = 0; unproven <= consumers; ++unproven) {
          for (u32 const observers : {0u, 1u, 14u})
            f(group_census{cached, here, consumers, unproven, observers});
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("a group is refused for one reason, in a fixed order") {
  for_each_group([](group_census const& g) {
    reason const why = device_path_refusal(g);
    CHECK((why == reason::uncovered) == !g.cached);
    CHECK((why == reason::route) == (g.cached && !g.routed_here));
    bool const proven = g.consumers != 0 && g.unproven == 0;
    CHECK((why == reason::unproven) == (g.cached && g.routed_here && !proven));
    CHECK((why == reason::none) == (g.cached && g.routed_here && proven));
  });
}

TEST_CASE("a census counts its readers and judges by group") {
  CHECK_THROWS_AS(census{0}, config_error);
  census c{4};
  CHECK(c.summary().refused[static_cast<u32>(reason::unproven)] == 4);  // nobody has looked
  for (u32 g = 0; g < 4; ++g) {
    CHECK(c.add(routed_consumer{g, routed_value::ids, true}));
    CHECK(c.add(routed_consumer{g, routed_value::weights, true}));
  }
  CHECK(c.summary().device == 4);
  CHECK(c.add(routed_observer{0, routed_value::ids}));
  CHECK(c.add(routed_consumer{1, routed_value::weights, false}));
  CHECK(c.routed_elsewhere(2));
  CHECK(c.uncached(3));
  CHECK(c.verdict(0));
  CHECK(c.verdict(1).why == reason::unproven);
  CHECK(c.verdict(2).why == reason::route);
  CHECK(c.verdict(3).why == reason::uncovered);
  CHECK(path_of(c.groups()[2]) == serving_path::host);

  census::counts const all = c.summary();
  CHECK(all.groups == 4);
  CHECK(all.device == 1);
  CHECK(all.refused[static_cast<u32>(reason::unproven)] == 1);
  CHECK(all.refused[static_cast<u32>(reason::route)] == 1);
  CHECK(all.refused[static_cast<u32>(reason::uncovered)] == 1);
  CHECK(all.consumers == 9);
  CHECK(all.unproven == 1);
  CHECK(all.observers == 1);

  // a group that is not there
  CHECK(c.add(routed_consumer{4, routed_value::ids, false}).why == reason::out_of_range);
  CHECK(c.add(routed_observer{4, routed_value::ids}).why == reason::out_of_range);
  CHECK(c.routed_elsewhere(4).why == reason::out_of_range);
  CHECK(c.uncached(4).why == reason::out_of_range);
  CHECK(c.verdict(4).why == reason::out_of_range);
  CHECK(c.summary().consumers == 9);
}

}  // namespace warmset
