// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/sanitizers.hpp"

/// Whether a round of a long test costs some thirty times what it costs in an optimised build: where nothing is optimised
/// or a sanitizer watches.
#if !defined(__OPTIMIZE__) || WARMSET_TEST_ASAN || WARMSET_TEST_TSAN
inline constexpr bool slow_build = true;
#else
inline constexpr bool slow_build = false;
#endif

/// Whether nothing slows the build: optimised, without assertions. It plays whole traces where that takes seconds.
#if defined(NDEBUG)
inline constexpr bool fast_build = !slow_build;
#else
inline constexpr bool fast_build = false;
#endif

/// Rounds of a long random test: `n`, and a twentieth in a slow build.
constexpr unsigned rounds(unsigned n) {
  return slow_build ? n / 20 : n;
}
