// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "intent.hpp"
#include "plain.hpp"
#include "result.hpp"

namespace warmset::inline v0 {

/// How one distinct expert of a step was served.
enum class access_kind : u8 {
  hit,            ///< resident, demanded before
  first_use,      ///< resident by speculation, demanded for the first time: a hit as well
  late,           ///< in flight: the demand joins the transfer
  load,           ///< installed by this step
  declined,       ///< not installed: served from scratch
  overflow_hit,   ///< resident, read in place by an overflow step
  overflow_miss,  ///< streamed through scratch by an overflow step
};

inline constexpr u32 n_access_kinds = 7;

constexpr char const* name_of(access_kind a) noexcept {
  constexpr char const* names[n_access_kinds] = {"hit",      "first_use",    "late",         "load",
                                           "declined", "overflow_hit", "overflow_miss"};
  return static_cast<u32>(a) < n_access_kinds ? names[static_cast<u32>(a)] : "unknown";
}

/// What one operation did, in counts of experts: produced by plan, commit and settle, added up by fold.
/// Rooms below `observe` count nothing themselves.
struct outcome {
  // what most steps write comes first, in one cache line
  u32 accesses[n_access_kinds];  ///< demand accesses by how they were served
  u32 demanded;                ///< distinct valid ids of all steps: the sum of `accesses`
  u32 steps;                   ///< committed steps
  u32 issued[n_intents];       ///< loads started, by intent
  u32 arrived[n_intents];      ///< loads completed, by the intent that started them
  u32 evicted[n_intents];      ///< evictions, by the intent that asked for them
  u32 failed[n_intents];       ///< loads failed, by the intent that started them and still owned them
  u32 pinned_hits;             ///< of the accesses that are hits: those of pinned experts
  u32 late_of_hint;            ///< late accesses that joined a speculative transfer (uses of a hint)
  u32 late_failed;             ///< transfers that failed after a demand had joined a speculative load
  u32 evicted_unused;          ///< speculated experts that left without having been demanded
  u32 dropped;                 ///< residents dropped by a resize or an invalidation
  u32 retired;                 ///< slots that became retired
  u32 overflow_steps;
  u32 scratch_issued;          ///< transfers into scratch started: waves, and what `serve_failed` sends there
  u32 scratch_arrived;
  u32 scratch_failed;
  u32 guard_asked;             ///< consultations of the guard
  u32 guard_refused;
  u32 hints_offered;           ///< hints looked at
  u32 skipped_ids[n_drop_reasons];  ///< routed ids that named no further expert (padding, range, duplicates)
  u32 hints_dropped[n_drop_reasons];  ///< hints that led to no load, by reason

  WARMSET_HD constexpr u32& operator[](access_kind a) noexcept { return accesses[static_cast<u32>(a)]; }
  WARMSET_HD constexpr u32 operator[](access_kind a) const noexcept {
    return accesses[static_cast<u32>(a)];
  }
};

static_assert(detail::is_bytes<outcome>, "an outcome record is plain data");
static_assert(detail::has_no_padding<outcome>, "an outcome record has no padding");

}  // namespace warmset::inline v0
