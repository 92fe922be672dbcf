// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <warmset/core/integers.hpp>

namespace gpu_bench {

class report;
class timer;

/// Bytes per microsecond from the host's memory to the device's.
struct link_rates {
  double ceiling;  ///< of one large copy
  double gather;   ///< of the gather kernel over experts of one size
};

/// @param pinned  256 MiB of mapped pinned memory
link_rates measure_link(timer const& t, unsigned char* pinned, warmset::u64 expert_bytes);

/// Scattered experts by the gather kernel and by the copy engine, beside the link's ceiling.
void measure_scattered(report& out);

}  // namespace gpu_bench
