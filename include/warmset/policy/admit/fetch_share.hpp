// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../../core/tuning.hpp"
#include "concept.hpp"

namespace warmset::inline v0::admit {

/// Splits the misses of a step between the link and the host: some are fetched and installed, the others are
/// declined, for a consumer that computes them where they lie while the link is busy. `tuning::fetch_share` is
/// the link's part q in 1/65536: its speed over the speed of both. Of m misses f are fetched, where the slower
/// side, max(f * (65536 - q), (m - f) * q), is done first: m * q / 65536 rounded down or up, down where both
/// are equal. The most recently demanded misses are fetched, never demanded ones last, ties to the lower id.
/// Free slots are filled whatever the share, so that a small one does not keep the pool empty; a share that
/// fetches none of k misses then leaves the residents of decode as they are. O(1) per miss and O(misses^2)
/// per step for the order, no state. Source: the CPU's share of the misses in llama.cpp's expert cache
/// (`--moe-cache-cpu-share`, which is 1 - q and applies once that cache is full).
class fetch_share {
 public:
  static constexpr bool may_decline = true;
  static constexpr bool recent_first = true;
  static constexpr char const* name = "fetch_share";

  WARMSET_HD explicit constexpr fetch_share(tuning const& numbers) noexcept
      : share_(numbers.fetch_share) {}

  WARMSET_HD constexpr bool admits(admission_question const& q) const noexcept {
    return q.installs < q.free_slots || q.installs < fetched(q.misses);
  }

  /// How many of `misses` are fetched. misses <= 65535, so that no product leaves 64 bits. O(1).
  WARMSET_HD constexpr u32 fetched(u32 misses) const noexcept {
    u64 const low = misses * share_ >> 16;
    return static_cast<u32>(low == misses || cost(low, misses) <= cost(low + 1, misses) ? low
                                                                                        : low + 1);
  }

 private:
  /// What the slower side takes, where both together take 65536 for one miss after the other.
  WARMSET_HD constexpr u64 cost(u64 fetched, u64 misses) const noexcept {
    return max_of(fetched * (whole_fetch_share - share_), (misses - fetched) * share_);
  }

  u64 share_;
};

static_assert(admission_policy<fetch_share>, "admit::fetch_share must satisfy admission_policy");

}  // namespace warmset::inline v0::admit
