// SPDX-License-Identifier: Apache-2.0
// A life in which everything happens that a counter counts.
#pragma once

#include <warmset/predict/previous_step.hpp>
#include <warmset/trace/speculative_replay.hpp>

#include "gate/gated_cache.hpp"
#include "scenario/play.hpp"
#include "signal/device_model.hpp"

namespace warmset {

/// Counters of a gated cache after hints that its gate, its permit and its phase refused.
inline total_counters hints_at_the_gate() {
  using namespace gate;
  using gate_type = held_by<holder::host, told_permit>;
  references memory;
  authority groups{1};
  cache<gate::hinted, move::external, observe::counting, gate_type> c{
      geometry::uniform(1, 16, 2, 1000),
      budget::of_slots(4),
      gate::hinted::numbers,
      move::external{},
      observe::counting{},
      gate_type{groups}};
  layer_id const layer{0};
  gate::id_list const ids{1, 2};
  auto const offer = [&](phase p = phase::decode) {
    REQUIRE(c.advise(layer, ids, u32_max, 1, p) == 0);
    require_sound(c);
  };
  auto const change_hands = [&](holder to) {
    authority::transition moving = groups.begin(0, to);
    offer();  // gate_closed
    REQUIRE(moving.prepare());
    REQUIRE(moving.complete());
  };
  offer();  // no_authority
  REQUIRE(groups.publish(0, holder::host, memory));
  offer(phase::prefill);  // in_prefill
  c.gate().permit().deny(reason::governed);
  offer();
  change_hands(holder::device);
  change_hands(holder::host);  // and nobody has copied the table
  offer();                     // stale_epoch
  REQUIRE(groups.withdraw(0));
  return c.observer().total();
}

/// Counters of a replay whose hints are for a whole token ahead, which the pool does not keep that long.
inline total_counters hints_too_far_ahead() {
  constexpr u32 layers = 4, k = 4, n_steps = 100;
  trace::contents routes;
  routes.geometry = geometry::uniform(layers, 64, k, 1000);
  routes.blocks.push_back({});
  trace::block& b = routes.blocks.back();
  b.n_rows = layers;
  b.n_steps = n_steps;
  b.k = k;
  for (u32 step = 0; step < n_steps; ++step) {
    for (u32 i = 0; i < layers * k; ++i) {
      routes.ids.push_back(static_cast<u16>((step * k + i % k) % 64));
    }
  }
  trace::recording const r(std::move(routes));
  trace::speculation how;
  how.governed = false;
  how.width = k;
  cache<bundles::shared<gate::hinted>, trace::link_backend> c{
      r.geometry(),
      budget::of_slots(k - 1),
      {.speculative_slots = k, .floor = 1},
      trace::link_backend{{16'000'000'000, 0, 0, 1'000'000}}};
  predict::previous_step<layers> predictor;
  (void)trace::replay_speculatively(r, {}, c, predictor, how);
  warmset_test::require_sound(c);
  return c.observer().total();
}

/// Counters of a worker's cache after hints that did not reach it.
inline total_counters hints_on_the_way() {
  using namespace warmset_test;
  worked<> w{{}};
  routed_id const ids[] = {1, 2};
  REQUIRE(w.end().hint(layer_id{0}, ids).why == reason::worker_down);
  REQUIRE(w.worker->start_by_hand());
  REQUIRE(w.end().hint(layer_id{9}, ids));  // the model has no such layer
  REQUIRE(w.end().hint(layer_id{0}, ids));
  REQUIRE(w.end().hint(layer_id{0}, ids).why == reason::ring_full);
  w.settle();
  return w.total();
}

/// Counters after a life of one pool.
inline total_counters whole_life() {
  using namespace scenario;
  sizes const size{.capacity = 8, .reserve = 2, .numbers = {.speculative_slots = 3}};
  on_table<watched<score::lfru, guard::warm_then_challenger_must_win>> play{size};
  u32 lease = 0;
  for (int i = 0; i < 3; ++i)
    play.d(range(0, 5));
  play.d({-1, 999, 0, 0});
  play.p({10, 10, 10, -1, 99});  // sentinel, out of range, duplicate
  play.p({10});                  // resident
  play.hint({11});
  play.hint({11});    // in flight
  play.demand({11});  // late, of a hint
  play.land();
  play.d({10});                    // first use
  play.hint({12}, 0, 0);           // limited
  play.hint({13}, 0, u32_max, 0);  // too late
  play.d(range(5, 3));
  for (int i = 0; i < 3; ++i)
    play.d(range(0, 8));
  play.p({20});          // the guard refuses
  play.d({30});          // a demand evicts
  play.p({20, 21, 22});  // speculation evicts
  play.d(range(31, 3));
  play.p({40, 41, 42, 43, 44});  // over the budget, and unused speculation evicted
  play.d({1});
  play.p({50, 51, 52, 53});
  play.demand({60});
  play.finish_all(transfer::failed);
  play.d({61});
  play.hint({54});
  play.finish_all(transfer::failed);
  play.hint({55});
  play.demand({55});
  play.finish_all(transfer::failed);  // a joined transfer fails
  play.demand(range(0, 20));          // overflow
  play.hold(range(0, 8), lease);
  play.land();
  play.demand({62});  // declined
  play.hint({63});    // no victim
  play.release(lease);
  REQUIRE(play.pin(0));
  play.d({0});              // a pinned hit
  REQUIRE(play.resize(4));  // dropped, retired
  total_counters seen = play.counters();
  {
    on_cache<plain<score::lru>> waves{sizes{.capacity = 2}};
    waves.demand(range(0, 10));  // overflow: through scratch, where the second wave fails
    (void)waves.subject().start_wave(0);
    waves.land();
    (void)waves.subject().start_wave(1);
    waves.finish_all(transfer::failed);
    seen = seen + waves.counters();
  }
  return seen + hints_on_the_way() + hints_at_the_gate() + hints_too_far_ahead();
}

}  // namespace warmset
