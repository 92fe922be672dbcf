// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/result.hpp"

namespace warmset::inline v0::gate {

/// What an operation wants to do with a group when it enters.
enum class purpose : u8 {
  demand,        ///< serve a step
  speculation,   ///< issue hints: needs the permit as well
  upkeep,        ///< settle, commit, resize, pin, invalidate
  continuation,  ///< go on with a step whose entry (a lease) has not ended
};

/// Whether an operation may go on, and how much it may speculate. Hints are counted
/// under a refusal's reason, or under `governed` where it is none for which a hint can be dropped.
struct [[nodiscard]] pass {
  reason why = reason::none;
  u32 max_loads = u32_max;  ///< of speculation: what the permit allows now
  constexpr explicit operator bool() const noexcept { return why == reason::none; }
  friend constexpr bool operator==(pass, pass) = default;
};

/// Whether the same request can succeed later without the caller having changed anything.
constexpr bool is_retryable(reason why) noexcept {
  return why == reason::gate_closed || why == reason::busy;
}

}  // namespace warmset::inline v0::gate
