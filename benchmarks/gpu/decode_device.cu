// SPDX-License-Identifier: Apache-2.0
// The library, device-directed: every step is decided and fetched inside one captured graph.

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include <warmset/cuda.cuh>
#include <warmset/cuda/mapped_memory.hpp>
#include <warmset/gate/hint_ledger.hpp>
#include <warmset/gate/pacing.hpp>
#include <warmset/table/bundles.hpp>

#include "decode_common.hpp"

namespace gpu_bench {
namespace {

/// What the pools have counted so far, as the last kernel of a graph writes it for the host: no step is read back.
struct told {
  unsigned long long demanded, hits, demand_bytes, hint_bytes, used_bytes, wasted;
};

/// The counters of one pool in decode, the phase of all launches here, and the bytes of its experts.
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
    atomicAdd(&sum.used_bytes, used * bytes);
    atomicAdd(&sum.wasted, u64{o.evicted_unused});
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    *out = sum;
    __threadfence_system();
  }
}

/// What the last step of a layer fetched, and its last batch of hints.
struct told_orders {
  u32 n_loads;
  u32 n_copies;
  cuda::fetch_order loads[most_hints];
  cuda::fetch_order copies[most_hints];
};

template <u32 MaxExperts>
struct queues {
  cuda::fetch_queue<MaxExperts> const* loads;
  cuda::fetch_queue<MaxExperts> const* copies;
};

template <u32 MaxExperts>
__device__ u32 list(cuda::fetch_queue<MaxExperts> const& from, cuda::fetch_order* to) {
  u32 const n = min_of(from.n, most_hints);
  for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
    to[i] = from.order[i];
  }
  return n;
}

/// A block for each layer.
template <u32 MaxExperts>
__global__ void orders_kernel(queues<MaxExperts> const* of, told_orders* out) {
  told_orders& to = out[blockIdx.x];
  u32 const n_loads = list(*of[blockIdx.x].loads, to.loads);
  u32 const n_copies = list(*of[blockIdx.x].copies, to.copies);
  if (threadIdx.x == 0) {
    to.n_loads = n_loads;
    to.n_copies = n_copies;
  }
  __threadfence_system();
}

/// Microseconds of a layer that its branch costs and that move nothing: three more nodes, two more joins, and a decision that
/// a step without misses does not hide.
constexpr double branch_us = 12;

/// What the link carries while a layer computes, less what its branch costs.
u64 slack_of(double layer_us, double link_bytes_per_us) {
  return static_cast<u64>(std::max(0.0, layer_us - branch_us) * link_bytes_per_us);
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
  /// @param slack_bytes  what the link carries beside a layer's computing
  device_mode(decoder& d, cudaStream_t stream, pinned_experts const& experts, u64 slack_bytes)
      : d_(d), stream_(stream), slack_bytes_(slack_bytes), beside_(cuda::branch::make()), told_(1),
        now_(1) {
    if (d.m.k > most_hints) {
      throw std::runtime_error("a layer with more than 16 demanded experts is not told");
    }
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
      pools.push_back({pools_->counters(p) + static_cast<u32>(phase::decode),
                       d.m.model.layers()[p].expert_bytes()});
    }
    counted_ = cuda::device_memory<counted_pool>(pools.size());
    check(counted_.write(pools.data(), pools.size()).code, "addresses of counters");
    if constexpr (speculates<Policy>) {
      std::vector<queues<Policy::max_experts>> fetched;
      for (u32 p = 0; p < sites_.size(); ++p) {
        fetched.push_back(
            {pools_->fetched(p, intent::demand), pools_->fetched(p, intent::speculative)});
      }
      fetched_ = cuda::device_memory<queues<Policy::max_experts>>(fetched.size());
      check(fetched_.write(fetched.data(), fetched.size()).code, "addresses of orders");
      orders_ = cuda::mapped_memory<told_orders>(fetched.size());
    }
  }

  void use(u32 width) override {
    judge_last();
    width_ = width;
  }

  /// What is captured and loaded at first use is no part of any step. What the governor and the race of the width have learned
  /// they keep: a trial is longer than the steps of one round.
  void restart() override {
    d_.restart();
    tables_ = empty_tables();
    check(pools_->take_over({tables_.data(), tables_.size()}, epoch).code, "taking a pool over");
    pace().interrupt();
    std::vector<u32> n_slots;
    for (pool_site const& site : sites_) {
      n_slots.push_back(site.n_slots + site.n_scratch);
    }
    ledger_.open(d_.m.model, n_slots);
    slot_of_.assign(sites_.size() * u64{n_experts()}, 0);
    hint_bytes_ = u64_max;
    judged_.clear();
    since_restart_ = 0;
    (void)graph_of(false);
    if (width_ != 0) {
      (void)graph_of(true);
    }
  }

  void step() override {
    auto const begin = std::chrono::steady_clock::now();
    bool const ahead = looks_ahead();
    graph_of(ahead).launch(stream_);
    judge_last();  // beside the device
    check(cudaStreamSynchronize(stream_), "a step");
    take_in(ahead);
    pace().took(static_cast<u64>(us_since(begin) * 1000));
  }

  mode_counts counted() override {
    for (u32 p = 0; p < sites_.size(); ++p) {
      cuda::step_fault fault{};
      check(pools_->fault(p, fault).code, "a pool's fault");
      if (fault != cuda::step_fault::none) {
        throw std::runtime_error("a step of pool " + std::to_string(p) + " left a fault");
      }
    }
    u64 const demanded = n_steps_ * d_.m.n_layers() * d_.m.k;
    if (last_.demanded != demanded) {
      throw std::runtime_error(std::to_string(last_.demanded) + " experts are counted of " +
                               std::to_string(demanded) + " that were demanded");
    }
    return {last_.demanded,   last_.hits,       last_.demand_bytes,
            last_.hint_bytes, last_.used_bytes, last_.wasted};
  }
  std::string note() override {
    if (width_ == 0) {
      return {};
    }
    constexpr char const* verdicts[] = {"no trial yet", "faster in its last trial", "slower in its last trial"};
    return std::string("governor ") + gate::name_of(pace().bytes().state()) + ", " +
           verdicts[static_cast<u32>(pace().clock().verdict())];
  }

 private:
  static constexpr u32 epoch = 1;

  layer_id layer(u32 i) const { return d_.m.model.layers()[i].layer; }
  u32 n_experts() const { return d_.m.model.layers()[0].n_experts; }

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

  /// Of the width in use, with branches or without.
  graph const& graph_of(bool ahead) {
    std::pair<u32, bool> const key{width_, ahead};
    auto at = graphs_.find(key);
    if (at == graphs_.end()) {
      at = graphs_.emplace(key, graph(stream_, [&](cudaStream_t s) { record(s, ahead); })).first;
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

  /// Hints of the next layer are planned beside this layer's misses, and fetched behind them, beside its experts and the next
  /// layer's dense part: the link is idle there.
  void record(cudaStream_t s, bool ahead) {
    u32 const n = d_.m.n_layers();
    for (u32 l = 0; l < n; ++l) {
      d_.record_dense(s, l);
      check(beside_.join(s).code, "a join");
      bool const hints = ahead && l + 1 < n;
      if constexpr (speculates<Policy>) {
        if (hints) {
          check(beside_.fork(s).code, "a branch");
          d_.record_hints(beside_.stream(), l + 1, width_);
          check(pools_->plan_hints(beside_.stream(), layer(l + 1), d_.hints_of(l + 1), width_).code, "hints");
        }
      }
      check(pools_->record(s, layer(l), d_.ids_of(l), d_.m.k, d_.where_of(l)).code, "a step");
      if constexpr (speculates<Policy>) {
        if (hints) {
          check(beside_.fork(s).code, "a branch");
          check(pools_->fetch_hints(beside_.stream(), layer(l + 1)).code, "hints");
        }
      }
      d_.record_experts(s, banks_of(l), d_.where_of(l));
    }
    check(pools_->join(s).code, "a join");
    tell_kernel<<<1, 128, 0, s>>>(counted_.data(), n, told_.device_data());
    if constexpr (speculates<Policy>) {
      if (width_ != 0) {  // what the ledger reads; without look-ahead there is none
        orders_kernel<<<n, 32, 0, s>>>(fetched_.data(), orders_.device_data());
      }
    }
    d_.record_end(s);
  }

  /// Who says when to look ahead with hints of one width.
  gate::pacing& pace() { return paces_[width_]; }

  /// Asks the governor for each layer that may have hints, whether looking ahead pays, and tells the graph how much a batch may
  /// move.
  bool looks_ahead() {
    if (width_ == 0) {
      return false;
    }
    gate::pacing& p = pace();
    gate::permission may{0, reason::none};
    for (u32 l = 1; l < d_.m.n_layers(); ++l) {
      may = p.bytes().ask(phase::decode, slack_bytes_, expert_bytes_);
    }
    u64 const n = p.budget(may.bytes / expert_bytes_, width_);
    bool const ahead = p.ask(n != 0);
    if (ahead && n * expert_bytes_ != hint_bytes_) {
      hint_bytes_ = n * expert_bytes_;
      *now_.data() = {epoch, phase::decode, 0, step_context::no_token, hint_bytes_};
      check(pools_->set(stream_, now_.data()).code, "telling the graphs");
    }
    return ahead;
  }

  void take_in(bool ahead) {
    told const now = *told_.data();
    if (width_ != 0) {
      pace().bytes().issued(now.hint_bytes - last_.hint_bytes);
      judged_.assign(orders_.data(), orders_.data() + d_.m.n_layers());
      judged_ahead_ = ahead;
      judged_in_trial_ = pace().is_in_trial();
    }
    last_ = now;
    ++since_restart_;
    ++n_steps_;
  }

  /// Judges the hints of the last step, whose orders the next one overwrites.
  void judge_last() {
    for (u32 l = 0; l < judged_.size(); ++l) {
      judge(l);
    }
    judged_.clear();
  }

  static bool names(std::span<cuda::fetch_order const> of, u32 expert) {
    return std::any_of(of.begin(), of.end(), [&](auto const& o) { return o.expert == expert; });
  }

  /// Judges the hints of a layer's step, which has been planned: those that went out in it.
  void judge(u32 l) {
    told_orders const& told = judged_[l];
    std::span<cuda::fetch_order const> const copies(told.copies,
                                                    judged_ahead_ && l != 0 ? told.n_copies : 0);
    std::span<cuda::fetch_order const> const loads(told.loads, told.n_loads);
    u32* const slot_of = slot_of_.data() + u64{l} * n_experts();
    for (cuda::fetch_order const& o : copies) {
      slot_of[o.expert] = o.slot;
    }
    u32 const step = since_restart_;
    gate::verdict const displaced = ledger_.issue(l, l, step, copies);
    for (cuda::fetch_order const& o : loads) {
      slot_of[o.expert] = o.slot;
    }
    i32 const* const ids = d_.m.of((since_restart_ - 1) % d_.m.n_steps, l);
    experts_.assign(ids, ids + d_.m.k);
    how_.clear();
    slots_.clear();
    for (u32 e : experts_) {
      // of what is resident the ledger knows itself whether a hint has brought it
      how_.push_back(names(loads, e) ? access_kind::load : access_kind::first_use);
      slots_.push_back(slot_of[e]);
    }
    gate::verdict const planned = ledger_.plan(l, l, step, experts_, how_, slots_, loads);
    u32 const wasted = displaced.wasted + planned.wasted;
    pace().judge(planned.used, wasted, planned.regretted, judged_in_trial_);
  }

  decoder& d_;
  cudaStream_t stream_;
  u64 slack_bytes_;  // of a layer
  u64 expert_bytes_ = 1;
  std::vector<pool_site> sites_;
  std::vector<table<Policy>> tables_;
  std::optional<cuda::device_pools<Policy>> pools_;
  cuda::branch beside_;
  cuda::device_memory<counted_pool> counted_;
  cuda::mapped_memory<told> told_;
  cuda::device_memory<queues<Policy::max_experts>> fetched_;
  cuda::mapped_memory<told_orders> orders_;       // by layer
  std::vector<told_orders> judged_;               // of the last step; none once they are judged
  bool judged_ahead_ = false;                     // whether that step looked ahead
  bool judged_in_trial_ = false;                  // and was one of a trial
  cuda::mapped_memory<cuda::launch_state> now_;   // what the graphs were told last
  std::map<std::pair<u32, bool>, graph> graphs_;  // by width and whether it looks ahead
  std::map<u32, gate::pacing> paces_;  // by width
  gate::hint_ledger ledger_;
  std::vector<u32> slot_of_;  // [layer][expert]: where it has been brought last
  std::vector<u32> experts_;
  std::vector<access_kind> how_;
  std::vector<u32> slots_;
  told last_{};
  u32 width_ = 0;
  u64 hint_bytes_ = u64_max;
  u32 since_restart_ = 0;  // steps
  u64 n_steps_ = 0;        // of all arms
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
                                                 link_rates const& rates, double resident_us) {
  return std::make_unique<device_mode<hinted<score::decayed_count>>>(
      d, stream, experts, slack_of(resident_us / d.m.n_layers(), rates.gather));
}

}  // namespace gpu_bench
