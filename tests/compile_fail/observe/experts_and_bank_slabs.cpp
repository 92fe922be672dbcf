// expect: (no match for .operator\+.|invalid operands to binary expression)
// SPDX-License-Identifier: Apache-2.0
#include "warmset/observe/counters.hpp"

using namespace warmset;

unsigned long long moved(total_counters const& c) {
#ifdef WARMSET_TWIN_OK
  return (c.demanded + c.arrived[0]).value;
#else
  return (c.demanded + c.slabs[0]).value;  // 480 experts and 1440 bank slabs are no 1920 of anything
#endif
}
