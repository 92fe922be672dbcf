// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gate/always.hpp"
#include "gate/result.hpp"
#include "move/external.hpp"
#include "move/scratch_flights.hpp"
#include "observe/observer.hpp"
#include "table/table.hpp"

namespace warmset::inline v0 {

/// What a cache may use: slots for each layer, or bytes for all of it.
///
/// Bytes pay for slots, scratch and tails. Per-layer pools get the same number of slots each (never more
/// than the layer has experts); shared pools share the bytes in proportion to the size of their experts.
struct budget {
  u64 bytes = 0;  ///< used where `slots` is 0
  u32 slots = 0;  ///< per layer; a shared pool has this many for each of its layers
  u32 reserve = 0;  ///< slots per layer to have room for, above `slots`; 0 = no more

  static constexpr budget of_bytes(u64 n) noexcept { return {n, 0, 0}; }
  static constexpr budget of_slots(u32 n) noexcept { return {0, n, 0}; }
};

/// What a budget came to.
struct budget_report {
  u64 requested_bytes;  ///< 0 where slots were asked for
  u64 effective_bytes;  ///< slots, scratch and tails of all pools
  u32 slots;            ///< of all pools
};

/// The last decision as an engine reads it. The spans live until the cache's next call.
struct step_view {
  plan_kind kind;
  reason why;                       ///< of a refusal: `unknown_layer`, or what the gate says
  u32 n_waves;                      ///< passes through scratch; 0 = everything has its slot
  array_view<u32 const> experts;     ///< distinct, in order of last occurrence
  array_view<u32 const> slots;       ///< one per expert; local to the pool, scratch from its n_slots on
  array_view<access_kind const> how;  ///< one per expert
  array_view<u32 const> waves;       ///< meaningful for declined and overflow_miss
  array_view<planned_load const> loads;  ///< ascending expert index

  /// The expert's slot, or no_slot where this step did not ask for it. O(distinct experts).
  slot_id slot_of(expert_id expert) const noexcept {
    for (std::size_t i = 0; i < experts.size(); ++i) {
      if (experts[i] == expert.value) {
        return {slots[i]};
      }
    }
    return no_slot;
  }
};

namespace detail {
template <class Policy, class Gate>
consteval bool may_hint() {
  if constexpr (is_off<Policy>) {
    return true;
  } else {
    return !speculates<Policy> || static_cast<bool>(Gate::speculates);
  }
}
}  // namespace detail

/// How the transfers of one wave through scratch stand.
struct wave_report {
  reason why = reason::none;  ///< out_of_range: no such wave; in_flight: its slots are still being filled for another
  u32 arrived = 0;
  u32 failed = 0;  ///< `start_wave` of the same wave brings these again
  u32 in_flight = 0;

  /// Whether the wave has been started and all of it can be read.
  constexpr bool ready() const noexcept { return arrived != 0 && failed == 0 && in_flight == 0; }
};

/// The expert cache of one (context, device): pools of slots, a backend that fills them, an observer.
///
/// Every operation is enter, settle, plan, commit, move, fold, in this order, on the calling thread; none
/// allocates, locks, throws or waits for a device after construction. One owner thread; `concurrent`
/// (concurrent.hpp) adds a lock.
///
/// Demand, hints, worker and upkeep ask one gate before they look at a pool's table. What it refuses changes
/// nothing: a step is of kind `refused`, with the reason and no expert, and the engine goes its stock way; each
/// hint is counted under the reason.
///
/// The constructor throws config_error where the composition cannot work with these numbers, and bad_alloc.
template <class Policy = default_policy, class Backend = move::external,
          class Observer = observe::counting, class Gate = gate::always>
  requires(is_off<Policy> || checked_bundle<Policy>)
class cache {
  static_assert(move_backend<Backend>, "the backend must satisfy move_backend");
  static_assert(cache_observer<Observer>, "the observer must satisfy cache_observer");
  static_assert(cache_gate<Gate>, "the gate must satisfy cache_gate");
  static_assert(detail::may_hint<Policy, Gate>(),
                "the bundle takes hints and the gate's holder cannot speculate: choose the predictor none or a holder that speculates");

 public:
  using policy = Policy;
  using plan_type = plan_of<Policy>;
  static constexpr bool enabled = true;

  cache(geometry model, budget size, tuning numbers = Policy::numbers, Backend backend = {},
        Observer observer = {}, Gate gate = {})
      : model_(static_cast<geometry&&>(model)),
        backend_(static_cast<Backend&&>(backend)),
        observer_(static_cast<Observer&&>(observer)),
        gate_(static_cast<Gate&&>(gate)),
        prefill_hints_(numbers.prefill_hints) {
    make_pools(size, numbers);
    last_phase_ = fixed_array<phase>(pools_.size());
    for (phase& p : last_phase_) {
      p = phase::decode;
    }
    gate_.open(static_cast<u32>(pools_.size()));
    for (u32 pool = 0; pool < pools_.size(); ++pool) {
      pools_[pool].view().header().epoch = gate_.epoch(pool);  // new tables are nobody's old ones
    }
    backend_.open(model_, sites());
    observer_.open(model_);
    orders_ = fixed_array<transfer_order>(Policy::max_experts);
    last_step_.experts = fixed_array<u32>(keeps_last_step ? Policy::max_experts : 0);
  }

  cache(cache const&) = delete;
  cache& operator=(cache const&) = delete;

  ~cache() { backend_.close(); }

  // ---- demand ---------------------------------------------------------------------------------------

  /// A step in one call: settles, decides, commits and starts the loads. The slots may be reused by the
  /// next step of the pool: stream order must protect them, or a lease (`demand`).
  ///
  /// @param ids  routed ids of the layer, in token order; negative ones are padding
  /// @return the decision. `overflow`: nothing was committed; residents are read in place, the others go
  ///         through scratch in n_waves calls of `start_wave`. `busy`: nothing was decided, a lease must end.
  ///         `refused`: the gate says no, for the reason in `why`.
  template <id_range Ids>
  step_view step(layer_id layer, Ids const& ids, phase p = phase::decode) noexcept {
    return step(layer, ids, step_facts{p});
  }
  template <id_range Ids>
  step_view step(layer_id layer, Ids const& ids, step_facts const& facts) noexcept {
    entry const inside = enter(layer, gate::purpose::demand);
    step_view const decided = step_inside(inside, ids, facts);
    leave(inside);
    return decided;
  }

  /// Decides a step and changes nothing but what settle takes in. Not committing it leaves no trace.
  template <id_range Ids>
  step_view plan(layer_id layer, Ids const& ids, phase p = phase::decode) noexcept {
    return plan(layer, ids, step_facts{p});
  }
  template <id_range Ids>
  step_view plan(layer_id layer, Ids const& ids, step_facts const& facts) noexcept {
    entry const inside = enter(layer, gate::purpose::demand);
    step_view const decided = inside ? plan_inside(subject_of(inside.index), ids, facts) : turned_away(inside);
    leave(inside);
    return decided;
  }

  /// Carries out the last plan and starts its loads. Refused with `stale_plan` where the table has changed
  /// since, with `not_committable` where there is nothing to commit, and with what the gate says, such as
  /// `stale_epoch` where the group changed hands since; the table is then unchanged.
  status commit() noexcept {
    if (planned_layer_ == no_layer || plan_.kind != plan_kind::step) {  // a batch of hints has been committed
      return {reason::not_committable};
    }
    u32 const pool = places_[planned_layer_].pool;
    if (gate::pass const may = gate_.enter(pool, planned_epoch_, gate::purpose::upkeep); !may) {
      return {may.why};
    }
    status const result = commit_inside();
    gate_.leave(pool);
    return result;
  }

  /// The slots of one step, held until it is released or destroyed: none of them is evicted, reused or
  /// handed out again, and the group does not change hands. Movable. It must not outlive the cache.
  class lease {
   public:
    lease() = default;
    lease(lease&& other) noexcept { take(other); }
    lease& operator=(lease&& other) noexcept {
      if (this != &other) {
        release();
        take(other);
      }
      return *this;
    }
    ~lease() { release(); }

    /// Whether the step has been decided; false = busy, refused or unknown layer: `view().kind` and `why` say.
    explicit operator bool() const noexcept { return owner_ != nullptr; }
    step_view const& view() const noexcept { return view_; }
    array_view<u32 const> slots() const noexcept { return {slots_, n_}; }

    /// Ends the lease: the readers are done.
    void release() noexcept {
      if (owner_ != nullptr) {
        owner_->end_lease(pool_, {slots_, n_}, phase_);
        owner_ = nullptr;
      }
    }

   private:
    friend class cache;
    void take(lease& other) noexcept {
      owner_ = other.owner_;
      pool_ = other.pool_;
      phase_ = other.phase_;
      view_ = other.view_;
      n_ = other.n_;
      for (u32 i = 0; i < n_; ++i) {
        slots_[i] = other.slots_[i];
      }
      other.owner_ = nullptr;
    }

    cache* owner_ = nullptr;
    u32 pool_ = 0;
    phase phase_ = phase::decode;
    step_view view_{};
    u32 n_ = 0;
    u32 slots_[Policy::max_experts];
  };

  /// `step`, and a lease on its slots.
  template <id_range Ids>
  lease demand(layer_id layer, Ids const& ids, phase p = phase::decode) noexcept {
    return demand(layer, ids, step_facts{p});
  }
  template <id_range Ids>
  lease demand(layer_id layer, Ids const& ids, step_facts const& facts) noexcept {
    lease result;
    entry const inside = enter(layer, gate::purpose::demand);
    result.view_ = step_inside(inside, ids, facts);
    plan_kind const kind = result.view_.kind;
    if (kind == plan_kind::step || kind == plan_kind::overflow) {
      u32 const pool = places_[planned_layer_].pool;
      acquire<Policy>(pools_[pool].view(), plan_);
      result.n_ = leased_slots<Policy>(pools_[pool].view(), plan_, result.slots_);
      result.pool_ = pool;
      result.phase_ = facts.in_phase;
      result.owner_ = this;  // and stays inside until it is released
    } else {
      leave(inside);
    }
    return result;
  }

  /// Starts the transfers of one wave of the last step into scratch: its declined or overflowing experts.
  /// The readers of the wave before must be done. Called again for the wave that was started last, it brings
  /// again what has failed, under the same generation. Commits nothing.
  ///
  /// @return how the wave stands now. With `in_flight` or `out_of_range` nothing was started
  wave_report start_wave(u32 wave) noexcept {
    backend_.poll();
    settle_scratch();
    if (planned_layer_ == no_layer || wave >= plan_.n_waves) {
      return {reason::out_of_range};
    }
    place const& at = places_[planned_layer_];
    pool_site const& site = sites_[at.pool];
    auto const& view = pools_[at.pool].view();
    u32 const* const words = backend_.arrivals(at.pool);
    bool const again = wave == started_wave_;
    for (u32 i = 0; i < plan_.n && !again; ++i) {
      if (is_of_wave(site, i, wave) && scratch_flights_.runs(scratch_index(view, plan_.slot[i] - site.n_slots))) {
        scratch_generation_ = ++last_generation_;  // who waits all the same waits for what is never published
        return {reason::in_flight};
      }
    }
    started_wave_ = wave;
    started_generation_ = again ? started_generation_ : ++last_generation_;
    scratch_generation_ = started_generation_;
    u32 n = 0;
    for (u32 i = 0; i < plan_.n; ++i) {
      if (is_of_wave(site, i, wave) && (!again || wave_state(words[plan_.slot[i]]) == transfer::failed)) {
        transfer_order const order{slot_id{plan_.slot[i]},
                                   {site.layers[at.row], expert_id{plan_.expert[i]}},
                                   scratch_generation_};
        u32 place_of = n++;  // ascending expert index; waves are short
        for (; place_of != 0 && order.expert < orders_[place_of - 1].expert; --place_of) {
          orders_[place_of] = orders_[place_of - 1];
        }
        orders_[place_of] = order;
      }
    }
    if (n != 0) {
      observer_.record(planned_layer_, plan_.in_phase).scratch_issued += n;
      for (u32 j = 0; j < n; ++j) {
        u32 const slot = orders_[j].slot.value;
        scratch_flights_.add({scratch_index(view, slot - site.n_slots), at.pool, slot, scratch_generation_,
                              planned_layer_, plan_.in_phase});
      }
      backend_.start(at.pool, {orders_.data(), n});
      observer_.close(planned_layer_, plan_.in_phase);
    }
    return report_of(site, wave);
  }

  /// How the wave that was started last stands now; all zero for another one.
  wave_report wave(u32 which) noexcept {
    backend_.poll();
    settle_scratch();
    return planned_layer_ == no_layer || which != started_wave_
               ? wave_report{}
               : report_of(sites_[places_[planned_layer_].pool], which);
  }

  /// Sends the experts of the last step whose transfers have failed through scratch: their slots are free
  /// again, and the step is served all the same. They are a wave of their own, behind the step's: the view's
  /// slots and waves change in place. The readers of the step's own scratch must be done. Call it once the
  /// step's transfers have ended, and again for the rest where scratch did not suffice. Where the group may change
  /// hands, a lease must hold the step: without one the gate is asked anew, and nothing is served if it refuses.
  ///
  /// @return how many transfers were started; those for which no scratch slot is free keep their old slot
  u32 serve_failed() noexcept {
    if (planned_layer_ == no_layer || plan_.kind != plan_kind::step) {
      return 0;
    }
    place const& at = places_[planned_layer_];
    pool_site const& site = sites_[at.pool];
    auto const& view = pools_[at.pool].view();
    if (!gate_.enter(at.pool, planned_epoch_, gate::purpose::continuation)) {
      return 0;
    }
    backend_.poll();
    settle_pool(at.pool, planned_layer_, plan_.in_phase);
    u32 n = 0;
    u32 next = 0;
    for (u32 i = 0; i < plan_.n; ++i) {
      u32 const where = view.expert(view.index_of(at.row, plan_.expert[i])).where;
      if (plan_.slot[i] >= site.n_slots || (where & expert_word::slot_mask) == plan_.slot[i] + 1) {
        continue;  // in scratch already, or where the plan put it
      }
      while (next < site.n_scratch &&
             (view.scratch_word(next) != 0 || scratch_flights_.runs(scratch_index(view, next)))) {
        ++next;
      }
      if (next == site.n_scratch) {
        break;
      }
      plan_.slot[i] = site.n_slots + next++;
      plan_.wave[i] = plan_.n_waves;
      ++n;
    }
    if (n != 0) {
      (void)start_wave(plan_.n_waves++);
    }
    gate_.leave(at.pool);
    return n;
  }

  /// Generation under which the last wave's arrival words are published; of a wave that was refused none are.
  u32 scratch_generation() const noexcept { return scratch_generation_; }

  // ---- hints ----------------------------------------------------------------------------------------

  /// Offers predicted experts of one layer, surest first. May be dropped, never hurts: no score, tick or
  /// step changes, and no byte that a demand gets. Every drop has a reason in the counters. In prefill
  /// speculation is off: all hints are dropped as `in_prefill` before the gate is asked, unless
  /// `tuning::prefill_hints` says how many loads a batch may start there.
  ///
  /// @param max_loads  a bound beside the permit's own
  /// @param ahead      the hints are for the layer's next step but (ahead - 1)
  /// @param p          of the step from which the hints come: hints and loads are counted under it
  /// @return how many loads were started
  template <id_range Ids>
  u32 advise(layer_id layer, Ids const& experts, u32 max_loads = u32_max, u32 ahead = 1,
             phase p = phase::decode) noexcept
    requires speculates<Policy>
  {
    u32 const n_ids = static_cast<u32>(experts.size());
    u32 const most = most_loads_in(p);
    if (most == 0) {
      if (u32 const index = index_of(layer); index != no_layer) {
        drop_hints(index, p, n_ids, reason::in_prefill);
      }
      return 0;
    }
    entry const inside = enter(layer, gate::purpose::speculation);
    planned_layer_ = inside ? inside.index : no_layer;
    started_wave_ = u32_max;
    if (!inside) {
      if (inside.index != no_layer) {
        drop_hints(inside.index, p, n_ids, inside.may.why);
      }
      return 0;
    }
    place const& at = places_[inside.index];
    settle_pool(at.pool, inside.index, last_phase_[at.pool]);
    auto const& view = pools_[at.pool].view();
    plan_speculative<Policy>(one_lane{}, view,
                             speculation_input{at.row, view.layer(at.row).step + ahead,
                                               min_of(most, min_of(max_loads, inside.may.max_loads)),
                                               model_tick_, p},
                             experts.data(), n_ids, workspace_, plan_);
    status const result = commit_inside();
    leave(inside);
    return result ? plan_.n_loads : 0;
  }

  /// Whether hints for a layer would be taken at this moment: what a producer asks before it spends anything.
  /// Refused with what the gate and its permit say, on a table of the group's epoch, and with `in_prefill`.
  /// Nothing is entered or counted.
  status may_advise(layer_id layer, phase p = phase::decode) const noexcept
    requires speculates<Policy>
  {
    u32 const index = index_of(layer);
    if (index == no_layer) {
      return {reason::unknown_layer};
    }
    if (most_loads_in(p) == 0) {
      return {reason::in_prefill};
    }
    return {gate_.look(places_[index].pool, gate::purpose::speculation).why};
  }

  /// Offers hints of any layers; runs of one layer are one batch.
  void advise(array_view<hint const> hints, phase p = phase::decode) noexcept
    requires speculates<Policy>
  {
    routed_id batch[64];
    for (std::size_t i = 0; i < hints.size();) {
      layer_id const layer = hints[i].layer;
      u32 n = 0;
      for (; i < hints.size() && hints[i].layer == layer && n < 64; ++i) {
        batch[n++] = hints[i].expert;
      }
      (void)advise(layer, array_view<routed_id const>{batch, n}, u32_max, 1, p);
    }
  }

  // ---- the mover's news, capacity, keeping -------------------------------------------------------------

  /// Takes in what the backend has published, in all pools that the gate lets in; the others' holder does. Goes on
  /// behind a closing gate where a lease is held, since who holds it may wait for this. Counts in the phase of each
  /// pool's last step.
  void settle() noexcept {
    backend_.poll();
    (void)in_all_pools(gate::purpose::continuation, [&](u32 pool) {
      settle_pool(pool, first_layer_of(pool), last_phase_[pool]);
    });
  }

  /// Changes the capacity of the layer's pool within its reserved slots: see warmset::resize.
  status resize(layer_id layer, u32 capacity) noexcept {
    return change(layer, [&](auto const& view, u32, outcome& out) {
      return warmset::resize<Policy>(view, capacity, out);
    });
  }

  /// Forgets the layer's residency: its source or its storage has changed.
  status invalidate(layer_id layer) noexcept {
    return change(layer, [&](auto const& view, u32 row, outcome& out) {
      warmset::invalidate<Policy>(view, row, out);
      return done;
    });
  }

  /// Forgets all residency: the storage was allocated anew. Pools that the gate refuses are their holder's to
  /// invalidate; the result counts them as failed.
  gate::result invalidate() noexcept {
    return in_all_pools(gate::purpose::upkeep, [&](u32 pool) {
      outcome& out = observer_.record(first_layer_of(pool), phase::decode);
      warmset::invalidate<Policy>(pools_[pool].view(), u32_max, out);
      observer_.close(first_layer_of(pool), phase::decode);
    });
  }

  /// Keeps an expert once it is resident; at least k unpinned slots must remain.
  status pin(expert_key key) noexcept {
    return change(key.layer, [&](auto const& view, u32 row, outcome&) {
      return warmset::pin<Policy>(view, row, key.expert.value, model_.find(key.layer)->k);
    });
  }
  status unpin(expert_key key) noexcept {
    return change(key.layer, [&](auto const& view, u32 row, outcome&) {
      return warmset::unpin<Policy>(view, row, key.expert.value);
    });
  }

  // ---- looking --------------------------------------------------------------------------------------
  // Of this side's tables: where another holder has the group, of what was handed over.

  /// Whether a step of n_tokens is certain not to overflow in this layer.
  bool fits(layer_id layer, u32 n_tokens) const noexcept {
    u32 const index = index_of(layer);
    return index != no_layer && reader(index).fits(places_[index].row, n_tokens, model_.layers()[index].k);
  }
  bool is_resident(expert_key key) const noexcept {
    u32 const index = index_of(key.layer);
    if (index == no_layer || key.expert.value >= model_.layers()[index].n_experts) {
      return false;
    }
    auto const view = reader(index);
    u32 const where = view.expert(view.index_of(places_[index].row, key.expert.value)).where &
                      expert_word::slot_mask;
    return where != 0 && slot_word::state(view.word(where - 1)) == slot_state::resident;
  }

  geometry const& model() const noexcept { return model_; }
  budget_report const& effective_budget() const noexcept { return report_; }
  Backend& backend() noexcept { return backend_; }
  Backend const& backend() const noexcept { return backend_; }
  Observer& observer() noexcept { return observer_; }
  Gate& gate() noexcept { return gate_; }
  Gate const& gate() const noexcept { return gate_; }
  plan_type const& last_plan() const noexcept { return plan_; }
  array_view<pool_site const> sites() const noexcept { return {sites_.data(), sites_.size()}; }
  array_view<table<Policy> const> pools() const noexcept { return pools_; }
  array_view<table<Policy>> pools() noexcept { return pools_; }
  /// The pool that serves a layer, and the layer's row in it; false where the model has no such layer.
  bool find(layer_id layer, u32& pool, u32& row) const noexcept {
    u32 const index = index_of(layer);
    if (index != no_layer) {
      pool = places_[index].pool;
      row = places_[index].row;
    }
    return index != no_layer;
  }

  /// The first broken invariant of any pool. Host only, O(everything).
  audit_result audit() const {
    for (table<Policy> const& pool : pools_) {
      if (audit_result const result = warmset::audit(pool.view()); !result) {
        return result;
      }
    }
    return {};
  }
  /// Slot counts of all pools, as the laws need them.
  table_counts slot_counts() const {
    table_counts sum{};
    for (table<Policy> const& pool : pools_) {
      table_counts const c = count_slots(pool.view());
      sum.in_flight[0] += c.in_flight[0];
      sum.in_flight[1] += c.in_flight[1];
      sum.late_in_flight += c.late_in_flight;
      sum.resident_unused += c.resident_unused;
    }
    sum.scratch_in_flight = scratch_flights_.running();
    return sum;
  }

 private:
  struct place {
    u32 pool;
    u32 row;
    layer_id layer;
    table_writer<Policy> const* view;  ///< of the pool
  };
  static constexpr u32 no_layer = u32_max;
  /// Whether another holder can ever have a group: not behind the empty gate.
  static constexpr bool changes_hands = !std::is_same_v<Gate, gate::always>;
  static constexpr bool keeps_last_step = [] {
    if constexpr (contextual_score<typename Policy::score>) {
      return static_cast<bool>(Policy::score::uses_previous_layer);
    } else {
      return false;
    }
  }();

  u32 index_of(layer_id layer) const noexcept {
    return layer.value < index_of_layer_.size() ? index_of_layer_[layer.value] : no_layer;
  }
  /// An operation on one layer, if it may.
  struct entry {
    u32 index;  ///< of the layer, or no_layer
    gate::pass may;
    explicit operator bool() const noexcept { return may.why == reason::none; }
  };
  /// First act of every operation: who may, on the table as it is; and what has arrived.
  entry enter(layer_id layer, gate::purpose what) noexcept {
    u32 const index = index_of(layer);
    if (index == no_layer) [[unlikely]] {
      backend_.poll();
      return {index, {reason::unknown_layer}};
    }
    u32 const pool = places_[index].pool;
    gate::pass const may = gate_.enter(pool, epoch_of(pool), what);
    if (may) {
      backend_.poll();
      if constexpr (changes_hands) {
        // another holder may have counted on; equal otherwise
        u32 const ticked = pools_[pool].view().header().model_tick;
        model_tick_ = age_of(ticked, model_tick_) <= u32_max / 2 ? ticked : model_tick_;
      }
    }
    return {index, may};
  }
  void leave(entry const& inside) noexcept {
    if (inside) {
      gate_.leave(places_[inside.index].pool);
    }
  }
  /// Does f(pool) in every pool that the gate lets in.
  template <class F>
  gate::result in_all_pools(gate::purpose what, F&& f) noexcept {
    u32 const n = static_cast<u32>(pools_.size());
    u32 ok = 0;
    for (u32 pool = 0; pool < n; ++pool) {
      if (gate_.enter(pool, epoch_of(pool), what)) {
        f(pool);
        gate_.leave(pool);
        ++ok;
      }
    }
    return gate::result::of(ok, n - ok);
  }
  /// The epoch's word in a pool's table: not to be read before the gate has let in.
  u32 const& epoch_of(u32 pool) const noexcept { return pools_[pool].view().header().epoch; }
  /// What an operation that is inside works on.
  struct subject {
    u32 index;  ///< of the layer
    place const& at;
    table_writer<Policy> const& view;  ///< of the pool
  };
  subject subject_of(u32 index) noexcept {
    place const& at = places_[index];
    return {index, at, *at.view};
  }

  /// The answer to a step that may not enter.
  step_view turned_away(entry const& outside) noexcept {
    planned_layer_ = no_layer;
    started_wave_ = u32_max;
    if (outside.index == no_layer) {
      return {plan_kind::empty, reason::unknown_layer, 0, {}, {}, {}, {}, {}};
    }
    last_step_.layer = no_layer - 1;  // the layer after it has nothing to follow
    return {plan_kind::refused, outside.may.why, 0, {}, {}, {}, {}, {}};
  }

  template <id_range Ids>
  step_view step_inside(entry const& inside, Ids const& ids, step_facts const& facts) noexcept {
    if (!inside) [[unlikely]] {
      return turned_away(inside);
    }
    subject const here = subject_of(inside.index);
    step_view const decided = plan_inside(here, ids, facts);
    if (decided.kind == plan_kind::step) [[likely]] {
      carry_out_inside(here, facts.in_phase);  // nothing came between: there is nothing to check
    } else if (planned_layer_ != no_layer) {
      record_uncommitted<Policy>(plan_, observer_.record(here.index, facts.in_phase));
      remember_step(here, facts.in_phase);
      finish(here.index, facts.in_phase);
    }
    return decided;
  }

  template <id_range Ids>
  step_view plan_inside(subject const& here, Ids const& ids, step_facts const& facts) noexcept {
    u32 const index = here.index;
    place const& at = here.at;
    planned_layer_ = index;
    started_wave_ = u32_max;
    if constexpr (changes_hands) {
      planned_epoch_ = epoch_of(at.pool);
    }
    step_input in{at.row, facts.in_phase, model_tick_};
    if constexpr (contextual_score<typename Policy::score>) {
      if (!facts.supplied.empty() && facts.supplied.size() != model_.layers()[index].n_experts) {
        planned_layer_ = no_layer;
        return {plan_kind::empty, reason::out_of_range, 0, {}, {}, {}, {}, {}};
      }
      in.supplied = facts.supplied.empty() ? nullptr : facts.supplied.data();
      in.sequence = facts.sequence;
      in.token = facts.token;
      if (index == last_step_.layer + 1) {  // the layer before, of the same micro-batch
        in.previous = last_step_.experts.data();
        in.n_previous = last_step_.n;
      }
    }
    settle_pool(at.pool, here.view, index, facts.in_phase);
    plan_demand<Policy>(one_lane{}, here.view, in, ids.data(), static_cast<u32>(ids.size()),
                        workspace_, plan_);
    return view_of_plan();
  }

  /// Carries out the plan of the operation that is inside, where the table is still what it was made of.
  status commit_inside() noexcept {
    subject const here = subject_of(planned_layer_);
    status const result = may_commit<Policy>(one_lane{}, here.view, plan_);
    if (result) {
      carry_out_inside(here, plan_.in_phase);
    }
    return result;
  }
  void carry_out_inside(subject const& here, phase p) noexcept {
    u32 const n_loads = plan_.n_loads;
    transfer_order* const orders = orders_.data();
    carry_out<Policy>(one_lane{}, here.view, plan_, observer_.record(here.index, p),
                      [orders, layer = here.at.layer](u32 j, planned_load load, u32 generation) {
                        orders[j] = {slot_id{load.slot}, {layer, expert_id{load.expert}}, generation};
                      });
    if (is_of_demand<Policy>(plan_)) {
      model_tick_ += plan_.n;
      remember_step(here, p);
    }
    if (n_loads != 0) {
      backend_.start(here.at.pool, {orders, n_loads});
    }
    finish(here.index, p);
  }

  /// Counts a batch of hints that nobody may issue.
  void drop_hints(u32 layer_index, phase p, u32 n, reason why) noexcept {
    // what is no reason to drop a hint, such as `not_paying`, is a permit's
    u32 const known = static_cast<u32>(static_cast<u32>(why) < n_drop_reasons ? why : reason::governed);
    outcome& out = observer_.record(layer_index, p);
    out.hints_offered += n;
    out.hints_dropped[known] += n;
    observer_.close(layer_index, p);
  }
  /// Loads that a batch of hints of this phase may start, whatever else bounds it.
  u32 most_loads_in(phase p) const noexcept { return p == phase::prefill ? prefill_hints_ : u32_max; }

  table_reader<Policy> reader(u32 index) const noexcept { return pools_[places_[index].pool].view(); }
  u32 first_layer_of(u32 pool) const noexcept { return index_of(sites_[pool].layers.front()); }

  // ---- scratch

  bool is_of_wave(pool_site const& site, u32 i, u32 wave) const noexcept {
    return plan_.slot[i] >= site.n_slots && plan_.wave[i] == wave;
  }
  /// Of a transfer of the wave that was started last; one that the backend did not take has failed.
  transfer wave_state(u32 word) const noexcept {
    return arrival::is_of(word, started_generation_) ? arrival::state(word) : transfer::failed;
  }
  wave_report report_of(pool_site const& site, u32 wave) const noexcept {
    wave_report r;
    u32 const* const words = backend_.arrivals(site.pool);
    for (u32 i = 0; i < plan_.n; ++i) {
      if (is_of_wave(site, i, wave)) {
        transfer const state = wave_state(words[plan_.slot[i]]);
        ++(state == transfer::arrived ? r.arrived : state == transfer::loading ? r.in_flight : r.failed);
      }
    }
    return r;
  }
  /// A pool's scratch slot among those of all groups.
  u32 scratch_index(table_writer<Policy> const& view, u32 i) const noexcept {
    return static_cast<u32>(&view.scratch_word(i) - scratch_.data());
  }
  void settle_scratch() noexcept {
    if (scratch_flights_.running() != 0) [[unlikely]] {
      take_in_scratch();
    }
  }
  WARMSET_APART void take_in_scratch() noexcept {
    scratch_flights_.take_in([this](u32 pool) { return backend_.arrivals(pool); },
                             [this](auto const& flight, transfer how) {
                               outcome& out = observer_.record(flight.layer_index, flight.in_phase);
                               ++(how == transfer::arrived ? out.scratch_arrived : out.scratch_failed);
                               observer_.close(flight.layer_index, flight.in_phase);
                             });
  }

  void settle_pool(u32 pool, u32 layer_index, phase p) noexcept {
    settle_pool(pool, pools_[pool].view(), layer_index, p);
  }
  void settle_pool(u32 pool, table_writer<Policy> const& view, u32 layer_index, phase p) noexcept {
    settle_scratch();
    if (view.header().in_flight == 0) {
      return;
    }
    u32 const* const words = backend_.arrivals(pool);
    if constexpr (requires { observer_.on_settle(pool, view, words); }) {
      observer_.on_settle(pool, view, words);
    }
    warmset::settle<Policy>(one_lane{}, view, words, observer_.record(layer_index, p));
  }

  /// Keeps a step's phase, for what its transfers come to, and its set, for the next layer's contextual score.
  void remember_step(subject const& here, phase p) noexcept {
    last_phase_[here.at.pool] = p;
    if constexpr (keeps_last_step) {
      last_step_.layer = here.index;
      last_step_.n = plan_.n;
      for (u32 i = 0; i < plan_.n; ++i) {
        last_step_.experts[i] = plan_.expert[i];
      }
    }
  }

  void finish(u32 index, phase p) noexcept {
    if constexpr (requires { observer_.on_plan(index, plan_); }) {
      observer_.on_plan(index, plan_);
    }
    observer_.close(index, p);
  }

  void end_lease(u32 pool, array_view<u32 const> slots, phase p) noexcept {
    if constexpr (requires { observer_.on_release(pool, slots); }) {
      observer_.on_release(pool, slots);
    }
    release<Policy>(pools_[pool].view(), slots.data(), static_cast<u32>(slots.size()),
                    observer_.record(first_layer_of(pool), p));
    observer_.close(first_layer_of(pool), p);
    gate_.leave(pool);
  }

  template <class F>
  status change(layer_id layer, F&& f) noexcept {
    entry const inside = enter(layer, gate::purpose::upkeep);
    if (!inside) {
      return {inside.may.why};
    }
    u32 const index = inside.index;
    settle_pool(places_[index].pool, index, last_phase_[places_[index].pool]);
    status const result = f(pools_[places_[index].pool].view(), places_[index].row,
                            observer_.record(index, phase::decode));
    observer_.close(index, phase::decode);
    leave(inside);
    return result;
  }

  step_view view_of_plan() const noexcept {
    return {plan_.kind,
            reason::none,
            plan_.n_waves,
            {plan_.expert, plan_.n},
            {plan_.slot, plan_.n},
            {plan_.how, plan_.n},
            {plan_.wave, plan_.n},
            {plan_.loads, plan_.n_loads}};
  }

  // ---- construction -----------------------------------------------------------------------------------

  /// A template, so that only those who make a cache compile the vectors of groups.
  template <class Group = geometry_group>
  void make_pools(budget size, tuning const& numbers) {
    std::vector<layer_geometry> const& layers = model_.layers();
    if (layers.empty()) {
      throw config_error("a cache of a model without MoE layers is not possible");
    }
    if (size.slots == 0 && size.bytes == 0) {
      throw config_error("the budget is 0 slots and 0 bytes; to switch the cache off use the bundle off");
    }
    u32 const last = layers.back().layer.value;
    if (last > geometry::max_layers) {
      throw config_error("layer ", last, " is beyond ", geometry::max_layers);
    }
    index_of_layer_ = fixed_array<u32>(last + 1);
    places_ = fixed_array<place>(layers.size());
    for (u32& index : index_of_layer_) {
      index = no_layer;
    }
    for (u32 i = 0; i < layers.size(); ++i) {
      index_of_layer_[layers[i].layer.value] = i;
    }

    std::vector<Group> const groups = model_.groups<Group>();
    auto const scratch_of = [&](Group const& group) {
      return numbers.scratch_slots != 0 ? numbers.scratch_slots : group.max_k;
    };
    u64 fixed = 0;      // bytes of scratch, tails and alignment
    u32 scratch_words = 0;
    u64 per_slot = 0;   // bytes of one slot in every layer
    for (Group const& group : groups) {
      scratch_words += scratch_of(group);
      fixed += u64{scratch_of(group)} * group.expert_bytes() +
               (backend_.tail_bytes() + group_layout::alignment) * group.bank_bytes.size();
      per_slot += group.expert_bytes() * group.layers.size();
    }
    u32 slots = size.slots;
    if (slots == 0) {
      u64 const left = saturating_sub(size.bytes, fixed + size.reserve * per_slot);
      slots = static_cast<u32>(min_of(left / per_slot, u64{max_slots}));
      if (slots == 0) {
        throw config_error("a budget of ", size.bytes, " bytes is below one slot per layer: that takes ",
                           per_slot * (u64{size.reserve} + 1) + fixed, " bytes, scratch included");
      }
    }
    report_ = {size.bytes, 0, 0};
    scratch_ = fixed_array<u32>(scratch_words);
    scratch_flights_.open(scratch_words);
    sites_ = fixed_array<pool_site>(Policy::pool::spans_layers ? groups.size() : layers.size());
    u32* group_scratch = scratch_.data();
    for (u32 g = 0; g < groups.size(); ++g) {
      Group const& group = groups[g];
      u32 const n_scratch = scratch_of(group);
      tuning own = numbers;
      own.scratch_slots = n_scratch;
      u32 first_slot = 0;
      std::size_t const first_pool = pools_.size();
      auto add_pool = [&](std::vector<layer_geometry> const& rows, u64 wanted, u64 reserved, u64 most) {
        pool_size const sizes{static_cast<u32>(min_of(reserved, most)),
                              static_cast<u32>(min_of(wanted, most))};
        pool_site site{static_cast<u32>(pools_.size()), g, first_slot, sizes.reserved, 0, n_scratch, {}};
        for (u32 row = 0; row < rows.size(); ++row) {
          site.layers.push_back(rows[row].layer);
          places_[index_of(rows[row].layer)] = {site.pool, row, rows[row].layer, nullptr};
        }
        first_slot += sizes.reserved;
        report_.slots += sizes.capacity;
        pools_.emplace_back(rows, sizes, own, group_scratch);
        sites_[site.pool] = static_cast<pool_site&&>(site);
      };
      std::vector<layer_geometry> rows;
      u64 all_experts = 0;
      for (layer_id id : group.layers) {
        rows.push_back(*model_.find(id));
        all_experts += rows.back().n_experts;
      }
      u64 const reserved = u64{slots} + size.reserve;
      if constexpr (Policy::pool::spans_layers) {
        add_pool(rows, u64{slots} * rows.size(), reserved * rows.size(), all_experts);
      } else {
        for (layer_geometry const& row : rows) {
          add_pool({row}, slots, reserved, row.n_experts);
        }
      }
      for (std::size_t i = first_pool; i < pools_.size(); ++i) {
        sites_[i].first_scratch = first_slot;
      }
      group_scratch += n_scratch;
    }
    for (place& at : places_) {  // no pool is moved any more
      at.view = &pools_[at.pool].view();
    }
    for (group_layout const& layout : layouts_of(model_, sites(), backend_.tail_bytes())) {
      report_.effective_bytes += layout.bytes();
    }
  }

  geometry model_;
  Backend backend_;
  Observer observer_;
  [[no_unique_address]] Gate gate_;
  fixed_array<u32> index_of_layer_;  // by layer id
  fixed_array<place> places_;        // by layer index
  fixed_array<u32> scratch_;         // lease words, group after group; shared by a group's pools
  std::vector<table<Policy>> pools_;
  fixed_array<pool_site> sites_;
  fixed_array<transfer_order> orders_;
  budget_report report_{};
  struct last_step {
    u32 layer = no_layer - 1;  ///< index; no layer follows it
    u32 n = 0;
    fixed_array<u32> experts;
  };
  last_step last_step_;  // of demand; where the score reads the layer before
  fixed_array<phase> last_phase_;  // of demand, by pool; decode where there was none
  u32 prefill_hints_;
  u32 planned_layer_ = no_layer;
  u32 planned_epoch_ = 0;
  u32 model_tick_ = 0;
  u32 last_generation_ = 0;     ///< of scratch
  u32 scratch_generation_ = 0;  ///< of the last wave that was asked for
  u32 started_generation_ = 0;  ///< of the last wave that was started
  u32 started_wave_ = u32_max;  ///< of the last plan
  move::detail::scratch_flights scratch_flights_;
  workspace_of<Policy> workspace_;
  plan_type plan_;
};

/// The cache that is switched off: no member, no allocation, no hook, no counter. `step`, `advise`,
/// `may_advise` and `settle` compile to nothing and decide nothing; `enabled` tells an engine to go its stock way.
template <class Backend, class Observer, class Gate>
class cache<off, Backend, Observer, Gate> {
 public:
  using policy = off;
  static constexpr bool enabled = false;

  template <class... Arguments>
  explicit constexpr cache(Arguments const&...) noexcept {}

  template <id_range Ids>
  constexpr step_view step(layer_id, Ids const&, phase = phase::decode) noexcept {
    return {plan_kind::empty, reason::unsupported, 0, {}, {}, {}, {}, {}};
  }
  template <id_range Ids>
  constexpr u32 advise(layer_id, Ids const&, u32 = u32_max, u32 = 1, phase = phase::decode) noexcept {
    return 0;
  }
  constexpr status may_advise(layer_id, phase = phase::decode) const noexcept { return {reason::unsupported}; }
  constexpr void settle() noexcept {}
};

}  // namespace warmset::inline v0
