// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_template_test_macros.hpp>
#include <cstring>
#include <memory>

#include "cuda/fixture.hpp"
#include "warmset/table/audit.hpp"

using namespace warmset;

// The twin of steps_test.cu: what the kernel does, done by a second copy of the block on the host.
TEMPLATE_LIST_TEST_CASE("a copy of a block decides like the block", "[cuda]", steps::all) {
  steps::pool<TestType> pool;
  u64 const bytes = pool.owner.block_bytes();
  std::unique_ptr<std::max_align_t[]> const copy{new std::max_align_t[bytes / sizeof(std::max_align_t) + 1]};
  std::memcpy(copy.get(), pool.owner.block(), bytes);
  auto const state = std::make_unique<steps::run_state<TestType>>(*pool.state);
  components<TestType> const parts = pool.owner.parts();
  table_writer<TestType> const view{copy.get(), pool.owner.view().shape(), &parts};

  steps::run<TestType>(one_lane{}, pool.owner.view(), steps::seed, steps::n_steps, *pool.state);
  steps::run<TestType>(one_lane{}, view, steps::seed, steps::n_steps, *state);

  CHECK(std::memcmp(pool.owner.block(), copy.get(), bytes) == 0);
  CHECK(std::memcmp(&pool.state->out, &state->out, sizeof(outcome)) == 0);
  outcome const& out = state->out;
  CHECK(out.steps > steps::n_steps / 2);
  CHECK(out.evicted[0] > 100);
  CHECK(out[access_kind::hit] > 100);
  CHECK(state->refused == 0);
  CHECK((out.hints_offered > 0) == speculates<TestType>);
  CHECK(audit(pool.owner.view()));
}
