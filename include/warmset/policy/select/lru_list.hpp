// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::select {

/// Doubly linked list of the demanded residents, least recently used first: the order of `coldest` over
/// `lru`, in O(1) per touch and per candidate whatever the capacity (plus the leased or pinned slots that
/// it passes over). Host only: a linked walk has one lane. Source: folklore.
struct lru_list {
  /// Links hold slot + 1; 0 = none, so that an all-zero block is an empty list.
  struct pool_state {
    u32 oldest;
    u32 newest;
  };
  struct slot_state {
    u32 older;
    u32 newer;
  };
  struct walk_state {
    u32 cursor;  ///< link of the next candidate
    u32 started;
  };
  static constexpr bool asks_again = false;
  static constexpr bool host_only = true;
  static constexpr char const* name = "lru_list";

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
  WARMSET_HD constexpr void on_touch(Slots const& slots, u32 slot) const noexcept {
    auto& pool = slots.selector_pool();
    u32 const link = slot + 1;
    if (pool.newest == link) {
      return;
    }
    auto& mine = slots.selector_slot(slot);
    if (mine.newer != 0) {  // linked, and not the newest
      unlink(slots, pool, mine);
    }
    mine.older = pool.newest;
    mine.newer = 0;
    (pool.newest != 0 ? slots.selector_slot(pool.newest - 1).newer : pool.oldest) = link;
    pool.newest = link;
  }

  template <class Slots>
  WARMSET_HD constexpr void on_remove(Slots const& slots, u32 slot) const noexcept {
    auto& pool = slots.selector_pool();
    auto& mine = slots.selector_slot(slot);
    if (mine.newer != 0 || pool.newest == slot + 1) {
      unlink(slots, pool, mine);
    }
    mine.older = 0;
    mine.newer = 0;
  }

  /// Whether the list holds exactly the slots for which `listed` holds, linked both ways. Audit asks.
  template <class Slots, class Listed>
  constexpr bool consistent(Slots const& slots, u32 n_slots, Listed&& listed) const {
    u32 n = 0;
    u32 previous = 0;
    for (u32 link = slots.selector_pool().oldest; link != 0;
         link = slots.selector_slot(link - 1).newer) {
      if (link > n_slots || ++n > n_slots || !listed(link - 1) ||
          slots.selector_slot(link - 1).older != previous) {
        return false;
      }
      previous = link;
    }
    u32 expected = 0;
    for (u32 s = 0; s < n_slots; ++s) {
      expected += listed(s) ? 1 : 0;
    }
    return previous == slots.selector_pool().newest && n == expected;
  }

 private:
  template <class Slots>
  WARMSET_HD static constexpr void unlink(Slots const& slots, pool_state& pool,
                                          slot_state const& mine) noexcept {
    (mine.older != 0 ? slots.selector_slot(mine.older - 1).newer : pool.oldest) = mine.newer;
    (mine.newer != 0 ? slots.selector_slot(mine.newer - 1).older : pool.newest) = mine.older;
  }
};

static_assert(selector_policy<lru_list>, "select::lru_list must satisfy selector_policy");

}  // namespace warmset::inline v0::select
