// SPDX-License-Identifier: Apache-2.0
#include "warmset_adapter.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include <warmset/cache.hpp>
#include <warmset/table/bundles.hpp>

namespace warmset_llama {

namespace {

using warmset::u32;
using warmset::u64;

constexpr u32 nobody = warmset::u32_max;

/// A bundle over one pool of all layers of the group.
template <class Score>
using shared_by_layers = warmset::bundles::shared<warmset::bundles::of<Score>>;

/// Each layer keeps one slot: the library's pools of several layers do not let one layer lose its last.
template <class Bundle>
warmset::tuning numbers_of() {
  warmset::tuning numbers = Bundle::numbers;
  numbers.floor = 1;
  return numbers;
}

template <class Bundle>
class adapter_of final : public adapter {
 public:
  explicit adapter_of(adapter_group const& g)
      : group_(g),
        cache_(warmset::geometry::uniform(g.n_layers, g.n_experts, g.n_used, g.expert_bytes),
               warmset::budget::of_slots(slots_per_layer(g)), numbers_of<Bundle>()),
        table_(std::size_t{g.n_layers} * g.n_experts, -1), owner_(g.n_slots, nobody), slots_(max_ids),
        loads_(g.n_experts), changes_(2 * std::size_t{g.n_experts}), runs_(g.n_experts),
        marks_(g.n_experts) {
    // a budget counts in slots per layer; the rest of a group's slots is cut off here
    if (!cache_.resize(warmset::layer_id{0}, g.n_slots)) {
      throw warmset::config_error("a group of ", g.n_slots, " slots cannot be made");
    }
  }

  adapter_plan plan(u32 layer, std::int32_t const* ids, std::size_t n_ids,
                    adapter_step const& step) noexcept override {
    adapter_plan p;
    p.status = check(layer, ids, n_ids);
    if (p.status != adapter_status::ok) {
      return p;
    }
    warmset::step_facts const facts{
        step.is_prefill ? warmset::phase::prefill : warmset::phase::decode, step.sequence,
        step.token == 0xFFFFFFFF ? warmset::step_context::no_token : step.token, {}};
    warmset::step_view const decided =
        cache_.step(warmset::layer_id{layer}, warmset::array_view<warmset::routed_id const>(ids, n_ids), facts);
    if (decided.kind == warmset::plan_kind::overflow) {
      ++counts_.too_wide_steps;
      p = look_up(layer, ids, n_ids);
      p.status = adapter_status::too_wide;
      return p;
    }
    counts_.steps += decided.kind == warmset::plan_kind::step ? 1 : 0;
    counts_.hits += decided.experts.size() - decided.loads.size();
    take(p, layer, decided);
    place(p, layer, ids, n_ids);
    return p;
  }

  adapter_plan look_up(u32 layer, std::int32_t const* ids, std::size_t n_ids) noexcept override {
    adapter_plan p;
    p.status = check(layer, ids, n_ids);
    if (p.status != adapter_status::ok) {
      return p;
    }
    place(p, layer, ids, n_ids);
    ++mark_;
    for (std::size_t i = 0; i < n_ids; ++i) {
      if (ids[i] >= 0 && std::exchange(marks_[static_cast<u32>(ids[i])], mark_) != mark_) {
        ++(slots_[i] >= 0 ? counts_.looked_up_hits : counts_.looked_up_misses);
      }
    }
    return p;
  }

  std::int32_t const* table(u32 layer) const noexcept override {
    return layer < group_.n_layers ? table_.data() + std::size_t{layer} * group_.n_experts : nullptr;
  }

  bool fill(u32 layer, std::int32_t* slot_map) const noexcept override {
    std::int32_t const* const row = table(layer);
    for (u32 x = 0; row != nullptr && x < group_.n_experts; ++x) {
      slot_map[x] = std::max(row[x], 0);
    }
    return row != nullptr;
  }

  bool invalidate(u32 first_layer, u32 n_layers) noexcept override {
    if (first_layer > group_.n_layers || n_layers > group_.n_layers - first_layer) {
      return false;
    }
    for (u32 layer = first_layer; layer < first_layer + n_layers; ++layer) {
      (void)cache_.invalidate(warmset::layer_id{layer});
    }
    for (u32& owner : owner_) {
      if (owner != nobody && owner / group_.n_experts - first_layer < n_layers) {
        table_[owner] = -1;
        owner = nobody;
      }
    }
    return true;
  }

  adapter_counters counters() const noexcept override {
    adapter_counters c = counts_;
    c.bytes_loaded = c.misses * group_.expert_bytes;
    return c;
  }

 private:
  static u32 slots_per_layer(adapter_group const& g) {
    if (g.n_layers == 0) {
      throw warmset::config_error("a group of no layer");
    }
    if (g.n_slots > u64{g.n_layers} * g.n_experts) {
      throw warmset::config_error(g.n_slots, " slots are more than the group's ", u64{g.n_layers} * g.n_experts,
                                  " experts");
    }
    u64 const least = u64{g.n_layers} - 1 + g.n_used;
    if (g.n_slots < least) {
      throw warmset::config_error(g.n_slots, " slots are too few: ", g.n_used, " experts of a token and one of each of ",
                                  g.n_layers - 1, " other layers take ", least);
    }
    return (g.n_slots + g.n_layers - 1) / g.n_layers;
  }

  adapter_status check(u32 layer, std::int32_t const* ids, std::size_t n_ids) const noexcept {
    if (layer >= group_.n_layers) {
      return adapter_status::bad_layer;
    }
    if (n_ids > max_ids) {
      return adapter_status::too_long;
    }
    for (std::size_t i = 0; i < n_ids; ++i) {
      if (ids[i] >= 0 && static_cast<u32>(ids[i]) >= group_.n_experts) {
        return adapter_status::bad_expert;
      }
    }
    return adapter_status::ok;
  }

  /// The loads, what they change in the table, and the runs that they make.
  void take(adapter_plan& p, u32 layer, warmset::step_view const& decided) noexcept {
    u32 const first_key = layer * group_.n_experts;
    for (warmset::planned_load const& load : decided.loads) {
      u32 const before = owner_[load.slot];
      if (before != nobody) {
        table_[before] = -1;
        changes_[p.n_changes++] = {before / group_.n_experts, before % group_.n_experts, -1};
        ++counts_.evictions;
      }
    }
    for (warmset::planned_load const& load : decided.loads) {
      owner_[load.slot] = first_key + load.expert;
      table_[first_key + load.expert] = static_cast<std::int32_t>(load.slot);
      changes_[p.n_changes++] = {layer, load.expert, static_cast<std::int32_t>(load.slot)};
      loads_[p.n_loads++] = {load.expert, load.slot};
      adapter_run* const last = p.n_runs == 0 ? nullptr : &runs_[p.n_runs - 1];
      if (last != nullptr && load.expert == last->first_expert + last->n &&
          load.slot == last->first_slot + last->n) {
        ++last->n;
      } else {
        runs_[p.n_runs++] = {load.expert, load.slot, 1};
      }
    }
    counts_.misses += p.n_loads;
    p.loads = loads_.data();
    p.changes = changes_.data();
    p.runs = runs_.data();
  }

  void place(adapter_plan& p, u32 layer, std::int32_t const* ids, std::size_t n_ids) noexcept {
    std::int32_t const* const row = table(layer);
    for (std::size_t i = 0; i < n_ids; ++i) {
      slots_[i] = ids[i] < 0 ? -1 : row[ids[i]];
    }
    p.slots = slots_.data();
  }

  adapter_group group_;
  warmset::cache<Bundle, warmset::move::immediate> cache_;
  std::vector<std::int32_t> table_;  // by layer * n_experts + expert
  std::vector<u32> owner_;           // by slot: the same key, or nobody
  std::vector<std::int32_t> slots_;
  std::vector<adapter_load> loads_;
  std::vector<adapter_change> changes_;
  std::vector<adapter_run> runs_;
  std::vector<u32> marks_;  // by expert
  u32 mark_ = 0;
  adapter_counters counts_;
};

/// The policies by name; one line for each more.
template <class F>
void for_each_policy(F&& f) {
  f.template operator()<shared_by_layers<warmset::score::class_lru>>();
  f.template operator()<shared_by_layers<warmset::score::lru>>();
  f.template operator()<shared_by_layers<warmset::score::decayed_count>>();
  f.template operator()<shared_by_layers<warmset::score::lfru>>();
  f.template operator()<shared_by_layers<warmset::score::successor<>>>();
}

}  // namespace

char const* adapter::policies() noexcept { return "class_lru lru decayed_count lfru successor"; }

std::unique_ptr<adapter> adapter::make(adapter_group const& group, char* why,
                                       std::size_t why_size) noexcept {
  auto const say = [&](char const* what) {
    if (why != nullptr && why_size != 0) {
      std::snprintf(why, why_size, "%s", what);
    }
  };
  say("");
  try {
    std::unique_ptr<adapter> made;
    std::string_view const name = group.policy == nullptr ? "" : group.policy;
    for_each_policy([&]<class Bundle>() {
      if (name == Bundle::name) {
        made = std::make_unique<adapter_of<Bundle>>(group);
      }
    });
    if (made == nullptr) {
      say("there is no such policy; there are class_lru, lru, decayed_count, lfru and successor");
    }
    return made;
  } catch (std::bad_alloc const&) {
    say("out of memory");
  } catch (std::exception const& e) {
    say(e.what());
  }
  return nullptr;
}

}  // namespace warmset_llama
