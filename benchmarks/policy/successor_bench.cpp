// SPDX-License-Identifier: Apache-2.0
//
// What the successor score costs a step: keys of all experts and what is learned from them, for k of E experts, by
// order and by width of its cells. `step/…` is the library's two functions over a layer's memory, without the table;
// `reference/…` is the same rule written for reading. Half of each set was demanded in the step before.

#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <kit/operations.hpp>
#include <kit/successor_reference.hpp>
#include <warmset/policy/score/successor.hpp>

namespace {

using namespace warmset;

/// Sets that a stream of tokens could demand: distinct, and half of each stays for the next step.
std::vector<kit::id_list> make_steps(u32 n_experts, u32 k) {
  kit::integers random(1);
  std::vector<kit::id_list> steps(256);
  kit::id_list set;
  for (kit::id_list& step : steps) {
    set.resize(set.size() / 2);
    while (set.size() < k) {
      u32 const x = random.below(1 + random.below(n_experts));
      if (!kit::contains(set, x)) {
        set.push_back(x);
      }
    }
    step = set;
  }
  return steps;
}

/// What a table would say of the layer's experts.
struct experts_of {
  std::vector<unsigned char> in;

  bool demanded(u32 x) const noexcept { return in[x] != 0; }
  expert_facts facts(u32) const noexcept { return {}; }
  clocks now() const noexcept { return {}; }
};

template <class Score>
void step(benchmark::State& state) {
  u32 const n = static_cast<u32>(state.range(0));
  u32 const k = static_cast<u32>(state.range(1));
  Score const score{tuning{}};
  std::vector<u64> memory(score.context_bytes(n) / 8 + 1);
  auto* const context = reinterpret_cast<unsigned char*>(memory.data());
  std::vector<typename Score::state> states(n);
  std::vector<i32> keys(n);
  std::vector<u32> contexts(n);
  experts_of experts{std::vector<unsigned char>(n)};
  std::vector<kit::id_list> const steps = make_steps(n, k);
  std::size_t at = 0;
  for (auto _ : state) {
    kit::id_list const& before = steps[at];
    at = at + 1 == steps.size() ? 0 : at + 1;
    kit::id_list const& ids = steps[at];
    for (u32 const x : before) {
      experts.in[x] = 0;
    }
    for (u32 const x : ids) {
      experts.in[x] = 1;
    }
    step_context s{ids.data(), k, before.data(), k, 0, n, 0, step_context::no_token, nullptr, contexts.data(), 0};
    s.n_contexts = score.list_contexts(context, experts, s, contexts.data());
    for (u32 first = 0; first < n; first += Score::columns) {
      score.keys(context, states.data(), experts, s, first, min_of(first + Score::columns, n), keys.data());
    }
    for (u32 first = 0; first < n; first += Score::columns) {
      score.learn(context, states.data(), experts, s, keys.data(), first, min_of(first + Score::columns, n));
    }
    score.end_step(context, s);
    benchmark::DoNotOptimize(keys.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<i64>(state.iterations()));
  state.counters["context_bytes"] = static_cast<double>(score.context_bytes(n));
}

template <u32 Order, u32 Bits>
void reference(benchmark::State& state) {
  u32 const n = static_cast<u32>(state.range(0));
  std::vector<kit::id_list> const steps = make_steps(n, static_cast<u32>(state.range(1)));
  kit::successor_reference score(n, 0, {Order, Bits});
  std::size_t at = 0;
  for (auto _ : state) {
    std::size_t const before = at;
    at = at + 1 == steps.size() ? 0 : at + 1;
    benchmark::DoNotOptimize(score.step(steps[at], steps[before]).data());
  }
  state.SetItemsProcessed(static_cast<i64>(state.iterations()));
}

void layers(benchmark::internal::Benchmark* b) {
  b->ArgNames({"E", "k"})->Args({32, 4})->Args({64, 6})->Args({128, 8})->Args({256, 8});
}

BENCHMARK(step<score::successor<1>>)->Name("step/successor_1")->Apply(layers);
BENCHMARK(step<score::successor<2>>)->Name("step/successor_2")->Apply(layers);
BENCHMARK(step<score::successor<3>>)->Name("step/successor_3")->Apply(layers);
BENCHMARK(step<score::successor<1, i8>>)->Name("step/successor_1_int8")->Apply(layers);
BENCHMARK(step<score::successor<2, i8>>)->Name("step/successor_2_int8")->Apply(layers);
BENCHMARK(step<score::successor<3, i8>>)->Name("step/successor_3_int8")->Apply(layers);
BENCHMARK(reference<1, 16>)->Name("reference/successor_1")->Apply(layers);
BENCHMARK(reference<2, 16>)->Name("reference/successor_2")->Apply(layers);
BENCHMARK(reference<3, 16>)->Name("reference/successor_3")->Apply(layers);
BENCHMARK(reference<1, 8>)->Name("reference/successor_1_int8")->Apply(layers);
BENCHMARK(reference<2, 8>)->Name("reference/successor_2_int8")->Apply(layers);
BENCHMARK(reference<3, 8>)->Name("reference/successor_3_int8")->Apply(layers);

}  // namespace
