// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranking.hpp"

namespace warmset::inline v0::predict {

/// The layer ahead will use what it used last: hints are that layer's last set of the same sequence, in the order of
/// its routed ids, for the step that comes next there. Confidence is how often the hint of that rank came true.
///
/// In a cache that keeps the last set anyway it has nothing to copy; it pays where pools are below k, or where another
/// sequence has been at work in between. Memory: 2 bytes per expert of the model and 4 per layer, times sequences.
/// predict is O(width), learn O(n²) for n demanded experts. Source: the "temporal" prefetch of several engines.
template <u32 Horizon = 1>
class previous_step {
  static_assert(Horizon >= 1 && Horizon < 100, "predict::previous_step looks 1 to 99 layers ahead");

 public:
  static constexpr bool speculates = true;
  static constexpr detail::spelling<Horizon> spelled{"previous_step"};
  static constexpr char const* name = spelled.text;
  static constexpr u32 horizon = Horizon;

  /// @param sequences  that take turns; throws config_error where it is not 1 … 64
  explicit previous_step(u32 sequences = 1) : sequences_(detail::checked_sequences(sequences)) {}

  void open(geometry const& model) {
    model_ = detail::rows(model);
    last_ = detail::last_sets(model_, sequences_);
    precision_ = {};
  }

  void learn(routing_snapshot const& step) noexcept {
    if (!model_.teaches(step)) {
      return;
    }
    array_view<u16 const> const before = last_.of(model_, step.row, step.sequence);
    for (u32 i = 0; i < min_of<std::size_t>(before.size(), most_hints); ++i) {
      precision_.judge(i, detail::contains(step.experts, before[i]));
    }
    last_.remember(model_, step);
  }

  u32 predict(routing_snapshot const& step, u32 width, array_view<hint> out) const noexcept {
    if (step.row >= model_.size()) {
      return 0;
    }
    u32 const target = model_.ahead(step.row, Horizon);
    array_view<u16 const> const last = last_.of(model_, target, step.sequence);
    u32 const n = static_cast<u32>(
        min_of(min_of(last.size(), out.size()), std::size_t{min_of(width, most_hints)}));
    for (u32 i = 0; i < n; ++i) {
      out[i] = {model_[target].layer, last[i], 0, 0};
    }
    precision_.grade(out, n);
    return n;
  }

 private:
  u32 sequences_;
  detail::rows model_;
  detail::last_sets last_;
  detail::rank_precision precision_;
};

static_assert(predictor<previous_step<>>, "predict::previous_step must satisfy predictor");

}  // namespace warmset::inline v0::predict
