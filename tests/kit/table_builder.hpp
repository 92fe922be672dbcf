// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include <warmset/table/table.hpp>

#include "under_test.hpp"

namespace warmset::kit {

/// What stands in a slot of a table to be built, or, with `slot = no_slot`, what is known of an absent expert.
struct placed {
  u32 slot = no_slot.value;
  u32 expert = 0;
  u32 heat = 1;  ///< demands so far; 0 = never demanded
  u32 age = 0;   ///< ticks since the last one
  slot_state state = slot_state::resident;
  bool speculated = false;  ///< brought in by a hint and not demanded since
  u32 target = 1;           ///< speculated: the step it is for, counted from the layer's step; 0 = planned
  u32 leases = 0;
  bool pinned = false;
  u32 row = 0;
};

/// Builds a sound table of any bundle from a list of slots, by writing its block. The score states are made
/// by the score's own hooks: `heat` touches at the moment that lies `age` ticks back, in the present step,
/// so that `heat` is what the score reads now, decaying or not. Throws std::logic_error where the result
/// would not pass audit.
///
///     auto table = kit::table_builder<my_bundle>({.n_experts = 8, .reserved = 2, .capacity = 2})
///                      .place({.slot = 0, .expert = 3, .heat = 5, .age = 1})
///                      .place({.slot = 1, .expert = 4, .heat = 1, .age = 9})
///                      .build();
template <policy_bundle Policy>
class table_builder {
  static_assert(!contextual_score<typename Policy::score>,
                "table_builder: a contextual score learns from whole steps; play them instead");

 public:
  explicit table_builder(table_config config) : config_(config) {}

  table_builder& place(placed const& p) {
    placed_.push_back(p);
    return *this;
  }

  table<Policy> build() const {
    table<Policy> made(rows_of(config_), {config_.reserved, config_.capacity}, config_.numbers);
    auto const& t = made.view();
    block_header& h = t.header();
    u32 oldest = 0;
    for (placed const& p : placed_) {
      oldest = std::max(oldest, p.age);
    }
    u32 const tick = config_.first_tick + oldest + 1'000;
    h.tick = h.model_tick = tick;
    for (u32 r = 0; r < config_.n_rows; ++r) {
      t.layer(r).tick = tick;
      t.layer(r).step = config_.first_tick + 1'000;
    }
    // oldest first, as demands would have come
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < placed_.size(); ++i) {
      order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return placed_[a].age != placed_[b].age ? placed_[a].age > placed_[b].age : a < b;
    });
    for (std::size_t i : order) {
      write(t, placed_[i], tick);
    }
    while (h.free_hint < h.capacity && t.word(h.free_hint) != 0) {
      ++h.free_hint;
    }
    if (audit_result const r = audit(t); !r) {
      throw std::logic_error(std::string("table_builder: the table would break ") + name_of(r.broken) +
                             " at " + std::to_string(r.where));
    }
    return made;
  }

 private:
  static void write(table_writer<Policy> const& t, placed const& p, u32 tick) {
    block_header& h = t.header();
    if (p.row >= h.n_layers || p.expert >= t.layer(p.row).n_experts ||
        (p.slot != no_slot.value && p.slot >= h.n_slots)) {
      throw std::logic_error("table_builder: no such row, expert or slot");
    }
    u32 const index = t.index_of(p.row, p.expert);
    expert_record& record = t.expert(index);
    bool const holds = p.slot != no_slot.value &&
                       (p.state == slot_state::resident || p.state == slot_state::reserved);
    if (p.heat != 0 && p.state != slot_state::draining) {
      u32 const then = tick - p.age;
      clocks const at{then, then, then, t.layer(p.row).step};
      auto& state = t.score_of(index);
      if constexpr (score_detail::has_install_hook<typename Policy::score>) {
        t.parts().score.on_install(state, at);
      }
      for (u32 i = 0; i < p.heat; ++i) {
        t.parts().score.on_demand(state, at);
      }
      record.last = then;
      record.where |= expert_word::accessed;
    }
    if (p.pinned) {
      record.where |= expert_word::pinned;
      ++h.pinned;
    }
    if (p.slot == no_slot.value) {
      return;
    }
    u32 word = slot_word::of(p.state) | p.leases * slot_word::one_lease;
    h.leases += p.leases;
    ++t.generation(p.slot);
    bool loading = p.state == slot_state::reserved;
    if (p.state == slot_state::draining) {
      loading = p.leases == 0;
      word |= (p.slot < h.capacity ? slot_word::returns : 0) | (loading ? slot_word::loading : 0);
      ++h.draining;
    }
    if (loading) {
      t.in_flight(h.in_flight++) = p.slot;
    }
    if (holds) {
      word |= p.pinned ? slot_word::pinned : 0;
      record.where |= p.slot + 1;
      t.owner(p.slot) = table_writer<Policy>::pack_owner(p.row, p.expert);
      ++t.layer(p.row).held;
      ++(p.state == slot_state::reserved ? h.reserved : h.resident);
      if (p.speculated) {
        if constexpr (speculates<Policy>) {
          word |= slot_word::unused | (p.state == slot_state::reserved ? slot_word::from_hint : 0);
          t.target(p.slot) = t.layer(p.row).step + p.target;
          ++h.unused;
        } else {
          throw std::logic_error("table_builder: the bundle does not speculate");
        }
      } else {
        t.parts().selector.on_touch(t, p.slot);
      }
    }
    t.word(p.slot) = word;
  }

  table_config config_;
  std::vector<placed> placed_;
};

}  // namespace warmset::kit
