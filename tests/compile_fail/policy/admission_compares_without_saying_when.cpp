// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the admission compares and lacks replaces\(replacement_question\) or compares_in\(admission_step\)
// SPDX-License-Identifier: Apache-2.0
#include "warmset/table/bundles.hpp"
#include "warmset/table/table.hpp"

using namespace warmset;

struct my_admission {
  static constexpr bool may_decline = true;
  static constexpr bool compares = true;
  static constexpr char const* name = "my_admission";
  WARMSET_HD constexpr bool admits(admission_question const&) const noexcept { return true; }
#ifdef WARMSET_TWIN_OK
  WARMSET_HD constexpr bool compares_in(admission_step) const noexcept { return true; }
#endif
  WARMSET_HD constexpr bool replaces(replacement_question const& q) const noexcept {
    return q.challenger_score > q.victim_score;
  }
};

struct my_policy : default_policy {
  using admission = my_admission;
};

unsigned long long size(table<my_policy> const& t) { return t.block_bytes(); }
