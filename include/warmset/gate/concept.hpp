// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "pass.hpp"

namespace warmset::inline v0 {

namespace gate_detail {

template <class G>
concept says_whether_it_speculates = requires {
  { G::speculates } -> std::convertible_to<bool>;
};

template <class G>
concept opens_for_pools = requires(G& g, u32 n_pools) {
  { g.open(n_pools) } -> std::same_as<void>;
};

template <class G>
concept names_the_epoch = requires(G const& g, u32 pool) {
  { g.epoch(pool) }
  noexcept->std::same_as<u32>;
};

template <class G>
concept asks_at_entry = requires(G& g, u32 pool, u32 const& epoch, gate::purpose what) {
  { g.enter(pool, epoch, what) }
  noexcept->std::same_as<gate::pass>;
};

template <class G>
concept is_left = requires(G& g, u32 pool) {
  { g.leave(pool) }
  noexcept->std::same_as<void>;
};

template <class G>
concept can_be_looked_at = requires(G const& g, u32 pool, gate::purpose what) {
  { g.look(pool, what) }
  noexcept->std::same_as<gate::pass>;
};

}  // namespace gate_detail

/// Who may: what a cache asks before every operation on a pool.
///
/// - `speculates`: whether this holder issues speculation at all. A bundle that takes hints needs one that does.
/// - `open(n_pools)`: called once by the cache's constructor; throws config_error where it cannot answer for
///   so many.
/// - `epoch(pool)`: the group's epoch now. A new table begins with it.
/// - `enter(pool, epoch, purpose)`: the first act of an operation; `epoch` is that of the table that the
///   operation would use. It may be a word of that table, so it is read only where the holder is right and
///   nobody can be copying the table. Each success is ended by one `leave(pool)`.
/// - `look(pool, purpose)`: what enter would answer now, with a table of the group's epoch; enters nothing.
///
/// None waits, allocates or throws after open.
template <class G>
concept cache_gate = gate_detail::says_whether_it_speculates<G> &&
    gate_detail::opens_for_pools<G> && gate_detail::names_the_epoch<G> &&
    gate_detail::asks_at_entry<G> && gate_detail::is_left<G> && gate_detail::can_be_looked_at<G>;

}  // namespace warmset::inline v0
