// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/integers.hpp"

namespace warmset::inline v0::signal {

/// Where a worker stands, as the word says that the other side reads.
enum class worker_state : u8 {
  stopped,  ///< takes nothing; who waits is told
  running,
  paused,  ///< takes nothing for now; who waits goes on waiting
  dead,    ///< its thread has ended without being stopped; what it owed is still owed
};
enum class worker_event : u8 { start, stop, pause, resume, die };

inline constexpr u32 n_worker_states = 4;
inline constexpr u32 n_worker_events = 5;

constexpr char const* name_of(worker_state s) noexcept {
  constexpr char const* names[n_worker_states] = {"stopped", "running", "paused", "dead"};
  return static_cast<u32>(s) < n_worker_states ? names[static_cast<u32>(s)] : "unknown";
}

namespace detail {

struct worker_step {
  bool allowed;
  worker_state to;
};

inline constexpr worker_step no_step{false, worker_state::stopped};
constexpr worker_step to(worker_state s) noexcept {
  return {true, s};
}

//                                       start                       stop                        pause
//                                       resume                      die
inline constexpr worker_step worker_table[n_worker_states][n_worker_events] = {
    /* stopped */ {to(worker_state::running), to(worker_state::stopped), no_step, no_step, no_step},
    /* running */
    {no_step, to(worker_state::stopped), to(worker_state::paused), no_step, to(worker_state::dead)},
    /* paused  */
    {no_step, to(worker_state::stopped), no_step, to(worker_state::running),
     to(worker_state::dead)},
    /* dead    */ {to(worker_state::running), to(worker_state::stopped), no_step, no_step, no_step},
};

}  // namespace detail

/// What an event does to a worker: where it goes, or that the event is refused and nothing changes.
constexpr detail::worker_step next_of(worker_state s, worker_event e) noexcept {
  return detail::worker_table[static_cast<u32>(s)][static_cast<u32>(e)];
}

namespace detail {

consteval bool every_worker_state_is_reached() {
  bool seen[n_worker_states] = {true};
  for (u32 round = 0; round < n_worker_states; ++round) {
    for (u32 s = 0; s < n_worker_states; ++s) {
      for (u32 e = 0; seen[s] && e < n_worker_events; ++e) {
        worker_step const step = worker_table[s][e];
        seen[static_cast<u32>(step.to)] = seen[static_cast<u32>(step.to)] || step.allowed;
      }
    }
  }
  for (bool s : seen) {
    if (!s) {
      return false;
    }
  }
  return true;
}

consteval bool every_worker_stops() {
  for (u32 s = 0; s < n_worker_states; ++s) {
    worker_step const step = next_of(static_cast<worker_state>(s), worker_event::stop);
    if (!step.allowed || step.to != worker_state::stopped) {
      return false;
    }
  }
  return true;
}

consteval bool goes(worker_state from, worker_state to_state) {
  for (u32 e = 0; e < n_worker_events; ++e) {
    worker_step const step = next_of(from, static_cast<worker_event>(e));
    if (step.allowed && step.to == to_state) {
      return true;
    }
  }
  return false;
}

}  // namespace detail

static_assert(detail::every_worker_state_is_reached(), "every state of a worker is reached");
static_assert(detail::every_worker_stops(), "a worker can be stopped in every state");
static_assert(!detail::goes(worker_state::stopped, worker_state::paused) &&
                  !detail::goes(worker_state::stopped, worker_state::dead),
              "what does not run cannot pause or die");
static_assert(!detail::goes(worker_state::dead, worker_state::paused), "the dead do not pause");

}  // namespace warmset::inline v0::signal
