// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <warmset/cuda/backend.hpp>
#include <warmset/cuda/host_directed.hpp>
#include <warmset/cuda/mapped_memory.hpp>
#include <warmset/move/source.hpp>

namespace gpu_bench {

using namespace warmset;

/// cuda::host_directed for a source that nvcc does not read, which is where its worker is. Every call is checked.
class directed_kernels {
 public:
  directed_kernels(cuda::mapped_channel& channel, geometry const& model,
                   cuda::copy_engine const& engine, move::span_source const& source);
  ~directed_kernels();

  void ask(cudaStream_t stream, layer_id layer, routed_id const* ids, u32 n, i32* slots);
  void hint(cudaStream_t stream, layer_id layer, routed_id const* ids, u32 n);
  void finish(cudaStream_t stream, layer_id layer);
  cuda::directed_tally counted() const;

 private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

}  // namespace gpu_bench
