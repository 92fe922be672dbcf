// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::predict {

/// No hints: every speculative path compiles to nothing. The default. Memory: none.
struct none {
  static constexpr bool speculates = false;
  static constexpr char const* name = "none";
  static constexpr u32 horizon = 0;

  void open(geometry const&) noexcept {}
  void learn(routing_snapshot const&) noexcept {}
  u32 predict(routing_snapshot const&, u32, array_view<hint>) const noexcept { return 0; }
};

static_assert(predictor<none>, "predict::none must satisfy predictor");

}  // namespace warmset::inline v0::predict
