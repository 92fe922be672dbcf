// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "slot_list.hpp"

namespace warmset::inline v0::select {

/// Doubly linked list of the demanded residents in the order of their installs: the order of `coldest` over
/// `fifo`, in O(1) per touch and per candidate whatever the capacity (plus the leased or pinned slots that it
/// passes over). Host only: a linked walk has one lane. Source: folklore.
struct fifo_list : slot_list {
  static constexpr char const* name = "fifo_list";

  template <class Slots>
  WARMSET_HD constexpr void on_touch(Slots const& slots, u32 slot) const noexcept {
    auto& pool = slots.selector_pool();
    if (!is_linked(pool, slot + 1, slots.selector_slot(slot))) {
      push_newest(pool, slot + 1, slot_links(slots));
    }
  }
};

static_assert(selector_policy<fifo_list>, "select::fifo_list must satisfy selector_policy");

}  // namespace warmset::inline v0::select
