// SPDX-License-Identifier: Apache-2.0
// What one step costs as nodes of a graph: plan kernels of several bundles beside a bare look-up.

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include <warmset/cuda.cuh>
#include <warmset/table/bundles.hpp>

#include "link.hpp"
#include "nodes.hpp"
#include "support.cuh"

namespace gpu_bench {
namespace {

using namespace warmset;

/// The look-up that any slot table needs: no miss is served, nothing is remembered.
__global__ void __launch_bounds__(32) look_up_kernel(i32 const* slot_of, i32 const* ids, u32 n_ids, i32* slots) {
  for (u32 i = threadIdx.x; i < n_ids; i += blockDim.x) {
    slots[i] = slot_of[ids[i]];
  }
}

/// Stands for the gather kernel where its bytes are not to be timed: what the plan listed has arrived.
template <class Policy>
__global__ void __launch_bounds__(32) arrive_kernel(u32* arrivals, cuda::fetch_queue<Policy::max_experts> const* queue) {
  for (u32 j = threadIdx.x; j < queue->n; j += blockDim.x) {
    arrivals[queue->order[j].slot] = arrival::word(queue->order[j].generation, transfer::arrived);
  }
}

constexpr u32 n_rounds = 31;

/// Microseconds of one node, as the median over launches of a graph of `n_nodes` of what `node(stream, i)` records.
template <class Node>
double per_node(timer const& t, u32 n_nodes, Node&& node) {
  graph const g(t.stream(), [&](cudaStream_t s) {
    for (u32 i = 0; i < n_nodes; ++i) {
      node(s, i);
    }
  });
  for (u32 i = 0; i < 3; ++i) {
    g.launch(t.stream());
  }
  std::vector<double> times;
  for (u32 i = 0; i < n_rounds; ++i) {
    times.push_back(t.microseconds([&] { g.launch(t.stream()); }) / n_nodes);
  }
  return median(times);
}

/// The median of what `measured()` tells, which allocates what it looks at: where in a device's memory a line lies moves a
/// dependent read of it by a tenth of a microsecond.
template <class Measured>
auto over_places(Measured&& measured) {
  constexpr std::size_t n_places = 7;
  constexpr std::size_t apart = 33'024;
  std::vector<decltype(measured())> all;
  for (std::size_t i = 0; i < n_places; ++i) {
    cuda::device_memory<unsigned char> const before(1 + i * apart);
    all.push_back(measured());
  }
  std::sort(all.begin(), all.end());
  return all[n_places / 2];
}

/// One pool in device memory without bytes: what plan reads and writes.
template <class Policy>
class bare_pool {
 public:
  bare_pool(u32 n_experts, u32 n_slots, u32 k)
      : table_({{layer_id{0}, n_experts, k, {64}}}, pool_size{n_slots, n_slots}, tuning{.scratch_slots = k}),
        block_(static_cast<std::size_t>(table_.block_bytes())),
        arrivals_(n_slots + k),
        plan_(1),
        out_(n_phases),
        queue_(1),
        now_(1),
        view_{block_.data(), table_.parts(), table_.view().shape(), arrivals_.data(), plan_.data(),
              out_.data(), queue_.data(), nullptr, 0, 16, 0, 0, n_slots} {
    check(block_.write(static_cast<unsigned char const*>(table_.block()), block_.size()).code, "a block");
    cuda::launch_state const now{table_.view().header().epoch, phase::decode};
    check(now_.write(&now, 1).code, "the state of a launch");
  }

  void plan(cudaStream_t s, i32 const* ids, u32 n, i32* slots) {
    cuda::plan_kernel<Policy, i32><<<1, 32, 0, s>>>(view_, 0, now_.data(), ids, n, slots, {});
  }
  void arrive(cudaStream_t s) { arrive_kernel<Policy><<<1, 32, 0, s>>>(arrivals_.data(), queue_.data()); }
  void learn(cudaStream_t s) {
    if constexpr (contextual_score<typename Policy::score>) {
      cuda::learn_kernel<Policy><<<1, cuda::detail::learn_threads, 0, s>>>(view_);
    }
  }
  outcome counted() const {
    outcome out[n_phases] = {};
    check(out_.read(out, n_phases).code, "the counters");
    return out[static_cast<u32>(phase::decode)];
  }

 private:
  table<Policy> table_;
  cuda::device_memory<unsigned char> block_;
  cuda::device_memory<u32> arrivals_;
  cuda::device_memory<plan_of<Policy>> plan_;
  cuda::device_memory<outcome> out_;
  cuda::device_memory<cuda::fetch_queue<Policy::max_experts>> queue_;
  cuda::device_memory<cuda::launch_state> now_;
  cuda::pool_view<Policy> view_;
};

struct step_shape {
  u32 n_experts, n_slots, k, misses;
};

/// Routes of consecutive steps, each of which misses exactly `misses` experts in a pool that forgets the least recently
/// used: some experts are in every step, the others go round.
std::vector<i32> routes(step_shape const& s, u32 n_steps) {
  std::vector<i32> ids;
  u32 const always = s.k - s.misses;
  u32 next = 0;
  for (u32 step = 0; step < n_steps; ++step) {
    for (u32 i = 0; i < always; ++i) {
      ids.push_back(static_cast<i32>(i));
    }
    for (u32 i = 0; i < s.misses; ++i) {
      ids.push_back(static_cast<i32>(always + next));
      next = (next + 1) % (s.n_experts - always);
    }
  }
  return ids;
}

/// What a plan node costs, and how many experts its steps missed.
struct plan_cost {
  double us;
  double misses;
  double learning_us;  ///< beside the stream; 0 where the score does not learn
  bool operator<(plan_cost const& o) const { return us < o.us; }
};

template <class Policy>
plan_cost cost_of_plan(timer const& t, step_shape const& s) {
  bare_pool<Policy> pool(s.n_experts, s.n_slots, s.k);
  // a graph's routes lie at fixed addresses: its nodes come to a whole number of rounds, so that the next launch goes on
  // where the last one ended
  u32 const round = s.n_experts - (s.k - s.misses);
  u32 n_nodes = s.misses == 0 ? 200 : round / std::gcd(round, s.misses);
  while (n_nodes < 150) {
    n_nodes *= 2;
  }
  std::vector<i32> const route = routes(s, n_nodes);
  cuda::device_memory<i32> ids(route.size());
  cuda::device_memory<i32> slots(s.k);
  check(ids.write(route.data(), route.size()).code, "routes");
  if (s.misses != 0) {  // all experts once, so that no slot is free
    std::vector<i32> all(s.n_experts);
    for (u32 i = 0; i < s.n_experts; ++i) {
      all[i] = static_cast<i32>(i);
    }
    cuda::device_memory<i32> every(all.size());
    check(every.write(all.data(), all.size()).code, "routes");
    for (u32 i = 0; i + s.k <= s.n_experts; i += s.k) {
      pool.plan(t.stream(), every.data() + i, s.k, slots.data());
      pool.arrive(t.stream());
      pool.learn(t.stream());
    }
    check(cudaStreamSynchronize(t.stream()), "filling a pool");
  } else {
    pool.plan(t.stream(), ids.data(), s.k, slots.data());
    pool.arrive(t.stream());
  }
  auto const pair = [&](cudaStream_t stream, u32 i) {
    pool.plan(stream, ids.data() + static_cast<std::size_t>(i) * (s.misses == 0 ? 0 : s.k), s.k, slots.data());
    pool.arrive(stream);
  };
  outcome const before = pool.counted();
  double const both = per_node(t, n_nodes, pair);
  outcome const after = pool.counted();
  double const rest = per_node(t, n_nodes, [&](cudaStream_t stream, u32) { pool.arrive(stream); });
  double learning = 0;
  if constexpr (contextual_score<typename Policy::score>) {
    learning = per_node(t, n_nodes, [&](cudaStream_t stream, u32) { pool.learn(stream); });
  }
  return {both - rest, static_cast<double>(after.issued[0] - before.issued[0]) / static_cast<double>(after.steps - before.steps),
          learning};
}

template <class Policy>
void measure(report& r, timer const& t, double look_up, step_shape const& s, char const* name, double bound) {
  plan_cost const c = over_places([&] { return cost_of_plan<Policy>(t, s); });
  char label[160];
  std::snprintf(label, sizeof label, "plan %s, E %u, %u slots, k %u: %.2f misses", name, s.n_experts, s.n_slots, s.k, c.misses);
  r.add({label, c.us, "us"});
  std::snprintf(label, sizeof label, "  ... of a bare look-up node");
  r.add({label, c.us / look_up, "x", bound});
  if (c.learning_us != 0) {
    r.add({"  ... learning, beside the stream", c.learning_us, "us"});
  }
}

/// A look-up in a graph like the ones in which plans are measured: before each node that stands for a gather of nothing.
double cost_of_look_up(timer const& t) {
  bare_pool<bundles::of<score::lru>> pool(512, 500, 10);
  std::vector<i32> table(512), ids(16);
  for (u32 i = 0; i < 512; ++i) {
    table[i] = static_cast<i32>(i % 64);
  }
  for (u32 i = 0; i < 16; ++i) {
    ids[i] = static_cast<i32>(i * 3);
  }
  cuda::device_memory<i32> d_table(512), d_ids(16), d_slots(16);
  check(d_table.write(table.data(), 512).code, "a slot table");
  check(d_ids.write(ids.data(), 16).code, "ids");
  double const both = per_node(t, 200, [&](cudaStream_t s, u32) {
    look_up_kernel<<<1, 32, 0, s>>>(d_table.data(), d_ids.data(), 10, d_slots.data());
    pool.arrive(s);
  });
  return both - per_node(t, 200, [&](cudaStream_t s, u32) { pool.arrive(s); });
}

}  // namespace

bool has_gpu() {
  int n = 0;
  return cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
}

void measure_nodes(report& r) {
  timer const t;
  double const look_up = over_places([&] { return cost_of_look_up(t); });
  double const again = over_places([&] { return cost_of_look_up(t); });
  r.add({"bare look-up node", look_up, "us"});
  r.add({"bare look-up node, again (noise)", again / look_up, "x"});

  using lru = bundles::of<score::lru>;
  using clock_bundle = bundles::of<score::lru, select::clock<1>>;
  using decayed = bundles::of<score::decayed_count>;
  using epoch = bundles::of<score::epoch_count>;
  using lfu = bundles::of<score::lfu>;
  using successor = bundles::of<score::successor<>>;
  for (u32 const slots : {32u, 128u, 500u}) {
    measure<lru>(r, t, look_up, {512, slots, 10, 0}, "lru", 1.5);
  }
  measure<decayed>(r, t, look_up, {512, 500, 10, 0}, "decayed_count", 1.5);
  measure<epoch>(r, t, look_up, {512, 500, 10, 0}, "epoch_count", 1.5);
  measure<lfu>(r, t, look_up, {512, 500, 10, 0}, "lfu", 1.5);
  measure<clock_bundle>(r, t, look_up, {512, 500, 10, 0}, "clock", 0);
  measure<lru>(r, t, look_up, {512, 500, 10, 2}, "lru", 0);
  measure<lru>(r, t, look_up, {512, 500, 10, 10}, "lru", 6.5);
  measure<decayed>(r, t, look_up, {512, 500, 10, 10}, "decayed_count", 6.5);
  measure<epoch>(r, t, look_up, {512, 500, 10, 10}, "epoch_count", 6.5);
  measure<lfu>(r, t, look_up, {512, 500, 10, 10}, "lfu", 6.5);
  measure<clock_bundle>(r, t, look_up, {512, 500, 10, 10}, "clock", 0);
  measure<successor>(r, t, look_up, {128, 32, 8, 0}, "successor", 0);
  measure<successor>(r, t, look_up, {128, 32, 8, 3}, "successor", 0);
  measure<successor>(r, t, look_up, {512, 128, 10, 0}, "successor", 0);
  measure<successor>(r, t, look_up, {512, 128, 10, 4}, "successor", 0);
  measure_scattered(r);
}

}  // namespace gpu_bench
