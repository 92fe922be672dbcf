// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "link.hpp"

namespace warmset::inline v0 {
namespace move {

/// What to do where the source's memory cannot be pinned.
enum class if_pageable : u8 {
  stage,  ///< copy through a staging ring; degraded() says pageable
  fail,   ///< open throws config_error
};

/// A host backend's own link, its clock and its source. Ticks are virtual and have no length. With
/// a driver of the caller's its links stand for bytes_per_tick and latency.
struct host_options {
  u64 bytes_per_tick = u64_max;       ///< bandwidth
  u64 latency = 0;                    ///< ticks that every copy takes besides its bytes
  u64 ticks_per_poll = 1;             ///< what poll advances the clock by; 0 = nothing
  u64 large_copy = large_copy_bytes;  ///< smallest copy of the large batch
  u64 tail_bytes = 0;                 ///< zeroed bytes behind each bank
  bool compare_bytes = true;          ///< reads compare every byte with the source
  bool batches = false;               ///< a start's large and small copies are a batch each
  u32 device = 0;                     ///< of the driver
  bool pageable_source = false;       ///< the source cannot be pinned
  if_pageable pageable = if_pageable::stage;
  u32 staging_slots = 4;       ///< at least 2
  u64 staging_rate = u64_max;  ///< bytes per tick into the staging ring
};

}  // namespace move
}  // namespace warmset::inline v0
