// SPDX-License-Identifier: Apache-2.0
// The modes without the library: all experts resident, and what engines do that fetch experts.

#include <utility>

#include <warmset/cuda/mapped_memory.hpp>

#include "decode_common.hpp"

namespace gpu_bench {
namespace {

class all_resident final : public decode_mode {
 public:
  all_resident(decoder& d, cudaStream_t stream) : d_(d), stream_(stream) {
    for (layer_geometry const& layer : d.m.model.layers()) {
      memory_.emplace_back(static_cast<std::size_t>(layer.n_experts * layer.expert_bytes()));
      expert_banks b{};
      u64 at = 0;
      for (u64 bytes : layer.bank_bytes) {
        b.base[b.n] = memory_.back().data() + at;
        b.bytes[b.n++] = bytes;
        at += layer.n_experts * bytes;
      }
      banks_.push_back(b);
    }
    ready_ = std::make_unique<graph>(stream_, [&](cudaStream_t s) {
      for (u32 l = 0; l < d_.m.n_layers(); ++l) {
        d_.record_dense(s, l);
        d_.record_experts(s, banks_[l], d_.ids_of(l));
      }
      d_.record_end(s);
    });
  }
  void restart() override { d_.restart(); }
  void step() override {
    ready_->launch(stream_);
    check(cudaStreamSynchronize(stream_), "a step");
  }
  mode_counts counted() override { return {}; }

 private:
  decoder& d_;
  cudaStream_t stream_;
  std::vector<cuda::device_memory<unsigned char>> memory_;
  std::vector<expert_banks> banks_;
  std::unique_ptr<graph> ready_;
};

/// Reads the ids of each layer back, finds their slots by a linear scan, evicts the least recently used and copies expert by
/// expert, without a graph. With a width, a second stream brings the hinted experts of the next layer meanwhile.
class common_practice final : public decode_mode {
 public:
  common_practice(decoder& d, cudaStream_t stream, pinned_experts const& experts, u32 width)
      : d_(d), stream_(stream), width_(width), read_back_(d.m.k),
        there_(d.m.n_layers() * std::size_t{d.m.k}) {
    check(cudaStreamCreateWithFlags(&aside_, cudaStreamNonBlocking), "a stream");
    check(cudaEventCreateWithFlags(&demanded_, cudaEventDisableTiming), "an event");
    check(cudaEventCreateWithFlags(&hinted_, cudaEventDisableTiming), "an event");
    for (std::size_t l = 0; l < d.m.n_layers(); ++l) {
      layer_geometry const& g = d.m.model.layers()[l];
      u32 const n = slots_of(g, d.o.resident);
      layers_.push_back(
          {std::vector<slot>(n),
           cuda::device_memory<unsigned char>(static_cast<std::size_t>(n * g.expert_bytes())),
           experts.layer(l), g.expert_bytes()});
    }
  }
  ~common_practice() override {
    (void)cudaStreamSynchronize(aside_);
    (void)cudaStreamDestroy(aside_);
    (void)cudaEventDestroy(demanded_);
    (void)cudaEventDestroy(hinted_);
  }

  void restart() override {
    d_.restart();
    step_ = 0;
    for (layer_slots& layer : layers_) {
      layer.slots.assign(layer.slots.size(), {});
    }
  }

  void step() override {
    for (u32 l = 0; l < d_.m.n_layers(); ++l) {
      layer_slots& layer = layers_[l];
      u32 const k = d_.m.k;
      d_.record_dense(stream_, l);
      check(cudaMemcpyAsync(read_back_.data(), d_.ids_of(l), k * sizeof(i32),
                            cudaMemcpyDeviceToHost, stream_),
            "a read-back");
      check(cudaStreamSynchronize(stream_), "a read-back");
      i32* const where = there_.data() + std::size_t{l} * k;
      for (u32 i = 0; i < k; ++i) {  // hits first, so that none of them is a victim
        where[i] = layer.find(read_back_.data()[i]);
        if (where[i] >= 0) {
          slot& hit = layer.slots[static_cast<u32>(where[i])];
          hit.last = ++clock_;
          counts_.used_bytes += hit.is_hint ? layer.bytes : 0;
          hit.is_hint = false;
          ++counts_.hits;
        }
      }
      counts_.lookups += k;
      for (u32 i = 0; i < k; ++i) {
        if (where[i] < 0) {
          where[i] = static_cast<i32>(fetch(layer, read_back_.data()[i], false, stream_));
          counts_.missed_bytes += layer.bytes;
        }
      }
      check(
          cudaMemcpyAsync(d_.where_of(l), where, k * sizeof(i32), cudaMemcpyHostToDevice, stream_),
          "slots");
      if (width_ != 0 && l != 0) {
        check(cudaStreamWaitEvent(stream_, hinted_, 0), "the hinted experts");
      }
      if (width_ != 0 && l + 1 < d_.m.n_layers()) {
        look_ahead(l + 1);
      }
      d_.record_experts(stream_, {{layer.memory.data()}, {layer.bytes}, 1}, d_.where_of(l));
    }
    d_.record_end(stream_);
    check(cudaStreamSynchronize(stream_), "a step");
    ++step_;
  }
  mode_counts counted() override { return counts_; }

 private:
  struct slot {
    i32 expert = -1;
    u64 last = 0;
    bool is_hint = false;
  };
  struct layer_slots {
    std::vector<slot> slots;
    cuda::device_memory<unsigned char> memory;
    unsigned char const* source;
    u64 bytes;  // of an expert

    i32 find(i32 expert) const {
      for (std::size_t i = 0; i < slots.size(); ++i) {
        if (slots[i].expert == expert) {
          return static_cast<i32>(i);
        }
      }
      return -1;
    }
  };

  u32 fetch(layer_slots& layer, i32 expert, bool is_hint, cudaStream_t stream) {
    u32 victim = 0;
    for (u32 i = 1; i < layer.slots.size(); ++i) {
      victim = layer.slots[i].last < layer.slots[victim].last ? i : victim;
    }
    counts_.wasted += layer.slots[victim].is_hint ? 1 : 0;
    layer.slots[victim] = {expert, ++clock_, is_hint};
    check(cudaMemcpyAsync(layer.memory.data() + victim * layer.bytes,
                          layer.source + static_cast<u64>(expert) * layer.bytes, layer.bytes,
                          cudaMemcpyHostToDevice, stream),
          "an expert's copy");
    return victim;
  }

  /// The copies go behind those that this layer waits for.
  void look_ahead(u32 next) {
    check(cudaEventRecord(demanded_, stream_), "an event");
    check(cudaStreamWaitEvent(aside_, demanded_, 0), "an event");
    i32 const* const hints = d_.said(step_, next);
    for (u32 i = 0; i < width_; ++i) {
      if (hints[i] >= 0 && layers_[next].find(hints[i]) < 0) {
        (void)fetch(layers_[next], hints[i], true, aside_);
        counts_.hint_bytes += layers_[next].bytes;
      }
    }
    check(cudaEventRecord(hinted_, aside_), "an event");
  }

  decoder& d_;
  cudaStream_t stream_;
  u32 width_;
  cudaStream_t aside_ = nullptr;
  cudaEvent_t demanded_ = nullptr;
  cudaEvent_t hinted_ = nullptr;
  cuda::mapped_memory<i32> read_back_;
  cuda::mapped_memory<i32> there_;
  std::vector<layer_slots> layers_;
  mode_counts counts_;
  u64 clock_ = 0;
  u32 step_ = 0;
};

}  // namespace

std::unique_ptr<decode_mode> make_all_resident(decoder& d, cudaStream_t stream) {
  return std::make_unique<all_resident>(d, stream);
}
std::unique_ptr<decode_mode> make_common_practice(decoder& d, cudaStream_t stream,
                                                  pinned_experts const& experts, u32 width) {
  return std::make_unique<common_practice>(d, stream, experts, width);
}

}  // namespace gpu_bench
