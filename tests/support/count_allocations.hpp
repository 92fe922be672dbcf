// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Replaces the program's operator new by one that counts. Include it in exactly one source of a program.

#include "support/sanitizers.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

// clang's thread sanitizer brings an operator new that cannot be replaced, and a hook instead.
#if WARMSET_TEST_TSAN && defined(__clang__)
#define WARMSET_TEST_HOOK_ALLOCATIONS 1
#include <sanitizer/allocator_interface.h>
#else
#define WARMSET_TEST_HOOK_ALLOCATIONS 0
#endif

namespace {

std::atomic<unsigned long> warmset_allocations{0};

#if WARMSET_TEST_HOOK_ALLOCATIONS
[[maybe_unused]] int const warmset_hooks = __sanitizer_install_malloc_and_free_hooks(
    [](void const volatile*, std::size_t) { ++warmset_allocations; }, [](void const volatile*) {});
#else
void* counted_allocation(std::size_t size, std::size_t alignment) noexcept {
  ++warmset_allocations;
  std::size_t const at_least = size == 0 ? 1 : size;
  return alignment <= alignof(std::max_align_t)
             ? std::malloc(at_least)
             : std::aligned_alloc(alignment, (at_least + alignment - 1) / alignment * alignment);
}

void* counted_or_throw(std::size_t size, std::size_t alignment) {
  if (void* const p = counted_allocation(size, alignment)) {
    return p;
  }
  throw std::bad_alloc{};
}
#endif

}  // namespace

namespace warmset_test {
/// Allocations of the whole program so far; tests look at differences.
unsigned long n_allocations() noexcept;
unsigned long n_allocations() noexcept {
  return warmset_allocations.load();
}
}  // namespace warmset_test

#if !WARMSET_TEST_HOOK_ALLOCATIONS
// Every form is replaced, arrays and those that do not throw too: a sanitizer's own would neither be counted nor match
// this delete. Not inlined: g++ would otherwise take malloc and delete for a mismatch.
#define WARMSET_COUNT_ALLOCATIONS(suffix)                                                           \
  [[gnu::noinline]] void* operator new suffix(std::size_t size) {                                   \
    return counted_or_throw(size, 1);                                                               \
  }                                                                                                 \
  [[gnu::noinline]] void* operator new suffix(std::size_t size, std::align_val_t a) {               \
    return counted_or_throw(size, static_cast<std::size_t>(a));                                     \
  }                                                                                                 \
  [[gnu::noinline]] void* operator new suffix(std::size_t size, std::nothrow_t const&) noexcept {   \
    return counted_allocation(size, 1);                                                             \
  }                                                                                                 \
  [[gnu::noinline]] void* operator new suffix(std::size_t size, std::align_val_t a,                 \
                                              std::nothrow_t const&) noexcept {                     \
    return counted_allocation(size, static_cast<std::size_t>(a));                                   \
  }                                                                                                 \
  [[gnu::noinline]] void operator delete suffix(void* p) noexcept {                                 \
    std::free(p);                                                                                   \
  }                                                                                                 \
  [[gnu::noinline]] void operator delete suffix(void* p, std::size_t) noexcept {                    \
    std::free(p);                                                                                   \
  }                                                                                                 \
  [[gnu::noinline]] void operator delete suffix(void* p, std::align_val_t) noexcept {               \
    std::free(p);                                                                                   \
  }                                                                                                 \
  [[gnu::noinline]] void operator delete suffix(void* p, std::size_t, std::align_val_t) noexcept {  \
    std::free(p);                                                                                   \
  }                                                                                                 \
  [[gnu::noinline]] void operator delete suffix(void* p, std::nothrow_t const&) noexcept {          \
    std::free(p);                                                                                   \
  }                                                                                                 \
  [[gnu::noinline]] void operator delete suffix(void* p, std::align_val_t, std::nothrow_t const&) noexcept { \
    std::free(p);                                                                                   \
  }

// clang-format off
WARMSET_COUNT_ALLOCATIONS()
WARMSET_COUNT_ALLOCATIONS([])
// clang-format on
#undef WARMSET_COUNT_ALLOCATIONS
#endif
