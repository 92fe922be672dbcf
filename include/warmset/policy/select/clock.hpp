// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::select {

/// CLOCK, alias second chance, alias FIFO with reinsertion: a hand goes round the slots; a slot whose use
/// counter is not 0 loses one use and is passed, the first at 0 is the candidate. A counter has `Bits` bits,
/// 0 at the install, +1 per later demand, saturating. The slots are the ring: a newcomer sits where its victim
/// sat, just behind the hand, which is the newest place. Leased, pinned and loading slots are passed
/// unchanged. Tie-break: the slot that the hand reaches first.
///
/// A slot with c uses is reached in the hand's turn c, so that the candidates come in the order of (uses,
/// distance from the hand): one pass over the slots each, by all lanes; one lane stops at the first that the
/// turn it is in leaves without uses. `apply` passes those again that the hand has passed.
/// Source: Corbató, A Paging Experiment with the Multics System (1968).
template <u32 Bits = 1>
struct clock {
  static_assert(Bits >= 1 && Bits <= 16, "a use counter of clock has 1 to 16 bits");
  struct pool_state {
    u32 hand;  ///< the slot to look at first; beyond the capacity it stands for 0
  };
  struct slot_state {
    u32 uses;  ///< + 1; 0 = not demanded since the install
  };
  using expert_state = no_state;
  struct walk_state {
    order_key from;  ///< no candidate is left below it; low = 0: the walk has not begun
  };
  static constexpr bool asks_again = false;
  static constexpr bool host_only = false;
  static constexpr select_detail::spelling spelled{"clock", Bits, 1};
  static constexpr char const* name = spelled.text;
  static constexpr u32 most_uses = (1u << Bits) - 1;

  template <lane_group Group, class Slots>
  WARMSET_HD constexpr slot_id next(Group const& group, Slots const& all, walk_state& walk) const {
    Slots const slots = all;
    u32 const n = slots.size();
    u32 const hand = first(slots);
    order_key const from = walk.from;
    if constexpr (Group::is_single) {
      // as a hand goes: the first that this turn leaves without uses
      for (u32 distance = static_cast<u32>(from.low); distance < n; ++distance) {
        u32 const s = at(hand, distance, n);
        if (slots.evictable(s) && saturating_sub(slots.selector_slot(s).uses, 1u) == from.high) {
          walk.from.low = distance + 1;
          return slot_id{s};
        }
      }
    }
    order_key const best = group.min_key(n, [&](u32 distance, order_key& smallest) {
      u32 const s = at(hand, distance, n);
      if (slots.evictable(s)) {
        order_key const key{saturating_sub(slots.selector_slot(s).uses, 1u), distance};
        if (!(key < from)) {
          lower(smallest, key);
        }
      }
    });
    if (best == no_key) {
      return no_slot;
    }
    walk.from = {best.high, best.low + 1};
    return slot_id{at(hand, static_cast<u32>(best.low), n)};
  }

  template <class Slots>
  WARMSET_HD constexpr void apply(Slots const& slots, walk_state const& walk) const noexcept {
    if (walk.from.low == 0) {
      return;
    }
    u32 const n = slots.size();
    u32 const hand = first(slots);
    u32 const turns = static_cast<u32>(walk.from.high);
    u32 const in_last_turn = static_cast<u32>(walk.from.low);
    u32 const seen = turns == 0 ? in_last_turn : n;
    for (u32 distance = 0; distance < seen; ++distance) {
      u32 const s = at(hand, distance, n);
      if (slots.evictable(s)) {
        u32& uses = slots.selector_slot(s).uses;
        uses = 1 + saturating_sub(uses, 1 + turns + (distance < in_last_turn ? 1 : 0));
      }
    }
    slots.selector_pool().hand = at(hand, in_last_turn, n);
  }

  template <class Slots>
  WARMSET_HD constexpr void on_touch(Slots const& slots, u32 slot) const noexcept {
    u32& uses = slots.selector_slot(slot).uses;
    uses = min_of(uses + 1, most_uses + 1);
  }

  template <class Slots>
  WARMSET_HD constexpr void on_remove(Slots const& slots, u32 slot) const noexcept {
    slots.selector_slot(slot).uses = 0;
  }

  /// Whether exactly the listed slots have a counter, and the counters and the hand are in range.
  template <class Slots, class Listed>
  constexpr bool consistent(Slots const& slots, u32 n_slots, Listed&& listed) const {
    for (u32 s = 0; s < n_slots; ++s) {
      u32 const uses = slots.selector_slot(s).uses;
      if (listed(s) != (uses != 0) || uses > most_uses + 1) {
        return false;
      }
    }
    u32 const hand = slots.selector_pool().hand;
    return hand == 0 || hand < n_slots;
  }

 private:
  template <class Slots>
  WARMSET_HD static constexpr u32 first(Slots const& slots) noexcept {
    u32 const hand = slots.selector_pool().hand;
    return hand < slots.size() ? hand : 0;
  }
  /// The slot at a distance of at most n from the hand.
  WARMSET_HD static constexpr u32 at(u32 hand, u32 distance, u32 n) noexcept {
    u32 const s = hand + distance;
    return s < n ? s : s - n;
  }
};

static_assert(selector_policy<clock<>>, "select::clock must satisfy selector_policy");

}  // namespace warmset::inline v0::select
