// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/cache.hpp>
#include <warmset/concurrent.hpp>
#include <warmset/observe/laws.hpp>
#include <warmset/table/bundles.hpp>

#include "support/count_allocations.hpp"
#include "support/errors.hpp"
#include "support/whole_cache.hpp"

namespace warmset {
namespace {

using id_list = std::vector<routed_id>;
using ids_of = std::span<routed_id const>;

struct speculating : default_policy {
  using predictor = predict::supplied;
};
using shared_pool = bundles::shared<default_policy>;

geometry small() {
  return geometry::uniform(2, 16, 2, 100);
}

/// Two geometries: layers 3 and 5 with experts of 150 bytes, layer 4 of 400.
geometry mixed() {
  return geometry{{{layer_id{3}, 16, 2, {100, 50}},
                   {layer_id{4}, 8, 4, {400}},
                   {layer_id{5}, 16, 2, {100, 50}}}};
}

template <class Cache>
void land(Cache& c) {
  for (u32 pool = 0; pool < c.pools().size(); ++pool) {
    for (u32 slot = 0; slot < c.sites()[pool].n_words(); ++slot) {
      (void)c.backend().arrived(pool, slot_id{slot});
    }
  }
  c.settle();
}

using warmset_test::bytes_of;
using warmset_test::require_sound;

/// What the bank allocations of a cache come to.
template <class Cache>
u64 bank_bytes(Cache& c, u64 tail = 0) {
  u64 sum = 0;
  for (group_layout const& layout : layouts_of(c.model(), c.sites(), tail)) {
    sum += layout.bytes();
  }
  return sum;
}

template <class Policy = default_policy>
std::string refusal(geometry model, budget size, tuning numbers = Policy::numbers) {
  return warmset_test::error_of([&] { cache<Policy> c{std::move(model), size, numbers}; });
}
using warmset_test::mentions;

}  // namespace

// ---- budget and construction --------------------------------------------------------------------

TEST_CASE("a budget in slots") {
  cache<> c{mixed(), budget::of_slots(6)};
  CHECK(c.effective_budget().slots == 18);
  CHECK(c.effective_budget().requested_bytes == 0);
  // what the banks take: 6 slots in each layer, scratch of k = 2 and of k = 4, each bank aligned
  constexpr u64 exact = 2 * 6 * 150 + 6 * 400 + 2 * 150 + 4 * 400;
  CHECK(c.effective_budget().effective_bytes == bank_bytes(c));
  CHECK(bank_bytes(c) >= exact);
  CHECK(bank_bytes(c) < exact + 3 * group_layout::alignment);
  REQUIRE(c.sites().size() == 3);
  CHECK(c.sites()[0].n_slots == 6);
  CHECK(c.sites()[0].n_scratch == 2);
  require_sound(c);
  // never more than the layer has experts
  cache<> wide{mixed(), budget::of_slots(100)};
  CHECK(wide.effective_budget().slots == 16 + 8 + 16);
}

TEST_CASE("a budget in bytes pays for slots scratch tails and reserve of both geometries") {
  for (u64 const tail : {u64{0}, u64{64}}) {
    // three banks in two groups
    u64 const fixed = 2 * 150 + 4 * 400 + 3 * (tail + group_layout::alignment);
    constexpr u64 per_slot = 150 + 400 + 150;
    for (u32 const reserve : {0u, 1u, 3u}) {
      for (u32 const slots : {1u, 2u, 3u, 4u}) {
        for (u64 const spare : {u64{0}, u64{1}, per_slot - 1}) {
          u64 const bytes = fixed + (slots + reserve) * per_slot + spare;
          cache<> c{mixed(), budget{bytes, 0, reserve}, tuning{}, move::external{tail}};
          budget_report const& r = c.effective_budget();
          CHECK(r.requested_bytes == bytes);
          CHECK(r.slots == 3 * slots);
          CHECK(r.effective_bytes == bank_bytes(c, tail));
          CHECK(r.effective_bytes <= bytes);
          CHECK(bytes - r.effective_bytes < per_slot + 3 * group_layout::alignment);
          require_sound(c);
        }
      }
    }
    CHECK_THROWS_AS(
        (cache<>{mixed(), budget::of_bytes(fixed + per_slot - 1), tuning{}, move::external{tail}}),
        config_error);
  }
  std::string const why = refusal(mixed(), budget::of_bytes(2599));
  CHECK(mentions(why, "below one slot per layer"));
  CHECK(mentions(why, "2599"));
  CHECK(mentions(why, "3368"));  // what one slot takes
}

TEST_CASE("a shared pool of each geometry") {
  cache<shared_pool> c{mixed(), budget::of_slots(6)};
  REQUIRE(c.pools().size() == 2);
  CHECK(c.pools()[0].view().header().capacity == 12);
  CHECK(c.pools()[1].view().header().capacity == 6);
  CHECK(c.pools()[0].view().header().floor == 2);
  u32 pool = 9, row = 9;
  REQUIRE(c.find(layer_id{5}, pool, row));
  CHECK(pool == 0);
  CHECK(row == 1);
  CHECK(!c.find(layer_id{6}, pool, row));
  require_sound(c);
}

TEST_CASE("what cannot work is refused with a sentence") {
  CHECK(mentions(refusal(geometry{}, budget::of_slots(2)), "without MoE layers"));
  CHECK(mentions(refusal(small(), budget{}), "use the bundle off"));
  CHECK(mentions(refusal(small(), budget::of_slots(2), tuning{.half_life = 3}), "half_life = 3"));
  CHECK(
      mentions(refusal(small(), budget::of_slots(2), tuning{.half_life = 257}), "half_life = 257"));
  CHECK(mentions(refusal(small(), budget::of_slots(2), tuning{.epoch = 12}), "epoch = 12"));
  CHECK(mentions(refusal(small(), budget::of_slots(2), tuning{.speculative_slots = 1}),
                 "predictor is none"));
  CHECK(mentions(refusal<speculating>(small(), budget::of_slots(1)), "leave nothing for demand"));
  CHECK(mentions(refusal<shared_pool>(small(), budget::of_slots(1)), "a floor of 2"));
  CHECK(mentions(refusal(geometry::uniform(1, 513, 2, 8), budget::of_slots(2)),
                 "max_experts is 512"));
  CHECK(mentions(refusal(geometry{{{layer_id{70'000}, 8, 2, {8}}}}, budget::of_slots(2)), "70000"));
  CHECK(refusal(geometry::uniform(1, 512, 2, 8), budget::of_slots(2)).empty());
}

// ---- demand -------------------------------------------------------------------------------------

TEST_CASE("step decides commits and starts the loads") {
  cache<> c{mixed(), budget::of_slots(6)};
  id_list const ids{3, 1, 3, -1};
  step_view const v = c.step(layer_id{4}, ids_of{ids});
  CHECK(v.kind == plan_kind::step);
  REQUIRE(v.experts.size() == 2);
  CHECK(v.experts[0] == 1);  // by last occurrence
  CHECK(v.experts[1] == 3);
  REQUIRE(v.loads.size() == 2);
  CHECK(v.loads[0].expert == 1);
  CHECK(v.loads[1].expert == 3);
  CHECK(v.slot_of(expert_id{1}) == slot_id{0});
  CHECK(v.slot_of(expert_id{3}) == slot_id{1});
  CHECK(v.slot_of(expert_id{0}) == no_slot);
  CHECK(!c.is_resident({layer_id{4}, expert_id{1}}));
  land(c);
  CHECK(c.is_resident({layer_id{4}, expert_id{1}}));
  CHECK(!c.is_resident({layer_id{3}, expert_id{1}}));
  CHECK(!c.is_resident({layer_id{4}, expert_id{99}}));
  CHECK(c.step(layer_id{4}, ids_of{ids}).how[0] == access_kind::hit);
  require_sound(c);
}

TEST_CASE("a plan that is not committed leaves no trace") {
  cache<speculating> c{small(), budget::of_slots(4)};
  id_list const a{0, 1}, b{2, 3, 4, 5, 6}, other{7};
  (void)c.step(layer_id{0}, ids_of{a});
  land(c);
  auto const before = bytes_of(c);
  auto const counted = c.observer().total();
  for (id_list const& ids : {a, b, other, id_list{}, id_list{-1}}) {
    (void)c.plan(layer_id{0}, ids_of{ids});
    CHECK((bytes_of(c) == before));
  }
  CHECK(c.observer().total().demanded == counted.demanded);
  CHECK(c.observer().total().skipped_ids[static_cast<u32>(reason::sentinel)].value == 0);
  require_sound(c);
}

TEST_CASE("plan and commit are step") {
  cache<> one{small(), budget::of_slots(4)}, two{small(), budget::of_slots(4)};
  u64 state = 7;
  for (int i = 0; i < 500; ++i) {
    state = state * 6364136223846793005ull + 1;
    id_list const ids{static_cast<routed_id>(state >> 60),
                      static_cast<routed_id>((state >> 50) & 15)};
    layer_id const layer{static_cast<u32>(state >> 40) & 1};
    (void)one.step(layer, ids_of{ids});
    (void)two.plan(layer, ids_of{ids});
    REQUIRE(two.commit());
    land(one), land(two);
  }
  CHECK((bytes_of(one) == bytes_of(two)));
  require_sound(one), require_sound(two);
}

TEST_CASE("a plan of another table version is stale") {
  cache<> c{small(), budget::of_slots(4)};
  id_list const a{0, 1};
  CHECK(c.commit() == status{reason::not_committable});  // nothing planned yet
  (void)c.plan(layer_id{0}, ids_of{a});
  REQUIRE(c.commit());
  auto const before = bytes_of(c);
  CHECK(c.commit() == status{reason::stale_plan});  // the same plan twice
  CHECK((bytes_of(c) == before));
  (void)c.plan(layer_id{0}, ids_of{a});
  REQUIRE(c.resize(layer_id{0}, 3));
  CHECK(c.commit() == status{reason::stale_plan});
  (void)c.plan(layer_id{0}, ids_of{a});
  land(c);  // what settle takes in makes another version
  CHECK(c.commit() == status{reason::stale_plan});
  id_list const wide = [] {
    id_list ids;
    for (routed_id i = 0; i < 16; ++i)
      ids.push_back(i);
    return ids;
  }();
  CHECK(c.plan(layer_id{0}, ids_of{wide}).kind == plan_kind::overflow);
  CHECK(c.commit() == status{reason::not_committable});
  require_sound(c);
}

TEST_CASE("hints are committed once") {
  cache<speculating> c{small(), budget::of_slots(4)};
  layer_id const layer{0};
  id_list const demanded{0, 1}, hinted{0, 5};
  (void)c.step(layer, ids_of{demanded});
  land(c);
  for (id_list const& hints : {hinted, demanded}) {  // some start a load, some start none
    (void)c.advise(layer, ids_of{hints});
    auto const before = bytes_of(c);
    auto const counted = c.observer().total();
    CHECK(c.commit() == status{reason::not_committable});
    CHECK((bytes_of(c) == before));
    auto const now = c.observer().total();
    CHECK(std::memcmp(&now, &counted, sizeof now) == 0);
  }
  require_sound(c);
}

namespace {

/// Counts, and writes down which hooks were called, in their order.
struct noting : observe::counting {
  struct call {
    char what;
    u32 where;  // layer index, or pool
    u32 number;
    bool operator==(call const&) const = default;
  };
  std::vector<call> calls;
  template <class Plan>
  void on_plan(u32 layer_index, Plan const& p) {
    calls.push_back({p.for_intent == intent::demand ? 'd' : 'h', layer_index, static_cast<u32>(p.kind)});
  }
  template <class View>
  void on_settle(u32 pool, View const& view, u32 const*) {
    calls.push_back({'s', pool, view.header().in_flight});
  }
  void on_release(u32 pool, array_view<u32 const> slots) {
    calls.push_back({'r', pool, static_cast<u32>(slots.size())});
  }
};

}  // namespace

TEST_CASE("hooks of an observer: a step calls those of its plan and its commit") {
  using noted = cache<speculating, move::external, noting>;
  noted stepped{small(), budget::of_slots(4)}, planned{small(), budget::of_slots(4)};
  u32 x = 1;
  for (u32 i = 0; i < 200; ++i) {
    layer_id const layer{i % 2};
    id_list ids;
    for (u32 n = i % 11 == 0 ? 9 : i % 4; n != 0; --n) {  // of none, of some, and more than there are slots
      x = x * 1664525u + 1013904223u;
      ids.push_back(static_cast<routed_id>(x >> 28));
    }
    if (i % 5 == 0) {
      (void)stepped.advise(layer, ids_of{ids}), (void)planned.advise(layer, ids_of{ids});
    }
    step_view const v = stepped.step(layer, ids_of{ids});
    if (planned.plan(layer, ids_of{ids}).kind == plan_kind::step) {
      REQUIRE(planned.commit());
    } else {  // nothing to commit: a plan alone is not told of
      CHECK(stepped.observer().calls.back() == noting::call{'d', i % 2, static_cast<u32>(v.kind)});
      stepped.observer().calls.pop_back();
    }
    if (i % 3 == 0) {
      auto one = stepped.demand(layer, ids_of{ids});
      one.release();
      auto two = planned.demand(layer, ids_of{ids});
      two.release();
    }
    CHECK((stepped.observer().calls == planned.observer().calls));
    land(stepped), land(planned);
    require_sound(stepped), require_sound(planned);
  }
  auto const& calls = stepped.observer().calls;
  for (char const what : {'d', 'h', 's', 'r'}) {
    CHECK(std::any_of(calls.begin(), calls.end(), [=](noting::call const& c) { return c.what == what; }));
  }
}

TEST_CASE("unknown layers are answered and change nothing") {
  cache<speculating> c{mixed(), budget::of_slots(4)};
  auto const before = bytes_of(c);
  id_list const ids{1};
  for (u32 const id : {0u, 2u, 6u, 70'000u, u32_max}) {
    layer_id const layer{id};
    step_view const v = c.step(layer, ids_of{ids});
    CHECK(v.kind == plan_kind::empty);
    CHECK(v.why == reason::unknown_layer);
    CHECK(c.commit() == status{reason::not_committable});
    c.start_wave(0);
    CHECK(!c.demand(layer, ids_of{ids}));
    CHECK(c.advise(layer, ids_of{ids}) == 0);
    CHECK(c.resize(layer, 2) == status{reason::unknown_layer});
    CHECK(c.invalidate(layer) == status{reason::unknown_layer});
    CHECK(c.pin({layer, expert_id{0}}) == status{reason::unknown_layer});
    CHECK(!c.fits(layer, 1));
    CHECK(!c.is_resident({layer, expert_id{0}}));
  }
  CHECK((bytes_of(c) == before));
  require_sound(c);
}

TEST_CASE("ids of any integer type") {
  cache<> c{small(), budget::of_slots(4)};
  u16 const narrow[] = {1, 2};
  i32 const padded[] = {1, 2, -1};
  u32 const plain[] = {1, 2, u32_max};
  (void)c.step(layer_id{0}, std::span<u16 const>{narrow});
  land(c);
  CHECK(c.step(layer_id{0}, std::span<i32 const>{padded}).how[1] == access_kind::hit);
  CHECK(c.step(layer_id{0}, std::span<u32 const>{plain}).experts.size() == 2);
  require_sound(c);
}

// ---- leases -------------------------------------------------------------------------------------

TEST_CASE("a lease holds its slots and moves with its owner") {
  using cache_type = cache<>;
  STATIC_CHECK(!std::is_copy_constructible_v<cache_type::lease>);
  STATIC_CHECK(!std::is_copy_assignable_v<cache_type::lease>);
  STATIC_CHECK(std::is_nothrow_move_constructible_v<cache_type::lease>);
  STATIC_CHECK(!std::is_copy_constructible_v<cache_type>);
  cache_type c{small(), budget::of_slots(2)};
  auto const leases = [&] { return c.pools()[0].view().header().leases; };
  id_list const a{0, 1}, b{2};
  {
    auto first = c.demand(layer_id{0}, ids_of{a});
    REQUIRE(first);
    CHECK(first.slots().size() == 2);
    CHECK(first.view().experts.size() == 2);
    land(c);
    CHECK(leases() == 2);
    CHECK(c.step(layer_id{0}, ids_of{b}).how[0] == access_kind::declined);

    auto second = std::move(first);
    CHECK(!first);  // NOLINT: a moved-from lease is empty
    CHECK(second);
    CHECK(leases() == 2);
    first.release();
    CHECK(leases() == 2);

    cache_type::lease third;
    CHECK(!third);
    third = std::move(second);
    CHECK(leases() == 2);
    auto& same = third;
    third = std::move(same);  // onto itself
    CHECK(leases() == 2);
    third.release();
    CHECK(leases() == 0);
    third.release();  // twice is once
    CHECK(leases() == 0);
    require_sound(c);

    third = c.demand(layer_id{0}, ids_of{a});
    third = c.demand(layer_id{1}, ids_of{a});  // assignment ends the old one
    CHECK(leases() == 0);
    CHECK(c.pools()[1].view().header().leases == 2);
  }
  CHECK(c.pools()[1].view().header().leases == 0);  // and so does the end of its life
  CHECK(c.step(layer_id{0}, ids_of{b}).how[0] == access_kind::load);
  require_sound(c);
}

TEST_CASE("scratch is leased and a demand without it is busy") {
  cache<> c{small(), budget::of_slots(2)};  // scratch of k = 2
  id_list const wide{0, 1, 2, 3, 4}, one{7};
  auto held = c.demand(layer_id{0}, ids_of{wide});
  REQUIRE(held);
  CHECK(held.view().kind == plan_kind::overflow);
  CHECK(held.view().n_waves == 3);
  CHECK(held.slots().size() == 2);  // each scratch slot once
  auto const before = bytes_of(c);
  CHECK(c.step(layer_id{0}, ids_of{wide}).kind == plan_kind::busy);
  // the scratch belongs to the geometry: the other layer's overflow waits as well, its step does
  // not
  CHECK(c.step(layer_id{1}, ids_of{wide}).kind == plan_kind::busy);
  CHECK(!c.demand(layer_id{1}, ids_of{wide}));
  CHECK((bytes_of(c) == before));
  CHECK(c.step(layer_id{1}, ids_of{one}).kind == plan_kind::step);
  held.release();
  CHECK(c.step(layer_id{0}, ids_of{wide}).kind == plan_kind::overflow);
  require_sound(c);
}

TEST_CASE("waves stream what has no slot") {
  cache<> c{small(), budget::of_slots(2)};
  id_list const wide{0, 1, 2, 3, 4};
  step_view const v = c.step(layer_id{0}, ids_of{wide});
  REQUIRE(v.n_waves == 3);
  std::vector<u32> streamed;
  for (u32 wave = 0; wave < v.n_waves; ++wave) {
    c.start_wave(wave);
    for (std::size_t i = 0; i < v.experts.size(); ++i) {
      if (v.waves[i] == wave) {
        u32 const word = c.backend().arrivals(0)[v.slots[i]];
        CHECK(arrival::is_of(word, c.scratch_generation()));
        CHECK(arrival::state(word) == transfer::loading);
        CHECK(c.backend().arrived(0, slot_id{v.slots[i]}));
        streamed.push_back(v.experts[i]);
      }
    }
  }
  CHECK(streamed == std::vector<u32>{0, 1, 2, 3, 4});
  CHECK(c.pools()[0].view().header().resident == 0);
  require_sound(c);
}

// ---- hints, capacity, keeping -------------------------------------------------------------------

TEST_CASE("advise takes hints of any layers") {
  cache<speculating> c{small(), budget::of_slots(4), tuning{.speculative_slots = 2}};
  hint const hints[] = {{layer_id{0}, 3, 0, 9},
                        {layer_id{0}, 4, 1, 8},
                        {layer_id{1}, 5, 0, 7},
                        {layer_id{9}, 5, 0, 7},
                        {layer_id{1}, -1, 1, 7}};
  c.advise(std::span<hint const>{hints});
  land(c);
  CHECK(c.is_resident({layer_id{0}, expert_id{3}}));
  CHECK(c.is_resident({layer_id{0}, expert_id{4}}));
  CHECK(c.is_resident({layer_id{1}, expert_id{5}}));
  require_sound(c);
  id_list const used{3};
  CHECK(c.step(layer_id{0}, ids_of{used}).how[0] == access_kind::first_use);
  CHECK(c.observer().total().used().value == 1);
  require_sound(c);
}

TEST_CASE("B89 cache: hints in prefill are dropped unless the tuning takes them") {
  constexpr u32 in_prefill = static_cast<u32>(reason::in_prefill), spec = static_cast<u32>(intent::speculative);
  CHECK(speculating::numbers.prefill_hints == 0);
  id_list const ids{3, 4};
  hint const hints[] = {{layer_id{1}, 5, 0, 9}, {layer_id{9}, 5, 0, 9}, {layer_id{1}, 6, 1, 9}};
  for (u32 const most : {0u, 1u, 9u}) {
    cache<speculating> c{small(), budget::of_slots(4), tuning{.speculative_slots = 2, .prefill_hints = most}};
    auto const before = bytes_of(c);
    CHECK(c.may_advise(layer_id{0}, phase::prefill).why == (most == 0 ? reason::in_prefill : reason::none));
    CHECK(c.may_advise(layer_id{0}));
    CHECK(c.advise(layer_id{0}, ids_of{ids}, u32_max, 1, phase::prefill) == std::min(most, 2u));
    c.advise(std::span<hint const>{hints}, phase::prefill);
    require_sound(c);
    total_counters const prefill = c.observer().total(phase::prefill);
    CHECK(prefill.hints_offered.value == 4);
    CHECK(prefill.hints_dropped[in_prefill].value == (most == 0 ? 4 : 0));
    CHECK(prefill.hints_dropped[static_cast<u32>(reason::limited)].value == (most == 1 ? 1 : 0));
    CHECK(prefill.issued[spec].value == (most == 0 ? 0 : std::min(most, 2u) + 2));
    CHECK(c.observer().total(phase::decode).hints_offered.value == 0);
    CHECK(c.observer().total(phase::decode).issued[spec].value == 0);
    if (most == 0) {
      CHECK((bytes_of(c) == before));  // and decode takes the same hints
      CHECK(c.advise(layer_id{0}, ids_of{ids}) == 2);
      CHECK(c.observer().total(phase::decode).hints_offered.value == 2);
    }
    land(c);
    require_sound(c);
  }
  concurrent<cache<speculating>> locked{small(), budget::of_slots(4)};
  CHECK(locked.advise(layer_id{0}, ids_of{ids}, u32_max, 1, phase::prefill) == 0);
  CHECK(locked.advise(layer_id{0}, ids_of{ids}) == 1);
  locked.with([](auto& c) {
    CHECK(c.observer().total(phase::prefill).hints_dropped[in_prefill].value == 2);
    require_sound(c);
  });
  cache<off> none;
  CHECK(none.advise(layer_id{0}, ids_of{ids}, u32_max, 1, phase::prefill) == 0);
}

TEST_CASE("settle counts in the phase of the pool's last step") {
  cache<speculating> c{small(), budget::of_slots(4), tuning{.speculative_slots = 2}};
  constexpr u32 demand = static_cast<u32>(intent::demand), spec = static_cast<u32>(intent::speculative);
  auto const arrived = [&](phase p, u32 by) { return c.observer().total(p).arrived[by].value; };
  auto const publish = [&] {
    for (u32 pool = 0; pool < 2; ++pool) {
      for (u32 slot = 0; slot < 4; ++slot) {
        (void)c.backend().arrived(pool, slot_id{slot});
      }
    }
  };
  id_list const two{1, 2}, one{3}, hinted{5}, wide{0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(c.advise(layer_id{0}, ids_of{hinted}) == 1);
  land(c);  // no step yet
  CHECK(arrived(phase::decode, spec) == 1);
  (void)c.step(layer_id{0}, ids_of{two}, phase::prefill);
  (void)c.step(layer_id{1}, ids_of{one});
  (void)c.plan(layer_id{1}, ids_of{two}, phase::prefill);  // leaves no trace
  land(c);
  CHECK(arrived(phase::prefill, demand) == 2);
  CHECK(arrived(phase::decode, demand) == 1);
  (void)c.step(layer_id{0}, ids_of{one}, phase::prefill);
  publish();
  (void)c.advise(layer_id{0}, ids_of{hinted});  // takes it in
  CHECK(arrived(phase::prefill, demand) == 3);
  (void)c.step(layer_id{1}, ids_of{two});
  CHECK(c.step(layer_id{1}, ids_of{wide}, phase::prefill).kind == plan_kind::overflow);
  publish();
  REQUIRE(c.pin({layer_id{1}, expert_id{1}}));  // upkeep, too
  CHECK(arrived(phase::prefill, demand) == 5);
  CHECK(arrived(phase::decode, demand) == 1);
  require_sound(c);
}

TEST_CASE("resize invalidate and pin by layer") {
  cache<> c{small(), budget{0, 4, 4}};
  id_list const a{0, 1, 2, 3};
  (void)c.step(layer_id{0}, ids_of{a});
  (void)c.step(layer_id{1}, ids_of{a});
  land(c);
  REQUIRE(c.resize(layer_id{0}, 8));
  CHECK(c.pools()[0].view().header().capacity == 8);
  CHECK(c.pools()[1].view().header().capacity == 4);
  CHECK(c.resize(layer_id{0}, 9) == status{reason::limited});
  REQUIRE(c.resize(layer_id{0}, 2));
  require_sound(c);
  REQUIRE(c.invalidate(layer_id{1}));
  CHECK(!c.is_resident({layer_id{1}, expert_id{0}}));
  CHECK(c.is_resident({layer_id{0}, expert_id{0}}));
  require_sound(c);
  REQUIRE(c.resize(layer_id{0}, 4));
  REQUIRE(c.pin({layer_id{0}, expert_id{0}}));
  REQUIRE(c.pin({layer_id{0}, expert_id{1}}));
  CHECK(c.pin({layer_id{0}, expert_id{2}}) == status{reason::limited});  // k = 2 stay unpinned
  CHECK(c.pin({layer_id{0}, expert_id{16}}) == status{reason::out_of_range});
  for (routed_id e = 4; e < 16; ++e) {
    id_list const ids{e};
    (void)c.step(layer_id{0}, ids_of{ids});
    land(c);
  }
  CHECK(c.is_resident({layer_id{0}, expert_id{0}}));
  REQUIRE(c.unpin({layer_id{0}, expert_id{0}}));
  REQUIRE(c.unpin({layer_id{0}, expert_id{0}}));
  require_sound(c);
}

TEST_CASE("resizing to zero serves everything from scratch") {
  cache<> c{small(), budget::of_slots(4)};
  REQUIRE(c.resize(layer_id{0}, 0));
  id_list const a{0, 1};
  step_view const v = c.step(layer_id{0}, ids_of{a});
  CHECK(v.kind == plan_kind::overflow);
  CHECK(v.n_waves == 1);
  require_sound(c);
}

TEST_CASE("fits says which widths cannot overflow") {
  cache<> c{geometry::uniform(1, 16, 2, 100), budget::of_slots(5)};
  CHECK(c.fits(layer_id{0}, 1));
  CHECK(c.fits(layer_id{0}, 2));
  CHECK(!c.fits(layer_id{0}, 3));
  REQUIRE(c.pin({layer_id{0}, expert_id{0}}));
  REQUIRE(c.pin({layer_id{0}, expert_id{1}}));
  CHECK(!c.fits(layer_id{0}, 2));  // pins take from what a step can rely on
  cache<> whole{geometry::uniform(1, 16, 2, 100), budget::of_slots(16)};
  CHECK(whole.fits(layer_id{0}, u32_max));
}

// ---- promises -----------------------------------------------------------------------------------

TEST_CASE("no operation allocates after construction") {
  cache<speculating> c{mixed(), budget{0, 4, 2}, tuning{.speculative_slots = 2}};
  id_list const few{1, 2}, wide{0, 1, 2, 3, 4, 5, 6, 7}, one{3};
  hint const hints[] = {{layer_id{3}, 3, 0, 9}};
  auto const before = warmset_test::n_allocations();
  for (int i = 0; i < 20; ++i) {
    for (layer_id const layer : {layer_id{3}, layer_id{4}, layer_id{5}}) {
      (void)c.step(layer, ids_of{few});
      (void)c.plan(layer, ids_of{one});
      (void)c.commit();
      {
        auto lease = c.demand(layer, ids_of{wide});
        c.start_wave(0);
        auto moved = std::move(lease);
      }
      (void)c.advise(layer, ids_of{wide});
      c.advise(std::span<hint const>{hints});
      (void)c.resize(layer, 3 + static_cast<u32>(i % 4));
      (void)c.pin({layer, expert_id{1}});
      (void)c.unpin({layer, expert_id{1}});
      (void)c.fits(layer, 2);
      land(c);
      if (i % 7 == 0)
        (void)c.invalidate(layer);
    }
    (void)c.observer().total();
  }
  c.invalidate();
  CHECK(warmset_test::n_allocations() == before);
  require_sound(c);
}

TEST_CASE("off allocates nothing and counts nothing") {
  geometry const model = small();
  id_list const ids{1, 2};
  STATIC_CHECK(std::is_empty_v<cache<off>>);
  auto const before = warmset_test::n_allocations();
  {
    cache<off> c{model, budget::of_slots(4)};
    for (int i = 0; i < 100; ++i) {
      (void)c.step(layer_id{0}, ids_of{ids});
      (void)c.advise(layer_id{0}, ids_of{ids});
      c.settle();
    }
  }
  CHECK(warmset_test::n_allocations() == before);
}

TEST_CASE("eight racing demands of one expert are one load") {
  using locked = concurrent<cache<speculating>>;
  constexpr u32 racers = 8;
  for (u32 round = 0; round < 20; ++round) {
    locked c{small(), budget::of_slots(4)};
    std::atomic<u32> ready{0};
    std::atomic<u32> slots_seen[racers] = {};
    std::vector<std::thread> threads;
    for (u32 t = 0; t < racers; ++t) {
      threads.emplace_back([&, t] {
        routed_id const ids[] = {5};
        u32 slot[1] = {99};
        ++ready;
        while (ready.load() != racers) {
        }
        auto const answer = c.step(layer_id{0}, ids_of{ids}, std::span<u32>{slot});
        slots_seen[t] = answer.n == 1 ? slot[0] : 1000;
        (void)c.advise(layer_id{1}, ids_of{ids});
      });
    }
    for (std::thread& t : threads)
      t.join();
    c.with([&](auto& inner) {
      land(inner);
      require_sound(inner);
      total_counters const sum = inner.observer().total();
      CHECK(sum.issued[static_cast<u32>(intent::demand)].value == 1);
      CHECK(sum[access_kind::load].value == 1);
      CHECK(sum[access_kind::late].value == racers - 1);
      CHECK(sum.bytes[static_cast<u32>(intent::demand)].value == 100);  // counted once
      CHECK(sum.issued[static_cast<u32>(intent::speculative)].value == 1);
      CHECK(inner.is_resident({layer_id{0}, expert_id{5}}));
    });
    for (auto const& slot : slots_seen)
      CHECK(slot == slots_seen[0]);
  }
}

TEST_CASE("threads on one cache behind the lock") {
  concurrent<cache<speculating>> c{small(), budget::of_slots(4)};
  std::vector<std::thread> threads;
  for (u32 t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      u64 state = t + 1;
      u32 slots[4];
      for (int i = 0; i < 500; ++i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        routed_id const ids[] = {static_cast<routed_id>(state >> 60),
                                 static_cast<routed_id>((state >> 50) & 15)};
        layer_id const layer{static_cast<u32>(state >> 40) & 1};
        (void)c.step(layer, ids_of{ids}, std::span<u32>{slots});
        if (i % 3 == 0)
          (void)c.advise(layer, ids_of{ids});
        if (i % 50 == 0)
          (void)c.resize(layer, 3 + static_cast<u32>(i / 50 % 2));
        if (i % 97 == 0)
          (void)c.invalidate(layer);
        c.with([](auto& inner) { land(inner); });
        c.settle();
      }
    });
  }
  for (std::thread& t : threads)
    t.join();
  c.with([](auto& inner) { require_sound(inner); });
}

}  // namespace warmset
