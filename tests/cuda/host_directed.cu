// SPDX-License-Identifier: Apache-2.0
// The kernels of host-directed mode; the cases that launch them are in host_directed_cases.cpp.
#include "cuda/host_directed_device.hpp"

#include <warmset/cuda/host_directed.cuh>

#include "cuda/device_pool.hpp"

using namespace warmset;

namespace directed {

namespace {

__global__ void next_ids_kernel(routed_id const* all, u32* launch, u32 n, routed_id* ids) {
  for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
    ids[i] = all[u64{*launch} * n + i];
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    ++*launch;
  }
}

__global__ void check_kernel(unsigned char const* bank, u64 bytes, u32 layer, u32 bank_number, routed_id const* ids,
                             u32 n, u32 n_experts, i32 const* slots, u32 first_own, checked* out) {
  for (u32 j = 0; j < n; ++j) {
    if (static_cast<u32>(ids[j]) >= n_experts || slots[j] < 0) {
      bool const as_it_should = static_cast<u32>(ids[j]) >= n_experts && slots[j] == -1;
      if (threadIdx.x == 0 && !as_it_should) {
        atomicAdd(&out->wrong, 1ull);
      }
      continue;
    }
    if (threadIdx.x == 0 && static_cast<u32>(slots[j]) >= first_own) {
      atomicAdd(&out->from_own, 1ull);
    }
    for (u64 i = threadIdx.x; i < bytes; i += blockDim.x) {
      unsigned char const expected = steps::sources::value(layer, bank_number, static_cast<u32>(ids[j]), i);
      if (bank[static_cast<u64>(slots[j]) * bytes + i] != expected) {
        atomicAdd(&out->wrong, 1ull);
      }
      atomicAdd(&out->read, 1ull);
    }
  }
}

}  // namespace

struct device::parts {
  cuda::host_directed directed;
};

device::device(cuda::mapped_channel& channel, geometry const& model, cuda::copy_engine const& engine,
               move::span_source const* source, cuda::directed_limits limits, u32 share, u32 shares) {
  cuda::directed_options const options{limits, share, shares};
  parts_ = source != nullptr
               ? std::unique_ptr<parts>(new parts{{channel, model, engine, cuda::mapped_spans{*source}, options}})
               : std::unique_ptr<parts>(new parts{{channel, model, engine, cuda::no_mapped_source{}, options}});
  cudaFuncAttributes loaded{};  // as cuda::host_directed does with its own
  (void)cudaFuncGetAttributes(&loaded, reinterpret_cast<void const*>(&next_ids_kernel));
  (void)cudaFuncGetAttributes(&loaded, reinterpret_cast<void const*>(&check_kernel));
}
device::~device() = default;

cudaError_t device::publish(cudaStream_t stream, u32 layer, routed_id const* ids, u32 n) {
  return parts_->directed.publish(stream, layer_id{layer}, ids, n).code;
}
cudaError_t device::await(cudaStream_t stream, u32 layer, routed_id const* ids, u32 n, i32* slots) {
  return parts_->directed.await(stream, layer_id{layer}, ids, n, slots).code;
}
cudaError_t device::ask(cudaStream_t stream, u32 layer, routed_id const* ids, u32 n, i32* slots) {
  return parts_->directed.ask(stream, layer_id{layer}, ids, n, slots).code;
}
cudaError_t device::finish(cudaStream_t stream, u32 layer) { return parts_->directed.finish(stream, layer_id{layer}).code; }
cudaError_t device::hint(cudaStream_t stream, u32 layer, routed_id const* ids, u32 n) {
  return parts_->directed.hint(stream, layer_id{layer}, ids, n).code;
}
cudaError_t device::await_hint(cudaStream_t stream) { return parts_->directed.await_hint(stream).code; }
cudaError_t device::set(cuda::directed_limits limits) { return parts_->directed.set(limits).code; }
cuda::directed_tally device::counted() const {
  cuda::directed_tally t{};
  (void)parts_->directed.counted(t);
  return t;
}
cuda::step_ticket device::last(u32 layer) const {
  cuda::step_ticket t{};
  (void)parts_->directed.last(layer_id{layer}, t);
  return t;
}

cudaError_t next_ids(cudaStream_t stream, routed_id const* all, u32* launch, u32 n, routed_id* ids) {
  next_ids_kernel<<<1, 32, 0, stream>>>(all, launch, n, ids);
  return cudaGetLastError();
}
cudaError_t check(cudaStream_t stream, unsigned char const* bank, u64 bytes, u32 layer, u32 bank_number,
                  routed_id const* ids, u32 n, u32 n_experts, i32 const* slots, u32 first_own, checked* out) {
  check_kernel<<<1, 128, 0, stream>>>(bank, bytes, layer, bank_number, ids, n, n_experts, slots, first_own, out);
  return cudaGetLastError();
}

}  // namespace directed
