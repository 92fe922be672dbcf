// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "../core/intent.hpp"
#include "../core/outcome.hpp"
#include "block.hpp"

namespace warmset::inline v0 {

/// What kind of decision a plan is.
enum class plan_kind : u8 {
  empty,        ///< no valid id: nothing to do
  step,         ///< commit it
  overflow,     ///< more distinct ids than usable slots: nothing to commit; residents in place, the rest in waves
  hints,        ///< speculation: commit it
  busy,         ///< every scratch slot is leased: nothing was decided, ask again
  refused,      ///< of a cache's answer alone: the gate says no, and no table was looked at
};

/// One load of a plan.
struct planned_load {
  u32 expert;
  u32 slot;
};

/// Why no slot could be found, in slots.
struct no_victim_counts {
  u32 leased;
  u32 loading;
  u32 guarded;   ///< refused by the guard, demanded by the step, or needed for a floor
  u32 pinned;
};

/// What a plan of a contextual score carries besides: its keys, and what commit learns from.
template <u32 MaxExperts, u32 MaxPrevious, u32 MaxSupplied>
struct plan_context {
  u32 sequence;
  u32 token;
  u32 n_previous;
  u32 n_supplied;
  i32 key[MaxExperts];  ///< of every expert of the row
  u32 previous[MaxPrevious];
  i32 supplied[MaxSupplied];
};
struct no_context {};

namespace detail {
template <class Policy>
consteval auto plan_context_type() {
  using score = typename Policy::score;
  if constexpr (contextual_score<score>) {
    constexpr u32 all = Policy::max_experts;
    return std::type_identity<plan_context<all, score::uses_previous_layer ? all : 1, score::uses_supplied ? all : 1>>{};
  } else {
    return std::type_identity<no_context>{};
  }
}
}  // namespace detail

/// What a step decides. Pure data: trivially copyable, no pointer; sized for `MaxExperts` distinct ids.
///
/// Arrays of `n` entries describe the distinct valid ids in the order of their last occurrence; `loads` are
/// in ascending expert index, so that neighbours in memory merge into one copy.
template <u32 MaxExperts, class Walk, class Context = no_context>
struct basic_plan : Context {
  u64 version;     ///< the table version that it was made from
  u32 row;
  u32 model_tick;
  plan_kind kind;
  intent for_intent;
  phase in_phase;
  u8 reserved_byte;
  u32 free_hint;
  u32 target;      ///< speculative: the layer's step that the hints are for
  u32 n;           ///< distinct valid ids
  u32 n_loads;
  u32 n_trims;     ///< residents that make way so that the reserve of speculation is whole again
  u32 n_waves;     ///< passes through scratch that the declined or overflowing experts need
  u32 n_declined;
  u32 sentinels;
  u32 out_of_range;
  u32 duplicates;
  u32 hints_offered;
  u32 guard_asked;
  u32 guard_refused;
  no_victim_counts no_victim;
  u32 dropped[n_drop_reasons];  ///< speculative: hints without a load, by reason
  Walk walk;
  u32 expert[MaxExperts];
  u32 slot[MaxExperts];      ///< pool slot, or scratch slot (>= the pool's reserved slots)
  access_kind how[MaxExperts];
  u32 wave[MaxExperts];      ///< of declined and overflow_miss entries
  planned_load loads[MaxExperts];
  u32 trims[MaxExperts];     ///< slots
};

/// A missing expert and its place among the step's distinct ids in 32 bits, ordered by the expert: max_experts fits in 16.
namespace miss_word {
WARMSET_HD constexpr u32 of(u32 expert, u32 place) noexcept { return expert << 16 | place; }
WARMSET_HD constexpr u32 expert(u32 word) noexcept { return word >> 16; }
WARMSET_HD constexpr u32 place(u32 word) noexcept { return word & 0xFFFF; }
}  // namespace miss_word

/// Scratch memory of plan, owned by the caller. It says nothing about any table: it must be zero before its
/// first use, and any plan may use it next.
template <u32 MaxExperts>
struct basic_workspace {
  alignas(16) u32 seen[MaxExperts] = {};  ///< stamp of the last plan that marked the expert
  u32 stamp = 0;              ///< of the running plan; what an earlier one marked is not marked
  u32 position[MaxExperts] = {};
  u32 miss[MaxExperts] = {};  ///< missing experts of the step, see miss_word
  u32 source[MaxExperts] = {};

  /// Unmarks all experts. One lane; O(1), and once in 2^32 calls O(MaxExperts).
  WARMSET_HD void unmark_all() noexcept {
    if (++stamp == 0) [[unlikely]] {
      for (u32& s : seen) {
        s = 0;
      }
      stamp = 1;
    }
  }
  WARMSET_HD bool is_marked(u32 expert) const noexcept { return seen[expert] == stamp; }
  WARMSET_HD void mark(u32 expert) noexcept { seen[expert] = stamp; }
};

template <class Policy>
using plan_of = basic_plan<
    Policy::max_experts, typename Policy::selector::walk_state,
    typename decltype(detail::plan_context_type<Policy>())::type>;

template <class Policy>
using workspace_of = basic_workspace<Policy::max_experts>;

static_assert(detail::is_bytes<plan_of<default_policy>>, "a plan is plain data");

/// Whether the plan is of a demand step: known at compile time where the bundle never speculates.
template <class Policy>
WARMSET_HD bool is_of_demand(plan_of<Policy> const& p) noexcept {
  return !speculates<Policy> || p.for_intent == intent::demand;
}

namespace detail {

/// The step that a plan is of, as its contextual score sees it.
template <class Policy>
WARMSET_HD step_context context_of(table_reader<Policy> const& t, plan_of<Policy> const& p) noexcept {
  layer_record const& layer = t.layer(p.row);
  return {p.expert, p.n, p.previous, p.n_previous, layer.id, layer.n_experts, p.sequence, p.token,
          p.n_supplied != 0 ? p.supplied : nullptr, nullptr, 0};
}

/// The table as selectors see it while plan runs: keys at the clocks of this moment.
template <class Policy>
class candidate_view {
 public:
  /// @param row   the layer whose step it is
  /// @param keys  of its experts at this step, where a contextual score has made them; null: of its last step
  WARMSET_HD candidate_view(table_reader<Policy> const& table, u32 model_tick, u32 row = 0,
                            i32 const* keys = nullptr) noexcept
      : table_(table), now_(table.now(0, model_tick)), row_(row), keys_(keys) {}
  candidate_view(table_reader<Policy> const&&, u32, u32 = 0, i32 const* = nullptr) = delete;  // it refers to the table

  WARMSET_HD u32 size() const noexcept { return table_.size(); }
  WARMSET_HD bool evictable(u32 slot) const noexcept { return table_.evictable(slot); }
  WARMSET_HD void lower_to(u32 slot, order_key& best) const noexcept {
    u32 const owner = table_.owner(slot);
    u32 const index = table_.index_of_owner(owner);
    expert_record const& record = table_.expert(index);
    expert_facts const facts = table_reader<Policy>::facts(record);
    u64 const value = rank(index, facts, owner);
    if (value > best.high) {
      return;  // most slots of a scan: the tie-break need not be known
    }
    lower(best, eviction_key(value, facts.accessed != 0, age_of(now_.tick, record.last), slot));
  }
  /// The key of a slot, whatever it holds.
  WARMSET_HD order_key key(u32 slot) const noexcept {
    u32 const owner = table_.owner(slot);
    u32 const index = table_.index_of_owner(owner);
    expert_record const& record = table_.expert(index);
    expert_facts const facts = table_reader<Policy>::facts(record);
    return eviction_key(rank(index, facts, owner), facts.accessed != 0, age_of(now_.tick, record.last), slot);
  }
  WARMSET_HD auto const& selector_pool() const noexcept { return table_.selector_pool(); }
  WARMSET_HD auto const& selector_slot(u32 slot) const noexcept { return table_.selector_slot(slot); }
  WARMSET_HD auto const& selector_expert(u32 index) const noexcept {
    return table_.selector_expert(index);
  }
  WARMSET_HD u32 expert_index(u32 slot) const noexcept { return table_.expert_index(slot); }
  WARMSET_HD u32 expert_count() const noexcept { return table_.expert_count(); }

  /// What victims are ordered by: the score, or a contextual score's key of this step.
  WARMSET_HD u64 rank(u32 index, expert_facts facts, u32 owner) const noexcept {
    auto const& score = table_.parts().score;
    if constexpr (contextual_score<typename Policy::score>) {
      u32 const row = table_reader<Policy>::row_of(owner);
      bool const is_of_step = keys_ != nullptr && row == row_;
      i32 key = is_of_step ? keys_[table_reader<Policy>::expert_of(owner)] : score.key_of(table_.score_of(index));
      if (Policy::pool::spans_layers && row <= row_) {
        key = score.aged(key);
      }
      return table_reader<Policy>::rank_of_key(key);
    } else {
      return score.value(table_.score_of(index), facts, clocks_of(owner));
    }
  }

 private:
  WARMSET_HD clocks clocks_of(u32 owner) const noexcept {
    if constexpr (Policy::pool::spans_layers) {
      return table_.now(table_reader<Policy>::row_of(owner), now_.model_tick);
    } else {
      (void)owner;
      return now_;
    }
  }

  table_reader<Policy> const& table_;
  clocks now_;
  u32 row_;
  i32 const* keys_;
};

/// Whether evicting this resident, after those that the plan takes already, leaves its row its floor. The
/// step's own row is always a donor.
template <class Policy>
WARMSET_HD bool above_floor(table_reader<Policy> const& table, u32 row, u32 candidate,
                            u32 const* taken, u32 n_taken, u32 const* trims = nullptr,
                            u32 n_trims = 0) noexcept {
  if constexpr (Policy::pool::spans_layers) {
    u32 const donor = table_reader<Policy>::row_of(table.owner(candidate));
    if (donor == row) {
      return true;
    }
    u32 held = table.layer(donor).held;
    auto const leaves = [&](u32 s) {
      return slot_word::state(table.word(s)) == slot_state::resident &&
             table_reader<Policy>::row_of(table.owner(s)) == donor;
    };
    for (u32 i = 0; i < n_taken; ++i) {
      held -= leaves(taken[i]) ? 1 : 0;
    }
    for (u32 i = 0; i < n_trims; ++i) {
      held -= leaves(trims[i]) ? 1 : 0;
    }
    return held > table.header().floor;
  } else {
    (void)table, (void)row, (void)candidate, (void)taken, (void)n_taken, (void)trims, (void)n_trims;
    return true;
  }
}

/// Whether the step that a speculated slot is for has been planned.
template <class Policy>
WARMSET_HD bool expired(table_reader<Policy> const& table, u32 slot) noexcept {
  u32 const row = table_reader<Policy>::row_of(table.owner(slot));
  return table.layer(row).step - table.target(slot) <= u32_max / 2;
}

}  // namespace detail
}  // namespace warmset::inline v0
