// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "settle.hpp"

namespace warmset::inline v0 {

/// Changes the capacity within the reserved slots. Shrinking retires idle surplus slots at once and drains
/// the leased and loading ones; growing is the only way by which a retired slot returns. Base addresses and
/// the residency of the other slots stay. One lane; O(reserved slots).
///
/// Refused with `limited` where `capacity` exceeds the reservation. It may go below pins and floors, down to
/// 0: the steps that then do not fit are overflow steps.
template <class Policy>
WARMSET_HD status resize(table_writer<Policy> const& t, u32 capacity, outcome& out) {
  block_header& h = t.header();
  if (capacity > h.n_slots) {
    return {reason::limited};
  }
  if (capacity == h.capacity) {
    return done;
  }
  for (u32 s = capacity; s < h.capacity; ++s) {
    u32 const word = t.word(s);
    switch (slot_word::state(word)) {
      case slot_state::free:
        t.word(s) = slot_word::of(slot_state::retired);
        ++h.retired;
        ++out.retired;
        break;
      case slot_state::reserved:
      case slot_state::resident:
        detail::start_draining<Policy>(t, s, false, out);
        break;
      case slot_state::draining:
        t.word(s) = word & ~slot_word::returns;
        break;
      case slot_state::retired:
        break;
    }
  }
  for (u32 s = h.capacity; s < capacity; ++s) {
    u32 const word = t.word(s);
    if (slot_word::state(word) == slot_state::retired) {
      detail::make_free<Policy>(t, s);
      --h.retired;
    } else {
      t.word(s) = word | slot_word::returns;
    }
  }
  h.capacity = capacity;
  h.free_hint = min_of(h.free_hint, capacity);
  ++h.version;
  return done;
}

/// Forgets the residency of one row, or of all with `row = n_layers`: every look-up misses until it is
/// loaded again. Leased and loading slots drain and come back free. Scores and clocks stay. Use it where
/// the storage was reallocated or its source replaced. One lane; O(slots).
template <class Policy>
WARMSET_HD void invalidate(table_writer<Policy> const& t, u32 row, outcome& out) {
  block_header& h = t.header();
  bool const all = row >= h.n_layers;
  for (u32 s = 0; s < h.capacity; ++s) {
    slot_state const state = slot_word::state(t.word(s));
    bool const holds = state == slot_state::reserved || state == slot_state::resident;
    if (holds && (all || table_writer<Policy>::row_of(t.owner(s)) == row)) {
      detail::start_draining<Policy>(t, s, true, out);
    }
  }
  h.storage_generation += all ? 1 : 0;
  ++h.version;
}

/// Evicts residents that `keep` does not demand, in the selector's order, until it is enough. Returns how many. For
/// owners whose limit is not a number of slots (a byte budget over several geometries, in replay). One lane.
///
/// @param enough  called before each eviction with nothing; true ends it
/// @param evicted called with (row, expert) of each victim
template <class Policy, class Enough, class Evicted>
u32 reclaim(table_writer<Policy> const& t, u32 model_tick, plan_of<Policy> const& keep,
            Enough&& enough, Evicted&& evicted, outcome& out) {
  table_reader<Policy> const reading{t};  // outlives the view of it
  detail::candidate_view<Policy> const candidates{reading, model_tick, keep.row};
  auto const is_kept = [&](u32 owner) {
    bool kept = false;
    for (u32 i = 0; table_writer<Policy>::row_of(owner) == keep.row && i < keep.n && !kept; ++i) {
      kept = keep.expert[i] == table_writer<Policy>::expert_of(owner);
    }
    return kept;
  };
  u32 n = 0;
  while (!enough()) {
    // a walk for each: it is applied before its eviction, as commit does
    typename Policy::selector::walk_state walk{};
    slot_id victim = no_slot;
    do {
      victim = t.parts().selector.next(one_lane{}, candidates, walk);
    } while (victim != no_slot && is_kept(t.owner(victim.value)));
    if (victim == no_slot) {
      break;
    }
    u32 const owner = t.owner(victim.value);
    t.parts().selector.apply(t, walk);
    detail::evict<Policy>(t, victim.value, t.word(victim.value), intent::demand, model_tick, out);
    t.parts().selector.on_remove(t, victim.value);
    --t.header().resident;
    detail::make_free<Policy>(t, victim.value);
    evicted(table_writer<Policy>::row_of(owner), table_writer<Policy>::expert_of(owner));
    ++n;
  }
  out.evicted[static_cast<u32>(intent::demand)] += n;
  t.header().version += n != 0 ? 1 : 0;
  return n;
}

/// Keeps an expert: while resident it is no victim. Refused with `limited` where fewer than `k` unpinned
/// slots would remain. One lane; O(1).
template <class Policy>
WARMSET_HD status pin(table_writer<Policy> const& t, u32 row, u32 expert, u32 k) {
  block_header& h = t.header();
  if (row >= h.n_layers || expert >= t.layer(row).n_experts) {
    return {reason::out_of_range};
  }
  expert_record& record = t.expert(t.index_of(row, expert));
  if ((record.where & expert_word::pinned) != 0) {
    return done;
  }
  if (u64{h.pinned} + 1 + k > h.capacity) {
    return {reason::limited};
  }
  record.where |= expert_word::pinned;
  u32 const where = record.where & expert_word::slot_mask;
  if (where != 0) {
    t.word(where - 1) |= slot_word::pinned;
  }
  ++h.pinned;
  ++h.version;
  return done;
}

/// Ends a pin. One lane; O(1).
template <class Policy>
WARMSET_HD status unpin(table_writer<Policy> const& t, u32 row, u32 expert) {
  block_header& h = t.header();
  if (row >= h.n_layers || expert >= t.layer(row).n_experts) {
    return {reason::out_of_range};
  }
  expert_record& record = t.expert(t.index_of(row, expert));
  if ((record.where & expert_word::pinned) == 0) {
    return done;
  }
  record.where &= ~expert_word::pinned;
  u32 const where = record.where & expert_word::slot_mask;
  if (where != 0) {
    t.word(where - 1) &= ~slot_word::pinned;
  }
  --h.pinned;
  ++h.version;
  return done;
}

}  // namespace warmset::inline v0
