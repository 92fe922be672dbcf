// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/steps.hpp"
#include "warmset/cuda.cuh"

namespace steps {

template <class Policy>
__global__ void run_kernel(components<Policy> parts, void* block, table_shape shape, u64 seed,
                           u32 n_steps, run_state<Policy>* state) {
  require_device_callable<Policy, one_lane>();
  table_writer<Policy> const view{block, shape, &parts};
  run<Policy>(one_lane{}, view, seed, n_steps, *state);
}

}  // namespace steps
