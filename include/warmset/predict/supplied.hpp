// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::predict {

/// Hints that the engine makes itself and hands to `cache::advise`.
struct supplied {
  static constexpr bool speculates = true;
  static constexpr char const* name = "supplied";
};

static_assert(predictor_kind<supplied>, "predict::supplied must satisfy predictor_kind");

}  // namespace warmset::inline v0::predict
