// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "../observe/observer.hpp"
#include "../table/bundles.hpp"
#include "../table/table.hpp"
#include "trace.hpp"

namespace warmset::inline v0 {
namespace trace {

/// What a replay knows of one layer in one phase. Unit: experts, one per distinct id of an event.
struct replay_counts {
  total_counters counted{};  ///< by the cache's own observer
  u64 wasted = 0;            ///< installs of this phase that were evicted without a further use
};

/// What a policy reached, by layer row and phase.
struct replay_report {
  std::vector<std::array<replay_counts, n_phases>> by_layer;
};

/// Token rows of the selected events, by layer row and phase: how many tokens each layer has worked on. The last
/// layer of a prompt may have fewer than the others. O(blocks * layers).
inline std::vector<std::array<u64, n_phases>> count_token_rows(recording const& r,
                                                               selection const& which = {}) {
  std::vector<std::array<u64, n_phases>> rows(r.geometry().layers().size());
  for (block const& b : r.blocks()) {
    if (which.contains(b)) {
      for (u32 row = b.first_row; row < b.first_row + b.n_rows; ++row) {
        rows[row][static_cast<u32>(b.phase)] += u64{b.n_steps} * b.n_tokens;
      }
    }
  }
  return rows;
}

namespace detail {

/// Follows each install to its end, without asking the cache for evictions: an expert that is loaded again, or that
/// is not resident at the end, has been evicted. Nothing of a step branches on what nobody can foretell.
class install_lives {
 public:
  install_lives(geometry const& g, replay_report& report) : report_(report), ended_(g.layers().size()) {
    u32 keys = 0;
    for (layer_geometry const& layer : g.layers()) {
      first_key_.push_back(keys);
      keys += layer.n_experts;
    }
    life_.assign(keys, used);
  }

  /// The distinct experts of a step and how they were served.
  void step(u32 row, std::span<u32 const> experts, std::span<access_kind const> how, phase p) noexcept {
    u8* const lives = life_.data() + first_key_[row];
    std::array<u64, used + 1>& ended = ended_[row];
    for (std::size_t i = 0; i < experts.size(); ++i) {
      u8& life = lives[experts[i]];
      bool const is_install = how[i] == access_kind::load;
      bool const stays = how[i] == access_kind::declined || how[i] == access_kind::overflow_miss;
      ended[life] += is_install ? 1 : 0;
      u8 const next = is_install ? static_cast<u8>(p) : used;
      life = stays ? life : next;
    }
  }

  template <class IsResident>
  void finish(geometry const& g, IsResident&& is_resident) {
    for (u32 row = 0; row < first_key_.size(); ++row) {
      layer_geometry const& layer = g.layers()[row];
      for (u32 expert = 0; expert < layer.n_experts; ++expert) {
        u8 const life = life_[first_key_[row] + expert];
        if (life != used && !is_resident(expert_key{layer.layer, expert_id{expert}})) {
          ++ended_[row][life];
        }
      }
      for (u32 p = 0; p < n_phases; ++p) {
        report_.by_layer[row][p].wasted += ended_[row][p];
      }
    }
  }

 private:
  /// A life is the phase of an install that has not been used since, or this.
  static constexpr u8 used = n_phases;

  replay_report& report_;
  std::vector<std::array<u64, used + 1>> ended_;  // by layer row and life; the last one is of no interest
  std::vector<u32> first_key_;
  std::vector<u8> life_;
};

/// The input token of an event, or a hash of the tokens of a micro-batch.
inline u32 token_of(event const& e) noexcept {
  if (e.tokens.empty()) {
    return step_context::no_token;
  }
  u32 hash = e.tokens.front();
  for (std::size_t i = 1; i < e.tokens.size(); ++i) {
    hash = (hash ^ e.tokens[i]) * 0x0100'0193u;
  }
  return hash & 0x7FFF'FFFF;
}

struct ignore_decision {
  template <class Decision>
  void operator()(event const&, Decision const&) const noexcept {}
};

}  // namespace detail

/// Plays the selected events of a recording through a cache, one step per event, in recorded order and from the
/// state that the cache is in.
///
/// @param cache    `step(layer, ids, step_facts)` decides, its result has the spans `experts` and `how`; `is_resident`
///                 and `observer().total(row, phase)` are read at the end. Its layers must be the recording's, and
///                 its observer new. `cache<Policy, move::immediate, observe::counting>` and `byte_pool` are such.
/// @param on_step  called as on_step(event, decision) after each step, while the decision's spans are valid
///
/// O(ids), and what the policy costs. Allocates before the first step only.
template <class Cache, class OnStep = detail::ignore_decision>
replay_report replay(recording const& r, selection const& which, Cache& cache,
                     OnStep&& on_step = {}) {
  geometry const& g = r.geometry();
  replay_report report;
  report.by_layer.resize(g.layers().size());
  detail::install_lives lives(g, report);

  std::span<u16 const> const all = r.ids();
  bool const padded = std::find(all.begin(), all.end(), padding) != all.end();
  std::vector<routed_id> converted;
  auto const decide = [&](event const& e) {
    step_facts const facts{e.phase, e.sequence, detail::token_of(e), {}};
    if (!padded) {
      return cache.step(e.layer, e.ids, facts);
    }
    converted.clear();
    for (u16 id : e.ids) {
      converted.push_back(routed(id));
    }
    return cache.step(e.layer, std::span<routed_id const>(converted), facts);
  };
  for_each_event(r, which, [&](event const& e) {
    auto const decision = decide(e);
    lives.step(e.row, decision.experts, decision.how, e.phase);
    on_step(e, decision);
  });
  if constexpr (requires { cache.settle(); }) {
    cache.settle();  // the last steps' loads
  }
  lives.finish(g, [&](expert_key key) { return cache.is_resident(key); });
  for (u32 row = 0; row < report.by_layer.size(); ++row) {
    for (u32 p = 0; p < n_phases; ++p) {
      report.by_layer[row][p].counted = cache.observer().total(row, static_cast<phase>(p));
    }
  }
  return report;
}

/// One pool of a number of bytes for the experts of all layers, whatever their sizes: every expert has a slot of
/// its own and the bytes are the limit. For replay only, as no allocation of slots can be shared like this.
///
/// A step installs all that it misses; then residents are evicted in the order of the bundle's selector until the
/// bytes fit, never one that the step demands. So a step wider than the budget leaves the pool above it, and no step
/// overflows. The bundle's own pooling does not matter.
///
/// The constructor throws config_error where the numbers are out of range. Steps allocate nothing.
template <checked_bundle Bundle>
class byte_pool {
 public:
  using policy = bundles::shared<Bundle>;

  /// A slot and whose it was.
  struct owned_slot {
    u32 slot;
    u32 row;
    u32 expert;
  };
  /// What a step decided; the spans live until the next one.
  struct decision {
    plan_kind kind;
    std::span<u32 const> experts;           ///< distinct, in order of last occurrence
    std::span<u32 const> slots;             ///< one per expert
    std::span<access_kind const> how;       ///< one per expert
    std::span<planned_load const> loads;    ///< ascending expert index
    std::span<owned_slot const> reclaimed;  ///< residents that made way, in the selector's order
  };

  byte_pool(geometry model, u64 budget_bytes, tuning numbers = Bundle::numbers)
      : model_(std::move(model)), budget_(budget_bytes),
        table_(model_.layers(), all_experts(model_), numbers),
        arrivals_(all_experts(model_).reserved, 0u) {
    observer_.open(model_);
    reclaimed_.reserve(arrivals_.size());
    last_experts_.reserve(policy::max_experts);
    slot_of_.resize(arrivals_.size());
    u32 n_before = 0;
    for (layer_geometry const& layer : model_.layers()) {
      row_of_.resize(layer.layer.value + 1, u32_max);
      row_of_.back() = static_cast<u32>(bytes_.size());
      bytes_.push_back(layer.expert_bytes());
      first_key_.push_back(first_key_.empty() ? 0 : first_key_.back() + n_before);
      n_before = layer.n_experts;
    }
  }

  /// The layer must be one of the model's.
  template <class Id>
  decision step(layer_id layer, std::span<Id const> ids, step_facts const& facts) noexcept {
    u32 const row = row_of_[layer.value];
    phase const p = facts.in_phase;
    auto const& view = table_.view();
    bool const follows = row == last_row_ + 1;
    plan_demand<policy>(one_lane{}, view,
                        step_input{row, p, model_tick_, facts.sequence, facts.token,
                                   follows ? last_experts_.data() : nullptr,
                                   follows ? static_cast<u32>(last_experts_.size()) : 0, facts.supplied.data()},
                        ids.data(), static_cast<u32>(ids.size()), workspace_, plan_);
    last_row_ = row;
    last_experts_.assign(plan_.expert, plan_.expert + plan_.n);
    outcome& out = observer_.record(row, p);
    reclaimed_.clear();
    if (plan_.kind == plan_kind::step) {
      (void)commit<policy>(one_lane{}, view, plan_, out);
      model_tick_ += plan_.n;
      for (u32 j = 0; j < plan_.n_loads; ++j) {
        u32 const slot = plan_.loads[j].slot;
        arrivals_[slot] = arrival::word(view.generation(slot), transfer::arrived);
        slot_of_[first_key_[row] + plan_.loads[j].expert] = slot;
      }
      settle<policy>(one_lane{}, view, arrivals_.data(), out);
      used_ += plan_.n_loads * bytes_[row];
      reclaim<policy>(
          view, model_tick_, plan_, [this] { return used_ <= budget_; },
          [this](u32 from, u32 expert) {
            used_ -= bytes_[from];
            reclaimed_.push_back({slot_of_[first_key_[from] + expert], from, expert});
          },
          out);
    } else {
      record_uncommitted<policy>(plan_, out);
    }
    observer_.close(row, p);
    return {plan_.kind,           {plan_.expert, plan_.n},      {plan_.slot, plan_.n},
            {plan_.how, plan_.n}, {plan_.loads, plan_.n_loads}, reclaimed_};
  }

  bool is_resident(expert_key key) const noexcept {
    table_reader<policy> const view = table_.view();
    return (view.expert(view.index_of(row_of_[key.layer.value], key.expert.value)).where &
            expert_word::slot_mask) != 0;
  }
  /// Bytes of the residents.
  u64 used_bytes() const noexcept { return used_; }
  observe::counting& observer() noexcept { return observer_; }
  audit_result audit() const { return warmset::audit<policy>(table_.view()); }

 private:
  static pool_size all_experts(geometry const& g) {
    u64 n = 0;
    for (layer_geometry const& layer : g.layers()) {
      n += layer.n_experts;
    }
    if (n > max_slots) {
      throw config_error("a pool for all of ", n, " experts is not possible");
    }
    return {static_cast<u32>(n), static_cast<u32>(n)};
  }

  geometry model_;
  u64 budget_;
  table<policy> table_;
  std::vector<u32> arrivals_;
  std::vector<u32> row_of_;     // by layer id
  std::vector<u64> bytes_;      // of an expert, by row
  std::vector<u32> first_key_;  // by row
  std::vector<u32> slot_of_;    // by first_key_[row] + expert; of the last install
  std::vector<owned_slot> reclaimed_;
  observe::counting observer_;
  u64 used_ = 0;
  u32 model_tick_ = 0;
  u32 last_row_ = u32_max - 1;     // of the last step, whose experts are contexts of the next row's
  std::vector<u32> last_experts_;  // with room for all
  workspace_of<policy> workspace_;
  plan_of<policy> plan_;
};

}  // namespace trace
}  // namespace warmset::inline v0
