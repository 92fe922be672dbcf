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
  limited,             ///< a bound is reached: loads that the permit allows, or a limiting adaptor's
  // speculation that nobody may issue now
  no_authority,  ///< the plans of this group are another holder's
  gate_closed,   ///< a transition of the group's authority is under way
  stale_epoch,   ///< the caller's epoch is not the group's
  governed,      ///< the governor permits no byte now
  in_prefill,    ///< speculation is off in prefill
  worker_down,   ///< the worker is stopped, dead or paused
  ring_full,     ///< the hint ring had no room: newest dropped
  // an operation that did nothing
  stale_plan,      ///< the table has changed since the plan was made
  not_committable, ///< an overflow step or a busy plan: there is nothing to commit
  busy,            ///< every scratch slot is leased; retry after a lease ends
  unsupported,
  // memory, sources and devices
  over_budget,    ///< more bytes than the device's budget has left
  no_memory,      ///< an allocation failed
  below_minimum,  ///< smaller than the configured minimum size
  in_use,         ///< something still refers to it
  wrong_device,   ///< a slot, source or stream of another device
  pageable,       ///< the source is not pinned: copies go through a staging ring
  uncovered,      ///< layers of the model are not in the cache
  device_error,   ///< a call of the device's driver failed
  // who decides and who reads
  unproven,    ///< a consumer of the routed ids or weights is not known to allow the device path
  route,       ///< the routed ids are produced on another device: the host holder serves
  fallback,    ///< the stock path served more than the threshold allows
  inert,       ///< speculation is offered and nothing of it is issued
  not_paying,  ///< speculated bytes cost more than they save
  // rings and waits
  deadline,  ///< the wait ended before the answer came
  stopped,   ///< the worker was stopped while the caller waited
  // load of a saved block
  wrong_magic,
  wrong_version,
  wrong_geometry,
  wrong_policy,
  wrong_size,
  corrupt,
};

inline constexpr u32 n_reasons = static_cast<u32>(reason::corrupt) + 1;
/// Reasons for which an id or a hint is dropped, skipped or declined come first: records count these by reason.
inline constexpr u32 n_drop_reasons = static_cast<u32>(reason::ring_full) + 1;

/// The reason's name as it stands in reports and logs.
constexpr char const* name_of(reason r) noexcept {
  constexpr char const* names[n_reasons] = {
      "none", "sentinel", "out_of_range", "duplicate", "unknown_layer", "resident", "in_flight", "guard",
      "speculative_budget", "admission", "no_victim", "too_late", "limited", "no_authority", "gate_closed",
      "stale_epoch", "governed", "in_prefill", "worker_down", "ring_full", "stale_plan", "not_committable",
      "busy", "unsupported", "over_budget", "no_memory", "below_minimum", "in_use", "wrong_device",
      "pageable", "uncovered", "device_error", "unproven", "route", "fallback", "inert", "not_paying", "deadline",
      "stopped", "wrong_magic", "wrong_version", "wrong_geometry", "wrong_policy", "wrong_size", "corrupt"};
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
