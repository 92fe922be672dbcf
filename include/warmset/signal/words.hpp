// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <concepts>

#include "../core/integers.hpp"

/// Stands before a template whose words decide on which side it runs: nvcc would otherwise warn of each
/// instance with host_words.
#if defined(__CUDACC__)
#define WARMSET_SIDE_OF_WORDS _Pragma("nv_exec_check_disable")
#else
#define WARMSET_SIDE_OF_WORDS
#endif

namespace warmset::inline v0::signal {

/// Words of one cache line. What two sides write lies in different lines.
inline constexpr u32 words_per_line = 16;

WARMSET_HD constexpr u32 whole_lines(u32 words) noexcept {
  return (words + words_per_line - 1) / words_per_line * words_per_line;
}

/// Whether a number that only grows, modulo 2^32, has come to `wanted`. Right while the two are less than
/// 2^31 apart.
WARMSET_HD constexpr bool reached(u32 now, u32 wanted) noexcept {
  return now - wanted <= u32_max / 2;
}

static_assert(reached(5, 5) && reached(6, 5) && !reached(4, 5), "numbers grow");
static_assert(reached(2, u32_max) && !reached(u32_max, 2), "and wrap");

/// How one side touches 32-bit words that the other side sees: plain words in the layout, order in the
/// access. `load` and `store` are indivisible and order nothing; `store_release` comes after all that its
/// side wrote before, `load_acquire` before all that its side reads after. No operation both reads and
/// writes: a device on the far side of a bus has none.
template <class W>
concept memory_words = requires(u32* word, u32 const* read_only, u32 value) {
  { W::load(read_only) }
  noexcept->std::same_as<u32>;
  { W::load_acquire(read_only) }
  noexcept->std::same_as<u32>;
  { W::store(word, value) }
  noexcept->std::same_as<void>;
  { W::store_release(word, value) }
  noexcept->std::same_as<void>;
};

/// Words as threads of the host touch them.
struct host_words {
  static u32 load(u32 const* word) noexcept { return at(word).load(std::memory_order_relaxed); }
  static u32 load_acquire(u32 const* word) noexcept {
    return at(word).load(std::memory_order_acquire);
  }
  static void store(u32* word, u32 value) noexcept {
    at(word).store(value, std::memory_order_relaxed);
  }
  static void store_release(u32* word, u32 value) noexcept {
    at(word).store(value, std::memory_order_release);
  }

 private:
  static std::atomic_ref<u32> at(u32 const* word) noexcept {
    return std::atomic_ref<u32>(*const_cast<u32*>(word));  // there is none of const before C++26
  }
};

static_assert(memory_words<host_words>, "host_words must satisfy memory_words");
static_assert(std::atomic_ref<u32>::is_always_lock_free, "a word of the host is indivisible");

}  // namespace warmset::inline v0::signal
