// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the admission compares and may_decline is false
// SPDX-License-Identifier: Apache-2.0
#include "warmset/table/bundles.hpp"
#include "warmset/table/table.hpp"

using namespace warmset;

struct my_admission {
#ifdef WARMSET_TWIN_OK
  static constexpr bool may_decline = true;
#else
  static constexpr bool may_decline = false;
#endif
  static constexpr bool compares = true;
  static constexpr char const* name = "my_admission";
  WARMSET_HD constexpr bool admits(admission_question const&) const noexcept { return true; }
  WARMSET_HD constexpr bool compares_in(admission_step) const noexcept { return true; }
  WARMSET_HD constexpr bool replaces(replacement_question const& q) const noexcept {
    return q.challenger_score > q.victim_score;
  }
};

struct my_policy : default_policy {
  using admission = my_admission;
};

unsigned long long size(table<my_policy> const& t) { return t.block_bytes(); }
