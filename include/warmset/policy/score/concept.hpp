// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <type_traits>

#include "../../core/integers.hpp"
#include "../../core/tuning.hpp"

namespace warmset::inline v0 {

/// The clocks that a score may read. All count events, none counts time. At a read they stand where the
/// last committed step left them; at a touch they stand where this access puts them.
struct clocks {
  u32 tick;        ///< recency clock of the pool: +1 per distinct valid id
  u32 layer_tick;  ///< recency clock of the layer
  u32 model_tick;  ///< recency clock of all pools of the cache
  u32 step;        ///< decay clock of the layer: +1 per step
};

/// What the table knows of an expert besides the score's own state.
/// The flags are words: compilers keep three words in registers, but not a word and two bytes.
struct expert_facts {
  u32 last;      ///< pool tick of the last demand; meaningless where !accessed
  u32 accessed;  ///< 0: never demanded. A state, not a stamp of 0
  u32 resident;  ///< 0: it has no slot
};

/// Scalar function of one expert's history; larger = keep. Scores belong to experts, not to slots:
/// history survives eviction. Only demand touches; reads never write.
///
/// Members of a score `S` (all functions `const noexcept` and WARMSET_HD):
///
/// | member | meaning |
/// |---|---|
/// | `state` | per expert: trivially copyable integers without padding, all-zero = never demanded; `no_state` |
/// | `value(state, expert_facts, clocks) -> u64` | the score |
/// | `on_demand(state&, clocks)` | a demand touched the expert |
/// | `on_install(state&, clocks)` | optional: a demand gave the expert a slot; comes before its on_demand |
/// | `on_evict(state&, clocks)` | optional: a demand evicted the expert. An eviction by speculation changes no score |
/// | `rebase(state&, clocks)` | optional: bring stamps to `clocks` before the 32-bit clocks can wrap |
/// | `heat(state, expert_facts, clocks) -> u32` | optional: whole counts after decay |
/// | `one_count` | with heat: what one count is worth in the units of `value` |
/// | `decays` | with heat: whether counts fade |
/// | `name` | as reports and the command line spell it |
namespace score_detail {

template <class S>
concept has_plain_state =
    std::is_trivially_copyable_v<typename S::state> &&
    (std::is_empty_v<typename S::state> || std::has_unique_object_representations_v<typename S::state>);

template <class S>
concept has_value_function =
    requires(S const& s, typename S::state const& x, expert_facts e, clocks c) {
      { s.value(x, e, c) } noexcept -> std::same_as<u64>;
    };

template <class S>
concept has_on_demand_hook = requires(S const& s, typename S::state& x, clocks c) {
  { s.on_demand(x, c) } noexcept -> std::same_as<void>;
};

template <class S>
concept has_name = requires {
  { S::name } -> std::convertible_to<char const*>;
};

template <class S>
concept has_install_hook =
    requires(S const& s, typename S::state& x, clocks c) { s.on_install(x, c); };

template <class S>
concept has_evict_hook = requires(S const& s, typename S::state& x, clocks c) { s.on_evict(x, c); };

template <class S>
concept has_rebase_hook = requires(S const& s, typename S::state& x, clocks c) { s.rebase(x, c); };

}  // namespace score_detail

template <class S>
concept score_policy =
    score_detail::has_plain_state<S> && score_detail::has_value_function<S> &&
    score_detail::has_on_demand_hook<S> && score_detail::has_name<S>;

/// A score that counts: guards which compare counts need it.
template <class S>
concept counting_score =
    score_policy<S> && requires(S const& s, typename S::state const& x, expert_facts e, clocks c) {
      { s.heat(x, e, c) } noexcept -> std::same_as<u32>;
      { S::one_count } -> std::convertible_to<u64>;
      { S::decays } -> std::convertible_to<bool>;
    };

namespace detail {
/// A policy made from the numbers where it wants them, default-constructed otherwise.
template <class Part>
constexpr Part make_part(tuning const& numbers) {
  if constexpr (std::is_constructible_v<Part, tuning const&>) {
    return Part(numbers);
  } else {
    (void)numbers;
    return Part{};
  }
}
}  // namespace detail

}  // namespace warmset::inline v0
