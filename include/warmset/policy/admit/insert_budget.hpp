// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../../core/tuning.hpp"
#include "concept.hpp"

namespace warmset::inline v0::admit {

/// Installs the misses of a step while their bytes stay within `tuning::insert_bytes`, and one expert
/// whatever its size; in demand order. Unit: bytes per step. Installs into free slots count as well. O(1), no
/// state. Source: insertion limits of engines that share the link with other traffic; the floor keeps a
/// budget below one expert from switching the cache off.
class insert_budget {
 public:
  static constexpr bool may_decline = true;
  static constexpr bool counts_bytes = true;
  static constexpr char const* name = "insert_budget";

  WARMSET_HD explicit constexpr insert_budget(tuning const& numbers) noexcept
      : bytes_(numbers.insert_bytes) {}

  WARMSET_HD constexpr bool admits(admission_question const& q) const noexcept {
    // by division, so that no product can wrap
    return q.installs == 0 || (q.expert_bytes != 0 && q.installs < bytes_ / q.expert_bytes);
  }

 private:
  u64 bytes_;
};

static_assert(admission_policy<insert_budget>, "admit::insert_budget must satisfy admission_policy");

}  // namespace warmset::inline v0::admit
