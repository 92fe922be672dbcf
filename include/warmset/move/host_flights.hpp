// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "backend.hpp"
#include "host_faults.hpp"
#include "host_ledger.hpp"

namespace warmset::inline v0 {
namespace move {

/// The transfers of a host backend and their arrival words: a word is written once the last bank of
/// its expert has ended. O(1) but for publish_late.
class host_flights {
 public:
  host_flights() = default;
  /// @param n_indices  slots and scratch slots of each group
  host_flights(array_view<pool_site const> sites, std::vector<u32> const& n_indices) {
    words_.open(sites);
    for (u32 n : n_indices) {
      flights_.emplace_back(n);
    }
  }

  detail::arrival_words& words() noexcept { return words_; }
  detail::arrival_words const& words() const noexcept { return words_; }

  bool is_busy(u32 group, u32 index) const noexcept {
    return flights_[group][index].banks_left != 0;
  }
  u32 generation(u32 group, u32 index) const noexcept { return flights_[group][index].generation; }

  /// A transfer of so many banks begins; its word says loading.
  void begin(u32 group, u32 index, u32 pool, transfer_order const& order, u32 n_banks,
             ledger_line& ledger) noexcept {
    words_.at(pool, order.slot) = arrival::word(order.generation, transfer::loading);
    flights_[group][index] = {pool, order.slot, order.generation, n_banks, false, false};
    ++ledger.issued;
    ++ledger.in_flight;
  }

  /// One of its banks has ended. With the last one the completion passes the fault points event and
  /// publish, where there are faults.
  void end_bank(u32 group, u32 index, bool failed, fault_injector* faults,
                ledger_line& ledger) noexcept {
    flight& f = flights_[group][index];
    f.failed = f.failed || failed;
    if (--f.banks_left != 0) {
      return;
    }
    if (faults != nullptr) {
      f.failed = faults->strikes(fault_point::event) || f.failed;
      if (faults->strikes(fault_point::publish)) {
        f.failed = f.unpublished = true;
        ++n_unpublished_;
        return;
      }
    }
    publish(f, ledger);
  }

  /// Writes the words that could not be written when their transfers ended. O(slots) where there
  /// are any.
  void publish_late(ledger_line& ledger) noexcept {
    if (n_unpublished_ == 0) {
      return;
    }
    for (std::vector<flight>& group : flights_) {
      for (flight& f : group) {
        if (f.unpublished) {
          publish(f, ledger);
        }
      }
    }
    n_unpublished_ = 0;
  }

 private:
  /// The transfer that runs into one slot; none where banks_left is 0.
  struct flight {
    u32 pool = 0;
    slot_id slot{};
    u32 generation = 0;
    u32 banks_left = 0;
    bool failed = false;
    bool unpublished = false;  ///< it has ended and its word has not been written
  };

  void publish(flight& f, ledger_line& ledger) noexcept {
    f.unpublished = false;
    words_.publish(f.pool, f.slot, f.failed ? transfer::failed : transfer::arrived);
    ++(f.failed ? ledger.failed : ledger.completed);
    --ledger.in_flight;
  }

  detail::arrival_words words_;
  std::vector<std::vector<flight>> flights_;  ///< by group and index in the bank
  u32 n_unpublished_ = 0;
};

}  // namespace move
}  // namespace warmset::inline v0
