// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <cstring>

#include "device_model.hpp"

using namespace warmset;
using namespace warmset::signal;
using namespace warmset_test;

namespace {

template <class T>
concept posts = requires(mailbox<> box, T value) {
  box.post(value);
};

}  // namespace

TEST_CASE("a mailbox takes 32-bit words alone") {
  STATIC_REQUIRE(posts<u32>);
  STATIC_REQUIRE_FALSE(posts<bool>);
  STATIC_REQUIRE_FALSE(posts<u8>);
  STATIC_REQUIRE_FALSE(posts<u16>);
  STATIC_REQUIRE_FALSE(posts<int>);
  STATIC_REQUIRE_FALSE(posts<u64>);
}

TEST_CASE("a wait is for at least, and wraps") {
  u32 word = u32_max - 1;
  mailbox<> box{&word};
  CHECK(box.has(u32_max - 1));
  CHECK(box.has(u32_max - 2));
  CHECK_FALSE(box.has(u32_max));
  box.post(1u);
  CHECK(box.has(u32_max));
  CHECK(box.has(1u));
  CHECK_FALSE(box.has(2u));
  wait_counters counters;
  CHECK(box.wait(0u, 0, counters));
  CHECK(counters.waited_empty == 0);
  CHECK(counters.waits == 1);
}

TEST_CASE("a wait ends at its deadline by the clock it is given") {
  u32 word = 0;
  std::atomic<u64> time{100};
  wait_counters counters;
  std::thread later([&] {
    for (int i = 0; i < 50; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      time += 10;
    }
  });
  CHECK(mailbox<>{&word}.wait(1u, 300, counters, set_clock{&time}) == status{reason::deadline});
  CHECK(time >= 400);
  later.join();
  CHECK(counters.waited_empty == 1);
}

TEST_CASE("every event in every state of a worker does what the table says") {
  using sizes = worked<>::sizes;
  for (u32 s = 0; s < n_worker_states; ++s) {
    for (u32 e = 0; e < n_worker_events; ++e) {
      for (bool by_hand : {false, true}) {
        worked<> w{sizes{}};
        auto const start = [&] { return by_hand ? w.worker->start_by_hand() : w.worker->start(); };
        worker_state const from = static_cast<worker_state>(s);
        if (from != worker_state::stopped) {
          REQUIRE(start());
        }
        if (from == worker_state::paused) {
          REQUIRE(w.worker->pause());
        } else if (from == worker_state::dead) {
          REQUIRE(w.worker->die());
        }
        REQUIRE(w.worker->state() == from);
        auto const step = next_of(from, static_cast<worker_event>(e));
        bool allowed = true;
        switch (static_cast<worker_event>(e)) {
        case worker_event::start:
          allowed = static_cast<bool>(start());
          break;
        case worker_event::stop:
          w.worker->stop();
          break;
        case worker_event::pause:
          allowed = static_cast<bool>(w.worker->pause());
          break;
        case worker_event::resume:
          allowed = static_cast<bool>(w.worker->resume());
          break;
        case worker_event::die:
          allowed = static_cast<bool>(w.worker->die());
          break;
        }
        INFO(name_of(from) << " and event " << e);
        CHECK(allowed == step.allowed);
        worker_state const to = step.allowed ? step.to : from;
        CHECK(w.worker->state() == to);
        CHECK(w.channels[0]->view().announced() == to);
        bool const up = to == worker_state::running;
        routed_id const ids[] = {1};
        CHECK(w.end().try_publish(layer_id{0}, ids).why ==
              (up ? reason::none : reason::worker_down));
        CHECK(w.end().hint(layer_id{0}, ids).why == (up ? reason::none : reason::worker_down));
      }
    }
  }
}
