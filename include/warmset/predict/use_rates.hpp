// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranking.hpp"

namespace warmset::inline v0::predict::detail {

/// How often the experts of each layer are used: in the long run, and of late. Memory: 8 bytes per expert of the model.
class use_rates {
 public:
  use_rates() = default;
  explicit use_rates(rows const& model)
      : steps_(model.size()), uses_(model.total()), heat_(model.total()) {}

  /// O(experts of the layer).
  void touch(rows const& model, routing_snapshot const& step) noexcept {
    rows::row const& row = model[step.row];
    float* const heat = heat_.data() + row.first;
    u32* const uses = uses_.data() + row.first;
    ++steps_[step.row];
    for (u32 x = 0; x < row.n_experts; ++x) {
      heat[x] *= kept;
    }
    for (u32 x : step.experts) {
      if (x < row.n_experts) {
        heat[x] += 1 - kept;
        ++uses[x];
      }
    }
    if (steps_[step.row] == 1u << 16) {  // old news fades
      steps_[step.row] /= 2;
      for (u32 x = 0; x < row.n_experts; ++x) {
        uses[x] /= 2;
      }
    }
  }

  /// Share of the layer's steps that used the expert; above 0.
  double in_the_long_run(rows const& model, u32 row, u32 expert) const noexcept {
    return (uses_[model[row].first + expert] + .01) / (steps_[row] + 1.0);
  }
  /// The same with a half-life of 16 steps.
  double of_late(rows const& model, u32 row, u32 expert) const noexcept {
    return double{heat_[model[row].first + expert]};
  }

 private:
  static constexpr float kept = .957603281f;  // 2^(-1/16)

  fixed_array<u32> steps_;   // [row]
  fixed_array<u32> uses_;    // [expert of the model]
  fixed_array<float> heat_;  // [expert of the model]
};

}  // namespace warmset::inline v0::predict::detail
