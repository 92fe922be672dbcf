// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/arrival.hpp"
#include "commit.hpp"

namespace warmset::inline v0 {

namespace detail {

/// A draining slot that nothing holds any more becomes retired, or free where it `returns`. One lane.
template <class Policy>
WARMSET_HD void end_draining_if_idle(table_writer<Policy> const& t, u32 slot, outcome& out) {
  u32 const word = t.word(slot);
  if (slot_word::state(word) != slot_state::draining || slot_word::leases(word) != 0 ||
      (word & slot_word::loading) != 0) {
    return;
  }
  block_header& h = t.header();
  --h.draining;
  if ((word & slot_word::returns) != 0) {
    make_free<Policy>(t, slot);
  } else {
    t.word(slot) = slot_word::of(slot_state::retired);
    t.owner(slot) = 0;
    ++h.retired;
    ++out.retired;
  }
}

/// Unmaps the expert of a slot that something still holds; the slot drains. One lane.
template <class Policy>
WARMSET_HD void start_draining(table_writer<Policy> const& t, u32 slot, bool returns, outcome& out) {
  u32 const word = t.word(slot);
  bool const loading = slot_word::state(word) == slot_state::reserved;
  detach<Policy>(t, slot, out);
  t.owner(slot) = 0;
  if constexpr (speculates<Policy>) {
    t.target(slot) = 0;
  }
  // a transfer keeps the marks by which settle will count its end
  u32 const marks = loading ? (word & (slot_word::unused | slot_word::from_hint)) | slot_word::loading : 0;
  t.word(slot) = slot_word::leases(word) * slot_word::one_lease | marks |
                 slot_word::of(slot_state::draining) | (returns ? slot_word::returns : 0);
  out.dropped += loading ? 0 : 1;
  ++t.header().draining;
  end_draining_if_idle<Policy>(t, slot, out);
}

/// Counts a failed transfer for whoever still owns it.
template <class Policy>
WARMSET_HD void count_failure(u32 word, outcome& out) {
  bool const hinted = (word & slot_word::from_hint) != 0;
  if (hinted && (word & slot_word::unused) == 0) {
    ++out.late_failed;
  } else {
    ++out.failed[static_cast<u32>(hinted ? intent::speculative : intent::demand)];
  }
}

/// Takes in what the mover published of the transfers in flight from entry `from` of their list on, however they
/// ended; the entries before are the list's no more. One lane.
template <class Policy>
WARMSET_HD WARMSET_APART void take_in(table_writer<Policy> const& t, u32 const* arrivals, u32 from, outcome& out) {
  block_header& h = t.header();
  u32 kept = 0;
  u32 const n = h.in_flight;
  for (u32 j = from; j < n; ++j) {
    u32 const slot = t.in_flight(j);
    u32 const news = arrivals[slot];
    t.in_flight(j) = 0;
    transfer const state = arrival::is_of(news, t.generation(slot)) ? arrival::state(news) : transfer::loading;
    if (state != transfer::arrived && state != transfer::failed) {
      t.in_flight(kept++) = slot;
      continue;
    }
    u32 const word = t.word(slot);
    bool const arrived = state == transfer::arrived;
    if (arrived) {
      ++out.arrived[static_cast<u32>((word & slot_word::from_hint) != 0 ? intent::speculative
                                                                      : intent::demand)];
    }
    if (slot_word::state(word) == slot_state::draining) {
      if (!arrived) {
        count_failure<Policy>(word, out);
      } else if ((word & slot_word::unused) != 0) {
        ++out.evicted_unused;
      }
      t.word(slot) = word & ~(slot_word::loading | slot_word::from_hint | slot_word::unused);
      end_draining_if_idle<Policy>(t, slot, out);
    } else if (arrived) {
      t.word(slot) = (word & ~(slot_word::state_mask | slot_word::from_hint)) |
                     slot_word::of(slot_state::resident);
      --h.reserved;
      ++h.resident;
    } else {
      count_failure<Policy>(word, out);
      if (slot_word::leases(word) == 0) {
        detach<Policy>(t, slot, out);
        make_free<Policy>(t, slot);
      } else {
        // a step that demanded it still holds the slot: nobody else may write it yet
        start_draining<Policy>(t, slot, true, out);
        t.word(slot) &= ~(slot_word::loading | slot_word::from_hint);
      }
    }
  }
  if (kept != n) {
    h.in_flight = kept;
    ++h.version;
  }
}

}  // namespace detail

/// Takes in what the mover published: arrived becomes resident, failed becomes free (the victim stays
/// evicted, the touches stay), a draining slot that is idle becomes retired. The first act of every
/// operation; policy-free. Does not wait for anything.
///
/// @param arrivals  one word per pool slot; a word of another generation is ignored
/// Complexity: O(transfers in flight); O(1) where none is.
template <class Policy, lane_group Group>
WARMSET_HD void settle(Group const& g, table_writer<Policy> const& t, u32 const* arrivals,
                       outcome& out) {
  block_header& h = t.header();
  if (h.in_flight == 0) {
    return;
  }
  // nearly all transfers end like this: arrived, nothing else having become of the slot
  u32 const n = h.in_flight;
  auto const is_plain = [&](u32 j) {
    u32 const slot = t.in_flight(j);
    u32 const word = t.word(slot);
    bool const waits = speculates<Policy> ? slot_word::state(word) == slot_state::reserved
                                          : word == slot_word::of(slot_state::reserved);
    return arrivals[slot] == arrival::word(t.generation(slot), transfer::arrived) && waits;
  };
  auto const become_resident = [&](u32 j) {
    u32& word = t.word(t.in_flight(j));
    u32 const kept = speculates<Policy> ? word & ~(slot_word::state_mask | slot_word::from_hint) : 0;
    word = kept | slot_word::of(slot_state::resident);
    t.in_flight(j) = 0;
  };
  [[maybe_unused]] auto const is_of_hint = [&](u32 j) { return (t.word(t.in_flight(j)) & slot_word::from_hint) != 0; };
  u32 plain = 0;
  u32 hinted = 0;
  if constexpr (Group::is_single) {
    for (; plain < n && is_plain(plain); ++plain) {
      if constexpr (speculates<Policy>) {
        hinted += is_of_hint(plain) ? 1 : 0;
      }
      become_resident(plain);
    }
  } else {
    plain = g.any(n, [&](u32 j) { return !is_plain(j); }) ? 0 : n;
    if constexpr (speculates<Policy>) {
      hinted = g.count(plain, is_of_hint);
    }
    g.for_each(plain, become_resident);
  }
  g.leader([&] {
    h.reserved -= plain;
    h.resident += plain;
    detail::add_unread(g, out.arrived[static_cast<u32>(intent::demand)], plain - hinted);
    if constexpr (speculates<Policy>) {
      detail::add_unread(g, out.arrived[static_cast<u32>(intent::speculative)], hinted);
    }
    if (plain == n) [[likely]] {
      h.in_flight = 0;
      ++h.version;
    } else {
      detail::take_in<Policy>(t, arrivals, plain, out);
    }
  });
}

}  // namespace warmset::inline v0
