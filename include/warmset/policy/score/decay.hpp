// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../../core/integers.hpp"

namespace warmset::inline v0 {

/// Exponential decay of a fixed-point count, in integers: halves every `half_life` steps.
///
/// read(v, d) = ((u64(v) * T[d mod H]) >> 16) >> (d / H), and 0 where d / H >= 32, with
/// T[i] = round(2^16 * 2^(-i/H)). The table is built from integer constants, so that every compiler and
/// device has the same one. Read O(1): one multiplication for the quotient, one for the value.
class decay_table {
 public:
  static constexpr u32 min_half_life = 4;
  static constexpr u32 max_half_life = 256;

  /// @param half_life steps, brought into 4 … 256 (constructors of caches refuse others)
  WARMSET_HD explicit constexpr decay_table(u32 half_life) noexcept
      : half_life_(min_of(max_of(half_life, min_half_life), max_half_life)),
        reciprocal_(((1u << quotient_bits) + half_life_ - 1) / half_life_),
        factor_{} {
    for (u32 i = 0; i < half_life_; ++i) {
      factor_[i] = factor(i, half_life_);
    }
  }

  WARMSET_HD constexpr u32 half_life() const noexcept { return half_life_; }

  /// `value` as it stands `steps` later.
  WARMSET_HD constexpr u32 read(u32 value, u32 steps) const noexcept {
    if (steps >= 32 * half_life_) {
      return 0;
    }
    // exact for steps < 2^13 and H <= 2^8: the error of the reciprocal stays below 1/H
    u32 const halvings = (steps * reciprocal_) >> quotient_bits;
    u32 const rest = steps - halvings * half_life_;
    return static_cast<u32>((u64{value} * factor_[rest]) >> 16 >> halvings);
  }

  /// T[i] for half-life H: round(2^16 * 2^(-i/H)), i < H.
  WARMSET_HD static constexpr u32 factor(u32 i, u32 half_life) noexcept {
    // 2^32 * 2^(-2^-b) for b = 1 … 32; the fraction's bits select the factors
    constexpr u64 root[32] = {
      0xB504F334ull, 0xD744FCCBull, 0xEAC0C6E8ull, 0xF5257D15ull,
      0xFA83B2DBull, 0xFD3E0C0Dull, 0xFE9E115Cull, 0xFF4ECB59ull,
      0xFFA75652ull, 0xFFD3A752ull, 0xFFE9D2B3ull, 0xFFF4E91Cull,
      0xFFFA747Full, 0xFFFD3A3Bull, 0xFFFE9D1Dull, 0xFFFF4E8Eull,
      0xFFFFA747ull, 0xFFFFD3A3ull, 0xFFFFE9D2ull, 0xFFFFF4E9ull,
      0xFFFFFA74ull, 0xFFFFFD3Aull, 0xFFFFFE9Dull, 0xFFFFFF4Full,
      0xFFFFFFA7ull, 0xFFFFFFD4ull, 0xFFFFFFEAull, 0xFFFFFFF5ull,
      0xFFFFFFFAull, 0xFFFFFFFDull, 0xFFFFFFFFull, 0xFFFFFFFFull};
    u64 const fraction = (u64{i} << 32) / half_life;
    u64 product = u64{1} << 32;
    for (u32 bit = 0; bit < 32; ++bit) {
      if ((fraction >> (31 - bit)) & 1) {
        product = (product * root[bit] + (u64{1} << 31)) >> 32;
      }
    }
    return static_cast<u32>((product + (1u << 15)) >> 16);
  }

 private:
  static constexpr u32 quotient_bits = 21;
  u32 half_life_;
  u32 reciprocal_;
  u32 factor_[max_half_life];
};

}  // namespace warmset::inline v0
