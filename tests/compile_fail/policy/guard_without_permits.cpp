// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the guard lacks permits\(
// SPDX-License-Identifier: Apache-2.0
#include "warmset/table/bundles.hpp"
#include "warmset/table/table.hpp"

using namespace warmset;

struct my_guard {
  static constexpr bool needs_heat = false;
  static constexpr bool keeps_reserve = false;
  static constexpr char const* name = "my_guard";
#ifdef WARMSET_TWIN_OK
  WARMSET_HD constexpr bool permits(duel const& d) const noexcept { return d.victim_spare; }
#endif
};

struct my_policy : default_policy {
  using guard = my_guard;
};

unsigned long long size(table<my_policy> const& t) { return t.block_bytes(); }
