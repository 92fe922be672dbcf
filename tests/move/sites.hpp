// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <warmset/move/backend.hpp>

#include <vector>

namespace warmset_test {

/// One pool per layer with min(slots, experts) slots each, or one per group where `shared`.
inline std::vector<warmset::pool_site> make_sites(warmset::geometry const& model,
                                                  warmset::u32 slots, warmset::u32 n_scratch,
                                                  bool shared = false) {
  using namespace warmset;
  std::vector<pool_site> sites;
  std::vector<geometry_group> const groups = model.groups();
  for (u32 g = 0; g < groups.size(); ++g) {
    u32 first = 0;
    std::size_t const begin = sites.size();
    auto const add = [&](std::vector<layer_id> layers, u32 n) {
      sites.push_back(
          {static_cast<u32>(sites.size()), g, first, n, 0, n_scratch, std::move(layers)});
      first += n;
    };
    if (shared) {
      add(groups[g].layers, slots * static_cast<u32>(groups[g].layers.size()));
    } else {
      for (layer_id layer : groups[g].layers) {
        add({layer}, min_of(slots, model.find(layer)->n_experts));
      }
    }
    for (std::size_t i = begin; i < sites.size(); ++i) {
      sites[i].first_scratch = first;
    }
  }
  return sites;
}

/// Two geometries with unequal odd banks, and holes between the layers.
inline warmset::geometry two_groups(warmset::u32 n_experts = 42) {
  using namespace warmset;
  return geometry{{{layer_id{1}, n_experts, min_of(n_experts, 4u), {24, 13, 7}},
                   {layer_id{2}, n_experts, min_of(n_experts, 4u), {33}},
                   {layer_id{5}, n_experts, min_of(n_experts, 4u), {24, 13, 7}},
                   {layer_id{9}, n_experts, min_of(n_experts, 4u), {33}}}};
}

}  // namespace warmset_test
