// SPDX-License-Identifier: Apache-2.0
// What a capacity allows: wide steps, lowered capacities, cycles, slots that nobody shares.

#include <memory>
#include <string>

#include <warmset/policy/admit/fetch_share.hpp>
#include <warmset/table/profile.hpp>
#include <warmset/trace/capacity_advice.hpp>
#include <warmset/trace/replay.hpp>

#include "cache/over_host.hpp"
#include "play.hpp"

namespace warmset::scenario {
namespace {

using hinted = watched<score::decayed_count, guard::spare_only>;

using split_misses = bundles::admitted<plain<score::lru>, admit::fetch_share>;

template <class Player>
std::unique_ptr<player> make(sizes s) {
  return std::make_unique<Player>(s);
}

/// Bundles whose ways of choosing and keeping slots differ, as tables and as whole caches. Scenarios see players
/// alone, so that they are compiled once.
struct played_on {
  char const* name;
  std::unique_ptr<player> (*make)(sizes);
};
constexpr played_on subjects[] = {
    {"table of decayed_count, hints", make<on_table<hinted>>},
    {"cache of decayed_count, hints", make<on_cache<hinted>>},

    {"table of lru_list", make<on_table<plain<score::lru, select::lru_list>>>},
    {"table of s3_fifo", make<on_table<plain<score::lru, select::s3_fifo>>>},
    {"table of lru+fetch_share", make<on_table<split_misses>>},
    {"cache of lru+fetch_share", make<on_cache<split_misses>>},
};

template <class F>
void on_each(sizes s, F&& scenario) {
  for (played_on const& subject : subjects) {
    INFO(subject.name << ", capacity " << s.capacity);
    std::unique_ptr<player> const play = subject.make(s);
    scenario(*play);
  }
}

/// The ids of some tokens, each of k distinct experts.
id_list tokens(dice& random, u32 n_tokens, u32 experts, u32 per_token) {
  id_list ids;
  for (u32 t = 0; t < n_tokens; ++t) {
    std::size_t const first = ids.size();
    while (ids.size() - first < per_token) {
      auto const id = static_cast<routed_id>(random.below(experts));
      if (std::find(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end(), id) == ids.end())
        ids.push_back(id);
    }
  }
  return ids;
}

/// No two experts of a decision share a slot at one time: in the pool, or in one wave of scratch.
void require_own_slots(decided const& step, u32 n_slots, u32 n_scratch) {
  if (step.kind == plan_kind::busy)
    return;  // nothing was decided
  std::vector<u64> used;
  for (std::size_t i = 0; i < step.experts.size(); ++i) {
    bool const scratch = step.slots[i] >= n_slots;
    REQUIRE(step.slots[i] < n_slots + n_scratch);
    bool const has_no_slot =
        step.how[i] == access_kind::declined || step.how[i] == access_kind::overflow_miss;
    REQUIRE(scratch == has_no_slot);
    used.push_back(u64{scratch ? step.waves[i] + 1 : 0} << 32 | step.slots[i]);
  }
  std::sort(used.begin(), used.end());
  REQUIRE(std::adjacent_find(used.begin(), used.end()) == used.end());
  std::vector<u32> experts = step.experts;
  std::sort(experts.begin(), experts.end());
  REQUIRE(std::adjacent_find(experts.begin(), experts.end()) == experts.end());
}

/// Expert to slot and slot to expert say the same, and nothing lies beyond the capacity.
void require_consistent_map(player& play, u32 experts) {
  play.check();
  u32 mapped = 0;
  for (u32 e = 0; e < experts; ++e) {
    if (u32 const where = play.where(e); where != 0) {
      REQUIRE(where - 1 < play.header().capacity);
      ++mapped;
    }
  }
  REQUIRE(mapped == play.header().resident + play.header().reserved);
}

}  // namespace

TEST_CASE("R3 one expert more than slots: waves, and no eviction within the operation") {
  for (u32 const slots : {1u, 2u, 3u, k, 8u, 42u}) {
    INFO(slots << " slots");
    over_host::subject<> s(
        geometry{{{layer_id{0}, 64, k, {24, 13}}, {layer_id{1}, 64, k, {24, 13}}}},
        budget::of_slots(slots));
    (void)s.step(0, over_host::range(0, slots));
    s.land();
    REQUIRE(s.c.pools()[0].view().header().resident == slots);
    auto const before = s.blocks();
    id_list const ids = over_host::range(0, slots + 1);
    {
      auto lease = s.c.demand(layer_id{0}, std::span<routed_id const>(ids));
      REQUIRE(lease);
      step_view const v = lease.view();
      REQUIRE(v.kind == plan_kind::overflow);
      REQUIRE(v.n_waves == 1);
      CHECK(v.loads.empty());
      REQUIRE(s.start_wave(0).why == reason::none);
      // while the operation reads, others ask for all that the pool has: its residents stay where they are
      std::vector<u32> const slots_of(v.slots.begin(), v.slots.end());
      std::vector<u32> const experts(v.experts.begin(), v.experts.end());
      u32 const generation = s.c.scratch_generation();
      s.land();
      for (u32 first : {20u, 40u}) {
        step_view const other = s.step(0, over_host::range(first, slots > 8 ? 8 : slots));
        CHECK(other.loads.empty());
        for (access_kind const how : other.how)
          CHECK((how == access_kind::declined || how == access_kind::hit ||
                 other.kind == plan_kind::busy));
        s.land();
      }
      for (std::size_t i = 0; i < experts.size(); ++i) {
        bool const scratch = slots_of[i] >= slots;
        CHECK(scratch == (experts[i] == slots));
        u32 const claimed = scratch ? generation : s.c.pools()[0].view().generation(slots_of[i]);
        for (u32 bank = 0; bank < 2; ++bank)
          CHECK(s.device().read(0, slot_id{slots_of[i]}, {layer_id{0}, expert_id{experts[i]}},
                                claimed, bank));
      }
    }
    s.require_sound();
    // without the others nothing had changed: the same operation alone leaves the block as it was
    over_host::subject<> alone(s.c.model(), budget::of_slots(slots));
    (void)alone.step(0, over_host::range(0, slots));
    alone.land();
    REQUIRE((alone.blocks() == before));
    CHECK(alone.step(0, ids).kind == plan_kind::overflow);
    (void)alone.start_wave(0);
    alone.land();
    CHECK((alone.blocks() == before));
  }
}

TEST_CASE("R13 after a lowered capacity exactly the remaining slots are used") {
  auto const lower = [](u32 from, u32 to) {
    INFO(from << " slots lowered to " << to);
    on_each({.capacity = from, .reserve = 2, .numbers = {.fetch_share = 50'000}},
            [=](player& play) {
              play.d(range(0, from));
              u32 lease = 0;
              play.hold({0, static_cast<routed_id>(from - 1)}, lease);
              REQUIRE(play.resize(to));
              std::vector<bool> used(from + 2);
              auto const note = [&](decided const& step) {
                for (std::size_t i = 0; i < step.slots.size(); ++i) {
                  if (step.slots[i] < play.header().n_slots) {
                    REQUIRE(step.slots[i] < to);
                    used[step.slots[i]] = true;
                  }
                }
                REQUIRE(play.header().capacity == to);
              };
              // three misses, as they were reported; then all that might bring a slot back
              for (routed_id const miss : {60, 61, 62})
                note(play.d({miss}));
              play.release(lease);
              dice random{from * 100 + to};
              for (u32 i = 0; i < 150; ++i) {
                note(play.demand(tokens(random, 1, n_experts, min_of(to, 3u))));
                play.finish_all(random.below(4) == 0 ? transfer::failed : transfer::arrived);
                play.p({static_cast<routed_id>(random.below(n_experts))});
                if (random.below(20) == 0)
                  play.invalidate();
                for (u32 s = to; s < play.header().n_slots; ++s)
                  REQUIRE(slot_word::state(play.word(s)) == slot_state::retired);
                require_consistent_map(play, n_experts);
              }
              CHECK(std::count(used.begin(), used.end(), true) == to);
              CHECK(play.header().retired == play.header().n_slots - to);
            });
  };
  lower(8, 5);
  lower(8, 2);
  lower(42, 8);
  lower(n_experts, 3);
}

TEST_CASE("R21 a shared LRU below one token's cycle hits nothing, and that is said beforehand") {
  using lru = plain<score::lru>;
  constexpr u64 bytes = 100;
  // hit rate of a pool of `slots` after a cold cycle, where each layer's step takes the same k experts for ever
  auto const hit_rate = [](u32 layers, u32 per_step, u32 slots) {
    trace::byte_pool<lru> pool(geometry::uniform(layers, 32, per_step, bytes), slots * bytes);
    auto const play = [&](u32 cycles) {
      for (u32 i = 0; i < cycles * layers; ++i) {
        id_list const ids = range(i % layers, per_step);
        (void)pool.step(layer_id{i % layers}, std::span<routed_id const>{ids}, step_facts{});
        REQUIRE(pool.audit());
        REQUIRE(pool.used_bytes() <= slots * bytes);
      }
    };
    play(2);
    total_counters const cold = pool.observer().total();
    play(10);
    delta_counters const warm = pool.observer().total() - cold;
    return warm.hit_rate();
  };
  auto const warned = [](geometry const& model, trace::capacity room) {
    for (trace::advice const& a : trace::capacity_advice(model, room)) {
      if (a.kind == trace::capacity_warning::below_cycle) {
        CHECK(a.have == room.amount);
        CHECK(std::string(a.text.c_str()).find("below one token's cycle") != std::string::npos);
        return true;
      }
    }
    return false;
  };
  // accesses one after another: nothing below the cycle, everything from it on
  for (u32 const cycle : {2u, 3u, 8u, 24u}) {
    geometry const model = geometry::uniform(cycle, 32, 1, bytes);
    for (u32 slots = 1; slots <= cycle + 1; ++slots) {
      INFO("cycle " << cycle << ", " << slots << " slots");
      CHECK(warned(model, trace::capacity::shared_slots(slots)) == (slots < cycle));
      CHECK(warned(model, trace::capacity::shared_bytes(slots * bytes)) == (slots < cycle));
      CHECK(hit_rate(cycle, 1, slots) == (slots < cycle ? 0.0 : 1.0));
    }
  }
  // steps of k are judged as a whole: nothing up to one step below the cycle, and then what is left of the step
  for (u32 const slots : {k, 2 * k, 3 * k}) {
    CHECK(hit_rate(4, k, slots) == 0.0);
    CHECK(warned(geometry::uniform(4, 32, k, bytes), trace::capacity::shared_slots(slots)));
  }
  for (u32 const more : {1u, 2u, 3u, 4u})
    CHECK(hit_rate(4, k, 3 * k + more) == more / 4.0);
  CHECK(warned(geometry::uniform(4, 32, k, bytes), trace::capacity::shared_slots(4 * k - 1)));
  CHECK(!warned(geometry::uniform(4, 32, k, bytes), trace::capacity::shared_slots(4 * k)));

  // a cache of such a pool is refused unless its floors are lowered on purpose
  std::vector<layer_geometry> const rows = geometry::uniform(4, 32, k, bytes).layers();
  std::string why;
  try {
    table<bundles::shared<lru>> made(rows, {4 * k - 1, 4 * k - 1});
  } catch (config_error const& e) {
    why = e.what();
  }
  CHECK(why == "a floor of 4 slots for each of 4 layers exceeds the capacity of 15");

  // the split by layer: the same slots, given to the layers they suffice for, hit all of these
  cache<lru, move::immediate> split{geometry::uniform(3, 32, k, bytes), budget::of_slots(k)};
  CHECK(split.effective_budget().slots <= 4 * k - 1);
  for (u32 i = 0; i < 12 * 3; ++i) {
    id_list const ids = range(i % 3, k);
    (void)split.step(layer_id{i % 3}, std::span<routed_id const>{ids});
  }
  total_counters const c = split.observer().total();
  CHECK(c.demanded.value == 12 * 3 * k);
  CHECK(c.hits().value == 11 * 3 * k);
}

TEST_CASE("R27 no step gives two experts one slot") {
  for (u32 const capacity : {2u, 3u, k, 8u, 42u, n_experts}) {
    on_each({.capacity = capacity, .numbers = {.scratch_slots = 1 + capacity % 3}},
            [=](player& play) {
              dice random{capacity};
              std::vector<u32> leases;
              u32 kinds[5] = {};
              for (u32 i = 0; i < 120; ++i) {
                u32 const n_tokens = i % 3 == 0 ? 9 : 1 + random.below(9);
                id_list ids = tokens(random, n_tokens, n_experts, k);
                if (random.below(4) == 0)
                  ids.insert(ids.begin() + random.below(static_cast<u32>(ids.size())),
                             {-1, 9999, ids.front()});
                decided step;
                if (leases.size() < 2 && random.below(4) == 0) {
                  u32 lease = 0;
                  step = play.hold(ids, lease);
                  if (lease != u32_max && step.kind != plan_kind::busy)
                    leases.push_back(lease);
                } else {
                  step = play.demand(ids);
                }
                ++kinds[static_cast<u32>(step.kind)];
                require_own_slots(step, play.header().n_slots, play.header().n_scratch);
                play.hint({ids.front(), static_cast<routed_id>(random.below(n_experts))});
                if (random.below(2) == 0)
                  play.finish_all(random.below(5) == 0 ? transfer::failed : transfer::arrived);
                if (!leases.empty() && random.below(3) == 0) {
                  play.release(leases.back());
                  leases.pop_back();
                }
                // and of what is resident no two share one either
                std::vector<u32> taken;
                for (u32 e = 0; e < n_experts; ++e) {
                  if (play.where(e) != 0)
                    taken.push_back(play.where(e));
                }
                std::sort(taken.begin(), taken.end());
                REQUIRE(std::adjacent_find(taken.begin(), taken.end()) == taken.end());
              }
              for (u32 const lease : leases)
                play.release(lease);
              CHECK(kinds[static_cast<u32>(plan_kind::step)] +
                        kinds[static_cast<u32>(plan_kind::overflow)] !=
                    0);
            });
  }
}

TEST_CASE("R49 a pool shrinks to less or to nothing on request, with a consistent map") {
  SECTION("whatever is in its slots") {
    for (u32 const to : {0u, 1u, 3u, 7u}) {
      on_each({.capacity = 8}, [=](player& play) {
        play.d(range(0, 6));
        u32 lease = 0;
        play.hold({0, 5}, lease);
        play.demand({6, 7});
        play.hint({9});
        REQUIRE(play.resize(to));
        require_consistent_map(play, n_experts);
        CHECK(play.header().resident + play.header().reserved <= to);
        play.land();
        require_consistent_map(play, n_experts);
        play.release(lease);
        require_consistent_map(play, n_experts);
        CHECK(play.header().draining == 0);
        CHECK(play.header().retired == 8 - to);
        // what does not fit any more is served all the same
        decided const wide = play.demand(range(20, 8));
        CHECK(wide.kind == plan_kind::overflow);
        CHECK(wide.n_waves != 0);
        play.land();
        REQUIRE(play.resize(8));
        require_consistent_map(play, n_experts);
        CHECK(play.header().free() + play.header().resident == 8);
        CHECK(play.d(range(30, 8)).kind == plan_kind::step);
      });
    }
  }
  SECTION("and what stays is what it was, byte for byte") {
    for (u32 const slots : {1u, 2u, 3u, 8u, 42u}) {
      over_host::subject<> s(
          geometry{{{layer_id{0}, 64, k, {24, 13}}, {layer_id{1}, 64, k, {24, 13}}}},
          budget::of_slots(slots));
      dice random{slots};
      for (u32 i = 0; i < 60; ++i) {
        for (u32 const layer : {0u, 1u})
          (void)s.step(layer, tokens(random, 1, 64, k));
        s.land();
        REQUIRE(s.c.resize(layer_id{0}, random.below(slots + 1)));
        s.require_sound();
        step_view const v = s.step(0, tokens(random, 1, 64, k));
        for (u32 wave = 0; wave < v.n_waves; ++wave) {
          (void)s.start_wave(wave);
          s.land();
          s.require_readable(0, v, wave);
        }
      }
      REQUIRE(s.c.resize(layer_id{0}, 0));
      s.land();
      auto const& h = s.c.pools()[0].view().header();
      CHECK(h.resident == 0);
      CHECK(h.retired == slots);
      for (u32 e = 0; e < 64; ++e)
        CHECK(!s.c.is_resident({layer_id{0}, expert_id{e}}));
    }
  }
}

TEST_CASE("B53 profiles of different geometries are not summed") {
  auto const layers = [] {
    return std::vector<layer_geometry>{{layer_id{3}, 6, 2, {10, 4}}, {layer_id{5}, 4, 2, {10, 4}}};
  };
  std::vector<geometry> others;
  auto const other = [&](auto&& change) {
    auto changed = layers();
    change(changed);
    others.emplace_back(changed);
  };
  other([](auto& l) { l[1].layer = layer_id{6}; });
  other([](auto& l) { std::swap(l[0].n_experts, l[1].n_experts); });  // as many experts in all
  other([](auto& l) { l[0].n_experts = 7; });
  other([](auto& l) { l[0].k = 3; });
  other([](auto& l) { l[0].bank_bytes = {11, 4}; });
  other([](auto& l) { l[0].bank_bytes = {4, 10}; });  // as many bytes
  other([](auto& l) { l[0].bank_bytes = {14}; });
  other([](auto& l) { l.pop_back(); });
  other([](auto& l) { l.push_back({layer_id{9}, 4, 2, {10, 4}}); });

  heat_profile mine{geometry{layers()}};
  *mine.find({layer_id{3}, expert_id{1}}) = {1000, 9};
  heat_profile const before = mine;
  for (geometry const& g : others) {
    heat_profile theirs{g};
    *theirs.find({layer_id{3}, expert_id{1}}) = {24, 1};
    heat_profile const theirs_before = theirs;
    CHECK(mine.merge(theirs) == status{reason::wrong_geometry});
    CHECK(mine == before);
    CHECK(theirs.merge(mine) == status{reason::wrong_geometry});
    CHECK(theirs == theirs_before);
    CHECK(theirs.load(mine.save()) == status{reason::wrong_geometry});
    CHECK(theirs == theirs_before);
  }
  heat_profile same{geometry{layers()}};
  REQUIRE(same.merge(mine));
  CHECK(same == mine);
}

TEST_CASE("B72 table: one to four tokens go the same way, and what is declined is seen") {
  for (u32 const capacity : {k, 8u, 16u, 42u}) {
    on_each({.capacity = capacity, .numbers = {.fetch_share = 40'000}}, [=](player& play) {
      dice random{capacity};
      for (u32 i = 0; i < 60; ++i) {
        u32 const n_tokens = 1 + i % 4;
        id_list const ids = tokens(random, n_tokens, n_experts, k);
        total_counters const before = play.counters();
        u32 const tick = play.header().tick, step_of_layer = play.layer().step;
        decided const step = play.demand(ids);
        u32 const n = static_cast<u32>(step.experts.size());
        // judged by what it demands, never by how many tokens do: wider ones are no step of another kind
        REQUIRE(step.kind == (n <= capacity ? plan_kind::step : plan_kind::overflow));
        delta_counters const made = play.counters() - before;
        CHECK(made.demanded.value == n);
        bool const committed = step.kind == plan_kind::step;
        CHECK(made.steps.value == (committed ? 1 : 0));
        CHECK(play.header().tick == tick + (committed ? n : 0));
        CHECK(play.layer().step == step_of_layer + (committed ? 1 : 0));
        CHECK(made[access_kind::declined].value == step.count(access_kind::declined));
        CHECK(made[access_kind::overflow_miss].value == step.count(access_kind::overflow_miss));
        CHECK((step.n_waves != 0) ==
              (step.count(access_kind::declined) + step.count(access_kind::overflow_miss) != 0));
        play.land();
      }
      u64 const from_scratch = play.counters()[access_kind::declined].value +
                               play.counters()[access_kind::overflow_miss].value;
      CHECK((capacity >= 16 || from_scratch != 0));
    });
  }
  SECTION("where readers hold all slots but one") {
    for (u32 const n_tokens : {1u, 2u, 3u, 4u}) {
      on_both<plain<score::lru>>({.capacity = 16}, [=](player& play) {
        play.d(range(0, 16));
        u32 lease = 0;
        play.hold(range(0, 15), lease);
        id_list ids;
        for (u32 t = 0; t < n_tokens; ++t)
          for (u32 x = 0; x < k; ++x)
            ids.push_back(static_cast<routed_id>(20 + t * k + x));
        decided const step = play.d(ids);
        REQUIRE(step.kind == plan_kind::step);
        CHECK(step.count(access_kind::load) == 1);
        CHECK(step.count(access_kind::declined) == n_tokens * k - 1);
        CHECK(play.counters()[access_kind::declined].value == n_tokens * k - 1);
        CHECK(play.obstacles().leased == 15);
        play.release(lease);
      });
    }
  }
  SECTION("tokens together are one step of what they demand") {
    for (u32 const n_tokens : {1u, 2u, 3u, 4u}) {
      on_table<plain<score::lru>> one{sizes{.capacity = 16}}, distinct{sizes{.capacity = 16}};
      dice random{n_tokens};
      for (u32 i = 0; i < 40; ++i) {
        id_list const ids = tokens(random, n_tokens, 40, k);
        decided const step = one.d(ids);
        id_list each;
        for (u32 const e : step.experts)
          each.push_back(static_cast<routed_id>(e));
        decided const same = distinct.d(each);
        REQUIRE(step.slots == same.slots);
        REQUIRE((one.bytes() == distinct.bytes()));
      }
    }
  }
}

}  // namespace warmset::scenario
