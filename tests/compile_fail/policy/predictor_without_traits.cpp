// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the predictor lacks speculates or a name
// SPDX-License-Identifier: Apache-2.0
#include "warmset/table/bundles.hpp"
#include "warmset/table/table.hpp"

using namespace warmset;

struct my_predictor {
#ifdef WARMSET_TWIN_OK
  static constexpr bool speculates = true;
  static constexpr char const* name = "my_predictor";
#else
  static constexpr char const* name = "my_predictor";
#endif
};

struct my_policy : default_policy {
  using predictor = my_predictor;
};

unsigned long long size(table<my_policy> const& t) { return t.block_bytes(); }
