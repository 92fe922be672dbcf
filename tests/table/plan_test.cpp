// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <numeric>
#include <set>

#include "support.hpp"

using namespace warmset;
using namespace warmset::table_test;

namespace {

struct small : lru {
  static constexpr u32 max_experts = 64;
};

template <class Policy>
std::vector<u32> load_slots(plan_of<Policy> const& p) {
  std::vector<u32> slots;
  for (u32 j = 0; j < p.n_loads; ++j) {
    slots.push_back(p.loads[j].slot);
  }
  return slots;
}

/// What a plan decides about each id, without the unused tails of its arrays.
template <class Policy>
std::vector<u32> decisions(plan_of<Policy> const& p) {
  std::vector<u32> words{static_cast<u32>(p.kind), p.n, p.n_loads, p.sentinels, p.out_of_range, p.duplicates};
  for (u32 i = 0; i < p.n; ++i) {
    words.insert(words.end(), {p.expert[i], p.slot[i], static_cast<u32>(p.how[i])});
  }
  for (u32 j = 0; j < p.n_loads; ++j) {
    words.insert(words.end(), {p.loads[j].expert, p.loads[j].slot});
  }
  return words;
}

}  // namespace

TEST_CASE("plan: is pure, for demand and for hints", "[table][plan]") {
  bench<hinted<guard::none>> b(sized(8, 3));
  b.demand({0, 1});
  auto const before = b.bytes();
  b.plan({2, 3, 1});
  auto const first = decisions<hinted<guard::none>>(*b.decided);
  CHECK(b.bytes() == before);
  b.plan({2, 3, 1});
  CHECK(decisions<hinted<guard::none>>(*b.decided) == first);
  b.hint({4, 5, 6});
  CHECK(b.bytes() == before);
}

TEST_CASE("plan: free slots in index order, misses take them in ascending expert index", "[table][plan]") {
  bench<lru> b(sized(8, 4));
  auto& p = b.plan({7, 0, 3});
  REQUIRE(p.kind == plan_kind::step);
  REQUIRE(p.n_loads == 3);
  CHECK((p.loads[0].expert == 0 && p.loads[0].slot == 0));
  CHECK((p.loads[1].expert == 3 && p.loads[1].slot == 1));
  CHECK((p.loads[2].expert == 7 && p.loads[2].slot == 2));
  REQUIRE(b.commit());
  // stamps follow demand order: 7, 0, 3
  CHECK(b.made.view().expert(7).last == 1);
  CHECK(b.made.view().expert(0).last == 2);
  CHECK(b.made.view().expert(3).last == 3);
}

TEST_CASE("plan: victims in walk order; nothing that the step demands is one", "[table][plan][R1][B28]") {
  bench<lru> b(sized(8, 3));
  b.demand({0});
  b.demand({1});
  b.demand({2});
  auto& p = b.plan({0, 5});  // 0 is the oldest and demanded
  REQUIRE(p.n_loads == 1);
  CHECK(p.loads[0].slot == b.slot_of(1));
  REQUIRE(b.commit());
  CHECK(b.resident(0));
  CHECK_FALSE(b.resident(1));
}

TEST_CASE("plan: ids of every width, padding, range and duplicates", "[table][plan][B100][R43]") {
  bench<lru> b(sized(8, 4));
  auto const& t = b.made.view();
  auto const go = [&](auto const& ids) {
    plan_demand<lru>(one_lane{}, t, {0, phase::decode, 0}, ids.data(), static_cast<u32>(ids.size()), *b.work,
                     *b.decided);
  };
  go(std::vector<i32>{-1, 3, 8, 3, -7, 13, 1, 3});
  CHECK(b.decided->n == 2);
  CHECK(b.decided->expert[0] == 1);  // by last occurrence
  CHECK(b.decided->expert[1] == 3);
  CHECK(b.decided->sentinels == 2);
  CHECK(b.decided->out_of_range == 2);
  CHECK(b.decided->duplicates == 2);
  go(std::vector<u16>{65535, 3, 1, 8});
  CHECK((b.decided->n == 2 && b.decided->out_of_range == 2 && b.decided->sentinels == 0));
  go(std::vector<std::int16_t>{-1, 3, 1, 8});
  CHECK((b.decided->n == 2 && b.decided->out_of_range == 1 && b.decided->sentinels == 1));
  go(std::vector<u32>{0x8000'0000u, 0xFFFF'FFFFu, 2});
  CHECK((b.decided->n == 1 && b.decided->out_of_range == 2));
  go(std::vector<u8>{2, 255});
  CHECK((b.decided->n == 1 && b.decided->out_of_range == 1));

  go(std::vector<i32>{-1, -1, 9});
  CHECK(b.decided->kind == plan_kind::empty);
  CHECK(b.commit().why == reason::not_committable);
  CHECK(t.header().tick == 0);
  CHECK(t.layer(0).step == 0);
  record_uncommitted<lru>(*b.decided, b.sum);
  CHECK(b.sum.skipped_ids[static_cast<u32>(reason::sentinel)] == 2);
  CHECK(b.sum.demanded == 0);
}

TEST_CASE("plan: wide steps decide as narrow ones do", "[table][plan]") {
  // the same distinct ids, padded with duplicates and sentinels so that the other path is taken
  kit::integers random(7);
  for (u32 round = 0; round < 300; ++round) {
    bench<counted> narrow(sized(40, 30, 4));
    bench<counted> wide(sized(40, 30, 4));
    for (u32 step = 0; step < 12; ++step) {
      std::vector<i32> ids;
      for (u32 i = 0, n = 1 + random.below(28); i < n; ++i) {
        i32 const x = static_cast<i32>(random.below(40));
        if (std::find(ids.begin(), ids.end(), x) == ids.end()) {
          ids.push_back(x);
        }
      }
      std::vector<i32> padded;
      while (padded.size() < 70) {
        padded.push_back(ids[random.below(ids.size())]);
      }
      padded.insert(padded.end(), ids.begin(), ids.end());
      narrow.demand(ids);
      wide.demand(padded);
      REQUIRE(narrow.bytes() == wide.bytes());
    }
  }
}

TEST_CASE("plan: loads are in ascending expert index, however many", "[table][plan]") {
  kit::integers random(11);
  for (u32 n = 1; n <= 80; ++n) {
    bench<counted> b(sized(90, 80));
    std::vector<i32> ids(90);
    for (u32 i = 0; i < 90; ++i) {
      ids[i] = static_cast<i32>(i);
    }
    for (u32 i = 89; i != 0; --i) {
      std::swap(ids[i], ids[random.below(i + 1)]);
    }
    ids.resize(n);
    plan_of<counted> const& p = b.plan(ids);
    REQUIRE(p.n_loads == n);
    for (u32 j = 0; j < n; ++j) {
      REQUIRE((j == 0 || p.loads[j - 1].expert < p.loads[j].expert));
      REQUIRE(p.loads[j].slot == j);
    }
    REQUIRE(b.commit());
    REQUIRE(b.sound());
  }
}

TEST_CASE("plan: an overflow step decides nothing about the table", "[table][plan][B45][R3][R4][R11][R42]") {
  auto c = sized(16, 4);
  c.numbers.scratch_slots = 3;
  bench<lru> b(c);
  b.demand({0, 1, 2, 3});
  auto const before = b.bytes();
  auto& p = b.plan({0, 1, 5, 6, 7, 8, 9});
  REQUIRE(p.kind == plan_kind::overflow);
  CHECK(p.n_loads == 0);
  CHECK(p.how[0] == access_kind::overflow_hit);
  CHECK(p.slot[0] == b.slot_of(0));
  CHECK(p.how[2] == access_kind::overflow_miss);
  CHECK(p.n_waves == 2);
  for (u32 i = 2; i < 7; ++i) {
    CHECK(p.slot[i] == 4 + (i - 2) % 3);
    CHECK(p.wave[i] == (i - 2) / 3);
  }
  CHECK(b.commit().why == reason::not_committable);
  CHECK(b.bytes() == before);
  auto const held = b.acquire();
  CHECK(held.size() == 5);  // two residents, three scratch slots
  auto& next = b.plan({10, 11, 12, 13});
  CHECK(next.kind == plan_kind::busy);  // the leased residents stay, and scratch is leased as well
  CHECK(b.commit().why == reason::not_committable);
  b.release(held);
  CHECK(b.plan({10, 11, 12, 13}).n_loads == 4);
  CHECK(b.sound());
}

TEST_CASE("plan: no victim is an answer with counts, never slot 0", "[table][plan][B23]") {
  auto c = sized(16, 4);
  bench<lru> b(c);
  b.demand({0});
  b.plan({0});
  REQUIRE(b.commit());
  auto const held = b.acquire();          // slot 0 leased
  REQUIRE(pin<lru>(b.made.view(), 0, 1, 2));
  b.demand({1});                           // slot 1 pinned
  b.plan({2, 3});
  REQUIRE(b.commit());                     // slots 2 and 3 loading
  auto& p = b.plan({5});
  CHECK(p.kind == plan_kind::step);
  CHECK(p.how[0] == access_kind::declined);
  CHECK(p.slot[0] >= 4);
  CHECK(p.n_loads == 0);
  CHECK(p.no_victim.leased == 1);
  CHECK(p.no_victim.pinned == 1);
  CHECK(p.no_victim.loading == 2);
  CHECK(p.no_victim.guarded == 0);
  REQUIRE(b.commit());
  CHECK(b.sum[access_kind::declined] == 1);
  b.release(held);
  CHECK(b.sound());
}

TEST_CASE("plan: a step of max_experts experts", "[table][plan]") {
  bench<small> b(sized(64, 64, 64));
  std::vector<i32> all(64);
  std::iota(all.begin(), all.end(), 0);
  b.demand(all);
  CHECK(b.sum[access_kind::load] == 64);
  std::reverse(all.begin(), all.end());
  b.demand(all);
  CHECK(b.sum[access_kind::hit] == 64);
  CHECK(b.sound());
}

TEST_CASE("plan: demand takes the slots kept for speculation last, and gives them back",
          "[table][plan]") {
  bench<hinted<guard::spare_only>> b(sized(16, 4));  // one slot kept
  b.demand({0, 1});
  b.demand({2, 3});
  CHECK(b.resident(3));
  CHECK(b.made.view().header().free() == 1);
  CHECK_FALSE(b.resident(0));  // evicted although a slot was free
  REQUIRE(b.hint({9}).n_loads == 1);
  REQUIRE(b.commit());
  b.arrive();
  auto& p = b.plan({9});  // first use: the coldest resident makes way for the reserve
  CHECK(p.how[0] == access_kind::first_use);
  CHECK(p.n_trims == 1);
  REQUIRE(b.commit());
  CHECK(b.made.view().header().free() == 1);
  b.demand({10, 11, 12, 13});  // as wide as the pool: the reserve is taken rather than a miss declined
  CHECK(b.sum[access_kind::declined] == 0);
  CHECK(b.made.view().header().free() == 0);
  CHECK(b.sound());
}

TEST_CASE("plan: a spare is never given to two misses", "[table][plan]") {
  // one passed spare within the bound, one beyond it, nothing else: the second pass must not see the first
  using policy = hinted<guard::spare_only>;
  auto c = sized(16, 4);
  c.numbers.speculative_slots = 2;
  bench<policy> b(kit::table_builder<policy>(c)
                      .place({.slot = 0, .expert = 0, .heat = 0, .speculated = true, .target = 0})
                      .place({.slot = 1, .expert = 1, .heat = 0, .speculated = true, .target = 0})
                      .place({.slot = 2, .expert = 2, .leases = 1})
                      .place({.slot = 3, .expert = 3, .state = slot_state::draining, .leases = 1})
                      .build());
  auto& p = b.plan({8, 9});
  REQUIRE(p.n_loads == 2);
  CHECK(load_slots<policy>(p) == std::vector<u32>{0, 1});
}

TEST_CASE("plan: a step leaves every other row its floor", "[table][plan][R47]") {
  using soft = bundles::shared<hinted<guard::spare_only>>;
  kit::table_config c;
  c.n_rows = 2;
  c.n_experts = 10;
  c.k = 2;
  c.reserved = c.capacity = 6;
  c.numbers.floor = 2;
  c.numbers.speculative_slots = 3;

  SECTION("passed spares of one donor") {
    bench<soft> b(kit::table_builder<soft>(c)
                      .place({.slot = 0, .expert = 0, .heat = 0, .speculated = true, .target = 0, .row = 1})
                      .place({.slot = 1, .expert = 1, .heat = 0, .speculated = true, .target = 0, .row = 1})
                      .place({.slot = 2, .expert = 2, .heat = 0, .speculated = true, .target = 0, .row = 1})
                      .place({.slot = 3, .expert = 3, .leases = 1, .row = 0})
                      .place({.slot = 4, .expert = 4, .leases = 1, .row = 0})
                      .place({.slot = 5, .expert = 5, .leases = 1, .row = 0})
                      .build());
    b.plan({7, 8});
    CHECK(load_slots<soft>(*b.decided) == std::vector<u32>{0});
    REQUIRE(b.commit());
    CHECK(b.made.view().layer(1).held == 2);
  }
  SECTION("trims of one donor") {
    c.n_experts = 12;
    bench<soft> b(kit::table_builder<soft>(c)
                      .place({.slot = 0, .expert = 0, .age = 9, .row = 1})
                      .place({.slot = 1, .expert = 1, .age = 8, .row = 1})
                      .place({.slot = 2, .expert = 2, .age = 7, .row = 1})
                      .place({.slot = 3, .expert = 3, .heat = 0, .speculated = true, .row = 0})
                      .place({.slot = 4, .expert = 4, .heat = 0, .speculated = true, .row = 0})
                      .place({.slot = 5, .expert = 5, .heat = 0, .speculated = true, .row = 0})
                      .build());
    auto& p = b.plan({3, 4});  // two promotions: two residents too many, but row 1 can give only one
    CHECK(p.n_trims == 1);
    REQUIRE(b.commit());
    CHECK(b.made.view().layer(1).held == 2);
  }
}
