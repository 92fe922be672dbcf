// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"
#include "links.hpp"

namespace warmset::inline v0::select {

/// SIEVE: a queue in the order of the installs, whose members stay in place, and a hand that goes from the
/// oldest to the newest and round again. A demand of a resident marks it; the hand takes the mark off what it
/// passes, and the first unmarked slot is the candidate. Newcomers are not marked. What demand no longer wants
/// leaves soon, what it marked stays without being moved. Leased, pinned and loading slots are passed
/// unchanged. Tie-break: the slot that the hand reaches first.
///
/// O(1) per touch; per candidate one look per marked slot that is passed. Host only: a linked walk has one
/// lane. Source: Zhang et al., SIEVE is Simpler than LRU (NSDI 2024).
struct sieve {
  struct pool_state {
    queue_ends queue;
    u32 hand;  ///< link of the slot to look at first; 0 = the oldest
  };
  struct slot_state : queue_links {
    u32 marked;
  };
  using expert_state = no_state;
  struct walk_state {
    u32 start;   ///< link at which the walk began
    u32 cursor;  ///< link of the next slot to look at
    u32 turn;    ///< 0 = not begun; in turn 1 unmarked slots are met, in turn 2 those that lost their marks
    u32 last;    ///< link of the last candidate, and its turn
    u32 last_turn;
  };
  static constexpr bool asks_again = false;
  static constexpr bool host_only = true;
  static constexpr char const* name = "sieve";

  template <lane_group Group, class Slots>
  WARMSET_HD constexpr slot_id next(Group const&, Slots const& slots, walk_state& walk) const {
    if (walk.turn == 0) {
      auto const& pool = slots.selector_pool();
      walk.start = walk.cursor = pool.hand != 0 ? pool.hand : pool.queue.oldest;
      walk.turn = 1;
    }
    while (walk.start != 0 && walk.turn <= 2) {
      u32 const link = walk.cursor;
      u32 const turn = walk.turn;
      walk.cursor = after(slots, link);
      walk.turn += walk.cursor == walk.start ? 1 : 0;
      bool const marked = slots.selector_slot(link - 1).marked != 0;
      if (marked == (turn == 2) && slots.evictable(link - 1)) {
        walk.last = link;
        walk.last_turn = turn;
        return slot_id{link - 1};
      }
    }
    return no_slot;
  }

  template <class Slots>
  WARMSET_HD constexpr void apply(Slots const& slots, walk_state const& walk) const noexcept {
    if (walk.last == 0) {
      return;
    }
    u32 link = walk.start;
    do {
      if (slots.evictable(link - 1)) {
        slots.selector_slot(link - 1).marked = 0;
      }
      if (walk.last_turn == 1 && link == walk.last) {
        break;
      }
      link = after(slots, link);
    } while (link != walk.start);
    slots.selector_pool().hand = slots.selector_slot(walk.last - 1).newer;
  }

  template <class Slots>
  WARMSET_HD constexpr void on_touch(Slots const& slots, u32 slot) const noexcept {
    auto& queue = slots.selector_pool().queue;
    auto& mine = slots.selector_slot(slot);
    if (is_linked(queue, slot + 1, mine)) {
      mine.marked = 1;
    } else {
      push_newest(queue, slot + 1, slot_links(slots));
    }
  }

  template <class Slots>
  WARMSET_HD constexpr void on_remove(Slots const& slots, u32 slot) const noexcept {
    auto& pool = slots.selector_pool();
    auto& mine = slots.selector_slot(slot);
    if (!is_linked(pool.queue, slot + 1, mine)) {
      return;
    }
    if (pool.hand == slot + 1) {
      pool.hand = mine.newer;
    }
    mine.marked = 0;
    unlink(pool.queue, slot + 1, slot_links(slots));
  }

  /// Whether the queue holds exactly the listed slots and the hand points at one of them, if at any.
  template <class Slots, class Listed>
  constexpr bool consistent(Slots const& slots, u32 n_slots, Listed&& listed) const {
    u32 expected = 0;
    for (u32 s = 0; s < n_slots; ++s) {
      auto const& mine = slots.selector_slot(s);
      if (mine.marked > 1 || (!listed(s) && (mine.marked | mine.older | mine.newer) != 0)) {
        return false;
      }
      expected += listed(s) ? 1 : 0;
    }
    auto const& pool = slots.selector_pool();
    auto const belongs = [&](u32 link) { return listed(link - 1); };
    return expected == checked_length(pool.queue, n_slots, slot_links(slots), belongs) &&
           (pool.hand == 0 || (pool.hand <= n_slots && belongs(pool.hand)));
  }

 private:
  template <class Slots>
  WARMSET_HD static constexpr u32 after(Slots const& slots, u32 link) noexcept {
    u32 const newer = slots.selector_slot(link - 1).newer;
    return newer != 0 ? newer : slots.selector_pool().queue.oldest;
  }
};

static_assert(selector_policy<sieve>, "select::sieve must satisfy selector_policy");

}  // namespace warmset::inline v0::select
