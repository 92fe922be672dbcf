// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/lanes.hpp"
#include "../signal/channel.hpp"
#include "device_step.hpp"

/// The device's side of host-directed mode: publish the routed ids, wait for the worker's answer, read, say so. Functions
/// of a lane group, of the words of a channel and of a clock, so that a test on the host runs what a kernel runs.
///
/// A clock has `now()`, in nanoseconds, and `pause()`, what a lane does between two looks at a word.
namespace warmset::inline v0::cuda {

/// Who has served a step in the end.
enum class step_served : u32 {
  nobody,  ///< all answers are -1: the step goes another way
  slots,   ///< the worker
  source,  ///< the waiting kernel, from mapped memory into scratch of its own
};

/// One step from its publication to its end. In device memory, one for each step of a graph that may be under way.
struct step_ticket {
  u32 sequence;   ///< of its demand
  u32 published;  ///< 0: it is in no ring
  u32 by;         ///< step_served
  u32 unused;
  u64 since;      ///< when it was published, by the device's clock
};

/// What a device has counted of its waits; it alone writes it.
struct directed_tally {
  u64 steps;
  u64 published;
  u64 from_slots;
  u64 from_source;
  u64 nobody;
  u64 not_published;  ///< the ring was full for too long, the worker down, or the step wider than a message
  u64 refused;        ///< answers that named no slots, or came in several passes
  u64 overdue;        ///< steps whose answer did not come by their deadline
  u64 hints;          ///< messages published
  u64 hint_waits_expired;
  u64 round_trip;  ///< nanoseconds from publication to the answer, over the steps from slots
};

/// What the host may change between two launches of a graph.
struct directed_limits {
  u64 deadline;   ///< nanoseconds after which a step is served from the source
  u64 hint_wait;  ///< nanoseconds that a wait for a hint lasts at most
};

/// What a stream of a device keeps of its channel. It counts here, so that each launch of a graph publishes new numbers.
struct directed_state {
  signal::producer_state demands;
  signal::producer_state hints;
  u32 refused_down;     ///< what the channel's words of these names say
  u32 refused_limited;
  u32 dropped;
  u32 dropped_ids;
  u32 vote;  ///< what the leader has found, for all lanes
  u32 why;
  u32 n_waves;
  u32 unused;
  directed_limits limits;
  directed_tally out;
};

/// Where the experts of one layer lie, as the waiting kernel sees them.
struct directed_place {
  bank_addresses const* banks;  ///< `slots` is index 0 of a bank; `source` has a row per layer of the pool
  u32 n_banks;
  u32 layer;
  u32 row;
  u32 n_experts;
  u32 n_slots;        ///< of the pool: slots from there on are scratch
  u32 first_slot;     ///< index of the pool's slot 0 in its banks
  u32 first_scratch;
  u32 first_own;      ///< index of the scratch that belongs to this stream's kernels
  u32 n_own;
  u32 is_mapped;      ///< whether kernels can read the source

  WARMSET_HD i32 bank_index(u32 slot) const noexcept {
    return slot == no_slot.value ? -1
                                 : static_cast<i32>(slot < n_slots ? first_slot + slot : first_scratch + (slot - n_slots));
  }
};

namespace detail {

/// Whether the worker answers nobody any more. A word that is no state is nobody's.
WARMSET_HD constexpr bool has_ended(u32 announced) noexcept {
  return announced != static_cast<u32>(signal::worker_state::running) &&
         announced != static_cast<u32>(signal::worker_state::paused);
}

/// As signal::push_as for the next number, by a group of lanes, whose state it is in common. All of them have the result.
template <signal::memory_words Words, lane_group Group, class Kind>
WARMSET_HD signal::push push_by_lanes(Group const& g, signal::ring_view<Kind> r, signal::producer_state& state,
                                      signal::message const& m, routed_id const* ids) noexcept {
  using view = signal::ring_view<Kind>;
  u32 const sequence = state.next;
  if (!signal::reached(state.consumed + r.shape.capacity, sequence)) {
    g.leader([&] { state.consumed = Words::load_acquire(r.at(view::consumed)); });
    if (!signal::reached(state.consumed + r.shape.capacity, sequence)) {
      return signal::push::full;
    }
  }
  u32 const n = min_of(m.n, r.shape.max_ids);
  g.for_each(n, [&](u32 i) { Words::store(r.cell(sequence) + view::ids + i, static_cast<u32>(ids[i])); });
  g.leader([&] {
    signal::detail::publish_head<Words>(r, sequence, m, n, ids);
    state.next = sequence + 1;
  });
  return signal::push::published;
}

/// Looks at the answer and, now and then, at the worker and the clock: what shall be done about the step.
WARMSET_SIDE_OF_WORDS
template <signal::memory_words Words, class Clock>
WARMSET_HD step_served poll_answer(signal::channel_view c, u32 sequence, bool is_mapped, directed_state& s,
                                   Clock const& clock) noexcept {
  constexpr u32 looks = 16;  // each look at a word of the host takes about a microsecond
  u64 const begin = clock.now();
  bool late = false;
  for (u32 i = 1;; ++i) {
    if (c.answers().template ready<Words>(sequence)) {
      return step_served::slots;
    }
    if (i % looks == 0 && has_ended(Words::load_acquire(c.at(signal::channel_view::state)))) {
      return c.answers().template ready<Words>(sequence) ? step_served::slots  // its last
             : is_mapped                                 ? step_served::source
                                                         : step_served::nobody;
    }
    if (!late && clock.now() - begin >= s.limits.deadline) {
      late = true;
      ++s.out.overdue;
      if (is_mapped) {
        return step_served::source;
      }
    }
    clock.pause();
  }
}

/// The first place at which the id of place j stands.
WARMSET_HD constexpr u32 first_of(routed_id const* ids, u32 j) noexcept {
  u32 i = 0;
  while (ids[i] != ids[j]) {
    ++i;
  }
  return i;
}

/// Brings the experts of a step from mapped memory into the scratch of this stream. False where there are more of them.
WARMSET_SIDE_OF_WORDS
template <lane_group Group, class Copy>
WARMSET_HD bool serve_from_source(Group const& g, directed_place const& p, routed_id const* ids, u32 n_ids, i32* slots,
                                  Copy const& copy) {
  u32 const n = g.append_in_order(
      n_ids,
      [&](u32 i) { return static_cast<u32>(ids[i]) < p.n_experts && first_of(ids, i) == i; },
      [&](u32 i, u32 at) { slots[i] = static_cast<i32>(p.first_own + at); });
  if (n > p.n_own) {
    return false;
  }
  g.for_each(n_ids, [&](u32 j) {
    u32 const first = first_of(ids, j);
    if (static_cast<u32>(ids[j]) >= p.n_experts) {
      slots[j] = -1;
    } else if (first != j) {
      slots[j] = slots[first];
    }
  });
  for (u32 i = 0; i < n_ids; ++i) {
    if (static_cast<u32>(ids[i]) < p.n_experts && first_of(ids, i) == i) {
      for (u32 bank = 0; bank < p.n_banks; ++bank) {
        bank_addresses const& b = p.banks[bank];
        copy(b.slots + static_cast<u64>(slots[i]) * b.bytes, b.source[p.row] + static_cast<u64>(ids[i]) * b.bytes, b.bytes);
      }
    }
  }
  return true;
}

}  // namespace detail

/// Publishes a step's routed ids as a demand. Waits only where the ring is full: until there is room, until the worker
/// has ended, or for the deadline; the step is then in no ring, and the wait for it does not wait.
WARMSET_SIDE_OF_WORDS
template <signal::memory_words Words, lane_group Group, class Clock>
WARMSET_HD void publish_on_device(Group const& g, signal::channel_view c, directed_state& s, step_ticket& t, u32 layer,
                                  phase in_phase, routed_id const* ids, u32 n_ids, Clock const& clock) noexcept {
  u32 const sequence = s.demands.next;
  signal::push pushed = signal::push::full;
  if (n_ids <= c.shape.max_ids) {
    u64 const begin = clock.now();
    for (;;) {
      pushed = detail::push_by_lanes<Words>(g, c.demands(), s.demands,
                                            {layer, static_cast<u32>(in_phase), 0, n_ids}, ids);
      if (pushed != signal::push::full) {
        break;
      }
      g.leader([&] {
        s.vote = detail::has_ended(Words::load_acquire(c.at(signal::channel_view::state))) ||
                         clock.now() - begin >= s.limits.deadline
                     ? 0
                     : 1;
        clock.pause();
      });
      if (s.vote == 0) {
        break;
      }
    }
  }
  g.leader([&] {
    bool const is_published = pushed == signal::push::published;
    t = {sequence, is_published ? 1u : 0u, static_cast<u32>(step_served::nobody), 0, clock.now()};
    ++s.out.steps;
    ++(is_published ? s.out.published : s.out.not_published);
  });
}

/// Waits until the bytes of a published step are in place, and answers every id with its index in the banks; -1 for
/// padding and for ids out of range. Past the deadline, and where the worker has ended or refuses, the experts are read
/// from mapped memory into the stream's own scratch, and the ticket says so; where they cannot be, the wait goes on until
/// the worker has ended, and the step is nobody's.
///
/// @param copy  copy(to, from, bytes) by all lanes
WARMSET_SIDE_OF_WORDS
template <signal::memory_words Words, lane_group Group, class Clock, class Copy>
WARMSET_HD void await_on_device(Group const& g, signal::channel_view c, directed_state& s, step_ticket& t,
                                directed_place const& p, routed_id const* ids, u32 n_ids, i32* slots, Clock const& clock,
                                Copy const& copy) noexcept {
  u32 const sequence = t.sequence;
  g.leader([&] {
    s.why = s.n_waves = 0;
    step_served const by = t.published != 0 ? detail::poll_answer<Words>(c, sequence, p.is_mapped != 0, s, clock)
                           : p.is_mapped != 0 ? step_served::source
                                              : step_served::nobody;
    s.vote = static_cast<u32>(by);
  });
  step_served by = static_cast<step_served>(s.vote);
  if (by == step_served::slots) {
    signal::answers_view const answers = c.answers();
    // all at once: each of these loads crosses the bus
    g.for_each(n_ids + 2, [&](u32 i) {
      if (i == 0) {
        s.why = Words::load(answers.cell(sequence) + signal::answers_view::why);
      } else if (i == 1) {
        s.n_waves = Words::load(answers.cell(sequence) + signal::answers_view::n_waves);
      } else {
        slots[i - 2] = p.bank_index(Words::load(answers.slots(sequence) + (i - 2)));
      }
    });
    if (s.why != 0 || s.n_waves > 1) {
      by = p.is_mapped != 0 ? step_served::source : step_served::nobody;
    }
  }
  if (by == step_served::source && !detail::serve_from_source(g, p, ids, n_ids, slots, copy)) {
    by = step_served::nobody;
  }
  if (by == step_served::nobody) {
    g.for_each(n_ids, [&](u32 j) { slots[j] = -1; });
  }
  g.leader([&] {
    t.by = static_cast<u32>(by);
    s.out.round_trip += by == step_served::slots ? clock.now() - t.since : 0;
    s.out.refused += s.why != 0 || s.n_waves > 1 ? 1 : 0;
    ++(by == step_served::slots    ? s.out.from_slots
       : by == step_served::source ? s.out.from_source
                                   : s.out.nobody);
  });
}

/// Says that the slots of a step, and of those before it, have been read. One lane.
WARMSET_SIDE_OF_WORDS
template <signal::memory_words Words>
WARMSET_HD void finish_on_device(signal::channel_view c, step_ticket const& t) noexcept {
  if (t.published != 0) {
    Words::store_release(c.at(signal::channel_view::finished), t.sequence);
  }
}

/// Publishes hints for one layer, surest first; never waits. What is not published is counted in the channel's words.
WARMSET_SIDE_OF_WORDS
template <signal::memory_words Words, lane_group Group>
WARMSET_HD void hint_on_device(Group const& g, signal::channel_view c, directed_state& s, u32 layer,
                               routed_id const* ids, u32 n_ids, u32 ahead) noexcept {
  using ring = signal::ring_view<signal::hint_ring>;
  if (n_ids > c.shape.max_ids) {
    g.leader([&] {
      s.refused_limited += n_ids;
      Words::store(c.at(signal::channel_view::refused_limited), s.refused_limited);
    });
    return;
  }
  g.leader([&] {
    s.vote = Words::load_acquire(c.at(signal::channel_view::state)) == static_cast<u32>(signal::worker_state::running);
    if (s.vote == 0) {
      s.refused_down += n_ids;
      Words::store(c.at(signal::channel_view::refused_down), s.refused_down);
    }
  });
  if (s.vote == 0) {
    return;
  }
  signal::push const pushed = detail::push_by_lanes<Words>(
      g, c.hints(), s.hints, {layer, ahead, s.demands.next - 1, n_ids}, ids);
  g.leader([&] {
    if (pushed == signal::push::published) {
      ++s.out.hints;
      return;
    }
    ++s.dropped;
    s.dropped_ids += n_ids;
    Words::store(c.hints().at(ring::dropped), s.dropped);
    Words::store(c.hints().at(ring::dropped_ids), s.dropped_ids);
  });
}

/// Waits until the worker has dealt with the last hint, for a while; then nothing is lost. One lane.
WARMSET_SIDE_OF_WORDS
template <signal::memory_words Words, class Clock>
WARMSET_HD void await_hint_on_device(signal::channel_view c, directed_state& s, Clock const& clock) noexcept {
  u64 const begin = clock.now();
  while (!signal::reached(Words::load_acquire(c.at(signal::channel_view::hints_done)), s.hints.next - 1)) {
    if (clock.now() - begin >= s.limits.hint_wait) {
      ++s.out.hint_waits_expired;
      return;
    }
    clock.pause();
  }
}

/// The state of a device that begins where the channel stands. The caller has the channel's producing ends.
inline directed_state directed_state_of(signal::channel_view c, directed_limits limits) noexcept {
  using words = signal::host_words;
  using demand = signal::ring_view<signal::demand_ring>;
  using hint = signal::ring_view<signal::hint_ring>;
  directed_state s{};
  s.demands = {words::load_acquire(c.demands().at(demand::published)) + 1, words::load_acquire(c.demands().at(demand::consumed))};
  s.hints = {words::load_acquire(c.hints().at(hint::published)) + 1, words::load_acquire(c.hints().at(hint::consumed))};
  s.refused_down = words::load(c.at(signal::channel_view::refused_down));
  s.refused_limited = words::load(c.at(signal::channel_view::refused_limited));
  s.dropped = words::load(c.hints().at(hint::dropped));
  s.dropped_ids = words::load(c.hints().at(hint::dropped_ids));
  s.limits = limits;
  return s;
}

}  // namespace warmset::inline v0::cuda
