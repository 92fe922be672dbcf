// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "../core/error.hpp"

namespace warmset::inline v0::cuda {

/// What a call of the CUDA runtime answered. Contextually true where it is success.
struct status {
  cudaError_t code = cudaSuccess;

  explicit operator bool() const noexcept { return code == cudaSuccess; }
  /// The runtime's sentence for the code, in static memory.
  char const* what() const noexcept { return cudaGetErrorString(code); }
};

namespace detail {

/// For what a constructor cannot do without: throws config_error with what was tried and what the runtime said.
inline void require(cudaError_t code, char const* tried) {
  if (code != cudaSuccess) {
    (void)cudaGetLastError();  // it has been told
    throw config_error(tried, ": ", cudaGetErrorString(code));
  }
}

}  // namespace detail
}  // namespace warmset::inline v0::cuda
