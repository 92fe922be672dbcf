// SPDX-License-Identifier: Apache-2.0
//
// What one demand look-up costs, all of settle, plan, commit, move and fold, on the decode steps of a real
// trace, beside the cache that an engine welds for itself. Compare within one run: the ratio is the figure.

#include <span>

#include <benchmark/benchmark.h>

#include <warmset/warmset.hpp>

#include "support/bench_trace.hpp"
#include "support/count_allocations.hpp"
#include "support/hand_welded.hpp"

namespace {

using namespace warmset;

/// Plays a pass of the trace per iteration; the first one, which fills the pools, is not measured.
template <class Step>
void play(benchmark::State& state, Step&& one) {
  bench::workload const& work = bench::decode_workload();
  std::size_t played = 0;
  auto const pass = [&] {
    for (bench::step const& s : work.passes[played++ % work.passes.size()]) {
      one(s);
    }
  };
  pass();
  unsigned long const before = warmset_test::n_allocations();
  for (auto _ : state) {
    pass();
  }
  state.counters["allocations"] = static_cast<double>(warmset_test::n_allocations() - before);
  state.counters["lookups"] = benchmark::Counter(
      static_cast<double>(work.lookups) * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

template <class Policy>
void library(benchmark::State& state) {
  cache<Policy, move::immediate> c{bench::decode_workload().model,
                                   budget::of_slots(static_cast<u32>(state.range(0)))};
  play(state, [&](bench::step const& s) {
    benchmark::DoNotOptimize(c.step(s.layer, std::span<routed_id const>(s.ids)).slots.data());
  });
  state.counters["hit_rate"] = c.observer().total().hit_rate();
}

template <class Hand>
void hand_welded(benchmark::State& state) {
  bench::workload const& work = bench::decode_workload();
  Hand hand(static_cast<u32>(work.model.layers().size()), work.model.layers().front().n_experts,
            static_cast<u32>(state.range(0)));
  std::size_t steps = 0;
  play(state, [&](bench::step const& s) {
    ++steps;
    hand.step(s.layer.value, s.ids.data(), static_cast<u32>(s.ids.size()));
    benchmark::DoNotOptimize(hand.slots.data());
  });
  state.counters["hit_rate"] =
      static_cast<double>(hand.total_hits()) * static_cast<double>(work.passes.front().size()) /
      (static_cast<double>(work.lookups) * static_cast<double>(steps));
}

using lru_list = bundles::of<score::lru, select::lru_list>;
using coldest_lru = bundles::of<score::lru>;

void slots(benchmark::internal::Benchmark* b) {
  b->Arg(16)->Arg(32)->Arg(64)->Unit(benchmark::kMicrosecond);
}

BENCHMARK(hand_welded<bench::hand_welded_lru>)->Name("step/hand_welded_lru")->Apply(slots);
BENCHMARK(library<lru_list>)->Name("step/lru_list")->Apply(slots);
BENCHMARK(hand_welded<bench::hand_welded_scan>)->Name("step/hand_welded_scan")->Apply(slots);
BENCHMARK(library<coldest_lru>)->Name("step/coldest_over_lru")->Apply(slots);
BENCHMARK(library<bundles::of<score::lfu>>)->Name("step/lfu")->Apply(slots);
BENCHMARK(library<bundles::of<score::decayed_count>>)->Name("step/decayed_count")->Apply(slots);
BENCHMARK(library<bundles::of<score::class_lru>>)->Name("step/class_lru")->Apply(slots);

}  // namespace
