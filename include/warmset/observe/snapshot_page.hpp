// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstring>

#include "snapshot.hpp"

namespace warmset::inline v0 {

/// Where a cache's owner leaves its counters for other threads: one snapshot under a sequence lock. The writer
/// never waits; a reader gets all of one publication or tries again. Allocates in its constructor only.
class snapshot_page {
 public:
  /// For the layers of a model. Throws bad_alloc.
  explicit snapshot_page(geometry const& model)
      : n_layers_(static_cast<u32>(model.layers().size())),
        words_(std::size_t{n_layers_} * n_phases * words_per_cell) {}

  /// One writer. Refused with `wrong_geometry` for a snapshot of another number of layers.
  status publish(snapshot const& from) noexcept {
    if (from.n_layers() != n_layers_) {
      return {reason::wrong_geometry};
    }
    u64 const before = sequence_.load(std::memory_order_relaxed);
    sequence_.store(before + 1, std::memory_order_relaxed);
    std::size_t at = 0;
    for_each_cell([&](u32 layer_index, phase p) {
      u64 cell[words_per_cell];
      std::memcpy(cell, &from.at(layer_index, p), sizeof cell);
      for (u64 const word : cell) {  // release: whoever reads one of these sees the odd number
        words_[at++].store(word, std::memory_order_release);
      }
    });
    sequence_.store(before + 2, std::memory_order_release);
    return done;
  }

  /// Any thread. Refused with `wrong_geometry`; with `unsupported` where nothing was published yet; with `busy`
  /// where the writer came in between `tries` times. `into` is then of no meaning.
  status read(snapshot& into, u32 tries = 64) const noexcept {
    if (into.n_layers() != n_layers_) {
      return {reason::wrong_geometry};
    }
    for (u32 i = 0; i < tries; ++i) {
      u64 const before = sequence_.load(std::memory_order_acquire);
      if (before == 0) {
        return {reason::unsupported};
      }
      if (before % 2 != 0) {
        continue;
      }
      std::size_t at = 0;
      for_each_cell([&](u32 layer_index, phase p) {
        u64 cell[words_per_cell];
        for (u64& word : cell) {
          word = words_[at++].load(std::memory_order_acquire);
        }
        std::memcpy(&into.at(layer_index, p), cell, sizeof cell);
      });
      if (sequence_.load(std::memory_order_relaxed) == before) {
        return done;
      }
    }
    return {reason::busy};
  }

 private:
  static constexpr std::size_t words_per_cell = sizeof(total_counters) / sizeof(u64);
  static_assert(std::is_trivially_copyable_v<total_counters> &&
                    std::has_unique_object_representations_v<total_counters> &&
                    sizeof(total_counters) % sizeof(u64) == 0,
                "counters travel as whole words");

  template <class F>
  void for_each_cell(F&& f) const noexcept {
    for (u32 i = 0; i < n_layers_; ++i) {
      f(i, phase::prefill);
      f(i, phase::decode);
    }
  }

  u32 n_layers_;
  std::atomic<u64> sequence_{0};  ///< odd while a publication is under way
  fixed_array<std::atomic<u64>> words_;
};

}  // namespace warmset::inline v0
