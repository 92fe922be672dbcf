// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <initializer_list>
#include <memory>
#include <vector>

#include <kit/operations.hpp>
#include <kit/table_builder.hpp>
#include <warmset/table/bundles.hpp>
#include <warmset/table/table.hpp>

namespace warmset::table_test {

/// A table with what its caller owns: plan, workspace, arrival words and the sum of all outcomes.
template <class Policy>
struct bench {
  explicit bench(kit::table_config const& c)
      : made(kit::rows_of(c), {c.reserved, c.capacity}, c.numbers), arrivals(c.reserved) {}
  explicit bench(table<Policy> built) : made(std::move(built)), arrivals(made.view().header().n_slots) {}

  plan_of<Policy>& plan(std::vector<i32> const& ids, u32 row = 0, u32 model_tick = u32_max) {
    if (model_tick == u32_max) {
      model_tick = made.view().header().model_tick;
    }
    plan_demand<Policy>(one_lane{}, made.view(), {row, phase::decode, model_tick}, ids.data(),
                        static_cast<u32>(ids.size()), *work, *decided);
    return *decided;
  }
  /// Hints for the row's next step.
  plan_of<Policy>& hint(std::vector<i32> const& ids, u32 row = 0, u32 max_loads = 1000, u32 ahead = 1) {
    plan_speculative<Policy>(
        one_lane{}, made.view(),
        {row, made.view().layer(row).step + ahead, max_loads, made.view().header().model_tick}, ids.data(),
        static_cast<u32>(ids.size()), *work, *decided);
    return *decided;
  }
  status commit() { return warmset::commit<Policy>(one_lane{}, made.view(), *decided, sum); }
  void settle() { warmset::settle<Policy>(one_lane{}, made.view(), arrivals.data(), sum); }
  /// Ends every transfer.
  void arrive(transfer how = transfer::arrived) {
    auto const& t = made.view();
    for (u32 j = 0; j < t.header().in_flight; ++j) {
      u32 const s = t.in_flight(j);
      arrivals[s] = arrival::word(t.generation(s), how);
    }
    settle();
  }
  /// A whole demand step whose copies arrive at once.
  void demand(std::vector<i32> const& ids, u32 row = 0) {
    settle();
    plan(ids, row);
    (void)commit();
    arrive();
  }
  std::vector<u32> acquire() {
    std::vector<u32> slots(decided->n);
    slots.resize(leased_slots<Policy>(made.view(), *decided, slots.data()));
    warmset::acquire<Policy>(made.view(), *decided);
    return slots;
  }
  void release(std::vector<u32> const& slots) {
    warmset::release<Policy>(made.view(), slots.data(), static_cast<u32>(slots.size()), sum);
  }

  bool sound() { return static_cast<bool>(audit(made.view())); }
  u32 slot_of(u32 expert, u32 row = 0) {
    auto const& t = made.view();
    return (t.expert(t.index_of(row, expert)).where & expert_word::slot_mask) - 1;
  }
  bool resident(u32 expert, u32 row = 0) {
    u32 const s = slot_of(expert, row);
    return s != no_slot.value && slot_word::state(made.view().word(s)) == slot_state::resident;
  }
  std::vector<unsigned char> bytes() const {
    auto const* const first = static_cast<unsigned char const*>(made.block());
    return {first, first + made.block_bytes()};
  }

  table<Policy> made;
  std::vector<u32> arrivals;
  std::unique_ptr<workspace_of<Policy>> work = std::make_unique<workspace_of<Policy>>();
  std::unique_ptr<plan_of<Policy>> decided = std::make_unique<plan_of<Policy>>();
  outcome sum{};
};

using lru = bundles::of<score::lru>;
using counted = bundles::of<score::decayed_count>;
template <class Guard>
using hinted = bundles::guarded<counted, Guard>;

inline kit::table_config sized(u32 experts, u32 slots, u32 k = 2) {
  kit::table_config c;
  c.n_experts = experts;
  c.k = k;
  c.reserved = c.capacity = slots;
  return c;
}

}  // namespace warmset::table_test
