// SPDX-License-Identifier: Apache-2.0
// What the link carries: one large copy, and scattered experts by the two ways in which the library moves them.

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <vector>

#include <warmset/cuda.cuh>
#include <warmset/cuda.hpp>

#include "link.hpp"
#include "support.cuh"

namespace gpu_bench {
namespace {

using namespace warmset;

/// The gather kernel's way to fetch `n` experts, which lie `from_stride` bytes apart. Expert i goes to place
/// `i * spread % n`.
__global__ void __launch_bounds__(cuda::detail::gather_threads)
    gather_all_kernel(unsigned char* to, unsigned char const* from, u64 bytes, u64 from_stride,
                      u32 n, u32 spread, u32 pieces) {
  constexpr u64 piece = 8192;
  constexpr u32 warps = cuda::detail::gather_threads / 32;
  for (u32 p = blockIdx.x * warps + threadIdx.x / 32; p < n * pieces; p += gridDim.x * warps) {
    u64 const first = (p % pieces) * piece;
    u64 const place = u64{p / pieces} * spread % n;
    cuda::detail::copy_by_warp(to + place * bytes + first,
                               from + u64{p / pieces} * from_stride + first,
                               min_of(piece, bytes - first));
  }
}

constexpr u64 large = u64{256} << 20;

double copy_rate(timer const& t, unsigned char* to, unsigned char* pinned) {
  std::vector<double> times;
  for (u32 i = 0; i < 9; ++i) {
    times.push_back(t.microseconds([&] {
      check(cudaMemcpyAsync(to, pinned, large, cudaMemcpyHostToDevice, t.stream()), "a copy");
    }));
  }
  return static_cast<double>(large) / median(times);
}

double gather_rate(timer const& t, unsigned char* to, unsigned char* pinned, u64 bytes,
                   u64 from_stride, u32 n, u32 spread) {
  void* mapped = nullptr;
  check(cudaHostGetDevicePointer(&mapped, pinned, 0), "mapped memory");
  std::vector<double> times;
  for (u32 i = 0; i < 31; ++i) {
    times.push_back(t.microseconds([&] {
      gather_all_kernel<<<cuda::device_options{}.gather_blocks, cuda::detail::gather_threads, 0, t.stream()>>>(
          to, static_cast<unsigned char const*>(mapped), bytes, from_stride, n, spread,
          static_cast<u32>(ceil_div(bytes, u64{8'192})));
    }));
  }
  return static_cast<double>(n * bytes) / median(times);
}

/// From `start` to the last arrival word, by the host's clock: what a step of host-directed mode waits for.
double copy_engine_rate(unsigned char* pinned, u64 bytes, u32 n, u32 spread) {
  geometry const model{{{layer_id{0}, 2 * n, 1, {bytes}}}};
  move::span_source source;
  source.add(layer_id{0}, 0, {reinterpret_cast<std::byte const*>(pinned), 2 * n * bytes});
  cuda::copy_engine engine{{}, source};
  std::vector<pool_site> const sites{{0, 0, 0, n, n, 1, {layer_id{0}}}};
  engine.open(model, {sites.data(), sites.size()});
  std::vector<double> times;
  for (u32 round = 1; round <= 31; ++round) {
    std::vector<transfer_order> orders;
    for (u32 i = 0; i < n; ++i) {
      orders.push_back({slot_id{i * spread % n}, {layer_id{0}, expert_id{2 * i}}, round});
    }
    auto const begin = std::chrono::steady_clock::now();
    engine.start(0, {orders.data(), orders.size()});
    for (u32 slot = 0; slot < n;) {
      u32 const word = engine.arrivals(0)[slot];
      if (arrival::state(word) == transfer::failed) {
        throw std::runtime_error("a transfer of the copy engine failed");
      }
      if (arrival::state(word) == transfer::arrived &&
          word == arrival::word(round, transfer::arrived)) {
        ++slot;
      } else {
        engine.poll();
      }
    }
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  engine.close();
  return static_cast<double>(n * bytes) / median(times);
}

}  // namespace

link_rates measure_link(timer const& t, unsigned char* pinned, u64 expert_bytes) {
  cuda::device_memory<unsigned char> to(static_cast<std::size_t>(large));
  u64 const bytes = expert_bytes / 16 * 16;
  u32 const n = static_cast<u32>(large / bytes);
  double const ceiling = copy_rate(t, to.data(), pinned);
  return {ceiling, gather_rate(t, to.data(), pinned, bytes, bytes, n, 1)};
}

void measure_scattered(report& out) {
  timer const t;
  cuda::mapped_memory<unsigned char> pinned(static_cast<std::size_t>(large));
  cuda::device_memory<unsigned char> to(static_cast<std::size_t>(large));
  double const ceiling = copy_rate(t, to.data(), pinned.data());
  out.add({"link's ceiling, one copy of 256 MiB", ceiling / 1000, "GB/s"});
  u64 const bytes = u64{768} << 10;
  for (u32 n : {8u, 32u}) {
    std::string const what = std::to_string(n) + " x 768 KiB, scattered: ";
    double const gather = gather_rate(t, to.data(), pinned.data(), bytes, 2 * bytes, n, 5);
    double const engine = copy_engine_rate(pinned.data(), bytes, n, 5);
    out.add({what + "gather kernel", gather / 1000, "GB/s"});
    out.add({"  ... of the ceiling", gather / ceiling, "x"});
    out.add({what + "copy engine", engine / 1000, "GB/s"});
    out.add({"  ... of the ceiling", engine / ceiling, "x"});
  }
}

}  // namespace gpu_bench
