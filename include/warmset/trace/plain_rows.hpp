// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../core/integers.hpp"

namespace warmset::inline v0 {
namespace trace {
namespace detail {

// Rows are plain where all their ids are below a bound and distinct within their row. Nearly all rows of a trace are,
// and saying so is what loading costs beyond copying: hence eight ids at a time, in vectors that compilers turn into the
// registers of any machine.

#if defined(__has_builtin) && !defined(__CUDACC__)  // nvcc's front end converts no vectors
#if __has_builtin(__builtin_shufflevector)
#define WARMSET_TRACE_LANES 1
#endif
#endif

#if defined(WARMSET_TRACE_LANES)

using lanes = u16 __attribute__((vector_size(16)));
using signed_lanes = std::int16_t __attribute__((vector_size(16)));
using byte_lanes = u8 __attribute__((vector_size(16)));

inline lanes load_lanes(void const* from) noexcept {
  lanes x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}

/// Turns either half by one lane, by two lanes; exchanges the halves. Each is one or two instructions of any machine,
/// which a turn of all eight is not.
inline lanes turned(lanes x) noexcept {
  return __builtin_shufflevector(x, x, 1, 2, 3, 0, 5, 6, 7, 4);
}
inline lanes turned_twice(lanes x) noexcept {
  return __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5);
}
inline lanes exchanged(lanes x) noexcept {
  return __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3);
}

/// All bits of the lanes, or of their bytes, that are equal.
template <bool Bytes>
lanes equal(lanes x, lanes y) noexcept {
  if constexpr (Bytes) {
    return reinterpret_cast<lanes>(reinterpret_cast<byte_lanes>(x) == reinterpret_cast<byte_lanes>(y));
  } else {
    return reinterpret_cast<lanes>(x == y);
  }
}

/// What is not below. The comparisons are those that every machine has: of signed lanes, of unsigned bytes.
template <bool Bytes>
lanes larger(lanes x, lanes y) noexcept {
  using compared = std::conditional_t<Bytes, byte_lanes, signed_lanes>;
  compared const a = reinterpret_cast<compared>(x);
  compared const b = reinterpret_cast<compared>(y);
  return reinterpret_cast<lanes>(a > b ? a : b);
}

/// Repetitions within rows of K lanes, K of 1, 2, 4, 8; of bytes within the lower bytes of a row, and within the upper.
template <u32 K, bool Bytes = false>
lanes repeated(lanes x) noexcept {
  lanes seen = {};
  if constexpr (K == 2) {
    seen = equal<Bytes>(x, __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6));
  }
  if constexpr (K >= 4) {
    seen = equal<Bytes>(x, turned(x)) | equal<Bytes>(x, turned_twice(x));
  }
  if constexpr (K == 8) {
    // Lane i of one half meets i and i + 1 of the other in both directions, and i + 2: all four.
    lanes const y = exchanged(x);
    seen |= equal<Bytes>(x, y) | equal<Bytes>(x, turned(y)) | equal<Bytes>(x, turned_twice(y));
  }
  return seen;
}

/// Repetitions of ids of x in y.
inline lanes repeated(lanes x, lanes y) noexcept {
  lanes seen = {};
  for (int half = 0; half < 2; ++half, y = exchanged(y)) {
    lanes const z = turned(y);
    seen |= equal<false>(x, y) | equal<false>(x, z) | equal<false>(x, turned_twice(y)) |
            equal<false>(x, turned_twice(z));
  }
  return seen;
}

/// Checks rows of K ids, 16 ids at a time, K of 1, 2, 4, 8. Where there are at most 256 experts, an id is a byte and all
/// 16 are in one register.
template <u32 K, bool Bytes>
class row_check {
 public:
  /// Takes 16 ids.
  void operator()(void const* ids) noexcept {
    lanes const x = load_lanes(ids);
    lanes const y = load_lanes(static_cast<std::byte const*>(ids) + sizeof(x));
    bits_ |= x | y;
    if constexpr (Bytes) {
      lanes const both = x | (y << 8);
      most_ = larger<true>(most_, both);
      repeated_ |= repeated<K, true>(both);
    } else {
      most_ = larger<false>(larger<false>(most_, x), y);
      repeated_ |= repeated<K>(x) | repeated<K>(y);
    }
  }

  /// Takes whole rows, fewer than 16 ids of them.
  void take_rest(u16 const* ids, u64 n_ids) noexcept {
    if (n_ids == 0) {
      return;
    }
    u16 rest[16];
    for (u32 i = 0; i < 16; ++i) {
      rest[i] = static_cast<u16>(i % K);  // plain, as far as K experts are there
    }
    std::memcpy(rest, ids, n_ids * sizeof(u16));
    (*this)(rest);
  }

  /// Whether all rows so far are plain. Ids that are too long for the comparison show in `bits_`.
  bool plain(u32 n_experts) const noexcept {
    bool fine = true;
    for (int i = 0; i < 8; ++i) {
      u32 const most = most_[i];
      fine &= repeated_[i] == 0 && bits_[i] < (Bytes ? 0x100 : 0x8000) &&
              (Bytes ? (most & 0xFF) < n_experts && (most >> 8) < n_experts : most < n_experts);
    }
    return fine;
  }

 private:
  lanes bits_ = {};
  lanes most_ = {};
  lanes repeated_ = {};
};

/// Calls f(check) with the row_check for k, where there is one; f hands rows to its copy, whose members stay in registers
/// that way, and returns it. Whether all these rows are plain; false says nothing.
template <class F>
bool with_row_check(u32 k, u32 n_experts, F&& f) {
  auto const with_width = [&]<u32 K>(std::integral_constant<u32, K>) {
    return n_experts <= 0x100 ? f(row_check<K, true>()).plain(n_experts) : f(row_check<K, false>()).plain(n_experts);
  };
  switch (k) {
  case 1:
    return with_width(std::integral_constant<u32, 1>());
  case 2:
    return with_width(std::integral_constant<u32, 2>());
  case 4:
    return with_width(std::integral_constant<u32, 4>());
  case 8:
    return with_width(std::integral_constant<u32, 8>());
  default:
    return false;
  }
}

/// Rows of up to 16 ids of any number: one row at a time, filled up with values that are no ids.
inline bool filled_rows_are_plain(u16 const* ids, u64 n_rows, u32 k, u32 n_experts) noexcept {
  lanes keep[2] = {};
  lanes fill[2] = {};
  for (u32 i = 0; i < 16; ++i) {
    keep[i / 8][i % 8] = i < k ? 0xFFFF : 0;
    fill[i / 8][i % 8] = static_cast<u16>(i < k ? 0 : 0x8000 + i);
  }
  lanes bits = {};
  lanes most = {};
  lanes seen = {};
  for (u64 row = 0; row < n_rows; ++row, ids += k) {
    u16 last[16] = {};
    u16 const* from = ids;
    if ((n_rows - row) * k < 16) {  // 16 ids from here would pass the end
      std::memcpy(last, ids, k * sizeof(u16));
      from = last;
    }
    lanes const x = load_lanes(from) & keep[0];
    lanes const y = load_lanes(from + 8) & keep[1];
    bits |= x | y;
    most = larger<false>(larger<false>(most, x), y);
    seen |= repeated<8>(x | fill[0]);
    if (k > 8) {
      seen |= repeated<8>(y | fill[1]) | repeated(x, y | fill[1]);
    }
  }
  bool fine = true;
  for (int i = 0; i < 8; ++i) {
    fine &= seen[i] == 0 && bits[i] < 0x8000 && most[i] < n_experts;
  }
  return fine;
}

inline bool chunk_is_plain(u16 const* ids, u64 n_rows, u32 k, u32 n_experts) noexcept {
  if (8 % k != 0) {
    return filled_rows_are_plain(ids, n_rows, k, n_experts);
  }
  return with_row_check(k, n_experts, [&](auto check) {
    u64 left = n_rows * k;
    for (; left >= 16; left -= 16, ids += 16) {
      check(ids);
    }
    check.take_rest(ids, left);
    return check;
  });
}

/// Whether all rows are plain, of up to 16 ids; false says nothing. O(ids).
inline bool rows_are_plain(u16 const* ids, u64 n_rows, u32 k, u32 n_experts) noexcept {
  if (k == 0 || k > 16) {
    return false;
  }
  constexpr u64 chunk = 256;
  for (; n_rows > chunk; n_rows -= chunk, ids += chunk * k) {
    if (!chunk_is_plain(ids, chunk, k, n_experts)) {
      return false;
    }
  }
  return chunk_is_plain(ids, n_rows, k, n_experts);
}

#else  // no vectors: rows are checked one id after the other

template <class F>
bool with_row_check(u32, u32, F&&) {
  return false;
}

inline bool rows_are_plain(u16 const*, u64, u32, u32) noexcept {
  return false;
}

#endif
#undef WARMSET_TRACE_LANES

}  // namespace detail
}  // namespace trace
}  // namespace warmset::inline v0
