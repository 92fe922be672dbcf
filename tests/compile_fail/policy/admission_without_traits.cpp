// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the admission lacks may_decline or a name
// SPDX-License-Identifier: Apache-2.0
#include "warmset/table/bundles.hpp"
#include "warmset/table/table.hpp"

using namespace warmset;

struct my_admission {
#ifdef WARMSET_TWIN_OK
  static constexpr bool may_decline = true;
  static constexpr char const* name = "my_admission";
#else
  static constexpr char const* name = "my_admission";
#endif
  WARMSET_HD constexpr bool admits(admission_question const& q) const noexcept { return q.accessed; }
};

struct my_policy : default_policy {
  using admission = my_admission;
};

unsigned long long size(table<my_policy> const& t) { return t.block_bytes(); }
