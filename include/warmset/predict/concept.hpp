// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

namespace warmset::inline v0 {

/// What a bundle says of its hints: `speculates` tells whether any can come. Predictors themselves read
/// snapshots and return hints; a bundle only needs to know that there is one.
template <class P>
concept predictor_kind = requires {
  { P::speculates } -> std::convertible_to<bool>;
  { P::name } -> std::convertible_to<char const*>;
};

}  // namespace warmset::inline v0
