// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <deque>
#include <string>
#include <vector>

#include <warmset/cache.hpp>
#include <warmset/observe/health_facts.hpp>
#include <warmset/policy/score/lru.hpp>

#include "cuda/copy_rig.hpp"
#include "move/backend_conformance.hpp"
#include "support/count_allocations.hpp"
#include "support/dice.hpp"

using namespace warmset;
using namespace copies;

namespace {

transfer_order order(u32 slot, u32 expert, u32 generation = 1, u32 layer = 1) {
  return {{slot}, {layer_id{layer}, {expert}}, generation};
}

transfer word(engine const& e, u32 pool, u32 slot) { return arrival::state(e.arrivals(pool)[slot]); }

void drain(engine& e) {
  for (u32 i = 0; i < 10'000 && e.ledger().copies.in_flight != 0; ++i) {
    e.poll();
  }
}

}  // namespace

TEST_CASE("the copy engine is a backend as all are", "[cuda]") {
  way const w = GENERATE(way::batch, way::loop, way::staged);
  CAPTURE(name_of_way[static_cast<int>(w)]);
  std::deque<rig> rigs;
  warmset_test::backend_conforms([&] {
    rig& r = rigs.emplace_back(warmset_test::two_groups(), w);
    r.options.tail_bytes = 12;
    return r.make();
  });
  for (rig& r : rigs) {
    CHECK(r.world.held() == 0);
    CHECK(r.world.foreign == 0);
    CHECK(r.world.unrelaxed == 0);
    CHECK(r.world.capture_mode == 0);
  }
}

TEST_CASE("the copy engine moves every byte of every expert", "[cuda]") {
  way const w = GENERATE(way::batch, way::loop, way::staged);
  u32 const events = GENERATE(1u, 3u, 256u);
  u32 const batch_copies = GENERATE(1u, 5u, 256u);
  CAPTURE(name_of_way[static_cast<int>(w)], events, batch_copies);
  for (std::vector<u64> const& banks : {std::vector<u64>{1}, {7, 300, 64}, {1024}, {24, 13, 7}}) {
    rig r(one_layer(banks), w);
    r.options.events = events;
    r.options.batch_copies = batch_copies;
    r.options.large_copy = 200;
    engine e = r.make();
    e.open(r.model, warmset_test::make_sites(r.model, 12, 4));
    warmset_test::dice random{5};
    u32 generation = 0;
    u64 wrong = 0;
    for (u32 round = 0; round < 25; ++round) {
      std::vector<transfer_order> orders;
      u32 expert = 0;
      ++generation;
      for (u32 slot = 0; slot < 16 && expert < 42; ++slot) {
        if (random.below(3) != 0) {
          orders.push_back(order(slot, expert, generation));
        }
        expert += 1 + random.below(2) * random.below(4);
      }
      e.start(0, orders);
      for (transfer_order const& o : orders) {
        REQUIRE(word(e, 0, o.slot.value) == transfer::loading);
      }
      while (e.ledger().copies.in_flight != 0) {
        e.poll();
        for (transfer_order const& o : orders) {
          wrong += word(e, 0, o.slot.value) == transfer::loading || r.holds(e, 0, o.slot, o.expert) ? 0 : 1;
        }
      }
      REQUIRE(wrong == 0);
      for (transfer_order const& o : orders) {
        REQUIRE(word(e, 0, o.slot.value) == transfer::arrived);
      }
    }
    CHECK(e.ledger().balances());
    CHECK(e.ledger().merged > 0);
    CHECK(e.ledger().copies.failed == 0);
    CHECK((e.degraded() == reason::pageable) == (w == way::staged));
    CHECK((r.world.n_batches != 0) == (w == way::batch && batch_copies > 1));
    CHECK(e.failure().call == nullptr);
  }
}

TEST_CASE("neighbours are one copy, and small copies have a batch of their own", "[cuda]") {
  u64 const large = move::large_copy_bytes;
  rig r(one_layer({large, 96}, 12));
  engine e = r.make();
  e.open(r.model, warmset_test::make_sites(r.model, 8, 2));
  e.start(0, {{order(0, 3), order(1, 4), order(2, 5), order(4, 9)}});
  drain(e);
  CHECK(e.ledger().merged == 2);
  CHECK(e.ledger().copies.issued == 4);  // two runs, two banks
  CHECK(e.ledger().large_copies == 2);
  CHECK(e.ledger().small_copies == 2);
  CHECK(r.world.n_batches == 1 + 2);  // open tries one
  CHECK(r.world.smallest_in_batch_of_large >= large);
  for (transfer_order const& o : {order(0, 3), order(1, 4), order(2, 5), order(4, 9)}) {
    CHECK(r.holds(e, 0, o.slot, o.expert));
  }
}

TEST_CASE("a runtime whose batches turn out not to be there copies in a loop", "[cuda]") {
  rig r(one_layer({64, 32}));
  {
    r.world.batch_works = false;
    engine e = r.make();
    e.open(r.model, warmset_test::make_sites(r.model, 8, 2));
    CHECK_FALSE(e.batches());
    e.start(0, {{order(0, 3), order(4, 9)}});
    drain(e);
    CHECK(r.holds(e, 0, {4}, {layer_id{1}, {9}}));
    CHECK(e.failure().call == nullptr);
    r.world.batch_works = true;
  }
  engine e = r.make();
  e.open(r.model, warmset_test::make_sites(r.model, 8, 2));
  CHECK(e.batches());
  r.world.batch_works = false;
  e.start(0, {{order(0, 3), order(4, 9)}});
  drain(e);
  CHECK_FALSE(e.batches());
  CHECK(word(e, 0, 0) == transfer::arrived);
  CHECK(r.holds(e, 0, {4}, {layer_id{1}, {9}}));
  CHECK(e.failure().result.why == reason::unsupported);
}

TEST_CASE("the slots are zero after open, tails and the kernels' scratch too", "[cuda]") {
  rig r(warmset_test::two_groups());
  r.options.own_bytes = 100;
  r.options.tail_bytes = 12;
  engine e = r.make();
  e.open(r.model, warmset_test::make_sites(r.model, 4, 2));
  for (u32 g = 0; g < e.n_groups(); ++g) {
    unsigned char const* const memory = e.bank(g, 0);
    for (u64 i = 0; i < e.layout(g).bytes(); ++i) {
      REQUIRE(memory[i] == 0);
    }
    for (u32 b = 0; b < e.layout(g).n_banks(); ++b) {
      u64 const own_end = (e.first_own(g) + e.n_own(g)) * e.layout(g).stride(b);
      CHECK(own_end + 12 <= e.layout(g).tail_offset(b) + e.layout(g).tail_bytes(b) - e.layout(g).offset(b, 0));
    }
  }
}

TEST_CASE("a stream waits for its own transfer and no later one", "[cuda]") {
  rig r(one_layer({64}), GENERATE(way::batch, way::loop));
  engine e = r.make();
  e.open(r.model, warmset_test::make_sites(r.model, 8, 2));
  fake_runtime runtime{r.world};
  u32 consumer = 0;
  REQUIRE(runtime.make_stream(consumer));
  r.world.ops_per_query = 0;
  e.start(0, {{order(0, 3)}});
  e.start(0, {{order(2, 7)}});
  REQUIRE(e.order_after_arrival(consumer, 0, {0}));
  REQUIRE(e.order_after_arrival(consumer, 0, {5}));  // nothing comes there
  auto const waits = [&] { return r.world.streams[consumer].ops.size() - r.world.streams[consumer].first; };
  CHECK(waits() == 1);
  r.world.advance(2);  // the first copy and its event
  CHECK(waits() == 0);
  CHECK(r.holds(e, 0, {0}, {layer_id{1}, {3}}));
  CHECK_FALSE(r.holds(e, 0, {2}, {layer_id{1}, {7}}));
  e.poll();
  CHECK(word(e, 0, 0) == transfer::arrived);
  CHECK(word(e, 0, 2) == transfer::loading);
  r.world.ops_per_query = 1;
  drain(e);
  e.close();
  REQUIRE(runtime.destroy_stream(consumer));
  CHECK(r.world.held() == 1);  // the slots
}

TEST_CASE("pageable memory is registered, else staged and said, else refused", "[cuda]") {
  auto const pageable = move::memory_kind::pageable;
  SECTION("registered until close") {
    rig r(warmset_test::two_groups(), way::batch, 1, pageable);
    engine e = r.make();
    e.open(r.model, warmset_test::make_sites(r.model, 4, 2));
    CHECK(e.degraded() == reason::none);
    u32 n = 0;
    for (auto const& b : r.world.blocks) {
      n += b.registered ? 1 : 0;
    }
    CHECK(n == r.tensors.size());
    e.close();
    for (auto const& b : r.world.blocks) {
      CHECK_FALSE(b.registered);
    }
  }
  SECTION("as it is where nobody is asked to pin") {
    rig r(one_layer({300}), way::batch, 1, pageable);
    r.options.register_source = false;
    engine e = r.make();
    e.open(r.model, warmset_test::make_sites(r.model, 4, 2));
    CHECK(e.degraded() == reason::pageable);
    CHECK(e.ledger().staging == r.options.staging_slots * r.options.staging_bytes);
  }
  SECTION("refused") {
    rig r(one_layer({300}), way::staged);
    r.options.pageable = move::if_pageable::fail;
    engine e = r.make();
    CHECK_THROWS_AS(e.open(r.model, warmset_test::make_sites(r.model, 4, 2)), config_error);
    CHECK(r.world.held() == 0);
    r.options.pageable = move::if_pageable::stage;
    r.options.staging_slots = 1;
    engine ring = r.make();
    CHECK_THROWS_AS(ring.open(r.model, warmset_test::make_sites(r.model, 4, 2)), config_error);
    CHECK(r.world.held() == 0);
  }
}

TEST_CASE("what the device has not is refused, and the device is named", "[cuda]") {
  rig r(one_layer({4096}), way::batch, 2);
  auto const refused = [&](char const* what) {
    engine e = r.make();
    try {
      e.open(r.model, warmset_test::make_sites(r.model, 8, 2));
      FAIL("it does not fit");
    } catch (config_error const& error) {
      CAPTURE(error.what());
      CHECK(std::string(error.what()).find(what) != std::string::npos);
    }
    CHECK(r.world.held() == 0);
    CHECK(r.world.current == 0);
  };
  r.options.device = 2;
  refused("number 2");
  r.options.device = 1;
  r.world.left = {u64{1} << 30, 10 * 4096 - 1};
  refused("device 1 has 40959 bytes left");
  r.world.left[1] = 10 * 4096;
  {
    engine e = r.make();
    e.open(r.model, warmset_test::make_sites(r.model, 8, 2));
    CHECK(r.world.left[1] == 0);
    CHECK(r.world.left[0] == u64{1} << 30);
  }
  r.options.headroom = 1;
  refused("1 are to stay free");
  r.options.events = 0;
  refused("0 events");
}

TEST_CASE("each engine uses its own device and gives the one before back", "[cuda]") {
  rig r(one_layer({100, 28}), GENERATE(way::batch, way::loop), 3);
  r.world.current = 2;
  engine first = r.make();
  r.options.device = 1;
  engine second = r.make();
  auto const sites = warmset_test::make_sites(r.model, 6, 2);
  first.open(r.model, sites);
  second.open(r.model, sites);
  for (u32 i = 0; i < 30; ++i) {
    engine& e = i % 2 == 0 ? first : second;
    e.start(0, {{order(i % 5, i % 42, i)}});
    CHECK(r.world.current == 2);
    drain(e);
    CHECK(r.holds(e, 0, {i % 5}, {layer_id{1}, {i % 42}}));
  }
  CHECK(r.world.current == 2);
  CHECK(r.world.foreign == 0);
  CHECK(r.world.left[2] == u64{1} << 30);
}

TEST_CASE("every call of the runtime may fail: nothing leaks, and every word ends", "[cuda]") {
  way const w = GENERATE(way::batch, way::loop, way::staged);
  u32 const every = GENERATE(0u, 1u, 5u);  // once; from then on all; from then on every fifth
  CAPTURE(name_of_way[static_cast<int>(w)], every);
  u64 failed_opens = 0;
  u64 failed_transfers = 0;
  u64 right = 0;
  u64 wrong = 0;
  bool reached_end = false;
  for (u64 n = 0; !reached_end; ++n) {
    REQUIRE(n < 2000);
    CAPTURE(n);
    rig r(warmset_test::two_groups(), w);
    r.options.events = 5;
    r.options.large_copy = 20;
    r.options.batch_copies = 4;
    r.world.fails = {n, every, 0, 0};
    {
      engine e = r.make();
      auto const sites = warmset_test::make_sites(r.model, 6, 2);
      bool opened = false;
      try {
        e.open(r.model, sites);
        opened = true;
      } catch (config_error const&) {
        ++failed_opens;
      } catch (std::bad_alloc const&) {
        ++failed_opens;
      }
      if (opened) {
        for (u32 round = 1; round < 4; ++round) {
          for (pool_site const& site : sites) {
            std::vector<transfer_order> orders;
            for (u32 slot = 0; slot < 6; ++slot) {
              orders.push_back(order(slot, slot * round, round, site.layers[0].value));
            }
            e.start(site.pool, orders);
          }
          drain(e);
          REQUIRE(e.ledger().copies.in_flight == 0);
          REQUIRE(e.ledger().balances());
          for (pool_site const& site : sites) {
            for (u32 slot = 0; slot < 6; ++slot) {
              transfer const t = word(e, site.pool, slot);
              bool const holds = r.holds(e, site.pool, {slot}, {site.layers[0], {slot * round}});
              failed_transfers += t == transfer::failed ? 1 : 0;
              right += t == transfer::arrived && holds ? 1 : 0;
              wrong += t == transfer::failed || (t == transfer::arrived && holds) ? 0 : 1;
            }
          }
          REQUIRE(wrong == 0);
        }
        REQUIRE((e.failure().call != nullptr || r.world.calls <= n || e.degraded() != reason::none ||
                 every != 1));  // only restoring and giving back go unnoticed
        e.start(0, {{order(0, 40, 9)}});
        e.close();
        REQUIRE(word(e, 0, 0) != transfer::loading);
      }
      reached_end = r.world.calls <= n;
    }
    REQUIRE(r.world.held() == 0);
    REQUIRE(r.world.foreign == 0);
    REQUIRE(r.world.current == 0);
  }
  CHECK(failed_opens > 10);
  CHECK(failed_transfers > 0);
  CHECK(right > 100);
}

TEST_CASE("a device that is lost in the middle fails what is under way, in a few polls", "[cuda]") {
  rig r(one_layer({64, 32}), GENERATE(way::batch, way::loop, way::staged));
  engine e = r.make();
  e.open(r.model, warmset_test::make_sites(r.model, 8, 2));
  r.world.ops_per_query = 0;
  e.start(0, {{order(0, 3), order(4, 9), order(6, 11)}});
  e.poll();
  r.world.dead = true;
  for (u32 i = 0; i < 10 * engine::max_tries; ++i) {
    e.poll();
  }
  for (u32 slot : {0u, 4u, 6u}) {
    CHECK(word(e, 0, slot) == transfer::failed);
  }
  e.start(0, {{order(0, 5, 2)}});
  for (u32 i = 0; i < 10 * engine::max_tries; ++i) {
    e.poll();
  }
  CHECK(e.arrivals(0)[0] == arrival::word(2, transfer::failed));
  CHECK(e.ledger().balances());
  CHECK(e.failure().call != nullptr);
}

TEST_CASE("a cache over the copy engine delivers the experts that are asked for", "[cuda]") {
  struct plain : default_policy {
    using score = warmset::score::lru;
  };
  rig r(geometry{{{layer_id{1}, 42, 4, {24, 13, 7}}, {layer_id{2}, 42, 4, {24, 13, 7}}}},
        GENERATE(way::batch, way::loop, way::staged));
  r.options.own_bytes = cuda::own_scratch_bytes(r.model, 4);
  {
    cache<plain, engine> c{r.model, budget::of_slots(9), plain::numbers, r.make()};
    engine const& e = c.backend();
    health_monitor const monitor{health_setup_of(c)};
    CHECK((monitor.report().why == reason::pageable) == (e.degraded() == reason::pageable));
    CHECK(e.n_own(0) == 4);
    CHECK(e.first_own(0) == 2 * 9 + 4);
    warmset_test::dice random{11};
    for (u32 i = 0; i < 400; ++i) {
      layer_id const layer{1 + i % 2};
      std::vector<routed_id> ids(4);
      for (routed_id& id : ids) {
        id = static_cast<routed_id>(random.below(1 + random.below(42)));
      }
      auto const lease = c.demand(layer, ids);
      REQUIRE(lease);
      drain(c.backend());
      c.settle();
      auto const& view = lease.view();
      for (u32 j = 0; j < view.experts.size(); ++j) {
        REQUIRE(r.holds(e, layer.value - 1, {view.slots[j]}, {layer, {view.experts[j]}}));
      }
    }
    CHECK(e.ledger().transfers.completed > 100);
    CHECK(e.ledger().balances());
  }
  CHECK(r.world.held() == 0);
}
