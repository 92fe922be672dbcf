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
  phase_word in_phase;
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

/// In what memory a batch of hints is decided: the plans of a pool one after another, zero before the first.
template <class Policy>
struct hint_memory {
  workspace_of<Policy> workspace;
  plan_of<Policy> plan;
};

namespace detail {

inline constexpr u32 gather_threads = 128;
inline constexpr u32 block_threads = 512;  // where one block does all the work
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

/// A workspace as its first use wants it, where it lies in shared memory.
template <u32 MaxExperts>
__device__ void clear(warp_lanes const& lanes, basic_workspace<MaxExperts>& w) {
  auto* const seen = reinterpret_cast<sixteen_bytes*>(w.seen);
  constexpr u32 n_words = sizeof(sixteen_bytes) / sizeof(u32);
  lanes.for_each(MaxExperts / n_words, [&](u32 i) { seen[i] = {}; });
  lanes.for_each(MaxExperts % n_words, [&](u32 i) { w.seen[MaxExperts - 1 - i] = 0; });
  lanes.leader([&] { w.stamp = 0; });
}

/// Components of a bundle in shared memory: where kernels have their parameters, lanes that each read another entry of a
/// table of numbers wait for each other.
template <class Policy>
class near_parts {
 public:
  __device__ components<Policy> const& copy(warp_lanes const& lanes, components<Policy> const& parts) {
    if constexpr (n_words == 0) {
      return parts;
    } else {
      lanes.for_each(n_words, [&](u32 i) { words_[i] = reinterpret_cast<u32 const*>(&parts)[i]; });
      return *reinterpret_cast<components<Policy> const*>(words_);
    }
  }

 private:
  static constexpr u32 size = sizeof(components<Policy>);
  static constexpr u32 n_words = size > 64 && size % sizeof(u32) == 0 ? size / sizeof(u32) : 0;
  alignas(16) u32 words_[n_words + 1];
};

/// Reads a word of each 32 bytes in [from, to), many at once.
__device__ inline u32 look_through(unsigned char const* from, unsigned char const* to) {
  constexpr u32 sector = 32;
  constexpr u32 at_once = 16;
  u32 const bytes = static_cast<u32>(to - from);
  u32 seen = 0;
  for (u32 at = lane_in_warp() * sector; at < bytes; at += at_once * warp_size * sector) {
    unsigned char const* const first = from + at;
    u32 word[at_once];
#pragma unroll
    for (u32 c = 0; c < at_once; ++c) {
      word[c] = at + c * warp_size * sector < bytes ? *reinterpret_cast<u32 const*>(first + c * warp_size * sector) : 0;
    }
#pragma unroll
    for (u32 c = 0; c < at_once; ++c) {
      seen ^= word[c];
    }
  }
  return seen;
}

/// Brings the experts and the slots of a row near, all lanes asking at once: a step that decides reads most of them, one
/// behind the other. Returns a word that the caller must seem to use, or the compiler asks for nothing.
template <class Policy>
__device__ u32 bring_near(table_reader<Policy> const& t, u32 row) {
  auto const* const experts = reinterpret_cast<unsigned char const*>(&t.expert(t.index_of(row, 0)));
  auto const* const slots = reinterpret_cast<unsigned char const*>(t.slot_words());
  auto const* const end = slots + t.size() * sizeof(slot_record);
  if constexpr (Policy::pool::spans_layers) {
    return look_through(experts, experts + t.layer(row).n_experts * sizeof(expert_record)) ^ look_through(slots, end);
  } else {
    return look_through(experts, end);  // the scores lie between them
  }
}

}  // namespace detail

inline namespace WARMSET_CUDA_TAG {
WARMSET_HIDE_KERNELS

/// Decides the next step of one row of a pool and answers its ids. One warp. See docs/device.md.
template <class Policy, class Id>
__global__ void __launch_bounds__(32) plan_kernel(__grid_constant__ pool_view<Policy> const v, u32 row,
                                                  launch_state const* now, Id const* ids, u32 n_ids, i32* slots,
                                                  step_memory memory) {
  require_device_callable<Policy, warp_lanes>();
  static_assert(sizeof(plan_of<Policy>) + sizeof(workspace_of<Policy>) + sizeof(warp_room<Policy::max_experts>) +
                        sizeof(quick_memory) + sizeof(detail::near_parts<Policy>) <=
                    48 * 1024,
                "a kernel plans in shared memory: max_experts of the bundle is too large for it");
  __shared__ plan_of<Policy> plan;
  __shared__ workspace_of<Policy> workspace;
  __shared__ warp_room<Policy::max_experts> room;
  warp_lanes const lanes{room};
  device_input const in{row,        now->epoch,      now->in_phase,     now->sequence,
                        now->token, memory.previous, memory.n_previous, memory.supplied};
  __shared__ quick_memory quick;
  __shared__ detail::near_parts<Policy> near;
  auto const bring_near = [&] {
    u32 const seen = detail::bring_near<Policy>(v.table(), row);
    lanes.leader([&] { quick.victim[0] = seen; });
    if constexpr (contextual_score<typename Policy::score>) {
      detail::clear(lanes, workspace);
    }
    return v.table(near.copy(lanes, v.parts));
  };
  if (quick_on_device<Policy>(lanes, v, in, ids, n_ids, slots, quick, workspace, plan, bring_near)) {
    return;
  }
  table_writer<Policy> const t = bring_near();
  if constexpr (!contextual_score<typename Policy::score>) {
    detail::clear(lanes, workspace);
  }
  step_on_device<Policy>(lanes, v, in, ids, n_ids, slots, workspace, plan, t);
}

/// Decides a batch of hints for the next step of one row of a pool. One warp.
///
/// It plans in device memory: a block with shared memory may have to wait for a multiprocessor that nobody computes on, and
/// beside an engine's kernels there is none.
template <class Policy, class Id>
__global__ void __launch_bounds__(32) hint_plan_kernel(__grid_constant__ pool_view<Policy> const v, u32 row,
                                                       launch_state const* now, Id const* ids, u32 n_ids,
                                                       hint_memory<Policy>* memory) {
  require_device_callable<Policy, warp_lanes>();
  hints_on_device<Policy>(warp_lanes{}, v, {row, now->epoch, now->in_phase, now->hint_bytes}, ids, n_ids, memory->workspace,
                          memory->plan);
}

/// Lets a contextual score learn from the last step of a pool, with all threads of a block.
template <class Policy>
__global__ void __launch_bounds__(detail::learn_threads) learn_kernel(__grid_constant__ pool_view<Policy> const v) {
  require_device_callable<Policy, block_lanes>();
  __shared__ block_words words;
  learn_on_device<Policy>(block_lanes{words}, v);
}

/// Fetches what the plan listed, with few warps: more than 128 add nothing on an H200 over PCIe 5. They are spread over many
/// multiprocessors, since what the engine computes on the same one meanwhile waits behind loads that the link answers. Each
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
__global__ void __launch_bounds__(detail::block_threads) counters_kernel(counter_page page, outcome const* records) {
  __shared__ block_words words;
  publish_counters<Words>(block_lanes{words}, page, records);
}

WARMSET_SHOW_AGAIN
}  // namespace WARMSET_CUDA_TAG
}  // namespace warmset::inline v0::cuda
