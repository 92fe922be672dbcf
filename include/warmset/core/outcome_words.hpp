// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>

#include "outcome.hpp"

namespace warmset::inline v0 {

/// A record as the words that it is made of.
struct outcome_words {
  static constexpr u32 n = sizeof(outcome) / sizeof(u32);
  u32 word[n];
};

static_assert(sizeof(outcome_words) == sizeof(outcome), "an outcome record is made of words");

/// What two records have counted together.
constexpr outcome operator+(outcome const& a, outcome const& b) noexcept {
  outcome_words sum = std::bit_cast<outcome_words>(a);
  outcome_words const more = std::bit_cast<outcome_words>(b);
  for (u32 i = 0; i < outcome_words::n; ++i) {
    sum.word[i] += more.word[i];
  }
  return std::bit_cast<outcome>(sum);
}

/// What a record has counted between two looks at it. Right across a wrap of its words, and wrong after 2^32 counts.
constexpr outcome operator-(outcome const& later, outcome const& earlier) noexcept {
  outcome_words between = std::bit_cast<outcome_words>(later);
  outcome_words const before = std::bit_cast<outcome_words>(earlier);
  for (u32 i = 0; i < outcome_words::n; ++i) {
    between.word[i] -= before.word[i];
  }
  return std::bit_cast<outcome>(between);
}

}  // namespace warmset::inline v0
