// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/array_view.hpp"
#include "../core/fixed_array.hpp"
#include "../core/geometry.hpp"
#include "../core/outcome.hpp"

namespace warmset::inline v0 {
namespace gate {

/// What the hints of a step came to, for `governor::judge`.
struct verdict {
  u32 used = 0;
  u32 wasted = 0;
  u32 regretted = 0;
};

/// Judges issued hints by their own step: a hint is used when the step that it is for, or an earlier one, demands its
/// expert, and wasted when that step was planned without it. A hint's victim is regretted when it is demanded before
/// as many loads as evicted it would have happened without hints.
///
/// Follows one cache from outside, by what its decisions say. Allocates in `open` only. O(distinct experts + loads +
/// outstanding hints of the layer) per step.
class hint_ledger {
 public:
  /// @param n_slots  slots of each pool, scratch included
  template <class Geometry>
  void open(Geometry const& model, array_view<u32 const> n_slots) {
    rows_ = fixed_array<row_state>(model.layers().size());
    u32 keys = 0;
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      rows_[row].first_key = keys;
      keys += model.layers()[row].n_experts;
    }
    pools_ = fixed_array<pool_state>(n_slots.size());
    u32 slots = 0;
    for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
      pools_[pool].first_slot = slots;
      slots += n_slots[pool];
    }
    slots_ = fixed_array<slot_state_of>(slots);
    taken_ = fixed_array<u64>(keys);
    outstanding_ = fixed_array<u32>(slots);
  }

  /// Hints have been issued: `loads` of one row, for its step number `target`. What they evicted is remembered, and
  /// what they displaced before its step is wasted.
  template <class Loads>
  verdict issue(u32 pool, u32 row, u32 target, Loads const& loads) noexcept {
    verdict v;
    pool_state& p = pools_[pool];
    for (auto const& each : loads) {
      slot_state_of& s = slot(pool, each.slot);
      p.lent += s.speculated ? 0 : 1;
      if (s.open) {
        close(s, v.wasted);
      } else if (s.owner != 0 && !s.speculated) {
        taken_[s.owner - 1] = p.loads + p.lent;  // colder ones have been taken before
      }
      bool const was_listed = s.listed;
      s = {key(row, each.expert) + 1, target, row, true, true, true};
      ++n_open_;
      if (!was_listed) {
        outstanding_[n_listed_++] = pools_[pool].first_slot + each.slot;
      }
    }
    return v;
  }

  /// A step has been planned and committed, or has overflowed.
  ///
  /// @param step     the row's number of steps, this one included
  /// @param experts, how, slots  of the decision: distinct experts and how each was served
  /// @param loads    of the decision
  template <class Experts, class How, class Slots, class Loads>
  verdict plan(u32 pool, u32 row, u32 step, Experts const& experts, How const& how,
               Slots const& slots, Loads const& loads) noexcept {
    verdict v;
    pool_state& p = pools_[pool];
    u64 saved = 0;  // loads that a cache without hints would have made here
    for (std::size_t i = 0; i < experts.size(); ++i) {
      u64& taken = taken_[key(row, experts[i])];
      v.regretted += taken != 0 && p.loads < taken ? 1 : 0;
      taken = 0;
      if (how[i] == access_kind::first_use || how[i] == access_kind::late) {
        slot_state_of& s = slot(pool, slots[i]);
        if (s.speculated) {
          ++saved;
          if (s.open) {
            close(s, v.used);
          }
          s.speculated = false;
          --p.lent;
        }
      } else if (how[i] == access_kind::overflow_hit && slot(pool, slots[i]).open) {
        close(slot(pool, slots[i]), v.used);  // read in place; it stays speculated
      }
    }
    for (auto const& each : loads) {
      slot_state_of& s = slot(pool, each.slot);
      if (s.open) {
        close(s, v.wasted);
      }
      p.lent -= s.speculated ? 1 : 0;
      s = {key(row, each.expert) + 1, 0, row, false, false, s.listed};
    }
    p.loads += saved + loads.size() -
               min_of(saved + loads.size(), u64{v.regretted});  // these would have been hits
    u32 kept = 0;
    for (u32 i = 0; i < n_listed_; ++i) {
      slot_state_of& s = slots_[outstanding_[i]];
      if (s.open && s.row == row && step - s.target <= u32_max / 2) {
        close(s, v.wasted);
      }
      s.listed = s.open;
      if (s.open) {
        outstanding_[kept++] = outstanding_[i];
      }
    }
    n_listed_ = kept;
    return v;
  }

  /// Hints that have been issued and not judged. O(1).
  u32 outstanding() const noexcept { return n_open_; }

 private:
  struct row_state {
    u32 first_key = 0;
  };
  struct pool_state {
    u32 first_slot = 0;
    u64 lent = 0;   ///< slots with a hint that no demand has used
    u64 loads = 0;  ///< that demand has made, or would have made without hints
  };
  struct slot_state_of {
    u32 owner = 0;  ///< key + 1
    u32 target = 0;
    u32 row = 0;
    bool speculated = false;  ///< and not yet demanded
    bool open = false;        ///< and not yet judged
    bool listed = false;      ///< in outstanding_
  };

  u32 key(u32 row, u32 expert) const noexcept { return rows_[row].first_key + expert; }
  slot_state_of& slot(u32 pool, u32 s) noexcept { return slots_[pools_[pool].first_slot + s]; }
  void close(slot_state_of& s, u32& count) noexcept {
    s.open = false;
    --n_open_;
    ++count;
  }

  fixed_array<row_state> rows_;
  fixed_array<pool_state> pools_;
  fixed_array<slot_state_of> slots_;
  fixed_array<u64>
      taken_;  // by key: loads of the pool until which its eviction is regretted; 0 = not taken
  fixed_array<u32> outstanding_;  // slots with hints to judge
  u32 n_listed_ = 0;
  u32 n_open_ = 0;
};

}  // namespace gate
}  // namespace warmset::inline v0
