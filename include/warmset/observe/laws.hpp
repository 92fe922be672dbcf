// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../table/audit.hpp"
#include "counters.hpp"

namespace warmset::inline v0 {

/// The laws that counters obey at every settled step boundary.
enum class law : u8 {
  none,
  L1_demand,       ///< demanded = hits + first uses + late + loads + declined + overflow hits + overflow misses
  L2_installs,     ///< demand loads = installed + failed + in flight
  L3_speculation,  ///< issued = used + evicted unused + resident unused + in flight + failed
  L4_hints,        ///< hints offered = issued + dropped, by reason
  L5_copies,       ///< copies issued = completed + failed + in flight
  L6_scratch,      ///< transfers into scratch issued = completed + failed + in flight
};

constexpr char const* name_of(law l) noexcept {
  constexpr char const* names[] = {"none",           "L1 demand", "L2 installs",
                                   "L3 speculation", "L4 hints",  "L5 copies", "L6 scratch"};
  return names[static_cast<u32>(l)];
}

/// Both sides of the first law that does not hold; `none` = all hold.
struct [[nodiscard]] law_result {
  law broken = law::none;
  u64 left = 0;
  u64 right = 0;
  explicit operator bool() const noexcept { return broken == law::none; }
};

/// Checks the laws for the sum over all phases of the layers whose slots `now` counts.
constexpr law_result check_laws(total_counters const& c, table_counts const& now) noexcept {
  constexpr u32 d = static_cast<u32>(intent::demand);
  constexpr u32 s = static_cast<u32>(intent::speculative);
  auto holds = [](u64 left, u64 right) { return left == right; };

  u64 served = 0;
  for (u32 i = 0; i < n_access_kinds; ++i) {
    served += c.accesses[i].value;
  }
  if (!holds(c.demanded.value, served)) {
    return {law::L1_demand, c.demanded.value, served};
  }
  u64 const installs = c.arrived[d].value + c.failed[d].value + now.in_flight[d];
  if (!holds(c[access_kind::load].value, installs)) {
    return {law::L2_installs, c[access_kind::load].value, installs};
  }
  u64 const speculated = c.used().value + c.evicted_unused.value + now.resident_unused +
                         now.in_flight[s] + c.failed[s].value;
  if (!holds(c.issued[s].value, speculated)) {
    return {law::L3_speculation, c.issued[s].value, speculated};
  }
  u64 hints = c.issued[s].value;
  for (u32 i = 0; i < n_drop_reasons; ++i) {
    hints += c.hints_dropped[i].value;
  }
  if (!holds(c.hints_offered.value, hints)) {
    return {law::L4_hints, c.hints_offered.value, hints};
  }
  u64 const issued = c.issued[d].value + c.issued[s].value;
  u64 const ended = c.arrived[d].value + c.arrived[s].value + c.failed[d].value + c.failed[s].value +
                    c.late_failed.value + now.in_flight[d] + now.in_flight[s] + now.late_in_flight;
  if (!holds(issued, ended)) {
    return {law::L5_copies, issued, ended};
  }
  u64 const scratch = c.scratch_arrived.value + c.scratch_failed.value + now.scratch_in_flight;
  if (!holds(c.scratch_issued.value, scratch)) {
    return {law::L6_scratch, c.scratch_issued.value, scratch};
  }
  return {};
}

}  // namespace warmset::inline v0
