// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_template_test_macros.hpp>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda/fixture.hpp"
#include "cuda/gpu.cuh"
#include "cuda/steps_kernel.cuh"
#include "warmset/table/audit.hpp"

using namespace warmset;

namespace {

/// Device memory that starts as a copy of host memory.
cuda::device_memory<unsigned char> device_copy(void const* from, std::size_t bytes) {
  cuda::device_memory<unsigned char> memory(bytes);
  REQUIRE(memory.write(static_cast<unsigned char const*>(from), bytes));
  return memory;
}

std::vector<unsigned char> read(cuda::device_memory<unsigned char> const& memory) {
  std::vector<unsigned char> result(memory.size());
  REQUIRE(memory.read(result.data(), result.size()));
  return result;
}

/// Plays the same steps with one lane here and with the lanes of a kernel there.
template <class Policy, class Launch>
void check_decides_alike(Launch&& launch) {
  if (!has_gpu()) {
    SKIP("skipped: no GPU");
  }
  steps::pool<Policy> pool;
  steps::run_state<Policy>& state = *pool.state;
  auto const block = device_copy(pool.owner.block(), pool.owner.block_bytes());
  auto const device_state = device_copy(&state, sizeof state);

  launch(pool.owner.parts(), block.data(), pool.owner.view().shape(),
         reinterpret_cast<steps::run_state<Policy>*>(device_state.data()));
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  steps::run<Policy>(one_lane{}, pool.owner.view(), steps::seed, steps::n_steps, state);

  auto const bytes = read(block);
  CHECK(std::memcmp(bytes.data(), pool.owner.block(), bytes.size()) == 0);
  auto const after = read(device_state);
  auto const& there = *reinterpret_cast<steps::run_state<Policy> const*>(after.data());
  CHECK(std::memcmp(&there.out, &state.out, sizeof state.out) == 0);
  CHECK(std::memcmp(there.arrivals, state.arrivals, sizeof state.arrivals) == 0);
  CHECK(there.random.state == state.random.state);
  CHECK(there.refused == state.refused);
  CHECK(state.out.steps > steps::n_steps / 2);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a warp decides like the host", "[cuda]", steps::all) {
  check_decides_alike<TestType>([](auto parts, void* block, table_shape shape, auto* state) {
    steps::run_kernel<TestType><<<1, 32>>>(parts, block, shape, steps::seed, steps::n_steps, state);
  });
}

TEMPLATE_LIST_TEST_CASE("a block of warps decides like the host", "[cuda]", steps::for_blocks) {
  check_decides_alike<TestType>([](auto parts, void* block, table_shape shape, auto* state) {
    steps::run_block_kernel<TestType><<<1, 128>>>(parts, block, shape, steps::seed, steps::n_steps, state);
  });
}
