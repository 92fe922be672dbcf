// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "activation_match.hpp"
#include "adversarial.hpp"
#include "none.hpp"
#include "oracle.hpp"
#include "previous_step.hpp"
#include "random.hpp"
#include "router_lookahead.hpp"
#include "token_table.hpp"
#include "transition.hpp"

namespace warmset::inline v0::predict {

template <checked_predictor... Predictors>
struct list {
  static constexpr u32 size = sizeof...(Predictors);
};

/// Every predictor that is shipped, by name: tests, benchmarks and tools go over this list. Adding one is a file and a
/// line here.
using named = list<none, previous_step<>, transition<1>, transition<2>, router_lookahead<>,
                   token_table<>, activation_match<>, oracle<>, oracle<2>, random<>, adversarial<>>;

/// Calls f.operator()<Predictor>() for each of the list, in its order.
template <class... Predictors, class F>
constexpr void for_each(list<Predictors...>, F&& f) {
  (f.template operator()<Predictors>(), ...);
}

/// Whether the predictor has to be told what comes: `tell(row, experts)` before predict.
template <class P>
concept is_told = requires(P& p, array_view<u32 const> experts) {
  p.tell(0u, experts);
};

}  // namespace warmset::inline v0::predict
