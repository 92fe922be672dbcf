// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the score lacks value\(
// SPDX-License-Identifier: Apache-2.0
#include "warmset/table/bundles.hpp"
#include "warmset/table/table.hpp"

using namespace warmset;

struct my_score {
  struct state {
    u32 count;
  };
  static constexpr char const* name = "my_score";
#ifdef WARMSET_TWIN_OK
  WARMSET_HD constexpr u64 value(state const& x, expert_facts, clocks) const noexcept { return x.count; }
#endif
  WARMSET_HD constexpr void on_demand(state& x, clocks) const noexcept { ++x.count; }
};

struct my_policy : default_policy {
  using score = my_score;
};

unsigned long long size(table<my_policy> const& t) { return t.block_bytes(); }
