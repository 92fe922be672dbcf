// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "../../core/integers.hpp"

namespace warmset::inline v0 {

/// What a guard is asked: may speculation evict this victim for this challenger? Scores are in the units
/// of one and the same score policy; `one_count` is what one demand is worth in them.
struct duel {
  u64 victim_score;
  u64 challenger_score;
  u64 one_count;
  u32 victim_heat;    ///< whole counts after decay; 0 where the score does not count
  bool victim_spare;  ///< the victim was speculated and never demanded
};

/// Scalar predicate that protects residents from speculation. It is asked exactly when an eviction is
/// next: never for a free slot, never on the demand path. Comparisons are in 64 bits.
///
/// Members of a guard `G`: `permits(duel) -> bool`, const noexcept and WARMSET_HD; `needs_heat` (the score
/// must count, and either decay or be declared `no_decay`); `keeps_reserve` (it never gives up a demanded
/// resident, so that the pool keeps `speculative_slots` for speculation); `name`.
namespace guard_detail {
template <class G>
concept has_permits_function = requires(G const& g, duel const& d) {
  { g.permits(d) } noexcept -> std::same_as<bool>;
};
template <class G>
concept has_traits = requires {
  { G::needs_heat } -> std::convertible_to<bool>;
  { G::keeps_reserve } -> std::convertible_to<bool>;
  { G::name } -> std::convertible_to<char const*>;
};
}  // namespace guard_detail

template <class G>
concept guard_policy = guard_detail::has_permits_function<G> && guard_detail::has_traits<G>;

namespace guard {

/// score + score/4 + 4 counts: the margin that the comparing guards share. Saturates.
WARMSET_HD constexpr u64 with_margin(u64 score, u64 one_count) noexcept {
  u64 const margin = (score >> 2) + 4 * one_count;
  return margin > u64_max - score ? u64_max : score + margin;
}

}  // namespace guard
}  // namespace warmset::inline v0
