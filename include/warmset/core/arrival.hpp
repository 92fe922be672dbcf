// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integers.hpp"

namespace warmset::inline v0 {

/// Where a transfer stands. The mover publishes it after all banks of the expert, never before.
enum class transfer : u8 { none, loading, arrived, failed };

/// One word per slot, written by the mover and read by settle: the generation of the slot that the
/// transfer was started for, and where it stands. A word of another generation says nothing.
namespace arrival {

inline constexpr u32 generation_mask = 0x3FFF'FFFF;

WARMSET_HD constexpr u32 word(u32 generation, transfer t) noexcept {
  return (generation & generation_mask) << 2 | static_cast<u32>(t);
}
WARMSET_HD constexpr bool is_of(u32 word, u32 generation) noexcept {
  return word >> 2 == (generation & generation_mask);
}
WARMSET_HD constexpr transfer state(u32 word) noexcept {
  return static_cast<transfer>(word & 3);
}

}  // namespace arrival
}  // namespace warmset::inline v0
