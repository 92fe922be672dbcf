// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include "support.hpp"

using namespace warmset;
using namespace warmset::table_test;

namespace {

slot_state state_of(bench<lru>& b, u32 slot) { return slot_word::state(b.made.view().word(slot)); }

}  // namespace

TEST_CASE("settle: a word counts only for the transfer that it was written for", "[table][settle]") {
  bench<lru> b(sized(8, 2));
  b.plan({3});
  REQUIRE(b.commit());
  u32 const generation = b.made.view().generation(0);
  u32 const waiting[] = {0, arrival::word(generation - 1, transfer::arrived),
                         arrival::word(generation + 1, transfer::failed),
                         arrival::word(generation, transfer::loading),
                         arrival::word(generation, transfer::none)};
  auto const before = b.bytes();
  for (u32 const word : waiting) {
    b.arrivals[0] = word;
    b.settle();
    CHECK(b.bytes() == before);
  }
  b.arrivals[0] = arrival::word(generation, transfer::arrived);
  b.settle();
  CHECK(b.resident(3));
  CHECK(b.sum.arrived[0] == 1);
  auto const settled = b.bytes();
  b.settle();  // the word still stands there
  CHECK(b.bytes() == settled);
}

TEST_CASE("settle: one entry of a batch fails", "[table][settle][B31][R12]") {
  bench<lru> b(sized(8, 4));
  b.demand({0, 1, 2, 3});
  b.plan({4, 5, 6, 7});
  REQUIRE(b.commit());
  for (u32 s = 0; s < 4; ++s) {
    b.arrivals[s] = arrival::word(b.made.view().generation(s), s == 2 ? transfer::failed : transfer::arrived);
  }
  b.settle();
  CHECK(state_of(b, 2) == slot_state::free);
  CHECK((b.resident(4) && b.resident(5) && b.resident(7)));
  CHECK_FALSE(b.resident(2));  // the victim stays evicted
  CHECK(b.made.view().expert(6).where == expert_word::accessed);  // the touch stays
  CHECK(b.sum.failed[0] == 1);
  CHECK(b.sound());
  b.demand({6});
  CHECK(b.resident(6));
}

TEST_CASE("settle: a failed transfer whose step is still read drains first", "[table][settle]") {
  bench<lru> b(sized(8, 2));
  b.plan({3});
  REQUIRE(b.commit());
  auto const held = b.acquire();
  b.arrive(transfer::failed);
  CHECK(state_of(b, 0) == slot_state::draining);
  CHECK(b.sound());
  CHECK(b.plan({3}).how[0] == access_kind::load);  // not resident any more
  CHECK(b.decided->loads[0].slot == 1);
  b.release(held);
  CHECK(state_of(b, 0) == slot_state::free);
  CHECK(b.sound());
}

TEST_CASE("lease: a leased slot is no victim, and leases nest", "[table][lease]") {
  bench<lru> b(sized(8, 2));
  b.demand({0});
  b.demand({1});
  b.plan({0});
  REQUIRE(b.commit());
  auto const first = b.acquire();
  auto const second = b.acquire();
  CHECK(b.plan({5}).loads[0].slot == b.slot_of(1));
  b.release(first);
  b.plan({1});
  REQUIRE(b.commit());  // 0 is the coldest now, but still leased once
  CHECK(b.plan({5}).loads[0].slot == b.slot_of(1));
  b.release(second);
  CHECK(b.plan({5}).loads[0].slot == b.slot_of(0));
  CHECK(b.made.view().header().leases == 0);
}

TEST_CASE("lease: declined experts lease each scratch slot once", "[table][lease]") {
  auto c = sized(16, 4);
  c.numbers.scratch_slots = 2;
  bench<lru> b(c);
  b.plan({0, 1, 2, 3});
  REQUIRE(b.commit());  // everything is loading
  auto& p = b.plan({8, 9, 10});
  REQUIRE(p.n_declined == 3);
  CHECK(p.n_waves == 2);
  REQUIRE(b.commit());
  auto const held = b.acquire();
  CHECK(held == std::vector<u32>{4, 5});
  CHECK(b.plan({11}).kind == plan_kind::busy);
  auto const before = b.bytes();
  CHECK(b.commit().why == reason::not_committable);
  CHECK(b.bytes() == before);
  b.release(held);
  CHECK(b.plan({11}).kind == plan_kind::step);
  CHECK(b.sound());
}

TEST_CASE("resize: idle slots retire at once, the others drain", "[table][resize][B34][B35][R13][R49]") {
  bench<lru> b(sized(16, 8));
  b.demand({0, 1, 2, 3, 4});
  b.plan({4});
  REQUIRE(b.commit());
  auto const held = b.acquire();  // slot 4 leased
  b.plan({5});
  REQUIRE(b.commit());  // slot 5 loading
  REQUIRE(resize<lru>(b.made.view(), 3, b.sum));
  CHECK(state_of(b, 3) == slot_state::retired);
  CHECK(state_of(b, 4) == slot_state::draining);
  CHECK(state_of(b, 5) == slot_state::draining);
  CHECK(state_of(b, 6) == slot_state::retired);
  CHECK(b.sound());
  CHECK(b.plan({4}).how[0] == access_kind::load);
  b.arrive();
  CHECK(state_of(b, 5) == slot_state::retired);
  b.release(held);
  CHECK(state_of(b, 4) == slot_state::retired);
  CHECK(b.sum.retired == 5);
  for (i32 i = 0; i < 100; ++i) {
    b.demand({i % 16});
    REQUIRE(b.made.view().header().resident <= 3);
    REQUIRE(b.sound());
  }
  REQUIRE(resize<lru>(b.made.view(), 8, b.sum));
  CHECK(b.made.view().header().free() == 5);
  auto const before = b.bytes();
  CHECK(resize<lru>(b.made.view(), 9, b.sum).why == reason::limited);
  CHECK(b.bytes() == before);
}

TEST_CASE("resize: growing again while a slot drains keeps it", "[table][resize]") {
  bench<lru> b(sized(16, 4));
  b.plan({0, 1, 2, 3});
  REQUIRE(b.commit());
  REQUIRE(resize<lru>(b.made.view(), 2, b.sum));
  REQUIRE(resize<lru>(b.made.view(), 4, b.sum));
  CHECK(b.sound());
  b.arrive();
  CHECK(state_of(b, 3) == slot_state::free);
  REQUIRE(resize<lru>(b.made.view(), 0, b.sum));
  CHECK(b.sound());
  CHECK(b.plan({1}).kind == plan_kind::overflow);  // served from scratch
}

TEST_CASE("invalidate: every look-up misses, scores and clocks go on", "[table][invalidate][B47][R30]") {
  bench<counted> b(sized(8, 4));
  b.demand({0, 1});
  b.plan({2});
  REQUIRE(b.commit());
  auto const history = kit::history_bytes<counted>(b.made.view());
  auto const held = b.acquire();
  invalidate<counted>(b.made.view(), 1, b.sum);  // all
  CHECK(b.made.view().header().storage_generation == 1);
  CHECK(b.sum.dropped == 2);
  CHECK(b.sound());
  auto& p = b.plan({0, 1, 2});
  CHECK(p.n_loads == 3);
  CHECK(kit::history_bytes<counted>(b.made.view()) == history);
  b.arrive();
  CHECK(slot_word::state(b.made.view().word(2)) == slot_state::draining);  // arrived, but still leased
  b.release(held);
  CHECK(b.made.view().header().free() == 4);
  CHECK(b.sound());
}

TEST_CASE("pin: k unpinned slots remain, and a pinned resident is no victim", "[table][pin][R18]") {
  bench<lru> b(sized(8, 4));
  CHECK(pin<lru>(b.made.view(), 0, 0, 2));
  CHECK(pin<lru>(b.made.view(), 0, 1, 2));
  CHECK(pin<lru>(b.made.view(), 0, 1, 2));  // again: nothing to do
  CHECK(pin<lru>(b.made.view(), 0, 2, 2).why == reason::limited);
  CHECK(pin<lru>(b.made.view(), 0, 8, 2).why == reason::out_of_range);
  CHECK(pin<lru>(b.made.view(), 1, 0, 2).why == reason::out_of_range);
  CHECK(unpin<lru>(b.made.view(), 0, 8).why == reason::out_of_range);
  CHECK(b.made.view().usable() == 2);
  for (i32 i = 0; i < 40; ++i) {
    b.demand({i % 8});
    REQUIRE(b.sound());
    if (i > 8) {
      REQUIRE((b.resident(0) && b.resident(1)));
    }
  }
  CHECK(unpin<lru>(b.made.view(), 0, 0));
  for (i32 i = 2; i < 8; ++i) {
    b.demand({i});
  }
  CHECK_FALSE(b.resident(0));
}

TEST_CASE("reclaim: evicts in the selector's order and spares what the plan names", "[table][resize]") {
  bench<lru> b(sized(8, 4));
  for (i32 i = 0; i < 4; ++i) {
    b.demand({i});
  }
  b.plan({0, 7});
  std::vector<u32> gone;
  u32 const n = reclaim<lru>(
      b.made.view(), b.made.view().header().model_tick, *b.decided, [&] { return gone.size() == 2; },
      [&](u32, u32 expert) { gone.push_back(expert); }, b.sum);
  CHECK(n == 2);
  CHECK(gone == std::vector<u32>{1, 2});
  CHECK(b.made.view().header().free() == 2);
  CHECK(b.sound());
}

TEST_CASE("reclaim: each eviction is a walk that the selector takes over", "[table][resize]") {
  auto const reclaims_2_and_3 = []<class Selector>(Selector) {
    INFO(Selector::name);
    using bundle = bundles::of<score::lru, Selector>;
    bench<bundle> b(sized(8, 4));
    for (i32 const id : {0, 1, 2, 3, 0, 0}) {
      b.demand({id});
    }
    b.plan({1, 7});
    std::vector<u32> gone;
    (void)reclaim<bundle>(
        b.made.view(), b.made.view().header().model_tick, *b.decided, [&] { return gone.size() == 2; },
        [&](u32, u32 expert) { gone.push_back(expert); }, b.sum);
    CHECK(gone == std::vector<u32>{2, 3});
    CHECK(b.sound());
    if constexpr (std::same_as<Selector, select::s3_fifo>) {
      auto const& pool = b.made.view().selector_pool();
      CHECK((pool.n_small == 1 && pool.n_ghost == 2));  // 0 moved on, 1 was passed
    }
  };
  reclaims_2_and_3(select::clock<2>{});
  reclaims_2_and_3(select::sieve{});
  reclaims_2_and_3(select::s3_fifo{});
  reclaims_2_and_3(select::hot_protected<1>{});
}
