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

__device__ inline u32 min_of_warp(u32 mine) noexcept {
#if __CUDA_ARCH__ >= 800
  return __reduce_min_sync(whole_warp, mine);
#else
  for (u32 distance = warp_size / 2; distance != 0; distance /= 2) {
    mine = min_of(mine, __shfl_xor_sync(whole_warp, mine, static_cast<int>(distance)));
  }
  return mine;
#endif
}

/// Word after word, among the lanes that are still in.
__device__ inline order_key smallest_of_warp(order_key key) noexcept {
  u32 const words[4] = {static_cast<u32>(key.high >> 32), static_cast<u32>(key.high), static_cast<u32>(key.low >> 32),
                        static_cast<u32>(key.low)};
  u32 smallest[4];
  bool is_in = true;
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    smallest[i] = min_of_warp(is_in ? words[i] : u32_max);
    is_in = is_in && words[i] == smallest[i];
  }
  return {u64{smallest[0]} << 32 | smallest[1], u64{smallest[2]} << 32 | smallest[3]};
}

/// The two words by which nearly all keys are in order: score and youth, where the score has no more than 32 bits.
__device__ inline u64 score_and_youth(order_key key) noexcept { return key.high << 32 | key.low >> 32; }

__device__ inline u32 sum_of_warp(u32 mine) noexcept {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(whole_warp, mine);
#else
  for (u32 distance = warp_size / 2; distance != 0; distance /= 2) {
    mine += __shfl_xor_sync(whole_warp, mine, static_cast<int>(distance));
  }
  return mine;
#endif
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

/// Shared memory in which a warp looks for victims among `N` slots at most, and for repetitions among as many experts.
template <u32 N>
struct warp_room {
  u64 key[N];
  alignas(16) u64 listed[detail::warp_size];
  u32 slot[detail::warp_size];
};

/// The 32 threads of one warp as a lane group. All of them must call every operation.
class warp_lanes {
 public:
  static constexpr bool is_single = false;

  warp_lanes() = default;
  /// @param room  in shared memory; nothing else may use it while the group is used
  template <u32 N>
  WARMSET_HD explicit warp_lanes(warp_room<N>& room) noexcept
      : keys_(room.key), listed_(room.listed), slots_(room.slot), n_keys_(N) {}

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

  /// detail::take_smallest in a constant number of passes, where the group was given room for n keys; `take` by any lane.
  ///
  /// Two words order nearly all keys: score and youth, with the slot as the tie-break. The m-th smallest of the lanes' own
  /// smallest keys bounds the m smallest of all from above, and few keys lie below it: those are ranked side by side.
  template <class May, class Key, class Take>
  WARMSET_HD u32 take_smallest(u32 n, u32 m, May&& may, Key&& key, Take&& take) const {
#if defined(__CUDA_ARCH__)
    if (m == 0 || n == 0) {
      return 0;
    }
    __syncwarp();
    u32 const lane = detail::lane_in_warp();
    if (n > n_keys_ || n > detail::warp_size * detail::warp_size || m > detail::warp_size) {
      return warmset::detail::take_one_by_one(*this, n, m, may, key, take);
    }
    u64 mine = u64_max;
    bool fits = true;
    bool hides_one = false;  // a key that reads as none: one of the largest of all
    constexpr u32 at_once = 8;
    for (u32 base = lane; base < n; base += at_once * detail::warp_size) {
      order_key k[at_once];
      bool is_one[at_once];
#pragma unroll
      for (u32 c = 0; c < at_once; ++c) {
        u32 const i = base + c * detail::warp_size;
        u32 const clamped = min_of(i, n - 1);
        k[c] = key(clamped);
        is_one[c] = (i < n) & may(clamped);
      }
#pragma unroll
      for (u32 c = 0; c < at_once; ++c) {
        u32 const i = base + c * detail::warp_size;
        u64 const words = is_one[c] ? detail::score_and_youth(k[c]) : u64_max;
        fits &= !is_one[c] | (k[c].high <= u32_max);
        hides_one |= is_one[c] & (words == u64_max);
        mine = min_of(mine, words);
        if (i < n) {
          keys_[i] = words;
        }
      }
    }
    listed_[lane] = mine;
    __syncwarp();
    if (__any_sync(detail::whole_warp, !fits)) {
      return warmset::detail::take_one_by_one(*this, n, m, may, key, take);
    }
    if (m <= few) {
      return take_few(n, m, mine, hides_one, may, key, take);
    }
    // lanes without a key share the last rank: with fewer than m keys among them nothing bounds but being one
    unsigned const bounding = __ballot_sync(detail::whole_warp, rank_in_list(mine) == m - 1 && mine != u64_max);
    u64 const bound = bounding == 0 ? u64_max - 1 : listed_[__ffs(static_cast<int>(bounding)) - 1];
    u32 own = 0;  // which of the lane's keys lie below: its c-th
    for (u32 first = 0; first * detail::warp_size < n; first += at_once) {
#pragma unroll
      for (u32 c = 0; c < at_once; ++c) {
        u32 const i = (first + c) * detail::warp_size + lane;
        own |= (i < n && keys_[i] <= bound ? 1u : 0u) << (first + c);
      }
    }
    u32 const n_own = static_cast<u32>(__popc(own));
    u32 until = n_own;  // of this lane and those before it
#pragma unroll
    for (u32 distance = 1; distance < detail::warp_size; distance *= 2) {
      u32 const other = __shfl_up_sync(detail::whole_warp, until, distance);
      until += lane >= distance ? other : 0;
    }
    u32 const found = __shfl_sync(detail::whole_warp, until, detail::warp_size - 1);
    if (found > detail::warp_size || (found < m && __any_sync(detail::whole_warp, hides_one))) {
      return warmset::detail::take_one_by_one(*this, n, m, may, key, take);
    }
    __syncwarp();
    if (lane >= found) {
      listed_[lane] = u64_max;
    }
    for (u32 at = until - n_own; own != 0; own &= own - 1, ++at) {
      u32 const i = static_cast<u32>(__ffs(static_cast<int>(own)) - 1) * detail::warp_size + lane;
      listed_[at] = keys_[i];
      slots_[at] = i;
    }
    __syncwarp();
    u64 const words = listed_[lane];
    u32 place = rank_in_list(words);
    // places are 0 … found - 1, unless two are equal in all but the slot: then one comes twice and a later one is left out
    if (detail::sum_of_warp(lane < found ? place : 0) != found * (found - 1) / 2) {
      for (u32 j = 0; j < found; ++j) {
        place += (listed_[j] == words) & (slots_[j] < slots_[lane]) ? 1 : 0;
      }
    }
    if (lane < found && place < m) {
      take(place, order_key{words >> 32, words << 32 | slots_[lane]});
    }
    __syncwarp();
    return min_of(found, m);
#else
    (void)n, (void)m, (void)may, (void)key, (void)take, __builtin_trap();
    return 0;
#endif
  }

  /// detail::any_repeats.
  template <class Key>
  WARMSET_HD bool any_repeats(u32 n, Key&& key) const {
#if defined(__CUDA_ARCH__)
    __syncwarp();
    bool const is_one = detail::lane_in_warp() < n;
    return __any_sync(detail::whole_warp, repeats(is_one, is_one ? key(detail::lane_in_warp()) : 0)) != 0;
#else
    (void)n, (void)key, __builtin_trap();
    return false;
#endif
  }

  /// detail::add_unread.
  WARMSET_HD void add_unread(u32& word, u32 n) const noexcept {
#if defined(__CUDA_ARCH__)
    (void)atomicAdd(&word, n);
#else
    (void)word, (void)n, __builtin_trap();
#endif
  }

  /// detail::apply_if_all: what a lane reads stays in its registers. Begins without a barrier, so that it asks together with
  /// its caller; the operation before it has ended with one.
  template <class May, class Read, class Apply>
  WARMSET_HD bool apply_if_all(u32 n, May&& may, Read&& read, Apply&& apply) const {
#if defined(__CUDA_ARCH__)
    u32 const lane = detail::lane_in_warp();
    u32 const i = lane < n ? lane : n - 1;
    if (__all_sync(detail::whole_warp, may(i)) == 0) {
      return false;
    }
    auto const mine = read(i);
    bool const repeated = repeats(lane < n, mine.key);  // while the rest is on its way
    bool const all = __all_sync(detail::whole_warp, mine.is_good && !repeated) != 0;
    if (all && lane < n) {
      apply(lane, mine);
    }
    __syncwarp();
    return all;
#else
    (void)n, (void)may, (void)read, (void)apply, __builtin_trap();
    return false;
#endif
  }

  template <class P>
  WARMSET_HD bool any(u32 n, P&& p) const {
#if defined(__CUDA_ARCH__)
    __syncwarp();
    bool mine = false;
    for (u32 i = detail::lane_in_warp(); i < n; i += detail::warp_size) {
      mine |= p(i);
    }
    return __any_sync(detail::whole_warp, mine) != 0;
#else
    (void)n, (void)p, __builtin_trap();
    return false;
#endif
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

 private:
#if defined(__CUDA_ARCH__)
  static constexpr u32 few = 4;

  /// take_smallest of few, the keys and each lane's smallest being known: one after another, its lane looks for the next.
  template <class May, class Key, class Take>
  __device__ u32 take_few(u32 n, u32 m, u64 mine, bool hides_one, May& may, Key& key, Take& take) const {
    u32 const lane = detail::lane_in_warp();
    for (u32 j = 0; j < m; ++j) {
      u32 const high = detail::min_of_warp(static_cast<u32>(mine >> 32));
      bool const is_in = static_cast<u32>(mine >> 32) == high;
      u32 const low = detail::min_of_warp(is_in ? static_cast<u32>(mine) : u32_max);
      u64 const smallest = u64{high} << 32 | low;
      if (smallest == u64_max) {
        __syncwarp();
        return j + (__any_sync(detail::whole_warp, hides_one) ? take_hidden(n, m, j, may, key, take) : 0);
      }
      u32 slot = u32_max;
      u64 next = u64_max;
      if (mine == smallest) {
        for (u32 i = lane; i < n; i += detail::warp_size) {
          u64 const words = keys_[i];
          bool const is_it = words == smallest && slot == u32_max;
          slot = is_it ? i : slot;
          next = is_it ? next : min_of(next, words);
        }
      }
      // several lanes may have one that is equal but for the slot
      u32 const first = detail::min_of_warp(slot);
      if (slot == first) {
        keys_[slot] = u64_max;
        mine = next;
        take(j, order_key{smallest >> 32, smallest << 32 | slot});
      }
    }
    __syncwarp();
    return m;
  }

  /// The last of take_smallest, where the n_taken that do not read as none are taken. Returns how many more.
  template <class May, class Key, class Take>
  __device__ u32 take_hidden(u32 n, u32 m, u32 n_taken, May& may, Key& key, Take& take) const {
    return warmset::detail::take_one_by_one(
        *this, n, m - n_taken,
        [&](u32 i) {
          u64 const words = detail::score_and_youth(key(i));
          return may(i) && words == u64_max;
        },
        key, [&](u32 j, order_key k) { take(n_taken + j, k); });
  }

  /// How many entries of the list are smaller.
  __device__ u32 rank_in_list(u64 mine) const {
    auto const* const pairs = reinterpret_cast<ulonglong2 const*>(listed_);
    u32 before = 0;
#pragma unroll 8
    for (u32 j = 0; j < detail::warp_size / 2; ++j) {
      ulonglong2 const two = pairs[j];
      before += (two.x < mine ? 1 : 0) + (two.y < mine ? 1 : 0);
    }
    return before;
  }

  /// Whether another lane has this lane's key as well, for one of two equal ones at least; `counts`: whether it has one.
  __device__ bool repeats(bool counts, u32 key) const {
    u32 const lane = detail::lane_in_warp();
    if (n_keys_ == 0) {
      bool found = false;
      for (u32 j = 0; j < detail::warp_size; ++j) {
        u32 const other = __shfl_sync(detail::whole_warp, counts ? key : u32_max, static_cast<int>(j));
        found |= (j < lane) & (other == key);
      }
      return found && counts;
    }
    // each writes its number where its key says: of two, one reads the other's
    auto* const last = reinterpret_cast<u32*>(keys_);
    if (counts) {
      atomicExch(&last[key], lane);  // which of them is last does not matter
    }
    __syncwarp();
    bool const found = counts && last[key] != lane;
    __syncwarp();
    return found;
  }
#endif

  u64* keys_ = nullptr;
  u64* listed_ = nullptr;
  u32* slots_ = nullptr;
  u32 n_keys_ = 0;
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
