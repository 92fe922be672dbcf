// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace warmset::inline v0 {

/// Which slots one step may use.
namespace pooling {

/// Each layer has slots of its own.
struct per_layer {
  static constexpr bool spans_layers = false;
  static constexpr char const* name = "per-layer";
};

/// All layers of one geometry share the slots; each keeps a floor.
struct shared {
  static constexpr bool spans_layers = true;
  static constexpr char const* name = "shared";
};

}  // namespace pooling
}  // namespace warmset::inline v0
