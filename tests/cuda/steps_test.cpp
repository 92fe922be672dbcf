// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <memory>
#include <vector>

#include <kit/thread_lanes.hpp>

#include "cuda/fixture.hpp"
#include "support/sanitizers.hpp"
#include "warmset/table/audit.hpp"

using namespace warmset;

// The twin of steps_test.cu: what the lanes of a kernel do, done by threads on a second copy of the block.
TEMPLATE_LIST_TEST_CASE("several lanes decide like one", "[cuda]", steps::all) {
  // each operation of the group has barriers, and each of those costs a switch of threads
  constexpr u32 n_steps = WARMSET_TEST_TSAN ? 150 : 300;
  u32 const n_lanes = GENERATE(2u, 3u);
  steps::pool<TestType> pool;
  u64 const bytes = pool.owner.block_bytes();
  std::unique_ptr<std::max_align_t[]> const copy{new std::max_align_t[bytes / sizeof(std::max_align_t) + 1]};
  std::memcpy(copy.get(), pool.owner.block(), bytes);
  auto const state = std::make_unique<steps::run_state<TestType>>(*pool.state);
  components<TestType> const parts = pool.owner.parts();
  table_writer<TestType> const view{copy.get(), pool.owner.view().shape(), &parts};

  std::vector<u64> here(n_steps);
  std::vector<u64> there(n_steps);
  steps::run<TestType>(one_lane{}, pool.owner.view(), bytes, n_steps, *pool.state, {}, here.data());
  kit::lane_team team{n_lanes};
  team.run([&](kit::thread_lanes lanes) {
    steps::run<TestType>(lanes, view, bytes, n_steps, *state, {}, there.data());
  });

  CHECK(here == there);
  CHECK(std::memcmp(pool.owner.block(), copy.get(), bytes) == 0);
  CHECK(std::memcmp(&pool.state->out, &state->out, sizeof(outcome)) == 0);
  CHECK(state->random.state == pool.state->random.state);
  outcome const& out = state->out;
  CHECK(out.steps > n_steps / 2);
  CHECK(out.evicted[0] > n_steps / 20);  // an admission may decline most misses
  CHECK(out[access_kind::hit] > n_steps / 10);
  CHECK(state->refused == 0);
  CHECK((out.hints_offered > 0) == speculates<TestType>);
  CHECK(audit(pool.owner.view()));
}
