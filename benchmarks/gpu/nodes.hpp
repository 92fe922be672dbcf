// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace gpu_bench {

class report;

/// What a step costs as a node of a graph.
void measure_nodes(report& r);

}  // namespace gpu_bench
