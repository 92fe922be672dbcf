// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "abi.cuh"
#include "counter_page.hpp"
#include "device_step.hpp"
#include "lanes.cuh"
#include "probe.cuh"
#include "words.cuh"

/// The kernels of a step that the device decides: plan, and gather from mapped host memory.
namespace warmset::inline v0::cuda {

/// What the host may change between two launches of a graph; lies in device memory, at an address that the graph keeps.
struct launch_state {
  u32 epoch;
  phase in_phase;
  u32 sequence = 0;                    ///< read by contextual scores, like the token
  u32 token = step_context::no_token;
  u64 hint_bytes = u64_max;  ///< most that one batch of hints may start to move
};

/// What a contextual score reads besides, in device memory at addresses that a graph may keep; what there is not is null.
struct step_memory {
  u32 const* previous = nullptr;  ///< the ids that the layer before demanded
  u32 n_previous = 0;
  i32 const* supplied = nullptr;  ///< the engine's keys, one for each expert of the layer
};

namespace detail {

inline constexpr u32 gather_threads = 512;
inline constexpr u32 loads_in_flight = 4;
inline constexpr u32 learn_threads = 128;

struct alignas(16) sixteen_bytes {
  u32 word[4];
};

/// Copies with `n_lanes` threads, of which the caller is `lane`; several loads in flight for each.
template <class Word>
__device__ void copy_words(unsigned char* to, unsigned char const* from, u64 bytes, u32 lane, u32 n_lanes) {
  auto* const out = reinterpret_cast<Word*>(to);
  auto const* const in = reinterpret_cast<Word const*>(from);
  u64 const n = bytes / sizeof(Word);
  for (u64 i = lane; i < n; i += loads_in_flight * n_lanes) {
    Word held[loads_in_flight];
#pragma unroll
    for (u32 j = 0; j < loads_in_flight; ++j) {
      if (i + j * n_lanes < n) {
        held[j] = in[i + j * n_lanes];
      }
    }
#pragma unroll
    for (u32 j = 0; j < loads_in_flight; ++j) {
      if (i + j * n_lanes < n) {
        out[i + j * n_lanes] = held[j];
      }
    }
  }
}

/// As wide as addresses and length allow: experts are packed by their exact bytes.
__device__ inline void copy_by(u32 lane, u32 n_lanes, unsigned char* to, unsigned char const* from, u64 bytes) {
  u64 const bits = reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from) | bytes;
  if (bits % sizeof(sixteen_bytes) == 0) {
    copy_words<sixteen_bytes>(to, from, bytes, lane, n_lanes);
  } else if (bits % sizeof(u32) == 0) {
    copy_words<u32>(to, from, bytes, lane, n_lanes);
  } else {
    copy_words<unsigned char>(to, from, bytes, lane, n_lanes);
  }
}
__device__ inline void copy_by_warp(unsigned char* to, unsigned char const* from, u64 bytes) {
  copy_by(lane_in_warp(), warp_size, to, from, bytes);
}
__device__ inline void copy_by_block(unsigned char* to, unsigned char const* from, u64 bytes) {
  copy_by(threadIdx.x, blockDim.x, to, from, bytes);
}

/// Brings the experts and the slots of a row near, all lanes asking at once: a step that decides reads most of them, one
/// behind the other. Returns a word that the caller must seem to use, or the compiler asks for nothing.
template <class Policy>
__device__ u32 bring_near(table_reader<Policy> const& t, u32 row) {
  constexpr u32 sector = 32 / sizeof(u32);
  u32 const lane = lane_in_warp();
  auto const* const experts = reinterpret_cast<u32 const*>(&t.expert(t.index_of(row, 0)));
  auto const* const slots = t.slot_words();
  u32 const n_of_experts = t.layer(row).n_experts * static_cast<u32>(sizeof(expert_record) / sizeof(u32));
  u32 const n_of_slots = t.size() * static_cast<u32>(sizeof(slot_record) / sizeof(u32));
  constexpr u32 at_once = 8;
  u32 seen = 0;
  for (u32 i = lane * sector; i < max_of(n_of_slots, n_of_experts); i += at_once * warp_size * sector) {
    u32 word[2 * at_once];
#pragma unroll
    for (u32 c = 0; c < at_once; ++c) {
      u32 const at = i + c * warp_size * sector;
      word[c] = at < n_of_slots ? slots[at] : 0;
      word[at_once + c] = at < n_of_experts ? experts[at] : 0;
    }
#pragma unroll
    for (u32 c = 0; c < 2 * at_once; ++c) {
      seen ^= word[c];
    }
  }
  return seen;
}

}  // namespace detail

inline namespace WARMSET_CUDA_TAG {
WARMSET_HIDE_KERNELS

/// Decides the next step of one row of a pool and answers its ids. One warp. Source of the scheme: section 8 of this
/// project's design, "device-directed".
template <class Policy, class Id>
__global__ void __launch_bounds__(32) plan_kernel(__grid_constant__ pool_view<Policy> const v, u32 row,
                                                  launch_state const* now, Id const* ids, u32 n_ids, i32* slots,
                                                  step_memory memory) {
  require_device_callable<Policy, warp_lanes>();
  static_assert(sizeof(plan_of<Policy>) + sizeof(workspace_of<Policy>) + (Policy::max_experts + 32) * sizeof(order_key) <=
                    48 * 1024,
                "a kernel plans in shared memory: max_experts of the bundle is too large for it");
  __shared__ plan_of<Policy> plan;
  __shared__ workspace_of<Policy> workspace;
  __shared__ order_key keys[Policy::max_experts];
  __shared__ order_key listed[detail::warp_size];
  warp_lanes const lanes{keys, Policy::max_experts, listed};
  device_input const in{row,        now->epoch,      now->in_phase,     now->sequence,
                        now->token, memory.previous, memory.n_previous, memory.supplied};
  if (hits_on_device<Policy>(lanes, v, in, ids, n_ids, slots)) {
    return;
  }
  u32 const near = detail::bring_near<Policy>(v.table(), row);
  lanes.for_each(Policy::max_experts, [&](u32 i) { workspace.seen[i] = 0; });
  lanes.leader([&] {
    workspace.stamp = 0;
    workspace.position[0] = near;
  });
  step_on_device<Policy>(lanes, v, in, ids, n_ids, slots, workspace, plan);
  if constexpr (contextual_score<typename Policy::score>) {
    constexpr u32 n_words = sizeof plan / sizeof(u32);
    static_assert(sizeof plan % sizeof(u32) == 0);
    lanes.for_each(n_words, [&](u32 i) {
      reinterpret_cast<u32*>(v.plan)[i] = reinterpret_cast<u32 const*>(&plan)[i];
    });
  }
}

/// Decides a batch of hints for the next step of one row of a pool. One warp.
template <class Policy, class Id>
__global__ void __launch_bounds__(32) hint_plan_kernel(__grid_constant__ pool_view<Policy> const v, u32 row,
                                                       launch_state const* now, Id const* ids, u32 n_ids) {
  require_device_callable<Policy, warp_lanes>();
  __shared__ plan_of<Policy> plan;
  __shared__ workspace_of<Policy> workspace;
  warp_lanes const lanes;
  lanes.for_each(Policy::max_experts, [&](u32 i) { workspace.seen[i] = 0; });
  lanes.leader([&] { workspace.stamp = 0; });
  hints_on_device<Policy>(lanes, v, {row, now->epoch, now->in_phase, now->hint_bytes}, ids, n_ids, workspace, plan);
}

/// Lets a contextual score learn from the last step of a pool, with all threads of a block.
template <class Policy>
__global__ void __launch_bounds__(detail::learn_threads) learn_kernel(__grid_constant__ pool_view<Policy> const v) {
  require_device_callable<Policy, block_lanes>();
  __shared__ block_words words;
  learn_on_device<Policy>(block_lanes{words}, v);
}

/// Fetches what the plan listed, with a few blocks: more than eight of 512 threads add nothing on an H200 over PCIe 5. Each
/// warp takes pieces of its own: where a block waited for all of its warps between two pieces, the link stood still.
template <class Policy, gather_adaptor Adaptor>
__global__ void __launch_bounds__(detail::gather_threads)
    gather_kernel(__grid_constant__ pool_view<Policy> const v, __grid_constant__ Adaptor const adaptor) {
  constexpr u32 warps = detail::gather_threads / detail::warp_size;
  gather<Policy>(
      v, blockIdx.x * warps + threadIdx.x / detail::warp_size, gridDim.x * warps, adaptor,
      [&](unsigned char* to, unsigned char const* from, u64 bytes) {
        bool const books = detail::lane_in_warp() == 0;
        u64 const begin = books ? adaptor.begin() : 0;
        detail::copy_by_warp(to, from, bytes);
        if (books) {
          adaptor.hold(begin, bytes);
        }
      },
      [](u32& left) {
        __threadfence();  // what each lane wrote, and other warps before it, is there before the arrival word
        __syncwarp();
        if (detail::lane_in_warp() != 0) {
          return false;
        }
        bool const was_last = atomicSub(&left, 1u) == 1;
        __threadfence();
        return was_last;
      });
}

/// Ends a graph: publishes the counters of all pools. One block.
template <class Words>
__global__ void __launch_bounds__(detail::gather_threads) counters_kernel(counter_page page, outcome const* records) {
  __shared__ block_words words;
  publish_counters<Words>(block_lanes{words}, page, records);
}

WARMSET_SHOW_AGAIN
}  // namespace WARMSET_CUDA_TAG
}  // namespace warmset::inline v0::cuda
