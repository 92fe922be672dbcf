// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../signal/words.hpp"

#if !defined(__CUDACC__)
#error "warmset/cuda/words.cuh needs nvcc; a host compiler includes warmset.hpp"
#endif

namespace warmset::inline v0::cuda {

/// Words of mapped host memory as a kernel touches them: loads and stores that are ordered towards the host and all other
/// devices, and never come from a cache. Not atomic in the sense of one that reads and writes: no bus has those. On the
/// host the same words as host_words has them.
struct mapped_words {
  WARMSET_HD static u32 load(u32 const* word) noexcept {
#if defined(__CUDA_ARCH__)
    u32 value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(word));  // orders nothing, so that several overlap
    return value;
#else
    return signal::host_words::load(word);
#endif
  }
  WARMSET_HD static u32 load_acquire(u32 const* word) noexcept {
#if defined(__CUDA_ARCH__)
    u32 value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
#else
    return signal::host_words::load_acquire(word);
#endif
  }
  WARMSET_HD static void store(u32* word, u32 value) noexcept {
#if defined(__CUDA_ARCH__)
    asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
#else
    signal::host_words::store(word, value);
#endif
  }
  WARMSET_HD static void store_release(u32* word, u32 value) noexcept {
#if defined(__CUDA_ARCH__)
    __threadfence_system();  // of all lanes' stores before the last barrier, too
    asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
#else
    signal::host_words::store_release(word, value);
#endif
  }
};

static_assert(signal::memory_words<mapped_words>, "mapped_words must satisfy memory_words");

/// The clock of a device, in nanoseconds; it ticks in steps of up to a microsecond. On the host it stands still.
struct device_clock {
  WARMSET_HD u64 now() const noexcept {
#if defined(__CUDA_ARCH__)
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
#else
    return 0;
#endif
  }
  /// What a lane does between two looks at a word: each crosses the bus, which is pause enough.
  WARMSET_HD void pause() const noexcept {}
};

}  // namespace warmset::inline v0::cuda
