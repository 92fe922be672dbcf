// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::predict {

/// No hints: every speculative path compiles to nothing. The default.
struct none {
  static constexpr bool speculates = false;
  static constexpr char const* name = "none";
};

static_assert(predictor_kind<none>, "predict::none must satisfy predictor_kind");

}  // namespace warmset::inline v0::predict
