// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "steps.hpp"
#include "warmset/table/table.hpp"

namespace steps {

inline constexpr u32 n_steps = 1000;
inline constexpr u64 seed = 20'240'229;

inline std::vector<layer_geometry> rows(bool shared) {
  std::vector<layer_geometry> result{{layer_id{1}, 16, 3, {64}}};
  if (shared) {
    result.push_back({layer_id{2}, 12, 2, {64}});
    result.push_back({layer_id{5}, 16, 3, {64}});
  }
  return result;
}

/// A pool small enough that every step of it evicts, with the state that a run needs beside it.
template <class Policy>
struct pool {
  table<Policy> owner{rows(Policy::pool::spans_layers), sizes(), tuning{.sequences = 2}};
  std::unique_ptr<run_state<Policy>> state = fresh_state();

  static std::unique_ptr<run_state<Policy>> fresh_state() {
    auto made = std::make_unique<run_state<Policy>>();
    made->random = {seed};
    made->flips_at = u32_max;
    return made;
  }

  static constexpr pool_size sizes() {
    return Policy::pool::spans_layers ? pool_size{20, 18} : pool_size{9, 8};
  }
};

}  // namespace steps
