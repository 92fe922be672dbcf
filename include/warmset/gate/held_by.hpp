// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "authority.hpp"
#include "concept.hpp"
#include "fallback.hpp"
#include "permit.hpp"

namespace warmset::inline v0 {
namespace gate {

/// The gate of a cache that plans as `Who` under an authority that others share. Pool p of the cache is
/// group first_group + p, so that caches of several contexts have groups of their own.
///
/// Belongs to the cache's owner thread; the authority is what threads share. Allocates in open only.
template <holder Who, speculation_permit Permit = free_permit>
class held_by {
 public:
  static constexpr holder who = Who;
  static constexpr bool speculates = Permit::speculates;

  /// @param fallbacks  counts the steps that this gate lets in or refuses, by group of the authority; null =
  ///                   nobody counts
  explicit held_by(authority& groups, u32 first_group = 0, fallback_counts* fallbacks = nullptr,
                   Permit permit = {}) noexcept
      : groups_(&groups), first_(first_group), fallbacks_(fallbacks),
        permit_(static_cast<Permit&&>(permit)) {}

  /// Throws config_error where the authority, or who counts, has fewer groups than the cache's pools need.
  void open(u32 n_pools) {
    u64 const needed = u64{first_} + n_pools;
    if (needed > groups_->size()) {
      throw config_error(n_pools, " pools from group ", first_, " on need ", needed,
                         " groups; the authority has ", groups_->size());
    }
    if (fallbacks_ != nullptr && needed > fallbacks_->size()) {
      throw config_error(n_pools, " pools from group ", first_, " on need ", needed,
                         " groups; the fallback counts have ", fallbacks_->size());
    }
    inside_ = fixed_array<u32>(n_pools);
  }

  u32 epoch(u32 pool) const noexcept { return groups_->look(first_ + pool).epoch; }
  pass enter(u32 pool, u32 const& table_epoch, purpose what) noexcept {
    u32 const group = first_ + pool;
    pass may = get_inside(pool, what);
    if (may &&
        table_epoch != groups_->look(group).epoch) {  // the epoch stays while somebody is inside
      groups_->leave(group);
      may.why = reason::stale_epoch;
    }
    if (what == purpose::demand && fallbacks_ != nullptr) {
      may ? fallbacks_->served(group) : fallbacks_->fell_back(group, may.why);
    }
    if (may && what == purpose::speculation) {
      may = permit_.may(group);
      if (!may) {
        groups_->leave(group);
      }
    }
    inside_[pool] += may ? 1 : 0;
    return may;
  }
  void leave(u32 pool) noexcept {
    --inside_[pool];
    groups_->leave(first_ + pool);
  }
  pass look(u32 pool, purpose what) const noexcept {
    pass const entered = groups_->would_enter(first_ + pool, Who, epoch(pool));
    return entered && what == purpose::speculation ? permit_.may(first_ + pool) : entered;
  }

  authority& groups() const noexcept { return *groups_; }
  /// Who counts this gate's steps, or null.
  fallback_counts const* fallbacks() const noexcept { return fallbacks_; }
  u32 group_of(u32 pool) const noexcept { return first_ + pool; }
  Permit& permit() noexcept { return permit_; }

 private:
  /// Enters under the group's epoch, whichever that is. Again where it changed between look and enter.
  pass get_inside(u32 pool, purpose what) noexcept {
    bool const goes_on = what == purpose::continuation && inside_[pool] != 0;
    pass may;
    do {
      u32 const now = epoch(pool);
      may = goes_on ? groups_->reenter(first_ + pool, Who, now)
                    : groups_->enter(first_ + pool, Who, now);
    } while (may.why == reason::stale_epoch);
    return may;
  }

  authority* groups_;
  u32 first_;
  fallback_counts* fallbacks_;
  [[no_unique_address]] Permit permit_;
  fixed_array<u32> inside_;  // entries of this cache, leases included
};

}  // namespace gate

static_assert(cache_gate<gate::held_by<gate::holder::host>>, "held_by must satisfy cache_gate");

}  // namespace warmset::inline v0
