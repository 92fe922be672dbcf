// SPDX-License-Identifier: Apache-2.0
// Which resident makes way, by which clock, and at what cost.

#include <numeric>

#include <warmset/move/host.hpp>

#include "play.hpp"
#include "support/rounds.hpp"

namespace warmset::scenario {
namespace {

/// Counts what a selector looks at: calls of the Slots view.
inline u64 looks = 0;

template <class Slots>
struct counted_slots {
  Slots const& slots;
  u32 size() const noexcept { return slots.size(); }
  bool evictable(u32 s) const noexcept {
    ++looks;
    return slots.evictable(s);
  }
  void lower_to(u32 s, order_key& best) const noexcept { slots.lower_to(s, best); }
  auto& selector_pool() const noexcept { return slots.selector_pool(); }
  auto& selector_slot(u32 s) const noexcept { return slots.selector_slot(s); }
};

template <class Selector>
struct counted : Selector {
  template <lane_group Group, class Slots>
  slot_id next(Group const& group, Slots const& slots, typename Selector::walk_state& walk) const {
    return Selector::next(group, counted_slots<Slots>{slots}, walk);
  }
};

/// One lane that counts the indices it visits.
struct counted_lane : one_lane {
  static inline u64 visits = 0;
  template <class F>
  void for_each(u32 n, F&& f) const {
    visits += n;
    one_lane::for_each(n, f);
  }
  template <class F>
  order_key min_key(u32 n, F&& f) const {
    visits += n;
    return one_lane::min_key(n, f);
  }
  template <class P>
  bool any(u32 n, P&& p) const {
    visits += n;
    return one_lane::any(n, p);
  }
  template <class P>
  u32 count(u32 n, P&& p) const {
    visits += n;
    return one_lane::count(n, p);
  }
  template <class P, class Emit>
  u32 append_in_order(u32 n, P&& p, Emit&& emit) const {
    visits += n;
    return one_lane::append_in_order(n, p, emit);
  }
};
static_assert(lane_group<counted_lane>);

struct wide : default_policy {
  static constexpr u32 max_experts = 16'384;
};
struct wide_list : wide {
  using score = warmset::score::lru;
  using selector = counted<select::lru_list>;
};
struct wide_scan : wide {
  using score = warmset::score::lru;
};

template <class F>
void for_scores(F&& f) {
  f.template operator()<score::lru>();
  f.template operator()<score::fifo>();
  f.template operator()<score::lfu>();
  f.template operator()<score::lfru>();
  f.template operator()<score::decayed_count>();
  f.template operator()<score::epoch_count>();
  f.template operator()<score::class_lru>();
}

}  // namespace

TEST_CASE("B15 age wraps and a clock of zero") {
  SECTION("a never seen expert has no recency at any clock") {
    for (u32 const tick : {0u, 10u, 255u, u32_max}) {
      clocks const c{tick, tick, tick, tick};
      expert_facts const never{0, false, false};
      CHECK(score::lfru{}.value({}, never, c) == 0);  // not 245
      CHECK(score::lfru_model{}.value({}, never, c) == 0);
      CHECK(score::lru{}.value({}, never, c) == 0);
      CHECK(score::fifo{}.value({}, never, c) == 0);
      CHECK(score::lfu{}.value({}, never, c) == 0);
      CHECK(score::class_lru{}.value({}, never, c) == 0);
      CHECK(score::epoch_count{tuning{}}.value({}, never, c) == 0);
      CHECK(score::decayed_count{tuning{}}.value({}, never, c) == 0);
    }
  }
  SECTION("ages are distances of a wrapping clock") {
    CHECK(age_of(3, u32_max) == 4);
    clocks const c{3, 3, 3, 3};
    CHECK(score::lfru{}.value({1, u32_max}, {u32_max, true, true}, c) == 256 + 251);
    CHECK(score::lru{}.value({}, {u32_max, true, true}, c) == u32_max - 4);
  }
  SECTION("the order of victims is right across the wrap") {
    for_scores([]<class Score>() {
      play_on_table<plain<Score>>({.capacity = 3}, [](player& play) {
        set_clocks(play, u32_max - 2);
        for (routed_id e = 0; e < 12; ++e) {  // the clock wraps on the way
          decided const step = play.d({e});
          if (e >= 3) {
            CHECK(!play.resident(static_cast<u32>(e) - 3));
          }
          CHECK(step.of(static_cast<u32>(e)) == access_kind::load);
        }
        CHECK(play.header().tick == 9);
      });
    });
  }
}

TEST_CASE("B16 every backend bumps the recency clock") {
  auto const scenario = [](player& play) {
    dice random{3};
    u32 n = 0;
    for (int step = 0; step < 200; ++step) {
      id_list ids;
      for (u32 i = 0; i < 1 + random.below(4); ++i)
        ids.push_back(static_cast<routed_id>(random.below(n_experts)));
      decided const result = play.d(ids);
      for (u32 const e : result.experts) {
        REQUIRE(play.expert(e).last == ++n);
      }
      REQUIRE(play.header().tick == n);
      REQUIRE(play.layer().tick == n);
      REQUIRE(play.layer().step == static_cast<u32>(step) + 1);
    }
  };
  for (u32 const capacity : {k, 8u, 42u, n_experts}) {
    sizes const s{.capacity = capacity};
    on_cache<plain<score::lfru>, move::external> external{s};
    scenario(external);
    on_cache<plain<score::lfru>, move::immediate> immediate{s};
    scenario(immediate);
    on_cache<plain<score::lfru>, move::host> host{s};
    scenario(host);
    play_on_table<plain<score::lfru>>(s, scenario);
  }
}

TEST_CASE("B17 the scope of the clock") {
  // 78 layers of k = 8: an expert used one token ago, seen by the layer's and by the model's clock.
  auto const recency = []<class Score>() {
    constexpr u32 layers = 78, per_token = 8;
    on_cache<plain<Score>> play{
        sizes{.capacity = 32, .experts = 64, .per_token = per_token, .layers = layers}};
    play.audits = false;
    for (u32 token = 0; token < 2; ++token) {
      for (u32 layer = 0; layer < layers; ++layer) {
        play.d(range(token * per_token, per_token), layer);
        if (token == 1 && layer == 0)
          break;
      }
    }
    play.check();
    u32 const heat = play.heat(7, 0);
    CHECK(heat == 1);
    return play.value(7, 0) - u64{heat} * 256;
  };
  CHECK(recency.operator()<score::lfru>() == 247);
  CHECK(recency.operator()<score::lfru_model>() == 0);
  STATIC_CHECK(std::same_as<score::lfru, score::basic_lfru<>>);  // the layer's clock is the default
}

TEST_CASE("B21 the cost of a victim does not grow with the capacity") {
  SECTION("selector looks per miss from 16 to 4096 slots") {
    for (u32 const pinned_percent : {0u, 4u}) {
      std::vector<double> per_miss;
      for (u32 const capacity : {16u, 64u, 256u, 1024u, 4096u}) {
        on_table<wide_list> play{sizes{.capacity = capacity, .experts = 8192}};
        play.audits = false;
        for (u32 e = 0; e < capacity; e += 16)
          play.d(range(e, min_of(16u, capacity - e)));
        u32 const pins = capacity * pinned_percent / 100;
        for (u32 i = 0; i < pins; ++i)
          (void)play.pin(i * (capacity / max_of(pins, 1u)));
        play.check();
        dice random{capacity};
        u32 misses = 0;
        for (u32 step = 0; step < 8000; ++step) {
          if (step == 4000) {
            looks = misses = 0;  // warm
          }
          // what is pinned is in use: experts are pinned because they are hot
          u32 const e = pins != 0 && random.below(2) == 0 ? random.below(pins) * (capacity / pins)
                                                          : random.below(8192);
          misses += play.d({static_cast<routed_id>(e)}).count(access_kind::load);
        }
        play.check();
        REQUIRE(misses > 300);
        per_miss.push_back(static_cast<double>(looks) / misses);
      }
      auto const [least, most] = std::minmax_element(per_miss.begin(), per_miss.end());
      INFO("per miss, least " << *least << ", most " << *most << ", pinned " << pinned_percent
                              << " %");
      CHECK(*most < 2.0);
      CHECK(*most < 2 * *least);
    }
  }
  SECTION("pinned experts that nobody uses cost a step each and no more") {
    on_table<wide_list> play{sizes{.capacity = 256, .experts = 8192}};
    play.audits = false;
    for (u32 e = 0; e < 256; e += 16)
      play.d(range(e, 16));
    for (u32 e = 0; e < 10; ++e)
      REQUIRE(play.pin(e));
    looks = 0;
    for (u32 e = 256; e < 1256; ++e)
      play.d({static_cast<routed_id>(e)});
    CHECK(looks == 1000 * (10 + 1));
  }
  SECTION("the list decides as the scan does over a million mixed operations") {
    constexpr u32 capacity = 48;
    sizes const s{.capacity = capacity, .experts = 128};
    on_table<bundles::of<score::lru, select::lru_list>> list{s};
    on_table<bundles::of<score::lru, select::coldest>> scan{s};
    list.audits = scan.audits = false;
    dice random{21};
    std::vector<u32> leases;
    auto const both = [&](auto&& f) {
      f(static_cast<player&>(list));
      f(static_cast<player&>(scan));
    };
    for (u32 op = 0; op < rounds(1'000'000); ++op) {
      u32 const what = random.below(1000);
      u32 const x = random.below(128);
      if (what < 990) {
        routed_id const ids[] = {static_cast<routed_id>(x),
                                 static_cast<routed_id>(random.below(128))};
        auto const step = [&](auto& play) {
          (void)play.plan({ids[0], ids[1]});
          return play.demand({ids[0], ids[1]});
        };
        decided const a = what % 64 == 0 ? step(list) : list.demand({ids[0], ids[1]});
        decided const b = scan.demand({ids[0], ids[1]});
        bool same = a.kind == b.kind && a.slots == b.slots && a.how == b.how &&
                    a.loads.size() == b.loads.size();
        if (!same)
          FAIL("operation " << op);
        if (what % 2 == 0)
          both([&](player& p) { p.land(); });
      } else if (what < 992) {
        both([&](player& p) { p.finish_all(transfer::failed); });
      } else if (what < 994) {
        u32 const to = 40 + random.below(9);
        both([&](player& p) { (void)p.resize(to); });
      } else if (what < 995) {
        both([&](player& p) { p.invalidate(); });
      } else if (what < 997) {
        if (leases.size() < 4) {
          u32 handle = 0, other = 0;
          (void)list.hold({static_cast<routed_id>(x)}, handle);
          (void)scan.hold({static_cast<routed_id>(x)}, other);
          REQUIRE(handle == other);
          if (handle != u32_max)
            leases.push_back(handle);
        }
      } else if (!leases.empty()) {
        u32 const handle = leases.back();
        leases.pop_back();
        both([&](player& p) { p.release(handle); });
      }
      if (op % 10'000 == 0)
        both([](player& p) { p.check(); });
    }
    both([](player& p) { p.check(); });
    for (u32 slot = 0; slot < capacity; ++slot)
      REQUIRE(list.word(slot) == scan.word(slot));
    for (u32 e = 0; e < 128; ++e)
      REQUIRE(list.where(e) == scan.where(e));
    CHECK(list.counters().hits() == scan.counters().hits());
  }
}

TEST_CASE("R15 ten thousand slots cost what sixteen cost") {
  for (u32 const capacity : {16u, 10'000u}) {
    constexpr u32 steps = rounds(250'000);
    INFO(capacity << " slots");
    on_table<wide_list> play{sizes{.capacity = capacity, .experts = 16'000}};
    play.audits = false;
    dice random{15};
    u32 misses = 0;
    routed_id ids[4];
    id_list step(4);
    for (u32 i = 0; i < steps; ++i) {
      for (routed_id& id : ids)
        id = static_cast<routed_id>(random.below(16'000));
      step.assign(ids, ids + 4);
      if (i == steps / 12) {
        looks = misses = 0;  // full
      }
      decided const made = play.demand(step);
      misses += static_cast<u32>(made.loads.size());
      for (planned_load const& l : made.loads)
        play.finish(l.slot, transfer::arrived);
    }
    play.check();
    CHECK(static_cast<double>(looks) / misses < 2.0);
  }
}

TEST_CASE("B24 a cold fill costs a constant number of probes for each slot") {
  std::vector<double> per_slot;
  for (u32 const capacity : {64u, 256u, 1024u, 4096u}) {
    table<wide_scan> pool{geometry::uniform(1, 8192, k, 1000).layers(), {capacity, capacity}};
    plan_of<wide_scan> plan{};
    workspace_of<wide_scan> work{};
    std::vector<u32> words(capacity, 0);
    counted_lane::visits = 0;
    for (u32 e = 0; e < capacity; e += 4) {
      routed_id const ids[] = {static_cast<routed_id>(e), static_cast<routed_id>(e + 1),
                               static_cast<routed_id>(e + 2), static_cast<routed_id>(e + 3)};
      outcome out{};
      settle<wide_scan>(one_lane{}, pool.view(), words.data(), out);
      plan_demand<wide_scan>(counted_lane{}, pool.view(), step_input{0, phase::decode, 0}, ids, 4u,
                             work, plan);
      REQUIRE(commit<wide_scan>(counted_lane{}, pool.view(), plan, out));
      for (u32 j = 0; j < plan.n_loads; ++j) {
        u32 const slot = plan.loads[j].slot;
        REQUIRE(slot == e + j);  // free slots in index order
        words[slot] = arrival::word(pool.view().generation(slot), transfer::arrived);
      }
    }
    REQUIRE(audit(pool.view()));
    per_slot.push_back(static_cast<double>(counted_lane::visits) / capacity);
  }
  INFO("visits per slot: " << per_slot.front() << " at 64, " << per_slot.back() << " at 4096");
  CHECK(per_slot.back() <= per_slot.front() * 1.5 + 1);
  CHECK(per_slot.back() < 16);
}

TEST_CASE("B23 without a victim the answer is typed and never slot 0") {
  for (u32 const capacity : {2u, 3u, k, 8u, 42u}) {
    SECTION("all slots leased, capacity " + std::to_string(capacity)) {
      on_both<watched<score::lfru, guard::none>>(
          {.capacity = capacity, .numbers = {.scratch_slots = 64}}, [=](player& play) {
            u32 lease = 0;
            play.hold(range(0, capacity), lease);
            play.land();
            routed_id const stranger = static_cast<routed_id>(capacity);
            decided const step = play.demand({stranger});
            CHECK(step.of(capacity) == access_kind::declined);
            CHECK(step.slot_of(capacity) >= capacity);  // scratch
            CHECK(step.loads.empty());
            CHECK(play.obstacles().leased == capacity);
            CHECK(play.hint({stranger}) == 0);
            CHECK(play.dropped(reason::no_victim) == 1);
            CHECK(play.counters().guard_asked.value == 0);
            for (u32 e = 0; e < capacity; ++e)
              CHECK(play.resident(e));
            play.release(lease);
            CHECK(play.d({stranger}).of(capacity) == access_kind::load);
          });
    }
    SECTION("all slots in flight, capacity " + std::to_string(capacity)) {
      on_both<watched<score::lfru, guard::none>>(
          {.capacity = capacity, .numbers = {.scratch_slots = 64}}, [=](player& play) {
            play.demand(range(0, capacity));
            routed_id const stranger = static_cast<routed_id>(capacity);
            decided const step = play.demand({stranger});
            CHECK(step.of(capacity) == access_kind::declined);
            CHECK(step.slot_of(capacity) >= capacity);
            CHECK(play.obstacles().loading == capacity);
            CHECK(play.hint({stranger}) == 0);
            CHECK(play.dropped(reason::no_victim) == 1);
            play.land();
            CHECK(play.n_resident() == capacity);
          });
    }
  }
  SECTION("pinned, leased and in flight together") {
    on_both<watched<score::lfru, guard::none>>({.capacity = 8}, [](player& play) {
      play.d(range(0, 4));
      for (u32 e = 0; e < 4; ++e)
        REQUIRE(play.pin(e));
      REQUIRE(play.pin(4) == status{reason::limited});  // k stay unpinned
      u32 lease = 0;
      play.d({4, 5});
      play.hold({4, 5}, lease);
      play.demand({6, 7});
      decided const step = play.demand({8});
      CHECK(step.of(8) == access_kind::declined);
      CHECK(step.slot_of(8) >= 8);
      CHECK(play.obstacles().pinned == 4);
      CHECK(play.obstacles().leased == 2);
      CHECK(play.obstacles().loading == 2);
      CHECK(play.hint({8}) == 0);
      CHECK(play.dropped(reason::no_victim) == 1);
      play.release(lease);
    });
  }
}

TEST_CASE("B26 ties go to the lowest slot and a demanded hit is never a victim") {
  SECTION("equal score and age") {
    for_scores([]<class Score>() {
      for (u32 const capacity : capacities) {
        play_on_table<plain<Score>>(
            {.capacity = capacity, .experts = n_experts + 1}, [=](player& play) {
              play.d(range(0, capacity));
              for (u32 e = 1; e < capacity; ++e) {  // histories alike
                play.expert(e).last = play.expert(0).last;
                std::copy(play.score(0).begin(), play.score(0).end(), play.score(e).begin());
              }
              decided const step = play.d({static_cast<routed_id>(n_experts)});
              CHECK(step.slot_of(n_experts) == 0);
            });
      }
    });
  }
  SECTION("the demanded hit has the lowest score of all") {
    for_scores([]<class Score>() {
      for (u32 const capacity : {2u, 3u, k, 8u, 42u}) {
        play_on_table<plain<Score>>({.capacity = capacity}, [=](player& play) {
          play.d({0});
          for (int i = 0; i < 3; ++i) {
            for (u32 e = 1; e < capacity; ++e)
              play.d({static_cast<routed_id>(e)});
          }
          decided const step = play.d({static_cast<routed_id>(capacity), 0});
          CHECK(step.of(0) == access_kind::hit);
          CHECK(step.of(capacity) == access_kind::load);
          CHECK(play.resident(0));
          CHECK(play.resident(capacity));
        });
      }
    });
  }
}

TEST_CASE("B27 decay of the device planner's count") {
  score::epoch_count const rule{tuning{.epoch = 16}};
  CHECK(rule.read({5, 3}, 3) == 5);
  CHECK(rule.read({5, 3}, 4) == 2);
  CHECK(rule.read({5, 3}, 5) == 1);
  CHECK(rule.read({5, 3}, 6) == 0);
  CHECK(rule.read({5, 3}, 40) == 0);
  CHECK(rule.read({u32_max, 0}, 31) == 1);
  CHECK(rule.read({u32_max, 0}, 32) == 0);
  CHECK(rule.read({5, 7}, 6) == 5);  // ahead of the clock: elapsed 0
  on_both<watched<score::epoch_count, guard::spare_only>>({.capacity = 4}, [](player& play) {
    play.d({2});
    play.score(2)[0] = 5;
    play.score(2)[1] = 3;
    for (auto const& [epoch, heat] : {std::pair{3u, 5u}, {4u, 2u}, {5u, 1u}, {6u, 0u}, {40u, 0u}}) {
      play.layer().step = epoch * 16;
      CHECK(play.heat(2) == heat);
      play.check();
    }
  });
  on_table<plain<score::epoch_count>> play{{.capacity = 4}};
  play.d({2});
  play.score(2)[0] = 5;
  play.score(2)[1] = 7;
  play.layer().step = 6 * 16;
  CHECK(play.heat(2) == 5);
  CHECK(audit(play.view()).broken == invariant::A13_score);
}

TEST_CASE("B28 a step is judged as a whole at its start") {
  for_scores([]<class Score>() {
    play_on_table<plain<Score>>({.capacity = 2}, [](player& play) {
      constexpr u32 a = 0, b = 1, x = 2;
      play.d({a});
      play.d({x});
      for (auto const& order : {id_list{a, b}, id_list{b, a}}) {
        decided const step = play.plan(order);
        CHECK(step.of(a) == access_kind::hit);
        CHECK(step.of(b) == access_kind::load);
        CHECK(step.slot_of(b) == play.slot_of(x));  // b evicts x, never a
      }
      play.d({b, a});
      CHECK(play.resident(a));
      CHECK(play.resident(b));
      CHECK(!play.resident(x));
      // one after the other b would have evicted a before its hit
    });
  });
}

TEST_CASE("R1 a step's own ids are no victims of it") {
  for_scores([]<class Score>() {
    for (u32 const capacity : {3u, k, 8u, 42u}) {
      play_on_table<plain<Score>>({.capacity = capacity}, [=](player& play) {
        for (int i = 0; i < 9; ++i)
          play.d(range(0, capacity));  // old and hot
        routed_id const b = static_cast<routed_id>(capacity), c = b + 1;
        decided const step = play.d({0, b, c});  // a new expert has the lowest score of all
        CHECK(step.of(0) == access_kind::hit);
        CHECK(step.loads.size() == 2);
        CHECK(step.slot_of(static_cast<u32>(b)) != step.slot_of(static_cast<u32>(c)));
        for (routed_id const e : {0, b, c})
          CHECK(play.resident(static_cast<u32>(e)));
      });
    }
  });
  on_both<watched<score::lfru, guard::none>>({.capacity = 4}, [](player& play) {
    for (int i = 0; i < 9; ++i)
      play.d(range(0, 4));
    play.d({0, 10, 11});
    for (u32 const e : {0u, 10u, 11u})
      CHECK(play.resident(e));
  });
}

TEST_CASE("R9 an empty slot is never expert 0") {
  for (u32 const capacity : capacities) {
    on_both<plain<score::lfru>>({.capacity = capacity}, [](player& play) {
      CHECK(!play.resident(0));
      CHECK(play.word(0) == slot_word::of(slot_state::free));
      CHECK(play.demand({0}).of(0) == access_kind::load);
      CHECK(!play.resident(0));  // in flight is not resident
      play.land();
      CHECK(play.resident(0));
    });
  }
}

TEST_CASE("R61 counts saturate and clocks wrap") {
  SECTION("the count of 2^32 accesses") {
    auto const saturates = []<class Score>(u64 one) {
      play_on_table<plain<Score>>({.capacity = 2}, [=](player& play) {
        play.d({0});
        play.score(0)[0] = u32_max - 1;
        play.d({0});
        u64 const at_the_top = play.value(0);
        play.d({0});
        play.d({0});
        CHECK(play.score(0)[0] >= u32_max - 1);
        CHECK(play.value(0) >= at_the_top);
        CHECK(play.value(0) >= u64{u32_max - 1} * one);
        play.d({1});
        play.d({2});
        CHECK(play.resident(0));
      });
    };
    saturates.operator()<score::lfu>(1);
    saturates.operator()<score::lfru>(256);
    saturates.operator()<score::epoch_count>(1);
  }
  SECTION("an expert that nobody asks for stays the oldest while the clock wraps") {
    for_scores([]<class Score>() {
      play_on_table<plain<Score>>({.capacity = 3}, [](player& play) {
        play.d({0});
        play.d({1});
        // The clocks pass a multiple of 2^30 in each of these steps, and with them wrap three
        // times.
        for (int leap = 0; leap < 12; ++leap) {
          u32 const to = play.header().tick | 0x3FFF'FFFFu;
          play.layer().step += to - play.header().tick;
          play.header().tick = play.layer().tick = to;
          play.check();
          play.d({1});
          u32 const idle = age_of(play.header().tick, play.expert(0).last);
          CHECK(idle > age_of(play.header().tick, play.expert(1).last));
          CHECK(idle >= 0x3FFF'FFFFu);
        }
        play.d({2});
        decided const step = play.d({3});
        CHECK(!play.resident(0));
        CHECK(play.resident(1));
        CHECK(step.count(access_kind::load) == 1);
      });
    });
  }
}

}  // namespace warmset::scenario
