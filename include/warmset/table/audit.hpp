// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "settle.hpp"

namespace warmset::inline v0 {

/// The invariants of a table, numbered; docs and tests use the same names.
enum class invariant : u8 {
  none,
  A01_header,        ///< magic, format and sizes are a table's; capacity <= reserved slots
  A02_state_counts,  ///< the header counts the slots of each state
  A03_reciprocal,    ///< slot -> expert and expert -> slot agree, and each expert has at most one slot
  A04_empty_is_bare, ///< a free or retired slot has no expert, mark or lease
  A05_capacity,      ///< retired slots are exactly those beyond the capacity that nothing holds
  A06_held,          ///< each row's count of held slots is right
  A07_unused,        ///< speculated and unused slots are counted, marked only where the bundle speculates
  A08_in_flight,     ///< the in-flight list names each loading slot once, and nothing else
  A09_leases,        ///< the header counts the leases
  A10_pins,          ///< pinned experts are counted, and their slots marked
  A11_clocks,        ///< no stamp is ahead of its clock
  A12_never,         ///< an expert that was never demanded has no history
  A13_score,         ///< the score's states are ones that its clock could have written
  A14_selector,      ///< the selector's state fits the slots
  A15_free_hint,     ///< no slot below the hint is free
};

constexpr char const* name_of(invariant i) noexcept {
  constexpr char const* names[] = {
      "none",        "A01 header",  "A02 state counts", "A03 reciprocal maps", "A04 empty is bare",
      "A05 capacity", "A06 held",   "A07 unused",       "A08 in flight",       "A09 leases",
      "A10 pins",    "A11 clocks",  "A12 never",        "A13 score",           "A14 selector",
      "A15 free hint"};
  return names[static_cast<u32>(i)];
}

/// The first violated invariant and where: a slot, a row or an expert's index. `none` = the table is sound.
struct [[nodiscard]] audit_result {
  invariant broken = invariant::none;
  u32 where = 0;
  explicit operator bool() const noexcept { return broken == invariant::none; }
};

/// Slots by what the laws of section "what is counted" need to know.
struct table_counts {
  u32 in_flight[n_intents];   ///< transfers running, by the intent that owns them now
  u32 late_in_flight;         ///< transfers that speculation started and a demand has joined
  u32 resident_unused;
  u32 scratch_in_flight;      ///< transfers into scratch, which a cache knows of and a table does not
};

template <policy_bundle Policy>
table_counts count_slots(table_reader<Policy> const& t) {
  table_counts c{};
  for (u32 s = 0; s < t.header().n_slots; ++s) {
    u32 const word = t.word(s);
    bool const unused = (word & slot_word::unused) != 0;
    bool const loading = slot_word::state(word) == slot_state::reserved || (word & slot_word::loading) != 0;
    if (loading) {
      if ((word & slot_word::from_hint) != 0 && !unused) {
        ++c.late_in_flight;
      } else {
        ++c.in_flight[static_cast<u32>(unused ? intent::speculative : intent::demand)];
      }
    } else if (slot_word::state(word) == slot_state::resident && unused) {
      ++c.resident_unused;
    }
  }
  return c;
}

/// Checks every numbered invariant. Host only; reads the whole block, O(experts + slots + transfers^2).
template <policy_bundle Policy>
audit_result audit(table_reader<Policy> const& t) {
  using view = table_reader<Policy>;
  block_header const& h = t.header();
  if (h.magic != block_magic || h.format != block_format || h.capacity > h.n_slots ||
      h.n_layers == 0 || (!Policy::pool::spans_layers && h.n_layers != 1) || h.n_slots > max_slots ||
      h.in_flight > h.n_slots) {
    return {invariant::A01_header, 0};
  }
  for (u32 row = 0; row < h.n_layers; ++row) {
    if (t.layer(row).n_experts > h.n_experts) {
      return {invariant::A01_header, row};
    }
  }

  u32 by_state[5] = {};
  u32 unused = 0;
  u32 leases = 0;
  for (u32 s = 0; s < h.n_slots; ++s) {
    u32 const word = t.word(s);
    u32 const raw_state = word & slot_word::state_mask;
    if (raw_state > slot_word::of(slot_state::retired)) {
      return {invariant::A02_state_counts, s};
    }
    slot_state const state = slot_word::state(word);
    ++by_state[raw_state];
    leases += slot_word::leases(word);
    bool const holds = state == slot_state::reserved || state == slot_state::resident;
    if (holds) {
      u32 const row = view::row_of(t.owner(s));
      u32 const expert = view::expert_of(t.owner(s));
      if (row >= h.n_layers || expert >= t.layer(row).n_experts ||
          (t.expert(t.index_of(row, expert)).where & expert_word::slot_mask) != s + 1) {
        return {invariant::A03_reciprocal, s};
      }
      unused += (word & slot_word::unused) != 0 ? 1 : 0;
      bool const pinned = (t.expert(t.index_of(row, expert)).where & expert_word::pinned) != 0;
      if (pinned != ((word & slot_word::pinned) != 0)) {
        return {invariant::A10_pins, s};
      }
      if ((word & (slot_word::loading | slot_word::returns)) != 0 ||
          (state == slot_state::resident && (word & slot_word::from_hint) != 0)) {
        return {invariant::A04_empty_is_bare, s};
      }
    } else if (state != slot_state::draining && (word != raw_state || t.owner(s) != 0)) {
      return {invariant::A04_empty_is_bare, s};
    }
    if (s < h.capacity ? state == slot_state::retired
                       : state != slot_state::retired &&
                             (state != slot_state::draining || (word & slot_word::returns) != 0)) {
      return {invariant::A05_capacity, s};
    }
    if (state == slot_state::draining &&
        ((s < h.capacity) != ((word & slot_word::returns) != 0) ||
         (slot_word::leases(word) == 0 && (word & slot_word::loading) == 0))) {
      return {invariant::A05_capacity, s};
    }
    if (!speculates<Policy> && (word & (slot_word::unused | slot_word::from_hint)) != 0) {
      return {invariant::A07_unused, s};
    }
    if (state == slot_state::free && s < h.free_hint) {
      return {invariant::A15_free_hint, s};
    }
  }
  for (u32 i = 0; i < h.n_scratch; ++i) {
    if ((t.scratch_word(i) & (slot_word::one_lease - 1)) != 0) {
      return {invariant::A04_empty_is_bare, h.n_slots + i};
    }
  }
  if (by_state[slot_word::of(slot_state::reserved)] != h.reserved ||
      by_state[slot_word::of(slot_state::resident)] != h.resident ||
      by_state[slot_word::of(slot_state::draining)] != h.draining ||
      by_state[slot_word::of(slot_state::retired)] != h.retired) {
    return {invariant::A02_state_counts, h.n_slots};
  }
  if (unused != h.unused || (speculates<Policy> ? unused > h.speculative_slots : unused != 0)) {
    return {invariant::A07_unused, h.n_slots};
  }
  if (leases != h.leases) {
    return {invariant::A09_leases, leases};
  }

  u32 loading = 0;
  for (u32 s = 0; s < h.n_slots; ++s) {
    u32 const word = t.word(s);
    loading += slot_word::state(word) == slot_state::reserved || (word & slot_word::loading) != 0 ? 1 : 0;
  }
  for (u32 j = 0; j < h.n_slots; ++j) {
    u32 const slot = t.in_flight(j);
    if (j >= h.in_flight) {
      if (slot != 0) {
        return {invariant::A08_in_flight, j};
      }
      continue;
    }
    u32 const word = slot < h.n_slots ? t.word(slot) : 0;
    if (slot_word::state(word) != slot_state::reserved && (word & slot_word::loading) == 0) {
      return {invariant::A08_in_flight, j};
    }
    for (u32 i = 0; i < j; ++i) {
      if (t.in_flight(i) == slot) {
        return {invariant::A08_in_flight, j};
      }
    }
  }
  if (loading != h.in_flight) {
    return {invariant::A08_in_flight, loading};
  }

  u32 pins = 0;
  // a rebase leaves ages of half the range, and the next one comes 2^30 ticks later
  constexpr u32 oldest = u32_max / 2 + (1u << detail::rebase_bits);
  for (u32 row = 0; row < h.n_layers; ++row) {
    u32 held = 0;
    clocks const now = t.now(row, h.model_tick);
    for (u32 e = 0; e < h.n_experts; ++e) {
      u32 const index = t.index_of(row, e);
      expert_record const& record = t.expert(index);
      if (e >= t.layer(row).n_experts && (record.where != 0 || record.last != 0)) {
        return {invariant::A12_never, index};
      }
      u32 const where = record.where & expert_word::slot_mask;
      if (where != 0) {
        ++held;
        u32 const s = where - 1;
        bool const holds = s < h.n_slots && (slot_word::state(t.word(s)) == slot_state::reserved ||
                                             slot_word::state(t.word(s)) == slot_state::resident);
        if (!holds || t.owner(s) != view::pack_owner(row, e)) {
          return {invariant::A03_reciprocal, index};
        }
      }
      pins += (record.where & expert_word::pinned) != 0 ? 1 : 0;
      bool const accessed = (record.where & expert_word::accessed) != 0;
      if (accessed && age_of(now.tick, record.last) > oldest) {
        return {invariant::A11_clocks, index};
      }
      if constexpr (!std::is_empty_v<typename view::score_state>) {
        auto const* const bytes = reinterpret_cast<unsigned char const*>(&t.score_of(index));
        bool blank = true;
        for (u64 b = 0; b < sizeof(typename view::score_state); ++b) {
          blank = blank && bytes[b] == 0;
        }
        // a contextual score knows something of every expert of the layer
        bool const may_be_known = contextual_score<typename view::score> && e < t.layer(row).n_experts;
        if (!accessed && !blank && !may_be_known) {
          return {invariant::A12_never, index};
        }
      }
      if (!accessed && record.last != 0) {
        return {invariant::A12_never, index};
      }
      if constexpr (requires { t.parts().score.plausible(t.score_of(index), now); }) {
        if (accessed && !t.parts().score.plausible(t.score_of(index), now)) {
          return {invariant::A13_score, index};
        }
      }
    }
    if (held != t.layer(row).held) {
      return {invariant::A06_held, row};
    }
  }
  if (pins != h.pinned) {
    return {invariant::A10_pins, pins};
  }
  auto const listed = [&](u32 s) {
    slot_state const state = slot_word::state(t.word(s));
    return (state == slot_state::reserved || state == slot_state::resident) &&
           (t.word(s) & slot_word::unused) == 0;
  };
  if constexpr (requires { t.parts().selector.consistent(t, h.n_slots, listed); }) {
    if (!t.parts().selector.consistent(t, h.n_slots, listed)) {
      return {invariant::A14_selector, 0};
    }
  }
  return {};
}

}  // namespace warmset::inline v0
