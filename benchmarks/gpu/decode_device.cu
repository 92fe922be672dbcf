// SPDX-License-Identifier: Apache-2.0
// The library, device-directed: every step is decided and fetched inside one captured graph.

#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include <warmset/cuda.cuh>
#include <warmset/cuda/mapped_memory.hpp>
#include <warmset/gate/governor.hpp>
#include <warmset/table/bundles.hpp>

#include "decode_common.hpp"

namespace gpu_bench {
namespace {

/// What the pools have counted so far, as the last kernel of a graph writes it for the host: no step is read back.
struct told {
  unsigned long long demanded, hits, demand_bytes, hint_bytes, used, used_bytes, wasted, hint_loads;
};

/// The counters of one pool, and the bytes of its experts.
struct counted_pool {
  outcome const* counters;
  u64 expert_bytes;
};

__global__ void tell_kernel(counted_pool const* pools, u32 n, told* out) {
  __shared__ told sum;
  if (threadIdx.x == 0) {
    sum = {};
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
    outcome const& o = *pools[i].counters;
    u64 const bytes = pools[i].expert_bytes;
    u32 const demand = o.issued[static_cast<u32>(intent::demand)];
    u32 const hint = o.issued[static_cast<u32>(intent::speculative)];
    u32 const used = o[access_kind::first_use] + o.late_of_hint;
    atomicAdd(&sum.demanded, u64{o.demanded});
    atomicAdd(&sum.hits, u64{o[access_kind::hit]} + o[access_kind::first_use]);
    atomicAdd(&sum.demand_bytes, demand * bytes);
    atomicAdd(&sum.hint_bytes, hint * bytes);
    atomicAdd(&sum.used, u64{used});
    atomicAdd(&sum.used_bytes, used * bytes);
    atomicAdd(&sum.wasted, u64{o.evicted_unused});
    atomicAdd(&sum.hint_loads, u64{hint});
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    *out = sum;
    __threadfence_system();
  }
}

struct source final : cuda::mapped_source {
  explicit source(pinned_experts const& experts) : of(experts) {}
  unsigned char const* bank(layer_id layer, u32 bank) const override {
    return of.bank(layer, bank);
  }
  pinned_experts const& of;
};

/// Hints that evict what a demand would evict: whether they pay is the governor's affair.
template <class Score>
struct hinted : default_policy {
  using score = Score;
  using guard = warmset::guard::none;
  using predictor = predict::supplied;
};

template <class Policy>
class device_mode final : public look_ahead_mode {
 public:
  device_mode(decoder& d, cudaStream_t stream, pinned_experts const& experts, u64 link_bytes_per_us)
      : d_(d), stream_(stream), link_bytes_per_us_(link_bytes_per_us),
        beside_(cuda::branch::make()), told_(1) {
    auto const groups = d.m.model.groups();
    std::vector<u32> next(groups.size(), 0);
    std::vector<u32> of_group(groups.size(), 0);
    for (layer_geometry const& g : d.m.model.layers()) {
      of_group[group_of(groups, g.layer)] += slots_of(g, d.o.resident);
      expert_bytes_ = max_of(expert_bytes_, g.expert_bytes());
    }
    for (layer_geometry const& g : d.m.model.layers()) {
      u32 const group = group_of(groups, g.layer);
      u32 const n = slots_of(g, d.o.resident);
      sites_.push_back({static_cast<u32>(sites_.size()),
                        group,
                        next[group],
                        n,
                        of_group[group],
                        g.k,
                        {g.layer}});
      next[group] += n;
    }
    tables_ = empty_tables();
    pools_.emplace(d.m.model, sites_,
                   array_view<table<Policy> const>{tables_.data(), tables_.size()},
                   source{experts});
    std::vector<counted_pool> pools;
    for (u32 p = 0; p < sites_.size(); ++p) {
      pools.push_back({pools_->counters(p), d.m.model.layers()[p].expert_bytes()});
    }
    counted_ = cuda::device_memory<counted_pool>(pools.size());
    check(counted_.write(pools.data(), pools.size()).code, "addresses of counters");
  }

  void use(u32 width) override { width_ = width; }

  /// What is captured and loaded at first use is no part of any step. The governor begins anew as well.
  void restart() override {
    d_.restart();
    tables_ = empty_tables();
    check(pools_->take_over({tables_.data(), tables_.size()}, epoch).code, "taking a pool over");
    governor_.reset();
    hint_bytes_ = u64_max;
    demand_bytes_ = 0;
    step_us_ = 0;
    (void)graph_of(0);
    (void)graph_of(width_);
  }

  void step() override {
    auto const begin = std::chrono::steady_clock::now();
    bool const ahead = looks_ahead();
    graph_of(ahead ? width_ : 0).launch(stream_);
    check(cudaStreamSynchronize(stream_), "a step");
    step_us_ = us_since(begin);
    take_in();
  }

  mode_counts counted() override {
    for (u32 p = 0; p < sites_.size(); ++p) {
      cuda::step_fault fault{};
      check(pools_->fault(p, fault).code, "a pool's fault");
      if (fault != cuda::step_fault::none) {
        throw std::runtime_error("a step of pool " + std::to_string(p) + " left a fault");
      }
    }
    return {last_.demanded,   last_.hits,       last_.demand_bytes,
            last_.hint_bytes, last_.used_bytes, last_.wasted};
  }
  std::string note() override {
    return width_ == 0 ? std::string()
                       : "governor " + std::string(gate::name_of(governor_.state()));
  }

 private:
  static constexpr u32 epoch = 1;

  template <class Groups>
  static u32 group_of(Groups const& groups, layer_id layer) {
    for (u32 i = 0; i < groups.size(); ++i) {
      for (layer_id each : groups[i].layers) {
        if (each == layer) {
          return i;
        }
      }
    }
    throw std::runtime_error("a layer of no group");
  }

  std::vector<table<Policy>> empty_tables() const {
    std::vector<table<Policy>> tables;
    for (u32 l = 0; l < sites_.size(); ++l) {
      layer_geometry const& g = d_.m.model.layers()[l];
      u32 const n = sites_[l].n_slots;
      tables.emplace_back(std::vector<layer_geometry>{g}, pool_size{n, n},
                          tuning{.half_life = 64,
                                 .speculative_slots = speculates<Policy> ? slots_for_hints(n) : 0,
                                 .scratch_slots = g.k});
    }
    return tables;
  }

  graph const& graph_of(u32 width) {
    auto at = graphs_.find(width);
    if (at == graphs_.end()) {
      at = graphs_.emplace(width, graph(stream_, [&](cudaStream_t s) { record(s, width); })).first;
    }
    return at->second;
  }

  expert_banks banks_of(u32 layer) const {
    expert_banks b{};
    for (u64 bytes : d_.m.model.layers()[layer].bank_bytes) {
      b.base[b.n] = pools_->bank(sites_[layer].group, b.n);
      b.bytes[b.n++] = bytes;
    }
    return b;
  }

  /// Hints of the next layer are planned and fetched behind this layer's misses, beside its experts and the next layer's
  /// dense part: the link is idle there.
  void record(cudaStream_t s, u32 width) {
    u32 const n = d_.m.n_layers();
    for (u32 l = 0; l < n; ++l) {
      d_.record_dense(s, l);
      check(beside_.join(s).code, "a join");
      check(pools_->record(s, d_.m.model.layers()[l].layer, d_.ids_of(l), d_.m.k, d_.where_of(l))
                .code,
            "a step");
      if constexpr (speculates<Policy>) {
        if (width != 0 && l + 1 < n) {
          check(beside_.fork(s).code, "a branch");
          d_.record_hints(beside_.stream(), l + 1, width);
          check(pools_
                    ->advise(beside_.stream(), d_.m.model.layers()[l + 1].layer, d_.hints_of(l + 1),
                             width)
                    .code,
                "hints");
        }
      }
      d_.record_experts(s, banks_of(l), d_.where_of(l));
    }
    check(pools_->join(s).code, "a join");
    tell_kernel<<<1, 128, 0, s>>>(counted_.data(), n, told_.device_data());
    d_.record_end(s);
  }

  /// Asks the governor for each layer that may have hints, and tells the graph how much a batch may move.
  bool looks_ahead() {
    if (width_ == 0) {
      return false;
    }
    gate::permission may{0, reason::none};
    for (u32 l = 1; l < d_.m.n_layers(); ++l) {
      may = governor_.ask(phase::decode, slack_bytes(), expert_bytes_);
    }
    u64 const n = min_of(may.bytes, width_ * expert_bytes_) / expert_bytes_;
    if (n != 0 && n * expert_bytes_ != hint_bytes_) {
      hint_bytes_ = n * expert_bytes_;
      check(pools_->set({epoch, phase::decode, 0, step_context::no_token, hint_bytes_}).code,
            "telling the graphs");
    }
    return n != 0;
  }

  /// What the link carries during a layer beyond what demand moved there, after the last step.
  u64 slack_bytes() const {
    u64 const carries = static_cast<u64>(step_us_) * link_bytes_per_us_;
    return saturating_sub(carries, demand_bytes_) / d_.m.n_layers();
  }

  void take_in() {
    told const now = *told_.data();
    governor_.issued(now.hint_bytes - last_.hint_bytes);
    u32 const used = static_cast<u32>(now.used - last_.used);
    u32 const wasted = static_cast<u32>(now.wasted - last_.wasted);
    if ((used | wasted) != 0) {
      governor_.judge(used, wasted, 0);
    }
    demand_bytes_ = now.demand_bytes - last_.demand_bytes;
    last_ = now;
  }

  decoder& d_;
  cudaStream_t stream_;
  u64 link_bytes_per_us_;
  u64 expert_bytes_ = 1;
  std::vector<pool_site> sites_;
  std::vector<table<Policy>> tables_;
  std::optional<cuda::device_pools<Policy>> pools_;
  cuda::branch beside_;
  cuda::device_memory<counted_pool> counted_;
  cuda::mapped_memory<told> told_;
  std::map<u32, graph> graphs_;  // by width
  gate::governor governor_;
  told last_{};
  u32 width_ = 0;
  u64 hint_bytes_ = u64_max;
  u64 demand_bytes_ = 0;
  double step_us_ = 0;
};

template <class Score>
std::unique_ptr<decode_mode> make(decoder& d, cudaStream_t stream, pinned_experts const& experts) {
  return std::make_unique<device_mode<bundles::of<Score>>>(d, stream, experts, 0);
}

}  // namespace

std::unique_ptr<decode_mode> make_device_directed(decoder& d, cudaStream_t stream,
                                                  pinned_experts const& experts,
                                                  device_bundle bundle) {
  switch (bundle) {
  case device_bundle::lru:
    return make<score::lru>(d, stream, experts);
  case device_bundle::decayed_count:
    return make<score::decayed_count>(d, stream, experts);
  case device_bundle::successor:
    break;
  }
  return make<score::successor<>>(d, stream, experts);
}

std::unique_ptr<look_ahead_mode> make_look_ahead(decoder& d, cudaStream_t stream,
                                                 pinned_experts const& experts,
                                                 link_rates const& rates) {
  return std::make_unique<device_mode<hinted<score::decayed_count>>>(
      d, stream, experts, static_cast<u64>(rates.gather));
}

}  // namespace gpu_bench
