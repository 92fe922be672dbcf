// SPDX-License-Identifier: Apache-2.0
// The kernel that publishes counters, for a look at what nvcc makes of it.
#include <warmset/cuda/kernels.cuh>

using namespace warmset;

void publish(cudaStream_t stream, cuda::counter_page page, outcome const* records) {
  cuda::counters_kernel<cuda::mapped_words><<<1, cuda::detail::block_threads, 0, stream>>>(page, records);
}
