// SPDX-License-Identifier: Apache-2.0
// The link on a virtual clock: who goes first, who waits, and how long.

#include <warmset/trace/link_model.hpp>

#include <random>
#include <vector>

#include <catch2/catch_test_macros.hpp>

using namespace warmset;
using trace::link_backend;
using trace::link_numbers;

namespace {

#if defined(__SIZEOF_INT128__)
__extension__ using wide = unsigned __int128;
#else
using wide = u64;
#endif

/// Two layers of one pool each; an expert takes 1,000 ns and 2 x 100 ns of copies.
struct two_layers {
  link_backend link;
  std::vector<u32> generation = std::vector<u32>(16, 0);

  explicit two_layers(u64 latency = 0) : two_layers(link_numbers{1'000'000'000, latency, 100, 0}) {}
  explicit two_layers(link_numbers numbers) : link(numbers) {
    std::vector<layer_geometry> layers;
    std::vector<pool_site> sites;
    for (u32 i = 0; i < 2; ++i) {
      layers.push_back({layer_id{i}, 8, 2, {400, 600}});
      sites.push_back({i, 0, 4 * i, 4, 8, 2, {layer_id{i}}});
    }
    link.open(geometry(layers), sites);
  }

  void start(intent what, u32 pool, u32 slot) {
    link.start_for(what);
    transfer_order const order{
        slot_id{slot}, {layer_id{pool}, expert_id{slot}}, ++generation[pool * 8 + slot]};
    link.start(pool, array_view<transfer_order const>(&order, 1));
  }
  transfer state(u32 pool, u32 slot) const { return arrival::state(link.arrivals(pool)[slot]); }
};

constexpr u64 one = 1'200;

}  // namespace

TEST_CASE("a product and a quotient are exact at every size") {
  std::mt19937_64 random{3};
  for (int i = 0; i < 200'000; ++i) {
    u64 const a = random() >> random() % 64;
    u64 const b = i % 7 == 0 ? u64_max - random() % 2 : random() >> random() % 64;
    u64 const c = random() >> random() % 64;
    if (c == 0) {
      REQUIRE(trace::scaled(a, b, c) == u64_max);
    } else if constexpr (sizeof(wide) > sizeof(u64)) {
      wide const exact = wide{a} * b / c;
      REQUIRE(trace::scaled(a, b, c) == (exact > u64_max ? u64_max : static_cast<u64>(exact)));
    }
  }
  CHECK(trace::link_time({4'000'000'000, 0, 5'000, 0}, 13'219'200, 3) == 3'304'800 + 15'000);
  CHECK(trace::link_time({1, 0, u64_max, 0}, u64_max, 3) == u64_max);
}

TEST_CASE("transfers of demand follow each other, and the last one ends the wait") {
  two_layers t;
  t.start(intent::demand, 0, 0);
  t.start(intent::demand, 0, 1);
  t.start(intent::demand, 1, 0);
  CHECK(t.state(0, 0) == transfer::loading);
  t.link.advance(one - 1);
  CHECK(t.state(0, 0) == transfer::loading);
  t.link.advance(1);
  CHECK(t.state(0, 0) == transfer::arrived);
  CHECK(t.state(0, 1) == transfer::loading);
  CHECK(t.link.wait_for_demand() == 2 * one);
  CHECK(t.state(1, 0) == transfer::arrived);
  CHECK(t.link.wait_for_demand() == 0);
  CHECK(t.link.traffic(intent::demand).bytes == 3'000);
  CHECK(t.link.traffic(intent::demand).busy_ns == 3 * one);
  CHECK(t.link.now() == 3 * one);
}

TEST_CASE("demand goes before queued hints and waits for the one that has begun") {
  two_layers t;
  t.start(intent::speculative, 1, 0);
  t.start(intent::speculative, 1, 1);
  CHECK(t.link.backlog_ns() == 2 * one);
  t.link.advance(200);
  CHECK(t.link.backlog_ns() == 2 * one - 200);
  t.start(intent::demand, 0, 0);
  CHECK(t.link.wait_for_demand() == one - 200 + one);
  CHECK(t.state(1, 0) == transfer::arrived);
  CHECK(t.state(1, 1) == transfer::loading);
  t.link.advance(one);
  CHECK(t.state(1, 1) == transfer::arrived);
  CHECK(t.link.traffic(intent::speculative).transfers == 2);
}

TEST_CASE("a demand that joins a hint makes it urgent, under way or queued, and waits for what is "
          "left of it") {
  SECTION("under way") {
    two_layers t;
    t.start(intent::speculative, 1, 0);
    t.link.advance(900);
    t.link.join(1, slot_id{0});
    t.link.join(1, slot_id{0});  // twice is once
    CHECK(t.link.wait_for_demand() == 300);
  }
  SECTION("queued behind others") {
    two_layers t;
    t.start(intent::speculative, 1, 0);
    t.start(intent::speculative, 1, 1);
    t.start(intent::speculative, 1, 2);
    t.link.join(1, slot_id{2});
    CHECK(t.link.wait_for_demand() == 2 * one);
    CHECK(t.state(1, 2) == transfer::arrived);
    CHECK(t.state(1, 1) == transfer::loading);
    CHECK(t.link.traffic(intent::demand).transfers == 0);  // a hint started it
  }
  SECTION("of nothing") {
    two_layers t;
    t.link.join(1, slot_id{2});
    CHECK(t.link.wait_for_demand() == 0);
  }
}

TEST_CASE("latency delays arrivals and not the link") {
  two_layers t{500};
  t.start(intent::demand, 0, 0);
  t.start(intent::demand, 0, 1);
  t.link.advance(one + 499);
  CHECK(t.state(0, 0) == transfer::loading);
  t.link.advance(1);
  CHECK(t.state(0, 0) == transfer::arrived);
  CHECK(t.link.wait_for_demand() == one);
  CHECK(t.link.now() == 2 * one + 500);
}

TEST_CASE("a clock that would go beyond the largest number ends there, and all arrives") {
  for (link_numbers const numbers :
       {link_numbers{1'000'000'000, u64_max, 100, 0}, link_numbers{1'000'000'000, 0, u64_max, 0},
        link_numbers{1, u64_max - 1, u64_max / 2, 0}}) {
    two_layers t{numbers};
    for (u32 pool = 0; pool < 2; ++pool) {
      t.start(intent::demand, pool, 0);
      t.start(intent::speculative, pool, 1);
    }
    t.link.advance(one);
    CHECK(t.link.backlog_ns() >= one);
    u64 const before = t.link.now();
    CHECK(t.link.wait_for_demand() == u64_max - before);
    t.link.finish();
    CHECK(t.link.now() == u64_max);
    t.start(intent::demand, 1, 2);
    t.link.advance(1);
    CHECK(t.link.wait_for_demand() == 0);
    CHECK(t.link.now() == u64_max);
    for (u32 slot = 0; slot < 2; ++slot) {
      CHECK(t.state(0, slot) == transfer::arrived);
      CHECK(t.state(1, slot) == transfer::arrived);
    }
    CHECK(t.state(1, 2) == transfer::arrived);
    CHECK(t.link.backlog_ns() == 0);
  }
}

TEST_CASE("a clock that nobody moves moves nothing; closing fails what is under way") {
  two_layers t;
  t.start(intent::demand, 0, 0);
  for (int i = 0; i < 100; ++i) {
    t.link.poll();
  }
  CHECK(t.state(0, 0) == transfer::loading);
  t.link.advance(u64_max);
  CHECK(t.state(0, 0) == transfer::arrived);
  t.start(intent::speculative, 0, 1);
  t.link.close();
  CHECK(t.state(0, 1) == transfer::failed);
  CHECK(t.link.wait_for_demand() == 0);
  link_backend stopped({0, 0, 0, 0});
  CHECK_THROWS_AS(stopped.open(geometry::uniform(1, 2, 1, 1), array_view<pool_site const>()),
                  config_error);
}
