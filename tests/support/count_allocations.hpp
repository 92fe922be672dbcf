// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Replaces the program's operator new by one that counts. Include it in exactly one source of a program.

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<unsigned long> warmset_allocations{0};

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

}  // namespace

namespace warmset_test {
/// Allocations of the whole program so far; tests look at differences.
unsigned long n_allocations() noexcept;
unsigned long n_allocations() noexcept {
  return warmset_allocations.load();
}
}  // namespace warmset_test

// Not inlined: g++ would otherwise take malloc and delete for a mismatch. The forms that do not throw are replaced
// too, since the sanitizers' own would not match this delete.
[[gnu::noinline]] void* operator new(std::size_t size) {
  return counted_or_throw(size, 1);
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t a) {
  return counted_or_throw(size, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void* operator new(std::size_t size, std::nothrow_t const&) noexcept {
  return counted_allocation(size, 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::nothrow_t const&) noexcept {
  std::free(p);
}
