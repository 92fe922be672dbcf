// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/lanes.hpp"
#include "plan.hpp"

namespace warmset::inline v0 {

/// What a batch of hints needs to be told besides its ids.
struct speculation_input {
  u32 row;
  u32 target;      ///< the layer's step that the hints are for: layer(row).step + 1 is the next one
  u32 max_loads;   ///< what the permit allows
  u32 model_tick;
  phase in_phase = phase::decode;  ///< under which the hints and their loads are counted
};

/// Decides a batch of hints for one row: a pure function of (table, ids, policy). The same entry for single,
/// batch and sibling requests. Never touches score, tick or step.
///
/// @param ids  experts of the row, surest first. Each id at most once; what is resident, in flight, padding
///             or out of range is skipped by reason.
///
/// Slots: free ones while fewer than `speculative_slots` are speculated and unused; then speculation whose
/// step has passed, in index order; then residents in the selector's order. The guard is asked exactly when
/// an eviction is next. A selector that `asks_again` goes on behind a refused candidate, others drop the
/// hint. Complexity: O(1) per skipped hint, per eviction one pass over the slots or one step of the walk.
template <class Policy, lane_group Group, class Id>
WARMSET_HD void plan_speculative(Group const& g, table_reader<Policy> const& t, speculation_input in,
                                 Id const* ids, u32 n_ids, workspace_of<Policy>& w,
                                 plan_of<Policy>& p) {
  static_assert(speculates<Policy>, "the bundle has predictor none: it takes no hints");
  block_header const& h = t.header();
  using view = table_reader<Policy>;
  u32 const n_experts = t.layer(in.row).n_experts;
  bool const too_late = t.layer(in.row).step - in.target <= u32_max / 2;
  clocks const now = t.now(in.row, in.model_tick);
  detail::candidate_view<Policy> const candidates{t, in.model_tick, in.row};

  g.leader([&] {
    p.version = h.version;
    p.row = in.row;
    p.model_tick = in.model_tick;
    p.kind = plan_kind::hints;
    p.for_intent = intent::speculative;
    p.in_phase = in.in_phase;
    p.reserved_byte = 0;
    p.n = 0;
    p.n_loads = 0;
    p.n_trims = 0;
    p.n_waves = 0;
    p.n_declined = 0;
    p.free_hint = h.free_hint;
    p.target = in.target;
    p.sentinels = 0;
    p.out_of_range = 0;
    p.duplicates = 0;
    p.hints_offered = n_ids;
    p.no_victim = {};
    for (u32 r = 0; r < n_drop_reasons; ++r) {
      p.dropped[r] = 0;
    }
  });
  g.leader([&] { w.unmark_all(); });

  u32 n_loads = 0;
  u32 unused = h.unused;
  u32 n_free = h.free();
  u32 hint = h.free_hint;
  u32 asked = 0;
  u32 refused = 0;
  auto walk = typename Policy::selector::walk_state{};  // each lane's own
  slot_id pending = no_slot;  // a candidate that no hint has taken yet
  bool exhausted = false;

  auto const taken = [&](u32 s) {
    for (u32 i = 0; i < n_loads; ++i) {
      if (w.source[i] == s) {
        return true;
      }
    }
    return false;
  };
  auto const permits = [&](u32 index, u32 victim_slot, bool spare) {
    u32 const owner = t.owner(victim_slot);
    u32 const victim = t.index_of_owner(owner);
    clocks const victim_now = t.now(view::row_of(owner), in.model_tick);
    duel d{t.value(victim, victim_now), t.value(index, now), 0, t.heat(victim, victim_now), spare};
    if constexpr (counting_score<typename Policy::score>) {
      d.one_count = Policy::score::one_count;
    }
    ++asked;
    bool const allowed = t.parts().guard.permits(d);
    refused += allowed ? 0 : 1;
    return allowed;
  };

  for (u32 j = 0; j < n_ids; ++j) {
    auto const drop = [&](reason why) { g.leader([&] { ++p.dropped[static_cast<u32>(why)]; }); };
    i64 const id = static_cast<i64>(ids[j]);
    if (id < 0 || id >= static_cast<i64>(n_experts)) {
      drop(id < 0 ? reason::sentinel : reason::out_of_range);
      continue;
    }
    u32 const expert = static_cast<u32>(id);
    if (w.is_marked(expert)) {
      drop(reason::duplicate);
      continue;
    }
    g.leader([&] { w.mark(expert); });
    u32 const index = t.index_of(in.row, expert);
    u32 const where = t.expert(index).where & expert_word::slot_mask;
    if (where != 0) {
      bool const is_resident = slot_word::state(t.word(where - 1)) == slot_state::resident;
      drop(is_resident ? reason::resident : reason::in_flight);
      continue;
    }
    if (too_late) {
      drop(reason::too_late);
      continue;
    }
    if (n_loads >= in.max_loads || n_loads >= Policy::max_experts) {
      drop(reason::limited);
      continue;
    }

    u32 destination = u32_max;
    reason why = reason::no_victim;
    bool const below_bound = unused < h.speculative_slots;
    if (below_bound && n_free != 0) {
      for (; hint < h.capacity && destination == u32_max; ++hint) {
        if (t.word(hint) == 0) {
          destination = hint;
        }
      }
      --n_free;
    } else {
      // speculation whose step has passed
      bool any_spare = false;
      u32 from = 0;
      do {
        order_key const spare = g.min_key(h.unused != 0 ? h.capacity : 0, [&](u32 s, order_key& first) {
          bool const usable = s >= from && slot_word::spare(t.word(s)) && !taken(s) &&
                              detail::expired<Policy>(t, s) &&
                              detail::above_floor<Policy>(t, in.row, s, w.source, n_loads);
          if (usable) {
            lower(first, order_key{0, s});
          }
        });
        if (spare == no_key) {
          break;
        }
        any_spare = true;
        from = slot_of(spare) + 1;
        if (permits(index, slot_of(spare), true)) {
          destination = slot_of(spare);
          --unused;
        } else {
          why = reason::guard;
        }
      } while (destination == u32_max && Policy::selector::asks_again);
      if (destination == u32_max && below_bound && (!any_spare || Policy::selector::asks_again)) {
        if constexpr (Policy::selector::asks_again) {
          walk = {};
          exhausted = false;
          pending = no_slot;
        }
        while (destination == u32_max && !exhausted) {
          if (pending == no_slot) {
            pending = t.parts().selector.next(g, candidates, walk);
            exhausted = pending == no_slot;
            if (exhausted || taken(pending.value) ||
                !detail::above_floor<Policy>(t, in.row, pending.value, w.source, n_loads)) {
              pending = no_slot;
              continue;
            }
          }
          if (permits(index, pending.value, false)) {
            destination = pending.value;
            pending = no_slot;
          } else {
            why = reason::guard;
            if constexpr (Policy::selector::asks_again) {
              pending = no_slot;
            } else {
              break;
            }
          }
        }
      } else if (destination == u32_max && !any_spare) {
        why = reason::speculative_budget;
      }
    }
    if (destination == u32_max) {
      drop(why);
      continue;
    }
    ++unused;
    g.leader([&] {
      w.source[n_loads] = destination;
      p.loads[n_loads] = {expert, destination};
    });
    ++n_loads;
  }
  g.leader([&] {
    p.walk = walk;
    p.n_loads = n_loads;
    p.free_hint = hint;
    p.guard_asked = asked;
    p.guard_refused = refused;
  });
}

}  // namespace warmset::inline v0
