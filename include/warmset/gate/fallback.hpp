// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/fixed_array.hpp"
#include "../core/result.hpp"

namespace warmset::inline v0::gate {

/// Demanded steps that something else than the wanted holder served, by group and reason: the stock path
/// because the group refused, or the host because the group's verdict denies the device. Allocates in the
/// constructor only; O(1) per step. One owner thread.
class fallback_counts {
 public:
  explicit fallback_counts(u32 n_groups) : groups_(n_groups) {}

  u32 size() const noexcept { return static_cast<u32>(groups_.size()); }

  /// From now on the group's holder itself is a fallback, for this reason; `none` = it is the wanted one.
  void stand_in(u32 group, reason why) noexcept { groups_[group].standing = why; }

  /// The group's holder served a step.
  void served(u32 group) noexcept {
    ++groups_[group].steps;
    if (groups_[group].standing != reason::none) {
      count(group, groups_[group].standing);
    }
  }
  /// A step of the group was refused: the stock path serves it.
  void fell_back(u32 group, reason why) noexcept {
    ++groups_[group].steps;
    count(group, why);
  }

  u64 steps(u32 group) const noexcept { return groups_[group].steps; }
  u64 of(u32 group) const noexcept { return groups_[group].fallbacks; }
  u64 of(u32 group, reason why) const noexcept {
    return groups_[group].by_reason[static_cast<u32>(why)];
  }
  /// Over all groups.
  u64 total(reason why) const noexcept {
    u64 sum = 0;
    for (group_counts const& g : groups_) {
      sum += g.by_reason[static_cast<u32>(why)];
    }
    return sum;
  }

  /// Whether more than threshold/65536 of the group's steps fell back, of at least `min_steps`.
  bool exceeds(u32 group, u32 threshold_q16, u64 min_steps = 1) const noexcept {
    group_counts const& g = groups_[group];
    return g.steps >= min_steps && (g.fallbacks << 16) > u64{threshold_q16} * g.steps;
  }
  /// What most of the group's fallbacks were for; the first in the order of reasons, `none` = there are none.
  reason main_reason(u32 group) const noexcept {
    group_counts const& g = groups_[group];
    u32 most = 0;
    for (u32 r = 1; r < n_reasons; ++r) {
      most = g.by_reason[r] > g.by_reason[most] ? r : most;
    }
    return static_cast<reason>(most);
  }
  /// Whether any group exceeds the threshold: which ones, calling f(group, main reason) for each. This is
  /// what a health report of `fallback` names.
  template <class F>
  u32 over(u32 threshold_q16, u64 min_steps, F&& f) const {
    u32 n = 0;
    for (u32 group = 0; group < size(); ++group) {
      if (exceeds(group, threshold_q16, min_steps)) {
        f(group, main_reason(group));
        ++n;
      }
    }
    return n;
  }

 private:
  struct group_counts {
    u64 steps = 0;
    u64 fallbacks = 0;
    u64 by_reason[n_reasons] = {};
    reason standing = reason::none;
  };

  void count(u32 group, reason why) noexcept {
    ++groups_[group].fallbacks;
    ++groups_[group].by_reason[static_cast<u32>(why)];
  }

  fixed_array<group_counts> groups_;
};

}  // namespace warmset::inline v0::gate
