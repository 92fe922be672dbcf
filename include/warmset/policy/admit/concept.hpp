// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "../../core/integers.hpp"
#include "../../core/intent.hpp"

namespace warmset::inline v0 {

/// What an admission policy is asked about one missing expert, in demand order or the most recent first.
struct admission_question {
  u64 score;             ///< the missing expert's score before this step
  u64 expert_bytes;      ///< bytes of one expert of the layer; 0 unless the admission `counts_bytes`
  u32 age;               ///< pool ticks since its last demand; meaningless where !accessed
  u32 installs;          ///< misses of this step admitted so far
  u32 misses;            ///< of this step, this one included; at most 65535
  u32 free_slots;        ///< free slots at the start of the step, without those kept for speculation
  bool accessed;         ///< demanded before
  phase in_phase;
};

/// The step whose misses may be compared with victims.
struct admission_step {
  u32 layer_steps;       ///< steps that the layer has committed
  phase in_phase;
};

/// What an admission that compares is asked when no free slot is left and an eviction is next: may this miss
/// replace this victim? Scores and heats are what they were before this step, the missing expert's too; a
/// contextual score says its key of this step.
struct replacement_question {
  u64 challenger_score;  ///< of the missing expert
  u64 victim_score;
  u32 challenger_heat;   ///< whole counts after decay; 0 where the score does not count
  u32 victim_heat;
};

/// Scalar predicate that decides which misses are installed; the others are declined and served from
/// scratch. All functions const noexcept and WARMSET_HD. Members of an admission `A`:
///
/// | member | meaning |
/// |---|---|
/// | `admits(admission_question) -> bool` | asked about every miss, in demand order |
/// | `may_decline` | whether the answer can be no (needs scratch, or a consumer that reads host memory) |
/// | `name` | as reports and the command line spell it |
/// | `recent_first` | optional: misses are asked about, and served, by falling recency of their last demand instead, never demanded ones last, ties to the lower id |
/// | `compares` | optional: whether there is a second question, about each admitted miss and the victim that is next. A refused miss is declined, and the victim is the next one's |
/// | `compares_in(admission_step) -> bool` | with compares: whether it is asked in this step; where not, every admitted miss replaces |
/// | `replaces(replacement_question) -> bool` | with compares: the second question |
/// | `falling_score` | optional, with compares: in a step that compares, misses are served by falling score, equal ones in the order in which they were asked about |
/// | `needs_heat` | optional: the score must count, and either decay or be declared `no_decay` |
/// | `counts_bytes` | optional: the table keeps the bytes of each layer's experts for the question |
namespace admit_detail {
template <class A>
concept has_admits_function = requires(A const& a, admission_question const& q) {
  { a.admits(q) } noexcept -> std::same_as<bool>;
};
template <class A>
concept has_traits = requires {
  { A::may_decline } -> std::convertible_to<bool>;
  { A::name } -> std::convertible_to<char const*>;
};
template <class A>
concept compares = requires { requires A::compares; };
template <class A>
concept has_comparison = requires(A const& a, replacement_question const& q, admission_step s) {
  { a.replaces(q) } noexcept -> std::same_as<bool>;
  { a.compares_in(s) } noexcept -> std::same_as<bool>;
};
template <class A>
concept falling_score = requires { requires A::falling_score; };
template <class A>
concept recent_first = requires { requires A::recent_first; };
template <class A>
concept needs_heat = requires { requires A::needs_heat; };
template <class A>
concept counts_bytes = requires { requires A::counts_bytes; };
}  // namespace admit_detail

template <class A>
concept admission_policy = admit_detail::has_admits_function<A> && admit_detail::has_traits<A> &&
                           (!admit_detail::compares<A> || admit_detail::has_comparison<A>);

}  // namespace warmset::inline v0
