// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include "support.hpp"
#include "support/count_allocations.hpp"

using namespace warmset;
using namespace warmset::table_test;

TEST_CASE("decision paths allocate nothing", "[table][allocation]") {
  using policy = hinted<guard::warm_then_challenger_must_win>;
  auto c = sized(40, 12, 4);
  c.numbers.speculative_slots = 2;
  bench<policy> b(c);
  auto const& t = b.made.view();
  kit::integers random(3);
  unsigned long const before = warmset_test::n_allocations();
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
  unsigned long const after = warmset_test::n_allocations();
  CHECK(after == before);
  CHECK(b.sum[access_kind::load] > 100);
  CHECK(b.sum.guard_asked > 10);
  CHECK(b.sound());
}
