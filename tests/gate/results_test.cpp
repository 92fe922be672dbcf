// SPDX-License-Identifier: Apache-2.0
// Results are sums, tries are counted per target, verdicts are given once, references keep things alive.

#include <string>
#include <type_traits>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/gate/certificate.hpp>
#include <warmset/gate/fallback.hpp>
#include <warmset/gate/retry.hpp>

namespace warmset::gate {
namespace {

std::string kind_of(result const& r) {
  return r.match([](not_published) { return std::string{"not published"}; },
                 [](refused) { return std::string{"refused"}; },
                 [](partial) { return std::string{"partial"}; },
                 [](ready) { return std::string{"ready"}; });
}

}  // namespace

TEST_CASE("a result is one of four and no number") {
  STATIC_CHECK(!std::is_convertible_v<result, int>);
  STATIC_CHECK(!std::is_convertible_v<result, bool>);
  STATIC_CHECK(!std::is_constructible_v<bool, result>);
  STATIC_CHECK(!std::is_constructible_v<result, int>);
  result const all[] = {
      not_published{}, refused{reason::no_authority, 3, 9, false}, result::of(1, 2),  ready{0},
      ready{3},        refused{reason::gate_closed, 3, 9, true},   result::of(0, 144)};
  char const* const kinds[] = {"not published", "refused", "partial", "ready",
                               "ready",         "refused", "partial"};
  for (u32 i = 0; i < 7; ++i) {
    CHECK(kind_of(all[i]) == kinds[i]);
    CHECK(all[i].is_ready() == (std::string{kinds[i]} == "ready"));
    for (u32 j = 0; j < 7; ++j) {
      CHECK((all[i] == all[j]) == (i == j));
    }
  }
}

TEST_CASE("a tally is refused only where all agree") {
  refused const a{reason::no_authority, 0, 1, false}, b{reason::no_authority, 5, 2, false},
      c{reason::gate_closed, 1, 1, true};
  tally none, alike, mixed, some;
  CHECK(none.total() == result{ready{0}});
  alike.add(a);
  alike.add(b);
  CHECK(alike.total() == result{a});
  mixed.add(a);
  mixed.add(c);
  CHECK(mixed.total() == partial{0, 2});
  some.add_ok();
  some.add(a);
  CHECK(some.total() == partial{1, 1});
  CHECK(some.first() == a);
}

TEST_CASE("eight tries two hundred apart and anew in another epoch") {
  retries r{3};
  u64 now = 1000;
  for (u32 i = 0; i < 8; ++i) {
    REQUIRE(r.may_try(1, 4, now));
    r.tried(1, 4, now);
    CHECK(r.next(1) == now + 200);
    CHECK(!r.may_try(1, 4, now));
    CHECK(!r.may_try(1, 4, now + 199));
    now += 200;
  }
  CHECK(r.is_exhausted(1, 4));
  CHECK(!r.may_try(1, 4, now + 1'000'000));
  CHECK(r.may_try(0, 4, now));  // per target
  CHECK(!r.is_exhausted(1, 5));
  CHECK(r.may_try(1, 5, 0));  // another epoch, at once
  r.tried(1, 5, 0);
  CHECK(!r.may_try(1, 5, 199));
  CHECK(r.may_try(1, 5, 200));
  retries one{1, {.tries = 1, .apart = 7}};
  one.tried(0, 0, 0);
  CHECK(one.is_exhausted(0, 0));
}

TEST_CASE("a verdict says the first reason against the device") {
  using r = reason;
  CHECK(verdict_of({}) == group_verdict{holder::device, r::none});
  CHECK(verdict_of({r::none, r::none, r::unproven}) == group_verdict{holder::host, r::unproven});
  CHECK(verdict_of({r::none, r::route, r::unproven}) == group_verdict{holder::host, r::route});
  CHECK(verdict_of({r::over_budget, r::route, r::unproven}) ==
        group_verdict{holder::nobody, r::over_budget});
}

TEST_CASE("a certificate gives each group its holder") {
  std::vector<group_evidence> const evidence{{},
                                             {reason::none, reason::route},
                                             {reason::no_memory},
                                             {reason::none, reason::none, reason::unproven}};
  references memory;
  authority groups{6};
  fallback_counts fallbacks{6};
  certificate const c{evidence, device_authority::preferred};
  CHECK(c.outcome() == partial{1, 3});
  CHECK(c.publish(groups, memory, 2, &fallbacks) == partial{1, 3});
  CHECK(groups.look(0).state == gate_state::unpublished);
  CHECK(groups.look(2).who == holder::device);
  CHECK(groups.look(3).who == holder::host);
  CHECK(groups.look(4).state == gate_state::unpublished);
  CHECK(groups.look(5).who == holder::host);
  CHECK(memory.count() == 3);
  fallbacks.served(2);
  fallbacks.served(3);
  fallbacks.served(5);
  CHECK(fallbacks.total(reason::route) == 1);
  CHECK(fallbacks.total(reason::unproven) == 1);
  CHECK(fallbacks.of(2) == 0);

  authority untouched{4};
  certificate const strict{evidence, device_authority::required};
  CHECK(strict.outcome() == result{refused{reason::route, 1, 0, false}});
  CHECK(strict.publish(untouched, memory) == strict.outcome());
  for (u32 g = 0; g < 4; ++g) {
    CHECK(untouched.look(g) == group_state{});
  }
  CHECK(memory.count() == 3);
  CHECK(certificate{array_view<group_evidence const>{}, device_authority::preferred}.outcome() ==
        result{ready{0}});
  CHECK(certificate{array_view<group_evidence const>{}, device_authority::required}.outcome() ==
        result{refused{reason::uncovered, 0, 0, false}});
  std::vector<group_evidence> const clear(4);
  CHECK(certificate{clear, device_authority::required}.publish(untouched, memory) ==
        result{ready{4}});
}

TEST_CASE("a required certificate gives all groups or none") {
  std::vector<group_evidence> const clear(4);
  references memory, other;
  authority groups{6};
  REQUIRE(groups.publish(4, holder::host, other));  // the fourth that is asked for
  certificate const required{clear, device_authority::required};
  CHECK(required.publish(groups, memory, 1) ==
        result{refused{reason::in_use, 3, 0, false}});
  for (u32 const g : {0u, 1u, 2u, 3u, 5u}) {
    CHECK(groups.look(g).state == gate_state::unpublished);
  }
  CHECK(groups.look(4) == group_state{0, 0, gate_state::open, holder::host, holder::nobody});
  CHECK(memory.count() == 0);
  CHECK(other.count() == 1);
  CHECK(certificate{clear, device_authority::preferred}.publish(groups, memory, 1) ==
        partial{3, 1});
  for (u32 const g : {1u, 2u, 3u, 4u}) {
    REQUIRE(groups.withdraw(g));
  }
  CHECK(required.publish(groups, memory, 1) == result{ready{4}});
  CHECK(memory.count() == 4);
  for (u32 const g : {1u, 2u, 3u, 4u}) {
    REQUIRE(groups.withdraw(g));
  }
  REQUIRE(memory.release());
  CHECK(required.publish(groups, memory, 1) == result{refused{reason::no_memory, 0, 3, false}});
}

TEST_CASE("a certificate for more groups than there are gives nothing") {
  references memory;
  group_evidence const evidence[4] = {};
  certificate const four{evidence, device_authority::preferred};
  for (u32 const first : {0u, 1u, 3u, u32_max}) {
    INFO("from group " << first << " on");
    authority groups{first == 0 ? 3u : 4u};
    fallback_counts enough{4};
    CHECK(four.publish(groups, memory, first, &enough) ==
          result{refused{reason::uncovered, saturating_sub(groups.size(), first), 0, false}});
    for (u32 g = 0; g < groups.size(); ++g) {
      CHECK(groups.look(g).who == holder::nobody);
    }
  }
  authority groups{4};
  fallback_counts too_few{2};
  CHECK(four.publish(groups, memory, 0, &too_few) == result{refused{reason::uncovered, 2, 0, false}});
  CHECK(groups.look(0).who == holder::nobody);
}

TEST_CASE("fallbacks are a fraction of a group's steps") {
  fallback_counts f{2};
  for (u32 i = 0; i < 9; ++i) {
    f.served(0);
  }
  f.fell_back(0, reason::gate_closed);
  constexpr u32 tenth = 6554, just_below = 6553;  // of 65536
  CHECK(f.exceeds(0, just_below));
  CHECK(!f.exceeds(0, tenth));
  CHECK(!f.exceeds(0, 0, 11));  // too few steps to tell
  CHECK(!f.exceeds(1, 0));
  CHECK(f.main_reason(1) == reason::none);
  CHECK(f.main_reason(0) == reason::gate_closed);
  f.fell_back(0, reason::no_authority);
  CHECK(f.main_reason(0) == reason::no_authority);  // a tie: the first of the reasons
  f.fell_back(0, reason::gate_closed);
  CHECK(f.main_reason(0) == reason::gate_closed);
  CHECK(f.of(0, reason::gate_closed) == 2);
  CHECK(f.of(0) == 3);
  CHECK(f.steps(0) == 12);
}

TEST_CASE("what is referred to is not released") {
  references r;
  REQUIRE(r.hold());
  REQUIRE(r.hold());
  CHECK(r.release().why == reason::in_use);
  r.let_go();
  CHECK(r.release().why == reason::in_use);
  r.let_go();
  CHECK(!r.is_released());
  CHECK(r.release());
  CHECK(r.hold().why == reason::no_memory);
  CHECK(r.count() == 0);
}

}  // namespace warmset::gate
