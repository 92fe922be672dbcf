// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "backend.hpp"

namespace warmset::inline v0 {
namespace move {

/// The backend inside all adaptors: what innermost(x) of a backend without adaptors is itself.
/// O(1).
template <class B>
constexpr auto& innermost(B& b) noexcept {
  if constexpr (requires { b.inner(); }) {
    return innermost(b.inner());
  } else {
    return b;
  }
}

namespace detail {

/// How a transfer ended in a backend, as its word says; `loading` while it has not.
template <move_backend B>
transfer end_of(B const& b, u32 pool, slot_id slot, u32 generation) noexcept {
  u32 const word = b.arrivals(pool)[slot.value];
  if (!arrival::is_of(word, generation)) {
    return transfer::loading;
  }
  transfer const t = arrival::state(word);
  return t == transfer::none ? transfer::loading : t;
}

/// Transfers under way, oldest first. A slot has one at a time, so that the number is bounded.
template <class Flight>
class flight_list {
 public:
  void open(array_view<pool_site const> sites) {
    std::size_t n = 0;
    for (pool_site const& site : sites) {
      n += site.n_words();
    }
    std::vector<Flight> flights(n);
    flights_.swap(flights);
    n_ = 0;
  }

  std::size_t size() const noexcept { return n_; }

  void add(Flight const& f) noexcept {
    WARMSET_ASSERT(n_ < flights_.size(), "a slot has two transfers at a time");
    if (n_ < flights_.size()) {
      flights_[n_++] = f;
    }
  }

  /// Drops every transfer for which ended(flight) is true; keeps the order. O(size).
  template <class Ended>
  void drop_if(Ended&& ended) noexcept {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < n_; ++i) {
      if (!ended(flights_[i])) {
        flights_[kept++] = flights_[i];
      }
    }
    n_ = kept;
  }

  void clear() noexcept { n_ = 0; }

 private:
  std::vector<Flight> flights_;
  std::size_t n_ = 0;
};

}  // namespace detail
}  // namespace move
}  // namespace warmset::inline v0
