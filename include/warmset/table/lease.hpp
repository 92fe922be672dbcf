// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "settle.hpp"

namespace warmset::inline v0 {

/// Takes a lease on every slot that a step reads, scratch included: until it is released none is evicted,
/// reused or handed out again. For committed steps and for overflow steps alike. One lane; O(distinct ids).
///
/// A plan spanning several waves leases each scratch slot once.
template <class Policy>
WARMSET_HD void acquire(table_writer<Policy> const& t, plan_of<Policy> const& p) {
  WARMSET_ASSERT(p.kind != plan_kind::busy, "a busy plan has no slots");
  block_header& h = t.header();
  for (u32 i = 0; i < p.n; ++i) {
    if (p.slot[i] < h.n_slots) {
      t.word(p.slot[i]) += slot_word::one_lease;
      ++h.leases;
    } else if (p.wave[i] == 0) {
      t.scratch_word(p.slot[i] - h.n_slots) += slot_word::one_lease;
    }
  }
  h.version += p.n != 0 ? 1 : 0;
}

/// Ends what acquire began, for the slots of the same plan. Call it once per acquire; the slots may have
/// drained meanwhile. One lane; O(n_slots).
///
/// @param slots  the distinct slots that were leased
template <class Policy>
WARMSET_HD void release(table_writer<Policy> const& t, u32 const* slots, u32 n_slots, outcome& out) {
  block_header& h = t.header();
  for (u32 i = 0; i < n_slots; ++i) {
    u32 const slot = slots[i];
    u32& word = slot < h.n_slots ? t.word(slot) : t.scratch_word(slot - h.n_slots);
    WARMSET_ASSERT(slot_word::leases(word) != 0, "a lease is released twice");
    word -= slot_word::one_lease;
    if (slot < h.n_slots) {
      --h.leases;
      detail::end_draining_if_idle<Policy>(t, slot, out);
    }
  }
  h.version += n_slots != 0 ? 1 : 0;
}

/// The distinct slots that acquire leases for a plan; returns how many were written to `slots`.
template <class Policy>
WARMSET_HD u32 leased_slots(table_reader<Policy> const& t, plan_of<Policy> const& p, u32* slots) {
  u32 n = 0;
  for (u32 i = 0; i < p.n; ++i) {
    if (p.slot[i] < t.header().n_slots || p.wave[i] == 0) {
      slots[n++] = p.slot[i];
    }
  }
  return n;
}

}  // namespace warmset::inline v0
