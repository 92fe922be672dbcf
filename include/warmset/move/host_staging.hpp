// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "host_stream.hpp"

namespace warmset::inline v0 {
namespace move {

/// Bookkeeping of a staging ring: piece i is staged into slot i mod slots once piece i - slots has
/// been copied out, and copied out once it is staged. Two events count both; with two slots or more
/// the staging of one piece overlaps the copy of another.
struct staging_ring {
  u32 stream = 0;
  u32 staged = no_event;
  u32 copied = no_event;
  u32 slots = 0;
  u64 slot_bytes = 0;
  u64 n = 0;  ///< pieces so far

  /// Makes `stage` and `copy` the two operations of the next piece; returns the piece's slot.
  u32 next(stream_op& stage, stream_op& copy) noexcept {
    if (n >= slots) {
      stage.after = copied;
      stage.after_record = n - slots + 1;
    }
    stage.records = staged;
    copy.after = staged;
    copy.after_record = n + 1;
    copy.records = copied;
    return static_cast<u32>(n++ % slots);
  }
};

}  // namespace move
}  // namespace warmset::inline v0
