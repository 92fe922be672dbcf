// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/integers.hpp"

namespace warmset::inline v0 {
namespace move {

/// Smallest copy that counts as large. Batches of a driver take a slow path for all entries when
/// one is small.
inline constexpr u64 large_copy_bytes = u64{256} << 10;

enum class size_class : u8 { small_copy, large_copy };

/// What copies over one link cost: latency, rate and what each copy adds. Integers; a tick is
/// whatever the caller's clock counts (nanoseconds, say). Usable without a backend.
///
/// trace::link_backend (trace/link_model.hpp) has numbers of its own: it plays whole experts by urgency, without bytes,
/// for replays that ask how long demand waits; this one prices single copies and batches for backends that move bytes.
///
/// - A copy alone: latency + what its class adds + its bytes at the link's rate.
/// - A batch: latency once, and each entry its bytes and what its class adds. One small entry makes
///   all of the batch small, which is why planners keep the classes apart.
struct link_model {
  u64 bytes = u64_max;  ///< the rate is `bytes` per `ticks`; u64_max = bytes take no time
  u64 ticks = 1;
  u64 latency = 0;         ///< ticks of a copy or batch besides its entries
  u64 per_copy = 0;        ///< ticks that each large entry adds
  u64 per_small_copy = 0;  ///< ticks that each entry of a batch with a small one adds
  u64 large_from = large_copy_bytes;

  constexpr size_class class_of(u64 n) const noexcept {
    return n >= large_from ? size_class::large_copy : size_class::small_copy;
  }

  /// Ticks that n bytes occupy the link, rounded up. bytes · ticks must fit 64 bits.
  constexpr u64 byte_ticks(u64 n) const noexcept {
    if (bytes == u64_max) {
      return 0;
    }
    u64 const rate = max_of(bytes, u64{1});
    return n / rate * ticks + ceil_div(n % rate * ticks, rate);
  }

  /// Ticks of one entry in a batch whose smallest entry is of class `c`.
  constexpr u64 entry_ticks(u64 n, size_class c) const noexcept {
    return (c == size_class::small_copy ? per_small_copy : per_copy) + byte_ticks(n);
  }

  /// Ticks of one copy alone.
  constexpr u64 copy_ticks(u64 n) const noexcept { return latency + entry_ticks(n, class_of(n)); }

  /// Ticks of one batch of entries of these sizes; 0 for none. O(entries).
  template <class Sizes>
  constexpr u64 batch_ticks(Sizes const& sizes) const noexcept {
    size_class c = size_class::large_copy;
    bool any = false;
    for (u64 n : sizes) {
      any = true;
      c = min_of(c, class_of(n));
    }
    u64 sum = any ? latency : 0;
    for (u64 n : sizes) {
      sum += entry_ticks(n, c);
    }
    return sum;
  }
};

/// A link in use: it carries one copy at a time, whoever sent it.
struct serial_link {
  link_model model;
  u64 free_at = 0;  ///< tick from which it carries the next copy
  u64 busy = 0;     ///< ticks it was occupied

  /// Occupies the link for `n` ticks, at `ready` or once it is free. Returns the tick of the end.
  /// O(1).
  constexpr u64 occupy(u64 ready, u64 n) noexcept {
    free_at = max_of(ready, free_at) + n;
    busy += n;
    return free_at;
  }

  /// Frees it at `now` of what it would have carried until `end`. O(1).
  constexpr void give_back(u64 end, u64 now) noexcept {
    if (free_at == end && end > now) {
      busy -= end - now;
      free_at = now;
    }
  }
};

}  // namespace move
}  // namespace warmset::inline v0
