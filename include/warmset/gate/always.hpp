// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0 {
namespace gate {

/// The gate of a cache whose owner thread is the only one that ever plans: it always may. Empty; compiles
/// to nothing.
struct always {
  static constexpr bool speculates = true;

  constexpr void open(u32) const noexcept {}
  constexpr u32 epoch(u32) const noexcept { return 0; }
  constexpr pass enter(u32, u32 const&, purpose) const noexcept { return {}; }
  constexpr void leave(u32) const noexcept {}
  constexpr pass look(u32, purpose) const noexcept { return {}; }
};

}  // namespace gate

static_assert(cache_gate<gate::always>, "gate::always must satisfy cache_gate");

}  // namespace warmset::inline v0
