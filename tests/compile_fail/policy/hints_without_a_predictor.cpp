// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the bundle has predictor none: it takes no hints
// SPDX-License-Identifier: Apache-2.0
#include "warmset/table/bundles.hpp"
#include "warmset/table/table.hpp"

using namespace warmset;

struct my_policy : default_policy {
#ifdef WARMSET_TWIN_OK
  using predictor = predict::supplied;
#endif
};

void hint(table_reader<my_policy> const& t, workspace_of<my_policy>& w, plan_of<my_policy>& p) {
  int const ids[] = {1};
  plan_speculative<my_policy>(one_lane{}, t, speculation_input{0, 1, 1, 0}, ids, 1, w, p);
}
