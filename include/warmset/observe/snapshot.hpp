// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "observer.hpp"

namespace warmset::inline v0 {

/// The counters of all layers and phases at one moment (total_span), or between two (delta_span).
///
/// Owns its numbers: it allocates when it is made or copied and only then. A total minus an earlier total is
/// a delta; nothing else subtracts.
template <class Span>
class basic_snapshot {
 public:
  using counters = basic_counters<Span>;

  basic_snapshot() noexcept = default;
  /// All zero, for the layers of a model. Throws bad_alloc.
  explicit basic_snapshot(geometry const& model)
      : layers_(model.layers().size()), cells_(layers_.size() * n_phases) {
    for (u32 i = 0; i < n_layers(); ++i) {
      layers_[i] = model.layers()[i].layer;
    }
  }
  /// All zero, for the layers of another snapshot. Throws bad_alloc.
  template <class Other>
  static basic_snapshot zero_like(basic_snapshot<Other> const& o) {
    basic_snapshot result;
    result.layers_ = fixed_array<layer_id>(o.n_layers());
    result.cells_ = fixed_array<counters>(result.layers_.size() * n_phases);
    for (u32 i = 0; i < o.n_layers(); ++i) {
      result.layers_[i] = o.layer(i);
    }
    return result;
  }
  basic_snapshot(basic_snapshot const& o) : layers_(o.layers_.size()), cells_(o.cells_.size()) {
    copy(o.layers_, layers_);
    copy(o.cells_, cells_);
  }
  basic_snapshot& operator=(basic_snapshot const& o) { return *this = basic_snapshot(o); }
  basic_snapshot(basic_snapshot&&) noexcept = default;
  basic_snapshot& operator=(basic_snapshot&&) noexcept = default;

  u32 n_layers() const noexcept { return static_cast<u32>(layers_.size()); }
  layer_id layer(u32 layer_index) const noexcept { return layers_[layer_index]; }
  counters& at(u32 layer_index, phase p) noexcept {
    return cells_[layer_index * n_phases + static_cast<u32>(p)];
  }
  counters const& at(u32 layer_index, phase p) const noexcept {
    return cells_[layer_index * n_phases + static_cast<u32>(p)];
  }

  /// Sum over the layers.
  counters sum(phase p) const noexcept {
    counters all{};
    for (u32 i = 0; i < n_layers(); ++i) {
      all = all + at(i, p);
    }
    return all;
  }
  /// Sum over layers and phases.
  counters sum() const noexcept { return sum(phase::prefill) + sum(phase::decode); }

  /// Takes the observer's counters as they are now: between two operations of the owner thread, transfers may
  /// run on. Stops, waits for and allocates nothing. Refused with `wrong_geometry` where the observer counts
  /// another number of layers.
  status take(observe::counting& from) noexcept requires std::same_as<Span, total_span> {
    if (from.n_layers() != n_layers()) {
      return {reason::wrong_geometry};
    }
    for (u32 i = 0; i < n_layers(); ++i) {
      for (phase const p : {phase::prefill, phase::decode}) {
        at(i, p) = from.total(i, p);
      }
    }
    return done;
  }

 private:
  template <class T>
  static void copy(fixed_array<T> const& from, fixed_array<T>& to) noexcept {
    for (std::size_t i = 0; i < from.size(); ++i) {
      to[i] = from[i];
    }
  }

  fixed_array<layer_id> layers_;
  fixed_array<counters> cells_;
};

using snapshot = basic_snapshot<total_span>;
using snapshot_delta = basic_snapshot<delta_span>;

/// What happened between two snapshots of one cache. Throws config_error where they are of different layers,
/// and bad_alloc.
template <class Span>
requires std::same_as<Span, total_span> snapshot_delta
operator-(basic_snapshot<Span> const& later, basic_snapshot<Span> const& earlier) {
  bool same = later.n_layers() == earlier.n_layers();
  for (u32 i = 0; i < later.n_layers() && same; ++i) {
    same = later.layer(i) == earlier.layer(i);
  }
  if (!same) {
    throw config_error("a snapshot of ", later.n_layers(), " layers minus one of ",
                       earlier.n_layers(), ": these are not the same layers");
  }
  snapshot_delta between = snapshot_delta::zero_like(later);
  for (u32 i = 0; i < later.n_layers(); ++i) {
    for (phase const p : {phase::prefill, phase::decode}) {
      between.at(i, p) = later.at(i, p) - earlier.at(i, p);
    }
  }
  return between;
}

}  // namespace warmset::inline v0
