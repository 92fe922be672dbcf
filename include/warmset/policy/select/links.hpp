// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../../core/ids.hpp"

namespace warmset::inline v0::select {

/// Ends of a doubly linked queue that runs through its members' own states. A link is an index + 1;
/// 0 = none, so that all-zero bytes are an empty queue.
struct queue_ends {
  u32 oldest;
  u32 newest;
};

/// A member's links. All-zero outside every queue, and in the only member of one.
struct queue_links {
  u32 older;
  u32 newer;
};

/// The links of slots, which a selector keeps in its slot_state, or as it.
template <class Slots>
WARMSET_HD constexpr auto slot_links(Slots const& slots) noexcept {
  return [&slots](u32 link) -> auto& { return slots.selector_slot(link - 1); };
}

/// The same of experts and expert_state.
template <class Slots>
WARMSET_HD constexpr auto expert_links(Slots const& slots) noexcept {
  return [&slots](u32 link) -> auto& { return slots.selector_expert(link - 1); };
}

/// Whether a member of this queue or of none is in it. O(1).
WARMSET_HD constexpr bool is_linked(queue_ends const& ends, u32 link, queue_links const& mine) noexcept {
  return mine.newer != 0 || ends.newest == link;
}

/// Makes the member of this link, which is in no queue, the newest. O(1).
template <class At>
WARMSET_HD constexpr void push_newest(queue_ends& ends, u32 link, At const& at) noexcept {
  at(link).older = ends.newest;
  at(link).newer = 0;
  (ends.newest != 0 ? at(ends.newest).newer : ends.oldest) = link;
  ends.newest = link;
}

/// Takes a member of this queue out of it. O(1).
template <class At>
WARMSET_HD constexpr void unlink(queue_ends& ends, u32 link, At const& at) noexcept {
  auto& mine = at(link);
  (mine.older != 0 ? at(mine.older).newer : ends.oldest) = mine.newer;
  (mine.newer != 0 ? at(mine.newer).older : ends.newest) = mine.older;
  mine.older = 0;
  mine.newer = 0;
}

/// Makes a member of this queue, which is not its newest, the newest. O(1).
template <class At>
WARMSET_HD constexpr void move_to_newest(queue_ends& ends, u32 link, At const& at) noexcept {
  auto& mine = at(link);
  u32 const older = mine.older;
  u32 const newer = mine.newer;
  (older != 0 ? at(older).newer : ends.oldest) = newer;
  at(newer).older = older;
  mine.older = ends.newest;
  mine.newer = 0;
  at(ends.newest).newer = link;
  ends.newest = link;
}

/// Makes n > 0 different members, link_of(0) … link_of(n - 1), each in this queue or in none, the newest one after another:
/// for queues without other members. Asks `link_of` for each once, in this order. O(n).
///
/// A step touches neighbours, and a load must wait for every write that may have changed what it reads: therefore the links
/// of the next member are read before those of the one before it change, and what changes of them is known without memory.
/// The ends stay in registers, and nobody can foretell whether a member is the oldest.
template <class At, class LinkOf>
WARMSET_HD constexpr void make_newest(queue_ends& ends, u32 n, At const& at, LinkOf const& link_of) {
  u32 oldest = ends.oldest;
  u32 newest = ends.newest;
  u32 link = link_of(0);
  u32 older = at(link).older;
  u32 newer = at(link).newer;
  for (u32 i = 1; i <= n; ++i) {
    u32 const next = i < n ? link_of(i) : link;
    u32 older_of_next = at(next).older;
    u32 newer_of_next = at(next).newer;
    if (link != newest) [[likely]] {
      if (newer != 0) [[likely]] {
        u32 const is_oldest = 0u - static_cast<u32>(older == 0);
        at(older | (link & is_oldest)).newer = newer;  // of the oldest its own, which is written anew
        oldest ^= (oldest ^ newer) & is_oldest;
        at(newer).older = older;
        older_of_next = next == newer ? older : older_of_next;
        newer_of_next = next == older ? newer : newer_of_next;
      }
      at(link).older = newest;
      (newest != 0 ? at(newest).newer : oldest) = link;
      newer_of_next = next == newest ? link : newer_of_next;
      newest = link;
    }
    link = next;
    older = older_of_next;
    newer = newer_of_next;
  }
  at(newest).newer = 0;
  ends.oldest = oldest;
  ends.newest = newest;
}

/// Members of the queue; u32_max where its links do not agree, leave 1 … n, or reach one that `belongs(link)`
/// denies. The bytes may be anything. O(members).
template <class At, class Belongs>
constexpr u32 checked_length(queue_ends const& ends, u32 n, At const& at, Belongs const& belongs) {
  u32 length = 0;
  u32 previous = 0;
  for (u32 link = ends.oldest; link != 0; link = at(link).newer) {
    if (link > n || ++length > n || at(link).older != previous || !belongs(link)) {
      return u32_max;
    }
    previous = link;
  }
  return previous == ends.newest ? length : u32_max;
}

/// A walk over the members of one queue and then of another, oldest first.
struct two_queue_walk {
  u32 cursor;  ///< link of the next member
  u32 stage;   ///< 0 = not begun, else the queue that the cursor is in
};

/// The next evictable slot of the walk. O(1) and one look more per slot that may not go.
template <class Slots>
WARMSET_HD constexpr slot_id next_of_two(queue_ends const& first, queue_ends const& second,
                                         Slots const& slots, two_queue_walk& walk) {
  if (walk.stage == 0) {
    walk = {first.oldest, 1};
  }
  for (;;) {
    while (walk.cursor != 0) {
      u32 const slot = walk.cursor - 1;
      walk.cursor = slots.selector_slot(slot).newer;
      if (slots.evictable(slot)) {
        return slot_id{slot};
      }
    }
    if (walk.stage == 2) {
      return no_slot;
    }
    walk = {second.oldest, 2};
  }
}

}  // namespace warmset::inline v0::select
