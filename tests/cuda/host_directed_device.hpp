// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include <warmset/cuda/backend.hpp>
#include <warmset/cuda/host_directed.hpp>
#include <warmset/cuda/mapped_memory.hpp>

/// cuda::host_directed and the test's own kernels for sources that nvcc does not read.
namespace directed {

using namespace warmset;

class device {
 public:
  /// @param source  nullptr: kernels cannot read it
  device(cuda::mapped_channel& channel, geometry const& model, cuda::copy_engine const& engine,
         move::span_source const* source, cuda::directed_limits limits, u32 share = 0, u32 shares = 1);
  ~device();

  cudaError_t publish(cudaStream_t stream, u32 layer, routed_id const* ids, u32 n);
  cudaError_t await(cudaStream_t stream, u32 layer, routed_id const* ids, u32 n, i32* slots);
  cudaError_t ask(cudaStream_t stream, u32 layer, routed_id const* ids, u32 n, i32* slots);
  cudaError_t finish(cudaStream_t stream, u32 layer);
  cudaError_t hint(cudaStream_t stream, u32 layer, routed_id const* ids, u32 n);
  cudaError_t await_hint(cudaStream_t stream);
  cudaError_t set(cuda::directed_limits limits);
  cuda::directed_tally counted() const;
  cuda::step_ticket last(u32 layer) const;

 private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

/// What the check kernels have counted.
struct checked {
  unsigned long long wrong;  ///< bytes, and answers to ids that are none
  unsigned long long read;   ///< bytes
  unsigned long long from_own;  ///< answers in the kernels' own scratch
};

/// Puts the next `n` of all ids into `ids`: the routes of a graph's launch, which the device counts itself.
cudaError_t next_ids(cudaStream_t stream, routed_id const* all, u32* launch, u32 n, routed_id* ids);
/// Compares a bank of every answer with the bytes of the id that asked: what a consumer in the same graph reads.
cudaError_t check(cudaStream_t stream, unsigned char const* bank, u64 bytes, u32 layer, u32 bank_number,
                  routed_id const* ids, u32 n, u32 n_experts, i32 const* slots, u32 first_own, checked* out);

}  // namespace directed
