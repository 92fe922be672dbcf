// SPDX-License-Identifier: Apache-2.0
// Protection that must leave room: hot residents, pins, and a budget of installs.

#include <numeric>

#include <warmset/policy/admit/insert_budget.hpp>
#include <warmset/trace/capacity_advice.hpp>

#include "play.hpp"

namespace warmset::scenario {
namespace {

using protecting = plain<score::lru, select::hot_protected<4>>;

template <class Score, class Selector = select::coldest>
struct budgeted : plain<Score, Selector> {
  using admission = admit::insert_budget;
};

template <class Scenario>
void on_protecting(sizes s, Scenario&& scenario) {
  play_on_table<protecting>(s, scenario);
  play_on_cache<protecting>(s, scenario);
}

/// Every resident 0 … n - 1 is used `uses` times after its install, in a shuffled order each time; returns the order
/// of the last round, least recently used first.
id_list heat_up(player& play, u32 n, u32 uses, dice& random) {
  id_list order = range(0, n);
  for (u32 round = 0; round <= uses; ++round) {
    for (u32 i = n; i > 1; --i) {
      std::swap(order[i - 1], order[random.below(i)]);
    }
    for (routed_id const e : order)
      play.d({e});
  }
  return order;
}

}  // namespace

TEST_CASE("B25 where all residents are hot the least recently used one goes") {
  for (u32 const capacity : capacities) {
    on_protecting({.capacity = capacity, .experts = 2 * n_experts}, [=](player& play) {
      dice random{25};
      id_list const order = heat_up(play, capacity, 9, random);  // uses 9, protected from 5 on
      routed_id const first = static_cast<routed_id>(capacity), second = first + 1;
      decided const refill = play.d({first});
      CHECK(refill.of(capacity) == access_kind::load);  // not declined for want of a victim
      CHECK(play.obstacles().guarded == 0);
      CHECK(!play.resident(static_cast<u32>(order.front())));
      for (std::size_t i = 1; i < order.size(); ++i)
        CHECK(play.resident(static_cast<u32>(order[i])));
      // the refilled slot begins at 0 uses, whatever its last owner had: it is the only cold one
      CHECK(play.d({second}).slot_of(capacity + 1) == refill.slot_of(capacity));
      for (u32 use = 0; use < 4; ++use)
        play.d({second});
      CHECK(play.d({first}).slot_of(capacity) == refill.slot_of(capacity));  // 4 uses are not above 4
      for (u32 use = 0; use < 5; ++use)
        play.d({first});
      play.d({second});  // all are hot again
      CHECK(play.resident(capacity) == (capacity != 1));
      if (capacity > 1)
        CHECK(!play.resident(static_cast<u32>(order[1])));
    });
  }
}

TEST_CASE("R19 where every resident is above the threshold the order is plain LRU") {
  for (u32 const capacity : capacities) {
    for (u32 const wanted : {1u, (capacity + 1) / 2, capacity}) {
      sizes const s{.capacity = capacity, .experts = 2 * n_experts};
      on_protecting(s, [=](player& play) {
        on_table<plain<score::lru, select::lru_list>> lru{s};
        dice one{capacity}, other{capacity};
        id_list const order = heat_up(play, capacity, 5, one);
        heat_up(lru, capacity, 5, other);
        decided const step = play.d(range(capacity, wanted));
        decided const reference = lru.d(range(capacity, wanted));
        CHECK(step.count(access_kind::load) == wanted);
        CHECK(step.slots == reference.slots);
        for (u32 i = 0; i < capacity; ++i)
          CHECK(play.resident(static_cast<u32>(order[i])) == (i >= wanted));
      });
    }
  }
}

TEST_CASE("R18 pins for all slots leave k of them") {
  auto const scenario = [](player& play) {
    u32 const capacity = play.header().capacity;
    u32 const may_pin = saturating_sub(capacity, k);
    u32 pinned = 0;
    for (u32 e = 0; e < capacity; ++e) {
      status const answer = play.pin(e);
      CHECK(static_cast<bool>(answer) == (e < may_pin));
      CHECK(answer.why == (e < may_pin ? reason::none : reason::limited));
      pinned += answer ? 1 : 0;
    }
    CHECK(pinned == may_pin);
    CHECK(play.header().pinned == may_pin);
    for (u32 e = 0; e < capacity; ++e)
      play.d({static_cast<routed_id>(e)});
    // a step of k experts that nobody has pinned always finds room, and no pinned one goes
    dice random{18};
    for (u32 step = 0; step < 50; ++step) {
      u32 const wide = min_of(k, capacity);
      id_list const ids = range(capacity + random.below(2 * n_experts - capacity - wide), wide);
      decided const made = play.d(ids);
      CHECK(made.kind == plan_kind::step);
      CHECK(made.count(access_kind::declined) == 0);
      for (u32 e = 0; e < may_pin; ++e)
        CHECK(play.resident(e));
    }
  };
  for (u32 const capacity : capacities) {
    sizes const s{.capacity = capacity, .experts = 2 * n_experts};
    on_both<plain<score::lfru>>(s, scenario);
    on_both<plain<score::lru, select::lru_list>>(s, scenario);
    on_both<plain<score::lru, select::clock<1>>>(s, scenario);
    on_both<plain<score::lru, select::sieve>>(s, scenario);
    on_both<plain<score::lru, select::s3_fifo>>(s, scenario);
    on_both<plain<score::lru, select::slru<>>>(s, scenario);
    on_both<plain<score::lru, select::hot_protected<4>>>(s, scenario);
  }
  SECTION("who asks beforehand is told why") {
    geometry const model = geometry::uniform(1, 2 * n_experts, k, 1000);
    for (u32 const capacity : {8u, 42u, n_experts}) {
      std::vector<expert_key> pins;
      auto const warned = [&] {
        for (trace::advice const& a :
             trace::capacity_advice(model, trace::capacity::slots_per_layer(capacity), {}, pins)) {
          if (a.kind == trace::capacity_warning::pins_leave_no_room) {
            CHECK(a.have == capacity - pins.size());
            CHECK(a.need == k);
            return true;
          }
        }
        return false;
      };
      for (u32 e = 0; e < capacity; ++e) {
        pins.push_back({layer_id{0}, expert_id{e}});
        CHECK(warned() == (pins.size() > capacity - k));
      }
    }
  }
}

TEST_CASE("R25 a budget of two installs and six misses in one step") {
  auto const scenario = [](player& play) {
    u32 const capacity = play.header().capacity;
    for (u32 e = 0; e < capacity; ++e)
      play.d({static_cast<routed_id>(e)});
    REQUIRE(play.n_resident() == capacity);
    u64 const declined = play.counters()[access_kind::declined].value;
    // in demand order, not in that of the ids
    id_list const ids = {static_cast<routed_id>(capacity + 5), static_cast<routed_id>(capacity + 1),
                         static_cast<routed_id>(capacity + 9), static_cast<routed_id>(capacity + 3),
                         static_cast<routed_id>(capacity + 7), static_cast<routed_id>(capacity + 2)};
    std::vector<unsigned char> const before = play.bytes();
    decided const planned = play.plan(ids);
    CHECK((play.bytes() == before));
    decided const step = play.demand(ids);
    CHECK(step.slots == planned.slots);
    CHECK(step.count(access_kind::load) == 2);
    CHECK(step.of(capacity + 5) == access_kind::load);
    CHECK(step.of(capacity + 1) == access_kind::load);
    CHECK(step.count(access_kind::declined) == 4);
    CHECK(play.counters()[access_kind::declined].value == declined + 4);
    CHECK(step.n_waves == ceil_div(4u, play.header().n_scratch));  // what is declined is served
    for (std::size_t i = 2; i < ids.size(); ++i)
      CHECK(step.slot_of(static_cast<u32>(ids[i])) >= play.header().n_slots);
    play.land();
    CHECK(play.n_resident() == capacity);
    CHECK(play.demand(ids).count(access_kind::load) == 2);  // two hits, the next two, two declined
    play.land();
    CHECK(play.demand(ids).count(access_kind::load) == 2);
    play.land();
    CHECK(play.demand(ids).count(access_kind::hit) == 6);
  };
  for (u32 const capacity : {8u, 42u, n_experts}) {
    sizes const s{.capacity = capacity, .experts = 2 * n_experts, .numbers = {.insert_bytes = 2'999}};  // of 1000
    on_both<budgeted<score::lru>>(s, scenario);
    on_both<budgeted<score::lru, select::lru_list>>(s, scenario);
    on_both<budgeted<score::lru, select::clock<1>>>(s, scenario);
  }
}

}  // namespace warmset::scenario
