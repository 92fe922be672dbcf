// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::select {

/// The candidate of the smallest order_key: smallest score, then largest age (never accessed counts as
/// largest), then lowest slot. No state; each candidate costs one pass over the slots, by all lanes.
/// Source: exhaustive search, as engines with small pools do it.
struct coldest {
  using pool_state = no_state;
  using slot_state = no_state;
  using expert_state = no_state;
  struct walk_state {
    order_key previous;
    u32 started;
  };
  static constexpr bool asks_again = false;
  static constexpr bool is_by_key = true;  ///< lanes may take several victims in one pass
  static constexpr bool host_only = false;
  static constexpr char const* name = "coldest";

  template <lane_group Group, class Slots>
  WARMSET_HD constexpr slot_id next(Group const& group, Slots const& all, walk_state& walk) const {
    Slots const slots = all;
    order_key best;
    if (walk.started == 0) {
      best = group.min_key(slots.size(), [&](u32 s, order_key& smallest) {
        if (slots.evictable(s)) {
          slots.lower_to(s, smallest);
        }
      });
    } else {
      // keys are distinct, so that the next candidate is the smallest one above the previous
      order_key const previous = walk.previous;
      best = group.min_key(slots.size(), [&](u32 s, order_key& smallest) {
        if (slots.evictable(s)) {
          order_key key = smallest;
          slots.lower_to(s, key);
          if (key < smallest && previous < key) {
            smallest = key;
          }
        }
      });
    }
    walk.previous = best;
    walk.started = 1;
    return best == no_key ? no_slot : slot_id{slot_of(best)};
  }

  template <class Slots>
  WARMSET_HD constexpr void apply(Slots const&, walk_state const&) const noexcept {}
  template <class Slots>
  WARMSET_HD constexpr void on_touch(Slots const&, u32) const noexcept {}
  template <class Slots>
  WARMSET_HD constexpr void on_remove(Slots const&, u32) const noexcept {}
};

static_assert(selector_policy<coldest>, "select::coldest must satisfy selector_policy");

}  // namespace warmset::inline v0::select
