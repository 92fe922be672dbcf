// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranking.hpp"

namespace warmset::inline v0::predict {

/// Knows the future, because it is told: for tests and replay, as the bound of what any predictor can reach.
///
/// `tell` says what a layer will demand next; hints are that set in its order, at full confidence. Memory: 2 bytes per
/// expert of the model and 4 per layer. O(width).
template <u32 Horizon = 1>
class oracle {
  static_assert(Horizon >= 1 && Horizon < 100, "predict::oracle looks 1 to 99 layers ahead");

 public:
  static constexpr bool speculates = true;
  static constexpr detail::spelling<Horizon> spelled{"oracle"};
  static constexpr char const* name = spelled.text;
  static constexpr u32 horizon = Horizon;

  void open(geometry const& model) {
    model_ = detail::rows(model);
    next_ = detail::last_sets(model_, 1);
  }

  /// What the layer of this row demands at its next step, distinct; nothing = unknown, and no hints.
  void tell(u32 row, array_view<u32 const> experts) noexcept {
    next_.tell(model_, row, experts);
  }

  void learn(routing_snapshot const&) noexcept {}

  u32 predict(routing_snapshot const& step, u32 width, array_view<hint> out) const noexcept {
    if (step.row >= model_.size()) {
      return 0;
    }
    u32 const there = model_.ahead(step.row, Horizon);
    array_view<u16 const> const next = next_.of(model_, there, 0);
    u32 const n = static_cast<u32>(
        min_of(min_of(next.size(), out.size()), std::size_t{min_of(width, most_hints)}));
    for (u32 i = 0; i < n; ++i) {
      out[i] = {model_[there].layer, next[i], static_cast<u16>(i), 65'535};
    }
    return n;
  }

 private:
  detail::rows model_;
  detail::last_sets next_;
};

static_assert(predictor<oracle<>>, "predict::oracle must satisfy predictor");

}  // namespace warmset::inline v0::predict
