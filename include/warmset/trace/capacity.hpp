// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/integers.hpp"

namespace warmset::inline v0 {
namespace trace {

/// Room of the pools that a replay fills, or that a cache will have.
struct capacity {
  enum class unit : u8 {
    slots_per_layer,  ///< every layer has a pool of `amount` slots
    shared_slots,     ///< one pool of `amount` slots for the experts of all layers
    shared_bytes      ///< one pool of `amount` bytes for the experts of all layers
  };
  unit in;
  u64 amount;

  static constexpr capacity slots_per_layer(u64 n) noexcept { return {unit::slots_per_layer, n}; }
  static constexpr capacity shared_slots(u64 n) noexcept { return {unit::shared_slots, n}; }
  static constexpr capacity shared_bytes(u64 n) noexcept { return {unit::shared_bytes, n}; }
};

}  // namespace trace
}  // namespace warmset::inline v0
