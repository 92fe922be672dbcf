// SPDX-License-Identifier: Apache-2.0
#include "decode_directed.hpp"

#include <warmset/cuda/host_directed.cuh>

#include "support.cuh"

namespace gpu_bench {

struct directed_kernels::parts {
  cuda::host_directed directed;
};

directed_kernels::directed_kernels(cuda::mapped_channel& channel, geometry const& model,
                                   cuda::copy_engine const& engine, move::span_source const& source)
    : parts_(new parts{{channel, model, engine, cuda::mapped_spans{source}}}) {}
directed_kernels::~directed_kernels() = default;

void directed_kernels::ask(cudaStream_t stream, layer_id layer, routed_id const* ids, u32 n,
                           i32* slots) {
  check(parts_->directed.ask(stream, layer, ids, n, slots).code, "asking");
}
void directed_kernels::hint(cudaStream_t stream, layer_id layer, routed_id const* ids, u32 n) {
  check(parts_->directed.hint(stream, layer, ids, n).code, "a hint");
}
void directed_kernels::finish(cudaStream_t stream, layer_id layer) {
  check(parts_->directed.finish(stream, layer).code, "finishing a step");
}
cuda::directed_tally directed_kernels::counted() const {
  cuda::directed_tally t{};
  check(parts_->directed.counted(t).code, "what the device has counted");
  return t;
}

}  // namespace gpu_bench
