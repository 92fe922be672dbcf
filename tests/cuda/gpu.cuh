// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

/// Whether this machine can run what the tests launch.
inline bool has_gpu() {
  int n = 0;
  return cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
}
