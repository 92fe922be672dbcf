// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "../../core/intent.hpp"

namespace warmset::inline v0 {

/// What an admission policy is asked about one missing expert, in demand order.
struct admission_question {
  u64 score;             ///< the missing expert's score before this step
  u32 age;               ///< pool ticks since its last demand; meaningless where !accessed
  u32 installs;          ///< misses of this step admitted so far
  u32 free_slots;        ///< free slots at the start of the step
  bool accessed;         ///< demanded before
  phase in_phase;
};

/// Scalar predicate that decides which misses are installed; the others are declined and served from
/// scratch. Members of an admission `A`: `admits(admission_question) -> bool`, const noexcept and
/// WARMSET_HD; `may_decline` (needs scratch, or a consumer that reads host memory); `name`.
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
}  // namespace admit_detail

template <class A>
concept admission_policy = admit_detail::has_admits_function<A> && admit_detail::has_traits<A>;

}  // namespace warmset::inline v0
