// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the admission compares heat and the score never decays
// SPDX-License-Identifier: Apache-2.0
#include "warmset/table/bundles.hpp"
#include "warmset/table/table.hpp"

using namespace warmset;

struct my_policy : default_policy {
  using score = warmset::score::lfu;
  using admission = warmset::admit::frequency_gate;
#ifdef WARMSET_TWIN_OK
  using decay = warmset::no_decay;
#endif
};

unsigned long long size(table<my_policy> const& t) { return t.block_bytes(); }
