// SPDX-License-Identifier: Apache-2.0
// Real threads on the atomic wrapper: what one side writes while it is inside is whole on the other side
// after a transition. The sides' data are plain memory, so that the thread sanitizer sees what the gate misses.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/gate/hand_over.hpp>

namespace warmset::gate {
namespace {

struct side {
  u32 epoch = 0;
  u64 counts[3] = {};  // of each actor
};

struct real_clock {
  u64 now() const noexcept { return 0; }
  void sleep_until(u64) const { std::this_thread::yield(); }
};

/// A tenth of the seconds that the stress tests are given; a third of a second where nobody says.
std::chrono::milliseconds duration() {
  char const* const seconds = std::getenv("WARMSET_STRESS_SECONDS");
  long const given = seconds != nullptr ? std::atol(seconds) * 100 : 300;
  return std::chrono::milliseconds{std::clamp(given, 100L, 6000L)};
}

}  // namespace

TEST_CASE("two planners one worker and one transition on threads") {
  references memory;
  authority groups{1};
  REQUIRE(groups.publish(0, holder::host, memory));
  side of[n_holders];
  std::atomic<bool> stop{false};
  u64 done_by[3] = {};
  std::atomic<u64> stale{0}, closed{0};

  auto const act = [&](u32 me, holder who) {
    side& mine = of[static_cast<u32>(who)];
    u32 plan_epoch = 0;
    u32 plans = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      u32 const epoch = groups.look(0).epoch;
      pass const may = groups.enter(0, who, epoch);
      if (!may) {
        closed += may.why == reason::gate_closed ? 1 : 0;
        if (may.why == reason::gate_closed) {
          groups.wait_while_closed(0);
        } else {
          std::this_thread::yield();
        }
        continue;
      }
      if (mine.epoch == epoch) {
        ++mine.counts[me];
        ++done_by[me];
        plan_epoch = epoch;
      } else {
        std::abort();  // the holder's table is of the group's epoch
      }
      if (who == holder::worker) {
        if (!groups.reenter(0, who, epoch)) {
          std::abort();
        }
        ++mine.counts[me];
        ++done_by[me];
        groups.leave(0);
      }
      groups.leave(0);
      // now and then the group changes hands between plan and commit, and comes back
      if (me == 0 && ++plans % 16 == 0) {
        auto const is_back = [&] {
          group_state const now = groups.look(0);
          return now.who == who && now.epoch != plan_epoch;
        };
        while (!is_back() && !stop.load(std::memory_order_relaxed)) {
          std::this_thread::yield();
        }
      }
      pass const commit = groups.enter(0, who, plan_epoch);
      stale += commit.why == reason::stale_epoch ? 1 : 0;
      if (commit) {  // that plan is still good
        if (mine.epoch != plan_epoch) {
          std::abort();
        }
        ++mine.counts[me];
        ++done_by[me];
        groups.leave(0);
      }
    }
  };

  std::vector<std::thread> threads;
  threads.emplace_back(act, 0u, holder::host);
  threads.emplace_back(act, 1u, holder::host);
  threads.emplace_back(act, 2u, holder::worker);
  u32 completed = 0, failed = 0;
  auto const begin = std::chrono::steady_clock::now();
  auto const goes_on = [&] {  // longer where nobody has been refused yet, and to an end
    auto const passed = std::chrono::steady_clock::now() - begin;
    return passed < duration() || ((stale == 0 || closed == 0) && passed < 20 * duration());
  };
  real_clock clock;
  while (goes_on() || completed % 2 != 0) {
    if (completed / 2 % 32 == 0) {  // either holder gets time now and then
      std::this_thread::sleep_for(std::chrono::microseconds(1));
    }
    holder const from = groups.look(0).who;
    holder const to = from == holder::host ? holder::worker : holder::host;
    bool const fails = (completed + failed) % 5 == 3;
    auto const copy = [&](u32 epoch) {
      of[static_cast<u32>(to)] = of[static_cast<u32>(from)];
      of[static_cast<u32>(to)].epoch = epoch;
      return fails ? status{reason::no_memory} : done;
    };
    if (completed % 2 == 0) {
      hand_over(groups, 0, to, copy, clock, {.tries = 1000, .apart = 0}).is_ready() ? ++completed
                                                                                    : ++failed;
    } else {  // the same with a transition that sleeps until nobody is inside
      authority::transition moving = groups.begin(0, to);
      REQUIRE(moving);
      if (completed / 2 % 32 == 1) {  // who comes now finds it closed
        std::this_thread::sleep_for(std::chrono::microseconds(1));
      }
      moving.wait_until_idle();
      REQUIRE(moving.prepare());
      if (copy(moving.next_epoch())) {
        REQUIRE(moving.complete());
        ++completed;
      } else {
        moving.fail();
        ++failed;
      }
    }
  }
  stop = true;
  for (std::thread& t : threads) {
    t.join();
  }
  group_state const at_end = groups.look(0);
  CHECK(at_end == group_state{completed, 0, gate_state::open, holder::host, holder::nobody});
  side const& whole = of[static_cast<u32>(at_end.who)];
  for (u32 i = 0; i < 3; ++i) {
    CHECK(whole.counts[i] == done_by[i]);
  }
  CHECK(completed > 2);
  CHECK(done_by[2] != 0);
  CHECK(failed > 0);
  CHECK(stale != 0);
  CHECK(closed != 0);
  WARN(completed << " transitions, " << failed << " failed, " << done_by[0] + done_by[1]
                 << " uses by planners, " << done_by[2] << " by the worker; " << stale
                 << " commits refused as stale, " << closed << " entries at a closed gate");
}

}  // namespace warmset::gate
