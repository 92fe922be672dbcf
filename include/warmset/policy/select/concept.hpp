// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "../../core/ids.hpp"
#include "../../core/lanes.hpp"
#include "../../core/plain.hpp"
#include "../../core/spelling.hpp"
#include "../../core/tuning.hpp"

namespace warmset::inline v0 {

/// The order in which slots are offered for eviction. A selector has state per pool, per slot and per expert
/// (all in the table's block), a const walk that yields candidates in eviction order, and `apply`, by which
/// commit takes over what the walk did to the state (a moved hand, cleared bits).
///
/// What a selector sees is a `Slots` view of the table:
///
/// | member | meaning |
/// |---|---|
/// | `size()` | slots 0 … size()-1 may be candidates |
/// | `evictable(s)` | resident, demanded at least once, not leased, not pinned, not draining |
/// | `lower_to(s, best)` | lowers `best` to the slot's order_key (score, then age, then slot) where that is smaller |
/// | `expert_index(s)`, `expert_count()` | the expert in slot s, among the pool's experts 0 … expert_count()-1 |
/// | `selector_pool()`, `selector_slot(s)`, `selector_expert(index)` | the selector's own state; writable only in hooks |
///
/// Hooks see all of it but `lower_to`.
///
/// Members of a selector `S`:
///
/// | member | meaning |
/// |---|---|
/// | `pool_state`, `slot_state`, `expert_state`, `walk_state` | trivially copyable integers; all-zero = nothing yet; `no_state` costs nothing. What experts leave behind outlives their slots |
/// | `next(group, slots, walk) -> slot_id` | the next candidate, each once, or no_slot. Plan asks again where it cannot use one |
/// | `apply(slots, walk)` | commit's share of the walk, up to the last candidate; before the first of its evictions |
/// | `on_touch(slots, s)` | a demand used the expert in slot s; the first touch after an install makes it a candidate |
/// | `on_remove(slots, s)` | the slot's expert is going: evicted, dropped or failed, touched or not |
/// | `on_replace(slots, s)` | optional, else `on_remove`: the slot's expert is going, and `on_touch(slots, s)` of the demand that takes the slot follows before any other question |
/// | `on_touches(slots, n, slot_of)` | optional: what `on_touch(slots, slot_of(i))` for i = 0 … n-1 does, of n > 0 different slots; asks `slot_of` for each once, in this order |
/// | `consistent(slots, n, listed)` | optional: whether the state fits the slots that were touched since their install |
/// | `is_by_key` | optional, true: `lower_to` alone orders the candidates, so that lanes may take several victims in one pass |
/// | `asks_again` | whether speculation goes on to the next candidate when the guard refuses one |
/// | `host_only` | whether `next` needs one lane |
/// | `name` | as reports and the command line spell it |
namespace select_detail {

using warmset::spelling;

/// The smallest Slots view; concept checks use it.
template <class S>
struct slots_archetype {
  WARMSET_HD constexpr u32 size() const noexcept { return 0; }
  WARMSET_HD constexpr bool evictable(u32) const noexcept { return false; }
  WARMSET_HD constexpr void lower_to(u32, order_key&) const noexcept {}
  WARMSET_HD typename S::pool_state& selector_pool() const noexcept { return *pool; }
  WARMSET_HD typename S::slot_state& selector_slot(u32) const noexcept { return *slot; }
  WARMSET_HD typename S::expert_state& selector_expert(u32) const noexcept { return *expert; }
  WARMSET_HD constexpr u32 expert_index(u32) const noexcept { return 0; }
  WARMSET_HD constexpr u32 expert_count() const noexcept { return 0; }
  typename S::pool_state* pool;
  typename S::slot_state* slot;
  typename S::expert_state* expert;
};

template <class S>
concept has_plain_states = detail::plain_state<typename S::pool_state> &&
                           detail::plain_state<typename S::slot_state> &&
                           detail::plain_state<typename S::expert_state> &&
                           detail::is_bytes<typename S::walk_state>;

template <class S>
concept has_const_walk =
    requires(S const& s, one_lane g, slots_archetype<S> const& t, typename S::walk_state& w) {
      { s.next(g, t, w) } -> std::same_as<slot_id>;
    };

template <class S>
concept has_commit_hooks =
    requires(S const& s, slots_archetype<S> const& t, typename S::walk_state const& w) {
      s.apply(t, w);
      s.on_touch(t, 0u);
      s.on_remove(t, 0u);
    };

template <class S>
concept has_replace_hook = requires(S const& s, slots_archetype<S> const& t) { s.on_replace(t, 0u); };

struct slot_probe {
  WARMSET_HD constexpr u32 operator()(u32) const noexcept { return 0; }
};
template <class S>
concept has_touches_hook =
    requires(S const& s, slots_archetype<S> const& t) { s.on_touches(t, 0u, slot_probe{}); };

template <class S>
concept has_traits = requires {
  { S::asks_again } -> std::convertible_to<bool>;
  { S::host_only } -> std::convertible_to<bool>;
  { S::name } -> std::convertible_to<char const*>;
};

}  // namespace select_detail

template <class S>
concept selector_policy = select_detail::has_plain_states<S> && select_detail::has_const_walk<S> &&
                          select_detail::has_commit_hooks<S> && select_detail::has_traits<S>;

}  // namespace warmset::inline v0
