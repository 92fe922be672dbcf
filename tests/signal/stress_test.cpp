// SPDX-License-Identifier: Apache-2.0
// Everything at once, for WARMSET_STRESS_SECONDS (default 2): streams with hints, failing transfers, waves,
// deadlines, resizes, and a worker that is slow, paused, stopped and dead. Meant for the thread sanitizer.

#include <catch2/catch_test_macros.hpp>

#include <warmset/observe/laws.hpp>

#include "device_model.hpp"

using namespace warmset;
using namespace warmset::signal;
using namespace warmset_test;

TEST_CASE("streams, hints, faults and a worker that comes and goes") {
  u64 const nanoseconds = from_environment("WARMSET_STRESS_SECONDS", 2) * 1'000'000'000;
  constexpr u32 streams = 3;
  constexpr u32 layers = 4;
  constexpr u32 experts = 24;
  worked<> w{{.channels = streams,
              .layers = layers,
              .experts = experts,
              .k = 4,
              .slots = 6,
              .shape = {8, 12},
              .first = 0u - 500u},
             {.deadline = 5'000'000}};
  REQUIRE(w.worker->start());
  w.memory.fail_every = 37;
  w.memory.polls = 2;
  std::atomic<bool> ended{false};
  std::vector<std::thread> threads;
  for (u32 t = 0; t < streams; ++t) {
    threads.emplace_back([&, t] {
      dice d{t + 1};
      mapped_source source;
      while (!ended) {
        graph_step step{d.below(layers - 1), {}};
        u32 const n = d.below(16) == 0 ? 12 : 1 + d.below(4);
        for (u32 i = 0; i < n; ++i) {
          step.ids.push_back(static_cast<routed_id>(d.below(experts + 1)) - 1);
        }
        for (u32 i = d.below(4); i != 0; --i) {
          step.hints.push_back(static_cast<routed_id>(d.below(experts)));
        }
        if (t == 0) {
          w.dev(t).run(step, 2'000'000, source);  // gives up early
        } else {
          w.dev(t).run(step);
        }
      }
    });
  }
  u64 unsound = 0;
  u64 rounds = 0;
  dice d{99};
  u64 const begin = steady_clock{}.now();
  for (; steady_clock{}.now() - begin < nanoseconds; ++rounds) {
    switch (d.below(8)) {
    case 0:
      REQUIRE(w.worker->pause());
      unsound += w.cache().audit() ? 0 : 1;
      REQUIRE(w.worker->resume());
      break;
    case 1:
      w.worker->stop();
      unsound += w.cache().audit() ? 0 : 1;
      REQUIRE(w.worker->start());
      break;
    case 2:
      REQUIRE(w.worker->die());
      REQUIRE(w.worker->start());
      break;
    case 3:
      w.worker->slow_down(d.below(2) * 20'000);
      break;
    case 4:
      w.memory.polls = d.below(8);
      break;
    default:
      (void)w.worker->resize(layer_id{d.below(layers)}, 3 + d.below(4));
      (void)w.worker->with([&](auto& c) {
        unsound += c.audit() && check_laws(c.observer().total(), c.slot_counts()) ? 0 : 1;
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2 + d.below(16)));
  }
  ended = true;
  w.worker->slow_down(0);
  for (std::thread& t : threads) {
    t.join();
  }
  w.worker->stop();

  CHECK(unsound == 0);
  u64 steps = 0;
  u64 hints = 0;
  for (u32 t = 0; t < streams; ++t) {
    device_report const& r = w.dev(t).report();
    CHECK(r.wrong == 0);
    CHECK(r.steps == r.from_slots + r.from_source + r.refused + r.ended);
    steps += r.from_slots;
    hints += r.hints;
  }
  worker_counters const c = w.worker->counters();
  CHECK(steps != 0);
  CHECK(c[tally::hints] != 0);
  CHECK(c[tally::torn] == 0);
  CHECK(c[tally::intruders] == 0);
  WARN(steps << " steps served, " << c[tally::demands] << " demands, " << c[tally::hints]
             << " hints, " << c[tally::retried] << " retried, " << c[tally::abandoned]
             << " abandoned, " << rounds << " disturbances");

  // once all is finished nothing is held
  REQUIRE(w.worker->start_by_hand());
  w.settle(10'000);
  for (auto& pool : w.cache().pools()) {
    CHECK(pool.view().header().leases == 0);
    for (u32 i = 0; i < pool.view().header().n_scratch; ++i) {
      CHECK(pool.view().scratch_word(i) == 0);
    }
  }
  CHECK(w.cache().audit());
  CHECK(check_laws(w.total(), w.cache().slot_counts()));
  CHECK(w.total().hints_offered.value == hints);  // wherever they were dropped
}
