// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the score's state must be trivially copyable integers without padding
// SPDX-License-Identifier: Apache-2.0
#include "warmset/table/bundles.hpp"
#include "warmset/table/table.hpp"

using namespace warmset;

struct my_score {
#ifdef WARMSET_TWIN_OK
  struct counter {
    u32 count;
  };
  using state = counter;
#else
  using counter = u32;
#endif
  static constexpr char const* name = "my_score";
  WARMSET_HD constexpr u64 value(counter const&, expert_facts, clocks) const noexcept { return 0; }
  WARMSET_HD constexpr void on_demand(counter&, clocks) const noexcept {}
};

struct my_policy : default_policy {
  using score = my_score;
};

unsigned long long size(table<my_policy> const& t) { return t.block_bytes(); }
