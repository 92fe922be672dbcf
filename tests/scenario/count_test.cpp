// SPDX-License-Identifier: Apache-2.0
// What is counted, over pools and real traces; and the switch that is off.

#include <span>
#include <string>

#include <warmset/trace/read_rtb1.hpp>

#include "play.hpp"
#include "recordings.hpp"

#include "support/rounds.hpp"

namespace warmset::scenario {
namespace {

constexpr u32 hint_i = static_cast<u32>(intent::speculative);

template <class Cache>
concept has_counters = requires(Cache& c) {
  c.observer();
};
template <class Cache>
concept has_pools = requires(Cache& c) {
  c.pools();
};

}  // namespace

TEST_CASE("B106 issued hints are conserved") {
  auto const random_life = [](player& play) {
    u32 const capacity = play.header().capacity;
    dice random{capacity};
    std::vector<u32> leases;
    for (int op = 0; op < 3000; ++op) {  // the player checks the laws after each operation
      u32 const x = random.below(n_experts);
      switch (random.below(10)) {
      case 0:
      case 1:
      case 2:
        play.demand({static_cast<routed_id>(x), static_cast<routed_id>(random.below(n_experts))});
        break;
      case 3:
      case 4:
        play.hint(
            {static_cast<routed_id>(x), static_cast<routed_id>(random.below(n_experts)), -1, 999});
        break;
      case 5:
        play.land();
        break;
      case 6:
        play.finish_all(random.below(3) == 0 ? transfer::failed : transfer::arrived);
        break;
      case 7: {
        u32 lease = u32_max;
        play.hold({static_cast<routed_id>(x)}, lease);
        if (lease != u32_max)
          leases.push_back(lease);
        break;
      }
      case 8:
        for (u32 const lease : leases)
          play.release(lease);
        leases.clear();
        break;
      default:
        if (random.below(8) == 0) {
          play.invalidate();
        } else if (capacity > 3) {
          (void)play.resize(capacity - random.below(2));
        }
      }
    }
    for (u32 const lease : leases)
      play.release(lease);
    play.land();
    auto const c = play.counters();
    CHECK(c.issued[hint_i].value > 0);
    CHECK(c.issued[hint_i].value ==
          c.used().value + c.evicted_unused.value + play.header().unused + c.failed[hint_i].value);
  };
  for (u32 const capacity : {2u, 3u, k, 8u, 42u}) {
    on_both<watched<score::decayed_count, guard::spare_only>>({.capacity = capacity}, random_life);
    on_both<watched<score::lfru, guard::none>>({.capacity = capacity}, random_life);
    on_both<watched<score::lfru, guard::warm_then_challenger_must_win, select::first_permitted>>(
        {.capacity = capacity, .numbers = {.speculative_slots = 2}}, random_life);
    on_both<watched<score::lru, guard::none, select::lru_list>>({.capacity = capacity},
                                                                random_life);
  }
}

TEST_CASE("B108 the hit rate is of demand alone") {
  SECTION("5420 hits of 11378 demands are 47.6 percent whatever hints looked up") {
    outcome o{};
    o.demanded = 11'378;
    o[access_kind::hit] = 5'000;
    o[access_kind::first_use] = 420;
    o[access_kind::load] = 5'958;
    o.hints_offered = 1'000;
    o.hints_dropped[static_cast<u32>(reason::resident)] =
        1'000;  // look-ups that found their expert
    total_counters c{};
    fold(o, 1000, 1, c);
    CHECK(c.hits().value == 5'420);
    CHECK(static_cast<int>(c.hit_rate() * 1000 + 0.5) == 476);
    CHECK(check_laws(c, {}).broken != law::L1_demand);
  }
  SECTION("played: hints for residents leave it as it is") {
    on_both<watched<score::decayed_count, guard::spare_only>>({.capacity = 8}, [](player& play) {
      for (u32 i = 0; i < 500; ++i) {
        play.d({static_cast<routed_id>(i % 11)});
        for (routed_id e = 0; e < 11; ++e) {
          if (play.resident(static_cast<u32>(e)))
            play.p({e});
        }
      }
      auto const c = play.counters();
      CHECK(c.demanded.value == 500);
      CHECK(play.dropped(reason::resident) == c.hints_offered.value);
      CHECK(c.hits().value + c[access_kind::load].value == 500);
      CHECK(c.hit_rate() == static_cast<double>(c.hits().value) / 500.0);
    });
  }
}

TEST_CASE("R22 frequency beats recency on a trace of low reuse") {
  std::vector<std::byte> const bytes =
      unpacked(traces() / "raw/gpt-oss-20b-ExpertFingerprinting/ids.rtb.zst");
  if (bytes.empty()) {
    SKIP("skipped: no recording of gpt-oss-20b (WARMSET_TRACES) or no zstd");
  }
  trace::recording const recording = trace::read_rtb1(bytes);
  auto const hit_rate = [&]<class Score>(u32 slots) {
    cache<plain<Score>, move::immediate> c{recording.geometry(), budget::of_slots(slots)};
    u64 events = 0;
    for (auto const& block : recording.blocks()) {
      for (u64 step = 0; step < block.n_steps && events < (slow_build ? 60'000u : 400'000u); ++step) {
        for (u32 row = 0; row < block.n_rows; ++row, ++events) {
          auto const e = recording.at(block, step, row);
          (void)c.step(e.layer, e.ids);
        }
      }
    }
    REQUIRE(c.audit());
    require_laws(c.observer().total(), c.slot_counts());
    return c.observer().total().hit_rate();
  };
  for (u32 const slots : {8u, 16u}) {
    double const lru = hit_rate.operator()<score::lru>(slots);
    double const lfu = hit_rate.operator()<score::lfu>(slots);
    double const decayed = hit_rate.operator()<score::decayed_count>(slots);
    INFO(slots << " of 32 slots a layer: lru " << lru << ", lfu " << lfu << ", decayed_count "
               << decayed);
    CHECK(decayed > lru);
    CHECK(max_of(lfu, decayed) > lru);
    CHECK(lru > 0.2);
  }
}

TEST_CASE("R47 a floor keeps every layer of a shared pool alive") {
  constexpr u32 layers = 24;
  auto const shares = [](u32 floor, bool shared_pool) {
    std::vector<double> rates;
    auto const run = [&](auto& play) {
      play.audits = false;
      dice random{47};
      for (u32 token = 0; token < (slow_build ? 50u : 150u); ++token) {
        for (u32 layer = 0; layer < layers; ++layer) {
          // four busy layers take ten steps for each of the others, over all their experts
          for (u32 i = 0; i < (layer < 4 ? 10u : 1u); ++i) {
            id_list ids;
            for (u32 j = 0; j < k; ++j) {
              ids.push_back(static_cast<routed_id>(layer < 4 ? random.below(n_experts) : j));
            }
            play.d(ids, layer);
          }
        }
        play.check();
      }
      for (u32 layer = 0; layer < layers; ++layer) {
        rates.push_back(play.subject().observer().total(layer, phase::decode).hit_rate());
      }
    };
    sizes const s{.capacity = 6, .layers = layers, .numbers = {.floor = floor}};
    if (shared_pool) {
      on_cache<bundles::shared<plain<score::lru>>> play{s};
      CHECK(play.header().capacity == 6 * layers);
      run(play);
      for (u32 layer = 0; layer < layers; ++layer)
        CHECK(play.layer(layer).held >= min_of(k, floor));
    } else {
      on_cache<plain<score::lru>> play{s};
      run(play);
    }
    return rates;
  };
  std::vector<double> const low = shares(1, true);
  std::vector<double> const whole = shares(k, true);
  std::vector<double> const apart = shares(0, false);
  for (u32 layer = 4; layer < layers; ++layer) {
    INFO("layer " << layer << ": floor 1 " << low[layer] << ", floor k " << whole[layer]
                  << ", per layer " << apart[layer]);
    CHECK(low[layer] < 0.5);  // the report shows who starves
    CHECK(whole[layer] > 0.9);
    CHECK(apart[layer] > 0.9);
  }
}

TEST_CASE("R50 hard off has no member and no hook") {
  STATIC_CHECK(std::is_empty_v<cache<off>>);
  STATIC_CHECK(std::is_empty_v<cache<off, move::immediate, observe::none>>);
  STATIC_CHECK(!cache<off>::enabled);
  STATIC_CHECK(std::is_trivially_destructible_v<cache<off>>);
  STATIC_CHECK(!has_counters<cache<off>>);
  STATIC_CHECK(!has_pools<cache<off>>);
  STATIC_CHECK(has_counters<cache<>>);
  // the engine keeps one call structure; construction from what an enabled cache takes costs
  // nothing
  geometry const model = geometry::uniform(2, 8, 2, 100);
  cache<off> c{model, budget::of_slots(4), tuning{}};
  routed_id const ids[] = {1, 2};
  step_view const v = c.step(layer_id{0}, std::span<routed_id const>{ids});
  CHECK(v.kind == plan_kind::empty);
  CHECK(v.why == reason::unsupported);
  CHECK(v.slot_of(expert_id{1}) == no_slot);
  CHECK(c.advise(layer_id{0}, std::span<routed_id const>{ids}) == 0);
  c.settle();
}

}  // namespace warmset::scenario
