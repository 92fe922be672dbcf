// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "abi.cuh"
#include "device_step.hpp"
#include "lanes.cuh"
#include "probe.cuh"

/// The kernels of a step that the device decides: plan, and gather from mapped host memory.
namespace warmset::inline v0::cuda {

/// What the host may change between two launches of a graph; lies in device memory, at an address that the graph keeps.
struct launch_state {
  u32 epoch;
  phase in_phase;
};

namespace detail {

inline constexpr u32 gather_threads = 512;
inline constexpr u32 loads_in_flight = 4;

struct alignas(16) sixteen_bytes {
  u32 word[4];
};

/// Copies with all threads of the block, several loads in flight for each.
template <class Word>
__device__ void copy_words(unsigned char* to, unsigned char const* from, u64 bytes) {
  auto* const out = reinterpret_cast<Word*>(to);
  auto const* const in = reinterpret_cast<Word const*>(from);
  u64 const n = bytes / sizeof(Word);
  u64 i = threadIdx.x;
  for (; i + (loads_in_flight - 1) * blockDim.x < n; i += loads_in_flight * blockDim.x) {
    Word held[loads_in_flight];
#pragma unroll
    for (u32 j = 0; j < loads_in_flight; ++j) {
      held[j] = in[i + j * blockDim.x];
    }
#pragma unroll
    for (u32 j = 0; j < loads_in_flight; ++j) {
      out[i + j * blockDim.x] = held[j];
    }
  }
  for (; i < n; i += blockDim.x) {
    out[i] = in[i];
  }
}

/// As wide as addresses and length allow: experts are packed by their exact bytes.
__device__ inline void copy_by_block(unsigned char* to, unsigned char const* from, u64 bytes) {
  u64 const bits = reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from) | bytes;
  if (bits % sizeof(sixteen_bytes) == 0) {
    copy_words<sixteen_bytes>(to, from, bytes);
  } else if (bits % sizeof(u32) == 0) {
    copy_words<u32>(to, from, bytes);
  } else {
    copy_words<unsigned char>(to, from, bytes);
  }
}

}  // namespace detail

inline namespace WARMSET_CUDA_TAG {
WARMSET_HIDE_KERNELS

/// Decides the next step of one row of a pool and answers its ids. One warp. Source of the scheme: section 8 of this
/// project's design, "device-directed".
template <class Policy, class Id>
__global__ void __launch_bounds__(32) plan_kernel(pool_view<Policy> v, u32 row, launch_state const* now, Id const* ids,
                                                  u32 n_ids, i32* slots) {
  require_device_callable<Policy, warp_lanes>();
  step_on_device<Policy>(warp_lanes{}, v, device_input{row, now->epoch, now->in_phase}, ids, n_ids, slots);
}

/// Fetches what the plan listed, with a few blocks: more than eight of 512 threads add nothing on an H200 over PCIe 5.
template <class Policy>
__global__ void __launch_bounds__(detail::gather_threads) gather_kernel(pool_view<Policy> v) {
  gather<Policy>(
      v, blockIdx.x, gridDim.x,
      [](unsigned char* to, unsigned char const* from, u64 bytes) { detail::copy_by_block(to, from, bytes); },
      [](u32& left) {
        __syncthreads();  // all threads of this block have written
        if (threadIdx.x != 0) {
          return false;
        }
        __threadfence();  // and what it wrote, and other blocks before it, is there before the arrival word
        bool const was_last = atomicSub(&left, 1u) == 1;
        __threadfence();
        return was_last;
      });
}

WARMSET_SHOW_AGAIN
}  // namespace WARMSET_CUDA_TAG
}  // namespace warmset::inline v0::cuda
