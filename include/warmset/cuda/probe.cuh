// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "../policy/guard/all_of.hpp"
#include "../table/commit.hpp"
#include "../table/plan_demand.hpp"

#if !defined(__CUDACC__)
#error "warmset/cuda/probe.cuh needs nvcc; a host compiler includes warmset.hpp"
#endif

/// Hard errors for policy functions without WARMSET_HD. nvcc compiles a call from host-device code to a
/// constexpr host function into a kernel without a body, with a warning that is silent where headers come
/// as system headers. Only a function that is `__device__` alone is refused such a call.
namespace warmset::inline v0 {

namespace detail {

template <class Part>
struct device_probe {
  __device__ static bool permits(Part const& part, duel const& d) { return part.permits(d); }
};

// its parts are called from a header, where their warnings would be silent
template <class... Guards>
struct device_probe<guard::all_of<Guards...>> {
  __device__ static bool permits(guard::all_of<Guards...> const&, duel const& d) {
    return (true && ... && device_probe<Guards>::permits(Guards{}, d));
  }
};

}  // namespace detail

/// Calls every policy operation that settle, plan and commit call, from a function that is `__device__`
/// alone: a policy function that lacks WARMSET_HD is an error here. Instantiated, never executed; see
/// require_device_callable.
template <class Policy, lane_group Group>
__device__ void device_callable(components<Policy> const& parts, table_writer<Policy> const& table,
                                Group const& group, plan_of<Policy>& plan) {
  using score = typename Policy::score;
  clocks const now = table.now(0, 0);
  typename score::state& state = table.score_of(0);
  expert_facts const facts{};
  u64 sum = parts.score.value(state, facts, now);
  parts.score.on_demand(state, now);
  if constexpr (score_detail::has_install_hook<score>) {
    parts.score.on_install(state, now);
  }
  if constexpr (score_detail::has_evict_hook<score>) {
    parts.score.on_evict(state, now);
  }
  if constexpr (score_detail::has_rebase_hook<score>) {
    parts.score.rebase(state, now);
  }
  if constexpr (counting_score<score>) {
    sum += parts.score.heat(state, facts, now);
  }

  if constexpr (contextual_score<score>) {
    step_context const step = detail::context_of<Policy>(table, plan);
    detail::committed_experts<Policy> const experts{table, now, 0, 0};
    sum += parts.score.list_contexts(table.context(0), experts, step, plan.slot);
    parts.score.keys(table.context(0), &state, experts, step, 0, 0, plan.key);
    parts.score.learn(table.context(0), &state, experts, step, plan.key, 0, 0);
    parts.score.end_step(table.context(0), step);
    sum += static_cast<u64>(parts.score.aged(parts.score.key_of(state)));
  }

  detail::candidate_view<Policy> const candidates{table, 0};
  sum += parts.selector.next(group, candidates, plan.walk).value;
  parts.selector.apply(table, plan.walk);
  parts.selector.on_touch(table, 0);
  parts.selector.on_remove(table, 0);
  if constexpr (select_detail::has_replace_hook<typename Policy::selector>) {
    parts.selector.on_replace(table, 0);
  }
  if constexpr (select_detail::has_touches_hook<typename Policy::selector>) {
    parts.selector.on_touches(table, 1, select_detail::slot_probe{});
  }

  sum += detail::device_probe<typename Policy::guard>::permits(parts.guard, duel{}) ? 1 : 0;
  sum += parts.admission.admits(admission_question{}) ? 1 : 0;
  if constexpr (compares_with_victim<Policy>) {
    sum += parts.admission.compares_in(admission_step{}) && parts.admission.replaces(replacement_question{}) ? 1 : 0;
  }
  plan.version = sum;
}

/// States that a kernel may run the bundle with this lane group; each kernel template does so once, as its
/// first statement. Costs nothing at run time.
template <class Policy, lane_group Group>
__device__ inline void require_device_callable() noexcept {
  static_assert(check_bundle<Policy>());
  static_assert(!Policy::selector::host_only,
                "the selector is host_only: no kernel can run the bundle");
  static_assert(std::is_trivially_copyable_v<components<Policy>>,
                "the policy objects must be trivially copyable, so that a kernel takes them by value");
  (void)&device_callable<Policy, Group>;
}

}  // namespace warmset::inline v0
