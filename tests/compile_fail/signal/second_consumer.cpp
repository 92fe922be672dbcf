// expect: (use of deleted function|call to deleted constructor)[^\n]*consumer<
// SPDX-License-Identifier: Apache-2.0
#include <warmset/signal/ring.hpp>

using namespace warmset::signal;

consumer<demand_ring> second(consumer<demand_ring>& first) {
#ifdef WARMSET_TWIN_OK
  return static_cast<consumer<demand_ring>&&>(first);
#else
  return first;
#endif
}
