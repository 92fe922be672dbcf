// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commit.hpp"
#include "plan_demand.hpp"

namespace warmset::inline v0 {

/// Memory of a quick step, by which its lanes tell each other; in a kernel shared memory. Its content means nothing before.
struct quick_memory {
  static constexpr u32 most = 32;  ///< ids
  u32 where[most];   ///< expert_word of the i-th id; of a missing expert without a slot
  u32 miss[most];    ///< see miss_word
  u32 victim[most];  ///< slots in the selector's order
};

namespace detail {

/// For i < n, n at most 32: where may(i) of all holds, then `is_good` of every read(i), and no two have the same `key`, an
/// expert, apply(i, what was read) for all of them. Returns whether that was so. By any lane, an i by one.
template <lane_group Group, class May, class Read, class Apply>
WARMSET_HD bool apply_if_all(Group const& g, u32 n, May&& may, Read&& read, Apply&& apply) {
  if constexpr (requires { g.apply_if_all(n, may, read, apply); }) {
    return g.apply_if_all(n, may, read, apply);
  } else {
    bool const is_bad = g.any(n, [&](u32 i) { return !may(i); }) || g.any(n, [&](u32 i) {
      auto const mine = read(i);
      bool bad = !mine.is_good;
      for (u32 j = 0; !bad && j < i; ++j) {
        bad = read(j).key == mine.key;
      }
      return bad;
    });
    if (!is_bad) {
      g.for_each(n, [&](u32 i) { apply(i, read(i)); });
    }
    return !is_bad;
  }
}

/// What a quick step reads of one expert.
template <class State>
struct expert_read {
  bool is_good;
  u32 key;  ///< the expert
  u32 index;
  expert_record record;
  State state;
};

/// Whether victims come by the key of a slot alone, and nobody is told of them or asked about them.
template <class Policy>
inline constexpr bool replaces_quickly =
    requires { Policy::selector::is_by_key; } && !selector_listens<Policy> && !Policy::pool::spans_layers &&
    !Policy::admission::may_decline && !keeps_reserve<Policy> && !score_detail::has_evict_hook<typename Policy::score>;

/// Of a quick step's notes, beside an expert_word: its demand is the first use of a hint's load.
inline constexpr u32 is_first_use = 0x2000'0000;
static_assert((is_first_use & (expert_word::slot_mask | expert_word::pinned | expert_word::accessed)) == 0);

/// Appends the speculated slots that no step has used and this one does not demand to m.victim, in index order, of those whose
/// step has passed or of the others, up to the n-th entry. Returns how many there are then.
template <class Policy, lane_group Group, class IsDemanded>
WARMSET_HD u32 append_spares(Group const& g, table_reader<Policy> const& t, bool after_their_step, u32 before, u32 n,
                             IsDemanded&& is_demanded, quick_memory& m) {
  u32 const room = n - before;
  u32 const here = g.append_in_order(
      room == 0 ? 0 : t.header().capacity,
      [&](u32 s) {
        return slot_word::spare(t.word(s)) && expired<Policy>(t, s) == after_their_step && !is_demanded(s);
      },
      [&](u32 s, u32 at) {
        if (at < room) {
          m.victim[before + at] = s;
        }
      });
  return before + min_of(here, room);
}

}  // namespace detail

/// What a quick step came to.
struct quick_result {
  bool is_done;
  u32 n_loads;
};

/// Which steps are to be carried out quickly.
enum class quick { hits, hits_and_misses };

/// Carries out a demand step of distinct valid experts in a pool of plain residents, in one pass and without a plan: what
/// plan_demand and commit come to. Such a step hits alone; or, for `hits_and_misses`, no slot is free and all of its misses
/// replace residents, where the bundle asks nobody about victims but their key; then residents may have been speculated as
/// well. Answers is_done = false where that is not so, and then nothing has changed: an id that is none or occurs twice, a
/// transfer in flight, pins, leases, more than 32 ids, and for `hits` speculation that no step has used.
///
/// @tparam Which    steps that hit alone cost less where nothing else is looked for
/// @param is_held   whether the caller may carry out anything; asked late, so that it is read together with the rest
/// @param found     found(i, slot) for the i-th id, by any lane
/// @param counts    counts() by one lane, at the end: the outcome record that the step is added to
/// @param keys      keys() by all lanes, for a contextual score once it is certain that the step is a quick one: its keys of
///                  the row's experts, before anything is touched
/// @param misses    misses() by all lanes, in front of the search for victims: the table as it is to be searched, which the
///                  caller may have brought near
/// @param reserved  as for carry_out, with `by_any_lane`
/// Complexity: O(ids), and where something is missing O(slots) and O(ids^2) comparisons. Does not synchronise, allocates
/// nothing.
template <class Policy, quick Which, lane_group Group, class Id, class Counts, class Found, class Keys, class Misses,
          class Reserved>
WARMSET_HD quick_result quick_step(Group const& g, table_writer<Policy> const& t, step_input in, Id const* ids, u32 n_ids,
                                   Counts&& counts, bool is_held, quick_memory& m, Found&& found, Keys&& keys,
                                   Misses&& misses, Reserved&& reserved) {
  static_assert(sizeof(Id) <= sizeof(u32), "routed ids have at most 32 bits");
  if (n_ids == 0 || n_ids > quick_memory::most) {
    return {false, 0};
  }
  using read = detail::expert_read<typename Policy::score::state>;
  constexpr bool replaces = Which == quick::hits_and_misses && detail::replaces_quickly<Policy>;
  constexpr bool uses_spares = Which == quick::hits_and_misses && speculates<Policy> && !keeps_reserve<Policy>;
  // everything is asked for at once and judged afterwards: on a device each wait costs as much as all of them
  block_header& h = t.header();
  u32 const n_experts = t.layer(in.row).n_experts;
  u32 const last_model_tick = h.model_tick;
  u64 const version = h.version;
  clocks const before = t.now(in.row, in.model_tick);
  u32 const n_spares = h.unused;
  // then every expert that has a slot is resident, and without spares has been demanded
  bool const is_plain = (h.reserved | (uses_spares ? 0 : n_spares) | h.pinned | h.draining) == 0 && is_held;
  bool const is_full = replaces && h.resident == h.capacity && h.leases == 0;
  u32 const usable = t.usable();
  i32 const* ranks = nullptr;
  auto const touch = [&](u32 i, u32 index, expert_record record, typename Policy::score::state const& state) {
    u32 const slot = record.where & expert_word::slot_mask;
    bool installs = replaces && slot == 0;
    if (!installs) {
      found(i, slot - 1);
    }
    u32 note = record.where | expert_word::accessed;
    if constexpr (uses_spares) {
      if (n_spares != 0 && !installs && (t.word(slot - 1) & slot_word::unused) != 0) {
        t.word(slot - 1) &= ~slot_word::unused;
        t.target(slot - 1) = 0;
        note |= detail::is_first_use;
        installs = true;
      }
    }
    if constexpr (replaces || uses_spares) {
      m.where[i] = note;
    }
    (void)note;
    detail::touch<Policy>(t, index, record, state, i, before, installs);
  };
  constexpr bool is_keyed = contextual_score<typename Policy::score>;
  bool const carried_out = detail::apply_if_all(
      g, n_ids, [&](u32 i) { return (static_cast<u32>(ids[i]) < n_experts) & is_plain & (n_ids <= usable); },
      [&](u32 i) {
        u32 const id = static_cast<u32>(ids[i]);
        u32 const index = t.index_of(in.row, id);
        read r{false, id, index, t.expert(index), t.score_of(index)};
        r.is_good = ((r.record.where & expert_word::slot_mask) != 0) | is_full;
        return r;
      },
      [&](u32 i, read const& r) {
        if constexpr (is_keyed) {
          m.where[i] = r.record.where;
        } else {
          touch(i, r.index, r.record, r.state);
        }
      });
  if (!carried_out) {
    return {false, 0};
  }
  if constexpr (is_keyed) {
    ranks = keys();
    g.for_each(n_ids, [&](u32 i) {
      u32 const index = t.index_of(in.row, static_cast<u32>(ids[i]));
      touch(i, index, expert_record{m.where[i], 0}, t.score_of(index));
    });
  }
  u32 n_first_uses = 0;
  if constexpr (uses_spares) {
    n_first_uses = n_spares == 0 ? 0 : g.count(n_ids, [&](u32 i) { return (m.where[i] & detail::is_first_use) != 0; });
  }
  u32 n_loads = 0;
  u32 n_unused_evicted = 0;
  if constexpr (replaces) {
    n_loads = g.append_in_order(
        n_ids, [&](u32 i) { return (m.where[i] & expert_word::slot_mask) == 0; },
        [&](u32 i, u32 at) { m.miss[at] = miss_word::of(static_cast<u32>(ids[i]), i); });
    if (n_loads != 0) {
      table_reader<Policy> const near = misses();
      detail::candidate_view<Policy> const candidates{near, in.model_tick, in.row, ranks};
      u32 const first = before.tick + 1;
      auto const is_demanded = [&](u32 s) {  // the touches above mark what the step demands
        expert_record const& record = near.expert(near.index_of_owner(near.owner(s)));
        return (record.where & expert_word::accessed) != 0 && record.last - first < n_ids;
      };
      u32 n_found = 0;
      if constexpr (uses_spares) {
        if (n_spares != 0) {
          n_found = detail::append_spares<Policy>(g, near, true, 0, n_loads, is_demanded, m);
          n_unused_evicted = n_found;
        }
      }
      u32 const n_before = n_found;
      n_found += detail::take_smallest(
          g, h.capacity, n_loads - n_before,
          [&](u32 s) {
            bool may_leave = !is_demanded(s);
            if constexpr (uses_spares) {
              may_leave = (n_spares == 0 || candidates.evictable(s)) && may_leave;
            }
            return may_leave;
          },
          [&](u32 s) { return candidates.key(s); },
          [&](u32 j, order_key key) { m.victim[n_before + j] = slot_of(key); });
      if constexpr (uses_spares) {
        if (n_found < n_loads) {
          n_unused_evicted += n_loads - n_found;
          (void)detail::append_spares<Policy>(g, near, false, n_found, n_loads, is_demanded, m);
        }
      }
      g.for_each(n_loads, [&](u32 j) {
        u32 const miss = m.miss[j];
        u32 at = 0;  // ascending expert index
        for (u32 i = 0; i < n_loads; ++i) {
          at += m.miss[i] < miss ? 1 : 0;
        }
        u32 const slot = m.victim[at];
        u32 const expert = miss_word::expert(miss);
        u32 const place = miss_word::place(miss);
        t.expert(t.index_of_owner(t.owner(slot))).where &= ~expert_word::slot_mask;
        t.expert(t.index_of(in.row, expert)).where = m.where[place] | (slot + 1);
        t.word(slot) = slot_word::of(slot_state::reserved);
        if constexpr (uses_spares) {
          t.target(slot) = 0;
        }
        t.owner(slot) = table_writer<Policy>::pack_owner(in.row, expert);
        t.in_flight(at) = slot;
        reserved(at, planned_load{expert, slot}, ++t.generation(slot));
        found(place, slot);
      });
    }
  }
  g.leader([&] {
    if constexpr (detail::selector_listens<Policy>) {
      for (u32 i = 0; i < n_ids; ++i) {
        u32 const where = t.expert(t.index_of(in.row, static_cast<u32>(ids[i]))).where & expert_word::slot_mask;
        t.parts().selector.on_touch(t, where - 1);
      }
    }
    outcome& out = counts();
    if (n_loads != 0) {
      h.in_flight = n_loads;
      h.reserved = n_loads;
      h.resident -= n_loads;
      detail::add_unread(g, out[access_kind::load], n_loads);
      detail::add_unread(g, out.evicted[static_cast<u32>(intent::demand)], n_loads);
      detail::add_unread(g, out.issued[static_cast<u32>(intent::demand)], n_loads);
    }
    if constexpr (uses_spares) {
      if (n_spares != 0) {
        h.unused = n_spares - n_first_uses - n_unused_evicted;
        detail::add_unread(g, out[access_kind::first_use], n_first_uses);
        detail::add_unread(g, out.evicted_unused, n_unused_evicted);
      }
    }
    detail::advance<Policy>(t, in.row, before, n_ids);
    h.version = version + 1;
    detail::add_unread(g, out[access_kind::hit], n_ids - n_loads - n_first_uses);
    detail::add_unread(g, out.demanded, n_ids);
    detail::add_unread(g, out.steps, 1u);
  });
  detail::rebase_if_due<Policy>(g, t, before, last_model_tick, n_ids);
  return {true, n_loads};
}

}  // namespace warmset::inline v0
