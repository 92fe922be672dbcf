// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"
#include "links.hpp"

namespace warmset::inline v0::select {

/// The part of a selector whose slots are one queue, offered from its oldest on: all but what a touch does to
/// it. O(1) per candidate and removal (plus the leased or pinned slots that a walk passes over). Host only: a
/// linked walk has one lane.
struct slot_list {
  using pool_state = queue_ends;
  using slot_state = queue_links;
  using expert_state = no_state;
  struct walk_state {
    u32 cursor;  ///< link of the next candidate
    u32 started;
  };
  static constexpr bool asks_again = false;
  static constexpr bool host_only = true;

  template <lane_group Group, class Slots>
  WARMSET_HD constexpr slot_id next(Group const&, Slots const& slots, walk_state& walk) const {
    if (walk.started == 0) {
      walk.started = 1;
      walk.cursor = slots.selector_pool().oldest;
    }
    while (walk.cursor != 0) {
      u32 const slot = walk.cursor - 1;
      walk.cursor = slots.selector_slot(slot).newer;
      if (slots.evictable(slot)) {
        return slot_id{slot};
      }
    }
    return no_slot;
  }

  template <class Slots>
  WARMSET_HD constexpr void apply(Slots const&, walk_state const&) const noexcept {}

  template <class Slots>
  WARMSET_HD constexpr void on_remove(Slots const& slots, u32 slot) const noexcept {
    auto& pool = slots.selector_pool();
    if (is_linked(pool, slot + 1, slots.selector_slot(slot))) {
      unlink(pool, slot + 1, slot_links(slots));
    }
  }

  /// Whether the list holds exactly the slots for which `listed` holds, linked both ways. Audit asks.
  template <class Slots, class Listed>
  constexpr bool consistent(Slots const& slots, u32 n_slots, Listed&& listed) const {
    u32 expected = 0;
    for (u32 s = 0; s < n_slots; ++s) {
      auto const& mine = slots.selector_slot(s);
      if (!listed(s) && (mine.older != 0 || mine.newer != 0)) {
        return false;
      }
      expected += listed(s) ? 1 : 0;
    }
    return expected == checked_length(slots.selector_pool(), n_slots, slot_links(slots),
                                      [&](u32 link) { return listed(link - 1); });
  }
};

}  // namespace warmset::inline v0::select
