// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gather_adaptors.hpp"
#include "words.cuh"

namespace warmset::inline v0::cuda {

/// Holds pieces back, so that all gathers of a device together bring no more than a link of this rate would: one serial
/// link, first in, first out, so that a speculated byte delays a demanded one. It stands for a slower bus than the
/// machine has: a piece is on it from when its copy begins, so that the copy itself is no time on top. It is the outermost
/// but for `failing_gather`: what is inside it has no times of its own. The device's clock may tick in steps of a microsecond; the link's own account is exact.
template <gather_adaptor Inner = plain_gather>
struct throttled_gather {
  Inner inner{};
  unsigned long long* free_at = nullptr;  ///< when the link is free, in the device's nanoseconds; zero at first
  u32 ps_per_byte = 0;                    ///< 0: not held

  WARMSET_HD transfer end_of(u32 place, fetch_order const& order) const noexcept { return inner.end_of(place, order); }
  WARMSET_HD u64 begin() const noexcept {
#if defined(__CUDA_ARCH__)
    return ps_per_byte == 0 ? 0 : device_clock{}.now();
#else
    return 0;
#endif
  }
  WARMSET_HD void hold([[maybe_unused]] u64 begin, u64 bytes) const noexcept {
    inner.hold(0, bytes);
#if defined(__CUDA_ARCH__)
    if (ps_per_byte == 0) {
      return;
    }
    device_clock const clock;
    u64 const cost = (bytes * ps_per_byte + 999) / 1000;
    unsigned long long before = *static_cast<unsigned long long volatile*>(free_at);
    for (;;) {
      unsigned long long const end = max_of(u64{before}, begin) + cost;
      unsigned long long const found = atomicCAS(free_at, before, end);
      if (found == before) {
        while (clock.now() < end) {
        }
        return;
      }
      before = found;
    }
#endif
  }
};

static_assert(gather_adaptor<throttled_gather<>>, "cuda::throttled_gather must satisfy gather_adaptor");

}  // namespace warmset::inline v0::cuda
