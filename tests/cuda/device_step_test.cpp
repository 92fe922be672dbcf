// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include <kit/thread_lanes.hpp>

#include "cuda/device_pool.hpp"
#include "support/dice.hpp"
#include "warmset/table/audit.hpp"

using namespace warmset;

// The twin of device_step_test.cu: what the plan and gather kernels do, done by a lane group of the host.

namespace {

template <class Policy>
class host_pool {
 public:
  host_pool()
      : rows_(steps::rows(Policy::pool::spans_layers)),
        owner_(rows_, steps::pool<Policy>::sizes(), tuning{.scratch_slots = 16}),
        source_(rows_, steps::odd_banks()),
        arrivals_(owner_.view().shape().n_slots),
        queue_(std::make_unique<queue>()),
        hint_queue_(std::make_unique<queue>()),
        workspace_(std::make_unique<workspace_of<Policy>>()),
        plan_(std::make_unique<plan_of<Policy>>()),
        view{const_cast<void*>(owner_.block()), owner_.parts(), owner_.view().shape(), arrivals_.data(), plan_.get(),
             &out, queue_.get(), nullptr, source_.n_banks(), steps::piece_bytes,
             steps::pieces_of(steps::odd_banks()), 0, owner_.view().shape().n_slots} {
    table_shape const shape = view.shape;
    for (u32 bank = 0; bank < source_.n_banks(); ++bank) {
      std::vector<unsigned char const*>& from = pointers_.emplace_back();
      for (u32 row = 0; row < rows_.size(); ++row) {
        from.push_back(source_.tensor(row, bank).data());
      }
      memory_.emplace_back(source_.bytes(bank) * (shape.n_slots + shape.n_scratch), 0xEE);
    }
    for (u32 bank = 0; bank < source_.n_banks(); ++bank) {
      unsigned char* const slots = memory_[bank].data();
      banks_.push_back({pointers_[bank].data(), slots, slots + shape.n_slots * source_.bytes(bank), source_.bytes(bank)});
    }
    view.banks = banks_.data();
  }

  /// The next step, as the kernels of a graph carry it out.
  template <lane_group Group>
  void step(Group const& lanes, cuda::device_input in, std::vector<i32> const& ids, std::vector<i32>& slots) {
    u32 const n = static_cast<u32>(ids.size());
    if (!cuda::hits_on_device<Policy>(lanes, view, in, ids.data(), n, slots.data())) {
      cuda::step_on_device<Policy>(lanes, view, in, ids.data(), n, slots.data(), *workspace_, *plan_);
    }
    cuda::learn_on_device<Policy>(lanes, view);
  }

  /// Hints for the next step of a row, and their copies.
  template <lane_group Group>
  void advise(Group const& lanes, cuda::hint_input in, std::vector<i32> const& ids) {
    cuda::hints_on_device<Policy>(lanes, hint_view(), in, ids.data(), static_cast<u32>(ids.size()), *workspace_, *plan_);
  }
  cuda::pool_view<Policy> hint_view() const {
    cuda::pool_view<Policy> beside = view;
    beside.queue = hint_queue_.get();
    return beside;
  }

  /// Carries the copies out with `n_workers`, one after the other.
  void fetch(u32 n_workers) { fetch(view, n_workers, cuda::plain_gather{}); }
  template <class Adaptor>
  void fetch(cuda::pool_view<Policy> const& of, u32 n_workers, Adaptor const& adaptor) {
    for (u32 worker = 0; worker < n_workers; ++worker) {
      cuda::gather<Policy>(
          of, worker, n_workers, adaptor,
          [](unsigned char* to, unsigned char const* from, u64 bytes) { std::memcpy(to, from, bytes); },
          [](u32& left) { return --left == 0; });
    }
  }

  /// Whether every bank of the answer has the bytes of the id that asked.
  bool has_bytes_of(u32 row, i32 expert, i32 slot) const {
    for (u32 bank = 0; bank < source_.n_banks(); ++bank) {
      u64 const bytes = source_.bytes(bank);
      if (std::memcmp(memory_[bank].data() + static_cast<u64>(slot) * bytes,
                      source_.tensor(row, bank).data() + static_cast<u64>(expert) * bytes, bytes) != 0) {
        return false;
      }
    }
    return true;
  }

  /// Whether the readers of a row find the bytes of the id that asked, wherever they lie.
  bool serves(u32 row, i32 expert, i32 answer) const {
    cuda::served_experts const served{banks_.data(), arrivals_.data(), row, view.shape.n_slots, view.first_slot,
                                      view.first_scratch};
    for (u32 bank = 0; bank < source_.n_banks(); ++bank) {
      u64 const bytes = source_.bytes(bank);
      if (std::memcmp(served.bytes(bank, static_cast<u32>(expert), answer),
                      source_.tensor(row, bank).data() + static_cast<u64>(expert) * bytes, bytes) != 0) {
        return false;
      }
    }
    return true;
  }
  u32 n_fetched(cuda::pool_view<Policy> const& of) const { return of.queue->n; }

  table<Policy>& owner() { return owner_; }
  u32 n_rows() const { return static_cast<u32>(rows_.size()); }
  u32 fault() const { return queue_->fault; }

 private:
  using queue = cuda::fetch_queue<Policy::max_experts>;
  std::vector<layer_geometry> rows_;
  table<Policy> owner_;
  steps::sources source_;
  std::vector<u32> arrivals_;
  std::unique_ptr<queue> queue_;
  std::unique_ptr<queue> hint_queue_;
  std::unique_ptr<workspace_of<Policy>> workspace_;
  std::unique_ptr<plan_of<Policy>> plan_;
  std::vector<std::vector<unsigned char const*>> pointers_;
  std::vector<std::vector<unsigned char>> memory_;
  std::vector<cuda::bank_addresses> banks_;

 public:
  outcome out{};
  cuda::pool_view<Policy> view;
};

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
  CHECK(pool->out.steps > n_steps * 3 / 4);
  CHECK(pool->out.issued[0] > n_steps / 10);
  CHECK(pool->out.arrived[0] > n_steps / 10);
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
  outcome const counted = pool.out;
  std::vector<i32> const slots = step({3, 4}, 1);
  CHECK(std::equal(before.begin(), before.end(), block));
  CHECK(std::memcmp(&counted, &pool.out, sizeof counted) == 0);
  u32 const n_slots = pool.view.shape.n_slots;
  CHECK(std::all_of(slots.begin(), slots.end(), [=](i32 s) { return s >= static_cast<i32>(n_slots); }));
  CHECK(pool.fault() == static_cast<u32>(cuda::step_fault::stale_epoch));
}

TEST_CASE("what commit refuses leaves a fault and no order of a slot", "[cuda]") {
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
  outcome const counted = pool.out;
  header.n_layers = 0;  // no plan has a row then
  pool.advise(one_lane{}, {0, 0, phase::decode, u64_max}, {7, 8});
  CHECK(pool.n_fetched(pool.hint_view()) == 0);
  pool.step(one_lane{}, {0, 0, phase::decode}, {1, 9, 10}, slots);
  CHECK(pool.fault() == static_cast<u32>(cuda::step_fault::refused));
  u32 const n_slots = pool.view.shape.n_slots;
  CHECK(std::all_of(slots.begin(), slots.end(), [=](i32 s) { return s >= static_cast<i32>(n_slots); }));
  pool.fetch(2);
  header.n_layers = 1;
  CHECK(pool.has_bytes_of(0, 9, slots[1]));
  CHECK(pool.out.issued[0] + pool.out.issued[1] == counted.issued[0] + counted.issued[1]);
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
    REQUIRE(std::memcmp(&pool->out, &out, sizeof out) == 0);
  }
  CHECK(pool->fault() == 0);
  CHECK(n_copied > n_rounds / 4);
  CHECK(pool->out.arrived[static_cast<u32>(intent::speculative)] > n_rounds / 8);
  CHECK(pool->out[access_kind::first_use] > n_rounds / 40);
  CHECK((pool->out.failed[0] != 0) == (share_q16 != 0));
  CHECK((pool->out.failed[1] != 0) == (share_q16 != 0));
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
  CHECK(pool.out.hints_dropped[static_cast<u32>(reason::limited)] == 2);
  auto const* const block = static_cast<unsigned char const*>(pool.owner().block());
  std::vector<unsigned char> const before(block, block + pool.owner().block_bytes());
  outcome const counted = pool.out;
  pool.advise(one_lane{}, {0, 1, phase::decode, u64_max}, {5, 6});
  CHECK(pool.n_fetched(pool.hint_view()) == 0);
  CHECK(std::equal(before.begin(), before.end(), block));
  CHECK(std::memcmp(&counted, &pool.out, sizeof counted) == 0);
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
