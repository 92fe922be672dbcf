// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include "support.hpp"

using namespace warmset;
using namespace warmset::table_test;

namespace {

using policy = hinted<guard::none>;
using listed = bundles::of<score::lru, select::lru_list>;

/// Slots: 0 resident, 1 resident and pinned, 2 speculated, 3 loading, 4 draining under a lease, 5 free,
/// 6 beyond the capacity.
table<policy> full() {
  auto c = sized(10, 7);
  c.capacity = 6;
  c.numbers.speculative_slots = 2;
  return kit::table_builder<policy>(c)
      .place({.slot = 0, .expert = 0, .heat = 3, .age = 4})
      .place({.slot = 1, .expert = 1, .heat = 1, .age = 2, .pinned = true})
      .place({.slot = 2, .expert = 2, .heat = 0, .speculated = true})
      .place({.slot = 3, .expert = 3, .heat = 1, .state = slot_state::reserved})
      .place({.slot = 4, .state = slot_state::draining, .leases = 1})
      .place({.expert = 9, .heat = 2, .age = 7})
      .build();
}

template <class Plant>
void finds(invariant expected, Plant&& plant) {
  auto made = full();
  REQUIRE(audit(made.view()));
  plant(made.view());
  audit_result const r = audit(made.view());
  INFO(name_of(expected) << " expected, " << name_of(r.broken) << " found");
  CHECK(r.broken == expected);
}

}  // namespace

TEST_CASE("audit: each numbered invariant is found when it is broken", "[table][audit]") {
  using view = table_writer<policy>;
  using enum invariant;
  finds(A01_header, [](view const& t) { t.header().magic ^= 1; });
  finds(A01_header, [](view const& t) { t.header().format ^= 1; });
  finds(A01_header, [](view const& t) { t.header().capacity = 8; });
  finds(A01_header, [](view const& t) { t.layer(0).n_experts = 11; });
  finds(A02_state_counts, [](view const& t) { ++t.header().resident; });
  finds(A02_state_counts, [](view const& t) { --t.header().reserved; });
  finds(A02_state_counts, [](view const& t) { ++t.header().draining; });
  finds(A02_state_counts, [](view const& t) { t.word(0) |= 7; });
  finds(A03_reciprocal, [](view const& t) { t.owner(0) = 5; });
  finds(A03_reciprocal, [](view const& t) { t.expert(5).where = 1; });
  finds(A03_reciprocal, [](view const& t) { t.expert(9).where |= 5; });
  finds(A03_reciprocal, [](view const& t) { t.owner(0) = 1 << 16; });
  finds(A04_empty_is_bare, [](view const& t) { t.owner(5) = 4; });
  finds(A04_empty_is_bare, [](view const& t) { t.word(5) = slot_word::pinned; });
  finds(A04_empty_is_bare, [](view const& t) { t.word(5) = slot_word::one_lease; });
  finds(A04_empty_is_bare, [](view const& t) { t.word(0) |= slot_word::loading; });
  finds(A04_empty_is_bare, [](view const& t) { t.scratch_word(0) = 1; });
  finds(A05_capacity, [](view const& t) { t.word(5) = slot_word::of(slot_state::retired); });
  finds(A05_capacity, [](view const& t) { t.word(6) = 0; });
  finds(A05_capacity, [](view const& t) { t.word(4) &= ~slot_word::returns; });
  finds(A05_capacity, [](view const& t) { t.word(4) &= slot_word::one_lease - 1; });
  finds(A06_held, [](view const& t) { ++t.layer(0).held; });
  finds(A07_unused, [](view const& t) { ++t.header().unused; });
  finds(A07_unused, [](view const& t) { t.header().speculative_slots = 0; });
  finds(A08_in_flight, [](view const& t) { t.in_flight(0) = 0; });
  finds(A08_in_flight, [](view const& t) { t.in_flight(1) = 2; });
  finds(A08_in_flight, [](view const& t) {
    t.header().in_flight = 2;
    t.in_flight(1) = 3;
  });
  finds(A09_leases, [](view const& t) { ++t.header().leases; });
  finds(A10_pins, [](view const& t) { ++t.header().pinned; });
  finds(A10_pins, [](view const& t) { t.word(1) &= ~slot_word::pinned; });
  finds(A10_pins, [](view const& t) { t.expert(0).where |= expert_word::pinned; });
  finds(A11_clocks, [](view const& t) { t.expert(0).last = t.header().tick + 1; });
  finds(A12_never, [](view const& t) { t.score_of(5).value = 1; });
  finds(A12_never, [](view const& t) { t.expert(5).last = 1; });
  finds(A15_free_hint, [](view const& t) { t.header().free_hint = 6; });
}

TEST_CASE("audit: marks of speculation where the bundle has none", "[table][audit]") {
  auto made = kit::table_builder<lru>(sized(4, 2)).place({.slot = 0}).build();
  made.view().word(0) |= slot_word::unused;
  CHECK(audit(made.view()).broken == invariant::A07_unused);
}

TEST_CASE("audit: a stored epoch ahead of the clock", "[table][audit][B27]") {
  using epochs = bundles::of<score::epoch_count>;
  auto made = kit::table_builder<epochs>(sized(4, 2)).place({.slot = 0, .heat = 5}).build();
  auto const& t = made.view();
  t.score_of(0).epoch += 1;
  CHECK(audit(t).broken == invariant::A13_score);
}

TEST_CASE("audit: a table may be old before an expert is first demanded", "[table][audit]") {
  using epochs = bundles::of<score::epoch_count>;
  auto c = sized(4, 2);
  c.first_tick = 0xC000'0000;
  CHECK(audit(kit::table_builder<epochs>(c).place({.slot = 0, .heat = 5}).build().view()));
}

TEST_CASE("audit: a list that does not fit its slots", "[table][audit]") {
  auto const build = [] {
    return kit::table_builder<listed>(sized(6, 3))
        .place({.slot = 0, .expert = 0, .age = 3})
        .place({.slot = 1, .expert = 1, .age = 2})
        .place({.slot = 2, .expert = 2, .age = 1})
        .build();
  };
  auto const broken = [&](auto&& plant) {
    auto made = build();
    REQUIRE(audit(made.view()));
    plant(made.view());
    CHECK(audit(made.view()).broken == invariant::A14_selector);
  };
  broken([](auto const& t) { t.selector_pool().oldest = 2; });
  broken([](auto const& t) { t.selector_pool().newest = 2; });
  broken([](auto const& t) { t.selector_slot(1).older = 3; });
  broken([](auto const& t) { t.selector_slot(2).newer = 1; });  // a circle
  broken([](auto const& t) { t.selector_slot(0).newer = 9; });  // out of range
}
