// SPDX-License-Identifier: Apache-2.0
//
// What a victim costs. `miss/…` is a whole step of one miss in a full pool, by capacity; `victim/…` is the choice alone,
// beside a bare scan that computes the same score of the same experts and knows nothing of leases, pins or floors.

#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include <warmset/table/bundles.hpp>
#include <warmset/table/table.hpp>

namespace {

using namespace warmset;

template <class Bundle>
struct wide : Bundle {
  static constexpr u32 max_experts = 8192;
  // Every expert is demanded once in 2 * capacity steps: a short half-life would make all counts 0 and every slot a tie.
  static constexpr tuning numbers{.half_life = 256};
};

/// A full pool of one layer with twice as many experts as slots, and a mover whose transfers arrive at once.
template <class Policy>
class pool {
 public:
  explicit pool(u32 capacity)
      : n_experts_(2 * capacity),
        table_({layer_geometry{layer_id{0}, 2 * capacity, 1, {1}}}, {capacity, capacity}),
        arrivals_(capacity, 0u),
        plan_(std::make_unique<plan_of<Policy>>()),
        work_(std::make_unique<workspace_of<Policy>>()) {
    for (u32 i = 0; i < 4 * capacity; ++i) {
      miss();
    }
  }

  /// Demands the expert that was absent longest: always a miss.
  void miss() {
    routed_id const id = static_cast<routed_id>(next_);
    next_ = next_ + 1 == n_experts_ ? 0 : next_ + 1;
    auto const& view = table_.view();
    outcome out{};
    plan_demand<Policy>(one_lane{}, table_.view(), step_input{0, phase::decode, 0}, &id, 1u, *work_, *plan_);
    (void)commit<Policy>(one_lane{}, view, *plan_, out);
    u32 const slot = plan_->loads[0].slot;
    arrivals_[slot] = arrival::word(view.generation(slot), transfer::arrived);
    settle<Policy>(one_lane{}, view, arrivals_.data(), out);
    benchmark::DoNotOptimize(out);
  }

  table_reader<Policy> const& reading() { return table_.view(); }

 private:
  u32 n_experts_;
  u32 next_ = 0;
  table<Policy> table_;
  std::vector<u32> arrivals_;
  std::unique_ptr<plan_of<Policy>> plan_;
  std::unique_ptr<workspace_of<Policy>> work_;
};

template <class Policy>
void miss(benchmark::State& state) {
  pool<Policy> p(static_cast<u32>(state.range(0)));
  for (auto _ : state) {
    p.miss();
  }
}

template <class Policy>
void victim(benchmark::State& state) {
  pool<Policy> p(static_cast<u32>(state.range(0)));
  table_reader<Policy> const& t = p.reading();
  warmset::detail::candidate_view<Policy> const candidates{t, 0};
  for (auto _ : state) {
    typename Policy::selector::walk_state walk{};
    benchmark::DoNotOptimize(t.parts().selector.next(one_lane{}, candidates, walk));
  }
}

template <class Policy>
void bare_scan(benchmark::State& state) {
  pool<Policy> p(static_cast<u32>(state.range(0)));
  table_reader<Policy> const& t = p.reading();
  for (auto _ : state) {
    clocks const now = t.now(0, 0);
    u64 best = u64_max;
    u32 best_slot = 0;
    for (u32 s = 0; s < t.header().capacity; ++s) {
      u32 const expert = table_reader<Policy>::expert_of(t.owner(s));
      u64 const value = t.value(expert, now);
      if (value < best) {
        best = value;
        best_slot = s;
      }
    }
    benchmark::DoNotOptimize(best_slot);
  }
}

using lru_list = wide<bundles::of<score::lru, select::lru_list>>;
using coldest_lru = wide<bundles::of<score::lru>>;
using coldest_count = wide<bundles::of<score::decayed_count>>;

BENCHMARK(miss<lru_list>)->Name("miss/lru_list")->RangeMultiplier(4)->Range(16, 4096);
BENCHMARK(miss<coldest_lru>)->Name("miss/coldest_over_lru")->RangeMultiplier(4)->Range(16, 4096);
BENCHMARK(victim<coldest_lru>)->Name("victim/coldest_over_lru")->Arg(219);
BENCHMARK(bare_scan<coldest_lru>)->Name("victim/bare_scan_over_lru")->Arg(219);
BENCHMARK(victim<coldest_count>)->Name("victim/coldest_over_decayed_count")->Arg(219);
BENCHMARK(bare_scan<coldest_count>)->Name("victim/bare_scan_over_decayed_count")->Arg(219);

}  // namespace
