// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "capacity_advice.hpp"
#include "trace.hpp"

namespace warmset::inline v0 {
namespace trace {

/// What `tokens` tokens demand of all layers: the mean number of distinct experts over a layer's consecutive
/// windows of that many tokens, rounded down, summed over the layers. A step belongs to one window as a whole; an
/// unfinished window counts where a layer has no other. Not known where a layer has no event. O(ids).
inline working_set working_set_of(recording const& r, selection const& which, u32 tokens) {
  struct window {
    std::vector<u64> seen;  // by expert: number of the last window that demanded it, from 1
    u64 number = 1;
    u64 tokens = 0;
    u64 distinct = 0;
    u64 sum = 0;
    u64 finished = 0;
  };
  std::vector<layer_geometry> const& layers = r.geometry().layers();
  std::vector<window> of_layer(layers.size());
  for (std::size_t row = 0; row < layers.size(); ++row) {
    of_layer[row].seen.assign(layers[row].n_experts, 0);
  }
  for_each_event(r, which, [&](event const& e) {
    window& w = of_layer[e.row];
    for (u16 id : e.ids) {
      if (id != padding && w.seen[id] != w.number) {
        w.seen[id] = w.number;
        ++w.distinct;
      }
    }
    w.tokens += e.n_tokens;
    if (w.tokens >= tokens) {
      w.sum += w.distinct;
      ++w.finished;
      ++w.number;
      w.tokens = w.distinct = 0;
    }
  });
  working_set set{tokens, 0, 0};
  for (std::size_t row = 0; row < layers.size(); ++row) {
    window const& w = of_layer[row];
    if (w.finished == 0 && w.distinct == 0) {
      return {};
    }
    u64 const experts = w.finished == 0 ? w.distinct : w.sum / w.finished;
    set.experts += experts;
    set.bytes += experts * layers[row].expert_bytes();
  }
  return set;
}

}  // namespace trace
}  // namespace warmset::inline v0
