// SPDX-License-Identifier: Apache-2.0
#include "admit.hpp"

using namespace warmset;

namespace {

std::vector<u32> first(u32 n) {
  std::vector<u32> ids(n);
  for (u32 i = 0; i < n; ++i) {
    ids[i] = i;
  }
  return ids;
}

}  // namespace

TEST_CASE("insert_budget conforms", "[policy][admit]") {
  conformance::check_admission<admit::insert_budget>({.insert_bytes = 100});
}

TEST_CASE("insert_budget: whole experts within the bytes of a step, and always one", "[policy][admit]") {
  auto const admitted = [](u64 budget, u64 expert_bytes) {
    admit::insert_budget const a{tuning{.insert_bytes = budget}};
    u32 n = 0;
    while (n < 100 && a.admits(admit_test::question{.expert_bytes = expert_bytes, .installs = n})) {
      ++n;
    }
    return n;
  };
  CHECK(admitted(0, 10) == 1);
  CHECK(admitted(9, 10) == 1);
  CHECK(admitted(10, 10) == 1);
  CHECK(admitted(19, 10) == 1);
  CHECK(admitted(20, 10) == 2);
  CHECK(admitted(35, 10) == 3);
  CHECK(admitted(u64_max, u64_max) == 1);
  CHECK(admitted(u64_max, u64_max / 2) == 2);
  CHECK(admitted(u64{1} << 40, u64{1} << 38) == 4);
}

TEST_CASE("insert_budget: the first misses in demand order, at every size", "[policy][admit]") {
  // an expert of the player has one byte; free slots count as well
  for (u32 const slots : {1u, 2u, 3u, 4u, 8u, 42u, 60u}) {
    for (u32 const budget : {0u, 1u, 2u, 5u, 100u}) {
      play::player<admit_test::over_lru<admit::insert_budget>> p(60, slots, tuning{.insert_bytes = budget});
      u32 const installed = std::min(slots, std::max(budget, 1u));
      INFO(slots << " slots, " << budget << " bytes");
      auto ids = first(slots);
      std::reverse(ids.begin(), ids.end());
      (void)p.step(ids);
      auto const again = p.step(ids);
      for (u32 i = 0; i < slots; ++i) {
        CHECK((again[i] != no_slot.value) == (i < installed));
      }
      CHECK(audit(p.tested().view()));
    }
  }
}

TEST_CASE("insert_budget: each layer of a pool has its own bytes", "[policy][admit]") {
  using bundle = bundles::shared<admit_test::over_lru<admit::insert_budget>>;
  table<bundle> made({{layer_id{0}, 8, 2, {3, 2}}, {layer_id{4}, 8, 2, {20}}}, {16, 16}, tuning{.insert_bytes = 20});
  auto const& t = made.view();
  CHECK(t.expert_bytes(0) == 5);
  CHECK(t.expert_bytes(1) == 20);
  auto plan = std::make_unique<plan_of<bundle>>();
  auto work = std::make_unique<workspace_of<bundle>>();
  auto const loads = [&](u32 row) {
    auto const ids = first(8);
    plan_demand<bundle>(one_lane{}, t, {row, phase::decode, 0}, ids.data(), 8, *work, *plan);
    return plan->n_loads;
  };
  CHECK(loads(0) == 4);
  CHECK(plan->n_declined == 4);
  CHECK(loads(1) == 1);
  CHECK(policy_fingerprint<bundle>(tuning{.insert_bytes = 20}) != policy_fingerprint<bundle>(tuning{.insert_bytes = 21}));
  using plain = bundles::shared<bundles::of<score::lru>>;
  CHECK(block_layout<plain>(t.shape()).size + 16 == made.block_bytes());
}
