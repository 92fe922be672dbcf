// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/array_view.hpp"
#include "../core/lanes.hpp"
#include "plan.hpp"

namespace warmset::inline v0 {

/// What the caller says of a step besides its ids. Scores that do not read it ignore it.
struct step_facts {
  phase in_phase = phase::decode;
  u32 sequence = 0;  ///< whose step it is, where `tuning::sequences` take turns
  u32 token = step_context::no_token;  ///< input token, or a hash of the micro-batch's tokens
  array_view<i32 const> supplied = {};  ///< the engine's own keys, one per expert of the layer, or none
};

/// What plan needs to be told of a step besides its ids.
struct step_input {
  u32 row;         ///< row of the layer in its pool
  phase in_phase;
  u32 model_tick;  ///< recency clock of all pools; read by scores of model scope only
  // read by contextual scores only; see step_context
  u32 sequence = 0;
  u32 token = step_context::no_token;
  u32 const* previous = nullptr;
  u32 n_previous = 0;
  i32 const* supplied = nullptr;
};

namespace detail {

/// Whether two of the experts key(0) … key(n - 1) are equal; n is at most 32.
template <lane_group Group, class Key>
WARMSET_HD bool any_repeats(Group const& g, u32 n, Key&& key) {
  if constexpr (requires { g.any_repeats(n, key); }) {
    return g.any_repeats(n, key);
  } else {
    return g.any(n, [&](u32 i) {
      u32 const mine = key(i);
      bool repeats = false;
      for (u32 j = 0; j < i; ++j) {
        repeats |= key(j) == mine;
      }
      return repeats;
    });
  }
}

/// Finds the slot of entry i, which is then a hit as far as is known; false = the expert is absent, and how it is served
/// is still open.
template <class Policy>
WARMSET_HD bool find_slot(table_reader<Policy> const& t, u32 index, u32 i, plan_of<Policy>& p) {
  u32 const where = t.expert(index).where & expert_word::slot_mask;
  p.slot[i] = where - 1;
  p.how[i] = access_kind::hit;
  return where != 0;
}

/// Judges entry i against the state of its slot at the start of the step, if it has one.
template <class Policy>
WARMSET_HD void judge_slot(table_reader<Policy> const& t, u32 i, plan_of<Policy>& p) {
  if (p.slot[i] == no_slot.value) {
    return;
  }
  u32 const word = t.word(p.slot[i]);
  if (slot_word::state(word) != slot_state::resident) {
    p.how[i] = access_kind::late;
  } else if (speculates<Policy> && (word & slot_word::unused) != 0) {
    p.how[i] = access_kind::first_use;
  }
}

/// Whether every expert that has a slot is a resident that was demanded, so that judge_slot would tell nothing.
WARMSET_HD bool all_plain(block_header const& h) noexcept { return (h.reserved | h.unused) == 0; }

/// What the ids come to.
struct looked_up {
  u32 distinct;
  u32 misses;
};

/// Lists one more miss among the first n, which are in ascending expert index and stay so; steps are short. One lane.
WARMSET_HD void insert_by_expert(u32* miss, u32 n, u32 largest) {
  constexpr u32 few = 32;
  if (n < few) [[likely]] {  // without a branch on what nobody can foretell
    for (u32 i = 0; i < n; ++i) {
      u32 const other = miss[i];
      miss[i] = min_of(other, largest);
      largest = max_of(other, largest);
    }
  } else {
    for (; n != 0 && miss[n - 1] > largest; --n) {  // of wide steps most are in order
      miss[n] = miss[n - 1];
    }
  }
  miss[n] = largest;
}

/// Puts a step's misses into ascending expert index. One lane.
WARMSET_HD void sort_by_expert(u32* miss, u32 n) {
  for (u32 j = 1; j < n; ++j) {
    insert_by_expert(miss, j, miss[j]);
  }
}

/// Whether one lane may give a full pool's victims away as it comes to them, to misses that are listed in ascending expert
/// index from the first: nobody is asked about a miss or a victim, and all that can be wrong is that there are too few.
template <class Policy, class Group>
inline constexpr bool takes_victims_in_passing =
    Group::is_single && !speculates<Policy> && !Policy::admission::may_decline && !Policy::pool::spans_layers;

/// Calls the first n entries hits. One lane; n is at most 64.
template <class Policy>
WARMSET_HD void call_all_hits(plan_of<Policy>& p, u32 n) {
  constexpr u32 together = 8;
  if constexpr (Policy::max_experts >= 64) {
    for (u32 i = 0; i < n; i += together) {  // a word at a time, and a few that are none's
      for (u32 j = 0; j < together; ++j) {
        p.how[i + j] = access_kind::hit;
      }
    }
  } else {
    for (u32 i = 0; i < n; ++i) {
      p.how[i] = access_kind::hit;
    }
  }
}

/// look_up of any ids: padding, such as are out of range, and repetitions.
template <class Policy, lane_group Group, class Id>
WARMSET_HD WARMSET_APART looked_up look_up_any(Group const& g, table_reader<Policy> const& t, u32 row, Id const* ids,
                                               u32 n_ids, workspace_of<Policy>& w, plan_of<Policy>& p) {
  u32 const n_experts = t.layer(row).n_experts;
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
  u32 const distinct = g.append_in_order(
      n_ids, [&](u32 i) { return valid(i) && w.position[static_cast<u32>(ids[i])] == i; },
      [&](u32 i, u32 at) { p.expert[at] = static_cast<u32>(ids[i]); });
  g.leader([&] { p.n = distinct; });
  u32 const n = p.n;
  u32 const misses = g.append_in_order(
      n, [&](u32 i) { return !find_slot<Policy>(t, t.index_of(row, p.expert[i]), i, p); },
      [&](u32 i, u32 at) { w.miss[at] = miss_word::of(p.expert[i], i); });
  if constexpr (takes_victims_in_passing<Policy, Group>) {
    sort_by_expert(w.miss, misses);
  }
  return {n, misses};
}

/// Finds the distinct valid ids of the row in the order of their last occurrence and where they are, marks them,
/// and lists the absent ones in w.miss: in this order, or by expert for takes_victims_in_passing.
template <class Policy, lane_group Group, class Id>
WARMSET_HD looked_up look_up(Group const& g, table_reader<Policy> const& t, u32 row, Id const* ids,
                             u32 n_ids, workspace_of<Policy>& w, plan_of<Policy>& p) {
  static_assert(sizeof(Id) <= sizeof(u32), "routed ids have at most 32 bits");
  u32 const n_experts = t.layer(row).n_experts;
  // Nearly every step names distinct valid experts, and is looked up in passing.
  constexpr u32 likely_distinct = Group::is_single ? 64 : 32;
  bool const is_likely = n_ids <= likely_distinct && n_ids <= n_experts;
  if constexpr (Group::is_single) {
    w.unmark_all();
    u32 const stamp = w.stamp;
    u64 const n_likely = is_likely ? n_ids : 0;
    u64 i = 0;
    u64 absent = 0;  // by place, in a register: of the hits nothing is written that nobody reads
    for (; i < n_likely; ++i) {
      u32 const id = static_cast<u32>(ids[i]);  // negative ids become large
      if (id >= n_experts || w.seen[id] == stamp) {
        break;
      }
      w.seen[id] = stamp;
      p.expert[i] = id;
      u32 const where = t.expert(t.index_of(row, id)).where & expert_word::slot_mask;
      p.slot[i] = where - 1;
      absent |= u64{where == 0} << i;
    }
    call_all_hits<Policy>(p, static_cast<u32>(i));
    u32 misses = 0;
    for (u64 rest = absent; rest != 0; rest &= rest - 1) {
      u32 const at = lowest_bit(rest);
      u32 const miss = miss_word::of(p.expert[at], at);
      if constexpr (takes_victims_in_passing<Policy, Group>) {
        insert_by_expert(w.miss, misses, miss);
      } else {
        w.miss[misses] = miss;
      }
      ++misses;
    }
    u32 const distinct = static_cast<u32>(i);
    p.n = distinct;
    if (distinct == n_ids) [[likely]] {
      return {distinct, misses};
    }
  } else {
    bool const is_distinct = is_likely &&
                             !g.any(n_ids, [&](u32 i) { return static_cast<u32>(ids[i]) >= n_experts; }) &&
                             !any_repeats(g, n_ids, [&](u32 i) { return static_cast<u32>(ids[i]); });
    g.leader([&] {
      w.unmark_all();
      p.n = n_ids;
    });
    if (is_distinct) {
      return {n_ids, g.append_in_order(
                         n_ids,
                         [&](u32 i) {
                           u32 const id = static_cast<u32>(ids[i]);
                           w.mark(id);
                           p.expert[i] = id;
                           return !find_slot<Policy>(t, t.index_of(row, id), i, p);
                         },
                         [&](u32 i, u32 at) { w.miss[at] = miss_word::of(p.expert[i], i); })};
    }
  }
  return look_up_any<Policy>(g, t, row, ids, n_ids, w, p);
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
WARMSET_HD WARMSET_APART bool assign_scratch(Group const& g, table_reader<Policy> const& t, access_kind kind,
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
WARMSET_HD WARMSET_APART no_victim_counts count_obstacles(Group const& g, table_reader<Policy> const& t) {
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

/// What a contextual score sees of the experts while plan runs.
template <class Policy>
struct planned_experts {
  table_reader<Policy> const& t;
  workspace_of<Policy> const& w;
  u32 row;
  u32 model_tick;

  WARMSET_HD bool demanded(u32 x) const noexcept { return w.is_marked(x); }
  WARMSET_HD expert_facts facts(u32 x) const noexcept {
    return table_reader<Policy>::facts(t.expert(t.index_of(row, x)));
  }
  WARMSET_HD clocks now() const noexcept { return t.now(row, model_tick); }
};

/// Gives every expert of the row its key.
template <class Policy, lane_group Group>
WARMSET_HD void make_keys(Group const& g, table_reader<Policy> const& t, step_input const& in, workspace_of<Policy>& w,
                          plan_of<Policy>& p) {
  using score = typename Policy::score;
  u32 const n_experts = t.layer(in.row).n_experts;
  g.leader([&] {
    p.sequence = in.sequence;
    p.token = in.token;
    p.n_previous = 0;
    for (u32 i = 0; score::uses_previous_layer && i < in.n_previous; ++i) {
      if (in.previous[i] < n_experts) {  // of a layer that has more
        p.previous[p.n_previous++] = in.previous[i];
      }
    }
    p.n_supplied = score::uses_supplied && in.supplied != nullptr ? n_experts : 0;
  });
  if constexpr (score::uses_supplied) {
    g.for_each(p.n_supplied, [&](u32 i) { p.supplied[i] = in.supplied[i]; });
  }
  planned_experts<Policy> const experts{t, w, in.row, in.model_tick};
  auto const& rule = t.parts().score;
  unsigned char const* const context = t.context(in.row);
  auto const* const states = &t.score_of(t.index_of(in.row, 0));
  step_context step = context_of<Policy>(t, p);
  g.leader([&] { w.source[0] = rule.list_contexts(context, experts, step, w.position); });
  step.contexts = w.position;
  step.n_contexts = w.source[0];
  constexpr u32 columns = score_detail::block_columns<score, (Group::is_single ? score::columns : 4)>;
  g.for_each(ceil_div(n_experts, columns), [&](u32 block) {
    u32 const first = block * columns;
    score_detail::keys_of<columns>(rule, context, states, experts, step, first, min_of(first + columns, n_experts), p.key);
  });
}

/// Gives every expert of the row its key for a step of distinct valid ids, in p.key, and marks what it demands.
template <class Policy, lane_group Group, class Id>
WARMSET_HD i32 const* keys_of_step(Group const& g, table_reader<Policy> const& t, step_input const& in, Id const* ids,
                                   u32 n_ids, workspace_of<Policy>& w, plan_of<Policy>& p) {
  g.leader([&] {
    w.unmark_all();
    p.row = in.row;
    p.model_tick = in.model_tick;
    p.n = n_ids;
  });
  g.for_each(n_ids, [&](u32 i) {
    p.expert[i] = static_cast<u32>(ids[i]);
    w.mark(p.expert[i]);
  });
  make_keys<Policy>(g, t, in, w, p);
  return p.key;
}

/// Slots of demand after the step's hits, and as many as it may have before it takes what is kept for speculation.
struct demand_share {
  u32 ordinary;
  u32 bound;
};
template <class Policy>
WARMSET_HD demand_share share_of_demand(block_header const& h, u32 promoted) {
  // a shrunken pool keeps at least one slot for demand
  u32 const reserve = keeps_reserve<Policy> ? min_of(h.speculative_slots, saturating_sub(h.capacity, 1u)) : 0;
  return {h.reserved + h.resident - h.unused + promoted, saturating_sub(h.capacity, reserve)};
}

/// The score by which an admission judges a missing expert of the row: what victims are ordered by as well.
template <class Policy>
WARMSET_HD u64 rank_of_miss(table_reader<Policy> const& t, candidate_view<Policy> const& candidates, u32 row,
                            u32 expert) {
  u32 const index = t.index_of(row, expert);
  return candidates.rank(index, table_reader<Policy>::facts(t.expert(index)),
                         table_reader<Policy>::pack_owner(row, expert));
}

/// Puts the first n misses into the order of key(j), smallest first; no two are equal. O(n^2) over the lanes.
template <class Policy, lane_group Group, class Key>
WARMSET_HD void sort_misses(Group const& g, u32 n, workspace_of<Policy>& w, Key&& key) {
  g.for_each(n, [&](u32 j) {
    order_key const mine = key(j);
    u32 rank = 0;
    for (u32 i = 0; i < n; ++i) {
      rank += key(i) < mine ? 1 : 0;
    }
    w.source[rank] = w.miss[j];
  });
  g.for_each(n, [&](u32 j) { w.miss[j] = w.source[j]; });
}

/// Asks the admission about every miss, in demand order or the most recent first: w.miss keeps the admitted
/// ones in that order, and all are marked declined until they get their slot. Returns how many are admitted.
/// Where the admission wants the misses by falling score, they are in that order afterwards.
template <class Policy, lane_group Group>
WARMSET_HD u32 admit_misses(Group const& g, table_reader<Policy> const& t, u32 n_misses, u32 promoted,
                            candidate_view<Policy> const& candidates, workspace_of<Policy>& w,
                            plan_of<Policy>& p) {
  using admission = typename Policy::admission;
  u32 const row = p.row;
  u32 const tick = t.header().tick;
  auto const score_of_miss = [&](u32 j) {
    return rank_of_miss<Policy>(t, candidates, row, miss_word::expert(w.miss[j]));
  };
  if constexpr (admit_detail::recent_first<admission>) {
    g.for_each(n_misses, [&](u32 j) {
      expert_record const& record = t.expert(t.index_of(row, miss_word::expert(w.miss[j])));
      bool const accessed = (record.where & expert_word::accessed) != 0;
      w.position[j] = accessed ? age_of(tick, record.last) : u32_max;
    });
    sort_misses<Policy>(g, n_misses, w, [&](u32 j) {
      return order_key{w.position[j], miss_word::expert(w.miss[j])};
    });
  }
  g.leader([&] {
    demand_share const share = share_of_demand<Policy>(t.header(), promoted);
    u32 const n_free = min_of(t.header().free(), saturating_sub(share.bound, share.ordinary));
    u64 const expert_bytes = t.expert_bytes(row);
    u32 admitted = 0;
    for (u32 j = 0; j < n_misses; ++j) {
      u32 const miss = w.miss[j];
      expert_record const& record = t.expert(t.index_of(row, miss_word::expert(miss)));
      bool const accessed = (record.where & expert_word::accessed) != 0;
      admission_question const question{score_of_miss(j), expert_bytes, age_of(tick, record.last), admitted,
                                        n_misses, n_free, accessed, p.in_phase};
      p.how[miss_word::place(miss)] = access_kind::declined;
      if (t.parts().admission.admits(question)) {
        w.miss[admitted++] = miss;
      }
    }
    w.position[0] = admitted;
  });
  u32 const admitted = w.position[0];
  if constexpr (admit_detail::falling_score<admission>) {
    if (t.parts().admission.compares_in({t.layer(row).step, p.in_phase})) {
      sort_misses<Policy>(g, admitted, w, [&](u32 j) {
        return order_key{~score_of_miss(j), j};
      });
    }
  }
  return admitted;
}

/// Asks the admission which of the misses w.miss[from] … w.miss[n - 1] may replace the resident of `slot`, until
/// one may: takes those out that may not. Returns how many misses are left; `from`, where nobody may.
template <class Policy, lane_group Group>
WARMSET_HD u32 drop_refused(Group const& g, table_reader<Policy> const& t, u32 slot, u32 from, u32 n,
                            candidate_view<Policy> const& candidates, workspace_of<Policy>& w,
                            plan_of<Policy>& p) {
  g.leader([&] {
    u32 const owner = t.owner(slot);
    u32 const victim = t.index_of_owner(owner);
    clocks const victim_now = t.now(table_reader<Policy>::row_of(owner), p.model_tick);
    clocks const now = t.now(p.row, p.model_tick);
    u64 const victim_score = candidates.rank(victim, table_reader<Policy>::facts(t.expert(victim)), owner);
    replacement_question question{0, victim_score, 0, t.heat(victim, victim_now)};
    u32 at = from;
    for (; at < n; ++at) {
      u32 const expert = miss_word::expert(w.miss[at]);
      question.challenger_score = rank_of_miss<Policy>(t, candidates, p.row, expert);
      question.challenger_heat = t.heat(t.index_of(p.row, expert), now);
      if (t.parts().admission.replaces(question)) {
        break;
      }
    }
    u32 const refused = at - from;
    for (; refused != 0 && at < n; ++at) {
      w.miss[at - refused] = w.miss[at];
    }
    w.position[0] = n - refused;
  });
  return w.position[0];
}

/// The m smallest of key(i) for the i < n that may(i): take(j, smallest) for each, j ascending with it. A key is the
/// `eviction_key` of slot i, asked for any i, so that lanes have several on the way. Returns how many there are.
template <lane_group Group, class May, class Key, class Take>
WARMSET_HD u32 take_smallest(Group const& g, u32 n, u32 m, May&& may, Key&& key, Take&& take) {
  if constexpr (requires { g.take_smallest(n, m, may, key, take); }) {
    return g.take_smallest(n, m, may, key, take);
  } else {
    return take_one_by_one(g, n, m, may, key, take);
  }
}

/// Whether a lane group of several may take the victims of a step in one pass, since nothing is asked between two.
template <class Policy, class Group>
inline constexpr bool takes_victims_at_once =
    !Group::is_single && requires { Policy::selector::is_by_key; } && !Policy::pool::spans_layers &&
    !compares_with_victim<Policy> && !keeps_reserve<Policy>;

/// How many free slots were taken, and the slot below which none is free any more.
struct free_slots {
  u32 n;
  u32 hint;
};

/// Collects the first `limit` free slots in index order, in w.source.
template <class Policy, lane_group Group>
WARMSET_HD WARMSET_APART free_slots take_free(Group const& g, table_reader<Policy> const& t, u32 limit,
                                              workspace_of<Policy>& w) {
  constexpr u32 chunk = 32;  // what lanes look at together
  u32 const capacity = t.header().capacity;
  u32 found = 0;
  u32 hint = t.header().free_hint;
  while (found < limit && hint < capacity) {
    u32 const before = found;
    u32 const room = limit - found;
    u32 const base = hint;
    u32 const here = g.append_in_order(
        min_of(chunk, capacity - base), [&](u32 i) { return t.word(base + i) == 0; },
        [&](u32 i, u32 at) {
          if (at < room) {
            w.source[before + at] = base + i;
          }
        });
    found = before + min_of(here, room);
    hint = here > room ? w.source[found - 1] + 1 : min_of(base + chunk, capacity);
  }
  return {found, hint};
}

/// How many misses have got a slot, and how many wanted one and were not refused.
struct sources_found {
  u32 found;
  u32 wanted;
};

/// Collects the slots that the misses of a step get, in w.source. Order: free slots in index order, expired
/// speculation in index order, demanded residents in the selector's order, and as a last resort what is kept
/// for speculation. An admission that compares is asked for each of the residents, and w.miss loses what it
/// refuses.
template <class Policy, lane_group Group>
WARMSET_HD sources_found find_sources(Group const& g, table_reader<Policy> const& t, u32 row, u32 wanted,
                                      u32 promoted, candidate_view<Policy> const& candidates,
                                      workspace_of<Policy>& w, plan_of<Policy>& p) {
  block_header const& h = t.header();
  u32 const n_free = h.free();
  demand_share const share = share_of_demand<Policy>(h, promoted);
  u32 const ordinary = share.ordinary;
  u32 const bound = share.bound;
  u32 const roomy = min_of(wanted, saturating_sub(bound, ordinary));
  // only a reserve that demand has grown into is made whole again
  u32 excess = 0;
  if constexpr (keeps_reserve<Policy>) {
    excess = min_of(saturating_sub(ordinary, bound), Policy::max_experts);
  }
  auto walk = p.walk;
  u32 n_trims = 0;
  u32 found = 0;
  u32 hint = h.free_hint;

  auto const not_demanded = [&](u32 s) {
    u32 const owner = t.owner(s);
    if constexpr (Policy::pool::spans_layers) {
      return table_reader<Policy>::row_of(owner) != row || !w.is_marked(table_reader<Policy>::expert_of(owner));
    } else {
      return !w.is_marked(table_reader<Policy>::expert_of(owner));
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
    free_slots const taken = take_free<Policy>(g, t, min_of(roomy, n_free), w);
    found = taken.n;
    hint = taken.hint;
  }
  if constexpr (speculates<Policy>) {
    take_spares(roomy, true);
  }
  bool compares = false;
  if constexpr (compares_with_victim<Policy>) {
    compares = t.parts().admission.compares_in({t.layer(row).step, p.in_phase});
  }
  if constexpr (takes_victims_at_once<Policy, Group>) {
    u32 const before = found;
    found += take_smallest(
        g, h.capacity, wanted - found,
        [&](u32 s) { return (u32{candidates.evictable(s)} & u32{not_demanded(s)}) != 0; },  // without a branch
        [&](u32 s) { return candidates.key(s); },  // a free slot reads expert 0
        [&](u32 j, order_key key) { w.source[before + j] = slot_of(key); });
  }
  while (!takes_victims_at_once<Policy, Group> && (found < wanted || n_trims < excess)) {
    [[maybe_unused]] auto const before = walk;
    slot_id const candidate = t.parts().selector.next(g, candidates, walk);
    if (candidate == no_slot) {
      break;
    }
    u32 const s = candidate.value;
    if (!not_demanded(s) || !above_floor<Policy>(t, row, s, w.source, found, p.trims, n_trims)) {
      continue;
    }
    if constexpr (compares_with_victim<Policy>) {
      if (compares && found < wanted) {
        wanted = drop_refused<Policy>(g, t, s, found, wanted, candidates, w, p);
        if (found == wanted && n_trims == excess) {
          walk = before;  // it stays: the walk has not come to it
          break;
        }
      }
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
    p.walk = walk;
    p.free_hint = hint;
    p.n_trims = n_trims;
  });
  return {found, wanted};
}

/// Decides a step of more distinct ids than usable slots: residents are read in place, the others go through scratch.
template <class Policy, lane_group Group>
WARMSET_HD WARMSET_APART void plan_overflow(Group const& g, table_reader<Policy> const& t, u32 n_misses,
                                            workspace_of<Policy>& w, plan_of<Policy>& p) {
  u32 const n = p.n;
  g.for_each(n_misses, [&](u32 j) { p.how[miss_word::place(w.miss[j])] = access_kind::overflow_miss; });
  g.for_each(n, [&](u32 i) {
    bool const absent =  // in flight is not resident
        p.how[i] == access_kind::overflow_miss || p.how[i] == access_kind::late;
    p.how[i] = absent ? access_kind::overflow_miss : access_kind::overflow_hit;
  });
  bool const any_absent = g.any(n, [&](u32 i) { return p.how[i] == access_kind::overflow_miss; });
  bool const served =
      !any_absent || assign_scratch<Policy>(g, t, access_kind::overflow_miss, w, p);
  g.leader([&] { p.kind = served ? plan_kind::overflow : plan_kind::busy; });
}

/// Gives a missing expert the slot that the plan's load `at` writes.
template <class Policy>
WARMSET_HD void put_load(u32 at, u32 miss, u32 slot, plan_of<Policy>& p) {
  u32 const place = miss_word::place(miss);
  p.how[place] = access_kind::load;
  p.slot[place] = slot;
  p.loads[at] = {miss_word::expert(miss), slot};
}

/// Puts the misses, which are listed by expert, into demand order. One lane.
template <class Policy>
WARMSET_HD WARMSET_APART void list_in_demand_order(u32 n_misses, workspace_of<Policy>& w) {
  auto const turned = [](u32 word) { return miss_word::of(miss_word::place(word), miss_word::expert(word)); };
  for (u32 j = 0; j < n_misses; ++j) {
    w.source[j] = turned(w.miss[j]);
  }
  sort_by_expert(w.source, n_misses);
  for (u32 j = 0; j < n_misses; ++j) {
    w.miss[j] = turned(w.source[j]);
  }
}

/// serve_misses of a full pool in the way that nearly every step takes; false, and nothing is done, where there are
/// fewer victims than misses. One lane.
template <class Policy, lane_group Group>
WARMSET_HD bool serve_from_victims(Group const& g, table_reader<Policy> const& t, u32 n_misses,
                                   candidate_view<Policy> const& candidates, workspace_of<Policy>& w,
                                   plan_of<Policy>& p) {
  auto walk = p.walk;
  for (u32 j = 0; j < n_misses; ++j) {
    slot_id victim = no_slot;
    do {
      victim = t.parts().selector.next(g, candidates, walk);
      if (victim == no_slot) [[unlikely]] {
        for (u32 i = 0; i < j; ++i) {
          p.slot[miss_word::place(w.miss[i])] = no_slot.value;
        }
        return false;
      }
    } while (w.is_marked(table_reader<Policy>::expert_of(t.owner(victim.value))));
    put_load<Policy>(j, w.miss[j], victim.value, p);
  }
  p.walk = walk;
  p.n_loads = n_misses;
  return true;
}

/// Decides how the absent experts of a step are served: which are admitted, which slots they get, and which residents
/// make way.
template <class Policy, lane_group Group>
WARMSET_HD void serve_misses(Group const& g, table_reader<Policy> const& t, step_input const& in, u32 n_misses,
                             u32 promoted, workspace_of<Policy>& w, plan_of<Policy>& p) {
  i32 const* keys = nullptr;
  if constexpr (contextual_score<typename Policy::score>) {
    keys = p.key;
  }
  candidate_view<Policy> const candidates{t, in.model_tick, in.row, keys};
  if constexpr (takes_victims_in_passing<Policy, Group>) {
    if (t.header().free() == 0 && serve_from_victims<Policy>(g, t, n_misses, candidates, w, p)) [[likely]] {
      return;
    }
    list_in_demand_order<Policy>(n_misses, w);
  }
  u32 admitted = n_misses;
  if constexpr (Policy::admission::may_decline) {
    admitted = admit_misses<Policy>(g, t, n_misses, promoted, candidates, w, p);
  }

  sources_found const sources =
      find_sources<Policy>(g, t, in.row, admitted, promoted, candidates, w, p);
  u32 const installed = sources.found;
  u32 const wanted = sources.wanted;

  if constexpr (Group::is_single) {
    sort_by_expert(w.miss, installed);
    for (u32 j = 0; j < installed; ++j) {
      put_load<Policy>(j, w.miss[j], w.source[j], p);
    }
  } else {
    g.for_each(installed, [&](u32 j) {
      u32 const miss = w.miss[j];
      u32 at = 0;
      for (u32 i = 0; i < installed; ++i) {
        at += w.miss[i] < miss ? 1 : 0;
      }
      put_load<Policy>(at, miss, w.source[at], p);
    });
  }
  g.leader([&] {
    for (u32 j = installed; j < wanted; ++j) {
      p.how[miss_word::place(w.miss[j])] = access_kind::declined;
    }
    p.n_loads = installed;
  });
  if (installed < wanted) {
    no_victim_counts const counts = count_obstacles<Policy>(g, t);
    g.leader([&] { p.no_victim = counts; });
  }
  if (installed < n_misses &&
      !assign_scratch<Policy>(g, t, access_kind::declined, w, p)) {
    g.leader([&] {
      p.kind = plan_kind::busy;
      p.n_loads = 0;
      p.n_trims = 0;
    });
  }
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
///             in demand order, or in the admission's, are declined. What it refuses is declined as well.
///
/// Complexity: O(ids); O(1) per hit; per miss one step of the selector's walk. An admission that compares is
/// asked misses + victims times at most; one that orders the misses costs O(misses^2).
template <class Policy, lane_group Group, class Id>
WARMSET_HD void plan_demand(Group const& g, table_reader<Policy> const& t, step_input const& in,
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
    p.free_hint = h.free_hint;
    p.n_loads = 0;
    p.n_trims = 0;
    p.n_waves = 0;
    p.n_declined = 0;
    p.sentinels = 0;
    p.out_of_range = 0;
    p.duplicates = 0;
    p.hints_offered = 0;
    p.guard_asked = 0;
    p.guard_refused = 0;
    p.no_victim = {};
    p.walk = {};
  });
  detail::looked_up const found = detail::look_up<Policy>(g, t, in.row, ids, n_ids, w, p);
  u32 const n = found.distinct;
  u32 const n_misses = found.misses;
  if (!detail::all_plain(h)) [[unlikely]] {
    g.for_each(n, [&](u32 i) { detail::judge_slot<Policy>(t, i, p); });
  }
  if (n != n_ids) [[unlikely]] {
    g.leader([&] { detail::count_skipped<Policy>(t.layer(in.row).n_experts, ids, n_ids, p); });
  }
  if (n == 0) [[unlikely]] {
    g.leader([&] { p.kind = plan_kind::empty; });
    return;
  }

  if (n > t.usable()) [[unlikely]] {
    detail::plan_overflow<Policy>(g, t, n_misses, w, p);
    return;
  }
  g.leader([&] { p.kind = plan_kind::step; });
  if constexpr (contextual_score<typename Policy::score>) {
    detail::make_keys<Policy>(g, t, in, w, p);
  }

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

  detail::serve_misses<Policy>(g, t, in, n_misses, promoted, w, p);
}

}  // namespace warmset::inline v0
