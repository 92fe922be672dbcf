// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the bundle takes hints and the gate's holder cannot speculate
// SPDX-License-Identifier: Apache-2.0
#include "warmset/cache.hpp"
#include "warmset/gate/held_by.hpp"
#include "warmset/predict/supplied.hpp"

using namespace warmset;

struct my_policy : default_policy {
  using predictor = predict::supplied;
};

#ifdef WARMSET_TWIN_OK
using permit = gate::free_permit;
#else
using permit = gate::no_permit;
#endif

using my_cache = cache<my_policy, move::external, observe::counting, gate::held_by<gate::holder::host, permit>>;

bool is_on(my_cache const& c) { return c.enabled; }
