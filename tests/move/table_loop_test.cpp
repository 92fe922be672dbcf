// SPDX-License-Identifier: Apache-2.0
#include <warmset/move/counting.hpp>
#include <warmset/move/failing.hpp>
#include <warmset/move/host.hpp>
#include <warmset/move/limiting.hpp>
#include <warmset/move/throttling.hpp>
#include <warmset/table/bundles.hpp>
#include <warmset/table/table.hpp>

#include "sites.hpp"

#include <catch2/catch_test_macros.hpp>

#include <random>

using namespace warmset;
using namespace warmset_test;
using namespace warmset::move;

namespace {

struct plain : default_policy {
  using score = warmset::score::lru;
  static constexpr u32 max_experts = 64;
};

struct hinting : plain {
  using guard = warmset::guard::none;
  using predictor = warmset::predict::supplied;
};

struct one_pool : plain {
  using pool = warmset::pooling::shared;
};

constexpr host_options at_once{};
constexpr host_options by_hand{.bytes_per_tick = 1, .ticks_per_poll = 0};

/// Tables and a backend in a loop: what a cache does, and after every operation an audit, the laws
/// of the transfers and an identity check of every resident slot.
template <class Policy, class Backend>
struct rig {
  geometry model;
  std::vector<pool_site> sites;
  Backend backend;
  std::vector<table<Policy>> tables;
  std::vector<std::vector<u32>> scratch;
  outcome total{};
  plan_of<Policy> plan{};
  workspace_of<Policy> work{};
  u32 model_tick = 0;
  u32 scratch_generation = 0;

  rig(geometry m, u32 slots, u32 n_scratch, Backend b, tuning numbers = {})
      : model(std::move(m)), sites(make_sites(model, slots, n_scratch, Policy::pool::spans_layers)),
        backend(std::move(b)) {
    backend.open(model, sites);
    numbers.scratch_slots = n_scratch;
    for (std::size_t g = 0; g < model.groups().size(); ++g) {
      scratch.emplace_back(n_scratch, 0u);
    }
    for (pool_site const& site : sites) {
      std::vector<layer_geometry> rows;
      for (layer_id layer : site.layers) {
        rows.push_back(*model.find(layer));
      }
      tables.emplace_back(rows, pool_size{site.n_slots, site.n_slots}, numbers,
                          scratch[site.group].data());
    }
    check();
  }

  table_writer<Policy> const& view(u32 pool) { return tables[pool].view(); }
  block_header const& header(u32 pool) { return view(pool).header(); }
  host const& device() const { return innermost(backend); }
  host& device() { return innermost(backend); }

  void settle_all() {
    backend.poll();
    for (pool_site const& site : sites) {
      settle<Policy>(one_lane{}, view(site.pool), backend.arrivals(site.pool), total);
    }
  }
  void settle_and_check() {
    settle_all();
    check();
  }

  void start_loads(u32 pool) {
    std::vector<transfer_order> orders;
    for (u32 j = 0; j < plan.n_loads; ++j) {
      orders.push_back({slot_id{plan.loads[j].slot},
                        {sites[pool].layers[plan.row], expert_id{plan.loads[j].expert}},
                        view(pool).generation(plan.loads[j].slot)});
    }
    backend.start(pool, orders);
  }

  plan_kind step(u32 pool, std::vector<i32> const& ids, u32 row = 0) {
    settle_all();
    plan_demand<Policy>(one_lane{}, view(pool), step_input{row, phase::decode, model_tick},
                        ids.data(), static_cast<u32>(ids.size()), work, plan);
    if (plan.kind == plan_kind::step) {
      CHECK(commit<Policy>(one_lane{}, view(pool), plan, total));
      model_tick += plan.n;
      start_loads(pool);
    } else {
      record_uncommitted<Policy>(plan, total);
    }
    check();
    return plan.kind;
  }

  u32 hint(u32 pool, std::vector<i32> const& ids, u32 row = 0) requires speculates<Policy> {
    settle_all();
    plan_speculative<Policy>(
        one_lane{}, view(pool),
        speculation_input{row, view(pool).layer(row).step + 1, u32_max, model_tick}, ids.data(),
        static_cast<u32>(ids.size()), work, plan);
    CHECK(commit<Policy>(one_lane{}, view(pool), plan, total));
    start_loads(pool);
    check();
    return plan.n_loads;
  }

  std::vector<u32> lease(u32 pool) {
    acquire<Policy>(view(pool), plan);
    std::vector<u32> slots(plan.n);
    slots.resize(leased_slots<Policy>(view(pool), plan, slots.data()));
    check();
    return slots;
  }
  void end_lease(u32 pool, std::vector<u32> const& slots) {
    release<Policy>(view(pool), slots.data(), static_cast<u32>(slots.size()), total);
    check();
  }

  /// Streams one wave of the last plan through scratch and reads it there; returns how many
  /// experts.
  u32 run_wave(u32 pool, u32 wave) {
    std::vector<transfer_order> orders;
    ++scratch_generation;
    for (u32 i = 0; i < plan.n; ++i) {
      if (plan.slot[i] >= sites[pool].n_slots && plan.wave[i] == wave) {
        orders.push_back({slot_id{plan.slot[i]},
                          {sites[pool].layers[plan.row], expert_id{plan.expert[i]}},
                          scratch_generation});
      }
    }
    backend.start(pool, orders);
    finish();
    for (transfer_order const& o : orders) {
      bool const arrived = backend.arrivals(pool)[o.slot.value] ==
                           arrival::word(scratch_generation, transfer::arrived);
      if (arrived) {
        CHECK(device().read(pool, o.slot, o.expert, o.generation, 0));
      }
    }
    return static_cast<u32>(orders.size());
  }

  /// Works until nothing is in flight.
  void finish() {
    for (int i = 0; i < 10'000; ++i) {
      device().advance_to_idle();
      settle_all();
      u32 n = 0;
      for (pool_site const& site : sites) {
        n += header(site.pool).in_flight;
        for (u32 s = 0; s < site.n_words(); ++s) {
          n += arrival::state(backend.arrivals(site.pool)[s]) == transfer::loading;
        }
      }
      if (n == 0) {
        check();
        return;
      }
    }
    FAIL("transfers are lost");
  }

  bool is_resident(u32 pool, u32 expert, u32 row = 0) {
    u32 const where =
        view(pool).expert(view(pool).index_of(row, expert)).where & expert_word::slot_mask;
    return where != 0 && slot_word::state(view(pool).word(where - 1)) == slot_state::resident;
  }
  bool is_mapped(u32 pool, u32 expert, u32 row = 0) {
    return (view(pool).expert(view(pool).index_of(row, expert)).where & expert_word::slot_mask) !=
           0;
  }

  void check() {
    u32 in_flight = 0;
    u32 wrong = 0;
    for (pool_site const& site : sites) {
      auto const& t = view(site.pool);
      audit_result const sound = audit(t);
      CAPTURE(site.pool, sound.where, name_of(sound.broken));
      REQUIRE(sound);
      in_flight += t.header().in_flight;
      for (u32 s = 0; s < site.n_slots; ++s) {
        if (slot_word::state(t.word(s)) != slot_state::resident) {
          continue;
        }
        u32 const owner = t.owner(s);
        expert_key const key{site.layers[t.row_of(owner)], expert_id{t.expert_of(owner)}};
        for (u32 bank = 0; bank < device().layout(site.group).n_banks(); ++bank) {
          wrong += !device().read(site.pool, slot_id{s}, key, t.generation(s), bank);
        }
      }
    }
    REQUIRE(wrong == 0);
    u32 const started = total.issued[0] + total.issued[1];
    u32 const ended =
        total.arrived[0] + total.arrived[1] + total.failed[0] + total.failed[1] + total.late_failed;
    REQUIRE(started == ended + in_flight);
    REQUIRE(device().ledger().balances());
    REQUIRE(device().ledger().refused == 0);
  }
};

template <class Policy = plain, class Backend = host>
rig<Policy, Backend> make_rig(u32 n_experts, u32 k, u32 slots, Backend backend = Backend{},
                              tuning numbers = {}) {
  return {geometry{{{layer_id{3}, n_experts, k, {24, 13}}, {layer_id{4}, n_experts, k, {24, 13}}}},
          slots, k, std::move(backend), numbers};
}

std::vector<i32> some_ids(std::mt19937& random, u32 n_experts, u32 n) {
  std::vector<i32> ids(n);
  for (i32& id : ids) {
    id = static_cast<i32>(random() % (n_experts + 1)) - 1;
  }
  return ids;
}

}  // namespace

TEST_CASE("a step's experts arrive and are what they claim", "[move]") {
  auto r = make_rig(42, 4, 8);
  CHECK(r.step(0, {3, 5, 4, -1, 3}) == plan_kind::step);
  CHECK(r.header(0).in_flight == 3);
  CHECK(r.device().ledger().merged == 2);
  r.settle_and_check();
  CHECK(r.header(0).resident == 3);
  CHECK(r.total.arrived[0] == 3);
}

TEST_CASE("B29, R10: after n failed copies the capacity is what it was", "[move]") {
  for (u32 slots : {1u, 2u, 3u, 4u, 8u, 42u}) {
    auto r = make_rig<plain>(42, 1, slots, failing<host>{failure_schedule::all(), host{at_once}});
    for (i32 n = 0; n < 100; ++n) {
      r.step(0, {n % 42});
      r.settle_and_check();
      REQUIRE(r.header(0).free() == slots);
    }
    CHECK(r.total.failed[0] == 100);
    CHECK(r.total.evicted[0] == 0);
    r.backend.set_schedule({});
    r.step(0, {7});
    CHECK(r.plan.loads[0].slot == 0);  // free again, and the first taken
    r.settle_and_check();
    CHECK(r.is_resident(0, 7));
    for (u32 n = 0; n < slots; ++n) {
      r.step(0, {static_cast<i32>(n)});
    }
    r.finish();
    CHECK(r.header(0).resident == slots);
  }
}

TEST_CASE(
    "B29, R10: a speculative load that fails frees its slot; the resident it displaced is gone",
    "[move]") {
  for (u32 slots : {2u, 3u, 4u, 8u}) {
    auto r = make_rig<hinting>(42, 2, slots, failing<host>{failure_schedule{}, host{at_once}});
    for (u32 n = 0; n < slots; ++n) {
      r.step(0, {static_cast<i32>(n)});
    }
    r.finish();
    r.backend.set_schedule(failure_schedule::all());
    u32 const resident = r.header(0).resident;
    REQUIRE(r.hint(0, {40}) == 1);
    u32 const slot = r.plan.loads[0].slot;
    u32 const victims = r.total.evicted[1];
    r.finish();
    CHECK(r.total.failed[1] == 1);
    CHECK(r.header(0).unused == 0);
    CHECK(slot_word::state(r.view(0).word(slot)) == slot_state::free);
    CHECK(r.header(0).resident == resident - victims);
    CHECK_FALSE(r.is_mapped(0, 40));
    for (i32 n = 0; n < 50; ++n) {
      r.hint(0, {20 + n % 20});
      r.finish();
      REQUIRE(r.header(0).free() + r.header(0).resident == slots);
      REQUIRE(r.header(0).unused == 0);
    }
    r.backend.set_schedule({});
    REQUIRE(r.hint(0, {41}) == 1);
    r.finish();
    CHECK(r.is_resident(0, 41));
    r.step(0, {41});
    CHECK(r.plan.how[0] == access_kind::first_use);
  }
}

TEST_CASE("B31: entry three of four fails alone; its victim stays evicted", "[move]") {
  for (u32 failing_entry = 0; failing_entry < 4; ++failing_entry) {
    auto r = make_rig(42, 4, 4);
    r.step(0, {0, 1, 2, 3});
    r.finish();
    u32 wanted = 11 + 2 * failing_entry;  // not neighbours: each has copies of its own
    r.device().fail_when(
        [](void* context, copy_attempt const& a) {
          return a.copy.first_expert == *static_cast<u32*>(context);
        },
        &wanted);
    r.step(0, {11, 13, 15, 17});
    u32 const slot = r.plan.loads[failing_entry].slot;
    r.finish();
    for (u32 i = 0; i < 4; ++i) {
      CHECK(r.is_resident(0, 11 + 2 * i) == (i != failing_entry));
      CHECK_FALSE(r.is_mapped(0, i));
    }
    CHECK(slot_word::state(r.view(0).word(slot)) == slot_state::free);
    CHECK(r.header(0).resident == 3);
    CHECK(r.total.evicted[0] == 4);
    CHECK(r.total.failed[0] == 1);
    r.device().fail_when(nullptr);
    r.step(0, {static_cast<i32>(wanted)});
    CHECK(r.plan.loads[0].slot == slot);
    r.finish();
    CHECK(r.header(0).resident == 4);
  }
}

TEST_CASE("a run that travels in one copy fails as one", "[move]") {
  auto r = make_rig(42, 4, 4);
  r.device().fail_copy(1);  // the second bank of the run 5, 6, 7
  r.step(0, {5, 6, 7, 9});
  r.finish();
  CHECK(r.total.failed[0] == 3);
  CHECK(r.header(0).free() == 3);
  CHECK(r.is_resident(0, 9));
}

TEST_CASE("R12: an expert whose copy failed is not resident and is eligible again", "[move]") {
  auto r = make_rig(42, 2, 4);
  r.device().fail_copy(0);
  r.step(0, {7});
  r.finish();
  CHECK_FALSE(r.is_mapped(0, 7));
  r.step(0, {7});
  CHECK(r.plan.how[0] == access_kind::load);
  r.finish();
  CHECK(r.is_resident(0, 7));
  CHECK(r.total.issued[0] == 2);
}

TEST_CASE("a demand for what is in flight joins it, whether it arrives or fails", "[move]") {
  for (bool fails : {false, true}) {
    auto r = make_rig<hinting>(42, 2, 4, host{by_hand});
    if (fails) {
      r.device().fail_copy(0);
    }
    REQUIRE(r.hint(0, {9}) == 1);
    r.device().advance(20);
    r.step(0, {9});
    CHECK(r.plan.how[0] == access_kind::late);
    CHECK(r.total.late_of_hint == 1);
    CHECK(r.device().ledger().transfers.issued == 1);
    r.step(0, {9});
    CHECK(r.plan.how[0] == access_kind::late);
    r.finish();
    CHECK(r.is_resident(0, 9) == !fails);
    CHECK(r.total.late_failed == (fails ? 1 : 0));
    CHECK(r.total.arrived[1] == (fails ? 0 : 1));
    CHECK(r.header(0).unused == 0);
  }
}

TEST_CASE("a slot whose transfer fails under a lease is not handed out before the lease ends",
          "[move]") {
  auto r = make_rig(42, 2, 2, host{by_hand});
  r.device().fail_copy(0);
  r.step(0, {9});
  u32 const slot = r.plan.loads[0].slot;
  std::vector<u32> const lease = r.lease(0);
  r.finish();
  CHECK(slot_word::state(r.view(0).word(slot)) == slot_state::draining);
  CHECK_FALSE(r.is_mapped(0, 9));
  r.step(0, {9});
  CHECK(r.plan.loads[0].slot != slot);
  r.step(0, {30});  // both slots are held: declined into scratch
  CHECK(r.plan.how[0] == access_kind::declined);
  CHECK(r.run_wave(0, 0) == 1);
  r.end_lease(0, lease);
  CHECK(slot_word::state(r.view(0).word(slot)) == slot_state::free);
  r.step(0, {30});
  CHECK(r.plan.loads[0].slot == slot);
  r.finish();
  CHECK(r.header(0).resident == 2);
}

TEST_CASE("a leased slot is not written under its reader; without a lease the reader would see it",
          "[move]") {
  for (bool leased : {true, false}) {
    auto r = make_rig(42, 1, 1, host{by_hand});
    r.step(0, {9});
    r.finish();
    std::vector<u32> const lease = leased ? r.lease(0) : std::vector<u32>{};
    expert_key const key{layer_id{3}, expert_id{9}};
    (void)r.device().enqueue_read({0, slot_id{0}, key, r.view(0).generation(0), 0}, 1'000);
    r.device().advance(1);
    r.step(0, {10});
    CHECK(r.plan.how[0] == (leased ? access_kind::declined : access_kind::load));
    if (leased) {
      CHECK(r.run_wave(0, 0) == 1);
    }
    r.finish();
    CHECK(r.device().n_faults() == (leased ? 0 : 1));
    if (!leased) {
      CHECK(r.device().reports()[0].fault == read_fault::changed);
    }
    r.end_lease(0, lease);
  }
}

TEST_CASE("a reader that does not wait for arrival is caught", "[move]") {
  auto r = make_rig(42, 1, 1, host{by_hand});
  r.step(0, {9});
  expert_key const key{layer_id{3}, expert_id{9}};
  (void)r.device().enqueue_read({0, slot_id{0}, key, r.view(0).generation(0), 1});
  r.finish();
  CHECK(r.device().n_faults() == 1);
  CHECK(r.device().reports()[0].fault == read_fault::empty);
}

TEST_CASE("an overflow step streams through scratch in waves and leaves residency alone",
          "[move]") {
  auto r = make_rig(42, 4, 4);
  r.step(0, {1, 2, 3, 4});
  r.finish();
  std::vector<i32> wide;
  for (i32 e = 0; e < 42; ++e) {
    wide.push_back(e);
  }
  CHECK(r.step(0, wide) == plan_kind::overflow);
  u32 streamed = 0;
  for (u32 wave = 0; wave < r.plan.n_waves; ++wave) {
    streamed += r.run_wave(0, wave);
  }
  CHECK(streamed == 38);
  CHECK(r.header(0).resident == 4);
  for (u32 e = 1; e <= 4; ++e) {
    CHECK(r.is_resident(0, e));
  }
}

TEST_CASE("fault at every copy index: one workload, every copy of it once", "[move]") {
  auto const play = [](u64 failing_copy) {
    auto r = make_rig<hinting>(9, 3, 4, host{{.bytes_per_tick = 50, .ticks_per_poll = 1}});
    r.device().fail_copy(failing_copy);
    std::mt19937 random(7);
    for (u32 i = 0; i < 40; ++i) {
      u32 const pool = static_cast<u32>(random() % 2);
      if (random() % 4 == 0) {
        r.hint(pool, some_ids(random, 9, 2));
      } else {
        r.step(pool, some_ids(random, 9, 3));
      }
      if (random() % 3 == 0) {
        r.settle_and_check();
      }
    }
    r.finish();
    move_ledger const& l = r.device().ledger();
    bool const happened = failing_copy < l.copies.issued;
    CHECK(l.copies.failed == (happened ? 1 : 0));
    CHECK(r.total.failed[0] + r.total.failed[1] + r.total.late_failed == l.transfers.failed);
    CHECK((l.transfers.failed != 0) == happened);
    for (u32 pool = 0; pool < 2; ++pool) {
      block_header const& h = r.header(pool);
      CHECK(h.free() + h.resident == h.capacity);
      CHECK(h.capacity == 4);
    }
    return l.copies.issued;
  };
  u64 const n = play(u64_max);
  REQUIRE(n > 50);
  for (u64 i = 0; i < n; ++i) {
    CAPTURE(i);
    play(i);
  }
}

namespace {

/// What happened in all games of one kind, so that none of it is tested by accident only.
struct tally {
  u64 failed = 0, late = 0, late_failed = 0, declined = 0, overflow = 0, evicted = 0, retired = 0;
};

/// Random operations of every kind under one backend.
template <class Policy, class Make>
void play_at_random(Make&& make, u32 n_experts, u32 k, u32 slots, u32 seed, bool may_fail,
                    tally& sum) {
  CAPTURE(n_experts, k, slots, seed);
  tuning numbers{};
  if constexpr (Policy::pool::spans_layers) {
    numbers.floor = min_of(k, slots);
  }
  if (speculates<Policy> && slots < 2) {
    return;
  }
  auto r = make_rig<Policy>(n_experts, k, slots, make(), numbers);
  std::mt19937 engine(seed);
  auto const random = [&engine](u32 n) { return static_cast<u32>(engine() % n); };
  u32 const n_pools = static_cast<u32>(r.sites.size());
  std::vector<std::pair<u32, std::vector<u32>>> leases;
  for (u32 i = 0; i < 120; ++i) {
    u32 const pool = random(n_pools);
    u32 const row = random(static_cast<u32>(r.sites[pool].layers.size()));
    switch (random(10)) {
    case 0:
    case 1:
    case 2:
    case 3: {
      plan_kind const kind = r.step(pool, some_ids(engine, n_experts, 1 + random(k + 1)), row);
      if ((kind == plan_kind::step || kind == plan_kind::overflow) && random(3) == 0) {
        leases.emplace_back(pool, r.lease(pool));
      } else if (kind == plan_kind::overflow && random(2) == 0) {
        r.run_wave(pool, 0);
      }
      break;
    }
    case 4:
      if constexpr (speculates<Policy>) {
        r.hint(pool, some_ids(engine, n_experts, 2), row);
      }
      break;
    case 5:
      if (!leases.empty()) {
        r.end_lease(leases.back().first, leases.back().second);
        leases.pop_back();
      }
      break;
    case 6:
      r.settle_all();
      (void)resize<Policy>(r.view(pool), r.sites[pool].n_slots - random(2), r.total);
      r.check();
      break;
    case 7:
      if (random(4) == 0) {
        r.settle_all();
        invalidate<Policy>(r.view(pool), row, r.total);
        r.check();
      }
      break;
    default:
      r.device().advance(random(60));
      r.settle_and_check();
      break;
    }
  }
  for (auto const& [pool, slots_held] : leases) {
    r.end_lease(pool, slots_held);
  }
  for (pool_site const& site : r.sites) {
    r.settle_all();
    CHECK(resize<Policy>(r.view(site.pool), site.n_slots, r.total));
  }
  r.finish();
  for (pool_site const& site : r.sites) {
    block_header const& h = r.header(site.pool);
    CHECK(h.free() + h.resident == site.n_slots);
    CHECK(h.leases == 0);
  }
  sum.failed += r.total.failed[0] + r.total.failed[1];
  sum.late += r.total[access_kind::late];
  sum.late_failed += r.total.late_failed;
  sum.declined += r.total[access_kind::declined];
  sum.overflow += r.total.overflow_steps;
  sum.evicted += r.total.evicted[0] + r.total.evicted[1];
  sum.retired += r.total.retired;
  if (!may_fail) {
    CHECK(r.total.failed[0] + r.total.failed[1] + r.total.late_failed == 0);
  }
}

template <class Make>
void play_all(Make&& make, bool may_fail) {
  u32 const k = 4;
  u32 const n_experts = 12;
  tally sum;
  for (u32 slots : {1u, 2u, 3u, k, 8u, n_experts}) {
    for (u32 seed = 0; seed < 4; ++seed) {
      play_at_random<plain>(make, n_experts, k, slots, seed, may_fail, sum);
      play_at_random<hinting>(make, n_experts, k, slots, seed + 50, may_fail, sum);
      play_at_random<one_pool>(make, n_experts, k, slots, seed + 100, may_fail, sum);
    }
  }
  play_at_random<hinting>(make, 42, 8, 42, 1, may_fail, sum);
  CHECK(sum.evicted != 0);
  CHECK(sum.declined != 0);
  CHECK(sum.overflow != 0);
  CHECK(sum.retired != 0);
  if (may_fail) {
    CHECK(sum.failed != 0);
    CHECK(sum.late != 0);
    CHECK(sum.late_failed != 0);
  }
}

constexpr host_options lagging{.bytes_per_tick = 5, .latency = 1, .ticks_per_poll = 2};

}  // namespace

TEST_CASE("random operations over the host", "[move]") {
  play_all([] { return host{at_once}; }, false);
  play_all([] { return host{lagging}; }, false);
}

TEST_CASE("random operations over a host whose copies fail", "[move]") {
  play_all(
      [] {
        host h{lagging};
        h.fail_when([](void*, copy_attempt const& a) { return a.n % 5 == 3; });
        return h;
      },
      true);
}

TEST_CASE("random operations over stacked adaptors", "[move]") {
  play_all(
      [] {
        return limiting{transfer_limit{.transfers = 1}, throttling{2, host{lagging}}};
      },
      false);
  play_all(
      [] {
        return counting{failing{failure_schedule::random(3, 12'000),
                                limiting{transfer_limit{.bytes = 80},
                                         failing{failure_schedule::random(
                                                     4, 12'000, failure_schedule::moment::at_start),
                                                 throttling<host, tick_clock>{9, host{lagging}}}}}};
      },
      true);
}
