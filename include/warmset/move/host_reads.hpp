// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "../core/ids.hpp"

namespace warmset::inline v0 {
namespace move {

/// What was wrong with a read of a slot.
enum class read_fault : u8 {
  none,
  out_of_range,      ///< no such pool, slot or bank
  empty,             ///< nothing was ever copied there
  torn,              ///< a copy was writing it
  poisoned,          ///< a copy into it failed
  other_expert,      ///< it holds another expert
  other_generation,  ///< it holds this expert, brought there by another transfer
  other_bytes,       ///< its bytes are not the source's
  changed,           ///< it was written between the read's begin and end
  closed,            ///< the backend was closed before the read ran
  not_launched,      ///< the reader could not be put into its stream
};

inline constexpr u32 n_read_faults = 11;

constexpr char const* name_of(read_fault f) noexcept {
  constexpr char const* names[n_read_faults] = {
      "none",         "out_of_range",     "empty",       "torn",    "poisoned",
      "other_expert", "other_generation", "other_bytes", "changed", "closed",
      "not_launched"};
  return static_cast<u32>(f) < n_read_faults ? names[static_cast<u32>(f)] : "unknown";
}

/// Bytes of one bank of a slot, or why they are not what the reader claimed.
struct [[nodiscard]] read_result {
  std::span<std::byte const> bytes;
  read_fault fault = read_fault::none;
  explicit operator bool() const noexcept { return fault == read_fault::none; }
};

/// What a read claims to find.
struct read_claim {
  u32 pool;
  slot_id slot;
  expert_key expert;
  u32 generation;
  u32 bank;
};

/// How a deferred read ended.
struct read_report {
  u32 ticket;
  read_claim claim;
  read_fault fault;
  u64 begin;  ///< tick
  u64 end;
};

/// What one bank of one slot holds.
struct bank_tag {
  enum class content : u8 { empty, torn, poisoned, holds };
  expert_key expert{};
  u32 generation = 0;
  content state = content::empty;
  u64 writes = 0;  ///< begins and ends of copies into it

  /// What a read finds wrong before it looks at bytes. O(1).
  read_fault judge(expert_key claimed, u32 claimed_generation) const noexcept {
    switch (state) {
    case content::empty:
      return read_fault::empty;
    case content::torn:
      return read_fault::torn;
    case content::poisoned:
      return read_fault::poisoned;
    case content::holds:
      break;
    }
    if (expert != claimed) {
      return read_fault::other_expert;
    }
    return generation != claimed_generation ? read_fault::other_generation : read_fault::none;
  }
};

}  // namespace move
}  // namespace warmset::inline v0
