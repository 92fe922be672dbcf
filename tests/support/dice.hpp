// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <warmset/core/integers.hpp>

namespace warmset_test {

/// A small reproducible source of numbers.
class dice {
 public:
  explicit dice(warmset::u64 seed) noexcept : state_(seed * 2 + 1) {}
  warmset::u32 below(warmset::u32 n) noexcept {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<warmset::u32>((state_ >> 33) % n);
  }

 private:
  warmset::u64 state_;
};

}  // namespace warmset_test
