// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranking.hpp"

namespace warmset::inline v0::predict {

/// Any experts of the layer ahead, the same for the same seed and steps: for tests, and as the level that chance has.
/// Confidence is chance, k / n_experts. Memory: 16 bytes and the rows. O(width).
template <u32 Horizon = 1>
class random {
  static_assert(Horizon >= 1 && Horizon < 100, "predict::random looks 1 to 99 layers ahead");

 public:
  static constexpr bool speculates = true;
  static constexpr detail::spelling<Horizon> spelled{"random"};
  static constexpr char const* name = spelled.text;
  static constexpr u32 horizon = Horizon;

  explicit random(u64 seed = 1) noexcept : seed_(seed) {}

  void open(geometry const& model) {
    model_ = detail::rows(model);
    steps_ = 0;
  }
  void learn(routing_snapshot const&) noexcept { ++steps_; }

  u32 predict(routing_snapshot const& step, u32 width, array_view<hint> out) const noexcept {
    if (step.row >= model_.size()) {
      return 0;
    }
    detail::rows::row const& there = model_[model_.ahead(step.row, Horizon)];
    u32 const n_experts = there.n_experts;
    u64 dice = mixed(seed_ * 0x9E37'79B9'7F4A'7C15ull + steps_);
    u32 expert = static_cast<u32>(dice % n_experts);
    u32 stride = 0;  // coprime to n_experts: the walk meets every expert once
    do {
      dice = mixed(dice);
      stride = static_cast<u32>(dice % n_experts);
    } while (!coprime(stride, n_experts));
    u32 const n = static_cast<u32>(
        min_of(min_of(std::size_t{n_experts}, out.size()), std::size_t{min_of(width, most_hints)}));
    for (u32 i = 0; i < n; ++i) {
      out[i] = {there.layer, static_cast<routed_id>(expert), static_cast<u16>(i),
                detail::confidence_of(static_cast<double>(there.k) / n_experts)};
      expert = (expert + stride) % n_experts;
    }
    return n;
  }

 private:
  static constexpr u64 mixed(u64 x) noexcept {  // splitmix64
    x += 0x9E37'79B9'7F4A'7C15ull;
    x = (x ^ x >> 30) * 0xBF58'476D'1CE4'E5B9ull;
    x = (x ^ x >> 27) * 0x94D0'49BB'1331'11EBull;
    return x ^ x >> 31;
  }
  static constexpr bool coprime(u32 a, u32 b) noexcept {
    while (a != 0) {
      u32 const rest = b % a;
      b = a;
      a = rest;
    }
    return b == 1;
  }

  u64 seed_;
  u64 steps_ = 0;
  detail::rows model_;
};

static_assert(predictor<random<>>, "predict::random must satisfy predictor");

}  // namespace warmset::inline v0::predict
