// SPDX-License-Identifier: Apache-2.0
// What becomes of slots: failures, overflow, capacity, storage, odd ids.

#include <span>

#include "play.hpp"

namespace warmset::scenario {
namespace {

constexpr u32 demand_i = static_cast<u32>(intent::demand);
constexpr u32 hint_i = static_cast<u32>(intent::speculative);

using hinted = watched<score::lfru, guard::none>;
using spared = watched<score::decayed_count, guard::spare_only>;

/// Every overflow step: residents in place, the others through scratch in waves, nothing committed.
void require_overflow(player& play, id_list const& ids) {
  std::vector<unsigned char> const before = play.bytes();
  u64 const steps = play.counters().steps.value;
  std::vector<u32> was_resident;
  for (routed_id const id : ids) {
    if (play.resident(static_cast<u32>(id)))
      was_resident.push_back(static_cast<u32>(id));
  }
  u32 const n_slots = play.header().n_slots;
  u32 const n_scratch = play.header().n_scratch;

  decided const step = play.demand(ids);
  REQUIRE(step.kind == plan_kind::overflow);
  CHECK((play.bytes() == before));
  CHECK(play.counters().steps.value == steps);
  CHECK(step.loads.empty());
  CHECK(step.count(access_kind::overflow_hit) == was_resident.size());
  for (u32 const e : was_resident) {
    CHECK(step.of(e) == access_kind::overflow_hit);
    CHECK(step.slot_of(e) == play.slot_of(e));
  }
  u32 const streamed = step.count(access_kind::overflow_miss);
  CHECK(streamed + was_resident.size() == step.experts.size());
  CHECK(step.n_waves == ceil_div(streamed, n_scratch));
  for (u32 wave = 0; wave < step.n_waves; ++wave) {  // no two experts of a wave share a slot
    std::vector<u32> used;
    for (std::size_t i = 0; i < step.experts.size(); ++i) {
      if (step.how[i] == access_kind::overflow_miss && step.waves[i] == wave) {
        CHECK(step.slots[i] >= n_slots);
        CHECK(step.slots[i] < n_slots + n_scratch);
        CHECK(std::find(used.begin(), used.end(), step.slots[i]) == used.end());
        used.push_back(step.slots[i]);
      }
    }
    CHECK(used.size() <= n_scratch);
    CHECK(!used.empty());
  }
}

template <class Cache>
concept takes_hints = requires(Cache& c, std::span<routed_id const> ids) {
  c.advise(layer_id{0}, ids);
};

template <class F>
void for_bundles(F&& f) {
  f.template operator()<watched<score::lfru, guard::none>>();
  f.template operator()<watched<score::decayed_count, guard::spare_only>>();
  f.template operator()<watched<score::lru, guard::none, select::lru_list>>();
}

}  // namespace

TEST_CASE("B29 a failed speculative load loses no slot") {
  for_bundles([]<class Policy>() {
    for (u32 const capacity : {2u, 3u, k, 8u, 42u}) {
      on_both<Policy>({.capacity = capacity}, [=](player& play) {
        u32 const full = capacity - (std::string_view{Policy::guard::name} == "spare_only" ? 1 : 0);
        play.d(range(0, full));
        constexpr u32 failures = 100;
        u32 started = 0;
        for (u32 i = 0; i < failures; ++i) {
          routed_id const x = static_cast<routed_id>(capacity + i % (n_experts - capacity));
          started += play.hint({x});
          u32 const slot = play.where(static_cast<u32>(x)) - 1;
          play.finish_all(transfer::failed);
          CHECK(play.where(static_cast<u32>(x)) == 0);
          CHECK(slot_word::state(play.word(slot)) == slot_state::free);
          // the free slot is taken first by the next step
          routed_id const next = static_cast<routed_id>(i % full);
          play.d({next});
        }
        CHECK(started == failures);
        CHECK(play.counters().failed[hint_i].value == failures);
        play.d(range(0, full));
        CHECK(play.n_resident() == full);
        CHECK(play.header().capacity == capacity);
        CHECK(play.counters().bytes[hint_i].value == 0);
      });
    }
  });
}

TEST_CASE("B31 one failure of a batch rolls back one entry") {
  for (u32 const capacity : {8u, 42u}) {
    SECTION("of a demand, capacity " + std::to_string(capacity)) {
      on_both<plain<score::lfru>>({.capacity = capacity}, [=](player& play) {
        play.d(range(0, capacity));
        decided const step = play.demand({60, 61, 62, 63});
        REQUIRE(step.loads.size() == 4);
        play.finish(step.slot_of(62), transfer::failed);
        play.land();
        CHECK(slot_word::state(play.word(step.slot_of(62))) == slot_state::free);
        CHECK(!play.resident(62));
        for (u32 const e : {60u, 61u, 63u})
          CHECK(play.resident(e));
        CHECK(play.n_resident() == capacity - 1);  // all four victims stay evicted
        u32 left = 0;
        for (u32 e = 0; e < capacity; ++e)
          left += play.resident(e) ? 1 : 0;
        CHECK(left == capacity - 4);
        CHECK(play.heat(62) == 1);  // the touch stays
        CHECK(play.counters().failed[demand_i].value == 1);
        CHECK(play.d({62}).slot_of(62) == step.slot_of(62));
      });
    }
    SECTION("of a hint, capacity " + std::to_string(capacity)) {
      on_both<hinted>({.capacity = capacity, .numbers = {.speculative_slots = 4}},
                      [=](player& play) {
                        play.d(range(0, capacity));
                        REQUIRE(play.hint({60, 61, 62, 63}) == 4);
                        play.finish(play.slot_of(62), transfer::failed);
                        play.land();
                        CHECK(play.where(62) == 0);
                        for (u32 const e : {60u, 61u, 63u})
                          CHECK(play.resident(e));
                        CHECK(play.n_resident() == capacity - 1);
                        CHECK(play.counters().failed[hint_i].value == 1);
                      });
    }
  }
}

TEST_CASE("B35 R13 a lowered capacity holds") {
  for_bundles([]<class Policy>() {
    auto const lower = [](u32 from, u32 to) {
      return [=](player& play) {
        u32 const full = from - (std::string_view{Policy::guard::name} == "spare_only" ? 1 : 0);
        play.d(range(0, full));
        REQUIRE(play.resize(to));
        CHECK(play.live() <= to);
        for (u32 i = 0; i < 100; ++i) {
          decided const step = play.demand({static_cast<routed_id>((i * 7) % n_experts)});
          REQUIRE(play.live() <= to);
          for (u32 const slot : step.slots)
            REQUIRE((slot < to || slot >= play.header().n_slots));
          play.p({static_cast<routed_id>((i * 11) % n_experts)});
          REQUIRE(play.live() <= to);
        }
        // emptied slots do not come back by themselves
        for (u32 s = to; s < from; ++s)
          CHECK(slot_word::state(play.word(s)) == slot_state::retired);
        CHECK(play.header().retired == from - to);
        u32 used = 0;
        for (u32 s = 0; s < to; ++s)
          used += slot_word::state(play.word(s)) == slot_state::resident ? 1 : 0;
        CHECK(used == to);
        // but by an explicit grow
        REQUIRE(play.resize(from));
        CHECK(play.header().retired == 0);
        CHECK(play.resize(from + 1) == status{reason::limited});
      };
    };
    on_both<Policy>({.capacity = 8}, lower(8, 4));
    on_both<Policy>({.capacity = 8}, lower(8, 5));
    on_both<Policy>({.capacity = 42}, lower(42, 8));
    on_both<Policy>({.capacity = n_experts}, lower(n_experts, 42));
    on_both<Policy>({.capacity = 3}, lower(3, 2));
  });
  SECTION("while slots are leased and loading") {
    on_both<hinted>({.capacity = 8}, [](player& play) {
      u32 lease = 0;
      play.d(range(0, 6));
      play.hold({4, 5}, lease);
      play.demand({6, 7});
      REQUIRE(play.resize(4));
      CHECK(play.header().draining == 4);
      CHECK(play.header().resident == 4);
      for (u32 const e : {4u, 5u, 6u, 7u})
        CHECK(play.where(e) == 0);
      play.land();
      CHECK(play.header().draining == 2);
      play.release(lease);
      CHECK(play.header().draining == 0);
      CHECK(play.header().retired == 4);
    });
  }
}

TEST_CASE("B45 R3 more experts than slots in one operation") {
  SECTION("six experts over four slots") {
    on_both<hinted>({.capacity = 4, .per_token = 4}, [](player& play) {
      play.d({0, 1});
      require_overflow(play, {0, 1, 2, 3, 4, 5});
      CHECK(play.counters().overflow_steps.value == 1);
      CHECK(play.counters()[access_kind::overflow_hit].value == 2);
      CHECK(play.counters()[access_kind::overflow_miss].value == 4);
    });
  }
  SECTION("one more than the slots, and all there are") {
    for_bundles([]<class Policy>() {
      for (u32 const capacity : {2u, 3u, k, 8u, 42u}) {
        on_both<Policy>({.capacity = capacity}, [=](player& play) {
          play.d(range(0, capacity - 1));
          require_overflow(play, range(0, capacity + 1));
          require_overflow(play, range(n_experts - capacity - 1, capacity + 1));
          require_overflow(play, range(0, n_experts));
          decided const fits = play.d(range(0, capacity));
          CHECK(fits.kind == plan_kind::step);
        });
      }
    });
  }
  SECTION("what is in flight is not resident") {
    on_both<hinted>({.capacity = 4}, [](player& play) {
      play.demand({0, 1});
      require_overflow(play, {0, 1, 2, 3, 4});
      play.land();
    });
  }
}

TEST_CASE("R4 a prompt does not flush the decode set") {
  for_bundles([]<class Policy>() {
    on_both<Policy>({.capacity = 33, .per_token = 8}, [](player& play) {
      for (int i = 0; i < 5; ++i)
        play.d(range(16, 32));
      require_overflow(play, range(0, 64));
      require_overflow(play, range(0, 64));
      decided const decode = play.d(range(16, 32));
      CHECK(decode.count(access_kind::hit) == 32);
    });
  });
}

TEST_CASE("R11 overflow is found before anything is applied") {
  for_bundles([]<class Policy>() {
    for (u32 const capacity : {2u, 3u, k, 8u, 42u}) {
      on_both<Policy>({.capacity = capacity}, [=](player& play) {
        play.d(range(0, capacity / 2));
        auto const before = play.bytes();
        decided const plan = play.plan(range(0, capacity + 1));
        CHECK(plan.kind == plan_kind::overflow);
        CHECK((play.bytes() == before));
      });
    }
  });
  on_table<hinted> play{{.capacity = 4}};
  play.d({0, 1});
  (void)play.plan(range(0, 5));
  auto const before = play.bytes();
  outcome out{};
  CHECK(commit<hinted>(one_lane{}, play.view(), play.last_plan(), out) ==
        status{reason::not_committable});
  CHECK((play.bytes() == before));
  CHECK(std::memcmp(&out, std::vector<char>(sizeof out).data(), sizeof out) == 0);
}

TEST_CASE("R42 residents of an overflow step are read in place and leased") {
  on_both<hinted>({.capacity = 32, .per_token = 8}, [](player& play) {
    play.d(range(0, 32));
    u32 lease = 0;
    decided const step = play.hold(range(12, 40), lease);  // 20 of them resident
    REQUIRE(step.kind == plan_kind::overflow);
    CHECK(step.count(access_kind::overflow_hit) == 20);
    CHECK(step.count(access_kind::overflow_miss) == 20);
    CHECK(play.header().leases == 20);
    // whatever comes: what is read stays
    for (u32 i = 0; i < 200; ++i) {
      play.d({static_cast<routed_id>(52 + i % 12)});
      play.p({static_cast<routed_id>(40 + i % 12)});
      for (u32 e = 12; e < 32; ++e)
        REQUIRE(play.resident(e));
    }
    play.release(lease);
    CHECK(play.header().leases == 0);
    play.d(range(40, 32));
    CHECK(!play.resident(12));
  });
}

static void another_generation_holds_nothing() {
  for_bundles([]<class Policy>() {
    for (u32 const capacity : {2u, 3u, k, 8u, 42u}) {
      on_both<Policy>({.capacity = capacity}, [=](player& play) {
        u32 const full = capacity - (std::string_view{Policy::guard::name} == "spare_only" ? 1 : 0);
        play.d(range(0, full));
        u32 lease = 0;
        play.hold({0}, lease);
        play.hint({static_cast<routed_id>(n_experts - 1)});
        u32 const generation = play.header().storage_generation;
        auto const heat = play.heat(0);
        play.invalidate();  // the same address, new contents
        CHECK(play.header().storage_generation == generation + 1);
        for (u32 e = 0; e < n_experts; ++e)
          REQUIRE(!play.resident(e));
        CHECK(play.heat(0) == heat);  // history belongs to experts
        play.land();                  // what was on its way belongs to the old storage
        for (u32 e = 0; e < n_experts; ++e)
          REQUIRE(!play.resident(e));
        play.release(lease);
        CHECK(play.live() == 0);
        for (u32 e = 0; e < full; ++e)
          CHECK(play.d({static_cast<routed_id>(e)}).of(e) == access_kind::load);
        CHECK(play.n_resident() == full);
      });
    }
  });
}

TEST_CASE("B47 storage of another generation holds nothing") {
  another_generation_holds_nothing();
}

TEST_CASE("R30 memory that is issued again at the same address holds nothing") {
  another_generation_holds_nothing();
}

TEST_CASE("B50 slots beyond the capacity are no victims whatever their history") {
  for_bundles([]<class Policy>() {
    on_both<Policy>({.capacity = 8, .reserve = 8}, [](player& play) {
      CHECK(play.header().n_slots == 16);
      CHECK(play.header().retired == 8);
      for (u32 i = 0; i < 100; ++i) {
        decided const step =
            play.d({static_cast<routed_id>(i % 20), static_cast<routed_id>((i * 3) % 20)});
        play.p({static_cast<routed_id>(20 + i % 20)});
        for (u32 const slot : step.slots)
          REQUIRE((slot < 8 || slot >= 16));
        for (u32 s = 8; s < 16; ++s)
          REQUIRE(slot_word::state(play.word(s)) == slot_state::retired);
      }
      std::vector<u32> residents;
      for (u32 e = 0; e < n_experts; ++e) {
        if (play.resident(e))
          residents.push_back(e);
      }
      REQUIRE(play.resize(16));
      for (u32 const e : residents)
        CHECK(play.resident(e));  // growing overwrites nobody
      play.d({50, 51, 52, 53});
      for (u32 const e : {50u, 51u, 52u, 53u})
        CHECK(play.slot_of(e) >= 8);
      for (u32 const e : residents)
        CHECK(play.resident(e));
    });
  });
}

static void unknown_ids_only_count() {
  for_bundles([]<class Policy>() {
    on_both<Policy>({.capacity = 8}, [](player& play) {
      play.d({1, 2, 3});
      routed_id const n = static_cast<routed_id>(n_experts);
      auto const before = play.bytes();
      for (id_list const& ids :
           {id_list{}, id_list{-1}, id_list{n}, id_list{n + 5}, id_list{-1, -7, n}}) {
        CHECK(play.demand(ids).kind == plan_kind::empty);
        CHECK((play.bytes() == before));
      }
      CHECK(play.skipped(reason::sentinel) == 3);
      CHECK(play.skipped(reason::out_of_range) == 3);
      CHECK(play.counters().steps.value == 1);
      CHECK(play.counters().demanded.value == 3);

      // among valid ids they move no clock and take no place
      u32 const tick = play.header().tick;
      decided const step = play.d({-1, 1, n + 5, 4, -1});
      CHECK(step.experts == std::vector<u32>{1, 4});
      CHECK(play.header().tick == tick + 2);
      CHECK(play.expert(1).last == tick + 1);
      CHECK(play.expert(4).last == tick + 2);
      CHECK(play.layer().step == 2);

      u32 const generation = play.header().tick;
      CHECK(play.hint({-1, n, n + 5}) == 0);
      CHECK(play.hint({}) == 0);
      CHECK(play.dropped(reason::sentinel) == 1);
      CHECK(play.dropped(reason::out_of_range) == 2);
      CHECK(play.header().tick == generation);
      CHECK(play.live() == 4);
      CHECK(play.hint({40}, 0, 0) == 0);  // a permit of width 0
      CHECK(play.dropped(reason::limited) == 1);
      CHECK(play.live() == 4);
    });
  });
  // without a predictor there is no such call, and the block keeps nothing for it
  STATIC_CHECK(!speculates<plain<score::lru>>);
  STATIC_CHECK(!takes_hints<cache<plain<score::lru>>>);
  STATIC_CHECK(takes_hints<cache<hinted>>);
  CHECK(on_table<plain<score::lru>>{{.capacity = 8}}.bytes().size() <
        on_table<watched<score::lru, guard::none>>{{.capacity = 8}}.bytes().size());
}

TEST_CASE("B100 unknown ids and empty lists do nothing but count") {
  unknown_ids_only_count();
}

TEST_CASE("R43 padding is skipped: no score, no tick, one counter") {
  unknown_ids_only_count();
}

TEST_CASE("R10 a speculative load that fails after its slot was reserved") {
  for (u32 const capacity : {1u, 2u, 3u, k, 8u, 42u}) {
    on_both<hinted>({.capacity = capacity}, [=](player& play) {
      play.d(range(0, capacity));
      routed_id const x = static_cast<routed_id>(capacity);
      REQUIRE(play.hint({x}) == 1);
      u32 const slot = play.slot_of(capacity);
      CHECK(!play.resident(0));
      play.finish(slot, transfer::failed);
      CHECK(slot_word::state(play.word(slot)) == slot_state::free);
      CHECK(play.where(0) == 0);  // the old resident is gone
      CHECK(play.where(capacity) == 0);
      CHECK(play.d({x}).slot_of(capacity) == slot);
      CHECK(play.resident(capacity));
    });
  }
}

TEST_CASE("R12 a failure after a demand joined leaves no half-resident state") {
  for_bundles([]<class Policy>() {
    on_both<Policy>({.capacity = 8}, [](player& play) {
      constexpr u32 x = 9;
      for (bool const leased : {false, true}) {
        u64 const failed = play.counters().late_failed.value;
        REQUIRE(play.hint({x}) == 1);
        u32 lease = u32_max;
        decided const step = leased ? play.hold({x}, lease) : play.demand({x});
        CHECK(step.of(x) == access_kind::late);  // the mark of the hint is gone
        u32 const slot = play.slot_of(x);
        play.finish(slot, transfer::failed);
        CHECK(play.where(x) == 0);
        CHECK(play.counters().late_failed.value == failed + 1);
        if (leased) {
          CHECK(slot_word::state(play.word(slot)) ==
                slot_state::draining);  // nobody else may write it
          play.release(lease);
        }
        CHECK(slot_word::state(play.word(slot)) == slot_state::free);
        CHECK(play.d({x}).of(x) == access_kind::load);  // eligible again
        CHECK(play.resident(x));
        play.invalidate();
      }
      CHECK(play.counters().used().value == 2);
    });
  });
}

namespace {

/// A backend whose copies fail when the test says so.
class failing_backend {
 public:
  static inline bool fails = false;
  static constexpr u64 tail_bytes() noexcept { return 0; }
  void open(geometry const&, std::span<pool_site const> sites) { words_.open(sites); }
  u32 const* arrivals(u32 pool) const noexcept { return words_.of(pool); }
  void start(u32 pool, std::span<transfer_order const> orders) noexcept {
    for (transfer_order const& o : orders) {
      words_.of(pool)[o.slot.value] =
          arrival::word(o.generation, fails ? transfer::failed : transfer::arrived);
    }
  }
  void poll() noexcept {}
  void close() noexcept {}

 private:
  move::detail::arrival_words words_;
};
static_assert(move_backend<failing_backend>);

}  // namespace

TEST_CASE("R40 a backend that fails in the middle of decode") {
  failing_backend::fails = false;
  on_cache<plain<score::lfru>, failing_backend> play{sizes{.capacity = 8, .layers = 3}};
  dice random{40};
  u64 failures = 0;
  for (u32 token = 0; token < 300; ++token) {
    failing_backend::fails = token >= 100 && token < 200;
    for (u32 layer = 0; layer < 3; ++layer) {
      decided const step = play.demand(
          {static_cast<routed_id>(random.below(24)), static_cast<routed_id>(random.below(24))},
          layer);
      REQUIRE(step.kind == plan_kind::step);  // the process goes on
      failures += failing_backend::fails ? step.loads.size() : 0;
      play.land();
      for (planned_load const& l : step.loads) {
        REQUIRE(play.resident(l.expert, layer) == !failing_backend::fails);
        if (failing_backend::fails) {
          REQUIRE(slot_word::state(play.word(l.slot, layer)) == slot_state::free);
        }
      }
    }
  }
  CHECK(failures > 0);
  CHECK(play.counters().failed[demand_i].value == failures);
  for (u32 layer = 0; layer < 3; ++layer)
    CHECK(play.n_resident(layer) == 8);  // all slots work again

  // a demand whose load failed is served through scratch, in the same step
  {
    failing_backend::fails = true;
    cache<plain<score::lfru>, failing_backend> subject{geometry::uniform(1, 24, 2, 64), budget::of_slots(8)};
    routed_id const ids[] = {3, 17};
    step_view const step = subject.step(layer_id{0}, std::span<routed_id const>(ids));
    REQUIRE(step.loads.size() == 2);
    failing_backend::fails = false;
    CHECK(subject.serve_failed() == 2);
    u32 const n_slots = subject.sites()[0].n_slots;
    for (std::size_t i = 0; i < step.experts.size(); ++i) {
      CHECK(step.slots[i] >= n_slots);
      CHECK(arrival::word(subject.scratch_generation(), transfer::arrived) ==
            subject.backend().arrivals(0)[step.slots[i]]);
    }
    CHECK(step.slots[0] != step.slots[1]);
    CHECK(subject.serve_failed() == 0);
    CHECK(subject.audit());
    CHECK(subject.observer().total().failed[demand_i].value == 2);
  }

  // an overflow step takes no slot at all
  failing_backend::fails = true;
  auto const before = play.bytes();
  decided const wide = play.demand(range(0, 24));
  CHECK(wide.kind == plan_kind::overflow);
  for (u32 wave = 0; wave < wide.n_waves; ++wave)
    play.subject().start_wave(wave);
  u32 const scratch = play.header().n_slots;
  CHECK(arrival::state(play.subject().backend().arrivals(0)[scratch]) == transfer::failed);
  play.land();
  CHECK((play.bytes() == before));
  failing_backend::fails = false;
}

}  // namespace warmset::scenario
