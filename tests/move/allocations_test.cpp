// SPDX-License-Identifier: Apache-2.0
#include "allocations.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

namespace {
std::atomic<std::uint64_t> allocations{0};
}

[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* const p = std::malloc(size != 0 ? size : 1)) {
    return p;
  }
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

namespace warmset_test {
std::uint64_t n_allocations() noexcept {
  return allocations;
}
}  // namespace warmset_test

TEST_CASE("the counter of allocations counts", "[move]") {
  std::uint64_t const before = warmset_test::n_allocations();
  std::vector<int> const v(7, 3);
  CHECK(v[6] == 3);
  CHECK(warmset_test::n_allocations() > before);
}
