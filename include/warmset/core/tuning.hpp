// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integers.hpp"

namespace warmset::inline v0 {

/// The numbers of a composition. Kinds are types; numbers are here, so that one binary can sweep them.
/// Capacity is not among them: it belongs to the pool and is always a run-time value.
struct tuning {
  u32 half_life = 16;         ///< steps after which a decayed count is halved; 4 … 256
  u32 epoch = 16;             ///< steps per epoch of an epoch count; a power of two, 1 … 32768
  u32 speculative_slots = 0;  ///< slots that may hold a speculated, not yet demanded expert; 0 = 1 where the bundle speculates
  u32 scratch_slots = 0;      ///< slots beside the pool for declined and overflowing experts; 0 = the layer's k
  u32 floor = 0;              ///< slots that each layer of a shared pool keeps; 0 = the layer's k
};

/// State of a policy that needs none.
struct no_state {};

}  // namespace warmset::inline v0
