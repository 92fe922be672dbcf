// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "../core/geometry.hpp"

namespace warmset::inline v0 {
namespace trace::detail {

/// The geometry that an input describes; what no geometry can be is the input's error, at the place that
/// `fail(message)` names.
template <class Fail>
geometry read_geometry(std::vector<layer_geometry> layers, Fail const& fail) {
  try {
    return geometry(std::move(layers));
  } catch (config_error const& e) {
    fail(e.what());
  }
  return {};  // not reached: fail throws
}

}  // namespace trace::detail
}  // namespace warmset::inline v0
