// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include <kit/thread_lanes.hpp>

#include "cuda/host_pool.hpp"
#include "support/dice.hpp"
#include "warmset/table/audit.hpp"

using namespace warmset;

// The twin of device_step_test.cu: what the plan and gather kernels do, done by a lane group of the host.

using steps::host_pool;

namespace {

template <class Policy, class Step>
void check_steps(Step&& step, u32 n_steps) {
  auto const pool = std::make_unique<host_pool<Policy>>();
  warmset_test::dice random{7};
  u64 from_scratch = 0;
  for (u32 i = 0; i < n_steps; ++i) {
    u32 const row = random.below(pool->n_rows());
    u32 const n_experts = pool->owner().view().layer(row).n_experts;
    std::vector<i32> ids(1 + random.below(5));
    for (i32& id : ids) {
      id = static_cast<i32>(random.below(1 + random.below(n_experts + 1))) - (random.below(12) == 0 ? 1 : 0);
    }
    std::vector<i32> slots(ids.size(), -7);
    step(*pool, cuda::device_input{row, 0, phase::decode}, ids, slots);
    pool->fetch(1 + random.below(4));
    for (std::size_t j = 0; j < ids.size(); ++j) {
      if (ids[j] < 0 || ids[j] >= static_cast<i32>(n_experts)) {
        REQUIRE(slots[j] == -1);
        continue;
      }
      REQUIRE(slots[j] >= 0);
      REQUIRE(pool->has_bytes_of(row, ids[j], slots[j]));
      from_scratch += slots[j] >= static_cast<i32>(pool->view.shape.n_slots) ? 1 : 0;
    }
    REQUIRE(audit(pool->owner().view()));
  }
  CHECK(pool->fault() == 0);
  CHECK(pool->counted().steps > n_steps * 3 / 4);
  CHECK(pool->counted().issued[0] > n_steps / 10);
  CHECK(pool->counted().arrived[0] > n_steps / 10);
  CHECK((from_scratch != 0) == Policy::admission::may_decline);
}

using with_bytes = std::tuple<
    bundles::of<score::lru>, bundles::of<score::decayed_count>, bundles::of<score::successor<>>,
    bundles::of<score::lru, select::clock<1>>, bundles::shared<bundles::of<score::lru>>,
    bundles::admitted<bundles::of<score::lru>, admit::second_touch<8>>,
    bundles::admitted<bundles::of<score::successor<>>, admit::colder_than_victim<20>>>;

}  // namespace

TEMPLATE_LIST_TEST_CASE("a step on the device fetches what it answers", "[cuda]", with_bytes) {
  check_steps<TestType>(
      [](auto& pool, cuda::device_input in, std::vector<i32> const& ids, std::vector<i32>& slots) {
        pool.step(one_lane{}, in, ids, slots);
      },
      2000);
}

TEMPLATE_LIST_TEST_CASE("a step on the device by several lanes fetches what it answers", "[cuda]", with_bytes) {
  kit::lane_team team{2};
  check_steps<TestType>(
      [&](auto& pool, cuda::device_input in, std::vector<i32> const& ids, std::vector<i32>& slots) {
        team.run([&](kit::thread_lanes lanes) {
          pool.step(lanes, in, ids, slots);
        });
      },
      60);
}

TEST_CASE("a step under another epoch commits nothing, comes from scratch and says so", "[cuda]") {
  using policy = bundles::of<score::lru>;
  host_pool<policy> pool;
  auto const step = [&](std::vector<i32> const& ids, u32 epoch) {
    std::vector<i32> slots(ids.size(), -7);
    pool.step(one_lane{}, {0, epoch, phase::decode}, ids, slots);
    pool.fetch(2);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      CHECK(pool.has_bytes_of(0, ids[i], slots[i]));
    }
    return slots;
  };
  (void)step({1, 2, 3}, 0);
  CHECK(pool.fault() == 0);
  u64 const bytes = pool.owner().block_bytes();
  auto const* const block = static_cast<unsigned char const*>(pool.owner().block());
  std::vector<unsigned char> const before(block, block + bytes);
  outcome const counted = pool.counted();
  std::vector<i32> const slots = step({3, 4}, 1);
  CHECK(std::equal(before.begin(), before.end(), block));
  outcome const after = pool.counted();
  CHECK(std::memcmp(&counted, &after, sizeof counted) == 0);
  u32 const n_slots = pool.view.shape.n_slots;
  CHECK(std::all_of(slots.begin(), slots.end(), [=](i32 s) { return s >= static_cast<i32>(n_slots); }));
  CHECK(pool.fault() == static_cast<u32>(cuda::step_fault::stale_epoch));
}

TEST_CASE("hints that commit refuses leave no order of a slot", "[cuda]") {
  using policy = bundles::guarded<bundles::of<score::lru>, guard::none>;
  host_pool<policy> pool;
  std::vector<i32> slots(3);
  pool.step(one_lane{}, {0, 0, phase::decode}, {1, 2, 3}, slots);
  pool.fetch(2);
  pool.advise(one_lane{}, {0, 0, phase::decode, u64_max}, {5, 6});
  REQUIRE(pool.n_fetched(pool.hint_view()) == 1);
  pool.fetch(pool.hint_view(), 2, cuda::plain_gather{});
  pool.step(one_lane{}, {0, 0, phase::decode}, {5, 2, 3}, slots);  // there is room for the next hint again
  block_header& header = const_cast<block_header&>(pool.owner().view().header());
  outcome const counted = pool.counted();
  header.n_layers = 0;  // no plan has a row then
  pool.advise(one_lane{}, {0, 0, phase::decode, u64_max}, {7, 8});
  CHECK(pool.n_fetched(pool.hint_view()) == 0);
  header.n_layers = 1;
  outcome const after = pool.counted();
  CHECK(after.issued[0] + after.issued[1] == counted.issued[0] + counted.issued[1]);
  CHECK(audit(pool.owner().view()));
}

TEST_CASE("a step that is wider than its graph may be is served and leaves a fault", "[cuda]") {
  using policy = bundles::of<score::lru>;
  host_pool<policy> pool;
  std::vector<i32> const ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::vector<i32> slots(ids.size());
  pool.step(one_lane{}, {0, 0, phase::decode}, ids, slots);
  pool.fetch(3);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    CHECK(pool.has_bytes_of(0, ids[i], slots[i]));
  }
  CHECK(pool.fault() == static_cast<u32>(cuda::step_fault::overflow));
  CHECK(audit(pool.owner().view()));
}

namespace {

using with_hints =
    std::tuple<bundles::guarded<bundles::of<score::lru>, guard::none>,
               bundles::guarded<bundles::of<score::decayed_count>, guard::warm_then_challenger_must_win>,
               bundles::guarded<bundles::of<score::successor<>>, guard::none>,
               bundles::guarded<bundles::of<score::lru, select::clock<1>>, guard::spare_only>>;

/// Steps with hints between them, where a share of the transfers fails: whatever comes of a transfer, the readers find the
/// right bytes, and the table is the one that the same decisions make where somebody else moves the bytes.
template <class Policy, class Run>
void check_hints(Run&& run, u32 n_rounds, u32 share_q16) {
  auto const pool = std::make_unique<host_pool<Policy>>();
  cuda::failing_gather<> const adaptor{{}, 11, share_q16};
  table<Policy> other(steps::rows(false), steps::pool<Policy>::sizes(), tuning{.scratch_slots = 16});
  std::vector<u32> words(pool->view.shape.n_slots);
  auto const workspace = std::make_unique<workspace_of<Policy>>();
  auto const plan = std::make_unique<plan_of<Policy>>();
  outcome out{};
  table_writer<Policy> const t = other.view();
  auto const carry_out = [&] {
    REQUIRE(commit<Policy>(one_lane{}, t, *plan, out, [&](u32, planned_load load, u32 generation) {
      words[load.slot] = arrival::word(generation, adaptor.end_of(load.slot, {0, load.expert, load.slot, generation}));
    }));
  };
  warmset_test::dice random{23};
  u32 const n_experts = t.layer(0).n_experts;
  u64 n_copied = 0;
  for (u32 round = 0; round < n_rounds; ++round) {
    std::vector<i32> hints(6);
    for (i32& id : hints) {
      id = static_cast<i32>(random.below(n_experts + 1)) - (random.below(8) == 0 ? 1 : 0);
    }
    u64 const budget = random.below(5) * u64{155};
    run([&](auto const& lanes) { pool->advise(lanes, {0, 0, phase::decode, budget}, hints); });
    cuda::pool_view<Policy> const beside = pool->hint_view();
    n_copied += pool->n_fetched(beside);
    CHECK(pool->n_fetched(beside) * u64{155} <= budget);
    pool->fetch(beside, 1 + random.below(3), adaptor);
    REQUIRE(audit(pool->owner().view()));
    settle<Policy>(one_lane{}, t, words.data(), out);
    plan_speculative<Policy>(one_lane{}, table_reader<Policy>{t},
                             {0, t.layer(0).step + 1, static_cast<u32>(budget / 155), t.header().model_tick},
                             hints.data(), static_cast<u32>(hints.size()), *workspace, *plan);
    carry_out();
    REQUIRE(std::memcmp(pool->owner().block(), other.block(), other.block_bytes()) == 0);

    std::vector<i32> ids(3);
    for (i32& id : ids) {
      id = static_cast<i32>(random.below(1 + random.below(n_experts)));
    }
    std::vector<i32> slots(ids.size(), -7);
    run([&](auto const& lanes) { pool->step(lanes, {0, 0, phase::decode}, ids, slots); });
    pool->fetch(pool->view, 1 + random.below(3), adaptor);
    for (std::size_t j = 0; j < ids.size(); ++j) {
      REQUIRE(slots[j] >= 0);
      REQUIRE(pool->serves(0, ids[j], slots[j]));
    }
    REQUIRE(audit(pool->owner().view()));
    settle<Policy>(one_lane{}, t, words.data(), out);
    plan_demand<Policy>(one_lane{}, table_reader<Policy>{t}, {0, phase::decode, t.header().model_tick}, ids.data(),
                        static_cast<u32>(ids.size()), *workspace, *plan);
    carry_out();
    REQUIRE(std::memcmp(pool->owner().block(), other.block(), other.block_bytes()) == 0);
    outcome const there = pool->counted();
    REQUIRE(std::memcmp(&there, &out, sizeof out) == 0);
  }
  CHECK(pool->fault() == 0);
  CHECK(n_copied > n_rounds / 4);
  CHECK(pool->counted().arrived[static_cast<u32>(intent::speculative)] > n_rounds / 8);
  CHECK(pool->counted()[access_kind::first_use] > n_rounds / 40);
  CHECK((pool->counted().failed[0] != 0) == (share_q16 != 0));
  CHECK((pool->counted().failed[1] != 0) == (share_q16 != 0));
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("hints on the device are what they are on the host, and failed transfers are read in place",
                        "[cuda]", with_hints) {
  u32 const share_q16 = GENERATE(0u, 6'554u);
  check_hints<TestType>([](auto&& f) { f(one_lane{}); }, 2000, share_q16);
}

TEMPLATE_LIST_TEST_CASE("hints on the device by several lanes are what they are by one", "[cuda]", with_hints) {
  kit::lane_team team{2};
  check_hints<TestType>([&](auto&& f) { team.run([&](kit::thread_lanes lanes) { f(lanes); }); }, 80, 13'107);
}

TEST_CASE("hints under another epoch, and hints without a budget, change nothing and fetch nothing", "[cuda]") {
  using policy = bundles::guarded<bundles::of<score::lru>, guard::none>;
  host_pool<policy> pool;
  std::vector<i32> slots(3);
  pool.step(one_lane{}, {0, 0, phase::decode}, {1, 2, 3}, slots);
  pool.fetch(2);
  pool.advise(one_lane{}, {0, 0, phase::decode, 0}, {5, 6});  // takes in what has arrived
  CHECK(pool.n_fetched(pool.hint_view()) == 0);
  CHECK(pool.counted().hints_dropped[static_cast<u32>(reason::limited)] == 2);
  auto const* const block = static_cast<unsigned char const*>(pool.owner().block());
  std::vector<unsigned char> const before(block, block + pool.owner().block_bytes());
  outcome const counted = pool.counted();
  pool.advise(one_lane{}, {0, 1, phase::decode, u64_max}, {5, 6});
  CHECK(pool.n_fetched(pool.hint_view()) == 0);
  CHECK(std::equal(before.begin(), before.end(), block));
  outcome const after = pool.counted();
  CHECK(std::memcmp(&counted, &after, sizeof counted) == 0);
}

TEST_CASE("the share of transfers that an adaptor fails is the one asked for, and the same for a seed", "[cuda]") {
  cuda::failing_gather<> const one{{}, 1, 655};
  cuda::failing_gather<> const other{{}, 2, 655};
  u32 failed = 0;
  u32 differ = 0;
  for (u32 i = 0; i < 100'000; ++i) {
    cuda::fetch_order const order{0, i % 32, i % 8, i / 8};
    bool const fails = one.end_of(i % 8, order) == transfer::failed;
    failed += fails ? 1 : 0;
    differ += fails != (other.end_of(i % 8, order) == transfer::failed) ? 1 : 0;
    REQUIRE(fails == (cuda::failing_gather<>{{}, 1, 655}.end_of(i % 8, order) == transfer::failed));
  }
  CHECK(failed > 800);
  CHECK(failed < 1200);
  CHECK(differ > 1500);
  CHECK(cuda::failing_gather<>{{}, 1, 65536}.end_of(3, {}) == transfer::failed);
  CHECK(cuda::failing_gather<>{}.end_of(3, {}) == transfer::arrived);
}

namespace {

using that_decline = std::tuple<bundles::admitted<bundles::of<score::lru>, admit::second_touch<8>>,
                                bundles::admitted<bundles::of<score::successor<>>, admit::colder_than_victim<20>>,
                                bundles::of<score::lru>>;

/// Steps of a pool whose readers take from the source what has no slot, with one scratch slot for all that: the table is
/// the one that the same decisions make anywhere, exactly what is declined or in no committed step is answered -1 and not
/// fetched, and readers find every byte.
template <class Policy, class Run>
void check_reads_host(Run&& run, u32 n_rounds) {
  auto const pool = std::make_unique<host_pool<Policy>>(steps::rows(false), steps::pool<Policy>::sizes(),
                                                        tuning{.scratch_slots = 1});
  pool->view.reads_host = true;
  table<Policy> other(steps::rows(false), steps::pool<Policy>::sizes(), tuning{.scratch_slots = 1});
  table_writer<Policy> const t = other.view();
  std::vector<u32> words(pool->view.shape.n_slots);
  auto const workspace = std::make_unique<workspace_of<Policy>>();
  auto const plan = std::make_unique<plan_of<Policy>>();
  outcome out{};
  warmset_test::dice random{31};
  u32 const n_experts = t.layer(0).n_experts;
  u32 n_waves = 0;
  for (u32 round = 0; round < n_rounds; ++round) {
    bool const is_wide = random.below(20) == 0;
    bool const is_stale = random.below(20) == 0;
    std::vector<i32> ids(is_wide ? 12 : 1 + random.below(5));
    for (u32 j = 0; j < ids.size(); ++j) {
      i32 const id = static_cast<i32>(random.below(1 + random.below(n_experts + 1))) - (random.below(12) == 0 ? 1 : 0);
      ids[j] = is_wide ? static_cast<i32>(j) : id;
    }
    std::vector<i32> slots(ids.size(), -7);
    run([&](auto const& lanes) { pool->step(lanes, {0, is_stale ? 1u : 0u, phase::decode}, ids, slots); });
    u32 n_loads = 0;
    bool const is_committed = !is_wide && !is_stale;
    if (!is_stale) {
      settle<Policy>(one_lane{}, t, words.data(), out);
      plan_demand<Policy>(one_lane{}, table_reader<Policy>{t}, {0, phase::decode, t.header().model_tick}, ids.data(),
                          static_cast<u32>(ids.size()), *workspace, *plan);
      if (plan->kind == plan_kind::step) {
        REQUIRE(commit<Policy>(one_lane{}, t, *plan, out, [&](u32, planned_load load, u32 generation) {
          words[load.slot] = arrival::word(generation, transfer::arrived);
        }));
        n_loads = plan->n_loads;
        n_waves = std::max(n_waves, plan->n_waves);
      } else {
        record_uncommitted<Policy>(*plan, out);
      }
    }
    REQUIRE(pool->n_fetched(pool->view) == n_loads);
    pool->fetch(1 + random.below(3));
    for (std::size_t j = 0; j < ids.size(); ++j) {
      if (static_cast<u32>(ids[j]) >= n_experts) {
        REQUIRE(slots[j] == -1);
        continue;
      }
      i32 expected = -1;
      for (u32 i = 0; is_committed && i < plan->n; ++i) {
        if (plan->expert[i] == static_cast<u32>(ids[j]) && plan->how[i] != access_kind::declined) {
          expected = static_cast<i32>(plan->slot[i]);
        }
      }
      REQUIRE(slots[j] == expected);
      REQUIRE(pool->serves(0, ids[j], slots[j]));
    }
    REQUIRE(audit(pool->owner().view()));
    REQUIRE(std::memcmp(pool->owner().block(), other.block(), other.block_bytes()) == 0);
    outcome const there = pool->counted();
    REQUIRE(std::memcmp(&there, &out, sizeof out) == 0);
  }
  CHECK(pool->fault() != static_cast<u32>(cuda::step_fault::none));
  CHECK(pool->fault() != static_cast<u32>(cuda::step_fault::busy));
  CHECK((out[access_kind::declined] > n_rounds / 10) == Policy::admission::may_decline);
  CHECK((n_waves > 1) == Policy::admission::may_decline);  // more than scratch would have held
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("readers take from the source what has no slot, and the table does not know", "[cuda]", that_decline) {
  check_reads_host<TestType>([](auto&& f) { f(one_lane{}); }, 2000);
}

TEMPLATE_LIST_TEST_CASE("readers take from the source what has no slot, by several lanes", "[cuda]", that_decline) {
  kit::lane_team team{2};
  check_reads_host<TestType>([&](auto&& f) { team.run([&](kit::thread_lanes lanes) { f(lanes); }); }, 80);
}
