// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "decode_common.hpp"

namespace gpu_bench {
namespace {

/// Reads `bytes` (a multiple of 16) with `n_threads` threads, of which the caller is `thread`: 16 bytes a load, four of them
/// in flight for each thread.
__device__ u32 read_all(unsigned char const* from, u64 bytes, u32 thread, u32 n_threads) {
  constexpr u32 in_flight = 4;
  auto const* const in = reinterpret_cast<uint4 const*>(from);
  u64 const n = bytes / sizeof(uint4);
  u32 sum = 0;
  for (u64 i = thread; i < n; i += u64{in_flight} * n_threads) {
    uint4 held[in_flight];
#pragma unroll
    for (u32 j = 0; j < in_flight; ++j) {
      // without a branch, so that the loads do not wait for each other; the last one may come twice
      held[j] = in[min_of(i + u64{j} * n_threads, n - 1)];
    }
#pragma unroll
    for (u32 j = 0; j < in_flight; ++j) {
      sum ^= held[j].x ^ held[j].y ^ held[j].z ^ held[j].w;
    }
  }
  return sum;
}

/// So that the bytes are read.
__device__ void keep(u32 sum, u32* sink) {
  if (sum == 0x9E37'79B9u) {
    atomicXor(sink, sum);
  }
}

constexpr u32 reader_threads = 512;
constexpr u32 reader_blocks =
    264;  // two for each multiprocessor of an H200: a gather beside them finds room

/// Stands for a layer's attention and router: reads its dense weights, and its first threads put the layer's routes of
/// this step where the cache will look for them.
__global__ void __launch_bounds__(reader_threads)
    dense_kernel(unsigned char const* weights, u64 bytes, i32 const* routes, u32 const* step,
                 u32 n_steps, u64 step_stride, u32 k, i32* ids, u32* sink) {
  u32 const at = blockIdx.x * blockDim.x + threadIdx.x;
  keep(read_all(weights, bytes, at, gridDim.x * blockDim.x), sink);
  if (at < k) {
    ids[at] = routes[(*step % n_steps) * step_stride + at];
  }
}

/// Stands for the experts' matrix products: reads every byte of the k demanded experts. blockIdx.y is the expert's rank.
__global__ void __launch_bounds__(reader_threads)
    experts_kernel(__grid_constant__ expert_banks const banks, i32 const* where, u32* sink) {
  i32 const at = where[blockIdx.y];
  if (at < 0) {
    return;
  }
  u32 sum = 0;
  for (u32 bank = 0; bank < banks.n; ++bank) {
    sum ^= read_all(banks.base[bank] + static_cast<u64>(at) * banks.bytes[bank], banks.bytes[bank],
                    blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
  }
  keep(sum, sink);
}

__global__ void hints_kernel(i32 const* all, u32 const* step, u32 n_steps, u64 step_stride,
                             u32 width, i32* hints) {
  if (threadIdx.x < width) {
    hints[threadIdx.x] = all[(*step % n_steps) * step_stride + threadIdx.x];
  }
}

__global__ void next_step_kernel(u32* step) {
  ++*step;
}

constexpr u64 beyond_any_cache = u64{256} << 20;

}  // namespace

decoder::decoder(model_routes const& routes, decode_options const& options)
    : m(routes), o(options), all_hints_(stand_in_hints(routes, options.recall)),
      n_dense_(min_of(routes.n_layers(),
                      static_cast<u32>(ceil_div(beyond_any_cache, options.dense_bytes)) + 1)),
      routes_(routes.ids.size()), hints_(all_hints_.size()),
      ids_(routes.n_layers() * std::size_t{routes.k}), where_(ids_.size()),
      hint_ids_(routes.n_layers() * std::size_t{most_hints}), step_(1), sink_(1),
      dense_(static_cast<std::size_t>(options.dense_bytes * n_dense_)) {
  check(routes_.write(m.ids.data(), m.ids.size()).code, "routes");
  check(hints_.write(all_hints_.data(), all_hints_.size()).code, "hints");
  for (layer_geometry const& layer : m.model.layers()) {
    if (layer.bank_bytes.size() > most_banks) {
      throw std::runtime_error("a layer with more than three banks is not read by any kernel here");
    }
  }
  // a kernel that is loaded while another one waits for a worker may wait for that one
  cudaFuncAttributes loaded{};
  for (void const* kernel : {reinterpret_cast<void const*>(&dense_kernel),
                             reinterpret_cast<void const*>(&experts_kernel),
                             reinterpret_cast<void const*>(&hints_kernel),
                             reinterpret_cast<void const*>(&next_step_kernel)}) {
    check(cudaFuncGetAttributes(&loaded, kernel), "loading a kernel");
  }
}

void decoder::restart() {
  u32 const first = 0;
  check(step_.write(&first, 1).code, "the step");
}

void decoder::record_dense(cudaStream_t s, u32 layer) {
  dense_kernel<<<reader_blocks, reader_threads, 0, s>>>(
      dense_.data() + (layer % n_dense_) * o.dense_bytes, o.dense_bytes,
      routes_.data() + std::size_t{layer} * m.k, step_.data(), m.n_steps, u64{m.n_layers()} * m.k,
      m.k, ids_of(layer), sink_.data());
}
void decoder::record_experts(cudaStream_t s, expert_banks const& banks, i32 const* where) {
  experts_kernel<<<dim3(max_of(1u, reader_blocks / m.k), m.k), reader_threads, 0, s>>>(
      banks, where, sink_.data());
}
void decoder::record_hints(cudaStream_t s, u32 layer, u32 width) {
  hints_kernel<<<1, 32, 0, s>>>(hints_.data() + std::size_t{layer} * most_hints, step_.data(),
                                m.n_steps, u64{m.n_layers()} * most_hints, width, hints_of(layer));
}
void decoder::record_end(cudaStream_t s) {
  next_step_kernel<<<1, 1, 0, s>>>(step_.data());
}

pinned_experts::pinned_experts(geometry const& model, u64 wanted_bytes) : model_(model) {
  u64 bytes = wanted_bytes;
  for (layer_geometry const& layer : model_.layers()) {
    bytes = max_of(bytes, layer.n_experts * layer.expert_bytes());
  }
  u64 at = 0;
  for (layer_geometry const& layer : model_.layers()) {
    u64 const of_layer = layer.n_experts * layer.expert_bytes();
    at = at + of_layer > bytes ? 0 : at;
    first_.push_back(at);
    at += of_layer;
  }
  void* memory = nullptr;
  void* mapped = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
        "pinned memory");
  memory_ = static_cast<unsigned char*>(memory);
  std::memset(memory_, 0x5A, bytes);
  check(cudaHostGetDevicePointer(&mapped, memory, 0), "mapped memory");
  mapped_ = static_cast<unsigned char*>(mapped);
}
pinned_experts::~pinned_experts() {
  (void)cudaFreeHost(memory_);
}

u64 pinned_experts::offset(std::size_t i, u32 bank) const {
  layer_geometry const& g = model_.layers()[i];
  u64 at = first_[i];
  for (u32 b = 0; b < bank; ++b) {
    at += g.n_experts * g.bank_bytes[b];
  }
  return at;
}
unsigned char const* pinned_experts::bank(layer_id layer, u32 bank) const {
  std::size_t i = 0;
  while (model_.layers()[i].layer != layer) {
    ++i;
  }
  return mapped_ + offset(i, bank);
}
move::span_source pinned_experts::spans() const {
  move::span_source spans;
  for (std::size_t i = 0; i < first_.size(); ++i) {
    layer_geometry const& g = model_.layers()[i];
    for (u32 bank = 0; bank < g.bank_bytes.size(); ++bank) {
      spans.add(g.layer, bank,
                {reinterpret_cast<std::byte const*>(memory_ + offset(i, bank)),
                 g.n_experts * g.bank_bytes[bank]});
    }
  }
  return spans;
}

u32 slots_of(layer_geometry const& layer, double resident) {
  return max_of(layer.k, static_cast<u32>(std::lround(layer.n_experts * resident)));
}
u32 slots_for_hints(u32 n_slots) {
  return max_of(1u, min_of(most_hints, n_slots / 2));
}

}  // namespace gpu_bench
