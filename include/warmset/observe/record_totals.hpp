// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/error.hpp"
#include "../core/outcome_words.hpp"
#include "../move/backend.hpp"
#include "snapshot.hpp"

namespace warmset::inline v0 {

/// A snapshot's counters where somebody else keeps the records, one for each pool and phase, in words that wrap: a
/// device. Adds up what they counted from one look to the next, so that totals are right where there is a look in every
/// 2^32 counts. Allocates in its constructor only.
///
/// The records of a pool do not say which layer a step was of: what a pool that spans layers counts stands under its first
/// layer, and its other layers have nothing.
class record_totals {
 public:
  /// Throws config_error where a pool's first layer is not the model's, and bad_alloc.
  record_totals(geometry const& model, array_view<pool_site const> sites)
      : layer_of_(sites.size()), last_(sites.size() * n_phases), now_(last_.size()) {
    for (std::size_t i = 0; i < sites.size(); ++i) {
      u32 at = 0;
      while (at < model.layers().size() &&
             (sites[i].layers.empty() || model.layers()[at].layer != sites[i].layers[0])) {
        ++at;
      }
      if (at == model.layers().size()) {
        throw config_error("record_totals: pool ", i, " has no layer of the model");
      }
      layer_of_[i] = at;
    }
    totals_.open(model);
  }

  /// Takes what has been published since the last call, and the counters as they are then. Refused as the page refuses
  /// it, and nothing is lost: the next call has it. With `wrong_geometry` for a page of another number of pools, and for a
  /// snapshot of another number of layers. Waits for nothing and synchronises nothing.
  ///
  /// @param page  n_pools, and read(records, tries) -> status
  template <class Page>
  status read(Page const& page, snapshot& into, u32 tries = 64) noexcept {
    if (page.n_pools != layer_of_.size() || into.n_layers() != totals_.n_layers()) {
      return {reason::wrong_geometry};
    }
    if (status const s = page.read(now_.data(), tries); !s) {
      return s;
    }
    for (u32 i = 0; i < now_.size(); ++i) {
      outcome& pending = totals_.record(layer_of_[i / n_phases], static_cast<phase>(i % n_phases));
      pending = now_[i] - last_[i];
      last_[i] = now_[i];
      (void)totals_.total(layer_of_[i / n_phases], static_cast<phase>(i % n_phases));  // adds it up
    }
    return into.take(totals_);
  }

 private:
  fixed_array<u32> layer_of_;  ///< by pool: the index of its first layer
  fixed_array<outcome> last_;  ///< by pool and phase: the words at the last look
  fixed_array<outcome> now_;
  observe::counting totals_;
};

}  // namespace warmset::inline v0
