// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/arrival.hpp"
#include "../core/fixed_array.hpp"
#include "../core/intent.hpp"

namespace warmset::inline v0 {
namespace move::detail {

/// The transfers that run into scratch slots. The table knows nothing of them, so that their ends are taken from
/// the arrival words here, for the counters. Allocates in `open` only; O(running) per call.
class scratch_flights {
 public:
  struct flight {
    u32 scratch;  ///< the slot among all scratch slots of the cache; pools of a group share theirs
    u32 pool;
    u32 slot;  ///< of the pool's arrival words
    u32 generation;
    u32 layer_index;
    phase in_phase;
  };

  void open(u32 n_scratch) { flights_ = fixed_array<flight>(n_scratch); }
  u32 running() const noexcept { return n_; }

  /// Whether a transfer runs into this slot, whichever pool it is for.
  bool runs(u32 scratch) const noexcept {
    for (u32 i = 0; i < n_; ++i) {
      if (flights_[i].scratch == scratch) {
        return true;
      }
    }
    return false;
  }

  /// Adds a transfer that is about to start, into a slot into which none runs.
  void add(flight const& f) noexcept { flights_[n_++] = f; }

  /// Removes what has ended.
  /// @param arrivals  the words of a pool
  /// @param ended     called with each flight and how it ended; a word of another transfer is a failure
  template <class Arrivals, class Ended>
  void take_in(Arrivals&& arrivals, Ended&& ended) noexcept {
    for (u32 i = 0; i < n_;) {
      flight const f = flights_[i];
      u32 const word = arrivals(f.pool)[f.slot];
      bool const own = arrival::is_of(word, f.generation);
      if (own && arrival::state(word) == transfer::loading) {
        ++i;
        continue;
      }
      flights_[i] = flights_[--n_];
      ended(f, own && arrival::state(word) == transfer::arrived ? transfer::arrived
                                                                : transfer::failed);
    }
  }

 private:
  fixed_array<flight> flights_;
  u32 n_ = 0;
};

}  // namespace move::detail
}  // namespace warmset::inline v0
