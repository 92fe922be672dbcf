// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/integers.hpp"

namespace warmset::inline v0 {
namespace move {

/// Amounts of one unit: issued = completed + failed + in_flight, at every moment.
struct ledger_line {
  u64 issued = 0;
  u64 completed = 0;
  u64 failed = 0;
  u64 in_flight = 0;
  bool balances() const noexcept { return issued == completed + failed + in_flight; }
  bool operator==(ledger_line const&) const = default;
};

/// What a host backend allocated and moved.
struct move_ledger {
  u64 allocated = 0;  ///< bytes of all groups: slots, scratch and tails
  u64 filled = 0;     ///< bytes of banks whose slot a copy began to write
  u64 released = 0;   ///< bytes of banks that were in a slot when a copy began to overwrite it
  u64 source = 0;     ///< bytes of the host's copies, which installs leave where they are
  u64 staging = 0;    ///< bytes of the staging ring
  ledger_line bytes;
  ledger_line copies;
  ledger_line transfers;  ///< experts
  u64 large_copies = 0;
  u64 small_copies = 0;
  u64 batches = 0;
  u64 merged = 0;   ///< transfers that travelled in a neighbour's copies
  u64 refused = 0;  ///< orders that named no slot or expert, or a slot with a transfer running

  /// Bytes of banks that lie in slots, whatever they are worth.
  u64 held() const noexcept { return filled - released; }
  bool balances() const noexcept {
    return bytes.balances() && copies.balances() && transfers.balances() && released <= filled &&
           held() <= allocated;
  }
};

}  // namespace move
}  // namespace warmset::inline v0
