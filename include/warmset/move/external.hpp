// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend.hpp"

namespace warmset::inline v0 {
namespace move {

/// The backend of an engine that moves the bytes itself: it holds the arrival words and nothing
/// else. The engine copies what start was given and reports each expert once, after all its banks,
/// with arrived or failed.
///
/// Errors: open throws bad_alloc. Afterwards no allocation, no exception, no waiting. Not
/// synchronised: the owner's thread reports. Complexity: start O(orders), reports O(1), poll
/// nothing, close O(slots).
class external {
 public:
  external() = default;

  /// @param tail_bytes  zeroed bytes that the engine's readers need behind each bank
  explicit external(u64 tail_bytes) noexcept : tail_bytes_(tail_bytes) {}

  u64 tail_bytes() const noexcept { return tail_bytes_; }

  template <class Sites>
  void open(geometry const&, Sites const& sites) {
    words_.open(sites);
  }

  u32 const* arrivals(u32 pool) const noexcept { return words_.of(pool); }

  void start(u32 pool, array_view<transfer_order const> orders) noexcept {
    u32* const words = words_.of(pool);
    for (transfer_order const& order : orders) {
      words[order.slot.value] = arrival::word(order.generation, transfer::loading);
    }
  }

  void poll() noexcept {}

  /// Publishes that all banks of the slot's transfer are in place. False, and nothing is written,
  /// where the slot has no transfer running or does not exist.
  bool arrived(u32 pool, slot_id slot) noexcept { return report(pool, slot, transfer::arrived); }

  /// The same, of the transfer of this generation only: for engines whose reports can be late.
  bool arrived(u32 pool, slot_id slot, u32 generation) noexcept {
    return is_of(pool, slot, generation) && report(pool, slot, transfer::arrived);
  }

  /// Publishes that the slot's transfer failed; its bytes mean nothing. False as for arrived.
  bool failed(u32 pool, slot_id slot) noexcept { return report(pool, slot, transfer::failed); }

  bool failed(u32 pool, slot_id slot, u32 generation) noexcept {
    return is_of(pool, slot, generation) && report(pool, slot, transfer::failed);
  }

  void close() noexcept { words_.fail_all(); }

 private:
  bool report(u32 pool, slot_id slot, transfer to) noexcept {
    return words_.has(pool, slot) && words_.publish(pool, slot, to);
  }
  bool is_of(u32 pool, slot_id slot, u32 generation) const noexcept {
    return words_.has(pool, slot) && arrival::is_of(words_.at(pool, slot), generation);
  }

  detail::arrival_words words_;
  u64 tail_bytes_ = 0;
};

/// The backend that moves nothing: every transfer has arrived when start returns. For replay and
/// for benchmarks of decisions, whose bytes nobody reads.
///
/// Errors: open throws bad_alloc. Complexity: start writes one word per order; poll and close do
/// nothing.
class immediate {
 public:
  static constexpr u64 tail_bytes() noexcept { return 0; }

  template <class Sites>
  void open(geometry const&, Sites const& sites) {
    words_.open(sites);
  }

  u32 const* arrivals(u32 pool) const noexcept { return words_.of(pool); }

  void start(u32 pool, array_view<transfer_order const> orders) noexcept {
    u32* const words = words_.of(pool);
    for (transfer_order const& order : orders) {
      words[order.slot.value] = arrival::word(order.generation, transfer::arrived);
    }
  }

  void poll() noexcept {}
  void close() noexcept {}

 private:
  detail::arrival_words words_;
};

}  // namespace move

static_assert(move_backend<move::external>, "external must satisfy move_backend");
static_assert(move_backend<move::immediate>, "immediate must satisfy move_backend");

}  // namespace warmset::inline v0
