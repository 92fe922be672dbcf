// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <cstdlib>
#include <new>

#include "support.hpp"

namespace {
std::atomic<unsigned long> allocations{0};

void* counted_allocation(std::size_t n, std::size_t alignment) {
  ++allocations;
  void* const p = alignment <= alignof(std::max_align_t)
                      ? std::malloc(n == 0 ? 1 : n)
                      : std::aligned_alloc(alignment, (n + alignment - 1) / alignment * alignment);
  if (p == nullptr) {
    throw std::bad_alloc();
  }
  return p;
}
}  // namespace

void* operator new(std::size_t n) { return counted_allocation(n, 1); }
void* operator new(std::size_t n, std::align_val_t a) {
  return counted_allocation(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

using namespace warmset;
using namespace warmset::table_test;

TEST_CASE("decision paths allocate nothing", "[table][allocation]") {
  using policy = hinted<guard::warm_then_challenger_must_win>;
  auto c = sized(40, 12, 4);
  c.numbers.speculative_slots = 2;
  bench<policy> b(c);
  auto const& t = b.made.view();
  kit::integers random(3);
  unsigned long const before = allocations;
  for (u32 i = 0; i < 2'000; ++i) {
    i32 ids[48];
    u32 const n = 1 + random.below(i % 10 == 0 ? 48 : 4);
    for (u32 j = 0; j < n; ++j) {
      ids[j] = static_cast<i32>(random.below(42)) - 1;
    }
    plan_demand<policy>(one_lane{}, t, {0, phase::decode, t.header().model_tick}, ids, n, *b.work, *b.decided);
    if (b.decided->kind == plan_kind::step) {
      (void)b.commit();
      u32 slots[64];
      u32 const held = leased_slots<policy>(t, *b.decided, slots);
      acquire<policy>(t, *b.decided);
      release<policy>(t, slots, held, b.sum);
    }
    plan_speculative<policy>(one_lane{}, t, {0, t.layer(0).step + 1, 4, t.header().model_tick}, ids, n, *b.work,
                             *b.decided);
    (void)b.commit();
    b.arrive(i % 7 == 0 ? transfer::failed : transfer::arrived);
    if (i % 100 == 0) {
      invalidate<policy>(t, 0, b.sum);
      (void)resize<policy>(t, i % 200 == 0 ? 12 : 8, b.sum);
    }
  }
  unsigned long const after = allocations;
  CHECK(after == before);
  CHECK(b.sum[access_kind::load] > 100);
  CHECK(b.sum.guard_asked > 10);
  CHECK(b.sound());
}
