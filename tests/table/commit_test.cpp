// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include "support.hpp"

using namespace warmset;
using namespace warmset::table_test;

namespace {

/// A score whose hooks write down the step clock that they were called with.
struct noting {
  struct state {
    u32 demanded, installed, evicted_at_step, evicted_at_tick;
  };
  static constexpr char const* name = "noting";
  u64 value(state const& x, expert_facts, clocks) const noexcept { return x.demanded; }
  void on_demand(state& x, clocks) const noexcept { ++x.demanded; }
  void on_install(state& x, clocks c) const noexcept { x.installed = c.step; }
  void on_evict(state& x, clocks c) const noexcept {
    x.evicted_at_step = c.step;
    x.evicted_at_tick = c.layer_tick;
  }
};

}  // namespace

TEST_CASE("commit: a stale plan is refused and leaves the block identical (I7)", "[table][commit]") {
  bench<counted> b(sized(8, 3));
  b.demand({0, 1});
  b.plan({2, 3});
  auto const old = *b.decided;
  REQUIRE(b.commit());
  auto const before = b.bytes();
  outcome const counted_so_far = b.sum;
  CHECK(b.commit().why == reason::stale_plan);  // the same plan again
  *b.decided = old;
  CHECK(b.commit().why == reason::stale_plan);
  CHECK(b.bytes() == before);
  CHECK(std::memcmp(&b.sum, &counted_so_far, sizeof(outcome)) == 0);

  SECTION("whatever changed the table meanwhile") {
    b.plan({0});
    REQUIRE(pin<counted>(b.made.view(), 0, 7, 1));
    CHECK(b.commit().why == reason::stale_plan);
    b.plan({0});
    b.arrive();
    CHECK(b.commit().why == reason::stale_plan);
    b.plan({0});
    REQUIRE(resize<counted>(b.made.view(), 2, b.sum));
    CHECK(b.commit().why == reason::stale_plan);
    b.plan({0});
    invalidate<counted>(b.made.view(), 1, b.sum);
    CHECK(b.commit().why == reason::stale_plan);
  }
}

TEST_CASE("commit: a plan of another table is refused though the versions agree", "[table][commit]") {
  bench<counted> a(sized(8, 3));
  bench<counted> other(sized(8, 3));
  a.demand({0, 1});
  other.demand({0, 1});
  REQUIRE(a.made.view().header().version == other.made.view().header().version);
  a.plan({5});
  auto const foreign = *a.decided;

  auto const refuse = [&](auto&& spoil) {
    auto plan = foreign;
    spoil(plan);
    auto const before = other.bytes();
    *other.decided = plan;
    CHECK(other.commit().why == reason::stale_plan);
    CHECK(other.bytes() == before);
  };
  refuse([](auto& p) { p.loads[0].slot = 3; });      // no such slot
  refuse([](auto& p) { p.loads[0].expert = 8; });    // no such expert
  refuse([](auto& p) { p.loads[0].expert = 0; });    // resident
  refuse([](auto& p) { p.row = 1; });
  refuse([](auto& p) {
    p.n_trims = 1;
    p.trims[0] = 2;  // nothing there
  });
  other.plan({0});
  REQUIRE(other.commit());
  auto const held = other.acquire();
  refuse([&](auto& p) {
    p.version = other.made.view().header().version;
    p.loads[0].slot = other.slot_of(0);  // leased
  });
  other.release(held);
}

TEST_CASE("commit: the caller's own hook is told of every load", "[table][commit]") {
  bench<counted> b(sized(8, 3));
  struct {
    u32 n = 0;
    void operator()(u32, planned_load, u32) noexcept { ++n; }
  } hook;
  b.plan({1, 2, 3});
  REQUIRE(warmset::commit<counted>(one_lane{}, b.made.view(), *b.decided, b.sum, hook));
  CHECK(hook.n == 3);
  CHECK(b.sound());
}

TEST_CASE("commit: hints are no plan of a bundle that never speculates", "[table][commit]") {
  bench<counted> b(sized(8, 3));
  b.plan({1});
  b.decided->kind = plan_kind::hints;
  auto const before = b.bytes();
  CHECK(b.commit().why == reason::not_committable);
  CHECK(b.bytes() == before);
}

TEST_CASE("commit: a dropped plan leaves no trace", "[table][commit]") {
  bench<counted> b(sized(8, 3));
  bench<counted> twin(sized(8, 3));
  for (i32 i = 0; i < 20; ++i) {
    b.plan({(i + 3) % 8, (i + 5) % 8});  // never committed
    b.demand({i % 8});
    twin.demand({i % 8});
    REQUIRE(b.bytes() == twin.bytes());
  }
}

TEST_CASE("commit: clocks count distinct valid ids and steps", "[table][commit][B16]") {
  bench<counted> b(sized(8, 4));
  b.demand({1, 1, 2, -1, 99});
  CHECK(b.made.view().header().tick == 2);
  CHECK(b.made.view().layer(0).step == 1);
  for (i32 i = 0; i < 10; ++i) {
    b.demand({i % 8});
    CHECK(b.made.view().header().tick == static_cast<u32>(3 + i));
    CHECK(b.made.view().expert(static_cast<u32>(i % 8)).last == static_cast<u32>(3 + i));
  }
}

TEST_CASE("commit: an all-zero table holds no expert", "[table][commit][R9]") {
  bench<counted> b(sized(8, 4));
  auto& p = b.plan({0});
  CHECK(p.how[0] == access_kind::load);
  CHECK_FALSE(b.resident(0));
  CHECK(b.sound());
}

TEST_CASE("commit: an evicted speculation leaves no target behind", "[table][commit]") {
  // equal tables are equal bytes: the slot's next owner was demanded
  using policy = hinted<guard::none>;
  bench<policy> b(sized(8, 1));
  b.hint({2}, 0, 1, 5);
  REQUIRE(b.commit());
  b.arrive();
  REQUIRE(b.made.view().target(0) == 5);
  b.plan({3});
  REQUIRE(b.commit());
  CHECK(b.slot_of(3) == 0);
  CHECK(b.made.view().target(0) == 0);
}

TEST_CASE("commit: hooks of a score see the clocks of the expert's own layer", "[table][commit]") {
  using policy = bundles::shared<bundles::of<noting>>;
  kit::table_config c;
  c.n_rows = 2;
  c.n_experts = 6;
  c.k = 1;
  c.reserved = c.capacity = 3;
  bench<policy> b(c);
  b.demand({0}, 1);
  b.demand({1}, 1);
  for (i32 i = 0; i < 9; ++i) {
    b.demand({5}, 0);
  }
  b.demand({4}, 0);  // evicts from row 1
  auto const& t = b.made.view();
  auto const& victim = t.score_of(t.index_of(1, 0));
  CHECK(b.slot_of(0, 1) == no_slot.value);
  CHECK(victim.evicted_at_step == 2);
  CHECK(victim.evicted_at_tick == 2);
  CHECK(t.score_of(t.index_of(0, 5)).installed == 1);
}

TEST_CASE("commit: an age never wraps, by the pool's clock or by the model's", "[table][commit][B15][R61]") {
  SECTION("pool") {
    bench<lru> b(sized(8, 3));
    auto const& t = b.made.view();
    b.demand({0});
    for (u32 quarter = 1; quarter <= 9; ++quarter) {  // 2^32 ticks and more, by leaps to just below a multiple
      t.header().tick = (quarter << 30) - 1;
      b.demand({1});
      REQUIRE(b.sound());
      u32 const age = t.header().tick - t.expert(0).last;
      CHECK(age >= (quarter == 1 ? 1u << 29 : u32_max / 2 - 10));
    }
    b.demand({2});
    b.demand({3});
    CHECK_FALSE(b.resident(0));
  }
  SECTION("model: many pools tick for each tick of this one") {
    using policy = bundles::of<score::lfru_model>;
    bench<policy> b(sized(8, 3));
    auto const& t = b.made.view();
    b.demand({0});
    // 2^32 ticks of the model later the stamp would look fresh again
    u32 model_tick = t.header().model_tick;
    for (u32 i = 0; i < 16; ++i) {
      model_tick += 1u << 28;
      b.plan({1}, 0, model_tick);
      REQUIRE(b.commit());
      b.arrive();
    }
    clocks const now = t.now(0, t.header().model_tick);
    CHECK(t.value(0, now) == 256);  // one count, no recency
  }
}
