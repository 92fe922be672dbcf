// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "../core/fixed_array.hpp"
#include "../core/geometry.hpp"
#include "counters.hpp"

namespace warmset::inline v0 {

/// Takes the outcome records that a cache's operations fill in.
///
/// `open(geometry)` is called once; `record(layer_index, phase)` gives the record that the next operation
/// of this layer adds to; `close(layer_index, phase)` says that it has.
template <class O>
concept cache_observer = requires(O& o, geometry const& g, u32 layer_index, phase p) {
  o.open(g);
  { o.record(layer_index, p) } noexcept -> std::same_as<outcome&>;
  { o.close(layer_index, p) } noexcept;
};

namespace observe {

/// Counts nothing.
class none {
 public:
  void open(geometry const&) noexcept {}
  outcome& record(u32, phase) noexcept { return scrap_; }
  void close(u32, phase) noexcept {}

 private:
  outcome scrap_{};
};

static_assert(cache_observer<none>, "observe::none must satisfy cache_observer");

/// Counts per layer and phase. Outcome records of 32 bits collect what happens; fold adds them to the
/// 64-bit counters every 4,096 operations and before every snapshot. O(1) per operation; allocates in
/// `open` only.
class counting {
 public:
  template <class Geometry>  // a template, so that only those who open it compile it
  void open(Geometry const& g) {
    cells_ = fixed_array<cell>(g.layers().size() * n_phases);
    sizes_ = fixed_array<layer_size>(g.layers().size());
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      layer_geometry const& layer = g.layers()[i];
      sizes_[i] = {layer.expert_bytes(), static_cast<u32>(layer.bank_bytes.size())};
    }
  }

  u32 n_layers() const noexcept { return static_cast<u32>(sizes_.size()); }

  outcome& record(u32 layer_index, phase p) noexcept { return at(layer_index, p).pending; }

  void close(u32 layer_index, phase p) noexcept {
    cell& c = at(layer_index, p);
    if (++c.operations == fold_period) [[unlikely]] {
      fold_cell(layer_index, c);
    }
  }

  /// Counters of one layer in one phase since construction. Folds first.
  total_counters total(u32 layer_index, phase p) noexcept {
    cell& c = at(layer_index, p);
    fold_cell(layer_index, c);
    return c.sum;
  }
  /// Sum over the layers.
  template <class Counters = total_counters>
  Counters total(phase p) noexcept {
    Counters sum{};
    for (u32 i = 0; i < sizes_.size(); ++i) {
      sum = sum + total(i, p);
    }
    return sum;
  }
  /// Sum over layers and phases.
  template <class Counters = total_counters>
  Counters total() noexcept {
    return total<Counters>(phase::prefill) + total<Counters>(phase::decode);
  }

 private:
  static constexpr u32 fold_period = 4096;
  struct alignas(64) cell {
    u32 operations;
    outcome pending;
    total_counters sum;
  };
  struct layer_size {
    u64 expert_bytes;
    u32 banks;
  };

  cell& at(u32 layer_index, phase p) noexcept {
    return cells_[layer_index * n_phases + static_cast<u32>(p)];
  }
  WARMSET_APART void fold_cell(u32 layer_index, cell& c) noexcept {
    fold(c.pending, sizes_[layer_index].expert_bytes, sizes_[layer_index].banks, c.sum);
    c.pending = {};
    c.operations = 0;
  }

  fixed_array<cell> cells_;
  fixed_array<layer_size> sizes_;
};

static_assert(cache_observer<counting>, "observe::counting must satisfy cache_observer");

}  // namespace observe
}  // namespace warmset::inline v0
