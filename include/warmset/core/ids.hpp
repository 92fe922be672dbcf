// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integers.hpp"

namespace warmset::inline v0 {

/// Index of an expert within its layer, as the router emits it.
struct expert_id {
  u32 value;
  bool operator==(expert_id const&) const = default;
};

/// Index of a layer as in the model. Layers are sparse: a dense first layer leaves a hole.
struct layer_id {
  u32 value;
  bool operator==(layer_id const&) const = default;
};

/// Room for one expert, all its banks. Ids from the pool's capacity on are scratch slots.
struct slot_id {
  u32 value;
  friend constexpr bool operator==(slot_id, slot_id) = default;  // by value: kernels compare with no_slot
};

/// A routed id as an engine hands it over: negative values are padding.
using routed_id = i32;

inline constexpr slot_id no_slot{u32_max};

/// One expert of the model: (layer, index within the layer).
struct expert_key {
  layer_id layer;
  expert_id expert;
  bool operator==(expert_key const&) const = default;
};

/// Order of a model: by layer, then by index.
WARMSET_HD constexpr bool operator<(expert_key a, expert_key b) noexcept {
  return a.layer.value != b.layer.value ? a.layer.value < b.layer.value
                                        : a.expert.value < b.expert.value;
}

}  // namespace warmset::inline v0
