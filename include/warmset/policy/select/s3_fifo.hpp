// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"
#include "links.hpp"

namespace warmset::inline v0::select {

/// S3-FIFO: two queues in the order of entry, and a ghost, the experts that lately left the small one. An
/// installed expert enters the small queue, or the main one where the ghost remembers it. A demand of a
/// resident counts a use, 0 … 3. While the small queue holds a tenth of the capacity (rounded down, at least
/// one slot) or more, its oldest is looked at: with two uses it moves on to the main queue with none, with fewer
/// it is the candidate. Otherwise the main queue's oldest is: with uses it loses one and goes to the new end,
/// with none it is the candidate. Leased, pinned and loading slots are passed unchanged. Tie-break: order of entry.
///
/// The ghost is a queue of as many experts as the pool has slots, judged as it stood when the step began. Whatever
/// takes an expert out of the small queue puts it there: an eviction, and a failed load or a lost slot too, as
/// the expert had been demanded.
///
/// O(1) per touch; per candidate one look per slot that is passed, of each slot of the main queue at most
/// four. Host only: a linked walk has one lane. Source: Yang et al., FIFO queues are all you need for cache
/// eviction (SOSP 2023), algorithm 1.
struct s3_fifo {
  struct pool_state {
    queue_ends small_queue;
    queue_ends main_queue;
    queue_ends ghost;
    u32 n_small;
    u32 n_ghost;
  };
  struct slot_state : queue_links {
    u32 queue;
    u32 uses;
  };
  using expert_state = queue_links;  ///< in the ghost
  /// Candidates come in stages: the small queue as long as it is full; the main queue's members with no use;
  /// what the first stage moved there; the members with 1, 2 and 3 uses, in the hand's further turns; then
  /// what is left in the small queue.
  struct walk_state {
    u32 stage;
    u32 cursor;        ///< link of the next slot to look at
    u32 n_small;       ///< what the small queue would hold
    u32 rest;          ///< link of the small queue's first member that stage one left in it
    u32 last;          ///< link and stage of the last candidate
    u32 last_stage;
    u32 last_of_main;  ///< link and stage of the last candidate that was in the main queue, or moved to it in stage one
    u32 stage_of_main;
  };
  static constexpr bool asks_again = false;
  static constexpr bool host_only = true;
  static constexpr u32 least_slots = 10;  ///< with fewer, the small queue has more than its tenth
  static constexpr char const* name = "s3_fifo";

  template <lane_group Group, class Slots>
  WARMSET_HD constexpr slot_id next(Group const&, Slots const& slots, walk_state& walk) const {
    auto const& pool = slots.selector_pool();
    if (walk.stage == 0) {
      walk.cursor = walk.rest = pool.small_queue.oldest;
      walk.n_small = pool.n_small;
      walk.stage = small_stage;
    }
    for (;;) {
      while (walk.cursor != 0 && !stage_is_over(slots, walk)) {
        u32 const link = walk.cursor;
        auto const& mine = slots.selector_slot(link - 1);
        walk.cursor = mine.newer;
        bool const may_go = slots.evictable(link - 1);
        if (walk.stage == small_stage) {
          walk.rest = walk.cursor;
          walk.n_small -= may_go ? 1 : 0;
        }
        if (may_go && is_met(mine, walk.stage)) {
          walk.last = link;
          walk.last_stage = walk.stage;
          if (walk.stage != small_stage && walk.stage != rest_stage) {
            walk.last_of_main = link;
            walk.stage_of_main = walk.stage;
          }
          return slot_id{link - 1};
        }
      }
      if (walk.stage == rest_stage) {
        return no_slot;
      }
      ++walk.stage;
      walk.cursor = walk.stage == moved_stage  ? pool.small_queue.oldest
                    : walk.stage == rest_stage ? walk.rest
                                               : pool.main_queue.oldest;
    }
  }

  template <class Slots>
  WARMSET_HD constexpr void apply(Slots const& slots, walk_state const& walk) const noexcept {
    auto& pool = slots.selector_pool();
    while (pool.n_ghost > slots.size()) {
      leave_ghost(slots, pool.ghost.oldest);
    }
    if (walk.last == 0) {
      return;
    }
    bool const from_small = walk.last_stage == small_stage;
    u32 const end = from_small || walk.last_stage == rest_stage ? slots.selector_slot(walk.last - 1).newer : 0;
    move_on(slots, pool.small_queue.oldest, from_small ? end : walk.rest);
    if (walk.last_of_main != 0) {
      u32 const turns = turn_of(walk.stage_of_main);
      bool in_last_turn = true;
      for (u32 link = pool.main_queue.oldest; link != 0 && (in_last_turn || turns != 0);
           link = slots.selector_slot(link - 1).newer) {
        u32& uses = slots.selector_slot(link - 1).uses;
        if (slots.evictable(link - 1)) {
          uses = saturating_sub(uses, turns + (in_last_turn ? 1 : 0));
        }
        in_last_turn = in_last_turn && link != walk.last_of_main;
      }
      // all that the hand has passed stands at the new end now
      u32 const oldest = slots.selector_slot(walk.last_of_main - 1).newer;
      if (oldest != 0) {
        slots.selector_slot(pool.main_queue.newest - 1).newer = pool.main_queue.oldest;
        slots.selector_slot(pool.main_queue.oldest - 1).older = pool.main_queue.newest;
        slots.selector_slot(walk.last_of_main - 1).newer = 0;
        slots.selector_slot(oldest - 1).older = 0;
        pool.main_queue = {oldest, walk.last_of_main};
      }
    }
    if (walk.last_stage == rest_stage) {
      move_on(slots, walk.rest, end);
    }
  }

  template <class Slots>
  WARMSET_HD constexpr void on_touch(Slots const& slots, u32 slot) const noexcept {
    auto& pool = slots.selector_pool();
    auto& mine = slots.selector_slot(slot);
    if (mine.queue != nowhere) {
      mine.uses = min_of(mine.uses + 1, most_uses);
      return;
    }
    u32 const expert = slots.expert_index(slot) + 1;
    bool const remembered = is_linked(pool.ghost, expert, slots.selector_expert(expert - 1));
    if (remembered) {
      leave_ghost(slots, expert);
    }
    enter(slots, slot, remembered ? in_main : in_small);
  }

  template <class Slots>
  WARMSET_HD constexpr void on_remove(Slots const& slots, u32 slot) const noexcept {
    auto& pool = slots.selector_pool();
    u32 const queue = slots.selector_slot(slot).queue;
    if (queue == nowhere) {
      return;
    }
    leave(slots, slot);
    if (queue == in_small) {
      push_newest(pool.ghost, slots.expert_index(slot) + 1, expert_links(slots));
      ++pool.n_ghost;
    }
  }

  /// Whether each listed slot is in the one queue that its state names, no other slot in any, and the ghost a
  /// queue of experts that are in no queue.
  template <class Slots, class Listed>
  constexpr bool consistent(Slots const& slots, u32 n_slots, Listed&& listed) const {
    auto const& pool = slots.selector_pool();
    u32 n[3] = {};
    for (u32 s = 0; s < n_slots; ++s) {
      auto const& mine = slots.selector_slot(s);
      if (mine.queue > in_main || mine.uses > most_uses || listed(s) != (mine.queue != nowhere) ||
          (!listed(s) && (mine.uses | mine.older | mine.newer) != 0)) {
        return false;
      }
      if (listed(s)) {
        u32 const expert = slots.expert_index(s);
        if (is_linked(pool.ghost, expert + 1, slots.selector_expert(expert))) {
          return false;
        }
      }
      ++n[mine.queue];
    }
    u32 n_ghost = 0;
    for (u32 x = 0; x < slots.expert_count(); ++x) {
      bool const remembered = is_linked(pool.ghost, x + 1, slots.selector_expert(x));
      if (!remembered && slots.selector_expert(x).older != 0) {
        return false;
      }
      n_ghost += remembered ? 1 : 0;
    }
    auto const length = [&](queue_ends const& ends, u32 queue) {
      return checked_length(ends, n_slots, slot_links(slots), [&](u32 link) {
        return slots.selector_slot(link - 1).queue == queue;
      });
    };
    return pool.n_small == n[in_small] && length(pool.small_queue, in_small) == n[in_small] &&
           length(pool.main_queue, in_main) == n[in_main] && pool.n_ghost == n_ghost &&
           checked_length(pool.ghost, slots.expert_count(), expert_links(slots),
                          [](u32) { return true; }) == n_ghost;
  }

  /// Slots of a pool that are the small queue's.
  WARMSET_HD static constexpr u32 small_slots(u32 capacity) noexcept { return max_of(capacity / 10, 1u); }

 private:
  static constexpr u32 nowhere = 0, in_small = 1, in_main = 2;
  static constexpr u32 most_uses = 3, uses_to_move = 2;
  static constexpr u32 small_stage = 1, moved_stage = 3, rest_stage = 7;

  /// Uses of the main queue's members that are candidates in a stage.
  WARMSET_HD static constexpr u32 turn_of(u32 stage) noexcept {
    return stage <= moved_stage ? 0 : stage - moved_stage;
  }

  template <class Slots>
  WARMSET_HD static constexpr bool stage_is_over(Slots const& slots, walk_state const& walk) noexcept {
    return (walk.stage == small_stage && walk.n_small < small_slots(slots.size())) ||
           (walk.stage == moved_stage && walk.cursor == walk.rest);
  }

  WARMSET_HD static constexpr bool is_met(slot_state const& mine, u32 stage) noexcept {
    switch (stage) {
      case small_stage: return mine.uses < uses_to_move;
      case moved_stage: return mine.uses >= uses_to_move;
      case rest_stage: return true;
      default: return mine.uses == turn_of(stage);
    }
  }

  /// Moves those with enough uses from the small queue's part from `link` to before `end` to the main queue.
  template <class Slots>
  WARMSET_HD static constexpr void move_on(Slots const& slots, u32 link, u32 end) noexcept {
    while (link != end) {
      auto& mine = slots.selector_slot(link - 1);
      u32 const newer = mine.newer;
      if (mine.uses >= uses_to_move && slots.evictable(link - 1)) {
        leave(slots, link - 1);
        enter(slots, link - 1, in_main);
      }
      link = newer;
    }
  }

  template <class Slots>
  WARMSET_HD static constexpr void enter(Slots const& slots, u32 slot, u32 queue) noexcept {
    auto& pool = slots.selector_pool();
    slots.selector_slot(slot).queue = queue;
    push_newest(queue == in_small ? pool.small_queue : pool.main_queue, slot + 1, slot_links(slots));
    pool.n_small += queue == in_small ? 1 : 0;
  }

  template <class Slots>
  WARMSET_HD static constexpr void leave(Slots const& slots, u32 slot) noexcept {
    auto& pool = slots.selector_pool();
    auto& mine = slots.selector_slot(slot);
    unlink(mine.queue == in_small ? pool.small_queue : pool.main_queue, slot + 1, slot_links(slots));
    pool.n_small -= mine.queue == in_small ? 1 : 0;
    mine.queue = nowhere;
    mine.uses = 0;
  }

  template <class Slots>
  WARMSET_HD static constexpr void leave_ghost(Slots const& slots, u32 link) noexcept {
    auto& pool = slots.selector_pool();
    unlink(pool.ghost, link, expert_links(slots));
    --pool.n_ghost;
  }
};

static_assert(selector_policy<s3_fifo>, "select::s3_fifo must satisfy selector_policy");

}  // namespace warmset::inline v0::select
