// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../gate/governor.hpp"
#include "../gate/pass.hpp"
#include "../gate/reservation.hpp"
#include "../move/adaptor.hpp"
#include "health.hpp"

namespace warmset::inline v0 {

/// What a reservation came to on one device, for a cache of `model` that may not have been made: no slot is
/// inactive with the report's reason, and off where nothing was asked for. Without a cache, all that was covered is.
inline health_setup health_setup_of(gate::device_report const& memory,
                                    geometry const& model) noexcept {
  health_setup s = health_setup::of(model);
  s.wanted = memory.why != reason::unsupported;
  s.cannot_be_active = memory.slots == 0 ? memory.why : reason::none;
  s.layers = memory.layers_total;
  s.layers_covered = memory.layers_covered;
  bool const was_measured = memory.layers_covered != 0 || memory.why == reason::below_minimum;
  s.layers_below_minimum = was_measured ? memory.layers_total - memory.layers_covered : 0;
  s.requested_bytes = memory.requested;
  s.effective_bytes = memory.effective;
  s.budget_why = memory.why;
  return s;
}

/// The configuration of a cache as it was made: its layers, its budget, its pools as groups, and whether the
/// backend inside all adaptors is degraded. A cache that is switched off is off.
template <class Cache>
health_setup health_setup_of(Cache const& c) noexcept {
  health_setup s;
  s.wanted = Cache::enabled;
  if constexpr (Cache::enabled) {
    s = health_setup::of(c.model());
    s.requested_bytes = c.effective_budget().requested_bytes;
    s.effective_bytes = c.effective_budget().effective_bytes;
    s.n_groups = static_cast<u32>(c.pools().size());
    auto const& backend = move::innermost(c.backend());
    if constexpr (requires { backend.degraded(); }) {
      s.pageable = backend.degraded() == reason::pageable;
    }
  }
  return s;
}

/// The same of a cache that was made from a reservation: what was asked for, and of how many layers, is the
/// reservation's to say; what is covered and how many bytes that takes is the cache's.
template <class Cache>
health_setup health_setup_of(Cache const& c, gate::device_report const& memory) noexcept {
  health_setup s = health_setup_of(c);
  if constexpr (Cache::enabled) {
    health_setup const asked = health_setup_of(memory, c.model());
    s.cannot_be_active = asked.cannot_be_active;
    s.layers = asked.layers;
    s.layers_below_minimum =
        min_of(asked.layers_below_minimum, saturating_sub(s.layers, s.layers_covered));
    s.requested_bytes = asked.requested_bytes;
    s.budget_why = asked.budget_why;
  }
  return s;
}

/// What is so of a pool's group now: what the gate says of its speculation, the steps that its fallback counts
/// have seen, and whether the governor that permits it has stopped, told to the gate or not. On the thread of the
/// cache's owner.
template <class Gate>
group_health group_health_of(Gate const& may, u32 pool,
                             gate::governor const* permits = nullptr) noexcept {
  group_health h;
  h.refuses = may.look(pool, gate::purpose::speculation).why;
  if (permits != nullptr) {
    h.is_stopped = permits->is_stopped();
    h.refuses = h.refuses == reason::none ? permits->why() : h.refuses;
  }
  if constexpr (requires { may.fallbacks(); }) {
    if (auto const* const counted = may.fallbacks(); counted != nullptr) {
      u32 const group = may.group_of(pool);
      h.steps = counted->steps(group);
      h.stock_steps = counted->of(group);
      h.stock_why = counted->main_reason(group);
    }
  }
  return h;
}

/// The same of every pool of a cache, in their order, into `out`; pools beyond its size are left out.
///
/// @return the entries that were written
template <class Cache>
array_view<group_health const> group_health_of(Cache const& c, array_view<group_health> out,
                                               gate::governor const* permits = nullptr) noexcept {
  u32 n = 0;
  if constexpr (Cache::enabled) {
    for (; n < c.pools().size() && n < out.size(); ++n) {
      out[n] = group_health_of(c.gate(), n, permits);
    }
  }
  return {out.data(), n};
}

}  // namespace warmset::inline v0
