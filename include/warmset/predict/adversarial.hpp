// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranking.hpp"

namespace warmset::inline v0::predict {

/// Names what hurts most, at full confidence: the experts of the layer ahead that have been out of use for longest,
/// and none of those that it is told will be used next. For tests: whatever it says, no delivered byte may change and a
/// governor has to stop it.
///
/// Memory: 4 bytes per expert of the model, and those of an oracle. O(E + E log width). Ties: the lower expert.
template <u32 Horizon = 1>
class adversarial {
  static_assert(Horizon >= 1 && Horizon < 100, "predict::adversarial looks 1 to 99 layers ahead");

 public:
  static constexpr bool speculates = true;
  static constexpr detail::spelling<Horizon> spelled{"adversarial"};
  static constexpr char const* name = spelled.text;
  static constexpr u32 horizon = Horizon;

  void open(geometry const& model) {
    model_ = detail::rows(model);
    next_ = detail::last_sets(model_, 1);
    last_use_ = fixed_array<u32>(model_.total());
    steps_ = 0;
  }

  /// What the layer of this row demands at its next step: none of it will be named. Without it, what was used last
  /// comes last.
  void tell(u32 row, array_view<u32 const> experts) noexcept {
    next_.tell(model_, row, experts);
  }

  void learn(routing_snapshot const& step) noexcept {
    if (step.row >= model_.size()) {
      return;
    }
    steps_ += steps_ != u32_max ? 1 : 0;
    for (u32 x : step.experts) {
      if (x < model_[step.row].n_experts) {
        last_use_[model_[step.row].first + x] = steps_;
      }
    }
  }

  u32 predict(routing_snapshot const& step, u32 width, array_view<hint> out) const noexcept {
    detail::ranking worst(width, out);
    if (step.row >= model_.size()) {
      return 0;
    }
    u32 const row = model_.ahead(step.row, Horizon);
    array_view<u16 const> const next = next_.of(model_, row, 0);
    for (u32 x = 0; x < model_[row].n_experts; ++x) {
      if (!detail::contains(next, x)) {
        worst.offer(x, 1.0 + (steps_ - last_use_[model_[row].first + x]));
      }
    }
    return worst.write(model_[row].layer, out, [](double) { return 1.0; });
  }

 private:
  detail::rows model_;
  detail::last_sets next_;
  fixed_array<u32> last_use_;  // [expert of the model]: number of the step; 0 = never
  u32 steps_ = 0;
};

static_assert(predictor<adversarial<>>, "predict::adversarial must satisfy predictor");

}  // namespace warmset::inline v0::predict
