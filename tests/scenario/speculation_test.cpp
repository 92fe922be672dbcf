// SPDX-License-Identifier: Apache-2.0
// What predictions may do to residents: faults of guards and of speculative entry points.

#include <span>

#include <warmset/concurrent.hpp>

#include "play.hpp"

namespace warmset::scenario {
namespace {

/// Score of LRU with a heat beside it: the coldest resident can be the warmest one.
struct lru_with_heat {
  struct state {
    u32 count;
  };
  static constexpr char const* name = "lru_with_heat";
  static constexpr u64 one_count = 1;
  static constexpr bool decays = false;
  u64 value(state const&, expert_facts e, clocks c) const noexcept {
    return score::lru{}.value({}, e, c);
  }
  u32 heat(state const& x, expert_facts, clocks) const noexcept { return x.count; }
  void on_demand(state& x, clocks) const noexcept { ++x.count; }
};

/// Protects what was demanded twice.
struct protect_warm {
  static constexpr bool needs_heat = true;
  static constexpr bool keeps_reserve = false;
  static constexpr char const* name = "protect_warm";
  bool permits(duel const& d) const noexcept { return d.victim_heat < 2; }
};

/// An expert that no scenario has demanded, and why a hint for it is dropped where a guard refuses.
struct stranger {
  routed_id expert;
  reason why;
};
stranger beyond(u32 capacity) {
  return capacity < n_experts ? stranger{static_cast<routed_id>(capacity), reason::guard}
                              : stranger{0, reason::resident};
}

u64 copies(total_counters const& c) {
  return c.issued[static_cast<u32>(intent::speculative)].value;
}

/// Guards, as a duel sees them in the units of lfru.
bool g1(u64 v, u32, u64 c) {
  return guard::challenger_must_win{}.permits({v, c, 256, 0, false});
}
bool g2(u64 v, u32 heat, u64 c) {
  return guard::warm_then_challenger_must_win{}.permits({v, c, 256, heat, false});
}
bool g3(u64 v, u32 heat, u64 c) {
  return guard::victim_must_be_hotter{}.permits({v, c, 256, heat, false});
}

}  // namespace

TEST_CASE("B01 speculation evicts hot demand experts") {
  static constexpr u32 a = 0, b = 1, c = 2;
  SECTION("without a guard the prediction evicts the coldest resident") {
    on_both<watched<score::lru, guard::none>>({.capacity = 2}, [](player& play) {
      for (int i = 0; i < 5; ++i)
        play.d({a});
      for (int i = 0; i < 5; ++i)
        play.d({b});
      CHECK(play.p({c}) == 1);
      CHECK(!play.resident(a));
      CHECK(play.resident(b));
      CHECK(play.resident(c));
    });
  }
  SECTION("with a guard nothing is copied and both stay") {
    for_heat_guards([]<class Guard>() {
      for_counting_scores([]<class Score>() {
        on_both<watched<Score, Guard>>({.capacity = 2}, [](player& play) {
          for (int i = 0; i < 7; ++i) {
            play.d({a});
            play.d({b});
          }
          CHECK(play.p({c}) == 0);
          CHECK(play.dropped(reason::guard) == 1);
          CHECK(copies(play.counters()) == 0);
          CHECK(play.resident(a));
          CHECK(play.resident(b));
        });
      });
    });
  }
  SECTION("and so at every capacity") {
    for_heat_guards([]<class Guard>() {
      for_counting_scores([]<class Score>() {
        for (u32 const capacity : capacities) {
          on_both<watched<Score, Guard>>({.capacity = capacity}, [capacity](player& play) {
            for (int i = 0; i < 8; ++i)
              play.d(range(0, capacity));
            auto const [expert, why] = beyond(capacity);
            CHECK(play.p({expert}) == 0);
            CHECK(play.dropped(why) == 1);
            CHECK(copies(play.counters()) == 0);
            CHECK(play.n_resident() == capacity);
          });
        }
      });
    });
  }
  SECTION("the default guard gives predictions slots of their own and no others") {
    for (u32 const capacity : capacities) {
      if (capacity == 1 || capacity == n_experts) {
        continue;  // no room for both, or nothing left to predict
      }
      on_both<watched<score::decayed_count, guard::spare_only>>(
          {.capacity = capacity}, [=](player& play) {
            u32 const demanded = capacity - 1;
            for (int i = 0; i < 5; ++i)
              play.d(range(0, demanded));
            for (routed_id e = static_cast<routed_id>(demanded);
                 e < static_cast<routed_id>(n_experts); ++e) {
              play.p({e});
              for (u32 i = 0; i < demanded; ++i)
                REQUIRE(play.resident(i));
              play.d(range(0, demanded));
            }
            CHECK(play.counters().hit_rate() > 0.8);
          });
    }
  }
}

TEST_CASE("B02 an inverted guard drops everything once the pool is full") {
  auto const scenario = [](player& play) {
    u32 const capacity = play.header().capacity;
    play.d(range(0, capacity));
    for (u32 i = 0; i < 50; ++i) {
      CHECK(play.p({static_cast<routed_id>(capacity + i % (n_experts - capacity))}) == 0);
    }
    // the drop rate of 1 is plain to see: every question was refused, every hint dropped by the
    // guard;
    // health() will call that inert
    auto const c = play.counters();
    CHECK(c.guard_asked.value == 50);
    CHECK(c.guard_refused == c.guard_asked);
    CHECK(play.dropped(reason::guard) == c.hints_offered.value);
  };
  for (u32 const capacity : {1u, 2u, 3u, k, 8u, 42u}) {
    on_both<watched<score::lfru, guard::challenger_must_win>>({.capacity = capacity}, scenario);
    on_both<watched<score::decayed_count, guard::challenger_must_win>>({.capacity = capacity},
                                                                       scenario);
  }
}

TEST_CASE("B03 a guard that is asked from two demands on") {
  auto const scenario = [](u32 demands, bool evicted) {
    return [=](player& play) {
      u32 const capacity = play.header().capacity;
      for (u32 i = 0; i < demands; ++i)
        play.d(range(0, capacity));
      CHECK(play.heat(0) == demands);
      CHECK(play.p({static_cast<routed_id>(capacity)}) == (evicted ? 1 : 0));
      CHECK(play.resident(capacity) == evicted);
      CHECK(play.resident(0) == !evicted);
      CHECK(play.dropped(reason::guard) == (evicted ? 0 : 1));
    };
  };
  auto const both = [&]<class Score>() {
    for (u32 const capacity : {1u, 2u, 3u, k, 8u, 42u}) {
      using bundle = watched<Score, guard::warm_then_challenger_must_win>;
      on_both<bundle>({.capacity = capacity}, scenario(1, true));
      on_both<bundle>({.capacity = capacity}, scenario(2, false));
    }
  };
  both.operator()<score::lfu>();
  both.operator()<score::lfru>();
  both.operator()<score::epoch_count>();
}

TEST_CASE("B04 the truth table of the guards") {
  struct row {
    u32 victim_heat, victim_age, challenger_heat, challenger_age;
    u64 victim, challenger;
    bool g1, g2, g3;  // permitted
  };
  constexpr row table[] = {
      {2, 0, 0, 0, 767, 0, false, false, true},
      {4, 0, 0, 0, 1279, 0, false, false, false},
      {4, 255, 0, 0, 1024, 0, false, false, true},     // 1024 is not > 1024
      {2, 255, 6, 127, 512, 1664, false, true, true},  // 1664 against 1664
      {2, 400, 6, 127, 512, 1664, false, true, true},
      {2, 255, 6, 128, 512, 1663, false, false, true},
      {1, 0, 0, 0, 511, 0, false, true, true},
  };
  auto const against = []<class Guard>(row const& r, bool permitted) {
    on_both<watched<score::lfru, Guard>>({.capacity = 1}, [&](player& play) {
      set_clocks(play, 999);
      play.d({0});  // the victim's slot
      plant_lfru(play, 0, r.victim_heat, r.victim_age);
      if (r.challenger_heat != 0) {
        plant_lfru(play, 1, r.challenger_heat, r.challenger_age);
      }
      kit::recorder seen;
      CHECK(play.p({1}) == (permitted ? 1 : 0));
      REQUIRE(seen.consultations.size() == 1);
      CHECK(seen.consultations[0].asked.victim_score == r.victim);
      CHECK(seen.consultations[0].asked.challenger_score == r.challenger);
      CHECK(seen.consultations[0].asked.victim_heat == r.victim_heat);
    });
  };
  for (row const& r : table) {
    INFO("victim (" << r.victim_heat << ", " << r.victim_age << ") challenger ("
                    << r.challenger_heat << ", " << r.challenger_age << ")");
    CHECK(g1(r.victim, r.victim_heat, r.challenger) == r.g1);
    CHECK(g2(r.victim, r.victim_heat, r.challenger) == r.g2);
    CHECK(g3(r.victim, r.victim_heat, r.challenger) == r.g3);
    against.operator()<guard::challenger_must_win>(r, r.g1);
    against.operator()<guard::warm_then_challenger_must_win>(r, r.g2);
    against.operator()<guard::victim_must_be_hotter>(r, r.g3);
  }
}

TEST_CASE("B05 residents that stay for ever") {
  // 10,000 steps over eight experts, then hints while only four of them go on being demanded.
  auto const drop_rate = []<class Score>() {
    on_table<watched<Score, guard::warm_then_challenger_must_win>> play{{.capacity = 8}};
    dice random{5};
    for (int step = 0; step < 10'000; ++step) {
      play.d(
          {static_cast<routed_id>(random.below(4)), static_cast<routed_id>(4 + random.below(4))});
    }
    u64 const before = play.counters().guard_refused.value;
    constexpr u32 hints = 1000;
    u32 loads = 0;
    for (u32 i = 0; i < hints; ++i) {
      loads += play.p({static_cast<routed_id>(8 + i % 56)});
      play.d({static_cast<routed_id>(i % 4)});
    }
    CHECK(play.counters().guard_refused.value - before == hints - loads);
    return 1.0 - static_cast<double>(loads) / hints;
  };
  CHECK(drop_rate.operator()<score::lfu>() == 1.0);
  CHECK(drop_rate.operator()<score::lfru>() == 1.0);
  CHECK(drop_rate.operator()<score::decayed_count>() < 0.2);
  CHECK(drop_rate.operator()<score::epoch_count>() < 0.2);
  // A heat-gated guard over counts that never fade is refused at compile time unless the bundle
  // says so:
  // the compile-fail tests hold the sentence, this is the explicit word.
  STATIC_CHECK(!score::lfu::decays);
  STATIC_CHECK(score::decayed_count::decays);
  STATIC_CHECK(check_bundle<watched<score::lfu, guard::warm_then_challenger_must_win>>());
}

TEST_CASE("B06 one protected resident at the head of the order blocks the others") {
  auto const fill = [](player& play) {
    for (int i = 0; i < 5; ++i)
      play.d({0});  // least recently used, and protected
    play.d({1});
    play.d({2});
  };
  SECTION("a selector with a single victim drops the hint") {
    on_both<watched<lru_with_heat, protect_warm, select::coldest>>(
        {.capacity = 3}, [&](player& play) {
          fill(play);
          CHECK(play.p({3}) == 0);
          CHECK(play.dropped(reason::guard) == 1);
          CHECK(play.counters().guard_asked.value == 1);
        });
    on_both<watched<lru_with_heat, protect_warm, select::lru_list>>(
        {.capacity = 3}, [&](player& play) {
          fill(play);
          CHECK(play.p({3}) == 0);
          CHECK(play.dropped(reason::guard) == 1);
        });
  }
  SECTION("first_permitted evicts the least recently used of the unprotected") {
    on_both<watched<lru_with_heat, protect_warm, select::first_permitted>>(
        {.capacity = 3}, [&](player& play) {
          fill(play);
          CHECK(play.p({3}) == 1);
          CHECK(play.resident(0));
          CHECK(!play.resident(1));
          CHECK(play.resident(2));
          CHECK(play.counters().guard_asked.value == 2);
          CHECK(play.counters().guard_refused.value == 1);
        });
  }
  SECTION("at every capacity it asks once for each protected resident before it") {
    for (u32 const capacity : {2u, 3u, k, 8u, 42u}) {
      on_both<watched<lru_with_heat, protect_warm, select::first_permitted>>(
          {.capacity = capacity}, [=](player& play) {
            for (int i = 0; i < 2; ++i)
              play.d(range(0, capacity - 1));
            play.d({static_cast<routed_id>(capacity - 1)});
            CHECK(play.p({static_cast<routed_id>(capacity)}) == 1);
            CHECK(!play.resident(capacity - 1));
            CHECK(play.counters().guard_refused.value == capacity - 1);
          });
    }
  }
}

TEST_CASE("B07 every speculative entry point decides alike") {
  auto const alike = []<class Policy>() {
    for (u64 seed = 0; seed < 40; ++seed) {
      INFO("guard " << Policy::guard::name << ", selector " << Policy::selector::name << ", seed "
                    << seed);
      sizes const s{.capacity = 8, .numbers = {.speculative_slots = 4}};
      auto const warm = [seed](player& play) {
        dice random{seed};
        for (int i = 0; i < 40; ++i) {
          play.d(
              {static_cast<routed_id>(random.below(12)), static_cast<routed_id>(random.below(12))});
          if (random.below(3) == 0)
            play.p({static_cast<routed_id>(random.below(20))});
        }
      };
      on_table<Policy> table{s};  // plan and commit by hand
      on_cache<Policy> batch{s}, single{s}, typed{s};
      warm(table), warm(batch), warm(single), warm(typed);
      // a batch is judged against residency at its start, so that hints for residents are another
      // case
      dice random{seed + 1000};
      id_list hints;
      while (hints.size() < 6) {
        u32 const e = random.below(24);
        routed_id const id = static_cast<routed_id>(e);
        if (!table.resident(e) && std::find(hints.begin(), hints.end(), id) == hints.end())
          hints.push_back(id);
      }
      table.hint(hints);
      batch.hint(hints);
      std::vector<hint> spelled;
      for (routed_id const e : hints) {
        single.hint({e});
        spelled.push_back({layer_id{0}, e, static_cast<u16>(spelled.size()), 0});
      }
      typed.subject().advise(std::span<hint const>{spelled});
      typed.check();
      CHECK((table.bytes() == batch.bytes()));
      CHECK((typed.bytes() == batch.bytes()));
      // one by one is more commits and otherwise the same; a repeated id is then found in flight
      single.header().version = batch.header().version;
      CHECK((single.bytes() == batch.bytes()));
      CHECK(single.counters().guard_asked == batch.counters().guard_asked);
      CHECK(single.counters().guard_refused == batch.counters().guard_refused);

      concurrent<cache<Policy>> locked{geometry::uniform(1, n_experts, k, 1000),
                                       budget::of_slots(8), s.numbers};
      // the same history under the lock
      dice again{seed};
      auto const land = [](auto& c) {
        for (u32 slot = 0; slot < 8; ++slot)
          (void)c.backend().arrived(0, slot_id{slot});
        c.settle();
      };
      u32 slots[8];
      for (int i = 0; i < 40; ++i) {
        routed_id const ids[] = {static_cast<routed_id>(again.below(12)),
                                 static_cast<routed_id>(again.below(12))};
        (void)locked.step(layer_id{0}, std::span<routed_id const>{ids}, std::span<u32>{slots});
        locked.with(land);
        if (again.below(3) == 0) {
          routed_id const one[] = {static_cast<routed_id>(again.below(20))};
          (void)locked.advise(layer_id{0}, std::span<routed_id const>{one});
          locked.with(land);
        }
      }
      (void)locked.advise(layer_id{0}, std::span<routed_id const>{hints});
      locked.with([&](auto& c) {
        REQUIRE(c.audit());
        auto const& t = c.pools()[0];
        CHECK(std::memcmp(t.block(), batch.bytes().data(), t.block_bytes()) == 0);
      });
    }
  };
  alike.operator()<watched<score::lfru, guard::none>>();
  alike.operator()<watched<score::lfru, guard::challenger_must_win>>();
  alike.operator()<watched<score::lfru, guard::warm_then_challenger_must_win>>();
  alike.operator()<watched<score::decayed_count, guard::spare_only>>();
  alike.
  operator()<watched<score::lfru, guard::warm_then_challenger_must_win, select::first_permitted>>();
  alike.operator()<watched<score::lru, guard::none, select::lru_list>>();
}

TEST_CASE("B08 a speculative publish stamps no recency") {
  bundles::for_each(bundles::all{}, []<class Bundle>() {
    play_on_table<bundles::guarded<Bundle, guard::spare_only>>({.capacity = 8}, [](player& play) {
      constexpr u32 x = 9;
      for (int i = 0; i < 3; ++i)
        play.d({0, 1, 2, 3});
      play.d({x});
      for (u32 i = 0; i < 3; ++i)
        play.d({4, 5, 6});  // pushes x out or leaves it
      auto const history = [&] {
        std::vector<u64> all{play.header().tick, play.layer().tick, play.layer().step};
        for (u32 e = 0; e < n_experts; ++e) {
          all.push_back(play.expert(e).last);
          all.push_back(play.expert(e).where & expert_word::accessed);
          all.push_back(play.heat(e));
          all.insert(all.end(), play.score(e).begin(), play.score(e).end());
        }
        return all;
      };
      auto const order = [&] {  // the victims of a step of four misses, in ascending expert index
        std::vector<u32> victims;
        for (planned_load const& l : play.plan({50, 51, 52, 53}).loads)
          victims.push_back(l.slot);
        return victims;
      };
      auto const before = history();
      auto const order_before = order();
      play.p({33});  // never demanded
      REQUIRE(play.resident(33));
      CHECK(play.heat(33) == 0);
      CHECK(play.value(33) == 0);
      CHECK(history() == before);
      CHECK(order() == order_before);
      play.p({33, 0, 4, x});  // what is there already: no touch either
      CHECK(history() == before);
      CHECK(order() == order_before);
    });
  });
}

TEST_CASE("B09 no speculative call bypasses the guard") {
  auto const scenario = [](player& play) {
    u32 const capacity = play.header().capacity;
    for (int i = 0; i < 2; ++i)
      play.d(range(0, capacity));
    u32 misses = 0;
    kit::recorder seen;
    u32 next = capacity;
    auto const fresh = [&](u32 n) {
      id_list ids;
      for (u32 i = 0; i < n; ++i)
        ids.push_back(static_cast<routed_id>(next++));
      misses += n;
      return ids;
    };
    play.p(fresh(1));  // single
    play.p(fresh(3));  // batch
    CHECK(seen.consultations.size() == misses);
    CHECK(play.counters().guard_asked.value == misses);  // the pool is full: each miss asks
  };
  for (u32 const capacity : {8u, 42u}) {
    sizes const s{.capacity = capacity, .numbers = {.speculative_slots = 8}};
    on_both<watched<score::lfru, guard::none>>(s, scenario);
    on_both<watched<score::lfru, guard::challenger_must_win>>(s, scenario);
    on_both<watched<score::decayed_count, guard::warm_then_challenger_must_win>>(s, scenario);
  }
}

TEST_CASE("B11 a reserve that resolves to nothing is not silence") {
  using speculating = watched<score::decayed_count, guard::spare_only>;
  auto const percent = [](u32 of, u32 p) { return of * p / 100; };
  SECTION("a quarter of eight is two") {
    on_both<speculating>({.capacity = 8, .numbers = {.speculative_slots = percent(8, 25)}},
                         [](player& play) { CHECK(play.header().speculative_slots == 2); });
  }
  SECTION("at every capacity at least one slot or a construction error") {
    for (u32 const capacity : capacities) {
      sizes const s{.capacity = capacity, .numbers = {.speculative_slots = percent(capacity, 25)}};
      if (capacity == 1) {
        CHECK_THROWS_AS(on_table<speculating>(s), config_error);
        CHECK_THROWS_AS(on_cache<speculating>(s), config_error);
      } else {
        on_both<speculating>(s, [&](player& play) {
          CHECK(play.header().speculative_slots == std::max(1u, percent(capacity, 25)));
          CHECK(play.p({0}) == 1);  // and it works
        });
      }
    }
  }
  SECTION("slots for hints that cannot come are an error as well") {
    CHECK_THROWS_AS(
        (on_table<plain<score::lru>>({.capacity = 8, .numbers = {.speculative_slots = 2}})),
        config_error);
  }
  SECTION("and so is a reserve that leaves nothing for demand") {
    CHECK_THROWS_AS(on_table<speculating>({.capacity = 8, .numbers = {.speculative_slots = 8}}),
                    config_error);
    CHECK_NOTHROW(on_table<speculating>({.capacity = 8, .numbers = {.speculative_slots = 7}}));
  }
}

TEST_CASE("B12 a free slot is not expert 0 and asks no guard") {
  SECTION("expert 0 hot and gone") {
    for_heat_guards([]<class Guard>() {
      on_both<watched<score::lfru, Guard>>({.capacity = 4}, [](player& play) {
        set_clocks(play, 100);
        play.d({1, 2});
        plant_lfru(play, 0, 50, 3);  // hot, not resident
        REQUIRE(play.live() == 2);
        kit::recorder seen;
        CHECK(play.p({9}) == 1);
        CHECK(play.slot_of(9) == 2);
        CHECK(seen.consultations.empty());
        CHECK(play.counters().guard_asked.value == 0);
        CHECK(!play.resident(0));
      });
    });
  }
  SECTION("expert 0 hot in another layer of the same pool") {
    using pooled = bundles::shared<watched<score::lfru, guard::challenger_must_win>>;
    on_table<pooled> play{{.capacity = 8, .layers = 2}};
    for (int i = 0; i < 5; ++i)
      play.d({0}, 1);
    kit::recorder seen;
    CHECK(play.p({9}, 0) == 1);
    CHECK(seen.consultations.empty());
    CHECK(!play.resident(0, 0));
    CHECK(play.resident(0, 1));
  }
}

TEST_CASE("B13 margins of saturated counts do not wrap") {
  constexpr u32 hot = u32_max, cold = u32_max - 1;
  SECTION("in the guards") {
    for (u64 const one : {u64{1}, u64{256}}) {
      u64 const v = u64{cold} * one, c = u64{hot} * one;
      CHECK(!guard::challenger_must_win{}.permits({v, c, one, cold, false}));
      CHECK(!guard::warm_then_challenger_must_win{}.permits({v, c, one, cold, false}));
      CHECK(guard::victim_must_be_hotter{}.permits({v, c, one, cold, false}));
      CHECK(guard::with_margin(v, one) > v);
    }
    CHECK(guard::with_margin(u64_max - 1, 256) == u64_max);
    CHECK(!guard::challenger_must_win{}.permits({u64_max, u64_max, 1, cold, false}));
  }
  SECTION("in a table") {
    auto const scenario = [](u32 permitted) {
      return [=](player& play) {
        play.d({0});
        for (u32 e : {0u, 1u}) {
          play.score(e)[0] = e == 0 ? cold : hot;
          play.expert(e).where |= expert_word::accessed;
        }
        CHECK(play.p({1}) == permitted);
        CHECK(play.resident(0) == (permitted == 0));
      };
    };
    auto const both = [&]<class Score>() {
      on_both<watched<Score, guard::challenger_must_win>>({.capacity = 1}, scenario(0));
      on_both<watched<Score, guard::warm_then_challenger_must_win>>({.capacity = 1}, scenario(0));
      on_both<watched<Score, guard::victim_must_be_hotter>>({.capacity = 1}, scenario(1));
    };
    both.operator()<score::lfu>();
    both.operator()<score::lfru>();
    both.operator()<score::epoch_count>();
  }
}

TEST_CASE("R5 speculative installs of four times the capacity between demands") {
  auto const scenario = [](player& play) {
    u32 const capacity = play.header().capacity;
    u32 const bound = play.header().speculative_slots;
    dice random{17};
    for (int step = 0; step < 200; ++step) {
      play.d({static_cast<routed_id>(random.below(3)), static_cast<routed_id>(random.below(3))});
      id_list hints;
      for (u32 i = 0; i < 4 * capacity; ++i)
        hints.push_back(static_cast<routed_id>(3 + random.below(61)));
      u32 const loads = play.p(hints);
      REQUIRE(loads <= bound);
      REQUIRE(play.header().unused <= bound);
      if (random.below(25) == 0) {  // about 4 % are demanded later
        play.d({hints[0]});
      }
    }
    auto const c = play.counters();
    u64 const issued = copies(c);
    CHECK(issued > 0);
    CHECK(c.used().value + c.evicted_unused.value + play.header().unused == issued);
    CHECK(c.used().value * 4 <= issued + 4);
  };
  for (u32 const capacity : {2u, 3u, k, 8u, 42u, n_experts}) {
    sizes const s{.capacity = capacity, .numbers = {.speculative_slots = max_of(1u, capacity / 4)}};
    on_both<watched<score::decayed_count, guard::spare_only>>(s, scenario);
    on_both<watched<score::lru, guard::none>>(s, scenario);
    on_both<watched<score::lfru, guard::warm_then_challenger_must_win>>(s, scenario);
  }
}

TEST_CASE("R6 residents of one touch are replaceable") {
  auto const drop_rate = [](player& play, u32 demanded) {
    play.d(range(0, demanded));
    u32 loads = 0;
    constexpr u32 hints = 40;
    for (u32 i = 0; i < hints; ++i) {
      loads += play.p({static_cast<routed_id>(demanded + i % (n_experts - demanded))});
      play.d({static_cast<routed_id>(i % demanded)});  // the step that the hint was for
    }
    return 1.0 - static_cast<double>(loads) / hints;
  };
  for (u32 const capacity : {2u, 3u, k, 8u, 42u}) {
    INFO("capacity " << capacity);
    on_table<watched<score::decayed_count, guard::spare_only>> spare{{.capacity = capacity}};
    CHECK(drop_rate(spare, capacity - 1) < 0.1);
  }
  // While most residents have one touch, the guard lets their slots go.
  on_both<watched<score::lfru, guard::warm_then_challenger_must_win>>(
      {.capacity = 42}, [](player& play) {
        play.d(range(0, 42));
        u32 loads = 0;
        for (u32 i = 0; i < 22; ++i) {
          loads += play.p({static_cast<routed_id>(42 + i)});
          play.d({static_cast<routed_id>(
              42 + i)});  // it comes true, and is then a resident of one touch
        }
        CHECK(loads == 22);
        CHECK(play.dropped(reason::guard) == 0);
      });
}

TEST_CASE("R7 a twice demanded resident survives an unseen prediction") {
  using bundle = watched<score::lfru, guard::warm_then_challenger_must_win>;
  SECTION("the once demanded one makes way") {
    on_both<bundle>({.capacity = 3}, [](player& play) {
      constexpr u32 w = 0, w2 = 1, x = 2;
      for (int i = 0; i < 2; ++i)
        play.d({w, w2});
      play.d({x});
      CHECK(play.p({5}) == 1);
      CHECK(play.resident(w));
      CHECK(play.resident(w2));
      CHECK(!play.resident(x));
      CHECK(play.dropped(reason::guard) == 0);
    });
  }
  SECTION("with only such residents the prediction is dropped and nothing copied") {
    for (u32 const capacity : {1u, 2u, 3u, k, 8u, 42u}) {
      on_both<bundle>({.capacity = capacity}, [=](player& play) {
        for (int i = 0; i < 2; ++i)
          play.d(range(0, capacity));
        CHECK(play.p({static_cast<routed_id>(capacity)}) == 0);
        CHECK(play.dropped(reason::guard) == 1);
        CHECK(copies(play.counters()) == 0);
        CHECK(play.n_resident() == capacity);
      });
    }
  }
}

TEST_CASE("R8 a pool that is not full asks no guard") {
  for_heat_guards([]<class Guard>() {
    for (u32 const capacity : capacities) {
      on_both<watched<score::lfru, Guard>>(
          {.capacity = capacity, .numbers = {.speculative_slots = capacity}}, [=](player& play) {
            kit::recorder seen;
            for (u32 i = 0; i < capacity; ++i) {
              CHECK(play.p({static_cast<routed_id>(i)}) == 1);
            }
            CHECK(seen.consultations.empty());
            CHECK(play.counters().guard_asked.value == 0);
            CHECK(play.n_resident() == capacity);
          });
    }
  });
}

TEST_CASE("R34 a hint of 8 of 128 experts queues the bytes of 8 experts") {
  using bundle = watched<score::decayed_count, guard::spare_only>;
  geometry const model{{{layer_id{3}, 128, 8, {700, 700, 1400}}}};
  on_cache<bundle> play{model, budget::of_slots(32), {.speculative_slots = 8}};
  CHECK(play.hint({3, 9, 27, 81, 115, 2, 6, 18}, 3) == 8);
  CHECK(play.header(3).in_flight == 8);
  play.land();
  auto const c = play.counters();
  constexpr u32 s = static_cast<u32>(intent::speculative);
  CHECK(c.issued[s].value == 8);
  CHECK(c.bytes[s].value == 8 * 2800);
  CHECK(c.slabs[s].value == 8 * 3);
  CHECK(c.bytes[static_cast<u32>(intent::demand)].value == 0);
}

TEST_CASE("R44 the same prediction twice is one transfer") {
  auto const scenario = [](player& play) {
    CHECK(play.hint({7, 7, 9, 7}) == 2);  // in one batch
    CHECK(play.dropped(reason::duplicate) == 2);
    CHECK(play.hint({9, 7}) == 0);  // while in flight
    CHECK(play.dropped(reason::in_flight) == 2);
    play.land();
    CHECK(play.hint({7}) == 0);  // once there
    CHECK(play.dropped(reason::resident) == 1);
    CHECK(copies(play.counters()) == 2);
    // a demand for what is in flight joins the transfer
    CHECK(play.hint({11}) == 1);
    decided const joined = play.demand({11});
    CHECK(joined.of(11) == access_kind::late);
    CHECK(joined.loads.empty());
    play.land();
    CHECK(copies(play.counters()) == 3);
    CHECK(play.counters().used().value == 1);
  };
  for (u32 const capacity : {8u, 42u, n_experts}) {
    sizes const s{.capacity = capacity, .numbers = {.speculative_slots = 4}};
    on_both<watched<score::decayed_count, guard::spare_only>>(s, scenario);
    on_both<watched<score::lfru, guard::none>>(s, scenario);
    on_both<watched<score::lru, guard::none, select::lru_list>>(s, scenario);
  }
}

}  // namespace warmset::scenario
