// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "config.hpp"

namespace warmset::inline v0 {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

inline constexpr u32 u32_max = 0xFFFF'FFFFu;
inline constexpr u64 u64_max = 0xFFFF'FFFF'FFFF'FFFFull;

/// Integer helpers for host-device code, which may call no function of `std::`: nvcc turns such a call
/// into an empty kernel. All are total: no input is undefined.
template <class T>
WARMSET_HD constexpr T min_of(T a, T b) noexcept {
  return b < a ? b : a;
}

template <class T>
WARMSET_HD constexpr T max_of(T a, T b) noexcept {
  return a < b ? b : a;
}

/// a - b, or 0 where that would be negative.
template <class T>
WARMSET_HD constexpr T saturating_sub(T a, T b) noexcept {
  return a < b ? T{0} : static_cast<T>(a - b);
}

WARMSET_HD constexpr u32 saturating_add(u32 a, u32 b) noexcept {
  return b > u32_max - a ? u32_max : a + b;
}

template <class T>
WARMSET_HD constexpr T ceil_div(T a, T b) noexcept {
  return b == 0 ? T{0} : static_cast<T>(a / b + (a % b != 0 ? 1 : 0));
}

/// floor(log2(x)); 0 for x = 0.
WARMSET_HD constexpr u32 floor_log2(u64 x) noexcept {
  u32 n = 0;
  for (u32 shift = 32; shift != 0; shift >>= 1) {
    if (x >> shift != 0) {
      x >>= shift;
      n += shift;
    }
  }
  return n;
}

/// ceil(log2(x)); 0 for x < 2.
WARMSET_HD constexpr u32 ceil_log2(u64 x) noexcept {
  return x < 2 ? 0 : floor_log2(x - 1) + 1;
}

/// Index of the lowest bit that is set; 64 for x = 0.
WARMSET_HD constexpr u32 lowest_bit(u64 x) noexcept {
#if defined(__GNUC__) && !defined(__CUDA_ARCH__)
  return x == 0 ? 64 : static_cast<u32>(__builtin_ctzll(x));
#else
  u32 n = 0;
  for (u64 below = ~x & (x - 1); below != 0; below >>= 1) {
    ++n;
  }
  return n;
#endif
}

/// Distance of two stamps of a wrapping 32-bit clock; right while it is below 2^32.
WARMSET_HD constexpr u32 age_of(u32 now, u32 stamp) noexcept {
  return now - stamp;
}

}  // namespace warmset::inline v0
