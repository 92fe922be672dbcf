// SPDX-License-Identifier: Apache-2.0
// A decode loop with the shapes of real models and the routes of real traces: what serving experts from a pool costs, mode
// beside mode in one run. See README.md beside this file.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>

#include <warmset/cuda.cuh>
#include <warmset/table/bundles.hpp>

#include "decode.hpp"
#include "routes.hpp"
#include "support.cuh"

namespace gpu_bench {
namespace {

using namespace warmset;

struct sixteen {
  u32 word[4];
};

__device__ u32 read_all(unsigned char const* from, u64 bytes, u32 first, u32 stride) {
  auto const* const in = reinterpret_cast<sixteen const*>(from);
  u64 const n = bytes / sizeof(sixteen);
  u32 sum = 0;
  for (u64 i = first; i < n; i += stride) {
    sixteen const x = in[i];
    sum ^= x.word[0] ^ x.word[1] ^ x.word[2] ^ x.word[3];
  }
  return sum;
}

/// Stands for a layer's attention and router: reads its dense weights, and its last thread puts the layer's routes of
/// this step where the cache will look for them.
__global__ void dense_kernel(unsigned char const* weights, u64 bytes, i32 const* routes, u32 const* step, u32 n_steps,
                             u64 step_stride, u32 k, i32* ids, u32* sink) {
  u32 const at = blockIdx.x * blockDim.x + threadIdx.x;
  u32 const sum = read_all(weights, bytes, at, gridDim.x * blockDim.x);
  if (sum == 0x9E37'79B9u) {
    atomicXor(sink, sum);  // so that the bytes are read
  }
  if (at < k) {
    ids[at] = routes[(*step % n_steps) * step_stride + at];
  }
}

__global__ void next_step_kernel(u32* step) {
  ++*step;
}

constexpr u32 most_banks = 3;

struct expert_banks {
  unsigned char const* base[most_banks];
  u64 bytes[most_banks];
  u32 n;
};

/// Stands for the experts' matrix products: reads every byte of the k demanded experts. blockIdx.y is the expert's rank.
__global__ void experts_kernel(expert_banks banks, i32 const* where, u32* sink) {
  i32 const at = where[blockIdx.y];
  if (at < 0) {
    return;
  }
  u32 sum = 0;
  for (u32 bank = 0; bank < banks.n; ++bank) {
    sum ^= read_all(banks.base[bank] + static_cast<u64>(at) * banks.bytes[bank], banks.bytes[bank],
                    blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
  }
  if (sum == 0x9E37'79B9u) {
    atomicXor(sink, sum);
  }
}

/// The experts in mapped pinned memory. Layers share it: what the link carries is the same, and no model fills a
/// machine's memory.
class pinned_source : public cuda::mapped_source {
 public:
  pinned_source(geometry const& model, unsigned char* memory, u64 bytes) : model_(model) {
    void* device = nullptr;
    check(cudaHostGetDevicePointer(&device, memory, 0), "mapped memory");
    u64 at = 0;
    for (layer_geometry const& layer : model_.layers()) {
      u64 const of_layer = layer.n_experts * layer.expert_bytes();
      if (of_layer > bytes) {
        throw std::runtime_error("one layer's experts need " + std::to_string(of_layer) + " bytes of pinned memory");
      }
      if (at + of_layer > bytes) {
        at = 0;
      }
      first_.push_back(static_cast<unsigned char const*>(device) + at);
      at += of_layer;
    }
  }
  unsigned char const* bank(layer_id layer, u32 bank) const override {
    std::size_t i = 0;
    while (model_.layers()[i].layer.value != layer.value) {
      ++i;
    }
    layer_geometry const& g = model_.layers()[i];
    u64 at = 0;
    for (u32 b = 0; b < bank; ++b) {
      at += g.n_experts * g.bank_bytes[b];
    }
    return first_[i] + at;
  }

 private:
  geometry model_;
  std::vector<unsigned char const*> first_;
};

/// What every mode decodes with.
class decoder {
 public:
  decoder(model_routes const& m, decode_options const& o)
      : m(m),
        o(o),
        routes(m.ids.size()),
        ids(m.n_layers() * std::size_t{m.k}),
        where(ids.size()),
        step(1),
        sink(1),
        dense(static_cast<std::size_t>(o.dense_bytes) * 4) {  // four layers' worth, more than a cache holds
    check(routes.write(m.ids.data(), m.ids.size()).code, "routes");
  }

  void restart(u32 first = 0) { check(step.write(&first, 1).code, "the step"); }

  /// The dense part of a layer, which ends with its routes in `ids`.
  void record_dense(cudaStream_t s, u32 layer) {
    dense_kernel<<<132, 256, 0, s>>>(dense.data() + (layer % 4) * o.dense_bytes, o.dense_bytes,
                                     routes.data() + std::size_t{layer} * m.k, step.data(), m.n_steps,
                                     u64{m.n_layers()} * m.k, m.k, ids.data() + std::size_t{layer} * m.k, sink.data());
  }
  void record_experts(cudaStream_t s, expert_banks const& banks, i32 const* at) {
    experts_kernel<<<dim3(max_of(1u, 264 / m.k), m.k), 256, 0, s>>>(banks, at, sink.data());
  }
  void record_end(cudaStream_t s) { next_step_kernel<<<1, 1, 0, s>>>(step.data()); }

  model_routes const& m;
  decode_options const& o;
  cuda::device_memory<i32> routes;
  cuda::device_memory<i32> ids;
  cuda::device_memory<i32> where;
  cuda::device_memory<u32> step;
  cuda::device_memory<u32> sink;
  cuda::device_memory<unsigned char> dense;
};

/// What one mode came to: microseconds of each step, and what it moved.
struct mode_result {
  std::string name;
  std::vector<double> times;
  u64 missed_bytes = 0;
  u64 hits = 0;
  u64 lookups = 0;

  double mean() const {
    double sum = 0;
    for (double t : times) {
      sum += t;
    }
    return sum / static_cast<double>(times.size());
  }
};

u32 slots_of(layer_geometry const& layer, double resident) {
  return max_of(layer.k, static_cast<u32>(std::lround(layer.n_experts * resident)));
}

// ---- all resident ----------------------------------------------------------------------------------------------

mode_result all_resident(decoder& d, timer const& t) {
  mode_result r{"all resident", {}, 0, 0, 0};
  std::vector<cuda::device_memory<unsigned char>> memory;
  std::vector<expert_banks> banks;
  for (layer_geometry const& layer : d.m.model.layers()) {
    memory.emplace_back(static_cast<std::size_t>(layer.n_experts * layer.expert_bytes()));
    expert_banks b{};
    u64 at = 0;
    for (u64 bytes : layer.bank_bytes) {
      b.base[b.n] = memory.back().data() + at;
      b.bytes[b.n++] = bytes;
      at += layer.n_experts * bytes;
    }
    banks.push_back(b);
  }
  graph const g(t.stream(), [&](cudaStream_t s) {
    for (u32 l = 0; l < d.m.n_layers(); ++l) {
      d.record_dense(s, l);
      d.record_experts(s, banks[l], d.ids.data() + std::size_t{l} * d.m.k);
    }
    d.record_end(s);
  });
  d.restart();
  for (u32 i = 0; i < d.m.n_steps; ++i) {
    double const us = t.microseconds([&] { g.launch(t.stream()); });
    if (i >= d.o.warm_up) {
      r.times.push_back(us);
    }
  }
  return r;
}

// ---- what engines do without the library -----------------------------------------------------------------------

mode_result common_practice(decoder& d, timer const& t, unsigned char* pinned, u64 pinned_bytes) {
  mode_result r{"common practice: read-back, linear LRU, a copy per miss", {}, 0, 0, 0};
  struct layer_state {
    std::vector<i32> expert;
    std::vector<u64> last;
    cuda::device_memory<unsigned char> slots;
    unsigned char const* source;
  };
  std::vector<layer_state> layers;
  u64 at = 0;
  for (layer_geometry const& g : d.m.model.layers()) {
    u64 const bytes = g.n_experts * g.expert_bytes();
    if (at + bytes > pinned_bytes) {
      at = 0;
    }
    u32 const n = slots_of(g, d.o.resident);
    layers.push_back({std::vector<i32>(n, -1), std::vector<u64>(n, 0),
                      cuda::device_memory<unsigned char>(static_cast<std::size_t>(n * g.expert_bytes())), pinned + at});
    at += bytes;
  }
  i32* back = nullptr;
  i32* there = nullptr;
  check(cudaHostAlloc(reinterpret_cast<void**>(&back), d.m.k * sizeof(i32), cudaHostAllocDefault), "pinned memory");
  check(cudaHostAlloc(reinterpret_cast<void**>(&there), d.ids.bytes(), cudaHostAllocDefault), "pinned memory");
  u64 clock = 0;
  d.restart();
  cudaStream_t const s = t.stream();
  for (u32 step = 0; step < d.m.n_steps; ++step) {
    bool const counts = step >= d.o.warm_up;
    double const us = t.microseconds([&] {
      for (u32 l = 0; l < d.m.n_layers(); ++l) {
        layer_geometry const& g = d.m.model.layers()[l];
        layer_state& state = layers[l];
        d.record_dense(s, l);
        check(cudaMemcpyAsync(back, d.ids.data() + std::size_t{l} * d.m.k, d.m.k * sizeof(i32), cudaMemcpyDeviceToHost, s),
              "a read-back");
        check(cudaStreamSynchronize(s), "a read-back");
        i32* const slot_of = there + std::size_t{l} * d.m.k;
        for (u32 i = 0; i < d.m.k; ++i) {  // hits first, so that none of them is a victim
          slot_of[i] = -1;
          for (u32 slot = 0; slot < state.expert.size(); ++slot) {
            if (state.expert[slot] == back[i]) {
              slot_of[i] = static_cast<i32>(slot);
              state.last[slot] = ++clock;
            }
          }
        }
        for (u32 i = 0; i < d.m.k; ++i) {
          r.hits += counts && slot_of[i] >= 0 ? 1 : 0;
          r.lookups += counts ? 1 : 0;
          if (slot_of[i] >= 0) {
            continue;
          }
          u32 victim = 0;
          for (u32 slot = 1; slot < state.expert.size(); ++slot) {
            victim = state.last[slot] < state.last[victim] ? slot : victim;
          }
          state.expert[victim] = back[i];
          state.last[victim] = ++clock;
          slot_of[i] = static_cast<i32>(victim);
          u64 const bytes = g.expert_bytes();
          check(cudaMemcpyAsync(state.slots.data() + victim * bytes, state.source + static_cast<u64>(back[i]) * bytes,
                                bytes, cudaMemcpyHostToDevice, s),
                "an expert's copy");
          r.missed_bytes += counts ? bytes : 0;
        }
        i32* const where = d.where.data() + std::size_t{l} * d.m.k;
        check(cudaMemcpyAsync(where, slot_of, d.m.k * sizeof(i32), cudaMemcpyHostToDevice, s), "slots");
        d.record_experts(s, {{state.slots.data()}, {g.expert_bytes()}, 1}, where);
      }
      d.record_end(s);
    });
    if (counts) {
      r.times.push_back(us);
    }
  }
  check(cudaFreeHost(back), "pinned memory");
  check(cudaFreeHost(there), "pinned memory");
  return r;
}

// ---- the library, device-directed ------------------------------------------------------------------------------

template <class Policy>
class device_mode {
 public:
  device_mode(decoder& d, pinned_source const& source) : d_(d) {
    auto const groups = d.m.model.groups();
    std::vector<u32> next(groups.size(), 0);
    std::vector<u32> of_group(groups.size(), 0);
    for (layer_geometry const& g : d.m.model.layers()) {
      of_group[group_of(groups, g.layer)] += slots_of(g, d.o.resident);
    }
    for (layer_geometry const& g : d.m.model.layers()) {
      u32 const group = group_of(groups, g.layer);
      u32 const n = slots_of(g, d.o.resident);
      sites_.push_back({static_cast<u32>(sites_.size()), group, next[group], n, of_group[group], g.k, {g.layer}});
      next[group] += n;
      tables_.emplace_back(std::vector<layer_geometry>{g}, pool_size{n, n}, tuning{.half_life = 64, .scratch_slots = g.k});
    }
    pools_.emplace(d.m.model, sites_, array_view<table<Policy> const>{tables_.data(), tables_.size()}, source);
    check(pools_->take_over({tables_.data(), tables_.size()}, 1).code, "taking a pool over");
  }

  expert_banks banks_of(u32 layer) const {
    expert_banks b{};
    for (u64 bytes : d_.m.model.layers()[layer].bank_bytes) {
      b.base[b.n] = pools_->bank(sites_[layer].group, b.n);
      b.bytes[b.n++] = bytes;
    }
    return b;
  }

  void record(cudaStream_t s) {
    for (u32 l = 0; l < d_.m.n_layers(); ++l) {
      i32 const* const ids = d_.ids.data() + std::size_t{l} * d_.m.k;
      i32* const where = d_.where.data() + std::size_t{l} * d_.m.k;
      d_.record_dense(s, l);
      check(pools_->record(s, d_.m.model.layers()[l].layer, ids, d_.m.k, where).code, "a step");
      d_.record_experts(s, banks_of(l), where);
    }
    check(pools_->join(s).code, "a join");
    d_.record_end(s);
  }

  mode_result run(timer const& t, char const* name) {
    mode_result r{name, {}, 0, 0, 0};
    graph const g(t.stream(), [&](cudaStream_t s) { record(s); });
    d_.restart();
    std::vector<outcome> before;
    for (u32 i = 0; i < d_.m.n_steps; ++i) {
      if (i == d_.o.warm_up) {
        before = counted();
      }
      double const us = t.microseconds([&] { g.launch(t.stream()); });
      if (i >= d_.o.warm_up) {
        r.times.push_back(us);
      }
    }
    std::vector<outcome> const after = counted();
    for (std::size_t p = 0; p < after.size(); ++p) {
      r.lookups += after[p].demanded - before[p].demanded;
      r.hits += after[p][access_kind::hit] - before[p][access_kind::hit];
      r.missed_bytes += (after[p].demanded - before[p].demanded - (after[p][access_kind::hit] - before[p][access_kind::hit])) *
                        d_.m.model.layers()[p].expert_bytes();
      cuda::step_fault fault{};
      check(pools_->fault(static_cast<u32>(p), fault).code, "a pool's fault");
      if (fault != cuda::step_fault::none) {
        throw std::runtime_error("a step of pool " + std::to_string(p) + " left a fault");
      }
    }
    return r;
  }

 private:
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

  std::vector<outcome> counted() const {
    std::vector<outcome> all(sites_.size());
    for (u32 p = 0; p < all.size(); ++p) {
      check(pools_->counted(p, all[p]).code, "counters");
    }
    return all;
  }

  decoder& d_;
  std::vector<pool_site> sites_;
  std::vector<table<Policy>> tables_;
  std::optional<cuda::device_pools<Policy>> pools_;
};

// ---- the link --------------------------------------------------------------------------------------------------

__global__ void __launch_bounds__(cuda::detail::gather_threads) gather_all_kernel(unsigned char* to, unsigned char const* from,
                                                                            u64 bytes, u32 n, u32 pieces) {
  constexpr u64 piece = 8192;
  constexpr u32 warps = cuda::detail::gather_threads / 32;
  for (u32 p = blockIdx.x * warps + threadIdx.x / 32; p < n * pieces; p += gridDim.x * warps) {
    u64 const at = u64{p / pieces} * bytes;
    u64 const first = (p % pieces) * piece;
    cuda::detail::copy_by_warp(to + at + first, from + at + first, min_of(piece, bytes - first));
  }
}

struct link_rates {
  double ceiling;  ///< bytes per microsecond of one large copy
  double gather;   ///< of the gather kernel over experts of this size
};

link_rates measure_link(timer const& t, unsigned char* pinned, u64 expert_bytes) {
  u64 const large = u64{256} << 20;
  cuda::device_memory<unsigned char> to(static_cast<std::size_t>(large));
  std::vector<double> copy, gather;
  void* mapped = nullptr;
  check(cudaHostGetDevicePointer(&mapped, pinned, 0), "mapped memory");
  u32 const n = static_cast<u32>(large / expert_bytes);
  for (u32 i = 0; i < 9; ++i) {
    copy.push_back(t.microseconds(
        [&] { check(cudaMemcpyAsync(to.data(), pinned, large, cudaMemcpyHostToDevice, t.stream()), "a copy"); }));
    gather.push_back(t.microseconds([&] {
      gather_all_kernel<<<8, cuda::detail::gather_threads, 0, t.stream()>>>(
          to.data(), static_cast<unsigned char const*>(mapped), expert_bytes / 16 * 16, n,
          static_cast<u32>(ceil_div(expert_bytes / 16 * 16, u64{8'192})));
    }));
  }
  return {static_cast<double>(large) / median(copy),
          static_cast<double>(n * (expert_bytes / 16 * 16)) / median(gather)};
}

void print_mode(report& out, mode_result const& r, double resident_us, link_rates const& rates, std::string const& model) {
  out.add({model + " | " + r.name, r.mean(), "us/step"});
  if (r.lookups != 0) {
    double const n = static_cast<double>(r.times.size());
    double const missed = static_cast<double>(r.missed_bytes) / n;
    out.add({"  hit rate", static_cast<double>(r.hits) / static_cast<double>(r.lookups), ""});
    out.add({"  missed MiB per step", missed / 1048576, "MiB"});
    double const serial = resident_us + missed / rates.gather;
    double const ceiling = resident_us + missed / rates.ceiling;
    out.add({"  serial floor at the gather rate", serial, "us/step"});
    out.add({"  serial floor at the link's ceiling", ceiling, "us/step"});
    out.add({"  overlapped floor at the gather rate", std::max(resident_us, missed / rates.gather), "us/step"});
    out.add({"  of the serial floor at the gather rate", r.mean() / serial, "x"});
  }
}

template <class Policy>
mode_result run_policy(decoder& d, pinned_source const& source, timer const& t, char const* name) {
  device_mode<Policy> mode(d, source);
  return mode.run(t, name);
}

}  // namespace

decode_figures measure_decode(report& out, model_routes const& m, decode_options const& o) {
  timer const t;
  unsigned char* pinned = nullptr;
  u64 largest = 0;
  for (layer_geometry const& layer : m.model.layers()) {
    largest = max_of(largest, layer.n_experts * layer.expert_bytes());
  }
  u64 const pinned_bytes = max_of(o.pinned_bytes, largest);
  check(cudaHostAlloc(reinterpret_cast<void**>(&pinned), pinned_bytes, cudaHostAllocMapped), "pinned memory");
  std::memset(pinned, 0x5A, pinned_bytes);
  std::printf("\n%s: %u layers, %u experts, k %u, %llu bytes per expert (first layer), %.1f GiB in all, %.0f %% resident\nroutes: %s\n",
              m.name.c_str(), m.n_layers(), m.model.layers()[0].n_experts, m.k,
              static_cast<unsigned long long>(m.model.layers()[0].expert_bytes()),
              static_cast<double>(m.model.total_bytes()) / 1073741824.0, o.resident * 100, m.source.c_str());
  decode_figures f{};
  {
    link_rates const rates = measure_link(t, pinned, m.model.layers()[0].expert_bytes());
    out.add({m.name + " | link's ceiling, 256 MiB copy", rates.ceiling / 1000, "GB/s"});
    out.add({m.name + " | gather kernel", rates.gather / 1000, "GB/s"});
    decoder d(m, o);
    mode_result const resident = all_resident(d, t);
    print_mode(out, resident, resident.mean(), rates, m.name);
    mode_result const practice = common_practice(d, t, pinned, pinned_bytes);
    print_mode(out, practice, resident.mean(), rates, m.name);
    pinned_source const source(m.model, pinned, pinned_bytes);
    std::vector<mode_result> ours;
    ours.push_back(run_policy<bundles::of<score::lru>>(d, source, t, "device-directed, lru"));
    ours.push_back(run_policy<bundles::of<score::decayed_count>>(d, source, t, "device-directed, decayed_count half-life 64"));
    ours.push_back(run_policy<bundles::of<score::successor<>>>(d, source, t, "device-directed, successor"));
    mode_result const* best = &ours[0];
    for (mode_result const& each : ours) {
      print_mode(out, each, resident.mean(), rates, m.name);
      best = each.mean() < best->mean() ? &each : best;
    }
    double const missed = static_cast<double>(best->missed_bytes) / static_cast<double>(best->times.size());
    f.of_serial_floor = best->mean() / (resident.mean() + missed / rates.gather);
    f.against_practice = practice.mean() / best->mean();
    out.add({m.name + " | best bundle, of the serial floor", f.of_serial_floor, "x", 1.08});
    out.add({m.name + " | common practice / best bundle", f.against_practice, "x", 1.0, false});
  }
  check(cudaFreeHost(pinned), "pinned memory");
  return f;
}

}  // namespace gpu_bench
