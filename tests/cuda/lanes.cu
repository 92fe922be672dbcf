// SPDX-License-Identifier: Apache-2.0
#include "cuda/lanes.hpp"

#include <warmset/cuda/lanes.cuh>
#include <warmset/cuda/memory.hpp>

#include "cuda/gpu.cuh"

using namespace warmset;

namespace lanes_on_gpu {
namespace {

constexpr u32 most_keys = 512;

__global__ void __launch_bounds__(32) take_kernel(order_key const* keys, u32 const* may, u32 n, u32 m, order_key* out,
                                                  u32* counts) {
  __shared__ cuda::warp_room<most_keys> room;
  cuda::warp_lanes const lanes{room};
  u32 const found = lanes.take_smallest(
      n, m, [&](u32 i) { return may[i] != 0; }, [&](u32 i) { return keys[i]; },
      [&](u32 j, order_key key) {
        out[j] = key;
        atomicAdd(&counts[1], 1u);
      });
  if (threadIdx.x == 0) {
    counts[0] = found;
  }
}

}  // namespace

bool gpu_is_there() { return has_gpu(); }

taken take_smallest(std::vector<order_key> const& keys, std::vector<u32> const& may, u32 m) {
  taken r;
  u32 counts[2] = {};
  cuda::device_memory<order_key> d_keys(keys.size());
  cuda::device_memory<u32> d_may(may.size());
  cuda::device_memory<order_key> d_out(m + 1);
  cuda::device_memory<u32> d_counts(2);
  cuda::status s = d_keys.write(keys.data(), keys.size());
  s = s ? d_may.write(may.data(), may.size()) : s;
  s = s ? d_counts.write(counts, 2) : s;
  take_kernel<<<1, 32>>>(d_keys.data(), d_may.data(), static_cast<u32>(keys.size()), m, d_out.data(), d_counts.data());
  s = s ? cuda::status{cudaDeviceSynchronize()} : s;
  s = s ? d_counts.read(counts, 2) : s;
  r.n = counts[0];
  r.calls = counts[1];
  std::vector<order_key> all(m + 1);
  s = s ? d_out.read(all.data(), all.size()) : s;
  r.keys.assign(all.begin(), all.begin() + (r.n < m ? r.n : m));
  r.error = s ? "" : cudaGetErrorString(s.code);
  return r;
}

}  // namespace lanes_on_gpu
