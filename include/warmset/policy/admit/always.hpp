// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::admit {

/// Installs every miss that finds a slot. The default. O(1). Source: every cache without admission.
struct always {
  static constexpr bool may_decline = false;
  static constexpr char const* name = "always";

  WARMSET_HD constexpr bool admits(admission_question const&) const noexcept { return true; }
};

static_assert(admission_policy<always>, "admit::always must satisfy admission_policy");

}  // namespace warmset::inline v0::admit
