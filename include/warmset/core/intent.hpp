// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ids.hpp"

namespace warmset::inline v0 {

/// Why an expert is asked for: because a step needs it, or because a hint says that one will. Functions of
/// the two differ in name and type; this is how records tell them apart. Never a boolean.
enum class intent : u8 { demand, speculative };

/// What the engine is doing, in the engine's own words. Keys counters and admission, never scores.
enum class phase : u8 { prefill, decode };

inline constexpr u32 n_phases = 2;
inline constexpr u32 n_intents = 2;

/// A prediction: this expert will be demanded. `rank` 0 is the surest; `confidence` is in 1/65535.
struct hint {
  layer_id layer;
  routed_id expert;
  u16 rank;
  u16 confidence;
};

}  // namespace warmset::inline v0
