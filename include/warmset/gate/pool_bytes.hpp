// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "../core/geometry.hpp"

namespace warmset::inline v0::gate {

/// What pools take besides their slots.
struct pool_extras {
  u32 scratch_slots = 0;  ///< per geometry; 0 = the largest k of its layers
  u64 tail_bytes = 0;     ///< behind each bank: the backend's
  u64 alignment = 256;    ///< of a bank's end; 0 is 1
  bool shared = false;    ///< one pool for the layers of a geometry instead of one for each layer
};

/// Exact bytes of the bank allocations of a model with `slots` slots per layer (never more than a pool has
/// experts): for every geometry and bank, slots and scratch at the exact stride, the tail, up to the
/// alignment. Saturates at 64 bits. O(layers).
class pool_bytes {
 public:
  /// Allocates; throws bad_alloc.
  template <class Geometry>
  pool_bytes(Geometry const& model, pool_extras extras) : extras_(extras) {
    extras_.alignment = max_of(extras_.alignment, u64{1});
    auto const groups = model.groups();
    groups_.reserve(groups.size());
    for (auto const& of : groups) {
      groups_.push_back(
          {of.bank_bytes, {}, extras.scratch_slots != 0 ? extras.scratch_slots : of.max_k});
      for (layer_id layer : of.layers) {
        groups_.back().n_experts.push_back(model.find(layer)->n_experts);
        most_slots_ = max_of(most_slots_, groups_.back().n_experts.back());
      }
    }
  }

  u64 of(u32 slots) const noexcept {
    u64 sum = 0;
    for (group const& g : groups_) {
      u64 n = 0;
      u64 all = 0;
      for (u32 experts : g.n_experts) {
        n += min_of(slots, experts);
        all += experts;
      }
      n = (extras_.shared ? min_of(u64{slots} * g.n_experts.size(), all) : n) + g.n_scratch;
      for (u64 stride : g.bank_bytes) {
        u64 const used = add(n > u64_max / stride ? u64_max : n * stride, extras_.tail_bytes);
        sum = add(sum, used % extras_.alignment == 0
                           ? used
                           : add(used, extras_.alignment - used % extras_.alignment));
      }
    }
    return sum;
  }

  /// Slots per layer beyond which there is nothing more to hold.
  u32 most_slots() const noexcept { return most_slots_; }

  /// The largest number of slots per layer that fits; 0 = not even one does. O(layers log experts).
  u32 largest(u64 bytes) const noexcept {
    u32 low = 0;  // fits, or 0
    u32 high = most_slots_;
    while (low < high) {
      u32 const middle = low + (high - low + 1) / 2;
      if (of(middle) <= bytes) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

 private:
  struct group {
    std::vector<u64> bank_bytes;
    std::vector<u32> n_experts;
    u32 n_scratch;
  };
  static constexpr u64 add(u64 a, u64 b) noexcept { return a > u64_max - b ? u64_max : a + b; }

  std::vector<group> groups_;
  pool_extras extras_;
  u32 most_slots_ = 0;
};

}  // namespace warmset::inline v0::gate
