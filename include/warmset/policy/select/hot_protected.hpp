// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"
#include "links.hpp"

namespace warmset::inline v0::select {

/// LRU among the residents with at most `Uses` uses since their install (the demand that installed them is
/// not one); where all candidates are hotter, plain LRU among those. A hot expert that is no longer demanded
/// stays until nothing colder is left: there is no decay. Refilling a slot begins at 0.
///
/// O(1) per touch and candidate, and one look more per leased or pinned slot that is passed. Host only: a
/// linked walk has one lane. Source: the hot-expert protection of TheTom's llama.cpp fork (#300).
template <u32 Uses = 4>
struct hot_protected {
  static_assert(Uses <= 1'000'000, "hot_protected counts up to a million uses");
  struct pool_state {
    queue_ends cold;
    queue_ends hot;
  };
  struct slot_state : queue_links {
    u32 demands;  ///< since the install, that one included; stops counting at hot
  };
  using expert_state = no_state;
  using walk_state = two_queue_walk;
  static constexpr bool asks_again = false;
  static constexpr bool host_only = true;
  static constexpr select_detail::spelling spelled{"hot_protected", Uses, 4};
  static constexpr char const* name = spelled.text;

  template <lane_group Group, class Slots>
  WARMSET_HD constexpr slot_id next(Group const&, Slots const& slots, walk_state& walk) const {
    auto const& pool = slots.selector_pool();
    return next_of_two(pool.cold, pool.hot, slots, walk);
  }

  template <class Slots>
  WARMSET_HD constexpr void apply(Slots const&, walk_state const&) const noexcept {}

  template <class Slots>
  WARMSET_HD constexpr void on_touch(Slots const& slots, u32 slot) const noexcept {
    u32 const demands = min_of(slots.selector_slot(slot).demands + 1, hot_from);
    on_remove(slots, slot);
    slots.selector_slot(slot).demands = demands;
    push_newest(queue_of(slots, demands), slot + 1, slot_links(slots));
  }

  template <class Slots>
  WARMSET_HD constexpr void on_remove(Slots const& slots, u32 slot) const noexcept {
    u32& demands = slots.selector_slot(slot).demands;
    if (demands != 0) {
      unlink(queue_of(slots, demands), slot + 1, slot_links(slots));
      demands = 0;
    }
  }

  /// Whether each listed slot is in the one queue that its count names, and no other slot in any.
  template <class Slots, class Listed>
  constexpr bool consistent(Slots const& slots, u32 n_slots, Listed&& listed) const {
    u32 n_cold = 0;
    u32 n_hot = 0;
    for (u32 s = 0; s < n_slots; ++s) {
      auto const& mine = slots.selector_slot(s);
      if (mine.demands > hot_from || listed(s) != (mine.demands != 0) ||
          (!listed(s) && (mine.older | mine.newer) != 0)) {
        return false;
      }
      n_hot += mine.demands == hot_from ? 1 : 0;
      n_cold += listed(s) && mine.demands != hot_from ? 1 : 0;
    }
    auto const& pool = slots.selector_pool();
    auto const length = [&](queue_ends const& ends, bool hot) {
      return checked_length(ends, n_slots, slot_links(slots), [&](u32 link) {
        u32 const demands = slots.selector_slot(link - 1).demands;
        return demands != 0 && (demands == hot_from) == hot;
      });
    };
    return length(pool.cold, false) == n_cold && length(pool.hot, true) == n_hot;
  }

 private:
  static constexpr u32 hot_from = Uses + 2;

  template <class Slots>
  WARMSET_HD static constexpr auto& queue_of(Slots const& slots, u32 demands) noexcept {
    auto& pool = slots.selector_pool();
    return demands == hot_from ? pool.hot : pool.cold;
  }
};

static_assert(selector_policy<hot_protected<>>, "select::hot_protected must satisfy selector_policy");

}  // namespace warmset::inline v0::select
