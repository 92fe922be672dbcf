// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/fixed_array.hpp"
#include "../core/integers.hpp"

namespace warmset::inline v0::gate {

/// How often a target that refused retryably is tried, and how far apart. Times are in the unit of the
/// clock that the caller injects.
struct retry_rule {
  u32 tries = 8;
  u64 apart = 200;  ///< milliseconds, where the clock counts those
};

/// The tries of one target. The epoch of its group is part of it: another epoch is another target.
class retry {
 public:
  /// Whether the target may be tried at this moment.
  constexpr bool may_try(u32 epoch, u64 now, retry_rule rule) const noexcept {
    return is_fresh(epoch) || (tried_ < rule.tries && now >= next_);
  }
  /// Whether it will not be tried again in this epoch.
  constexpr bool is_exhausted(u32 epoch, retry_rule rule) const noexcept {
    return !is_fresh(epoch) && tried_ >= rule.tries;
  }
  /// Notes a try that was refused retryably.
  constexpr void tried(u32 epoch, u64 now, retry_rule rule) noexcept {
    tried_ = is_fresh(epoch) ? 1 : tried_ + 1;
    epoch_ = epoch;
    next_ = now + rule.apart;
  }
  /// When the next try may come; of the past where it may come at once.
  constexpr u64 next() const noexcept { return next_; }

 private:
  constexpr bool is_fresh(u32 epoch) const noexcept { return tried_ == 0 || epoch != epoch_; }

  u32 epoch_ = 0;
  u32 tried_ = 0;
  u64 next_ = 0;
};

/// The tries of many targets. Allocates in the constructor only; O(1) per call; no clock of its own.
class retries {
 public:
  explicit retries(u32 n_targets, retry_rule rule = {}) : rule_(rule), of_(n_targets) {}

  bool may_try(u32 target, u32 epoch, u64 now) const noexcept {
    return of_[target].may_try(epoch, now, rule_);
  }
  bool is_exhausted(u32 target, u32 epoch) const noexcept {
    return of_[target].is_exhausted(epoch, rule_);
  }
  void tried(u32 target, u32 epoch, u64 now) noexcept { of_[target].tried(epoch, now, rule_); }
  u64 next(u32 target) const noexcept { return of_[target].next(); }
  u32 size() const noexcept { return static_cast<u32>(of_.size()); }

 private:
  retry_rule rule_;
  fixed_array<retry> of_;
};

}  // namespace warmset::inline v0::gate
