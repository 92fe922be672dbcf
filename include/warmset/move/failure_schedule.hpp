// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/integers.hpp"

namespace warmset::inline v0 {
namespace move {

/// Which of a row of numbered events fail, from 0. Integers only: the same numbers fail in every
/// run.
struct failure_schedule {
  /// When a transfer that fails does so; meaningful to the adaptor `failing`.
  enum class moment : u8 {
    at_end,    ///< the bytes move; the word then says failed instead of arrived
    at_start,  ///< no byte moves and the word says failed when start returns
  };

  u64 first = u64_max;  ///< the first that fails
  u64 every = 0;        ///< and each so many after it; 0 = no other
  u32 chance = 0;       ///< besides, each fails with probability chance / 65536
  u64 seed = 0;
  moment when = moment::at_end;

  static constexpr failure_schedule nth(u64 n, moment when = moment::at_end) noexcept {
    return {n, 0, 0, 0, when};
  }
  static constexpr failure_schedule all(moment when = moment::at_end) noexcept {
    return {0, 1, 0, 0, when};
  }
  static constexpr failure_schedule random(u64 seed, u32 chance_of_65536,
                                           moment when = moment::at_end) noexcept {
    return {u64_max, 0, chance_of_65536, seed, when};
  }

  /// Whether event `n` fails. Pure. O(1).
  constexpr bool fails(u64 n) const noexcept {
    if (n == first || (n > first && every != 0 && (n - first) % every == 0)) {
      return true;
    }
    u64 x = seed + (n + 1) * 0x9E37'79B9'7F4A'7C15ull;
    x = (x ^ x >> 30) * 0xBF58'476D'1CE4'E5B9ull;
    x = (x ^ x >> 27) * 0x94D0'49BB'1331'11EBull;
    x ^= x >> 31;
    return (x & 0xFFFF) < chance;
  }
};

}  // namespace move
}  // namespace warmset::inline v0
