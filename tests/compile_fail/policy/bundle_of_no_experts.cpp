// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*max_experts must lie between 1 and 65535
// SPDX-License-Identifier: Apache-2.0
#include "warmset/table/bundles.hpp"
#include "warmset/table/table.hpp"

using namespace warmset;

struct my_policy : default_policy {
#ifdef WARMSET_TWIN_OK
  static constexpr u32 max_experts = 1;
#else
  static constexpr u32 max_experts = 70'000;
#endif
};

unsigned long long size(table<my_policy> const& t) { return t.block_bytes(); }
