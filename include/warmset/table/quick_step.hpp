// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commit.hpp"
#include "plan_demand.hpp"

namespace warmset::inline v0 {

namespace detail {

/// For i < n, n at most 32: where `is_good` of every read(i) holds and no two have the same `key`, an expert, apply(i, what
/// was read) for all of them. Returns whether that was so. By any lane, an i by one.
template <lane_group Group, class Read, class Apply>
WARMSET_HD bool apply_if_all(Group const& g, u32 n, Read&& read, Apply&& apply) {
  if constexpr (requires { g.apply_if_all(n, read, apply); }) {
    return g.apply_if_all(n, read, apply);
  } else {
    bool const is_bad = g.any(n, [&](u32 i) {
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

}  // namespace detail

/// Memory of a quick step, by which its lanes tell each other; in a kernel shared memory. Its content means nothing before.
struct quick_memory {
  static constexpr u32 most = 32;  ///< ids
  u32 where[most];   ///< expert_word of the i-th id; of a missing expert without a slot
  u32 miss[most];    ///< see miss_word
  u32 victim[most];  ///< slots in the selector's order
};

/// What a quick step came to.
struct quick_result {
  bool is_done;
  u32 n_loads;
};

/// Which steps are to be carried out quickly.
enum class quick { hits, hits_and_misses };

/// Carries out a demand step of distinct valid experts in a pool of plain residents, in one pass and without a plan: what
/// plan_demand and commit come to. Such a step hits alone; or, for `hits_and_misses`, no slot is free and all of its misses
/// replace residents, where the bundle asks nobody about victims but their key. Answers is_done = false where that is not so,
/// and then nothing has changed: an id that is none or occurs twice, an expert that is in flight or speculated, a transfer in
/// flight, pins, leases, more than 32 ids.
///
/// @tparam Which    steps that hit alone cost less where nothing else is looked for
/// @param is_held   whether the caller may carry out anything; asked late, so that it is read together with the rest
/// @param found     found(i, slot) for the i-th id, by any lane
/// @param keys      keys() by all lanes, for a contextual score once it is certain that the step is a quick one: its keys of
///                  the row's experts, before anything is touched
/// @param misses    misses() by all lanes, in front of the search for victims: the table as it is to be searched, which the
///                  caller may have brought near
/// @param reserved  as for carry_out, with `by_any_lane`
/// Complexity: O(ids), and where something is missing O(slots) and O(ids^2) comparisons. Does not synchronise, allocates
/// nothing.
template <class Policy, quick Which, lane_group Group, class Id, class Found, class Keys, class Misses, class Reserved>
WARMSET_HD quick_result quick_step(Group const& g, table_writer<Policy> const& t, step_input in, Id const* ids, u32 n_ids,
                                   outcome& out, bool is_held, quick_memory& m, Found&& found, Keys&& keys,
                                   Misses&& misses, Reserved&& reserved) {
  static_assert(sizeof(Id) <= sizeof(u32), "routed ids have at most 32 bits");
  if (n_ids == 0 || n_ids > quick_memory::most) {
    return {false, 0};
  }
  using read = detail::expert_read<typename Policy::score::state>;
  constexpr bool replaces = Which == quick::hits_and_misses && detail::replaces_quickly<Policy>;
  // everything is asked for at once and judged afterwards: on a device each wait costs as much as all of them
  block_header& h = t.header();
  u32 const n_experts = t.layer(in.row).n_experts;
  u32 const last_model_tick = h.model_tick;
  u64 const version = h.version;
  clocks const before = t.now(in.row, in.model_tick);
  auto const hits = out[access_kind::hit];
  auto const demanded = out.demanded;
  auto const steps = out.steps;
  // then every expert that has a slot is resident and has been demanded
  bool const is_plain = (h.reserved | h.unused | h.pinned | h.draining) == 0 && is_held;
  bool const is_full = replaces && h.resident == h.capacity && h.leases == 0;
  u32 const usable = t.usable();
  i32 const* ranks = nullptr;
  auto const touch = [&](u32 i, u32 index, expert_record record, typename Policy::score::state const& state) {
    u32 const slot = record.where & expert_word::slot_mask;
    if constexpr (replaces) {
      m.where[i] = record.where | expert_word::accessed;
    }
    if (!replaces || slot != 0) {
      found(i, slot - 1);
    }
    detail::touch<Policy>(t, index, record, state, i, before, replaces && slot == 0);
  };
  constexpr bool is_keyed = contextual_score<typename Policy::score>;
  bool const carried_out = detail::apply_if_all(
      g, n_ids,
      [&](u32 i) {
        u32 const id = static_cast<u32>(ids[i]);
        bool const is_one = id < n_experts;
        u32 const index = t.index_of(in.row, is_one ? id : 0);
        read r{false, id, index, t.expert(index), t.score_of(index)};
        r.is_good = is_one & is_plain & (n_ids <= usable) & (((r.record.where & expert_word::slot_mask) != 0) | is_full);
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
  u32 n_loads = 0;
  if constexpr (replaces) {
    n_loads = g.append_in_order(
        n_ids, [&](u32 i) { return (m.where[i] & expert_word::slot_mask) == 0; },
        [&](u32 i, u32 at) { m.miss[at] = miss_word::of(static_cast<u32>(ids[i]), i); });
    if (n_loads != 0) {
      table_reader<Policy> const near = misses();
      detail::candidate_view<Policy> const candidates{near, in.model_tick, in.row, ranks};
      u32 const first = before.tick + 1;
      detail::take_smallest(
          g, h.capacity, n_loads,
          [&](u32 s) {
            expert_record const& record = near.expert(near.index_of_owner(near.owner(s)));
            // the touches above mark what the step demands
            bool const is_demanded = (record.where & expert_word::accessed) != 0 && record.last - first < n_ids;
            order_key const key = candidates.key(s);
            return is_demanded ? order_key{u64_max, u64_max} : key;
          },
          [&](u32 j, order_key key) { m.victim[j] = slot_of(key); });
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
    if (n_loads != 0) {
      h.in_flight = n_loads;
      h.reserved = n_loads;
      h.resident -= n_loads;
      out[access_kind::load] += n_loads;
      out.evicted[static_cast<u32>(intent::demand)] += n_loads;
      out.issued[static_cast<u32>(intent::demand)] += n_loads;
    }
    detail::advance<Policy>(t, in.row, before, n_ids);
    h.version = version + 1;
    out[access_kind::hit] = hits + (n_ids - n_loads);
    out.demanded = demanded + n_ids;
    out.steps = steps + 1;
  });
  detail::rebase_if_due<Policy>(g, t, before, last_model_tick, n_ids);
  return {true, n_loads};
}

}  // namespace warmset::inline v0
