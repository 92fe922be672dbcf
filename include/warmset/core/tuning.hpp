// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integers.hpp"

namespace warmset::inline v0 {

/// A fetch share of all misses; shares are in 1/65536.
inline constexpr u32 whole_fetch_share = 65'536;

/// The numbers of a composition. Kinds are types; numbers are here, so that one binary can sweep them.
/// Capacity is not among them: it belongs to the pool and is always a run-time value.
struct tuning {
  u32 half_life = 16;         ///< steps after which a decayed count is halved; 4 … 256
  u32 epoch = 16;             ///< steps per epoch of an epoch count; a power of two, 1 … 32768
  u32 speculative_slots = 0;  ///< slots that may hold a speculated, not yet demanded expert; 0 = 1 where the bundle speculates
  u32 prefill_hints = 0;      ///< loads that one batch of hints may start in prefill; 0 = hints are dropped there
  u32 scratch_slots = 0;      ///< slots beside the pool for declined and overflowing experts; 0 = the layer's k
  u32 sequences = 1;          ///< sequences that take turns in the pools, for scores that remember each one's last step; 1 … 64
  u32 floor = 0;              ///< slots that each layer of a shared pool keeps; 0 = the layer's k
  u64 insert_bytes = 0;       ///< bytes that the misses of one step may install under admit::insert_budget; at least one expert is
  u32 fetch_share = whole_fetch_share / 2;  ///< part of a step's misses that are fetched under admit::fetch_share, in 1/65536; the host computes the others
};

/// State of a policy that needs none.
struct no_state {};

}  // namespace warmset::inline v0
