// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <warmset/core/geometry.hpp>
#include <warmset/cuda/memory.hpp>
#include <warmset/move/source.hpp>

#include "decode.hpp"
#include "link.hpp"
#include "routes.hpp"
#include "support.cuh"

/// What the modes of `decode` share, for any host compiler: the model without its cache, the experts in pinned memory, and a mode's interface.
namespace gpu_bench {

using namespace warmset;

inline constexpr u32 most_banks = 3;

struct expert_banks {
  unsigned char const* base[most_banks];
  u64 bytes[most_banks];
  u32 n;
};

/// What every mode decodes with: dense weights, routes and hints on the device, and kernels that read and do not compute.
class decoder {
 public:
  decoder(model_routes const& m, decode_options const& o);

  /// The next step is the first one again.
  void restart();

  /// The dense part of a layer, which ends with its routes in `ids_of`.
  void record_dense(cudaStream_t s, u32 layer);
  /// Reads every byte of the layer's k experts, which lie at `where` in the banks.
  void record_experts(cudaStream_t s, expert_banks const& banks, i32 const* where);
  /// Stands for the predictor of a layer: puts its hints of this step into `hints_of`.
  void record_hints(cudaStream_t s, u32 layer, u32 width);
  void record_end(cudaStream_t s);

  i32* ids_of(u32 layer) { return ids_.data() + std::size_t{layer} * m.k; }
  i32* where_of(u32 layer) { return where_.data() + std::size_t{layer} * m.k; }
  i32* hints_of(u32 layer) { return hint_ids_.data() + std::size_t{layer} * most_hints; }
  /// The hints of a step and layer in the host's memory.
  i32 const* said(u32 step, u32 layer) const {
    return all_hints_.data() + (std::size_t{step % m.n_steps} * m.n_layers() + layer) * most_hints;
  }

  model_routes const& m;
  decode_options const& o;

 private:
  std::vector<i32> all_hints_;
  u32 n_dense_;  // layers' worth of dense weights: more than a cache of the device holds
  cuda::device_memory<i32> routes_;
  cuda::device_memory<i32> hints_;
  cuda::device_memory<i32> ids_;
  cuda::device_memory<i32> where_;
  cuda::device_memory<i32> hint_ids_;
  cuda::device_memory<u32> step_;
  cuda::device_memory<u32> sink_;
  cuda::device_memory<unsigned char> dense_;
};

/// The experts in mapped pinned memory. Layers share it: what the link carries is the same, and no model fills a
/// machine's memory. Each bank is expert after expert.
class pinned_experts {
 public:
  pinned_experts(geometry const& model, u64 wanted_bytes);
  pinned_experts(pinned_experts const&) = delete;
  pinned_experts& operator=(pinned_experts const&) = delete;
  ~pinned_experts();

  unsigned char* memory() const { return memory_; }
  /// The bytes of all banks of the i-th layer, in the host's memory.
  unsigned char const* layer(std::size_t i) const { return memory_ + first_[i]; }
  /// Expert 0 of a bank, as the device names it.
  unsigned char const* bank(layer_id layer, u32 bank) const;
  move::span_source spans() const;

 private:
  u64 offset(std::size_t i, u32 bank) const;

  geometry model_;
  unsigned char* memory_ = nullptr;
  unsigned char* mapped_ = nullptr;
  std::vector<u64> first_;
};

/// What a mode has done so far.
struct mode_counts {
  u64 lookups = 0;
  u64 hits = 0;          ///< resident when the step began; a hint's arrival counts
  u64 missed_bytes = 0;  ///< that demand moved
  u64 hint_bytes = 0;    ///< that hints moved
  u64 used_bytes = 0;    ///< of these, experts that a demand then used
  u64 wasted = 0;        ///< experts that a hint brought and that left without having been demanded

  friend mode_counts operator-(mode_counts a, mode_counts const& b) {
    return {a.lookups - b.lookups,           a.hits - b.hits,
            a.missed_bytes - b.missed_bytes, a.hint_bytes - b.hint_bytes,
            a.used_bytes - b.used_bytes,     a.wasted - b.wasted};
  }
};

/// One way to decode.
class decode_mode {
 public:
  virtual ~decode_mode() = default;
  /// Back to the first step, with an empty cache.
  virtual void restart() = 0;
  /// One step; returns when its stream has ended.
  virtual void step() = 0;
  virtual mode_counts counted() = 0;
  /// The steps so far were warm-up.
  virtual void warmed_up() {}
  /// What is to be said of the mode beside its figures.
  virtual std::string note() { return {}; }
};

std::unique_ptr<decode_mode> make_all_resident(decoder& d, cudaStream_t stream);
/// @param width  hints that are fetched for the next layer; 0: none
std::unique_ptr<decode_mode> make_common_practice(decoder& d, cudaStream_t stream,
                                                  pinned_experts const& experts, u32 width);
std::unique_ptr<decode_mode> make_host_directed(decoder& d, cudaStream_t stream,
                                                pinned_experts const& experts, u32 width);

enum class device_bundle { lru, decayed_count, successor };
std::unique_ptr<decode_mode> make_device_directed(decoder& d, cudaStream_t stream,
                                                  pinned_experts const& experts,
                                                  device_bundle bundle);

/// The pools of one bundle that takes hints, with a captured graph for each width and one without hints. In front of each
/// step a governor says whether the next launch looks ahead.
class look_ahead_mode : public decode_mode {
 public:
  /// For the steps from the next restart on.
  virtual void use(u32 width) = 0;
};
/// @param resident_us  a step of this decoder with all experts resident: the slack of its layers
std::unique_ptr<look_ahead_mode> make_look_ahead(decoder& d, cudaStream_t stream,
                                                 pinned_experts const& experts,
                                                 link_rates const& rates, double resident_us);

/// Slots of a layer.
u32 slots_of(layer_geometry const& layer, double resident);
/// Of these, slots that may hold an expert that only a hint has asked for so far: a whole batch of hints, and never more
/// than half of them.
u32 slots_for_hints(u32 n_slots);

/// Microseconds since `begin` by the host's clock.
inline double us_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace gpu_bench
