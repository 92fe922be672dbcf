// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integers.hpp"

namespace warmset::inline v0 {

/// Two-word key by which victims are ordered; the smallest is evicted first. `high` is the score, `low`
/// breaks ties, so that keys of one pool are distinct and every width of lane group finds the same one.
struct order_key {
  u64 high;
  u64 low;
  friend constexpr bool operator==(order_key, order_key) = default;  // by value: kernels compare with no_key
};

inline constexpr order_key no_key{u64_max, u64_max};

WARMSET_HD constexpr bool operator<(order_key a, order_key b) noexcept {
  return a.high != b.high ? a.high < b.high : a.low < b.low;
}

/// Lowers `best` to `key` where that is smaller.
WARMSET_HD constexpr void lower(order_key& best, order_key key) noexcept {
  if (key < best) {
    best = key;
  }
}

/// The documented tie-break: smaller score, then larger age (never accessed counts as largest), then
/// lower slot. Complexity O(1).
WARMSET_HD constexpr order_key eviction_key(u64 score, bool accessed, u32 age, u32 slot) noexcept {
  u32 const youth = accessed ? u32_max - age : 0;
  return {score, (u64{youth} << 32) | slot};
}

/// The slot that `eviction_key` was made for.
WARMSET_HD constexpr u32 slot_of(order_key key) noexcept {
  return static_cast<u32>(key.low);
}

}  // namespace warmset::inline v0
