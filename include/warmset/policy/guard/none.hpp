// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::guard {

/// No protection: speculation may evict what a demand would evict (invariant I5). O(1).
/// Source: engines that prefetch without a guard.
struct none {
  static constexpr bool needs_heat = false;
  static constexpr bool keeps_reserve = false;
  static constexpr char const* name = "none";

  WARMSET_HD constexpr bool permits(duel const&) const noexcept {
    return true;
  }
};

static_assert(guard_policy<none>, "guard::none must satisfy guard_policy");

}  // namespace warmset::inline v0::guard
