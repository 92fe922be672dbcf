// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/cuda/backend.hpp>

#include "cuda/device_pool.hpp"

/// The experts of a model in memory of the host, for tests on a GPU: each byte tells where it is from.
namespace gpu {

using namespace warmset;

inline u32 n_devices() {
  int n = 0;
  return cudaGetDeviceCount(&n) == cudaSuccess ? static_cast<u32>(n) : 0;
}

inline void require_devices(u32 n) {
  if (n_devices() < n) {
    if (n == 1) {
      SKIP("skipped: no GPU");
    }
    SKIP("skipped: no " << n << " GPUs");
  }
}

class experts {
 public:
  /// @param pinned  mapped as well; else memory of malloc
  explicit experts(geometry m, bool pinned = true) : model(std::move(m)), pinned_(pinned) {
    for (layer_geometry const& layer : model.layers()) {
      for (u32 bank = 0; bank < layer.bank_bytes.size(); ++bank) {
        u64 const stride = layer.bank_bytes[bank];
        u64 const bytes = layer.n_experts * stride;
        void* memory = nullptr;
        if (pinned_) {
          REQUIRE(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped) == cudaSuccess);
        } else {
          memory = std::malloc(bytes);
        }
        unsigned char* const data = static_cast<unsigned char*>(memory);
        for (u64 i = 0; i < bytes; ++i) {
          data[i] = steps::sources::value(layer.layer.value, bank, static_cast<u32>(i / stride), i % stride);
        }
        source.add(layer.layer, bank, {reinterpret_cast<std::byte const*>(data), bytes});
        memory_.push_back(memory);
      }
    }
  }
  experts(experts const&) = delete;
  experts& operator=(experts const&) = delete;
  ~experts() {
    for (void* memory : memory_) {
      pinned_ ? (void)cudaFreeHost(memory) : std::free(memory);
    }
  }

  cuda::copy_engine engine(cuda::copy_options options = {}) const { return cuda::copy_engine{options, source}; }

  /// Whether a slot has all banks of an expert.
  bool holds(cuda::copy_engine const& e, u32 pool, slot_id slot, expert_key key) const {
    layer_geometry const& layer = *model.find(key.layer);
    for (u32 bank = 0; bank < layer.bank_bytes.size(); ++bank) {
      u64 const stride = layer.bank_bytes[bank];
      std::vector<std::byte> found(stride);
      REQUIRE(cudaMemcpy(found.data(), e.slot(pool, slot, bank), stride, cudaMemcpyDeviceToHost) == cudaSuccess);
      if (std::memcmp(found.data(), source.bytes(key.layer, bank).data() + key.expert.value * stride, stride) != 0) {
        return false;
      }
    }
    return true;
  }

  geometry model;
  move::span_source source;

 private:
  bool pinned_;
  std::vector<void*> memory_;
};

inline geometry one_layer(std::vector<u64> banks, u32 n_experts, u32 k = 4) {
  return geometry{{{layer_id{1}, n_experts, k, std::move(banks)}}};
}
inline transfer_order order(u32 slot, u32 expert, u32 generation = 1, u32 layer = 1) {
  return {{slot}, {layer_id{layer}, {expert}}, generation};
}
inline transfer word(cuda::copy_engine const& e, u32 pool, u32 slot) {
  return arrival::state(e.arrivals(pool)[slot]);
}
/// Polls until nothing is under way; false after ten seconds.
bool drain(cuda::copy_engine& e);

}  // namespace gpu
