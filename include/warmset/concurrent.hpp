// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "cache.hpp"

namespace warmset::inline v0 {

/// A cache that several threads may call: one lock around every operation. Decisions come in the order in
/// which the threads get the lock; racing demands for one expert are one load and otherwise hits or `late`.
///
/// The answer is copied into the caller's buffer under the lock, since the cache's own view lives only until
/// the next call. Blocks while another thread is inside; allocates nothing.
template <class Cache>
class concurrent {
 public:
  template <class... Arguments>
  explicit concurrent(Arguments&&... arguments) : cache_(static_cast<Arguments&&>(arguments)...) {}

  /// `cache::step`. Holds no lease: another thread's step of the same pool may reuse the slots as soon as this
  /// returns, so either threads have layers of their own, or leases are taken and released inside `with`.
  /// Writes the slot of each distinct expert, in the view's order, to `slots` as far as they
  /// fit; returns the kind and the number of distinct experts.
  struct answer {
    plan_kind kind;
    u32 n;
  };
  template <id_range Ids>
  answer step(layer_id layer, Ids const& ids, array_view<u32> slots,
              phase p = phase::decode) noexcept {
    std::lock_guard const lock{mutex_};
    step_view const view = cache_.step(layer, ids, p);
    for (std::size_t i = 0; i < view.slots.size() && i < slots.size(); ++i) {
      slots[i] = view.slots[i];
    }
    return {view.kind, static_cast<u32>(view.slots.size())};
  }

  template <id_range Ids>
  u32 advise(layer_id layer, Ids const& experts, u32 max_loads = u32_max, u32 ahead = 1,
             phase p = phase::decode) noexcept {
    std::lock_guard const lock{mutex_};
    return cache_.advise(layer, experts, max_loads, ahead, p);
  }

  void settle() noexcept {
    std::lock_guard const lock{mutex_};
    cache_.settle();
  }
  status resize(layer_id layer, u32 capacity) noexcept {
    std::lock_guard const lock{mutex_};
    return cache_.resize(layer, capacity);
  }
  status invalidate(layer_id layer) noexcept {
    std::lock_guard const lock{mutex_};
    return cache_.invalidate(layer);
  }

  /// Runs f(cache) under the lock: for everything else, such as counters and audit.
  template <class F>
  decltype(auto) with(F&& f) {
    std::lock_guard const lock{mutex_};
    return static_cast<F&&>(f)(cache_);
  }

 private:
  std::mutex mutex_;
  Cache cache_;
};

}  // namespace warmset::inline v0
