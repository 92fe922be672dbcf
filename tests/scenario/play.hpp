// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/cache.hpp>
#include <warmset/observe/laws.hpp>
#include <warmset/table/bundles.hpp>

#include "kit/probe.hpp"
#include "support/dice.hpp"

namespace warmset::scenario {

using id_list = std::vector<routed_id>;

/// Ids first, first + 1, … of `n` experts.
inline id_list range(u32 first, u32 n) {
  id_list ids;
  for (u32 i = 0; i < n; ++i) {
    ids.push_back(static_cast<routed_id>(first + i));
  }
  return ids;
}

/// Capacities at which every capacity scenario is played: 1, 2, 3, k, 8, 42, n_experts.
inline constexpr u32 n_experts = 64;
inline constexpr u32 k = 4;
inline constexpr u32 capacities[] = {1, 2, 3, k, 8, 42, n_experts};

/// A bundle of a score and a guard that takes hints and records each question to the guard.
template <class Score, class Guard, class Selector = select::coldest>
struct watched : default_policy {
  using score = Score;
  using selector = Selector;
  using guard = kit::probed<Guard>;
  using predictor = predict::supplied;
  using decay = no_decay;
};

/// A bundle without hints.
template <class Score, class Selector = select::coldest>
using plain = bundles::of<Score, Selector>;

/// The pool of one scenario.
struct sizes {
  u32 capacity;
  u32 experts = n_experts;
  u32 per_token = k;
  u32 layers = 1;
  u32 reserve = 0;  ///< slots beyond the capacity
  tuning numbers{};
};

/// A decision, copied out.
struct decided {
  plan_kind kind = plan_kind::empty;
  u32 n_waves = 0;
  std::vector<u32> experts, slots, waves;
  std::vector<access_kind> how;
  std::vector<planned_load> loads;

  /// How this expert was served; fails where the step did not ask for it.
  access_kind of(u32 expert) const { return how.at(place_of(expert)); }
  u32 slot_of(u32 expert) const { return slots.at(place_of(expert)); }
  u32 count(access_kind wanted) const {
    return static_cast<u32>(std::count(how.begin(), how.end(), wanted));
  }
  bool loads_expert(u32 expert) const {
    return std::any_of(loads.begin(), loads.end(),
                       [&](planned_load const& l) { return l.expert == expert; });
  }

 private:
  std::size_t place_of(u32 expert) const {
    return static_cast<std::size_t>(std::find(experts.begin(), experts.end(), expert) -
                                    experts.begin());
  }
};

template <class Plan>
decided copy_of(Plan const& p) {
  decided d;
  d.kind = p.kind;
  d.n_waves = p.n_waves;
  d.experts.assign(p.expert, p.expert + p.n);
  d.slots.assign(p.slot, p.slot + p.n);
  d.waves.assign(p.wave, p.wave + p.n);
  d.how.assign(p.how, p.how + p.n);
  d.loads.assign(p.loads, p.loads + p.n_loads);
  return d;
}

inline void require_laws(total_counters const& c, table_counts const& now) {
  if (law_result const l = check_laws(c, now); !l) {
    FAIL("law: " << name_of(l.broken) << ": " << l.left << " against " << l.right);
  }
}

/// What scenarios are played on: a table or a whole cache of some bundle. Audits, and checks the
/// laws of the
/// counters, after each operation. `row` is the layer.
class player {
 public:
  virtual ~player() = default;
  player() = default;
  player(player const&) = delete;
  player& operator=(player const&) = delete;

  virtual decided plan(id_list const& ids, u32 row = 0) = 0;
  virtual decided demand(id_list const& ids, u32 row = 0) = 0;
  /// Demands and holds a lease on the slots until `release(lease)`.
  virtual decided hold(id_list const& ids, u32& lease, u32 row = 0) = 0;
  virtual void release(u32 lease) = 0;
  /// Hints; returns the loads.
  virtual u32 hint(id_list const& ids, u32 row = 0, u32 max_loads = u32_max, u32 ahead = 1) = 0;
  /// Every transfer ends.
  virtual void finish_all(transfer to) = 0;
  /// The transfer into one slot ends.
  virtual void finish(u32 slot, transfer to, u32 row = 0) = 0;
  virtual status resize(u32 capacity, u32 row = 0) = 0;
  virtual void invalidate() = 0;
  virtual status pin(u32 expert, u32 row = 0) = 0;

  virtual block_header& header(u32 row = 0) = 0;
  virtual layer_record& layer(u32 row = 0) = 0;
  virtual expert_record& expert(u32 expert, u32 row = 0) = 0;
  virtual u32 word(u32 slot, u32 row = 0) = 0;
  /// The score's state of an expert, in words.
  virtual std::span<u32> score(u32 expert, u32 row = 0) = 0;
  virtual u32 heat(u32 expert, u32 row = 0) = 0;
  virtual u64 value(u32 expert, u32 row = 0) = 0;
  virtual total_counters counters() = 0;
  virtual no_victim_counts obstacles() = 0;  ///< of the last plan
  virtual std::vector<unsigned char> bytes() = 0;
  virtual void check() = 0;

  /// Off for runs of a million operations, which check now and then.
  bool audits = true;

  void land() { finish_all(transfer::arrived); }
  /// Demands and lets every transfer arrive.
  decided d(id_list const& ids, u32 row = 0) {
    decided const result = demand(ids, row);
    land();
    return result;
  }
  /// Hints and lets every transfer arrive; returns the loads.
  u32 p(id_list const& ids, u32 row = 0) {
    u32 const loads = hint(ids, row);
    land();
    return loads;
  }
  u32 where(u32 e, u32 row = 0) { return expert(e, row).where & expert_word::slot_mask; }
  bool resident(u32 e, u32 row = 0) {
    u32 const at = where(e, row);
    return at != 0 && slot_word::state(word(at - 1, row)) == slot_state::resident;
  }
  bool in_flight(u32 e, u32 row = 0) { return where(e, row) != 0 && !resident(e, row); }
  u32 slot_of(u32 e, u32 row = 0) { return where(e, row) - 1; }
  u32 n_resident(u32 row = 0) { return header(row).resident; }
  /// Slots that hold or await an expert.
  u32 live(u32 row = 0) {
    block_header const& h = header(row);
    return h.resident + h.reserved + h.draining;
  }
  u64 dropped(reason why) { return counters().hints_dropped[static_cast<u32>(why)].value; }
  u64 skipped(reason why) { return counters().skipped_ids[static_cast<u32>(why)].value; }
};

namespace detail {
template <class Policy>
std::span<u32> score_words(table_writer<Policy> const& t, u32 index) {
  if constexpr (std::is_empty_v<typename Policy::score::state>) {
    return {};
  } else {
    static_assert(sizeof(typename Policy::score::state) % 4 == 0);
    return {reinterpret_cast<u32*>(&t.score_of(index)), sizeof(typename Policy::score::state) / 4};
  }
}
}  // namespace detail

/// Plays on one table, driven the way the cache drives it.
template <class Policy>
class on_table final : public player {
 public:
  explicit on_table(sizes s)
      : table_(geometry::uniform(s.layers, s.experts, s.per_token, 1000).layers(),
               {s.capacity + s.reserve, s.capacity}, s.numbers),
        words_(s.capacity + s.reserve, 0), k_(s.per_token) {}

  table_writer<Policy> const& view() noexcept { return table_.view(); }
  plan_of<Policy> const& last_plan() const noexcept { return plan_; }

  decided plan(id_list const& ids, u32 row = 0) override {
    settle();
    plan_demand<Policy>(one_lane{}, view(), step_input{row, phase::decode, model_tick_}, ids.data(),
                        static_cast<u32>(ids.size()), work_, plan_);
    return copy_of(plan_);
  }
  decided demand(id_list const& ids, u32 row = 0) override {
    decided result = plan(ids, row);
    outcome out{};
    if (result.kind == plan_kind::step) {
      status const committed = warmset::commit<Policy>(one_lane{}, view(), plan_, out);
      REQUIRE(committed);
      model_tick_ += plan_.n;
      start();
    } else {
      record_uncommitted<Policy>(plan_, out);
    }
    take(out);
    return result;
  }
  decided hold(id_list const& ids, u32& lease, u32 row = 0) override {
    decided result = demand(ids, row);
    if (result.kind == plan_kind::busy || result.kind == plan_kind::empty) {
      lease = u32_max;
      return result;
    }
    acquire<Policy>(view(), plan_);
    std::vector<u32> slots(Policy::max_experts);
    slots.resize(leased_slots<Policy>(view(), plan_, slots.data()));
    lease = static_cast<u32>(leases_.size());
    leases_.push_back(slots);
    take({});
    return result;
  }
  void release(u32 lease) override {
    outcome out{};
    warmset::release<Policy>(view(), leases_[lease].data(), static_cast<u32>(leases_[lease].size()),
                             out);
    leases_[lease].clear();
    take(out);
  }
  u32 hint(id_list const& ids, u32 row = 0, u32 max_loads = u32_max, u32 ahead = 1) override {
    if constexpr (speculates<Policy>) {
      settle();
      outcome out{};
      plan_speculative<Policy>(
          one_lane{}, view(),
          speculation_input{row, layer(row).step + ahead, max_loads, model_tick_}, ids.data(),
          static_cast<u32>(ids.size()), work_, plan_);
      status const committed = warmset::commit<Policy>(one_lane{}, view(), plan_, out);
      REQUIRE(committed);
      start();
      take(out);
      return plan_.n_loads;
    } else {
      return 0;
    }
  }
  void finish_all(transfer to) override {
    for (u32& word : words_) {
      if (arrival::state(word) == transfer::loading) {
        word = arrival::word(word >> 2, to);
      }
    }
    settle();
  }
  void finish(u32 slot, transfer to, u32 = 0) override {
    words_[slot] = arrival::word(words_[slot] >> 2, to);
    settle();
  }
  void settle() {
    outcome out{};
    warmset::settle<Policy>(one_lane{}, view(), words_.data(), out);
    take(out);
  }
  status resize(u32 capacity, u32 = 0) override {
    outcome out{};
    status const result = warmset::resize<Policy>(view(), capacity, out);
    take(out);
    return result;
  }
  void invalidate() override {
    outcome out{};
    warmset::invalidate<Policy>(view(), u32_max, out);
    take(out);
  }
  status pin(u32 e, u32 row = 0) override {
    status const result = warmset::pin<Policy>(view(), row, e, k_);
    take({});
    return result;
  }

  block_header& header(u32 = 0) override { return view().header(); }
  layer_record& layer(u32 row = 0) override { return view().layer(row); }
  expert_record& expert(u32 e, u32 row = 0) override {
    return view().expert(view().index_of(row, e));
  }
  u32 word(u32 slot, u32 = 0) override { return view().word(slot); }
  std::span<u32> score(u32 e, u32 row = 0) override {
    return detail::score_words<Policy>(view(), view().index_of(row, e));
  }
  u32 heat(u32 e, u32 row = 0) override {
    return view().heat(view().index_of(row, e), view().now(row, model_tick_));
  }
  u64 value(u32 e, u32 row = 0) override {
    return view().value(view().index_of(row, e), view().now(row, model_tick_));
  }
  total_counters counters() override { return sum_; }
  no_victim_counts obstacles() override { return plan_.no_victim; }
  std::vector<unsigned char> bytes() override {
    auto const* const from = static_cast<unsigned char const*>(table_.block());
    return {from, from + table_.block_bytes()};
  }
  void check() override {
    if (audit_result const a = audit(view()); !a) {
      FAIL("audit: " << name_of(a.broken) << " at " << a.where);
    }
    require_laws(sum_, count_slots(view()));
  }

 private:
  void start() {
    for (u32 j = 0; j < plan_.n_loads; ++j) {
      u32 const s = plan_.loads[j].slot;
      words_[s] = arrival::word(view().generation(s), transfer::loading);
    }
  }
  void take(outcome const& out) {
    fold(out, 1000, 1, sum_);
    if (audits) {
      check();
    }
  }

  table<Policy> table_;
  std::vector<u32> words_;
  std::vector<std::vector<u32>> leases_;
  u32 k_;
  u32 model_tick_ = 0;
  total_counters sum_{};
  workspace_of<Policy> work_{};
  plan_of<Policy> plan_{};
};

/// Plays on a whole cache whose bytes the test moves. Row n is layer n.
template <class Policy, class Backend = move::external>
class on_cache final : public player {
 public:
  using cache_type = cache<Policy, Backend>;

  explicit on_cache(sizes s)
      : on_cache(geometry::uniform(s.layers, s.experts, s.per_token, 1000),
                 budget{0, s.capacity, s.reserve}, s.numbers) {}
  on_cache(geometry model, budget size, tuning numbers = Policy::numbers)
      : cache_(std::move(model), size, numbers) {}

  cache_type& subject() noexcept { return cache_; }
  table_writer<Policy> const& view(u32 layer) noexcept {
    return cache_.pools()[pool_of(layer)].view();
  }
  u32 row_of(u32 layer) const noexcept { return find(layer).row; }
  u32 pool_of(u32 layer) const noexcept { return find(layer).pool; }

  decided plan(id_list const& ids, u32 layer = 0) override {
    (void)cache_.plan(layer_id{layer}, std::span<routed_id const>{ids});
    checked();
    return copy_of(cache_.last_plan());
  }
  decided demand(id_list const& ids, u32 layer = 0) override {
    (void)cache_.step(layer_id{layer}, std::span<routed_id const>{ids});
    checked();
    return copy_of(cache_.last_plan());
  }
  decided hold(id_list const& ids, u32& lease, u32 layer = 0) override {
    lease = static_cast<u32>(leases_.size());
    leases_.push_back(cache_.demand(layer_id{layer}, std::span<routed_id const>{ids}));
    checked();
    return copy_of(cache_.last_plan());
  }
  void release(u32 lease) override {
    leases_[lease].release();
    checked();
  }
  u32 hint(id_list const& ids, u32 layer = 0, u32 max_loads = u32_max, u32 ahead = 1) override {
    u32 loads = 0;
    if constexpr (speculates<Policy>) {
      loads = cache_.advise(layer_id{layer}, std::span<routed_id const>{ids}, max_loads, ahead);
    }
    checked();
    return loads;
  }
  void finish_all(transfer to) override {
    for (u32 pool = 0; pool < cache_.pools().size(); ++pool) {
      for (u32 s = 0; s < cache_.sites()[pool].n_words(); ++s) {
        report(pool, s, to);
      }
    }
    cache_.settle();
    checked();
  }
  void finish(u32 slot, transfer to, u32 layer = 0) override {
    report(pool_of(layer), slot, to);
    cache_.settle();
    checked();
  }
  status resize(u32 capacity, u32 layer = 0) override {
    status const result = cache_.resize(layer_id{layer}, capacity);
    checked();
    return result;
  }
  void invalidate() override {
    cache_.invalidate();
    checked();
  }
  status pin(u32 e, u32 layer = 0) override {
    status const result = cache_.pin({layer_id{layer}, expert_id{e}});
    checked();
    return result;
  }

  block_header& header(u32 layer = 0) override { return view(layer).header(); }
  layer_record& layer(u32 layer = 0) override { return view(layer).layer(row_of(layer)); }
  expert_record& expert(u32 e, u32 layer = 0) override {
    return view(layer).expert(index(e, layer));
  }
  u32 word(u32 slot, u32 layer = 0) override { return view(layer).word(slot); }
  std::span<u32> score(u32 e, u32 layer = 0) override {
    return detail::score_words<Policy>(view(layer), index(e, layer));
  }
  u32 heat(u32 e, u32 layer = 0) override { return view(layer).heat(index(e, layer), now(layer)); }
  u64 value(u32 e, u32 layer = 0) override {
    return view(layer).value(index(e, layer), now(layer));
  }
  total_counters counters() override { return cache_.observer().total(); }
  no_victim_counts obstacles() override { return cache_.last_plan().no_victim; }
  std::vector<unsigned char> bytes() override {
    std::vector<unsigned char> all;
    for (table<Policy> const& pool : cache_.pools()) {
      auto const* const from = static_cast<unsigned char const*>(pool.block());
      all.insert(all.end(), from, from + pool.block_bytes());
    }
    return all;
  }
  void check() override {
    if (audit_result const a = cache_.audit(); !a) {
      FAIL("audit: " << name_of(a.broken) << " at " << a.where);
    }
    require_laws(cache_.observer().total(), cache_.slot_counts());
  }

 private:
  struct place {
    u32 pool, row;
  };
  place find(u32 layer) const noexcept {
    place at{};
    (void)cache_.find(layer_id{layer}, at.pool, at.row);
    return at;
  }
  u32 index(u32 e, u32 layer) noexcept { return view(layer).index_of(row_of(layer), e); }
  /// The recency clock of the model: each demand access of every layer moves it.
  clocks now(u32 layer) noexcept {
    u32 model_tick = 0;
    for (table<Policy>& pool : cache_.pools()) {
      model_tick += pool.view().header().tick;
    }
    return view(layer).now(row_of(layer), model_tick);
  }
  void checked() {
    if (audits) {
      check();
    }
  }
  void report(u32 pool, u32 slot, transfer to) {
    if constexpr (requires { cache_.backend().arrived(pool, slot_id{slot}); }) {
      (void)(to == transfer::arrived ? cache_.backend().arrived(pool, slot_id{slot})
                                     : cache_.backend().failed(pool, slot_id{slot}));
    }
  }

  cache_type cache_;
  std::vector<typename cache_type::lease> leases_;
};

template <class Policy, class Scenario>
void play_on_table(sizes s, Scenario&& scenario) {
  INFO("on a table of capacity " << s.capacity << ", score " << Policy::score::name << ", guard "
                                 << Policy::guard::name << ", selector " << Policy::selector::name);
  on_table<Policy> t{s};
  scenario(static_cast<player&>(t));
}

template <class Policy, class Scenario>
void play_on_cache(sizes s, Scenario&& scenario) {
  INFO("on a cache of capacity " << s.capacity << ", score " << Policy::score::name << ", guard "
                                 << Policy::guard::name << ", selector " << Policy::selector::name);
  on_cache<Policy> c{s};
  scenario(static_cast<player&>(c));
}

/// The bundles that are played on caches as well; a cache adds nothing that depends on the others'
/// parts.
template <class Policy>
inline constexpr bool stands_for_all =
    std::same_as<typename Policy::score, score::lfru> ||
    std::string_view{Policy::guard::name} == guard::spare_only::name;

/// Plays a scenario on a table and on a cache.
template <class Policy, class Scenario>
void on_both(sizes s, Scenario&& scenario) {
  play_on_table<Policy>(s, scenario);
  if constexpr (stands_for_all<Policy>) {
    play_on_cache<Policy>(s, scenario);
  }
}

/// Gives an expert a demand history: `heat` counts of lfru, the last of them `age` ticks ago.
inline void plant_lfru(player& play, u32 e, u32 heat, u32 age) {
  play.score(e)[0] = heat;
  play.score(e)[1] = play.layer().tick - age;
  play.expert(e).last = play.header().tick - age;
  play.expert(e).where |= expert_word::accessed;
}

/// Sets the recency clocks of an unused pool.
inline void set_clocks(player& play, u32 tick) {
  play.header().tick = tick;
  play.layer().tick = tick;
}

using warmset_test::dice;

/// The counting scores of the library.
template <class F>
void for_counting_scores(F&& f) {
  f.template operator()<score::lfu>();
  f.template operator()<score::lfru>();
  f.template operator()<score::epoch_count>();
  f.template operator()<score::decayed_count>();
}

template <class F>
void for_heat_guards(F&& f) {
  f.template operator()<guard::challenger_must_win>();
  f.template operator()<guard::warm_then_challenger_must_win>();
  f.template operator()<guard::victim_must_be_hotter>();
}

}  // namespace warmset::scenario
