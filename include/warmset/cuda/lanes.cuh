// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/lanes.hpp"

#if !defined(__CUDACC__)
#error "warmset/cuda/lanes.cuh needs nvcc; a host compiler includes warmset.hpp"
#endif

/// The lane groups of a device: a warp, and a block of several. Each operation begins and ends with a barrier: what
/// the lanes read between two operations is not yet written by the next one, and what they wrote all of them see.
///
/// The bodies exist on the device alone; on the host the functions are there so that host-device code can name them,
/// and trap.
namespace warmset::inline v0::cuda {

namespace detail {

inline constexpr u32 warp_size = 32;
inline constexpr unsigned whole_warp = 0xFFFF'FFFFu;

/// The lane of the calling thread in its warp, in a block of one dimension.
__device__ inline u32 lane_in_warp() noexcept {
  return threadIdx.x % warp_size;
}

__device__ inline order_key smallest_of_warp(order_key key) noexcept {
  for (u32 distance = warp_size / 2; distance != 0; distance /= 2) {
    lower(key, order_key{__shfl_xor_sync(whole_warp, key.high, static_cast<int>(distance)),
                         __shfl_xor_sync(whole_warp, key.low, static_cast<int>(distance))});
  }
  return key;
}

__device__ inline u32 sum_of_warp(u32 mine) noexcept {
  for (u32 distance = warp_size / 2; distance != 0; distance /= 2) {
    mine += __shfl_xor_sync(whole_warp, mine, static_cast<int>(distance));
  }
  return mine;
}

/// What a thread of a warp appends, before it and in all.
struct warp_share {
  u32 before;
  u32 all;
};
__device__ inline warp_share share_of_warp(bool mine) noexcept {
  unsigned const who = __ballot_sync(whole_warp, mine);
  return {static_cast<u32>(__popc(who & ((1u << lane_in_warp()) - 1))), static_cast<u32>(__popc(who))};
}

}  // namespace detail

/// The 32 threads of one warp as a lane group. All of them must call every operation.
struct warp_lanes {
  static constexpr bool is_single = false;

  template <class F>
  WARMSET_HD void for_each(u32 n, F&& f) const {
#if defined(__CUDA_ARCH__)
    __syncwarp();
    for (u32 i = detail::lane_in_warp(); i < n; i += detail::warp_size) {
      f(i);
    }
    __syncwarp();
#else
    (void)n, (void)f, __builtin_trap();
#endif
  }

  template <class F>
  WARMSET_HD order_key min_key(u32 n, F&& f) const {
#if defined(__CUDA_ARCH__)
    __syncwarp();
    order_key mine = no_key;
    for (u32 i = detail::lane_in_warp(); i < n; i += detail::warp_size) {
      f(i, mine);
    }
    return detail::smallest_of_warp(mine);
#else
    (void)n, (void)f, __builtin_trap();
    return no_key;
#endif
  }

  template <class P>
  WARMSET_HD bool any(u32 n, P&& p) const {
    return count(n, p) != 0;
  }

  template <class P>
  WARMSET_HD u32 count(u32 n, P&& p) const {
#if defined(__CUDA_ARCH__)
    __syncwarp();
    u32 mine = 0;
    for (u32 i = detail::lane_in_warp(); i < n; i += detail::warp_size) {
      mine += p(i) ? 1 : 0;
    }
    return detail::sum_of_warp(mine);
#else
    (void)n, (void)p, __builtin_trap();
    return 0;
#endif
  }

  template <class P, class Emit>
  WARMSET_HD u32 append_in_order(u32 n, P&& p, Emit&& emit) const {
#if defined(__CUDA_ARCH__)
    u32 found = 0;
    for (u32 base = 0; base < n; base += detail::warp_size) {
      __syncwarp();
      u32 const i = base + detail::lane_in_warp();
      bool const mine = i < n && p(i);
      detail::warp_share const share = detail::share_of_warp(mine);
      if (mine) {
        emit(i, found + share.before);
      }
      found += share.all;
    }
    __syncwarp();
    return found;
#else
    (void)n, (void)p, (void)emit, __builtin_trap();
    return 0;
#endif
  }

  template <class F>
  WARMSET_HD void leader(F&& f) const {
#if defined(__CUDA_ARCH__)
    __syncwarp();
    if (detail::lane_in_warp() == 0) {
      f();
    }
    __syncwarp();
#else
    (void)f, __builtin_trap();
#endif
  }

  template <class F, class G>
  WARMSET_HD void for_each_then_leader(u32 n, F&& f, G&& then) const {
    for_each(n, f);
    leader([&] {
      for (u32 i = 0; i < n; ++i) {
        then(i);
      }
    });
  }
};

static_assert(lane_group<warp_lanes>, "cuda::warp_lanes must satisfy lane_group");

/// Shared memory through which the warps of a block agree.
struct block_words {
  order_key keys[detail::warp_size];
  u32 counts[detail::warp_size];
};

/// All threads of a block of one dimension, whole warps of it, as a lane group. All of them must call every operation.
class block_lanes {
 public:
  static constexpr bool is_single = false;

  /// @param words  in the block's shared memory; nothing else may use it while the group is used
  WARMSET_HD explicit block_lanes(block_words& words) noexcept : words_(&words) {}

  template <class F>
  WARMSET_HD void for_each(u32 n, F&& f) const {
#if defined(__CUDA_ARCH__)
    __syncthreads();
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
      f(i);
    }
    __syncthreads();
#else
    (void)n, (void)f, __builtin_trap();
#endif
  }

  template <class F>
  WARMSET_HD order_key min_key(u32 n, F&& f) const {
#if defined(__CUDA_ARCH__)
    __syncthreads();
    order_key mine = no_key;
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
      f(i, mine);
    }
    mine = detail::smallest_of_warp(mine);
    if (detail::lane_in_warp() == 0) {
      words_->keys[warp()] = mine;
    }
    __syncthreads();
    order_key best = no_key;
    for (u32 i = 0; i < n_warps(); ++i) {
      lower(best, words_->keys[i]);
    }
    return best;
#else
    (void)n, (void)f, __builtin_trap();
    return no_key;
#endif
  }

  template <class P>
  WARMSET_HD bool any(u32 n, P&& p) const {
    return count(n, p) != 0;
  }

  template <class P>
  WARMSET_HD u32 count(u32 n, P&& p) const {
#if defined(__CUDA_ARCH__)
    __syncthreads();
    u32 mine = 0;
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
      mine += p(i) ? 1 : 0;
    }
    mine = detail::sum_of_warp(mine);
    if (detail::lane_in_warp() == 0) {
      words_->counts[warp()] = mine;
    }
    __syncthreads();
    return below(n_warps());
#else
    (void)n, (void)p, __builtin_trap();
    return 0;
#endif
  }

  template <class P, class Emit>
  WARMSET_HD u32 append_in_order(u32 n, P&& p, Emit&& emit) const {
#if defined(__CUDA_ARCH__)
    u32 found = 0;
    for (u32 base = 0; base < n; base += blockDim.x) {
      __syncthreads();
      u32 const i = base + threadIdx.x;
      bool const mine = i < n && p(i);
      detail::warp_share const share = detail::share_of_warp(mine);
      if (detail::lane_in_warp() == 0) {
        words_->counts[warp()] = share.all;
      }
      __syncthreads();
      if (mine) {
        emit(i, found + below(warp()) + share.before);
      }
      found += below(n_warps());
    }
    __syncthreads();
    return found;
#else
    (void)n, (void)p, (void)emit, __builtin_trap();
    return 0;
#endif
  }

  template <class F>
  WARMSET_HD void leader(F&& f) const {
#if defined(__CUDA_ARCH__)
    __syncthreads();
    if (threadIdx.x == 0) {
      f();
    }
    __syncthreads();
#else
    (void)f, __builtin_trap();
#endif
  }

  template <class F, class G>
  WARMSET_HD void for_each_then_leader(u32 n, F&& f, G&& then) const {
    for_each(n, f);
    leader([&] {
      for (u32 i = 0; i < n; ++i) {
        then(i);
      }
    });
  }

 private:
  __device__ static u32 warp() noexcept { return threadIdx.x / detail::warp_size; }
  __device__ static u32 n_warps() noexcept { return blockDim.x / detail::warp_size; }
  __device__ u32 below(u32 warp) const noexcept {
    u32 sum = 0;
    for (u32 i = 0; i < warp; ++i) {
      sum += words_->counts[i];
    }
    return sum;
  }

  block_words* words_;
};

static_assert(lane_group<block_lanes>, "cuda::block_lanes must satisfy lane_group");

}  // namespace warmset::inline v0::cuda
