// expect: owned_cache
// SPDX-License-Identifier: Apache-2.0
#include <warmset/cache.hpp>
#include <warmset/signal/worker.hpp>

#ifdef WARMSET_TWIN_OK
using owned = warmset::cache<>;
#else
using owned = warmset::cache<warmset::off>;
#endif

bool step(warmset::signal::worker<owned>& w) {
  return w.step();
}
