// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integers.hpp"

namespace warmset::inline v0 {

/// Why something was refused, declined, dropped or skipped. Each has a counter; none is an integer code
/// that could be mistaken for a count.
enum class reason : u8 {
  none,
  // an id that names nothing
  sentinel,       ///< a negative id: padding
  out_of_range,   ///< an id beyond the layer's experts
  duplicate,      ///< an id that this batch has already handled
  unknown_layer,  ///< a layer that the geometry does not cover
  // a hint that needs no copy
  resident,
  in_flight,
  // a hint or a miss that got no slot
  guard,               ///< the guard refused the eviction
  speculative_budget,  ///< `speculative_slots` are all taken
  admission,           ///< the admission policy declined the install
  no_victim,           ///< every slot is leased, loading, pinned or demanded by the step
  too_late,            ///< the step that the hint is for has been planned
  // an operation that did nothing
  stale_plan,      ///< the table has changed since the plan was made
  not_committable, ///< an overflow step or a busy plan: there is nothing to commit
  busy,            ///< every scratch slot is leased; retry after a lease ends
  limited,         ///< a limiting adaptor has reached its bound
  unsupported,
  // load of a saved block
  wrong_magic,
  wrong_version,
  wrong_geometry,
  wrong_policy,
  wrong_size,
  corrupt,
};

inline constexpr u32 n_reasons = static_cast<u32>(reason::corrupt) + 1;

/// The reason's name as it stands in reports and logs.
constexpr char const* name_of(reason r) noexcept {
  constexpr char const* names[n_reasons] = {
      "none",           "sentinel",      "out_of_range",       "duplicate",     "unknown_layer",
      "resident",       "in_flight",     "guard",              "speculative_budget",
      "admission",      "no_victim",     "too_late",           "stale_plan",    "not_committable",
      "busy",           "limited",           "unsupported",   "wrong_magic",
      "wrong_version",  "wrong_geometry", "wrong_policy",      "wrong_size",    "corrupt"};
  return static_cast<u32>(r) < n_reasons ? names[static_cast<u32>(r)] : "unknown";
}

/// Outcome of an operation that has no value: done, or refused for a reason. Converts to true when done.
struct [[nodiscard]] status {
  reason why = reason::none;
  WARMSET_HD constexpr explicit operator bool() const noexcept { return why == reason::none; }
  friend constexpr bool operator==(status, status) = default;  // by value: kernels compare with done
};

inline constexpr status done{};

}  // namespace warmset::inline v0
