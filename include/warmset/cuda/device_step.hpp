// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../table/plan_demand.hpp"
#include "../table/plan_speculative.hpp"
#include "../table/quick_step.hpp"
#include "../table/settle.hpp"
#include "gather_adaptors.hpp"

/// One step of a pool that a device decides by itself: settle, plan, commit, and a list of the bytes to fetch. Host-device
/// functions of a lane group, so that a test on the host runs what a kernel runs.
namespace warmset::inline v0::cuda {

/// Why a step could not be decided as planned; kept until somebody reads it.
enum class step_fault : u32 {
  none,
  stale_epoch,   ///< the authority has moved since the graph was captured: nothing is committed
  overflow,      ///< more distinct experts than usable slots: the graph was captured for fewer tokens
  busy,          ///< not enough scratch for what is declined in one pass
};

/// The experts that the last step fetches. Written by plan, read by gather; `left` counts an order's pieces down.
template <u32 MaxExperts>
struct fetch_queue {
  u32 n;
  u32 fault;  ///< step_fault, the first one since it was cleared
  u32 learns;  ///< whether the last step left something to learn_on_device
  u32 left[MaxExperts];
  fetch_order order[MaxExperts];
};

/// Where one bank's bytes come from and go to.
struct bank_addresses {
  unsigned char const* const* source;  ///< per row: expert 0 in mapped host memory, expert after expert
  unsigned char* slots;                ///< the pool's slot 0
  unsigned char* scratch;              ///< the first scratch slot
  u64 bytes;                           ///< of one expert: the stride of both
};

/// A phase as a word: a byte that a kernel reads is masked before anything else is asked for, and waited for.
struct phase_word {
  u32 value;
  WARMSET_HD constexpr phase_word(phase p) noexcept : value(static_cast<u32>(p)) {}
  WARMSET_HD constexpr operator phase() const noexcept { return static_cast<phase>(value); }
};

/// A pool in device memory as a kernel sees it: pointers, trivially copyable.
template <checked_bundle Policy>
struct pool_view {
  void* block;
  components<Policy> parts;
  table_shape shape;
  u32* arrivals;  ///< [n_slots]
  plan_of<Policy>* plan;  ///< what a contextual score is to learn from: see learn_on_device
  outcome* out;  ///< [n_phases]: operations count under their own
  fetch_queue<Policy::max_experts>* queue;
  bank_addresses const* banks;
  u32 n_banks;
  u32 piece_bytes;  ///< what one worker copies at a time
  u32 n_pieces;     ///< of one expert, all its banks
  u32 first_slot;     ///< index of slot 0 in the bank, which other pools share
  u32 first_scratch;  ///< index of the first scratch slot in the bank
  bool reads_host = false;  ///< readers take what has no slot from the source: nothing goes into scratch

  WARMSET_HD outcome& counts(phase_word p) const noexcept { return out[p.value]; }
  /// Refers to the view, or to a copy of its parts that lies nearer; they must stay where they are.
  WARMSET_HD table_writer<Policy> table() const noexcept { return table(parts); }
  WARMSET_HD table_writer<Policy> table(components<Policy> const& of) const noexcept { return {block, shape, &of}; }
  WARMSET_HD u32 bank_index(u32 slot) const noexcept {
    return slot < shape.n_slots ? first_slot + slot : first_scratch + (slot - shape.n_slots);
  }
};

/// Where the readers of one layer's steps find the experts that they were answered. Plain data, for kernels.
struct served_experts {
  bank_addresses const* banks;
  u32 const* arrivals;
  u32 row;
  u32 n_slots;
  u32 first_slot;
  u32 first_scratch;

  /// The bytes of an expert in one bank. In place in the source where its transfer into the slot has failed, and where the
  /// answer was -1: slower, and the same bytes.
  WARMSET_HD unsigned char const* bytes(u32 bank, u32 expert, i32 answer) const noexcept {
    bank_addresses const& b = banks[bank];
    u32 const slot = static_cast<u32>(answer) - first_slot;
    if (answer >= 0 && slot >= n_slots) {
      return b.scratch + (static_cast<u32>(answer) - first_scratch) * b.bytes;
    }
    if (answer < 0 || arrival::state(arrivals[slot]) != transfer::arrived) {
      return b.source[row] + expert * b.bytes;
    }
    return b.slots + slot * b.bytes;
  }
};

/// What a step is told besides its ids. Contextual scores alone read what follows the phase.
struct device_input {
  u32 row;
  u32 epoch;  ///< under which the graph was captured
  phase_word in_phase;
  u32 sequence = 0;
  u32 token = step_context::no_token;
  u32 const* previous = nullptr;  ///< ids that the layer before demanded, in the memory of whoever runs the step
  u32 n_previous = 0;
  i32 const* supplied = nullptr;  ///< the engine's keys, one for each expert of the layer, there as well
};

namespace detail {

template <class Policy>
WARMSET_HD void note(pool_view<Policy> const& v, step_fault what) noexcept {
  if (v.queue->fault == 0) {
    v.queue->fault = static_cast<u32>(what);
  }
}

/// Answers every routed id: the place of its expert in the bank, −1 for padding, ids out of range and what has no place.
template <class Policy, lane_group Group, class Id>
WARMSET_HD void answer(Group const& g, pool_view<Policy> const& v, u32 n_experts, Id const* ids, u32 n_ids,
                       plan_of<Policy> const& p, workspace_of<Policy>& w, i32* slots) {
  u32* const place = w.position;
  g.for_each(p.n, [&](u32 i) { place[p.expert[i]] = i; });
  g.for_each(n_ids, [&](u32 j) {
    u32 const id = static_cast<u32>(ids[j]);
    u32 const slot = id < n_experts ? p.slot[place[id]] : u32_max;
    bool const has_place = slot < v.shape.n_slots || (slot != u32_max && !v.reads_host);
    slots[j] = has_place ? static_cast<i32>(v.bank_index(slot)) : -1;
  });
}

/// What commit tells of a load: it is to be fetched.
template <class Policy>
struct list_for_gather {
  static constexpr bool by_any_lane = true;
  pool_view<Policy> const& v;
  u32 row;

  WARMSET_HD void operator()(u32 j, planned_load load, u32 generation) const noexcept {
    v.queue->order[j] = {row, load.expert, load.slot, generation};
    v.arrivals[load.slot] = arrival::word(generation, transfer::loading);
  }
};

/// Lists every distinct expert for scratch, in the order of the plan, and none where readers take them from the source;
/// nothing of the table is read or written.
template <class Policy, lane_group Group>
WARMSET_HD void fetch_all_into_scratch(Group const& g, pool_view<Policy> const& v, u32 row, plan_of<Policy>& p) {
  u32 const n = v.reads_host ? 0 : min_of(p.n, v.shape.n_scratch);
  g.for_each(p.n, [&](u32 i) {
    p.slot[i] = i < n ? v.shape.n_slots + i : u32_max;
    if (i < n) {
      v.queue->order[i] = {row, p.expert[i], v.shape.n_slots + i, 0};
    }
  });
  g.leader([&] { v.queue->n = n; });
}

}  // namespace detail

namespace detail {

/// Leaves what learn_on_device reads of a plan where that finds it.
template <class Policy, lane_group Group>
WARMSET_HD void keep_for_learning(Group const& g, plan_of<Policy> const& p, u32 n_experts, plan_of<Policy>& kept) {
  g.leader([&] {
    kept.row = p.row;
    kept.model_tick = p.model_tick;
    kept.n = p.n;
    kept.sequence = p.sequence;
    kept.token = p.token;
    kept.n_previous = p.n_previous;
    kept.n_supplied = p.n_supplied;
  });
  g.for_each(n_experts, [&](u32 i) { kept.key[i] = p.key[i]; });
  g.for_each(p.n, [&](u32 i) { kept.expert[i] = p.expert[i]; });
  if constexpr (Policy::score::uses_previous_layer) {
    g.for_each(p.n_previous, [&](u32 i) { kept.previous[i] = p.previous[i]; });
  }
  if constexpr (Policy::score::uses_supplied) {
    g.for_each(p.n_supplied, [&](u32 i) { kept.supplied[i] = p.supplied[i]; });
  }
}

template <class Policy>
WARMSET_HD step_input as_step(device_input const& in, table_reader<Policy> const& t) noexcept {
  return {in.row,   in.in_phase, t.header().model_tick, in.sequence,
          in.token, in.previous, in.n_previous,         in.supplied};
}

}  // namespace detail

/// Decides most steps at a fraction of what step_on_device costs: see quick_step. Returns false where it is another one: then
/// nothing has changed but what settle does, and step_on_device decides it.
///
/// @param near  near() by all lanes, where much of the table will be read: the table, which the caller may have brought near,
///              and w as its first use wants it
/// @param w, p  as for step_on_device; used where the score makes keys
template <class Policy, lane_group Group, class Id, class Near>
WARMSET_HD bool quick_on_device(Group const& g, pool_view<Policy> const& v, device_input const& in, Id const* ids,
                                u32 n_ids, i32* slots, quick_memory& m, workspace_of<Policy>& w, plan_of<Policy>& p,
                                Near&& near) {
  table_writer<Policy> const t = v.table();
  // where the step is counted depends on what the host says of it: nothing else may wait for that
  auto const counts = [&]() -> outcome& { return v.counts(in.in_phase); };
  bool const is_mine = t.header().epoch == in.epoch;
  constexpr bool is_keyed = contextual_score<typename Policy::score>;
  constexpr bool replaces = warmset::detail::replaces_quickly<Policy>;
  auto const found = [&](u32 i, u32 slot) {
    slots[i] = static_cast<i32>(v.first_slot + slot);
    if (i == 0) {
      v.queue->n = 0;
    }
  };
  auto const reserved = [&](u32 j, planned_load load, u32 generation) {
    detail::list_for_gather<Policy>{v, in.row}(j, load, generation);
    v.queue->left[j] = v.n_pieces;
  };
  table_writer<Policy> searched = t;
  auto const keys = [&]() -> i32 const* {
    if constexpr (is_keyed) {
      searched = near();
      return warmset::detail::keys_of_step<Policy>(g, searched, detail::as_step<Policy>(in, t), ids, n_ids, w, p);
    }
    return nullptr;
  };
  auto const misses = [&] { return searched; };
  if constexpr (!is_keyed) {
    if (quick_step<Policy, quick::hits>(g, t, detail::as_step<Policy>(in, t), ids, n_ids, counts, is_mine, m, found, keys, misses,
                                        reserved)
            .is_done) {
      return true;
    }
  }
  if (!is_mine) {
    return false;
  }
  if constexpr (!replaces) {
    bool const is_as_before = t.header().in_flight == 0 && (!speculates<Policy> || t.header().unused == 0);
    if (is_keyed || is_as_before || g.any(n_ids, [&](u32 i) {
          u32 const id = static_cast<u32>(ids[i]);
          return id >= t.layer(in.row).n_experts || (t.expert(t.index_of(in.row, id)).where & expert_word::slot_mask) == 0;
        })) {
      return false;
    }
  }
  // behind a step that loaded its experts stand as reserved until somebody takes them in; who does so reads most of the table
  if constexpr (!is_keyed) {
    searched = near();
  }
  settle<Policy>(g, t, v.arrivals, counts());
  quick_result const r = quick_step<Policy, quick::hits_and_misses>(g, t, detail::as_step<Policy>(in, t), ids, n_ids, counts,
                                                                    is_mine, m, found, keys, misses, reserved);
  if (r.n_loads != 0) {
    g.leader([&] { v.queue->n = r.n_loads; });
  }
  if constexpr (is_keyed) {
    if (r.is_done) {
      g.leader([&] { v.queue->learns = 1; });
      detail::keep_for_learning<Policy>(g, p, t.layer(in.row).n_experts, *v.plan);
    }
  }
  return r.is_done;
}

/// Decides a demand step where its table lies, and lists what gather fetches. Between two steps of a pool the stream
/// orders: whoever reads the slots of one step does so before the next begins, which is their lease.
///
/// Under another epoch than the block's nothing is committed and every expert comes from scratch. So does every one of a
/// step that would overflow or finds no scratch, for which no graph is captured (`fits`). All three leave a step_fault, and
/// where there is less scratch than experts the last ones are answered −1: the engine must not use that step.
///
/// Where the view says reads_host, nothing of all this goes into scratch: what is declined is answered −1, and so is every
/// expert of a step that is not committed. Readers that ask served_experts find them in place in the source.
///
/// @param ids    `n_ids` routed ids, in the memory of whoever runs this
/// @param slots  `n_ids` answers: the index in the bank of a slot or of a scratch slot; −1 where the id is none
/// @param w, p   the caller's; of a contextual score's plan the view keeps what learn_on_device reads
/// @param t      the view's table
/// What a contextual score learns is left to learn_on_device, which nothing but the pool's next step waits for.
///
/// Complexity: that of settle, plan and commit, and O(ids).
template <class Policy, lane_group Group, class Id>
WARMSET_HD void step_on_device(Group const& g, pool_view<Policy> const& v, device_input const& in, Id const* ids,
                               u32 n_ids, i32* slots, workspace_of<Policy>& w, plan_of<Policy>& p,
                               table_writer<Policy> const& t) {
  table_reader<Policy> const reader = t;
  u32 const n_experts = t.layer(in.row).n_experts;
  bool const mine = t.header().epoch == in.epoch;
  if (mine) {
    settle<Policy>(g, t, v.arrivals, v.counts(in.in_phase));
  }
  g.leader([&] {
    v.queue->n = 0;
    v.queue->learns = 0;
  });
  plan_demand<Policy>(g, reader, detail::as_step<Policy>(in, reader), ids, n_ids, w, p);
  bool const decided = p.kind == plan_kind::step && (p.n_waves <= 1 || v.reads_host);
  if (!mine || (!decided && p.kind != plan_kind::empty)) {
    detail::fetch_all_into_scratch<Policy>(g, v, in.row, p);
    g.leader([&] {
      if (mine) {
        record_uncommitted<Policy>(p, v.counts(in.in_phase));
      }
      detail::note(v, !mine                           ? step_fault::stale_epoch
                      : p.kind == plan_kind::overflow ? step_fault::overflow
                                                      : step_fault::busy);
    });
  } else if (decided) {
    warmset::detail::carry_out_decisions<Policy>(g, t, p, v.counts(in.in_phase), detail::list_for_gather<Policy>{v, in.row});
    u32 const n_declined = g.append_in_order(
        p.n_declined == 0 || v.reads_host ? 0 : p.n, [&](u32 i) { return p.how[i] == access_kind::declined; },
        [&](u32 i, u32 at) { v.queue->order[p.n_loads + at] = {in.row, p.expert[i], p.slot[i], 0}; });
    g.leader([&] {
      v.queue->n = p.n_loads + n_declined;
      v.queue->learns = 1;
    });
    if constexpr (contextual_score<typename Policy::score>) {
      detail::keep_for_learning<Policy>(g, p, n_experts, *v.plan);
    }
  } else {
    g.leader([&] { record_uncommitted<Policy>(p, v.counts(in.in_phase)); });
  }
  detail::answer<Policy>(g, v, n_experts, ids, n_ids, p, w, slots);
  g.for_each(v.queue->n, [&](u32 j) { v.queue->left[j] = v.n_pieces; });
}

template <class Policy, lane_group Group, class Id>
WARMSET_HD void step_on_device(Group const& g, pool_view<Policy> const& v, device_input const& in, Id const* ids,
                               u32 n_ids, i32* slots, workspace_of<Policy>& w, plan_of<Policy>& p) {
  step_on_device<Policy>(g, v, in, ids, n_ids, slots, w, p, v.table());
}

/// Lets a contextual score learn from the pool's last step: the last act of its commit. Reads the step's plan. Nothing
/// for other scores.
template <class Policy, lane_group Group>
WARMSET_HD void learn_on_device(Group const& g, pool_view<Policy> const& v) {
  if constexpr (contextual_score<typename Policy::score>) {
    table_writer<Policy> const t = v.table();
    if (v.queue->learns != 0) {
      warmset::detail::learn<Policy>(g, t, *v.plan, warmset::detail::clocks_before<Policy>(t, *v.plan));
    }
  }
}

/// What a batch of hints is told besides its ids.
struct hint_input {
  u32 row;
  u32 epoch;  ///< under which the graph was captured
  phase_word in_phase;
  u64 bytes;  ///< most that the batch may start to move
};

/// Decides a batch of hints for a row's next step where its table lies, and lists what gather fetches. It may run beside
/// steps and readers of other pools, and must be through, its gather as well, before the next step of this one begins.
/// Under another epoch than the block's nothing is committed or fetched.
///
/// @param v    a view whose queue is not that of the pool's steps: readers may look at both
/// @param ids  surest first; padding is passed over
/// Complexity: that of settle, plan_speculative and commit.
template <class Policy, lane_group Group, class Id>
WARMSET_HD void hints_on_device(Group const& g, pool_view<Policy> const& v, hint_input in, Id const* ids, u32 n_ids,
                                workspace_of<Policy>& w, plan_of<Policy>& p) {
  static_assert(!Policy::pool::spans_layers, "hints beside a step need a pool for each layer");
  table_writer<Policy> const t = v.table();
  table_reader<Policy> const reader = t;
  g.leader([&] { v.queue->n = 0; });
  if (t.header().epoch != in.epoch) {
    return;
  }
  settle<Policy>(g, t, v.arrivals, v.counts(in.in_phase));
  u64 expert_bytes = 0;
  for (u32 bank = 0; bank < v.n_banks; ++bank) {
    expert_bytes += v.banks[bank].bytes;
  }
  u32 const most = static_cast<u32>(min_of(in.bytes / max_of(expert_bytes, u64{1}), u64{Policy::max_experts}));
  plan_speculative<Policy>(g, reader,
                           {in.row, reader.layer(in.row).step + 1, most, reader.header().model_tick, in.in_phase}, ids,
                           n_ids, w, p);
  bool const committed =
      static_cast<bool>(commit<Policy>(g, t, p, v.counts(in.in_phase), detail::list_for_gather<Policy>{v, in.row}));
  g.leader([&] { v.queue->n = committed ? p.n_loads : 0; });
  g.for_each(v.queue->n, [&](u32 j) { v.queue->left[j] = v.n_pieces; });
}

/// Fetches what the step listed: piece after piece of every bank, and after an expert's last piece its arrival word.
///
/// @param first, stride  the pieces of this worker: first, first + stride, …
/// @param adaptor        says which transfers fail
/// @param copy           copy(to, from, bytes) by all lanes of the worker
/// @param last           last(counter): whether this was an expert's last piece, what all workers wrote before it being
///                       visible then; asked by all lanes of the worker, true for one at most
template <class Policy, gather_adaptor Adaptor, class Copy, class Last>
WARMSET_HD void gather(pool_view<Policy> const& v, u32 first, u32 stride, Adaptor const& adaptor, Copy&& copy, Last&& last) {
  u32 const n = v.queue->n * v.n_pieces;
  for (u32 piece = first; piece < n; piece += stride) {
    fetch_order const& order = v.queue->order[piece / v.n_pieces];
    bool const is_scratch = order.slot >= v.shape.n_slots;
    u32 within = piece % v.n_pieces;
    u32 bank = 0;
    u64 pieces = 0;
    for (; bank < v.n_banks; ++bank) {
      pieces = ceil_div(v.banks[bank].bytes, u64{v.piece_bytes});
      if (within < pieces) {
        break;
      }
      within -= static_cast<u32>(pieces);
    }
    bank_addresses const& b = v.banks[bank];
    u64 const at = u64{within} * v.piece_bytes;
    unsigned char const* const from = b.source[order.row] + order.expert * b.bytes + at;
    unsigned char* const to = (is_scratch ? b.scratch + (order.slot - v.shape.n_slots) * b.bytes
                                          : b.slots + order.slot * b.bytes) + at;
    transfer const end = is_scratch ? transfer::arrived : adaptor.end_of(v.bank_index(order.slot), order);
    if (end == transfer::arrived) {
      copy(to, from, min_of(b.bytes - at, u64{v.piece_bytes}));
    }
    if (last(v.queue->left[piece / v.n_pieces]) && !is_scratch) {
      v.arrivals[order.slot] = arrival::word(order.generation, end);
    }
  }
}

}  // namespace warmset::inline v0::cuda
