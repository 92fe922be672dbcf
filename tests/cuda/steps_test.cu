// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_template_test_macros.hpp>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda/fixture.hpp"
#include "cuda/steps_kernel.cuh"
#include "warmset/table/audit.hpp"

using namespace warmset;

namespace {

bool has_gpu() {
  int n = 0;
  return cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
}

/// Device memory that starts as a copy of host memory.
class device_copy {
 public:
  device_copy(void const* from, std::size_t bytes) : bytes_(bytes) {
    REQUIRE(cudaMalloc(&memory_, bytes) == cudaSuccess);
    REQUIRE(cudaMemcpy(memory_, from, bytes, cudaMemcpyHostToDevice) == cudaSuccess);
  }
  device_copy(device_copy const&) = delete;
  device_copy& operator=(device_copy const&) = delete;
  ~device_copy() { cudaFree(memory_); }

  void* get() const { return memory_; }
  std::vector<unsigned char> read() const {
    std::vector<unsigned char> result(bytes_);
    REQUIRE(cudaMemcpy(result.data(), memory_, bytes_, cudaMemcpyDeviceToHost) == cudaSuccess);
    return result;
  }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_;
};

}  // namespace

TEMPLATE_LIST_TEST_CASE("a kernel decides like the host", "[cuda]", steps::all) {
  if (!has_gpu()) {
    SKIP("skipped: no GPU");
  }
  steps::pool<TestType> pool;
  steps::run_state<TestType>& state = *pool.state;
  device_copy const block{pool.owner.block(), pool.owner.block_bytes()};
  device_copy const device_state{&state, sizeof state};

  steps::run_kernel<TestType><<<1, 1>>>(
      pool.owner.parts(), block.get(), pool.owner.view().shape(), steps::seed, steps::n_steps,
      static_cast<steps::run_state<TestType>*>(device_state.get()));
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  steps::run<TestType>(one_lane{}, pool.owner.view(), steps::seed, steps::n_steps, state);

  auto const bytes = block.read();
  CHECK(std::memcmp(bytes.data(), pool.owner.block(), bytes.size()) == 0);
  auto const after = device_state.read();
  CHECK(std::memcmp(after.data(), &state, sizeof state) == 0);
  CHECK(state.out.steps > steps::n_steps / 2);
}
