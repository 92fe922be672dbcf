// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/lanes.hpp"
#include "plan.hpp"

namespace warmset::inline v0 {

namespace detail {

/// Takes the expert out of its slot: unmaps it and updates all counts but that of the slot's state. The caller
/// tells the selector, and writes that count and the slot's new word. One lane.
template <class Policy>
WARMSET_HD void unmap(table_writer<Policy> const& t, u32 slot, u32 word, outcome& out) {
  u32 const owner = t.owner(slot);
  t.expert(t.index_of_owner(owner)).where &= ~expert_word::slot_mask;
  --t.layer(table_writer<Policy>::row_of(owner)).held;
  if constexpr (speculates<Policy>) {
    if ((word & slot_word::unused) != 0) {
      --t.header().unused;
      t.target(slot) = 0;
      if (slot_word::state(word) == slot_state::resident) {
        ++out.evicted_unused;
      }
    }
  }
}

/// Unmaps a reserved or resident slot's expert and takes the slot off the count of its state. One lane.
template <class Policy>
WARMSET_HD void detach(table_writer<Policy> const& t, u32 slot, outcome& out) {
  u32 const word = t.word(slot);
  block_header& h = t.header();
  --(slot_word::state(word) == slot_state::reserved ? h.reserved : h.resident);
  unmap<Policy>(t, slot, word, out);
  t.parts().selector.on_remove(t, slot);
}

/// Frees a slot whose expert has been detached. One lane.
template <class Policy>
WARMSET_HD void make_free(table_writer<Policy> const& t, u32 slot) {
  t.word(slot) = 0;
  t.owner(slot) = 0;
  if constexpr (speculates<Policy>) {
    t.target(slot) = 0;
  }
  t.header().free_hint = min_of(t.header().free_hint, slot);
}

/// Evicts a resident; the caller tells the selector, takes it off the counts of residents and adds it to the
/// evictions, frees the slot or gives it away. One lane.
template <class Policy>
WARMSET_HD void evict(table_writer<Policy> const& t, u32 slot, u32 word, intent by, u32 model_tick,
                      outcome& out) {
  if constexpr (score_detail::has_evict_hook<typename Policy::score>) {
    if (by == intent::demand) {
      // the victim's own clocks: in a shared pool it may be of another layer than the step
      u32 const owner = t.owner(slot);
      t.parts().score.on_evict(t.score_of(t.index_of_owner(owner)),
                               t.now(table_writer<Policy>::row_of(owner), model_tick));
    }
  }
  (void)by, (void)model_tick;
  unmap<Policy>(t, slot, word, out);
}

/// Tells the selector that an expert leaves a slot which a touch of the same step follows to. One lane.
template <class Policy>
WARMSET_HD void replaced(table_writer<Policy> const& t, u32 slot) {
  auto const& selector = t.parts().selector;
  if constexpr (select_detail::has_replace_hook<typename Policy::selector>) {
    selector.on_replace(t, slot);
  } else {
    selector.on_remove(t, slot);
  }
}

/// Before the 32-bit clocks can wrap past an old stamp, ages are brought down to half the range.
template <class Policy, lane_group Group>
WARMSET_HD WARMSET_APART void rebase(Group const& g, table_writer<Policy> const& t) {
  block_header const& h = t.header();
  constexpr u32 half = u32_max / 2;
  for (u32 row = 0; row < h.n_layers; ++row) {
    clocks const now = t.now(row, h.model_tick);
    g.for_each(t.layer(row).n_experts, [&](u32 expert) {
      u32 const index = t.index_of(row, expert);
      expert_record& record = t.expert(index);
      if ((record.where & expert_word::accessed) == 0) {
        return;
      }
      if (age_of(now.tick, record.last) > half) {
        record.last = now.tick - half;
      }
      if constexpr (score_detail::has_rebase_hook<typename Policy::score>) {
        t.parts().score.rebase(t.score_of(index), now);
      }
    });
  }
}

inline constexpr u32 rebase_bits = 30;  ///< a clock is rebased each time that it passes a multiple of 2^30

/// Adds the ids that named no further expert.
template <class Policy>
WARMSET_HD WARMSET_APART void record_skipped(plan_of<Policy> const& p, outcome& out) {
  out.skipped_ids[static_cast<u32>(reason::sentinel)] += p.sentinels;
  out.skipped_ids[static_cast<u32>(reason::out_of_range)] += p.out_of_range;
  out.skipped_ids[static_cast<u32>(reason::duplicate)] += p.duplicates;
}

/// Adds the ids of a step.
template <class Policy>
WARMSET_HD void record_ids(plan_of<Policy> const& p, outcome& out) {
  out.demanded += p.n;
  if ((p.sentinels | p.out_of_range | p.duplicates) != 0) [[unlikely]] {
    record_skipped<Policy>(p, out);
  }
}

/// What a contextual score sees of the experts after a step's touches: `n` ticks ago it had not begun.
template <class Policy>
struct committed_experts {
  table_writer<Policy> const& t;
  clocks before;
  u32 row;
  u32 n;

  WARMSET_HD bool demanded(u32 x) const noexcept {
    expert_record const& record = t.expert(t.index_of(row, x));
    return (record.where & expert_word::accessed) != 0 && age_of(before.tick + n, record.last) < n;
  }
  WARMSET_HD expert_facts facts(u32 x) const noexcept {
    return table_writer<Policy>::facts(t.expert(t.index_of(row, x)));
  }
  WARMSET_HD clocks now() const noexcept { return before; }
};

/// A contextual score's share of commit, its last act.
template <class Policy, lane_group Group>
WARMSET_HD void learn(Group const& g, table_writer<Policy> const& t, plan_of<Policy> const& p, clocks before) {
  using score = typename Policy::score;
  step_context const step = context_of<Policy>(t, p);
  committed_experts<Policy> const experts{t, before, p.row, p.n};
  auto const& rule = t.parts().score;
  unsigned char* const context = t.context(p.row);
  auto* const states = &t.score_of(t.index_of(p.row, 0));
  constexpr u32 columns = score_detail::block_columns<score, (Group::is_single ? score::columns : 2)>;
  g.for_each(ceil_div(step.n_experts, columns), [&](u32 block) {
    u32 const first = block * columns;
    score_detail::learn_of<columns>(rule, context, states, experts, step, p.key, first, min_of(first + columns, step.n_experts));
  });
  g.leader([&] { rule.end_step(context, step); });
}

/// The hook of a caller that moves no bytes.
struct ignore_loads {
  static constexpr bool by_any_lane = true;
  WARMSET_HD constexpr void operator()(u32, planned_load, u32) const noexcept {}
};

/// Whether every slot that the plan writes is as the plan found it. O(loads).
template <class Policy, lane_group Group>
WARMSET_HD bool sources_are_intact(Group const& g, table_writer<Policy> const& t, plan_of<Policy> const& p) {
  u32 const capacity = t.header().capacity;
  u32 const n_experts = t.layer(p.row).n_experts;
  bool const is_stale = g.any(p.n_loads, [&](u32 j) {
    planned_load const load = p.loads[j];
    if (load.slot >= capacity || load.expert >= n_experts) {
      return true;
    }
    u32 const word = t.word(load.slot);
    bool const gives_way =
        word == 0 || slot_word::evictable(word) || (speculates<Policy> && slot_word::spare(word));
    u32 const where = t.expert(t.index_of(p.row, load.expert)).where;
    return !gives_way || (where & expert_word::slot_mask) != 0;
  });
  if (is_stale) {
    return false;
  }
  if constexpr (keeps_reserve<Policy>) {
    for (u32 j = 0; j < p.n_trims; ++j) {
      if (p.trims[j] >= capacity || !slot_word::evictable(t.word(p.trims[j]))) {
        return false;
      }
    }
    return true;
  } else {
    return p.n_trims == 0;
  }
}

}  // namespace detail

/// Whether the plan can be carried out on the table as it is: `not_committable` where there is nothing to commit,
/// `stale_plan` where the table has changed since. O(loads).
template <class Policy, lane_group Group>
WARMSET_HD status may_commit(Group const& g, table_writer<Policy> const& t, plan_of<Policy> const& p) {
  if (p.kind != plan_kind::step && !(speculates<Policy> && p.kind == plan_kind::hints)) {
    return {reason::not_committable};
  }
  block_header const& h = t.header();
  if (p.version != h.version || p.row >= h.n_layers || !detail::sources_are_intact<Policy>(g, t, p)) {
    return {reason::stale_plan};
  }
  return done;
}

namespace detail {

/// Touches the expert that a demand step names i-th, whose record and score state the caller has read. By any lane, an
/// expert by one.
template <class Policy>
WARMSET_HD void touch(table_writer<Policy> const& t, u32 index, expert_record record,
                      typename Policy::score::state state, u32 i, clocks before, bool installs) {
  clocks const now{before.tick + 1 + i, before.layer_tick + 1 + i, before.model_tick + 1 + i, before.step + 1};
  t.expert(index) = {record.where | expert_word::accessed, now.tick};
  if constexpr (score_detail::has_install_hook<typename Policy::score>) {
    if (installs) {
      t.parts().score.on_install(state, now);
    }
  }
  (void)installs;
  t.parts().score.on_demand(state, now);
  t.score_of(index) = state;
}

/// Turns the clocks on by a demand step of n experts. One lane.
template <class Policy>
WARMSET_HD void advance(table_writer<Policy> const& t, u32 row, clocks before, u32 n) {
  layer_record& layer = t.layer(row);
  layer.step = before.step + 1;
  layer.tick = before.layer_tick + n;
  t.header().tick = before.tick + n;
  t.header().model_tick = before.model_tick + n;
}

/// Rebases where a clock has passed a multiple of 2^30. The model's clock runs ahead of the pool's by what other pools
/// demand.
template <class Policy, lane_group Group>
WARMSET_HD void rebase_if_due(Group const& g, table_writer<Policy> const& t, clocks before, u32 last_model_tick, u32 n) {
  u32 const passed = (before.tick ^ (before.tick + n)) | (last_model_tick ^ (before.model_tick + n));
  if (passed >> rebase_bits != 0) [[unlikely]] {
    rebase<Policy>(g, t);
  }
}

/// Whether the selector keeps state that a touch changes.
template <class Policy>
inline constexpr bool selector_listens = !std::is_empty_v<typename Policy::selector::slot_state> ||
                                         !std::is_empty_v<typename Policy::selector::pool_state> ||
                                         !std::is_empty_v<typename Policy::selector::expert_state>;

/// Whether the loads of a plan can be carried out side by side by several lanes: no hook listens to their order.
template <class Policy, class Group, class Reserved>
inline constexpr bool loads_side_by_side =
    !Group::is_single && !selector_listens<Policy> && !speculates<Policy> && !Policy::pool::spans_layers &&
    !score_detail::has_evict_hook<typename Policy::score> && requires { Reserved::by_any_lane; };

/// Gives the loads of a plan their slots, one after another. One lane.
template <class Policy, class Reserved>
WARMSET_HD void install(table_writer<Policy> const& t, plan_of<Policy> const& p, outcome& out, Reserved& reserved) {
  block_header& h = t.header();
  u32 const row = p.row;
  [[maybe_unused]] bool const is_demand = is_of_demand<Policy>(p);
  t.parts().selector.apply(t, p.walk);
  u32 n_evicted = 0;
  if constexpr (keeps_reserve<Policy>) {
    n_evicted = p.n_trims;
    for (u32 j = 0; j < p.n_trims; ++j) {
      u32 const slot = p.trims[j];
      evict<Policy>(t, slot, t.word(slot), p.for_intent, p.model_tick, out);
      t.parts().selector.on_remove(t, slot);
      make_free<Policy>(t, slot);
    }
  }
  u32 const n_in_flight = h.in_flight;
  u32 const n_loads = p.n_loads;
  for (u32 j = 0; j < n_loads; ++j) {
    planned_load const load = p.loads[j];
    u32 const found = t.word(load.slot);
    if (found != 0) {
      evict<Policy>(t, load.slot, found, p.for_intent, p.model_tick, out);
      if (is_demand) {  // what a demand loads it touches
        replaced<Policy>(t, load.slot);
      } else {
        t.parts().selector.on_remove(t, load.slot);
      }
      ++n_evicted;
    }
    expert_record& record = t.expert(t.index_of(row, load.expert));
    u32 word = slot_word::of(slot_state::reserved);
    if constexpr (speculates<Policy>) {
      if (!is_demand) {
        word |= slot_word::unused | slot_word::from_hint;
        t.target(load.slot) = p.target;
      }
    }
    u32 const where = record.where;
    word |= slot_word::pin_of(where);
    record.where = where | (load.slot + 1);
    t.word(load.slot) = word;
    t.owner(load.slot) = table_writer<Policy>::pack_owner(row, load.expert);
    t.in_flight(n_in_flight + j) = load.slot;
    reserved(j, load, ++t.generation(load.slot));
  }
  if constexpr (speculates<Policy>) {
    h.unused += is_demand ? 0 : n_loads;
  }
  h.in_flight = n_in_flight + n_loads;
  h.resident -= n_evicted;
  out.evicted[static_cast<u32>(p.for_intent)] += n_evicted;
  h.reserved += n_loads;
  t.layer(row).held += n_loads;
  // the plan's hint knows of the free slots it took, make_free of those that trims left
  h.free_hint = keeps_reserve<Policy> && p.n_trims != 0 ? min_of(h.free_hint, p.free_hint) : p.free_hint;
  out.issued[static_cast<u32>(p.for_intent)] += n_loads;
}

/// carry_out_decisions of any plan by any group.
template <class Policy, lane_group Group, class Reserved>
WARMSET_HD WARMSET_APART void carry_out_any(Group const& g, table_writer<Policy> const& table, plan_of<Policy> const& p,
                                            outcome& out, Reserved&& reserved) {
  table_writer<Policy> const t = table;  // a copy: loops keep its pointers in registers
  block_header& h = t.header();
  u32 const n = p.n;
  u32 const n_loads = p.n_loads;
  clocks const before = t.now(p.row, p.model_tick);
  bool const is_demand = is_of_demand<Policy>(p);
  u32 const last_model_tick = h.model_tick;
  // with nothing in flight and nothing declined, what is no load is a hit
  bool const only_hits_and_loads = h.in_flight == 0 && (!speculates<Policy> || h.unused == 0) && p.n_declined == 0;

  if constexpr (loads_side_by_side<Policy, Group, std::remove_cvref_t<Reserved>>) {
    if (p.n_loads != 0) {
      u32 const n_in_flight = h.in_flight;
      u32 const n_evicted = g.count(p.n_loads, [&](u32 j) {
        u32 const slot = p.loads[j].slot;
        if (t.word(slot) == 0) {
          return false;
        }
        t.expert(t.index_of_owner(t.owner(slot))).where &= ~expert_word::slot_mask;
        return true;
      });
      g.for_each(p.n_loads, [&](u32 j) {
        planned_load const load = p.loads[j];
        expert_record& record = t.expert(t.index_of(p.row, load.expert));
        u32 const pinned = slot_word::pin_of(record.where);
        record.where |= load.slot + 1;
        t.word(load.slot) = slot_word::of(slot_state::reserved) | pinned;
        t.owner(load.slot) = table_writer<Policy>::pack_owner(p.row, load.expert);
        t.in_flight(n_in_flight + j) = load.slot;
        reserved(j, load, ++t.generation(load.slot));
      });
      g.leader([&] {
        h.in_flight = n_in_flight + p.n_loads;
        h.resident -= n_evicted;
        h.reserved += p.n_loads;
        h.free_hint = p.free_hint;
        t.layer(p.row).held += p.n_loads - n_evicted;
        out.evicted[static_cast<u32>(intent::demand)] += n_evicted;
        out.issued[static_cast<u32>(intent::demand)] += p.n_loads;
      });
    }
  } else if (n_loads != 0 || (keeps_reserve<Policy> && p.n_trims != 0)) {
    g.leader([&] { install<Policy>(table, p, out, reserved); });
  }

  if (is_demand) {
    auto const touch_one = [&](u32 i) {
      bool installs = false;
      if constexpr (score_detail::has_install_hook<typename Policy::score>) {
        installs = p.how[i] == access_kind::load;
        if constexpr (speculates<Policy>) {
          installs = installs || (p.how[i] != access_kind::declined &&
                                  (t.word(p.slot[i]) & slot_word::unused) != 0);
        }
      }
      u32 const index = t.index_of(p.row, p.expert[i]);
      touch<Policy>(t, index, t.expert(index), t.score_of(index), i, before, installs);
    };
    if (only_hits_and_loads) [[likely]] {
      if constexpr (selector_listens<Policy>) {
        g.for_each_then_leader(n, touch_one, [&](u32 i) { t.parts().selector.on_touch(t, p.slot[i]); });
      } else {
        g.for_each(n, touch_one);
      }
    } else {
      g.for_each_then_leader(n, touch_one, [&](u32 i) {
        access_kind const how = p.how[i];
        ++out[how];
        if (how == access_kind::declined) {
          return;
        }
        u32 const slot = p.slot[i];
        if constexpr (speculates<Policy>) {
          if ((t.word(slot) & slot_word::unused) != 0) {
            t.word(slot) &= ~slot_word::unused;
            t.target(slot) = 0;
            --h.unused;
            out.late_of_hint += how == access_kind::late ? 1 : 0;
          }
        }
        t.parts().selector.on_touch(t, slot);
      });
    }
    g.leader([&] {
      if (only_hits_and_loads) {
        out[access_kind::hit] += n - n_loads;
        out[access_kind::load] += n_loads;
      }
      if (h.pinned != 0) [[unlikely]] {
        for (u32 i = 0; i < n; ++i) {
          out.pinned_hits +=
              p.how[i] == access_kind::hit && (t.word(p.slot[i]) & slot_word::pinned) != 0 ? 1 : 0;
        }
      }
      advance<Policy>(t, p.row, before, n);
      ++out.steps;
      record_ids<Policy>(p, out);
    });
    rebase_if_due<Policy>(g, table, before, last_model_tick, n);
  } else {
    g.leader([&] {
      for (u32 r = 0; r < n_drop_reasons; ++r) {
        out.hints_dropped[r] += p.dropped[r];
      }
      out.hints_offered += p.hints_offered;
      out.guard_asked += p.guard_asked;
      out.guard_refused += p.guard_refused;
    });
  }
  // hints that were all dropped change nothing (I7): plans made meanwhile stay good
  if (is_demand || n_loads != 0) {
    g.leader([&] { ++h.version; });
  }
}

/// Whether a plan is of a demand step like nearly all: what is no load is a hit, nothing was skipped, no hit is of a
/// pinned expert, and no clock is rebased after it.
template <class Policy>
WARMSET_HD bool is_plain_step(table_writer<Policy> const& t, plan_of<Policy> const& p, clocks before) {
  block_header const& h = t.header();
  u32 const passed = (before.tick ^ (before.tick + p.n)) | (h.model_tick ^ (before.model_tick + p.n));
  u32 const unused = speculates<Policy> ? h.unused : 0;
  return is_of_demand<Policy>(p) && (h.in_flight | unused | h.pinned | p.n_declined | p.sentinels | p.out_of_range |
                                     p.duplicates | passed >> rebase_bits) == 0;
}

/// carry_out_decisions of a plain step by one lane: the same without a question. What the selector does comes last, since
/// everything behind its walks from slot to slot would wait for them.
template <class Policy, class Reserved>
WARMSET_HD void carry_out_plain_step(table_writer<Policy> const& table, plan_of<Policy> const& p, clocks before,
                                     outcome& out, Reserved& reserved) {
  table_writer<Policy> const t = table;  // a copy: loops keep its pointers in registers
  u32 const n = p.n;
  u32 const n_loads = p.n_loads;
  if (n_loads != 0 || (keeps_reserve<Policy> && p.n_trims != 0)) {
    install<Policy>(table, p, out, reserved);
  }
  out[access_kind::hit] += n - n_loads;
  out[access_kind::load] += n_loads;
  out.demanded += n;
  ++out.steps;
  advance<Policy>(t, p.row, before, n);
  ++t.header().version;
  for (u32 i = 0; i < n; ++i) {
    u32 const index = t.index_of(p.row, p.expert[i]);
    bool const installs = score_detail::has_install_hook<typename Policy::score> && p.how[i] == access_kind::load;
    touch<Policy>(t, index, t.expert(index), t.score_of(index), i, before, installs);
  }
  auto const& selector = t.parts().selector;
  if constexpr (select_detail::has_touches_hook<typename Policy::selector>) {
    selector.on_touches(t, n, [&](u32 i) { return p.slot[i]; });
  } else if constexpr (selector_listens<Policy>) {
    for (u32 i = 0; i < n; ++i) {
      selector.on_touch(t, p.slot[i]);
    }
  }
}

/// All of carry_out but what a contextual score learns.
template <class Policy, lane_group Group, class Reserved>
WARMSET_HD void carry_out_decisions(Group const& g, table_writer<Policy> const& t, plan_of<Policy> const& p,
                                    outcome& out, Reserved&& reserved) {
  WARMSET_ASSERT((may_commit<Policy>(g, t, p)), "the plan must be of this table, its victims evictable");
  if constexpr (Group::is_single) {
    clocks const before = t.now(p.row, p.model_tick);
    if (is_plain_step<Policy>(t, p, before)) [[likely]] {
      carry_out_plain_step<Policy>(t, p, before, out, reserved);
      return;
    }
  }
  carry_out_any<Policy>(g, t, p, out, reserved);
}

/// The clocks of the row before the step that was its pool's last.
template <class Policy>
WARMSET_HD clocks clocks_before(table_writer<Policy> const& t, plan_of<Policy> const& p) {
  clocks now = t.now(p.row, p.model_tick);
  now.tick -= p.n;
  now.layer_tick -= p.n;
  --now.step;
  return now;
}

}  // namespace detail

/// Carries a plan out: evictions, reservations, touches, clocks. For a plan that `may_commit` accepts, or that was made of
/// this table and of kind `step` or `hints` with nothing done in between. After it only single entries fail, in settle.
///
/// @param out      what happened is added to it (observe folds it)
/// @param reserved  called as reserved(j, load, generation) for every load j that has got its slot: what a mover must be
///                  told. By one lane in ascending order; a hook with a member `by_any_lane` by any lane in any order
/// Complexity: O(distinct ids + loads). Does not synchronise.
template <class Policy, lane_group Group, class Reserved = detail::ignore_loads>
WARMSET_HD void carry_out(Group const& g, table_writer<Policy> const& t, plan_of<Policy> const& p, outcome& out,
                          Reserved&& reserved = {}) {
  detail::carry_out_decisions<Policy>(g, t, p, out, reserved);
  if constexpr (contextual_score<typename Policy::score>) {
    if (is_of_demand<Policy>(p)) {
      detail::learn<Policy>(g, t, p, detail::clocks_before<Policy>(t, p));
    }
  }
}

/// Checks a plan and carries it out. Checks everything before its first write and cannot half-fail: a refusal leaves
/// the block and `out` identical.
template <class Policy, lane_group Group, class Reserved = detail::ignore_loads>
WARMSET_HD status commit(Group const& g, table_writer<Policy> const& t, plan_of<Policy> const& p,
                         outcome& out, Reserved&& reserved = {}) {
  status const s = may_commit<Policy>(g, t, p);
  if (s) {
    carry_out<Policy>(g, t, p, out, reserved);
  }
  return s;
}

/// Adds to `out` what a plan that has nothing to commit did: an overflow step, or a step of no valid id.
/// Complexity O(distinct ids). A busy plan did nothing.
template <class Policy>
WARMSET_HD void record_uncommitted(plan_of<Policy> const& p, outcome& out) {
  if (p.kind != plan_kind::overflow && p.kind != plan_kind::empty) {
    return;
  }
  for (u32 i = 0; i < p.n; ++i) {
    ++out[p.how[i]];
  }
  out.overflow_steps += p.kind == plan_kind::overflow ? 1 : 0;
  detail::record_ids<Policy>(p, out);
}

}  // namespace warmset::inline v0
