// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/fixed_array.hpp"
#include "../core/geometry.hpp"
#include "concept.hpp"

namespace warmset::inline v0 {
namespace predict {

/// Hints that one call of a shipped predictor can give at most.
inline constexpr u32 most_hints = 64;

/// Sequences that a shipped predictor can tell apart at most; further ones share a place by their number modulo.
inline constexpr u32 most_sequences = 64;

namespace detail {

/// The layers of a model as predictors look them up: by row, without vectors. 16 bytes a row.
class rows {
 public:
  struct row {
    layer_id layer;
    u32 n_experts;
    u32 k;
    u32 first;  ///< experts of the rows before
  };

  rows() = default;
  explicit rows(geometry const& model) : rows_(model.layers().size()) {
    for (u32 i = 0; i < rows_.size(); ++i) {
      layer_geometry const& layer = model.layers()[i];
      rows_[i] = {layer.layer, layer.n_experts, layer.k, total_};
      total_ += layer.n_experts;
      widest_ = max_of(widest_, layer.n_experts);
    }
  }

  u32 size() const noexcept { return static_cast<u32>(rows_.size()); }
  /// Experts of all rows.
  u32 total() const noexcept { return total_; }
  u32 widest() const noexcept { return widest_; }
  row const& operator[](u32 i) const noexcept { return rows_[i]; }

  /// The row `horizon` further on; behind the last comes the first, of the next token.
  u32 ahead(u32 i, u32 horizon) const noexcept { return (i + horizon) % size(); }
  u32 behind(u32 i, u32 horizon) const noexcept { return (i + size() - horizon % size()) % size(); }

  /// Whether the step is one to learn from: it names a row, and it is not the wide step of a prompt, which says what
  /// many tokens use and not what follows what.
  bool teaches(routing_snapshot const& s) const noexcept {
    return s.row < size() && (s.in_phase == phase::decode || s.experts.size() <= rows_[s.row].k);
  }

 private:
  fixed_array<row> rows_;
  u32 total_ = 0;
  u32 widest_ = 0;
};

/// Throws config_error where a predictor is asked to tell no or too many sequences apart.
inline u32 checked_sequences(u32 n) {
  if (n == 0 || n > most_sequences) {
    throw config_error("a predictor of ", n, " sequences that take turns; between 1 and ",
                       most_sequences, " are possible");
  }
  return n;
}

/// The last demanded set of every row, for each sequence that takes turns. Memory: 2 bytes per expert and 4 per row,
/// times sequences.
class last_sets {
 public:
  last_sets() = default;
  last_sets(rows const& model, u32 sequences)
      : sequences_(sequences), sizes_(u64{sequences} * model.size()),
        experts_(u64{sequences} * model.total()) {}

  array_view<u16 const> of(rows const& model, u32 row, u32 sequence) const noexcept {
    u64 const s = sequence % sequences_;
    return {experts_.data() + s * model.total() + model[row].first, sizes_[s * model.size() + row]};
  }

  /// Remembers, for sequence 0, what a row is told to demand next; nothing where there is no such row. O(experts).
  void tell(rows const& model, u32 row, array_view<u32 const> experts) noexcept {
    if (row < model.size()) {
      routing_snapshot future;
      future.row = row;
      future.experts = experts;
      remember(model, future);
    }
  }

  /// Remembers the step; experts that the row does not have are left out. O(experts).
  void remember(rows const& model, routing_snapshot const& step) noexcept {
    u64 const s = step.sequence % sequences_;
    u16* const to = experts_.data() + s * model.total() + model[step.row].first;
    u32 n = 0;
    for (std::size_t i = 0; i < step.experts.size() && n < model[step.row].n_experts; ++i) {
      if (step.experts[i] < model[step.row].n_experts) {
        to[n++] = static_cast<u16>(step.experts[i]);
      }
    }
    sizes_[s * model.size() + step.row] = n;
  }

 private:
  u32 sequences_ = 1;
  fixed_array<u32> sizes_;    // [sequence][row]
  fixed_array<u16> experts_;  // [sequence][expert of the model]
};

}  // namespace detail
}  // namespace predict
}  // namespace warmset::inline v0
