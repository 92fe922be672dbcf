// SPDX-License-Identifier: Apache-2.0
// Host-directed mode: faults of rings, workers, shutdown and hand-over between threads.

#include <csignal>
#include <cstdio>
#include <cstring>

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include <warmset/concurrent.hpp>
#include <warmset/observe/laws.hpp>

#include "signal/device_model.hpp"
#include "support/whole_cache.hpp"

namespace warmset::scenario {
namespace {

using namespace warmset::signal;
using namespace warmset_test;

using served_set = worked<>;

/// A bundle without hints: every slot is demand's.
struct no_hints : default_policy {
  using score = warmset::score::lru;
};

template <class Cache>
bool is_sound(Cache& c) {
  return c.audit() && check_laws(c.observer().total(), c.slot_counts());
}

u64 count_of(amount<unit::experts> const& a) {
  return a.value;
}

}  // namespace

TEST_CASE("B34 a pool shrinks while a prediction is in flight, on another thread's word") {
  served_set w{{.slots = 8}};
  REQUIRE(w.worker->start());
  w.memory.polls = 3;
  std::atomic<bool> ended{false};
  std::atomic<u32> resized{0};
  u64 unsound = 0;
  std::thread shrinker([&] {
    for (u32 i = 0; !ended; ++i, ++resized) {
      (void)w.worker->resize(layer_id{i & 1}, i % 3 == 0 ? 2 : 8);
      (void)w.worker->with([&](auto& c) { unsound += is_sound(c) ? 0 : 1; });
    }
  });
  dice d{34};
  u32 steps = 0;
  // the other thread may be scheduled late: it is to shrink pools that have been filled
  for (u32 since = u32_max; steps < 400 || since == u32_max || resized - since < 12; ++steps) {
    u32 const i = steps;
    since = steps == 40 ? resized.load() : since;
    routed_id const x = static_cast<routed_id>(d.below(16));
    w.dev().run({i & 1,
                 {static_cast<routed_id>(d.below(16)), x},
                 {x, static_cast<routed_id>(d.below(16))}});
  }
  ended = true;
  shrinker.join();
  w.worker->stop();
  CHECK(unsound == 0);
  CHECK(w.dev().report().wrong == 0);
  CHECK(w.dev().report().from_slots == steps);
  CHECK(w.total().retired.value != 0);  // it did shrink
  CHECK(is_sound(w.cache()));
}

TEST_CASE(
    "B36 eight threads demand one expert: one load, seven join it, its bytes are counted once") {
  constexpr u32 racers = 8;
  for (u32 round = 0; round < 10; ++round) {
    served_set w{{.channels = racers}};
    REQUIRE(w.worker->start());
    w.memory.polls = round;
    std::atomic<u32> ready{0};
    std::vector<std::thread> threads;
    for (u32 t = 0; t < racers; ++t) {
      threads.emplace_back([&, t] {
        ++ready;
        while (ready != racers) {
          std::this_thread::yield();
        }
        w.dev(t).run({0, {5}});
      });
    }
    for (std::thread& t : threads) {
      t.join();
    }
    w.worker->stop();
    total_counters const sum = w.total();
    CHECK(w.memory.starts == 1);
    CHECK(count_of(sum[access_kind::load]) == 1);
    CHECK(count_of(sum[access_kind::late]) + count_of(sum[access_kind::hit]) == racers - 1);
    CHECK(sum.bytes[static_cast<u32>(intent::demand)].value == expert_words * sizeof(u64));
    for (u32 t = 0; t < racers; ++t) {
      CHECK(w.dev(t).report().from_slots == 1);
      CHECK(w.dev(t).report().wrong == 0);
    }
    CHECK(is_sound(w.cache()));
  }
}

TEST_CASE("B36 the same behind one lock") {
  constexpr u32 racers = 8;
  byte_link memory;
  memory.held = true;
  concurrent<byte_cache<>> c{small_model(2, 16, 2), budget::of_slots(4), tuning{},
                             byte_backend{&memory}};
  std::vector<std::thread> threads;
  u32 slots[racers];
  for (u32 t = 0; t < racers; ++t) {
    threads.emplace_back([&, t] {
      routed_id const ids[] = {5};
      (void)c.step(layer_id{0}, array_view<routed_id const>{ids}, array_view<u32>{&slots[t], 1});
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  memory.held = false;
  c.settle();
  CHECK(memory.starts == 1);
  for (u32 slot : slots) {
    CHECK(slot == slots[0]);
  }
  c.with([](auto& inner) {
    CHECK(count_of(inner.observer().total()[access_kind::late]) == racers - 1);
    CHECK(inner.observer().total().bytes[0].value == expert_words * sizeof(u64));
    CHECK(is_sound(inner));
  });
}

TEST_CASE("B37 a reservation in a pool that is reserved to the last slot proceeds after one is "
          "given up") {
  worked<no_hints> w{{.channels = 4, .k = 1, .slots = 2, .numbers = {.scratch_slots = 1}}};
  REQUIRE(w.worker->start());
  w.memory.held = true;
  u32 sequence[4];
  for (u32 c = 0; c < 4; ++c) {  // two slots, the scratch slot, and one for which there is nothing
    sequence[c] =
        w.end(c).publish(layer_id{0}, std::vector<routed_id>{static_cast<routed_id>(c)}).sequence;
    REQUIRE(eventually([&] { return w.worker->counters()[tally::demands] == c + 1; }));
  }
  std::atomic<bool> came{false};
  std::thread waiter([&] { came = static_cast<bool>(w.end(3).wait(sequence[3], u64_max)); });
  REQUIRE(eventually([&] { return w.worker->counters()[tally::busy] > 10; }));
  CHECK_FALSE(came);
  // publishing needs nothing that the waiter holds
  CHECK(w.end(1).publish(layer_id{1}, std::vector<routed_id>{9}));
  CHECK(w.end(2).hint(layer_id{1}, std::vector<routed_id>{8}));
  REQUIRE(eventually([&] { return w.memory.starts == 4; }));  // layer 1 is another pool
  CHECK_FALSE(came);
  u64 const busy = w.worker->counters()[tally::busy];
  REQUIRE(eventually([&] { return w.worker->counters()[tally::busy] > busy + 2; }));
  CHECK(w.worker->counters()[tally::hints] == 0);  // demands first

  w.end(0).finish(sequence[0]);
  w.memory.fail_next = 1;
  w.memory.let_through = 1;  // the first transfer ends: it fails
  REQUIRE(eventually([&] { return w.memory.starts == 5; }));
  CHECK(w.memory.failures == 1);
  w.memory.held = false;
  waiter.join();
  CHECK(came);
  REQUIRE(eventually([&] { return w.worker->counters()[tally::hints] == 1; }));
  CHECK(w.worker->counters()[reason::speculative_budget] ==
        1);  // a bundle without hints has no slot for one
  w.dev(3).read({0, {3}}, sequence[3]);
  w.dev(2).read({0, {2}}, sequence[2]);
  CHECK(w.dev(3).report().wrong + w.dev(2).report().wrong == 0);
  w.worker->stop();
  CHECK(w.end(3).answer_to(sequence[3]).slot(0) == slot_id{0});
  CHECK(is_sound(w.cache()));
}

TEST_CASE("B38 stop wakes every waiter, and what was not decided leaves no trace") {
  constexpr u32 waiters = 10;
  for (bool decided : {false, true}) {
    served_set w{{.layers = waiters}};
    auto const before = bytes_of(w.cache());
    w.memory.held = true;
    REQUIRE((decided ? w.worker->start() : w.worker->start_by_hand()));
    std::vector<std::thread> threads;
    std::atomic<u32> stopped{0};
    std::atomic<u32> otherwise{0};
    for (u32 i = 0; i < waiters; ++i) {
      u32 const sequence =
          w.end().publish(layer_id{i}, std::vector<routed_id>{static_cast<routed_id>(i)}).sequence;
      threads.emplace_back([&, sequence] {
        wait_counters counters;
        wait_result const got =
            wait_for_answer(w.channels[0]->view(), sequence, 0, u64_max, counters);
        bool const fine = got.why == reason::stopped && counters.waited_empty == 1;
        ++(fine ? stopped : otherwise);
      });
    }
    if (decided) {
      REQUIRE(eventually([&] { return w.memory.starts == waiters; }));
    }
    w.worker->stop();
    for (std::thread& t : threads) {
      t.join();
    }
    CHECK(stopped == waiters);
    CHECK(otherwise == 0);
    CHECK(is_sound(w.cache()));
    if (!decided) {
      CHECK(bytes_of(w.cache()) == before);
    }
    // their device gives up: nothing is served after the next start
    w.end().finish(waiters);
    w.memory.held = false;
    REQUIRE(w.worker->start_by_hand());
    w.settle();
    CHECK(w.memory.starts == (decided ? waiters : 0));
    CHECK(w.worker->counters()[tally::abandoned] == waiters);
    if (!decided) {
      CHECK(bytes_of(w.cache()) == before);
    }
    CHECK(is_sound(w.cache()));
  }
}

TEST_CASE("B42 a worker goes with predictions queued: it joins, and calls nothing afterwards") {
  for (u32 round = 0; round < 50; ++round) {
    served_set w{{.layers = 4}};
    w.memory.polls = round % 4;
    REQUIRE(w.worker->start());
    for (u32 i = 0; i < round % 8; ++i) {
      routed_id const ids[] = {static_cast<routed_id>(i), static_cast<routed_id>(i + 1)};
      (void)w.end().hint(layer_id{i % 4}, ids);
      (void)w.end().try_publish(layer_id{i % 4}, ids);
    }
    w.worker.reset();
    u64 const starts = w.memory.starts;
    u64 const polled = w.memory.polled;
    u64 const arrived = w.memory.arrivals;
    routed_id const ids[] = {3};
    CHECK(w.end().publish(layer_id{0}, ids).why == reason::worker_down);
    CHECK(w.end().hint(layer_id{0}, ids).why == reason::worker_down);
    std::this_thread::yield();
    CHECK(w.memory.starts == starts);
    CHECK(w.memory.polled == polled);
    CHECK(w.memory.arrivals == arrived);
  }
}

TEST_CASE("B43 a ring has one consumer, by type") {
  STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<consumer<demand_ring>>);
  STATIC_REQUIRE_FALSE(std::is_copy_assignable_v<consumer<hint_ring>>);
  STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<producer<demand_ring>>);
  STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<device_end>);
  served_set w{{}};
  CHECK_THROWS_AS(consumer<demand_ring>{w.channels[0]->view().demands()}, config_error);
  CHECK_THROWS_AS(consumer<hint_ring>{w.channels[0]->view().hints()}, config_error);
  CHECK_THROWS_AS(device_end{w.channels[0]->view()}, config_error);
  channel_view const views[] = {w.channels[0]->view()};
  byte_link other;
  CHECK_THROWS_AS(
      (served_set::worker_type{
          views, {}, small_model(2, 16, 2), budget::of_slots(4), tuning{}, byte_backend{&other}}),
      config_error);
  REQUIRE(w.worker->start_by_hand());  // and the first goes on
  u32 const s = w.end().publish(layer_id{0}, std::vector<routed_id>{1}).sequence;
  w.settle();
  CHECK(w.end().wait(s, 1000));
}

TEST_CASE("B78 a word that was filled byte by byte ends no wait wrongly and hangs none") {
  u32 word = 0;
  std::memset(&word, 1, sizeof(word));
  wait_counters counters;
  CHECK(mailbox<>{&word}.wait(1u, u64_max, counters));  // at least 1, not equal to it
  CHECK(counters.waited_empty == 0);
  std::memset(&word, 0xFF, sizeof(word));  // of the lap before
  CHECK(mailbox<>{&word}.wait(1u, 1'000'000, counters) == status{reason::deadline});
  CHECK(counters.waited_empty == 1);

  // words of a channel, each in turn; and numbers that the bytes could mean
  for (u32 which :
       {channel_view::state, channel_view::heartbeat, channel_view::hints_done,
        channel_view::overdue, channel_view::folded, channel_view::finished,
        channel_view::wave_mark, channel_view::refused_down, channel_view::refused_limited}) {
    for (int byte : {1, 0xFF}) {
      for (u32 first : {1u, 0x0101u, 0xFFFFu}) {
        INFO("word " << which << " of bytes " << byte << " before number " << first);
        served_set w{{.first = first}};
        std::memset(w.channels[0]->view().base + which, byte, sizeof(u32));
        if (which == channel_view::state) {  // whatever it says, nobody runs
          CHECK(w.end().publish(layer_id{0}, std::vector<routed_id>{1}).why == reason::worker_down);
          CHECK(w.end().wait(first, u64_max).why == reason::stopped);
        }
        REQUIRE(w.worker->start_by_hand());
        graph_step const wide{0, {0, 1, 2, 3, 4, 5}};  // three waves
        u32 const s = w.end().publish(layer_id{0}, wide.ids).sequence;
        w.settle();
        answers_view const answers = w.channels[0]->view().answers();
        REQUIRE(answers.ready<host_words>(s));
        CHECK_FALSE(answers.ready<host_words>(s, 1));  // the first has not been read
        w.worker->stop();
        REQUIRE(w.worker->start());
        w.dev().read(wide, s);
        w.end().finish(s);
        for (u32 i = 0; i < 40; ++i) {  // more than the ring holds
          w.dev().run({i & 1, {static_cast<routed_id>(i % 16), 2}});
        }
        CHECK(w.dev().report().wrong == 0);
        CHECK(w.dev().report().from_slots == 41);
      }
    }
  }
}

TEST_CASE("B92 a prediction and the demand for the same bytes are one transfer") {
  for (u32 order = 0; order < 3; ++order) {
    for (u32 round = 0; round < 20; ++round) {
      served_set w{{}};
      REQUIRE(w.worker->start());
      w.memory.polls = round;
      std::vector<routed_id> const x{7};
      published hint;
      if (order == 0) {
        hint = w.end().hint(layer_id{1}, x);
        w.dev().run({1, x});
      } else if (order == 1) {
        w.dev().run({1, x});
        hint = w.end().hint(layer_id{1}, x);
      } else {  // both queued before either is seen
        REQUIRE(w.worker->pause());
        REQUIRE(w.worker->resume());
        hint = w.end().hint(layer_id{1}, x);
        (void)w.end().hint(layer_id{1}, x);
        w.dev().run({1, x});
      }
      REQUIRE(hint);
      REQUIRE(w.end().wait_hint(hint.sequence, 10'000'000'000));
      w.worker->stop();
      CHECK(w.memory.starts == 1);
      CHECK(w.dev().report().wrong == 0);
      CHECK(w.dev().report().from_slots == 1);
      CHECK(is_sound(w.cache()));
    }
  }
}

TEST_CASE("B93 a hint for what the current plan is installing is in flight, not a second copy") {
  served_set w{{}};
  REQUIRE(w.worker->start_by_hand());
  w.memory.held = true;
  std::vector<routed_id> const x{3, 4};
  u32 const s = w.end().publish(layer_id{0}, x).sequence;
  REQUIRE(w.end().hint(layer_id{0}, x));  // made after the demand was published
  w.settle();
  total_counters const sum = w.total();
  CHECK(w.worker->counters()[tally::hints] == 1);
  CHECK(sum.hints_offered.value == 2);
  CHECK(count_of(sum.hints_dropped[static_cast<u32>(reason::in_flight)]) == 2);
  CHECK(w.memory.starts == 2);
  w.memory.held = false;
  w.settle();
  CHECK(w.end().wait(s, 1000));
  CHECK(is_sound(w.cache()));
}

TEST_CASE(
    "B94 a worker that is stopped, paused or dead refuses at once, and the demand completes") {
  for (u32 how = 0; how < 3; ++how) {
    served_set w{{}};
    REQUIRE(w.worker->start());
    w.dev().run({0, {1}});
    if (how == 0) {
      w.worker->stop();
    } else if (how == 1) {
      REQUIRE(w.worker->pause());
    } else {
      REQUIRE(w.worker->die());
    }
    INFO(name_of(w.worker->state()));
    ring_view<demand_ring> const ring = w.channels[0]->view().demands();
    u32 const published_before = host_words::load(ring.at(ring_view<demand_ring>::published));
    for (u32 i = 0; i < 100; ++i) {  // more than fit: none waits for room
      routed_id const ids[] = {2};
      CHECK(w.end().publish(layer_id{0}, ids).why == reason::worker_down);
      CHECK(w.end().hint(layer_id{0}, ids).why == reason::worker_down);
    }
    CHECK(host_words::load(ring.at(ring_view<demand_ring>::published)) == published_before);
    CHECK(w.end().dropped_hints() == 0);  // refused, not dropped by the ring
    w.dev().run({0, {2}});
    CHECK(w.dev().report().refused == 1);  // the stock path served it

    // what was published just before completes from the source, or when the worker is back
    REQUIRE((how == 1 ? w.worker->resume() : w.worker->start()));
    w.memory.held = true;
    u32 const s = w.end().publish(layer_id{0}, std::vector<routed_id>{3}).sequence;
    if (how == 1) {
      REQUIRE(w.worker->pause());
      mapped_source source;
      wait_result const got = w.end().wait(s, 1'000'000, 0, source);
      CHECK(got);
      CHECK(got.by == served::source);
      w.memory.held = false;
      REQUIRE(w.worker->resume());
      CHECK(w.end().wait(s, u64_max).by == served::slots);
    } else if (how == 0) {
      w.worker->stop();
      CHECK(w.end().wait(s, u64_max).why == reason::stopped);
    } else {
      REQUIRE(w.worker->die());
      CHECK(w.end().wait(s, u64_max).why == reason::worker_down);
    }
    w.end().finish(s);
    w.memory.held = false;
    w.worker->stop();
    CHECK(is_sound(w.cache()));
  }
}

TEST_CASE("B97 hints never run on the thread that demands") {
  {
    served_set w{{}};  // a worker that does nothing: a hint costs its sender a message
    REQUIRE(w.worker->start_by_hand());
    for (u32 i = 0; i < 1000; ++i) {
      (void)w.end().hint(layer_id{0}, std::vector<routed_id>{3});
    }
    CHECK(w.memory.starts == 0);
    CHECK(w.memory.polled == 0);
    CHECK(w.end().dropped_hints() == 998);
  }
  served_set w{{.layers = 4}};
  REQUIRE(w.worker->start());
  dice d{97};
  for (u32 i = 0; i < 200; ++i) {
    w.dev().run(
        {i % 3, {static_cast<routed_id>(d.below(16))}, {static_cast<routed_id>(d.below(16))}});
  }
  w.worker->stop();
  CHECK(w.total().issued[static_cast<u32>(intent::speculative)].value != 0);
  CHECK(w.memory.starter.load() != std::this_thread::get_id());
  CHECK(w.memory.foreign == 0);
}

namespace {

/// Steps the worker from inside one of its steps, as a second owner would.
void intrude(served_set& w) {
  std::thread owner([&] {
    while (w.worker->counters()[tally::requests] == 0) {
      w.worker->step();
    }
  });
  (void)w.worker->with([&](auto&) { w.worker->step(); });
  owner.join();
}

}  // namespace

TEST_CASE("R62 a second owner is found out") {
  served_set w{{}};
  REQUIRE(w.worker->start_by_hand());
#if defined(NDEBUG)
  u32 const s = w.end().publish(layer_id{0}, std::vector<routed_id>{1}).sequence;
  intrude(w);
  CHECK(w.worker->counters()[tally::intruders] == 1);
  w.settle();
  CHECK(w.end().wait(s, 1000));
  CHECK(is_sound(w.cache()));
#else
  pid_t const child = fork();
  if (child == 0) {
    (void)std::freopen("/dev/null", "w", stderr);
    std::signal(SIGABRT, SIG_DFL);
    intrude(w);
    _exit(0);
  }
  int ended = 0;
  REQUIRE(waitpid(child, &ended, 0) == child);
  CHECK(WIFSIGNALED(ended));
  CHECK(WTERMSIG(ended) == SIGABRT);
#endif
}

TEST_CASE("a message seen twice is served once, and a replayed graph is served each time") {
  std::vector<graph_step> const graph{{0, {1, 2}}, {1, {3, 4}}, {2, {5, 6}}};
  for (u32 first : {1u, u32_max - 40, 0x7FFF'FFF0u}) {
    served_set w{{.layers = 3, .shape = {4, 16}, .first = first}};
    REQUIRE(w.worker->start());
    w.dev().play(graph, 30);  // the device counts: every replay has numbers of its own
    CHECK(w.worker->counters()[tally::demands] == 90);
    CHECK(w.dev().report().from_slots == 90);
    CHECK(w.dev().report().wrong == 0);
    CHECK(w.memory.starts == 6);

    // the same number again: before and after its answer
    u32 const s = w.end().next_demand();
    for (u32 i = 0; i < 20; ++i) {
      REQUIRE(w.end().publish_again(s, layer_id{0}, graph[0].ids));
      if (i == 10) {
        REQUIRE(w.end().wait(s, u64_max));
      }
    }
    CHECK(w.end().wait(s, u64_max));
    w.dev().read(graph[0], s);
    w.end().finish(s);
    REQUIRE(w.worker->with([](auto&) {}));
    CHECK(w.worker->counters()[tally::demands] == 91);
    CHECK(w.worker->counters()[tally::answered] == 91);
    CHECK(w.dev().report().wrong == 0);
    w.worker->stop();
    CHECK(w.total().steps.value == 91);
    CHECK(is_sound(w.cache()));
  }
}

}  // namespace warmset::scenario
