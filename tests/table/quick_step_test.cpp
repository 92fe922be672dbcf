// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

#include <warmset/table/quick_step.hpp>

#include "support.hpp"
#include "support/dice.hpp"

using namespace warmset;
using namespace warmset::table_test;

// A quick step is what plan_demand and commit come to, or nothing at all.

namespace {

template <class Policy>
struct pair_of_tables {
  explicit pair_of_tables(kit::table_config const& c) : quickly(c), planned(c) {}

  /// Whether it was done quickly, on the first table; both have then taken the step.
  bool step(std::vector<i32> const& ids, quick which, u32& n_loads) {
    u32 const n = static_cast<u32>(ids.size());
    auto const before = quickly.bytes();
    outcome const counted = quickly.sum;
    planned.plan(ids);
    bool const committed = static_cast<bool>(planned.commit());

    std::vector<u32> slots(n, no_slot.value);
    std::vector<planned_load> loads(planned.plan_of_last().n_loads);
    table_writer<Policy> const& t = quickly.made.view();
    step_input const in{0, phase::decode, t.header().model_tick};
    auto const keys = [&]() -> i32 const* {
      if constexpr (contextual_score<typename Policy::score>) {
        return detail::keys_of_step<Policy>(one_lane{}, t, in, ids.data(), n, *quickly.work, *quickly.decided);
      }
      return nullptr;
    };
    auto const found = [&](u32 i, u32 slot) { slots[i] = slot; };
    auto const reserved = [&](u32 j, planned_load load, u32) {
      REQUIRE(j < loads.size());
      loads[j] = load;
    };
    auto const misses = [&] { return t; };
    auto const counts = [&]() -> outcome& { return quickly.sum; };
    quick_result const r =
        which == quick::hits
            ? quick_step<Policy, quick::hits>(one_lane{}, t, in, ids.data(), n, counts, true, memory, found, keys, misses,
                                              reserved)
            : quick_step<Policy, quick::hits_and_misses>(one_lane{}, t, in, ids.data(), n, counts, true, memory, found,
                                                         keys, misses, reserved);
    n_loads = r.n_loads;
    if (!r.is_done) {
      REQUIRE(quickly.bytes() == before);
      REQUIRE(std::memcmp(&counted, &quickly.sum, sizeof counted) == 0);
      quickly.plan(ids);
      REQUIRE(static_cast<bool>(quickly.commit()) == committed);
    } else {
      if constexpr (contextual_score<typename Policy::score>) {
        detail::learn<Policy>(one_lane{}, t, *quickly.decided, detail::clocks_before<Policy>(t, *quickly.decided));
      }
      plan_of<Policy> const& p = planned.plan_of_last();
      REQUIRE(p.n == n);
      REQUIRE(p.n_loads == r.n_loads);
      for (u32 i = 0; i < n; ++i) {
        REQUIRE(slots[i] == p.slot[i]);
      }
      for (u32 j = 0; j < p.n_loads; ++j) {
        REQUIRE(loads[j].expert == p.loads[j].expert);
        REQUIRE(loads[j].slot == p.loads[j].slot);
      }
    }
    REQUIRE(quickly.bytes() == planned.bytes());
    REQUIRE(std::memcmp(&quickly.sum, &planned.sum, sizeof quickly.sum) == 0);
    return r.is_done;
  }

  struct with_plan : bench<Policy> {
    using bench<Policy>::bench;
    plan_of<Policy> const& plan_of_last() const { return *this->decided; }
  };
  with_plan quickly;
  with_plan planned;
  quick_memory memory{};
};

/// Random steps with everything between them that makes a pool less plain.
template <class Policy>
void play(u32 n_experts, u32 n_slots, u32 speculative_slots) {
  kit::table_config sizes = sized(n_experts, n_slots);
  sizes.numbers.speculative_slots = speculates<Policy> ? min_of(speculative_slots, n_slots - (keeps_reserve<Policy> ? 1 : 0)) : 0;
  pair_of_tables<Policy> both(sizes);
  for (auto* each : {&both.quickly, &both.planned}) {  // clocks that will be rebased
    auto const& t = each->made.view();
    t.header().tick = t.header().model_tick = t.layer(0).tick = (u32{1} << detail::rebase_bits) - 2000;
    REQUIRE(each->sound());
  }
  warmset_test::dice random{n_experts + n_slots};
  u32 quick_hits = 0;
  u32 quick_misses = 0;
  u32 others = 0;
  u64 first_uses = 0;      // in quick steps alone, as are these
  u64 evicted_unused = 0;
  bool pinned = false;
  for (u32 i = 0; i < 5000; ++i) {
    std::vector<i32> ids(1 + random.below(min_of(n_slots, 6u)));
    for (i32& id : ids) {  // skewed; now and then no expert, now and then one twice
      id = static_cast<i32>(random.below(1 + random.below(n_experts))) - (random.below(60) == 0 ? 1 : 0);
    }
    u32 n_loads = 0;
    outcome const counted = both.quickly.sum;
    bool const done = both.step(ids, random.below(3) == 0 ? quick::hits : quick::hits_and_misses, n_loads);
    quick_hits += done && n_loads == 0 ? 1 : 0;
    quick_misses += n_loads != 0 ? 1 : 0;
    others += done ? 0 : 1;
    first_uses += done ? both.quickly.sum[access_kind::first_use] - counted[access_kind::first_use] : 0;
    evicted_unused += done ? both.quickly.sum.evicted_unused - counted.evicted_unused : 0;
    u32 const fate = random.below(40);
    bool const hints = random.below(2) == 0;
    u32 const ahead = 1 + random.below(3);
    std::vector<i32> hinted(1 + random.below(4));
    for (i32& id : hinted) {
      id = static_cast<i32>(random.below(1 + random.below(n_experts)));
    }
    for (auto* each : {&both.quickly, &both.planned}) {
      auto const& t = each->made.view();
      if (fate == 0) {  // some stay on the way
        continue;
      }
      each->arrive(fate == 1 ? transfer::failed : transfer::arrived);
      if (fate == 2) {
        (void)(pinned ? unpin<Policy>(t, 0, 0) : pin<Policy>(t, 0, 0, 1));
      } else if (fate == 3) {
        (void)resize<Policy>(t, n_slots - (i % 2 == 0 ? n_slots / 3 : 0), each->sum);
      } else if constexpr (speculates<Policy>) {
        if (hints) {
          each->hint(hinted, 0, 1000, ahead);
          (void)each->commit();
          if (fate != 5) {  // else it comes late
            each->arrive(fate == 6 ? transfer::failed : transfer::arrived);
          }
        }
      }
      REQUIRE(each->sound());
    }
    pinned = fate == 2 ? !pinned : pinned;
    REQUIRE(both.quickly.bytes() == both.planned.bytes());
  }
  CHECK(quick_hits > 20);
  CHECK((quick_misses > 100) == (detail::replaces_quickly<Policy> != 0));
  CHECK(others > 100);
  if constexpr (speculates<Policy>) {
    CHECK((first_uses > 10) == !keeps_reserve<Policy>);
    CHECK((evicted_unused > 10) == (detail::replaces_quickly<Policy> != 0));
  }
}

struct installed_lately {
  struct state {
    u32 at;
  };
  static constexpr char const* name = "installed_lately";
  u64 value(state const& x, expert_facts, clocks) const noexcept { return x.at; }
  void on_demand(state&, clocks) const noexcept {}
  void on_install(state& x, clocks c) const noexcept { x.at = c.tick; }
};

using several = std::tuple<
    bundles::of<score::lru>, bundles::of<score::lfu>, bundles::of<score::decayed_count>, bundles::of<score::lfru>,
    bundles::of<installed_lately>, bundles::of<score::lru, select::clock<1>>, bundles::of<score::lru, select::lru_list>,
    bundles::of<score::successor<>>, bundles::of<score::successor<3, i8>>, bundles::of<score::supplied_with<score::lfu>>,
    bundles::guarded<bundles::of<score::lru>, guard::none>, bundles::guarded<bundles::of<score::lru>, guard::spare_only>,
    bundles::guarded<bundles::of<score::successor<>>, guard::none>, bundles::guarded<bundles::of<installed_lately>, guard::none>,
    bundles::guarded<bundles::of<score::lru, select::clock<1>>, guard::none>,
    bundles::admitted<bundles::of<score::lru>, admit::second_touch<8>>>;

}  // namespace

TEMPLATE_LIST_TEST_CASE("quick step: as planned and committed, or nothing", "[table][quick]", several) {
  play<TestType>(24, 9, 4);
  play<TestType>(12, 6, 6);
}
