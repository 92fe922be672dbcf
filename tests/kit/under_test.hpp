// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <warmset/table/table.hpp>

#include "naive_model.hpp"

namespace warmset::kit {

/// Which integer type the ids of a step are handed over in.
enum class id_type : u8 { i32, u16, u32 };

/// Sizes of a table that a test makes, and where its clocks start.
struct table_config {
  u32 n_rows = 1;
  u32 n_experts = 16;
  u32 k = 4;
  u32 reserved = 8;
  u32 capacity = 8;
  tuning numbers{};
  u32 first_tick = 0;  ///< all clocks start here, so that wraps are near
  std::vector<u64> bank_bytes{1};
};

/// The layers of a table of this configuration. Rows of one pool may differ in their number of experts.
inline std::vector<layer_geometry> rows_of(table_config const& c) {
  std::vector<layer_geometry> rows;
  for (u32 r = 0; r < c.n_rows; ++r) {
    u32 const n = c.n_experts - (r % 2 != 0 && c.n_experts > c.k ? 1 : 0);
    rows.push_back({layer_id{r}, n, c.k, c.bank_bytes});
  }
  return rows;
}

/// A block read without the library's view of it being trusted: slot by slot into a table_state.
template <policy_bundle Policy>
table_state read_state(table_reader<Policy> const& t) {
  block_header const& h = t.header();
  table_state s;
  s.version = h.version;
  s.capacity = h.capacity;
  s.n_scratch = h.n_scratch;
  s.speculative_slots = h.speculative_slots;
  s.floor = h.floor;
  s.tick = h.tick;
  s.model_tick = h.model_tick;
  s.storage_generation = h.storage_generation;
  s.rows.reserve(h.n_layers);
  s.experts.reserve(h.n_layers);
  for (u32 r = 0; r < h.n_layers; ++r) {
    s.rows.push_back({t.layer(r).n_experts, t.layer(r).step, t.layer(r).tick, t.layer(r).id, t.expert_bytes(r)});
    std::vector<table_state::expert>& line = s.experts.emplace_back(t.layer(r).n_experts);
    for (u32 x = 0; x < t.layer(r).n_experts; ++x) {
      u32 const index = r * h.n_experts + x;
      expert_record const& e = t.expert(index);
      line[x].accessed = (e.where & expert_word::accessed) != 0;
      line[x].pinned = (e.where & expert_word::pinned) != 0;
      line[x].last = e.last;
      line[x].slot = (e.where & expert_word::slot_mask) - 1;  // 0 = nowhere becomes no_slot
      using score_state = typename Policy::score::state;
      if constexpr (!std::is_empty_v<score_state>) {
        std::memcpy(line[x].score.data(), &t.score_of(index), sizeof(score_state));
      }
    }
  }
  s.slots.resize(h.n_slots);
  for (u32 i = 0; i < h.n_slots; ++i) {
    u32 const word = t.word(i);
    table_state::slot& slot = s.slots[i];
    slot.state = slot_word::state(word);
    slot.row = t.owner(i) >> 16;
    slot.expert = t.owner(i) & 0xFFFF;
    slot.leases = word >> 8;
    slot.generation = t.generation(i);
    if constexpr (speculates<Policy>) {
      slot.target = t.target(i);
    }
    slot.unused = (word & slot_word::unused) != 0;
    slot.from_hint = (word & slot_word::from_hint) != 0;
    slot.loading = (word & slot_word::loading) != 0;
    slot.returns = (word & slot_word::returns) != 0;
  }
  for (u32 j = 0; j < h.in_flight; ++j) {
    s.in_flight.push_back(t.in_flight(j));
  }
  for (u32 i = 0; i < h.n_scratch; ++i) {
    s.scratch.push_back(t.scratch_word(i) / slot_word::one_lease);
  }
  if constexpr (has_naive_rule<typename Policy::selector>) {
    naive_rule<typename Policy::selector>::read(s.selector, t);
  }
  return s;
}

/// The parts of a block that speculation must leave alone (invariant I3): scores, their contexts, ticks and steps.
template <policy_bundle Policy>
std::vector<unsigned char> history_bytes(table_reader<Policy> const& t) {
  block_header const& h = t.header();
  std::vector<unsigned char> bytes;
  auto const add = [&bytes](void const* from, std::size_t n) {
    auto const* const first = static_cast<unsigned char const*>(from);
    bytes.insert(bytes.end(), first, first + n);
  };
  add(&h.tick, sizeof h.tick);
  add(&h.model_tick, sizeof h.model_tick);
  for (u32 r = 0; r < h.n_layers; ++r) {
    add(&t.layer(r).step, sizeof(u32));
    add(&t.layer(r).tick, sizeof(u32));
  }
  for (u32 i = 0; i < h.n_layers * h.n_experts; ++i) {
    add(&t.expert(i).last, sizeof(u32));
    u32 const accessed = t.expert(i).where & expert_word::accessed;
    add(&accessed, sizeof accessed);
    if constexpr (!std::is_empty_v<typename Policy::score::state>) {
      add(&t.score_of(i), sizeof(typename Policy::score::state));
    }
  }
  if (h.context_bytes != 0) {
    add(t.context(0), static_cast<std::size_t>(h.n_layers * h.context_bytes));
  }
  return bytes;
}

/// A real table behind a plain interface, so that drivers are compiled once and not per bundle.
class table_under_test {
 public:
  virtual ~table_under_test() = default;
  virtual std::shared_ptr<scalar_policy> shared_policy() const = 0;
  /// Each plans into one of two places: `kept` or the current one.
  virtual plan_record plan_demand(u32 row, std::span<i64 const> ids, id_type, phase, u32 model_tick,
                                  step_said const& said = {}) = 0;
  virtual plan_record plan_hints(u32 row, std::span<i64 const> ids, u32 target, u32 max_loads,
                                 u32 model_tick) = 0;
  virtual void keep_plan() = 0;
  virtual status commit(bool kept, outcome&) = 0;
  virtual void record_uncommitted(outcome&) = 0;
  virtual void acquire() = 0;
  virtual std::vector<u32> leased_slots() = 0;
  virtual void release(std::span<u32 const> slots, outcome&) = 0;
  virtual void settle(u32 const* arrivals, outcome&) = 0;
  virtual status resize(u32 capacity, outcome&) = 0;
  virtual void invalidate(u32 row, outcome&) = 0;
  virtual status pin(u32 row, u32 expert, u32 k) = 0;
  virtual status unpin(u32 row, u32 expert) = 0;
  virtual audit_result audit() const = 0;
  virtual table_counts counts() const = 0;
  virtual table_state state() const = 0;
  virtual std::vector<unsigned char> history() const = 0;
  virtual std::span<unsigned char const> block() const = 0;
};

/// @tparam EveryIdType  compile plan for each id type; otherwise ids are always handed over as i32, which builds
///                      in half the time
template <policy_bundle Policy, bool EveryIdType = true>
class table_under_test_of final : public table_under_test {
 public:
  explicit table_under_test_of(table_config const& c)
      : policy_(std::make_shared<scalar_policy_of<Policy>>(c.numbers)), table_(rows_of(c), {c.reserved, c.capacity}, c.numbers),
        plans_(std::make_unique<plans>()) {
    auto& t = table_.view();
    t.header().tick = t.header().model_tick = c.first_tick;
    for (u32 r = 0; r < c.n_rows; ++r) {
      t.layer(r).tick = t.layer(r).step = c.first_tick;
    }
  }

  std::shared_ptr<scalar_policy> shared_policy() const override { return policy_; }

  plan_record plan_demand(u32 row, std::span<i64 const> ids, id_type type, phase in_phase, u32 model_tick,
                          step_said const& said) override {
    step_input const in{row, in_phase, model_tick, said.sequence, said.token, said.previous.data(),
                        static_cast<u32>(said.previous.size()),
                        said.supplied.empty() ? nullptr : said.supplied.data()};
    auto const go = [&](auto typed) {
      using id = decltype(typed);
      std::vector<id> list;
      for (i64 const x : ids) {
        list.push_back(static_cast<id>(x));
      }
      warmset::plan_demand<Policy>(one_lane{}, reader(), in, list.data(), static_cast<u32>(list.size()),
                                   plans_->work, plans_->current);
    };
    recorder seen;
    if constexpr (EveryIdType) {
      switch (type) {
        case id_type::i32: go(i32{}); break;
        case id_type::u16: go(u16{}); break;
        case id_type::u32: go(u32{}); break;
      }
    } else {
      (void)type;
      go(i32{});
    }
    return record(seen);
  }

  plan_record plan_hints(u32 row, std::span<i64 const> ids, u32 target, u32 max_loads,
                         u32 model_tick) override {
    recorder seen;
    if constexpr (speculates<Policy>) {
      warmset::plan_speculative<Policy>(one_lane{}, reader(), {row, target, max_loads, model_tick},
                                        ids.data(), static_cast<u32>(ids.size()), plans_->work,
                                        plans_->current);
    } else {
      (void)row, (void)ids, (void)target, (void)max_loads, (void)model_tick;
    }
    return record(seen);
  }

  void keep_plan() override { plans_->kept = plans_->current; }
  status commit(bool kept, outcome& out) override {
    return warmset::commit<Policy>(one_lane{}, table_.view(), kept ? plans_->kept : plans_->current, out);
  }
  void record_uncommitted(outcome& out) override {
    warmset::record_uncommitted<Policy>(plans_->current, out);
  }
  void acquire() override { warmset::acquire<Policy>(table_.view(), plans_->current); }
  std::vector<u32> leased_slots() override {
    std::vector<u32> slots(plans_->current.n);
    slots.resize(warmset::leased_slots<Policy>(reader(), plans_->current, slots.data()));
    return slots;
  }
  void release(std::span<u32 const> slots, outcome& out) override {
    warmset::release<Policy>(table_.view(), slots.data(), static_cast<u32>(slots.size()), out);
  }
  void settle(u32 const* arrivals, outcome& out) override {
    warmset::settle<Policy>(one_lane{}, table_.view(), arrivals, out);
  }
  status resize(u32 capacity, outcome& out) override {
    return warmset::resize<Policy>(table_.view(), capacity, out);
  }
  void invalidate(u32 row, outcome& out) override { warmset::invalidate<Policy>(table_.view(), row, out); }
  status pin(u32 row, u32 expert, u32 k) override {
    return warmset::pin<Policy>(table_.view(), row, expert, k);
  }
  status unpin(u32 row, u32 expert) override { return warmset::unpin<Policy>(table_.view(), row, expert); }
  audit_result audit() const override { return warmset::audit(table_.view()); }
  table_counts counts() const override { return warmset::count_slots(table_.view()); }
  table_state state() const override { return read_state<Policy>(table_.view()); }
  std::vector<unsigned char> history() const override { return history_bytes<Policy>(table_.view()); }
  std::span<unsigned char const> block() const override {
    return {static_cast<unsigned char const*>(table_.block()), static_cast<std::size_t>(table_.block_bytes())};
  }

 private:
  struct plans {
    plan_of<Policy> current{}, kept{};
    workspace_of<Policy> work{};
  };

  table_reader<Policy> reader() const { return table_.view(); }

  plan_record record(recorder const& seen) const {
    plan_of<Policy> const& p = plans_->current;
    plan_record r;
    r.version = p.version;
    r.kind = p.kind;
    r.for_intent = p.for_intent;
    r.row = p.row;
    r.model_tick = p.model_tick;
    r.target = p.for_intent == intent::speculative ? p.target : 0;
    r.n_waves = p.n_waves;
    r.n_declined = p.n_declined;
    r.sentinels = p.sentinels;
    r.out_of_range = p.out_of_range;
    r.duplicates = p.duplicates;
    r.hints_offered = p.hints_offered;
    r.obstacles = p.no_victim;
    if (p.for_intent == intent::speculative) {
      std::copy(std::begin(p.dropped), std::end(p.dropped), r.dropped.begin());
    }
    for (u32 i = 0; i < p.n; ++i) {
      plan_record::entry e{p.expert[i], p.how[i], p.slot[i], 0};
      bool const scratch = e.how == access_kind::declined || e.how == access_kind::overflow_miss;
      if (scratch) {
        e.wave = p.wave[i];
      }
      if (scratch && p.kind == plan_kind::busy) {
        e.slot = no_slot.value;  // a busy plan assigned none
        e.wave = 0;
      }
      r.entries.push_back(e);
    }
    r.loads.assign(p.loads, p.loads + p.n_loads);
    r.trims.assign(p.trims, p.trims + p.n_trims);
    r.asked = seen.consultations;
    if constexpr (contextual_score<typename Policy::score>) {
      if (p.kind == plan_kind::step) {
        r.keys.assign(p.key, p.key + table_.view().layer(p.row).n_experts);
      }
    }
    return r;
  }

  std::shared_ptr<scalar_policy> policy_;
  table<Policy> table_;
  std::unique_ptr<plans> plans_;
};

/// A bundle whose guard is probed: what the drivers make tables of.
template <class Policy>
struct with_probe : Policy {
  using guard = probed<typename Policy::guard>;
};

}  // namespace warmset::kit
