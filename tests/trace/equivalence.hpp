// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support.hpp"

#include <warmset/cache.hpp>
#include <warmset/move/host.hpp>
#include <warmset/policy/guard/none.hpp>
#include <warmset/predict/supplied.hpp>
#include <warmset/trace/equivalence.hpp>

namespace trace_test {

struct hinting : default_policy {
  using predictor = predict::supplied;
  static constexpr u32 max_experts = 128;
  static constexpr tuning numbers{.speculative_slots = 2};
};
struct unguarded : hinting {
  using guard = warmset::guard::none;
};
struct unguarded_pool : unguarded {
  using pool = pooling::shared;
};

/// The recording's layers with a few bytes per expert, in banks of unequal and odd size.
inline geometry small_bytes(trace::recording const& r) {
  std::vector<layer_geometry> layers = r.geometry().layers();
  for (layer_geometry& layer : layers) {
    layer.bank_bytes = {24, 13};
  }
  return geometry(std::move(layers));
}

struct plain_host {
  move::host operator()() const { return {}; }
};

template <class Policy, class MakeBackend = plain_host>
auto caches(trace::recording const& r, u32 slots, MakeBackend make = {}) {
  return [g = small_bytes(r), slots, make] {
    return cache<Policy, move::host>{g, budget::of_slots(slots), Policy::numbers, make()};
  };
}

/// Steps that go round: every expert is used again and again, and few of them fit.
inline trace::recording round_trip() {
  std::vector<std::vector<u16>> steps;
  for (u16 i = 0; i < 200; ++i) {
    steps.push_back({static_cast<u16>(i * 7 % 32), static_cast<u16>((i * 5 + 1) % 32)});
    if (steps.back()[0] == steps.back()[1]) {
      steps.back().pop_back();
    }
  }
  return one_layer(32, 2, steps);
}

}  // namespace trace_test
