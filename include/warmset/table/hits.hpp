// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commit.hpp"
#include "plan_demand.hpp"

namespace warmset::inline v0 {

namespace detail {

/// For i < n, n at most 32: where `is_good` of every read(i) holds and no two have the same `key`, apply(i, what was
/// read) for all of them. Returns whether that was so. By any lane, an i by one.
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

/// What a step of hits reads of one expert.
template <class State>
struct expert_read {
  bool is_good;  ///< resident
  u32 key;       ///< the expert
  u32 index;
  expert_record record;
  State state;
};

}  // namespace detail

/// Carries out a demand step that hits plain residents alone, in one pass and without a plan: what plan_demand and commit
/// come to. Returns false where that is not so, and then nothing has changed: an id that is none or occurs twice, an
/// expert that is absent, in flight or speculated, a transfer in flight, pins, more than 32 ids. A contextual score makes
/// keys in every step, so that it always answers false.
///
/// @param is_held  whether the caller may carry out anything; asked late, so that it is read together with the rest
/// @param found    found(i, slot) for the i-th id, by any lane
/// Complexity: O(ids), and O(ids^2) comparisons of ids. Does not synchronise, allocates nothing.
template <class Policy, lane_group Group, class Id, class Found>
WARMSET_HD bool commit_hits(Group const& g, table_writer<Policy> const& t, step_input in, Id const* ids, u32 n_ids,
                            outcome& out, bool is_held, Found&& found) {
  static_assert(sizeof(Id) <= sizeof(u32), "routed ids have at most 32 bits");
  constexpr u32 most = 32;
  if constexpr (contextual_score<typename Policy::score>) {
    return false;
  } else {
    if (n_ids == 0 || n_ids > most) {
      return false;
    }
    using read = detail::expert_read<typename Policy::score::state>;
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
    u32 const usable = t.usable();
    bool const carried_out = detail::apply_if_all(
        g, n_ids,
        [&](u32 i) {
          u32 const id = static_cast<u32>(ids[i]);
          bool const is_one = id < n_experts;
          u32 const index = t.index_of(in.row, is_one ? id : 0);
          read r{false, id, index, t.expert(index), t.score_of(index)};
          r.is_good = is_one & is_plain & (n_ids <= usable) & ((r.record.where & expert_word::slot_mask) != 0);
          return r;
        },
        [&](u32 i, read const& r) {
          found(i, (r.record.where & expert_word::slot_mask) - 1);
          detail::touch<Policy>(t, r.index, r.record, r.state, i, before, false);
        });
    if (!carried_out) {
      return false;
    }
    g.leader([&] {
      if constexpr (detail::selector_listens<Policy>) {
        for (u32 i = 0; i < n_ids; ++i) {
          u32 const where = t.expert(t.index_of(in.row, static_cast<u32>(ids[i]))).where & expert_word::slot_mask;
          t.parts().selector.on_touch(t, where - 1);
        }
      }
      detail::advance<Policy>(t, in.row, before, n_ids);
      h.version = version + 1;
      out[access_kind::hit] = hits + n_ids;
      out.demanded = demanded + n_ids;
      out.steps = steps + 1;
    });
    detail::rebase_if_due<Policy>(g, t, before, last_model_tick, n_ids);
    return true;
  }
}

}  // namespace warmset::inline v0
