// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include "error.hpp"
#include "ids.hpp"

namespace warmset::inline v0 {

// Vectors are gone through by index where everybody compiles it: their iterators would come on top.

namespace detail {
inline u64 sum_of(std::vector<u64> const& terms) noexcept {
  u64 sum = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    sum += terms[i];
  }
  return sum;
}
}  // namespace detail

/// The experts of one layer: how many, how many a token uses, and the exact bytes of each bank.
struct layer_geometry {
  layer_id layer;
  u32 n_experts;
  u32 k;                        ///< experts that one token uses
  std::vector<u64> bank_bytes;  ///< bytes of one expert in each weight tensor (gate, up, down, …), never padded

  /// Bytes of one expert, all its banks.
  u64 expert_bytes() const noexcept { return detail::sum_of(bank_bytes); }

  bool operator==(layer_geometry const&) const = default;
};

/// Layers whose experts have equal banks and can therefore share one bank allocation of exact stride.
struct geometry_group {
  std::vector<u64> bank_bytes;
  std::vector<layer_id> layers;  ///< ascending
  u32 max_experts = 0;
  u32 max_k = 0;

  u64 expert_bytes() const noexcept { return detail::sum_of(bank_bytes); }
};

/// A coverage_report. A template, so that only those who ask for one compile its vector.
template <class Layer>
struct basic_coverage_report {
  struct excluded_layer {
    Layer layer;
    u64 expert_bytes;
    char const* why;
  };
  u32 layers_total = 0;
  u32 layers_covered = 0;
  u32 groups = 0;
  std::vector<excluded_layer> excluded;

  bool complete() const noexcept { return layers_covered == layers_total; }
};

/// Which layers a cache can serve, and which not and why.
using coverage_report = basic_coverage_report<layer_id>;

/// The model as the cache sees it: its MoE layers in ascending order, each with exact bytes.
///
/// Throws config_error where a layer is listed twice or out of order, has no experts, has k = 0 or
/// k > n_experts, has no bank or one of no bytes, has more experts than `max_experts_per_layer`, or an expert of more
/// bytes than `max_expert_bytes`, or where all experts have more than `max_total_bytes`.
class geometry {
 public:
  static constexpr u32 max_experts_per_layer = 65'535;
  static constexpr u32 max_layers = 65'535;
  static constexpr u64 max_expert_bytes = u64{1} << 40;  ///< sums over the slots of a bank stay below 2^64
  static constexpr u64 max_total_bytes = u64{1} << 60;   ///< and sums over the experts of a model

  geometry() = default;

  // Members that make, grow or destroy vectors are templates, so that only those who call them compile them.

  template <class Layer = layer_geometry>  // never deduced: converts as a plain parameter does
  explicit geometry(std::vector<std::type_identity_t<Layer>> layers) : layers_(std::move(layers)) {
    if (layers_.size() > max_layers) {
      throw config_error("geometry: ", layers_.size(), " layers are more than ", max_layers);
    }
    u64 left = max_total_bytes;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      check(layers_[i]);
      u64 const bytes = layers_[i].n_experts * layers_[i].expert_bytes();
      if (bytes > left) {
        throw config_error("geometry: up to layer ", layers_[i].layer.value, " all experts have more than ",
                           max_total_bytes, " bytes");
      }
      left -= bytes;
      if (i != 0 && layers_[i].layer.value <= layers_[i - 1].layer.value) {
        throw config_error("geometry: layer ", layers_[i].layer.value, " does not follow layer ",
                           layers_[i - 1].layer.value, "; layers are listed once, in ascending order");
      }
    }
  }

  /// A model of `n_layers` equal layers 0 … n_layers-1 with one bank of `expert_bytes`.
  template <class Layer = layer_geometry>
  static geometry uniform(u32 n_layers, u32 n_experts, u32 k, u64 expert_bytes) {
    std::vector<Layer> layers;
    layers.reserve(n_layers);
    for (u32 i = 0; i < n_layers; ++i) {
      layers.push_back(Layer{layer_id{i}, n_experts, k, {expert_bytes}});
    }
    return geometry{std::move(layers)};
  }

  std::vector<layer_geometry> const& layers() const noexcept { return layers_; }

  /// The layer's geometry, or nullptr where the model has no such MoE layer. O(log layers).
  layer_geometry const* find(layer_id id) const noexcept {
    std::size_t low = 0;
    std::size_t high = layers_.size();
    while (low < high) {
      std::size_t const middle = low + (high - low) / 2;
      if (layers_[middle].layer.value < id.value) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < layers_.size() && layers_[low].layer == id ? &layers_[low] : nullptr;
  }

  /// Groups of layers with equal banks, in order of their first layer.
  template <class Group = geometry_group>
  std::vector<Group> groups() const {
    std::vector<Group> result;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      layer_geometry const& layer = layers_[i];
      Group* home = nullptr;
      for (Group& group : result) {
        if (group.bank_bytes == layer.bank_bytes) {
          home = &group;
          break;
        }
      }
      if (home == nullptr) {
        result.push_back(Group{layer.bank_bytes, {}, 0, 0});
        home = &result.back();
      }
      home->layers.push_back(layer.layer);
      home->max_experts = max_of(home->max_experts, layer.n_experts);
      home->max_k = max_of(home->max_k, layer.k);
    }
    return result;
  }

  /// What a cache whose experts must have at least `min_expert_bytes` would serve.
  template <class Report = coverage_report, class Group = geometry_group>
  Report coverage(u64 min_expert_bytes = 0) const {
    Report report;
    report.layers_total = static_cast<u32>(layers_.size());
    report.groups = static_cast<u32>(groups<Group>().size());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      layer_geometry const& layer = layers_[i];
      if (layer.expert_bytes() < min_expert_bytes) {
        report.excluded.push_back({layer.layer, layer.expert_bytes(), "expert smaller than the minimum"});
      } else {
        ++report.layers_covered;
      }
    }
    return report;
  }

  /// Bytes of all experts of all layers.
  u64 total_bytes() const noexcept {
    u64 sum = 0;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      sum += layers_[i].n_experts * layers_[i].expert_bytes();
    }
    return sum;
  }

  /// Experts that one token touches: sum of k over the layers. A shared LRU of at most that
  /// less one step hits nothing where tokens repeat.
  u64 cycle() const noexcept {
    u64 sum = 0;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      sum += layers_[i].k;
    }
    return sum;
  }

  /// FNV-1a (64 bits) over layer ids, experts, k and bank bytes: two geometries with one fingerprint are
  /// interchangeable for traces and saved state.
  u64 fingerprint() const noexcept {
    u64 hash = 0xCBF2'9CE4'8422'2325ull;
    auto add = [&hash](u64 word) {
      for (int i = 0; i < 8; ++i) {
        hash = (hash ^ (word & 0xFF)) * 0x0000'0100'0000'01B3ull;
        word >>= 8;
      }
    };
    add(layers_.size());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      layer_geometry const& layer = layers_[i];
      add(layer.layer.value);
      add(layer.n_experts);
      add(layer.k);
      add(layer.bank_bytes.size());
      for (std::size_t bank = 0; bank < layer.bank_bytes.size(); ++bank) {
        add(layer.bank_bytes[bank]);
      }
    }
    return hash;
  }

  bool operator==(geometry const&) const = default;

 private:
  static void check(layer_geometry const& layer) {
    u32 const id = layer.layer.value;
    if (layer.n_experts == 0 || layer.n_experts > max_experts_per_layer) {
      throw config_error("geometry: layer ", id, " has ", layer.n_experts, " experts; between 1 and ",
                         max_experts_per_layer, " are possible");
    }
    if (layer.k == 0 || layer.k > layer.n_experts) {
      throw config_error("geometry: layer ", id, " uses k = ", layer.k, " of ", layer.n_experts, " experts");
    }
    u64 left = max_expert_bytes;
    for (std::size_t i = 0; i < layer.bank_bytes.size(); ++i) {
      if (layer.bank_bytes[i] > left) {
        throw config_error("geometry: layer ", id, " has experts of more than ", max_expert_bytes, " bytes; bank ", i,
                           " has ", layer.bank_bytes[i]);
      }
      left -= layer.bank_bytes[i];
    }
    if (layer.bank_bytes.size() == 0 || layer.expert_bytes() == 0) {
      throw config_error("geometry: layer ", id, " has experts of no bytes");
    }
    for (std::size_t i = 0; i < layer.bank_bytes.size(); ++i) {
      // it would count as a copy, and no read could tell what it holds
      if (layer.bank_bytes[i] == 0) {
        throw config_error("geometry: bank ", i, " of layer ", id,
                           " has 0 bytes; only banks that the experts have are listed");
      }
    }
  }

  std::vector<layer_geometry> layers_;
};

}  // namespace warmset::inline v0
