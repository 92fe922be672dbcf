// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"
#include "links.hpp"

namespace warmset::inline v0::select {

/// Segmented LRU: an installed expert is on probation until it is demanded again; then it is protected, and
/// whoever has been protected longest without a demand goes back to probation where there are too many.
/// Candidates are those on probation, then the protected ones, each least recently used first. Protected are
/// at most `ProtectedPercent` percent of the capacity, rounded down, but at least one slot, and where there
/// are two slots or more at least one is left to probation.
///
/// O(1) per touch and candidate, and one look more per leased or pinned slot that is passed. Host only: a
/// linked walk has one lane. Source: Karedla, Love, Wherry, Caching Strategies to Improve Disk System
/// Performance (IEEE Computer 27(3), 1994).
template <u32 ProtectedPercent = 80>
struct slru {
  static_assert(ProtectedPercent >= 1 && ProtectedPercent <= 99, "slru protects 1 to 99 percent");
  struct pool_state {
    queue_ends probation;
    queue_ends guarded;
    u32 n_guarded;
  };
  struct slot_state : queue_links {
    u32 segment;
  };
  using expert_state = no_state;
  using walk_state = two_queue_walk;
  static constexpr bool asks_again = false;
  static constexpr bool host_only = true;
  static constexpr u32 least_slots = 100 / (100 - ProtectedPercent);  ///< with fewer, probation has more than its share
  static constexpr select_detail::spelling spelled{"slru", ProtectedPercent, 80};
  static constexpr char const* name = spelled.text;

  template <lane_group Group, class Slots>
  WARMSET_HD constexpr slot_id next(Group const&, Slots const& slots, walk_state& walk) const {
    auto const& pool = slots.selector_pool();
    return next_of_two(pool.probation, pool.guarded, slots, walk);
  }

  template <class Slots>
  WARMSET_HD constexpr void apply(Slots const&, walk_state const&) const noexcept {}

  template <class Slots>
  WARMSET_HD constexpr void on_touch(Slots const& slots, u32 slot) const noexcept {
    auto& pool = slots.selector_pool();
    bool const first = slots.selector_slot(slot).segment == nowhere;
    on_remove(slots, slot);
    put(slots, slot, first ? on_probation : is_protected);
    for (u32 const most = protected_slots(slots.size()); pool.n_guarded > most;) {
      u32 const longest = pool.guarded.oldest - 1;
      on_remove(slots, longest);
      put(slots, longest, on_probation);
    }
  }

  template <class Slots>
  WARMSET_HD constexpr void on_remove(Slots const& slots, u32 slot) const noexcept {
    auto& pool = slots.selector_pool();
    u32& segment = slots.selector_slot(slot).segment;
    if (segment == nowhere) {
      return;
    }
    pool.n_guarded -= segment == is_protected ? 1 : 0;
    unlink(segment == is_protected ? pool.guarded : pool.probation, slot + 1, slot_links(slots));
    segment = nowhere;
  }

  /// Whether each listed slot is in the one queue that its state names, and no other slot in any.
  template <class Slots, class Listed>
  constexpr bool consistent(Slots const& slots, u32 n_slots, Listed&& listed) const {
    u32 n[3] = {};
    for (u32 s = 0; s < n_slots; ++s) {
      auto const& mine = slots.selector_slot(s);
      if (mine.segment > is_protected || listed(s) != (mine.segment != nowhere) ||
          (!listed(s) && (mine.older | mine.newer) != 0)) {
        return false;
      }
      ++n[mine.segment];
    }
    auto const& pool = slots.selector_pool();
    auto const length = [&](queue_ends const& ends, u32 segment) {
      return checked_length(ends, n_slots, slot_links(slots), [&](u32 link) {
        return slots.selector_slot(link - 1).segment == segment;
      });
    };
    return pool.n_guarded == n[is_protected] && length(pool.guarded, is_protected) == n[is_protected] &&
           length(pool.probation, on_probation) == n[on_probation];
  }

  /// Slots of a pool that may be protected.
  WARMSET_HD static constexpr u32 protected_slots(u32 capacity) noexcept {
    u32 const share = static_cast<u32>(u64{capacity} * ProtectedPercent / 100);
    return max_of(min_of(share, saturating_sub(capacity, 1u)), 1u);
  }

 private:
  static constexpr u32 nowhere = 0, on_probation = 1, is_protected = 2;

  template <class Slots>
  WARMSET_HD static constexpr void put(Slots const& slots, u32 slot, u32 segment) noexcept {
    auto& pool = slots.selector_pool();
    slots.selector_slot(slot).segment = segment;
    push_newest(segment == is_protected ? pool.guarded : pool.probation, slot + 1, slot_links(slots));
    pool.n_guarded += segment == is_protected ? 1 : 0;
  }
};

static_assert(selector_policy<slru<>>, "select::slru must satisfy selector_policy");

}  // namespace warmset::inline v0::select
