// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <type_traits>

#include "../../core/integers.hpp"
#include "../../core/plain.hpp"
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
/// | `heat_256(state, clocks) -> u32` | optional, with heat: the same in 1/256 counts, saturating, for heat profiles |
/// | `seed(state&, u32, clocks)` | optional: the state of an expert with so many 1/256 counts at `clocks` |
/// | `name` | as reports and the command line spell it |
namespace score_detail {

template <class S>
concept has_plain_state = detail::plain_state<typename S::state>;

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

template <class S>
concept has_fine_heat = requires(S const& s, typename S::state const& x, clocks c) {
  { s.heat_256(x, c) } noexcept -> std::same_as<u32>;
};

template <class S>
concept has_seed_hook = requires(S const& s, typename S::state& x, clocks c) { s.seed(x, 0u, c); };

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

/// What a contextual score is told of the step that is being planned or committed.
struct step_context {
  static constexpr u32 no_token = u32_max;

  u32 const* ids;         ///< [n] distinct valid experts that the step demands
  u32 n;
  u32 const* previous;    ///< [n_previous] what the layer before demanded for the same token; may be null
  u32 n_previous;
  u32 layer;              ///< id of the layer
  u32 n_experts;
  u32 sequence;           ///< whose turn it is, where sequences take turns
  u32 token;              ///< input token, or a hash of the micro-batch's tokens; no_token = unknown
  i32 const* supplied;    ///< [n_experts] keys that the engine hands over with the step; may be null
  u32 const* contexts;    ///< [n_contexts] what list_contexts said; keys() only
  u32 n_contexts;
};

/// A score whose values depend on the set that the step demands. It gives every expert of the layer a key
/// before any victim is chosen, and learns from the step when it is committed; reads at other times see the
/// key of the layer's last step. Its functions take experts [first, end), a block of at most `columns` from a multiple of
/// them, so that a lane owns columns; authors see no lanes. Where `keys` and `learn` have the number of columns as a template
/// parameter, `columns` by default, many lanes own few each.
///
/// Members of a contextual score `S` besides those of a score_policy; `context` is memory of the layer in the
/// table's block, 16-byte aligned, zero at first:
///
/// | member | meaning |
/// |---|---|
/// | `columns` | experts that one call takes, a power of two |
/// | `context_bytes(n_experts) -> u64` | size of a layer's context |
/// | `list_contexts(context, experts, step, out) -> u32` | words for keys(), at most n_experts: what is found once per step. One lane |
/// | `keys(context, states, experts, step, first, end, out)` | writes out[first … end): larger = keep. Changes nothing |
/// | `learn(context, states, experts, step, keys, first, end)` | writes states and context of these columns |
/// | `end_step(context, step)` | after all columns: what is not per column. One lane |
/// | `key_of(state) -> i32` | the expert's key at the layer's last step |
/// | `uses_previous_layer`, `uses_supplied` | whether `step.previous` and `step.supplied` are read |
/// | `aged(i32) -> i32` | a key of a layer that this token has passed: its next use is a token farther away |
///
/// `experts.demanded(x)`, `experts.facts(x)` and `experts.now()` say what the table knows of expert x of the
/// layer, and the clocks before the step. `value` of such a score is the key where that is positive, 0 otherwise:
/// what guards compare. Victims are ordered by the whole key.
namespace score_detail {

/// What keys() and learn() see of the table; concept checks use it.
struct experts_archetype {
  WARMSET_HD constexpr bool demanded(u32) const noexcept { return false; }
  WARMSET_HD constexpr expert_facts facts(u32) const noexcept { return {}; }
  WARMSET_HD constexpr clocks now() const noexcept { return {}; }
};

template <class S>
concept has_context = requires(S const& s) {
  { S::columns } -> std::convertible_to<u32>;
  { S::uses_previous_layer } -> std::convertible_to<bool>;
  { S::uses_supplied } -> std::convertible_to<bool>;
  { s.context_bytes(0u) } noexcept -> std::same_as<u64>;
};

template <class S>
concept has_key_functions = requires(S const& s, typename S::state const* states, typename S::state const& x,
                                     unsigned char const* context, step_context const& step, i32* out, u32* words) {
  { s.list_contexts(context, experts_archetype{}, step, words) } noexcept -> std::same_as<u32>;
  { s.keys(context, states, experts_archetype{}, step, 0u, 0u, out) } noexcept -> std::same_as<void>;
  { s.key_of(x) } noexcept -> std::same_as<i32>;
  { s.aged(i32{}) } noexcept -> std::same_as<i32>;
};

template <class S>
concept has_learning_hooks = requires(S const& s, typename S::state* states, unsigned char* context,
                                      step_context const& step, i32 const* keys) {
  { s.learn(context, states, experts_archetype{}, step, keys, 0u, 0u) } noexcept -> std::same_as<void>;
  { s.end_step(context, step) } noexcept -> std::same_as<void>;
};

/// Whether keys and learn take blocks of N columns.
template <class S, u32 N>
concept takes_blocks = requires(S const& s, typename S::state const* states, typename S::state* written,
                                unsigned char const* context, unsigned char* kept, step_context const& step, i32* out) {
  s.template keys<N>(context, states, experts_archetype{}, step, 0u, 0u, out);
  s.template learn<N>(kept, written, experts_archetype{}, step, out, 0u, 0u);
};

/// Columns of a block where N are wanted.
template <class S, u32 N>
inline constexpr u32 block_columns = takes_blocks<S, N> ? N : S::columns;

template <u32 N, class S, class... Arguments>
WARMSET_HD constexpr void keys_of(S const& rule, Arguments&&... arguments) noexcept {
  if constexpr (takes_blocks<S, N>) {
    rule.template keys<N>(arguments...);
  } else {
    rule.keys(arguments...);
  }
}
template <u32 N, class S, class... Arguments>
WARMSET_HD constexpr void learn_of(S const& rule, Arguments&&... arguments) noexcept {
  if constexpr (takes_blocks<S, N>) {
    rule.template learn<N>(arguments...);
  } else {
    rule.learn(arguments...);
  }
}

}  // namespace score_detail

template <class S>
concept contextual_score = score_policy<S> && score_detail::has_context<S> &&
                           score_detail::has_key_functions<S> && score_detail::has_learning_hooks<S>;

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
