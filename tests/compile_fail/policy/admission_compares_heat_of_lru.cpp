// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the admission needs heat\(\) and the score has none
// SPDX-License-Identifier: Apache-2.0
#include "warmset/table/bundles.hpp"
#include "warmset/table/table.hpp"

using namespace warmset;

struct my_policy : default_policy {
#ifdef WARMSET_TWIN_OK
  using score = warmset::score::decayed_count;
#else
  using score = warmset::score::lru;
#endif
  using admission = warmset::admit::frequency_gate;
};

unsigned long long size(table<my_policy> const& t) { return t.block_bytes(); }
