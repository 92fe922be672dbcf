// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "../predict/concept.hpp"
#include "routed.hpp"

namespace warmset::inline v0 {
namespace trace {

/// What a predictor's hints came to. Unit: experts, one per hint and per distinct demanded expert.
struct recall_counts {
  u64 demanded = 0;   ///< by the steps that were predicted
  u64 hinted = 0;     ///< hints for them
  u64 came_true = 0;  ///< hints that were demanded

  /// came_true / demanded; 0 where nothing was demanded.
  double recall() const noexcept { return ratio(came_true, demanded); }
  /// came_true / hinted; 0 without hints.
  double precision() const noexcept { return ratio(came_true, hinted); }

 private:
  static double ratio(u64 part, u64 whole) noexcept {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  }
};

/// How recall is counted.
struct recall_options {
  u32 width = 0;       ///< hints per step; 0 = the k of the layer that is predicted
  u32 first_row = 0;   ///< rows below are not counted
  bool learns = true;  ///< whether the predictor goes on learning while it is tested
};

/// Lets a predictor learn from the selected events and counts nothing. It must be open.
template <checked_predictor P>
void teach(recording const& r, selection const& which, P& predictor) {
  routed_steps(r, which).for_each(0, [&](event const&, routing_snapshot const& seen,
                                         array_view<u32 const>) { predictor.learn(seen); });
}

/// Plays the selected events past a predictor and counts which hints come true at the next event of the layer ahead.
/// Hints that reach past the last layer are not counted: they are of the next token. It must be open.
template <checked_predictor P>
recall_counts recall_of(recording const& r, selection const& which, P& predictor,
                        recall_options options = {}) {
  recall_counts counts;
  std::vector<layer_geometry> const& layers = r.geometry().layers();
  std::vector<hint> hints(detail::most_experts(r.geometry()));
  routed_steps(r, which).for_each(P::horizon, [&](event const& e, routing_snapshot const& seen,
                                                  array_view<u32 const> next) {
    if (options.learns) {
      predictor.learn(seen);
    }
    u32 const target = e.row + P::horizon;
    if (target >= layers.size() || target < options.first_row || next.empty()) {
      return;
    }
    if constexpr (requires { predictor.tell(target, next); }) {
      predictor.tell(target, next);
    }
    u32 const width = options.width != 0 ? options.width : layers[target].k;
    u32 const n = predictor.predict(seen, width, hints);
    counts.demanded += next.size();
    counts.hinted += n;
    for (u32 i = 0; i < n; ++i) {
      for (u32 x : next) {
        counts.came_true +=
            hints[i].layer == layers[target].layer && static_cast<u32>(hints[i].expert) == x ? 1
                                                                                             : 0;
      }
    }
  });
  return counts;
}

}  // namespace trace
}  // namespace warmset::inline v0
