// SPDX-License-Identifier: Apache-2.0
// The library, host-directed: kernels of a captured graph publish the ids of each layer and wait; a worker decides and
// copies.

#include <stdexcept>

#include <warmset/cache.hpp>
#include <warmset/cuda.hpp>
#include <warmset/signal/worker.hpp>
#include <warmset/table/bundles.hpp>

#include "decode_common.hpp"
#include "decode_directed.hpp"

namespace gpu_bench {
namespace {

struct unhinted : bundles::of<score::decayed_count> {};
/// Hints that evict what a demand would evict, as many as come.
struct hinted : unhinted {
  using guard = warmset::guard::none;
  using predictor = predict::supplied;
};

template <class Policy>
class host_directed_mode final : public decode_mode {
 public:
  host_directed_mode(decoder& d, cudaStream_t stream, pinned_experts const& experts, u32 width)
      : d_(d), stream_(stream), spans_(experts.spans()),
        channel_({.demands = 64, .max_ids = max_of(most_hints, d.m.k)}), view_(channel_.view()),
        worker_(
            array_view<signal::channel_view const>(&view_, 1), {}, d.m.model,
            budget::of_slots(slots_of(d.m.model.layers()[0], d.o.resident)),
            tuning{.half_life = 64,
                   .speculative_slots =
                       width == 0 ? 0
                                  : slots_for_hints(slots_of(d.m.model.layers()[0], d.o.resident)),
                   .scratch_slots = d.m.k},
            cuda::copy_engine{{.own_bytes = cuda::own_scratch_bytes(d.m.model, d.m.k)}, spans_}),
        directed_(channel_, d.m.model, engine(), spans_),
        ready_(stream, [&](cudaStream_t s) { record(s, width); }) {}
  ~host_directed_mode() override { worker_.stop(); }

  /// Once: its cache is empty when it is made.
  void restart() override {
    d_.restart();
    if (!worker_.start()) {
      throw std::runtime_error("the worker has been started before");
    }
  }
  void step() override {
    ready_.launch(stream_);
    check(cudaStreamSynchronize(stream_), "a step");
  }
  mode_counts counted() override {
    mode_counts c;
    auto const read = [&](auto& cache) {
      for (u32 l = 0; l < d_.m.n_layers(); ++l) {
        auto const layer = cache.observer().total(l, phase::decode);
        c.lookups += layer.demanded.value;
        c.hits += layer.hits().value;
        c.missed_bytes +=
            layer.bytes[static_cast<u32>(intent::demand)].value + layer.scratch_bytes.value;
        c.hint_bytes += layer.bytes[static_cast<u32>(intent::speculative)].value;
        c.used_bytes += layer.used().value * d_.m.model.layers()[l].expert_bytes();
        c.wasted += layer.evicted_unused.value;
      }
    };
    if (!worker_.with(read)) {
      throw std::runtime_error("the worker does not run");
    }
    return c;
  }
  void warmed_up() override { warm_ = directed_.counted(); }
  /// Of the steps since warm-up.
  std::string note() override {
    cuda::directed_tally const t = directed_.counted();
    if (t.nobody != 0) {
      throw std::runtime_error(std::to_string(t.nobody) + " steps were served by nobody");
    }
    u64 const waits = max_of(t.from_slots - warm_.from_slots, u64{1});
    return std::to_string(t.from_source - warm_.from_source) + " steps past their deadline, " +
           std::to_string((t.round_trip - warm_.round_trip) / waits) + " ns from ids to bytes";
  }

 private:
  cuda::copy_engine& engine() { return worker_.cache().backend(); }

  u32 group_of(layer_id layer) {
    for (pool_site const& site : engine().sites()) {
      if (site.layers.front() == layer) {
        return site.group;
      }
    }
    throw std::runtime_error("a layer of no pool");
  }

  void record(cudaStream_t s, u32 width) {
    u32 const n = d_.m.n_layers();
    for (u32 l = 0; l < n; ++l) {
      layer_geometry const& g = d_.m.model.layers()[l];
      expert_banks banks{};
      for (u64 bytes : g.bank_bytes) {
        banks.base[banks.n] = engine().bank(group_of(g.layer), banks.n);
        banks.bytes[banks.n++] = bytes;
      }
      d_.record_dense(s, l);
      directed_.ask(s, g.layer, d_.ids_of(l), d_.m.k, d_.where_of(l));
      if (width != 0 && l + 1 < n) {  // behind this layer's misses, beside what reads them
        d_.record_hints(s, l + 1, width);
        directed_.hint(s, d_.m.model.layers()[l + 1].layer, d_.hints_of(l + 1), width);
      }
      d_.record_experts(s, banks, d_.where_of(l));
      directed_.finish(s, g.layer);
    }
    d_.record_end(s);
  }

  decoder& d_;
  cudaStream_t stream_;
  move::span_source spans_;
  cuda::mapped_channel channel_;
  signal::channel_view view_;
  signal::worker<cache<Policy, cuda::copy_engine>> worker_;
  directed_kernels directed_;
  cuda::directed_tally warm_{};  // what was counted in warm-up
  graph ready_;
};

}  // namespace

std::unique_ptr<decode_mode> make_host_directed(decoder& d, cudaStream_t stream,
                                                pinned_experts const& experts, u32 width) {
  if (width == 0) {
    return std::make_unique<host_directed_mode<unhinted>>(d, stream, experts, 0);
  }
  return std::make_unique<host_directed_mode<hinted>>(d, stream, experts, width);
}

}  // namespace gpu_bench
