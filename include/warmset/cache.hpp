// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "move/external.hpp"
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
  reason why;                       ///< of a refusal: `unknown_layer`
  u32 n_waves;                      ///< passes through scratch; 0 = everything has its slot
  std::span<u32 const> experts;     ///< distinct, in order of last occurrence
  std::span<u32 const> slots;       ///< one per expert; local to the pool, scratch from its n_slots on
  std::span<access_kind const> how;  ///< one per expert
  std::span<u32 const> waves;       ///< meaningful for declined and overflow_miss
  std::span<planned_load const> loads;  ///< ascending expert index

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

/// The expert cache of one (context, device): pools of slots, a backend that fills them, an observer.
///
/// Every operation is enter, settle, plan, commit, move, fold, in this order, on the calling thread; none
/// allocates, locks, throws or waits for a device after construction. One owner thread; `concurrent`
/// (concurrent.hpp) adds a lock.
///
/// The constructor throws config_error where the composition cannot work with these numbers, and bad_alloc.
template <class Policy = default_policy, class Backend = move::external,
          class Observer = observe::counting>
  requires(is_off<Policy> || checked_bundle<Policy>)
class cache {
  static_assert(move_backend<Backend>, "the backend must satisfy move_backend");
  static_assert(cache_observer<Observer>, "the observer must satisfy cache_observer");

 public:
  using policy = Policy;
  using plan_type = plan_of<Policy>;
  static constexpr bool enabled = true;

  cache(geometry model, budget size, tuning numbers = Policy::numbers, Backend backend = {},
        Observer observer = {})
      : model_(static_cast<geometry&&>(model)),
        backend_(static_cast<Backend&&>(backend)),
        observer_(static_cast<Observer&&>(observer)) {
    make_pools(size, numbers);
    backend_.open(model_, sites_);
    observer_.open(model_);
    orders_.resize(Policy::max_experts);
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
  template <class Id>
  step_view step(layer_id layer, std::span<Id const> ids, phase p = phase::decode) noexcept {
    step_view const decided = plan(layer, ids, p);
    if (decided.kind == plan_kind::step) {
      (void)commit();
    } else if (planned_layer_ != no_layer) {
      record_uncommitted<Policy>(plan_, observer_.record(planned_layer_, p));
      finish(p);
    }
    return decided;
  }

  /// Decides a step and changes nothing but what settle takes in. Not committing it leaves no trace.
  template <class Id>
  step_view plan(layer_id layer, std::span<Id const> ids, phase p = phase::decode) noexcept {
    u32 const index = enter(layer);
    planned_layer_ = index;
    if (index == no_layer) {
      return {plan_kind::empty, reason::unknown_layer, 0, {}, {}, {}, {}, {}};
    }
    place const& at = places_[index];
    settle_pool(at.pool, index, p);
    plan_demand<Policy>(one_lane{}, pools_[at.pool].reading(), step_input{at.row, p, model_tick_},
                        ids.data(), static_cast<u32>(ids.size()), workspace_, plan_);
    return view_of_plan();
  }

  /// Carries out the last plan and starts its loads. Refused with `stale_plan` where the table has changed
  /// since, and with `not_committable` where there is nothing to commit; the table is then unchanged.
  status commit() noexcept {
    if (planned_layer_ == no_layer) {
      return {reason::not_committable};
    }
    place const& at = places_[planned_layer_];
    status const result = warmset::commit<Policy>(one_lane{}, pools_[at.pool].view(), plan_,
                                                  observer_.record(planned_layer_, plan_.in_phase));
    if (result) {
      model_tick_ += plan_.for_intent == intent::demand ? plan_.n : 0;
      start_loads(at.pool);
      finish(plan_.in_phase);
    }
    return result;
  }

  /// The slots of one step, held until it is released or destroyed: none of them is evicted, reused or
  /// handed out again. Movable. It must not outlive the cache.
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

    /// Whether the step has been decided; false = busy or unknown layer, and `view().why` or kind says so.
    explicit operator bool() const noexcept { return owner_ != nullptr; }
    step_view const& view() const noexcept { return view_; }
    std::span<u32 const> slots() const noexcept { return {slots_, n_}; }

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
  template <class Id>
  lease demand(layer_id layer, std::span<Id const> ids, phase p = phase::decode) noexcept {
    lease result;
    result.view_ = step(layer, ids, p);
    plan_kind const kind = result.view_.kind;
    if (kind == plan_kind::step || kind == plan_kind::overflow) {
      u32 const pool = places_[planned_layer_].pool;
      acquire<Policy>(pools_[pool].view(), plan_);
      result.n_ = leased_slots<Policy>(pools_[pool].view(), plan_, result.slots_);
      result.pool_ = pool;
      result.phase_ = p;
      result.owner_ = this;
    }
    return result;
  }

  /// Starts the transfers of one wave of the last step into scratch: its declined or overflowing experts.
  /// The readers of the wave before must be done.
  void start_wave(u32 wave) noexcept {
    if (planned_layer_ == no_layer) {
      return;
    }
    place const& at = places_[planned_layer_];
    pool_site const& site = sites_[at.pool];
    ++scratch_generation_;
    u32 n = 0;
    for (u32 i = 0; i < plan_.n; ++i) {
      if (plan_.slot[i] >= site.n_slots && plan_.wave[i] == wave) {
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
    backend_.start(at.pool, {orders_.data(), n});
  }

  /// Sends the experts of the last step whose transfers have failed through scratch: their slots are free
  /// again, and the step is served all the same. The view's slots change in place; the readers of the
  /// step's own scratch must be done. Call it once the step's transfers have ended.
  ///
  /// @return how many transfers were started; those for which no scratch slot is free keep their old slot
  u32 serve_failed() noexcept {
    if (planned_layer_ == no_layer || plan_.kind != plan_kind::step) {
      return 0;
    }
    place const& at = places_[planned_layer_];
    pool_site const& site = sites_[at.pool];
    auto const& view = pools_[at.pool].view();
    backend_.poll();
    settle_pool(at.pool, planned_layer_, plan_.in_phase);
    ++scratch_generation_;
    u32 n = 0;
    u32 next = 0;
    for (u32 i = 0; i < plan_.n; ++i) {
      u32 const where = view.expert(view.index_of(at.row, plan_.expert[i])).where;
      if (plan_.slot[i] >= site.n_slots || (where & expert_word::slot_mask) == plan_.slot[i] + 1) {
        continue;  // in scratch already, or where the plan put it
      }
      while (next < site.n_scratch && view.scratch_word(next) != 0) {
        ++next;
      }
      if (next == site.n_scratch) {
        break;
      }
      plan_.slot[i] = site.n_slots + next++;
      plan_.wave[i] = 0;
      orders_[n++] = {slot_id{plan_.slot[i]},
                      {site.layers[at.row], expert_id{plan_.expert[i]}},
                      scratch_generation_};
    }
    backend_.start(at.pool, {orders_.data(), n});
    return n;
  }

  /// Generation under which the last wave's arrival words are published.
  u32 scratch_generation() const noexcept { return scratch_generation_; }

  // ---- hints ----------------------------------------------------------------------------------------

  /// Offers predicted experts of one layer, surest first. May be dropped, never hurts: no score, tick or
  /// step changes, and no byte that a demand gets. Every drop has a reason in the counters.
  ///
  /// @param max_loads  what the permit allows
  /// @param ahead      the hints are for the layer's next step but (ahead - 1)
  /// @return how many loads were started
  template <class Id>
  u32 advise(layer_id layer, std::span<Id const> experts, u32 max_loads = u32_max,
             u32 ahead = 1) noexcept
    requires speculates<Policy>
  {
    u32 const index = enter(layer);
    planned_layer_ = index;
    if (index == no_layer) {
      return 0;
    }
    place const& at = places_[index];
    settle_pool(at.pool, index, phase::decode);
    auto const& view = pools_[at.pool].view();
    plan_speculative<Policy>(
        one_lane{}, view,
        speculation_input{at.row, view.layer(at.row).step + ahead, max_loads, model_tick_},
        experts.data(), static_cast<u32>(experts.size()), workspace_, plan_);
    return commit() ? plan_.n_loads : 0;
  }

  /// Offers hints of any layers; runs of one layer are one batch.
  void advise(std::span<hint const> hints) noexcept
    requires speculates<Policy>
  {
    routed_id batch[64];
    for (std::size_t i = 0; i < hints.size();) {
      layer_id const layer = hints[i].layer;
      u32 n = 0;
      for (; i < hints.size() && hints[i].layer == layer && n < 64; ++i) {
        batch[n++] = hints[i].expert;
      }
      (void)advise(layer, std::span<routed_id const>{batch, n});
    }
  }

  // ---- the mover's news, capacity, keeping -------------------------------------------------------------

  /// Takes in what the backend has published, in all pools.
  void settle() noexcept {
    backend_.poll();
    for (u32 pool = 0; pool < pools_.size(); ++pool) {
      settle_pool(pool, first_layer_of(pool), phase::decode);
    }
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

  /// Forgets all residency: the storage was allocated anew.
  void invalidate() noexcept {
    for (u32 pool = 0; pool < pools_.size(); ++pool) {
      outcome& out = observer_.record(first_layer_of(pool), phase::decode);
      warmset::invalidate<Policy>(pools_[pool].view(), u32_max, out);
      observer_.close(first_layer_of(pool), phase::decode);
    }
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
  Observer& observer() noexcept { return observer_; }
  plan_type const& last_plan() const noexcept { return plan_; }
  std::span<pool_site const> sites() const noexcept { return sites_; }
  std::span<table<Policy> const> pools() const noexcept { return pools_; }
  std::span<table<Policy>> pools() noexcept { return pools_; }
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
    return sum;
  }

 private:
  struct place {
    u32 pool;
    u32 row;
  };
  static constexpr u32 no_layer = u32_max;

  u32 index_of(layer_id layer) const noexcept {
    return layer.value < index_of_layer_.size() ? index_of_layer_[layer.value] : no_layer;
  }
  /// First act of every operation: who may. Until the gate is built the owner thread always may.
  u32 enter(layer_id layer) noexcept {
    backend_.poll();
    return index_of(layer);
  }
  table_reader<Policy> reader(u32 index) const noexcept { return pools_[places_[index].pool].view(); }
  u32 first_layer_of(u32 pool) const noexcept { return index_of(sites_[pool].layers.front()); }

  void settle_pool(u32 pool, u32 layer_index, phase p) noexcept {
    auto const& view = pools_[pool].view();
    if (view.header().in_flight == 0) {
      return;
    }
    u32 const* const words = backend_.arrivals(pool);
    if constexpr (requires { observer_.on_settle(pool, view, words); }) {
      observer_.on_settle(pool, view, words);
    }
    warmset::settle<Policy>(one_lane{}, view, words, observer_.record(layer_index, p));
  }

  void start_loads(u32 pool) noexcept {
    u32 const n = plan_.n_loads;
    if (n == 0) {
      return;
    }
    auto const& view = pools_[pool].view();
    layer_id const layer = sites_[pool].layers[plan_.row];
    for (u32 j = 0; j < n; ++j) {
      orders_[j] = {slot_id{plan_.loads[j].slot},
                    {layer, expert_id{plan_.loads[j].expert}},
                    view.generation(plan_.loads[j].slot)};
    }
    backend_.start(pool, {orders_.data(), n});
  }

  void finish(phase p) noexcept {
    if constexpr (requires { observer_.on_plan(planned_layer_, plan_); }) {
      observer_.on_plan(planned_layer_, plan_);
    }
    observer_.close(planned_layer_, p);
  }

  void end_lease(u32 pool, std::span<u32 const> slots, phase p) noexcept {
    if constexpr (requires { observer_.on_release(pool, slots); }) {
      observer_.on_release(pool, slots);
    }
    release<Policy>(pools_[pool].view(), slots.data(), static_cast<u32>(slots.size()),
                    observer_.record(first_layer_of(pool), p));
    observer_.close(first_layer_of(pool), p);
  }

  template <class F>
  status change(layer_id layer, F&& f) noexcept {
    u32 const index = enter(layer);
    if (index == no_layer) {
      return {reason::unknown_layer};
    }
    settle_pool(places_[index].pool, index, phase::decode);
    status const result = f(pools_[places_[index].pool].view(), places_[index].row,
                            observer_.record(index, phase::decode));
    observer_.close(index, phase::decode);
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
    index_of_layer_.assign(last + 1, no_layer);
    places_.resize(layers.size());
    for (u32 i = 0; i < layers.size(); ++i) {
      index_of_layer_[layers[i].layer.value] = i;
    }

    std::vector<geometry_group> const groups = model_.groups();
    u64 fixed = 0;      // bytes of scratch, tails and alignment
    u64 per_slot = 0;   // bytes of one slot in every layer
    for (geometry_group const& group : groups) {
      u64 const scratch = numbers.scratch_slots != 0 ? numbers.scratch_slots : group.max_k;
      fixed += scratch * group.expert_bytes() +
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
    scratch_.resize(groups.size());
    for (u32 g = 0; g < groups.size(); ++g) {
      geometry_group const& group = groups[g];
      u32 const n_scratch = numbers.scratch_slots != 0 ? numbers.scratch_slots : group.max_k;
      scratch_[g].assign(n_scratch, 0);
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
          places_[index_of(rows[row].layer)] = {site.pool, row};
        }
        first_slot += sizes.reserved;
        report_.slots += sizes.capacity;
        pools_.emplace_back(rows, sizes, own, scratch_[g].data());
        sites_.push_back(static_cast<pool_site&&>(site));
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
      for (std::size_t i = first_pool; i < sites_.size(); ++i) {
        sites_[i].first_scratch = first_slot;
      }
    }
    for (group_layout const& layout : layouts_of(model_, sites_, backend_.tail_bytes())) {
      report_.effective_bytes += layout.bytes();
    }
  }

  geometry model_;
  Backend backend_;
  Observer observer_;
  std::vector<u32> index_of_layer_;        // by layer id
  std::vector<place> places_;              // by layer index
  std::vector<std::vector<u32>> scratch_;  // lease words, by group; shared by its pools
  std::vector<table<Policy>> pools_;
  std::vector<pool_site> sites_;
  std::vector<transfer_order> orders_;
  budget_report report_{};
  u32 planned_layer_ = no_layer;
  u32 model_tick_ = 0;
  u32 scratch_generation_ = 0;
  workspace_of<Policy> workspace_;
  plan_type plan_;
};

/// The cache that is switched off: no member, no allocation, no hook, no counter. `step`, `advise` and
/// `settle` compile to nothing and decide nothing; `enabled` tells an engine to go its stock way.
template <class Backend, class Observer>
class cache<off, Backend, Observer> {
 public:
  using policy = off;
  static constexpr bool enabled = false;

  template <class... Arguments>
  explicit constexpr cache(Arguments const&...) noexcept {}

  template <class Id>
  constexpr step_view step(layer_id, std::span<Id const>, phase = phase::decode) noexcept {
    return {plan_kind::empty, reason::unsupported, 0, {}, {}, {}, {}, {}};
  }
  template <class Id>
  constexpr u32 advise(layer_id, std::span<Id const>, u32 = u32_max, u32 = 1) noexcept {
    return 0;
  }
  constexpr void settle() noexcept {}
};

}  // namespace warmset::inline v0
