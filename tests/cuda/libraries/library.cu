// SPDX-License-Identifier: Apache-2.0
// One of two shared libraries with the same kernels: WARMSET_TEST_LIBRARY is the name of its function.
#include <warmset/cuda.cuh>

#include <vector>

#include <warmset/policy/score/lru.hpp>

using namespace warmset;

// of the same name in both
struct library_bundle : default_policy {
  using score = warmset::score::lru;
};

namespace {

using bundle = library_bundle;
constexpr u32 n_experts = 8, k = 2, n_slots = 3, bytes = 96;

class source : public cuda::mapped_source {
 public:
  explicit source(unsigned char const* at) : at_(at) {}
  unsigned char const* bank(layer_id, u32) const override { return at_; }

 private:
  unsigned char const* at_;
};

}  // namespace

/// Decides and fetches some steps on the device. 0: every byte is right; 4: no GPU; else the line that failed.
extern "C" int WARMSET_TEST_LIBRARY() {
  int n_devices = 0;
  if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) {
    return 4;
  }
  cuda::mapped_memory<unsigned char> experts{n_experts * bytes};
  for (u32 i = 0; i < n_experts * bytes; ++i) {
    experts.data()[i] = static_cast<unsigned char>(i / bytes * 31 + i % bytes);
  }
  std::vector<layer_geometry> const layers{{layer_id{1}, n_experts, k, {bytes}}};
  std::vector<table<bundle>> tables;
  tables.emplace_back(layers, pool_size{n_slots, n_slots}, tuning{.scratch_slots = k});
  source const from{experts.device_data()};
  cuda::device_pools<bundle> pools{geometry{layers}, {{0, 0, 0, n_slots, n_slots, k, {layer_id{1}}}},
                                   {tables.data(), tables.size()}, from};
  if (!pools.take_over({tables.data(), tables.size()}, 1)) {
    return __LINE__;
  }
  cuda::device_memory<i32> ids{k}, slots{k};
  for (i32 step = 0; step < 20; ++step) {
    i32 const wanted[k] = {step % 8, step * 3 % 8};
    i32 found[k] = {};
    if (!ids.write(wanted, k) || cudaDeviceSynchronize() != cudaSuccess ||
        !pools.record(cudaStreamPerThread, layer_id{1}, ids.data(), k, slots.data()) ||
        cudaDeviceSynchronize() != cudaSuccess || !slots.read(found, k)) {
      return __LINE__;
    }
    for (u32 j = 0; j < k; ++j) {
      unsigned char seen[bytes] = {};
      if (found[j] < 0 || cudaMemcpy(seen, pools.bank(0, 0) + found[j] * static_cast<i32>(bytes), bytes,
                                     cudaMemcpyDeviceToHost) != cudaSuccess) {
        return __LINE__;
      }
      for (u32 i = 0; i < bytes; ++i) {
        if (seen[i] != static_cast<unsigned char>(static_cast<u32>(wanted[j]) * 31 + i)) {
          return __LINE__;
        }
      }
    }
  }
  return 0;
}
