// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <type_traits>

#include "../core/pooling.hpp"
#include "../policy/admit/always.hpp"
#include "../policy/guard/spare_only.hpp"
#include "../policy/score/decayed_count.hpp"
#include "../policy/select/coldest.hpp"
#include "../predict/none.hpp"

namespace warmset::inline v0 {

/// A heat-gated guard over counts that never fade ends in a pool that refuses every hint. A bundle that
/// wants that says so: `using decay = no_decay;`.
struct decay_required {};
struct no_decay {};

/// A composition: one type for every kind, with a default for each, and the numbers. Derive and replace:
///
///     struct my_policy : warmset::default_policy {
///       using guard = warmset::guard::warm_then_challenger_must_win;
///       static constexpr warmset::tuning numbers{.half_life = 64};
///     };
struct default_policy {
  using score = warmset::score::decayed_count;
  using selector = warmset::select::coldest;
  using guard = warmset::guard::spare_only;
  using admission = warmset::admit::always;
  using predictor = warmset::predict::none;
  using pool = warmset::pooling::per_layer;
  using decay = decay_required;

  /// Bound of n_experts per layer; sizes the plan and its workspace.
  static constexpr u32 max_experts = 512;
  static constexpr tuning numbers{};
};

/// The hard off switch: a bundle without members. A cache of it holds nothing, allocates nothing and
/// counts nothing.
struct off {};

template <class Policy>
concept is_off = std::same_as<Policy, off>;

template <class Policy>
inline constexpr bool speculates = Policy::predictor::speculates;

/// Whether the pool keeps slots for speculation that demand takes last.
template <class Policy>
inline constexpr bool keeps_reserve = speculates<Policy> && Policy::guard::keeps_reserve;

/// Whether the admission sees the victim that a miss would replace.
template <class Policy>
inline constexpr bool compares_with_victim = admit_detail::compares<typename Policy::admission>;

/// Whether the block keeps the bytes of each layer's experts.
template <class Policy>
inline constexpr bool keeps_bytes = admit_detail::counts_bytes<typename Policy::admission>;

namespace detail {
template <class Policy>
concept names_all_parts = requires {
  typename Policy::score;
  typename Policy::selector;
  typename Policy::guard;
  typename Policy::admission;
  typename Policy::predictor;
  typename Policy::pool;
  typename Policy::decay;
  Policy::max_experts;
  Policy::numbers;
};
}  // namespace detail

/// The ladder of sentences that a wrong composition meets, one plain sentence each.
template <class Policy>
consteval bool check_bundle() {
  static_assert(detail::names_all_parts<Policy>,
                "the bundle lacks a part: derive it from warmset::default_policy");
  if constexpr (detail::names_all_parts<Policy>) {
    using score = typename Policy::score;
    using selector = typename Policy::selector;
    using guard = typename Policy::guard;
    using admission = typename Policy::admission;
    static_assert(score_detail::has_plain_state<score>,
                  "the score's state must be trivially copyable integers without padding");
    if constexpr (score_detail::has_plain_state<score>) {
      static_assert(score_detail::has_value_function<score>,
                    "the score lacks value(state, expert_facts, clocks) that is const noexcept and returns a 64-bit unsigned integer");
      static_assert(score_detail::has_on_demand_hook<score>,
                    "the score lacks on_demand(state, clocks) that is const noexcept and returns nothing");
    }
    static_assert(score_detail::has_name<score>, "the score lacks a name");
    if constexpr (requires { score::columns; } || requires { &score::key_of; }) {
      static_assert(score_detail::has_context<score>,
                    "the contextual score lacks columns, uses_previous_layer, uses_supplied, or context_bytes(n_experts) that is const noexcept and returns a 64-bit unsigned integer");
      static_assert(score_detail::has_key_functions<score>,
                    "the contextual score lacks list_contexts, keys, key_of or aged, each const noexcept");
      static_assert(score_detail::has_learning_hooks<score>,
                    "the contextual score lacks learn or end_step, each const noexcept");
    }
    static_assert(select_detail::has_plain_states<selector>,
                  "the selector's pool_state, slot_state, expert_state and walk_state must be trivially copyable integers without padding");
    if constexpr (select_detail::has_plain_states<selector>) {
      static_assert(select_detail::has_const_walk<selector>,
                    "the selector lacks next(group, slots, walk) that is const and returns a slot_id");
      static_assert(select_detail::has_commit_hooks<selector>,
                    "the selector lacks apply(slots, walk), on_touch(slots, slot) or on_remove(slots, slot)");
    }
    static_assert(select_detail::has_traits<selector>, "the selector lacks asks_again, host_only or a name");
    static_assert(guard_detail::has_permits_function<guard>,
                  "the guard lacks permits(duel) that is const noexcept and returns bool");
    static_assert(guard_detail::has_traits<guard>, "the guard lacks needs_heat, keeps_reserve or a name");
    static_assert(admit_detail::has_admits_function<admission>,
                  "the admission lacks admits(admission_question) that is const noexcept and returns bool");
    static_assert(admit_detail::has_traits<admission>, "the admission lacks may_decline or a name");
    static_assert(!admit_detail::compares<admission> || admit_detail::has_comparison<admission>,
                  "the admission compares and lacks replaces(replacement_question) or compares_in(admission_step) that is const noexcept and returns bool");
    static_assert(admit_detail::compares<admission> || !requires { &admission::replaces; },
                  "the admission has replaces() and does not say compares = true: it would never be asked");
    if constexpr (admit_detail::has_traits<admission>) {
      static_assert(admission::may_decline || !admit_detail::compares<admission>,
                    "the admission compares and may_decline is false: what it refuses needs scratch");
      static_assert(admission::may_decline || !admit_detail::recent_first<admission>,
                    "the admission says recent_first and may_decline is false: it would never be asked");
    }
    if constexpr (admit_detail::needs_heat<admission> && score_policy<score>) {
      static_assert(counting_score<score>,
                    "the admission needs heat() and the score has none: choose a counting score or an admission without heat");
      if constexpr (counting_score<score>) {
        static_assert(score::decays || std::same_as<typename Policy::decay, no_decay>,
                      "the admission compares heat and the score never decays: choose a decaying score or say using decay = no_decay");
      }
    }
    static_assert(predictor_kind<typename Policy::predictor>, "the predictor lacks speculates or a name");
    if constexpr (guard_detail::has_traits<guard> && score_policy<score>) {
      static_assert(!guard::needs_heat || counting_score<score>,
                    "the guard needs heat() and the score has none: choose a counting score or a guard without heat");
      if constexpr (guard::needs_heat && counting_score<score>) {
        static_assert(score::decays || std::same_as<typename Policy::decay, no_decay>,
                      "the guard compares heat and the score never decays: choose a decaying score or say using decay = no_decay");
      }
    }
    static_assert(Policy::max_experts >= 1 && Policy::max_experts <= 65535,
                  "max_experts must lie between 1 and 65535");
  }
  return true;
}

/// A bundle that a table can be made of.
template <class Policy>
concept policy_bundle =
    detail::names_all_parts<Policy> &&
    score_policy<typename Policy::score> && selector_policy<typename Policy::selector> &&
    guard_policy<typename Policy::guard> && admission_policy<typename Policy::admission> &&
    predictor_kind<typename Policy::predictor> &&
    (!Policy::guard::needs_heat || counting_score<typename Policy::score>) &&
    (!admit_detail::needs_heat<typename Policy::admission> || counting_score<typename Policy::score>);

namespace detail {
template <class Policy>
struct bundle_check {
  static_assert(check_bundle<Policy>());
  static constexpr bool passed = policy_bundle<Policy>;
};
}  // namespace detail

/// A policy_bundle whose refusal is a sentence of the ladder and an error, also where overloads are tried.
/// The templates that users name take one: a constraint is checked before a class body, so that the
/// sentence comes first and the body adds nothing to it.
template <class Policy>
concept checked_bundle = detail::bundle_check<Policy>::passed;

static_assert(policy_bundle<default_policy>, "default_policy must satisfy policy_bundle");
static_assert(check_bundle<default_policy>());

/// The policy objects of one bundle, made from its numbers. Immutable and trivially copyable, so that a
/// kernel takes them by value. Empty parts have their byte: nvcc 13 gives an object with [[no_unique_address]] members
/// another size in a kernel's parameters than on the host.
template <checked_bundle Policy>
struct components {
  typename Policy::score score;
  typename Policy::selector selector;
  typename Policy::guard guard;
  typename Policy::admission admission;

  explicit constexpr components(tuning const& numbers)
      : score(detail::make_part<typename Policy::score>(numbers)),
        selector(detail::make_part<typename Policy::selector>(numbers)),
        guard(detail::make_part<typename Policy::guard>(numbers)),
        admission(detail::make_part<typename Policy::admission>(numbers)) {}
};

}  // namespace warmset::inline v0
