// expect: (no matching function for call to|could not convert|cannot convert|no viable conversion|invalid initialization)
// SPDX-License-Identifier: Apache-2.0
#include "warmset/observe/export_prometheus.hpp"

using namespace warmset;

void scrape(snapshot const& total, snapshot_delta const& delta, buffer_sink& sink) {
#ifdef WARMSET_TWIN_OK
  (void)delta;
  write_prometheus(export_source<total_span>{total}, sink);
#else
  (void)total;
  write_prometheus(export_source<delta_span>{delta}, sink);
#endif
}
