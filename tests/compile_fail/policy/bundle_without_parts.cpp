// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the bundle lacks a part: derive it from warmset::default_policy
// SPDX-License-Identifier: Apache-2.0
#include "warmset/table/bundles.hpp"
#include "warmset/table/table.hpp"

using namespace warmset;

#ifdef WARMSET_TWIN_OK
struct my_policy : default_policy {
#else
struct my_policy {
#endif
  using score = warmset::score::lru;
};

unsigned long long size(table<my_policy> const& t) { return t.block_bytes(); }
