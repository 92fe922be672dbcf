// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "slot_list.hpp"

namespace warmset::inline v0::select {

/// Doubly linked list of the demanded residents, least recently used first: the order of `coldest` over
/// `lru`, in O(1) per touch and per candidate whatever the capacity (plus the leased or pinned slots that
/// it passes over). Host only: a linked walk has one lane. Source: folklore.
struct lru_list : slot_list {
  static constexpr char const* name = "lru_list";

  template <class Slots>
  WARMSET_HD constexpr void on_touch(Slots const& slots, u32 slot) const noexcept {
    auto& pool = slots.selector_pool();
    u32 const link = slot + 1;
    if (pool.newest == link) {
      return;
    }
    if (slots.selector_slot(slot).newer != 0) {  // linked, and not the newest
      move_to_newest(pool, link, slot_links(slots));
    } else {
      push_newest(pool, link, slot_links(slots));
    }
  }

  template <class Slots, class SlotOf>
  WARMSET_HD constexpr void on_touches(Slots const& slots, u32 n, SlotOf const& slot_of) const noexcept {
    make_newest(slots.selector_pool(), n, slot_links(slots), [&](u32 i) { return slot_of(i) + 1; });
  }

  /// The slot stays where it is: the touch that follows moves it, as it moves one that was hit.
  template <class Slots>
  WARMSET_HD constexpr void on_replace(Slots const&, u32) const noexcept {}
};

static_assert(selector_policy<lru_list>, "select::lru_list must satisfy selector_policy");

}  // namespace warmset::inline v0::select
