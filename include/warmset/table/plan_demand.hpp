// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/lanes.hpp"
#include "plan.hpp"

namespace warmset::inline v0 {

/// What a step needs to be told besides its ids.
struct step_input {
  u32 row;         ///< row of the layer in its pool
  phase in_phase;
  u32 model_tick;  ///< recency clock of all pools; read by scores of model scope only
};

namespace detail {

/// Distinct valid ids of the row in the order of their last occurrence; marks them, returns how many.
template <class Policy, lane_group Group, class Id>
WARMSET_HD u32 find_distinct(Group const& g, u32 n_experts, Id const* ids, u32 n_ids,
                             workspace_of<Policy>& w, plan_of<Policy>& p) {
  static_assert(sizeof(Id) <= sizeof(u32), "routed ids have at most 32 bits");
  // Nearly every step names distinct valid experts: marking them finds that out.
  constexpr u32 likely_distinct = 64;
  g.leader([&] {
    w.unmark_all();
    u32 const stamp = w.stamp;
    u32 distinct = 0;
    if (n_ids <= likely_distinct && n_ids <= n_experts) {
      for (; distinct < n_ids; ++distinct) {
        u32 const id = static_cast<u32>(ids[distinct]);  // negative ids become large
        if (id >= n_experts || w.seen[id] == stamp) {
          break;
        }
        w.seen[id] = stamp;
        p.expert[distinct] = id;
      }
    }
    p.n = distinct;
  });
  if (p.n == n_ids) {
    return n_ids;
  }
  auto const valid = [=](u32 i) { return static_cast<u32>(ids[i]) < n_experts; };
  g.leader([&] {
    w.unmark_all();
    for (u32 i = 0; i < n_ids; ++i) {
      if (valid(i)) {
        w.position[static_cast<u32>(ids[i])] = i;
        w.mark(static_cast<u32>(ids[i]));
      }
    }
  });
  return g.append_in_order(
      n_ids, [&](u32 i) { return valid(i) && w.position[static_cast<u32>(ids[i])] == i; },
      [&](u32 i, u32 at) { p.expert[at] = static_cast<u32>(ids[i]); });
}

/// Counts the ids that named no further expert. One lane.
template <class Policy, class Id>
WARMSET_HD void count_skipped(u32 n_experts, Id const* ids, u32 n_ids, plan_of<Policy>& p) {
  for (u32 i = 0; i < n_ids; ++i) {
    if (static_cast<u32>(ids[i]) >= n_experts) {
      ++(static_cast<i64>(ids[i]) < 0 ? p.sentinels : p.out_of_range);
    }
  }
  p.duplicates = n_ids - p.n - p.sentinels - p.out_of_range;
}

/// Gives the entries of kind `kind` scratch slots, in waves of the free ones. Returns false where none is
/// free: the plan is busy.
template <class Policy, lane_group Group>
WARMSET_HD bool assign_scratch(Group const& g, table_reader<Policy> const& t, access_kind kind,
                               workspace_of<Policy>& w, plan_of<Policy>& p) {
  u32 const first = t.header().n_slots;
  u32 const width = min_of(t.header().n_scratch, Policy::max_experts);
  u32 const n_free = g.append_in_order(
      width, [&](u32 i) { return t.scratch_word(i) == 0; },
      [&](u32 i, u32 at) { w.position[at] = first + i; });
  if (n_free == 0) {
    return false;
  }
  u32 const n = g.append_in_order(
      p.n, [&](u32 i) { return p.how[i] == kind; },
      [&](u32 i, u32 at) {
        p.slot[i] = w.position[at % n_free];
        p.wave[i] = at / n_free;
      });
  g.leader([&] {
    p.n_declined = n;
    p.n_waves = ceil_div(n, n_free);
  });
  return true;
}

/// Why the residents could not make way.
template <class Policy, lane_group Group>
WARMSET_HD no_victim_counts count_obstacles(Group const& g, table_reader<Policy> const& t) {
  auto const state_is = [&](u32 s, slot_state wanted) {
    return slot_word::state(t.word(s)) == wanted;
  };
  u32 const n = t.header().capacity;
  no_victim_counts c{};
  c.leased = g.count(n, [&](u32 s) {
    return state_is(s, slot_state::resident) && slot_word::leases(t.word(s)) != 0;
  });
  c.loading = g.count(n, [&](u32 s) { return state_is(s, slot_state::reserved); });
  c.pinned = g.count(n, [&](u32 s) {
    return state_is(s, slot_state::resident) && slot_word::leases(t.word(s)) == 0 &&
           (t.word(s) & slot_word::pinned) != 0;
  });
  c.guarded = g.count(n, [&](u32 s) { return state_is(s, slot_state::resident); }) - c.leased - c.pinned;
  return c;
}

/// Collects the slots that the misses of a step get, in w.source; returns how many. Order: free slots in
/// index order, expired speculation in index order, demanded residents in the selector's order, and as a
/// last resort what is kept for speculation.
template <class Policy, lane_group Group>
WARMSET_HD u32 find_sources(Group const& g, table_reader<Policy> const& t, u32 row, u32 wanted,
                            u32 promoted, candidate_view<Policy> const& candidates,
                            workspace_of<Policy>& w, plan_of<Policy>& p) {
  block_header const& h = t.header();
  u32 const n_free = h.free();
  // a shrunken pool keeps at least one slot for demand
  u32 const reserve = keeps_reserve<Policy> ? min_of(h.speculative_slots, saturating_sub(h.capacity, 1u)) : 0;
  u32 const ordinary = h.reserved + h.resident - h.unused + promoted;
  u32 const bound = saturating_sub(h.capacity, reserve);
  u32 const roomy = min_of(wanted, saturating_sub(bound, ordinary));
  u32 found = 0;
  u32 hint = h.free_hint;

  auto const not_demanded = [&](u32 s) {
    u32 const owner = t.owner(s);
    return table_reader<Policy>::row_of(owner) != row ||
           !w.is_marked(table_reader<Policy>::expert_of(owner));
  };
  auto const take_free = [&](u32 limit) {
    constexpr u32 chunk = 32;
    limit = min_of(limit, n_free);
    while (found < limit && hint < h.capacity) {
      u32 const before = found;
      u32 const room = limit - found;
      u32 const base = hint;
      u32 const here = g.append_in_order(
          min_of(chunk, h.capacity - base), [&](u32 i) { return t.word(base + i) == 0; },
          [&](u32 i, u32 at) {
            if (at < room) {
              w.source[before + at] = base + i;
            }
          });
      found = before + min_of(here, room);
      hint = here > room ? w.source[found - 1] + 1 : min_of(base + chunk, h.capacity);
    }
  };
  auto const take_spares = [&](u32 limit, bool after_their_step) {
    if (found >= limit || h.unused == 0) {
      return;
    }
    u32 const before = found;
    u32 const room = limit - found;
    auto const usable = [&](u32 s, u32 n_taken) {
      bool fits = slot_word::spare(t.word(s)) && not_demanded(s) &&
                  expired<Policy>(t, s) == after_their_step;
      for (u32 i = 0; fits && i < n_taken; ++i) {
        fits = w.source[i] != s;  // an earlier pass has it
      }
      return fits && above_floor<Policy>(t, row, s, w.source, n_taken);
    };
    if constexpr (Policy::pool::spans_layers) {
      // one after another: each may bring its row down to the floor
      for (u32 s = 0; s < h.capacity && found < limit; ++s) {
        if (usable(s, found)) {
          g.leader([&] { w.source[found] = s; });
          ++found;
        }
      }
    } else {
      u32 const here = g.append_in_order(
          h.capacity, [&](u32 s) { return usable(s, before); },
          [&](u32 s, u32 at) {
            if (at < room) {
              w.source[before + at] = s;
            }
          });
      found = before + min_of(here, room);
    }
  };

  if (n_free != 0) {
    take_free(roomy);
  }
  if constexpr (speculates<Policy>) {
    take_spares(roomy, true);
  }
  u32 const excess = min_of(saturating_sub(ordinary, bound), Policy::max_experts);
  u32 n_trims = 0;
  while (found < wanted || n_trims < excess) {
    slot_id const candidate = t.parts().selector.next(g, candidates, p.walk);
    if (candidate == no_slot) {
      break;
    }
    u32 const s = candidate.value;
    if (!not_demanded(s) || !above_floor<Policy>(t, row, s, w.source, found, p.trims, n_trims)) {
      continue;
    }
    if (found < wanted) {
      g.leader([&] { w.source[found] = s; });
      ++found;
    } else {
      g.leader([&] { p.trims[n_trims] = s; });
      ++n_trims;
    }
  }
  if constexpr (speculates<Policy>) {
    if (found < wanted) {
      // free slots stand first in w.source, so that at most n_free of them have been taken
      u32 free_taken = 0;
      for (u32 i = 0; i < found; ++i) {
        free_taken += t.word(w.source[i]) == 0 ? 1 : 0;
      }
      u32 const rest = n_free - free_taken;
      u32 const base = found;
      for (u32 s = hint; rest != 0 && found < wanted && found - base < rest && s < h.capacity; ++s) {
        if (t.word(s) == 0) {
          g.leader([&] { w.source[found] = s; });
          ++found;
          hint = s + 1;
        }
      }
      if constexpr (keeps_reserve<Policy>) {
        take_spares(wanted, true);
      }
      take_spares(wanted, false);
    }
  }
  g.leader([&] {
    p.free_hint = hint;
    p.n_trims = n_trims;
  });
  return found;
}

}  // namespace detail

/// Decides a demand step: a pure function of (table, ids, policy). Does not synchronise, allocates nothing,
/// integers only.
///
/// @param ids  `n_ids` routed ids of the row's experts; negative and out-of-range ids are counted and
///             skipped, duplicates are one demand at their last occurrence
/// @param w    scratch memory of the caller
/// @param p    the decision: every id judged against residency at the start of the step; nothing the step
///             demands is evicted by it. Free slots in index order, then victims in the selector's order;
///             misses take their slots in ascending expert index. With more misses than slots the last ones
///             in demand order are declined.
///
/// Complexity: O(ids); O(1) per hit; per miss one step of the selector's walk.
template <class Policy, lane_group Group, class Id>
WARMSET_HD void plan_demand(Group const& g, table_reader<Policy> const& t, step_input in,
                            Id const* ids, u32 n_ids, workspace_of<Policy>& w,
                            plan_of<Policy>& p) {
  block_header const& h = t.header();
  g.leader([&] {
    p.version = h.version;
    p.row = in.row;
    p.model_tick = in.model_tick;
    p.in_phase = in.in_phase;
    p.for_intent = intent::demand;
    p.reserved_byte = 0;
    p.n_loads = 0;
    p.n_trims = 0;
    p.n_waves = 0;
    p.n_declined = 0;
    p.free_hint = h.free_hint;
    p.sentinels = 0;
    p.out_of_range = 0;
    p.duplicates = 0;
    p.hints_offered = 0;
    p.guard_asked = 0;
    p.guard_refused = 0;
    p.no_victim = {};
    p.walk = {};
  });
  u32 const n_experts = t.layer(in.row).n_experts;
  u32 const n = detail::find_distinct<Policy>(g, n_experts, ids, n_ids, w, p);
  g.leader([&] {
    p.n = n;
    if (n != n_ids) {
      detail::count_skipped<Policy>(n_experts, ids, n_ids, p);
    }
  });
  if (n == 0) {
    g.leader([&] { p.kind = plan_kind::empty; });
    return;
  }

  u32 const n_misses = g.append_in_order(
      n,
      [&](u32 i) {
        u32 const where = t.expert(t.index_of(in.row, p.expert[i])).where & expert_word::slot_mask;
        if (where == 0) {
          return true;
        }
        u32 const s = where - 1;
        u32 const word = t.word(s);
        p.slot[i] = s;
        p.how[i] = access_kind::hit;
        if (word != slot_word::of(slot_state::resident)) {
          if (slot_word::state(word) != slot_state::resident) {
            p.how[i] = access_kind::late;
          } else if (speculates<Policy> && (word & slot_word::unused) != 0) {
            p.how[i] = access_kind::first_use;
          }
        }
        return false;
      },
      [&](u32 i, u32 at) { w.miss[at] = i; });

  if (n > t.usable()) {
    g.for_each(n_misses, [&](u32 j) { p.how[w.miss[j]] = access_kind::overflow_miss; });
    g.for_each(n, [&](u32 i) {
      bool const absent =  // in flight is not resident
          p.how[i] == access_kind::overflow_miss || p.how[i] == access_kind::late;
      p.how[i] = absent ? access_kind::overflow_miss : access_kind::overflow_hit;
    });
    bool const any_absent = g.any(n, [&](u32 i) { return p.how[i] == access_kind::overflow_miss; });
    bool const served =
        !any_absent || detail::assign_scratch<Policy>(g, t, access_kind::overflow_miss, w, p);
    g.leader([&] { p.kind = served ? plan_kind::overflow : plan_kind::busy; });
    return;
  }
  g.leader([&] { p.kind = plan_kind::step; });

  u32 promoted = 0;
  if constexpr (speculates<Policy>) {
    promoted = g.count(n - n_misses == 0 ? 0 : n, [&](u32 i) {
      u32 const where = t.expert(t.index_of(in.row, p.expert[i])).where & expert_word::slot_mask;
      return where != 0 && (t.word(where - 1) & slot_word::unused) != 0;
    });
  }
  if (n_misses == 0 && promoted == 0) {
    return;
  }

  // Admission, in demand order; w.miss keeps the admitted ones.
  u32 wanted = n_misses;
  if constexpr (Policy::admission::may_decline) {
    clocks const now = t.now(in.row, in.model_tick);
    u32 const n_free = h.free();
    g.leader([&] {
      u32 admitted = 0;
      for (u32 j = 0; j < n_misses; ++j) {
        u32 const i = w.miss[j];
        u32 const index = t.index_of(in.row, p.expert[i]);
        expert_record const& record = t.expert(index);
        bool const accessed = (record.where & expert_word::accessed) != 0;
        admission_question const question{t.value(index, now), age_of(now.tick, record.last), admitted,
                                          n_free, accessed, in.in_phase};
        p.how[i] = access_kind::declined;
        if (t.parts().admission.admits(question)) {
          w.miss[admitted++] = i;
        }
      }
      w.position[0] = admitted;
    });
    wanted = w.position[0];
  }

  detail::candidate_view<Policy> const candidates{t, in.model_tick};
  u32 const installed =
      detail::find_sources<Policy>(g, t, in.row, wanted, promoted, candidates, w, p);

  g.leader([&] {
    for (u32 j = installed; j < wanted; ++j) {
      p.how[w.miss[j]] = access_kind::declined;
    }
    // ascending expert index; steps are short
    for (u32 j = 1; j < installed; ++j) {
      u32 const i = w.miss[j];
      u32 at = j;
      for (; at != 0 && p.expert[w.miss[at - 1]] > p.expert[i]; --at) {
        w.miss[at] = w.miss[at - 1];
      }
      w.miss[at] = i;
    }
    for (u32 j = 0; j < installed; ++j) {
      u32 const i = w.miss[j];
      p.how[i] = access_kind::load;
      p.slot[i] = w.source[j];
      p.loads[j] = {p.expert[i], w.source[j]};
    }
    p.n_loads = installed;
  });
  if (installed < wanted) {
    no_victim_counts const counts = detail::count_obstacles<Policy>(g, t);
    g.leader([&] { p.no_victim = counts; });
  }
  if (installed < n_misses &&
      !detail::assign_scratch<Policy>(g, t, access_kind::declined, w, p)) {
    g.leader([&] {
      p.kind = plan_kind::busy;
      p.n_loads = 0;
      p.n_trims = 0;
    });
  }
}

}  // namespace warmset::inline v0
