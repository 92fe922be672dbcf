// SPDX-License-Identifier: Apache-2.0
//
// What one decision costs, by policy and capacity, beside a naive cache: an array of stamps that is scanned for the
// smallest. Blocks of both take turns in one loop, and `ratio` is the library's time over the naive one's, of medians, so
// that a busy machine counts for both; `ns` and `naive_ns` are nanoseconds per decision. The time column is a block of 64.
//
//   hit/…     a whole step of one resident: settle, plan, commit
//   miss/…    a whole step of one absent expert in a full pool: settle, plan with its victim, commit, arrival
//   victim/…  the choice of the victim alone
//   guard/…   a hint in a full pool: plan with its victim and one consultation, not committed
//
// Scores that look at the demanded set are in successor_bench.cpp.

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <support/hand_welded.hpp>
#include <warmset/table/bundles.hpp>
#include <warmset/table/table.hpp>

namespace {

using namespace warmset;

template <class Bundle>
struct wide : Bundle {
  static constexpr u32 max_experts = 8192;
  // Demands are far apart: with a short half-life all counts would be 0 and every slot a tie.
  static constexpr tuning numbers{.half_life = 256};
};

/// A full pool of one layer with twice as many experts as slots, all residents demanded, transfers arriving at once.
template <class Policy>
class pool {
 public:
  explicit pool(u32 capacity)
      : n_experts_(2 * capacity),
        table_({layer_geometry{layer_id{0}, 2 * capacity, 1, {1}}}, {capacity, capacity}),
        arrivals_(capacity, 0u), plan_(std::make_unique<plan_of<Policy>>()),
        work_(std::make_unique<workspace_of<Policy>>()) {
    for (u32 i = 0; i < 2 * capacity; ++i) {
      miss();
    }
  }

  void demand(u32 expert) {
    auto const id = static_cast<routed_id>(expert);
    auto const& view = table_.view();
    outcome out{};
    settle<Policy>(one_lane{}, view, arrivals_.data(), out);
    plan_demand<Policy>(one_lane{}, view, step_input{0, phase::decode, 0}, &id, 1u, *work_, *plan_);
    (void)commit<Policy>(one_lane{}, view, *plan_, out);
    for (u32 j = 0; j < plan_->n_loads; ++j) {
      u32 const slot = plan_->loads[j].slot;
      arrivals_[slot] = arrival::word(view.generation(slot), transfer::arrived);
    }
    benchmark::DoNotOptimize(out);
  }
  void miss() { demand(absent()); }

  /// Plans one hint for an absent expert; returns how often the guard was asked.
  u32 hint() {
    auto const id = static_cast<routed_id>(absent());
    plan_speculative<Policy>(one_lane{}, table_.view(),
                             speculation_input{0, table_.view().layer(0).step + 1, 1, 0}, &id, 1u,
                             *work_, *plan_);
    return plan_->guard_asked;
  }

  slot_id victim() const {
    table_reader<Policy> const& t = table_.view();
    warmset::detail::candidate_view<Policy> const candidates{t, 0};
    typename Policy::selector::walk_state walk{};
    return t.parts().selector.next(one_lane{}, candidates, walk);
  }

  std::vector<u32> residents() {
    outcome out{};
    settle<Policy>(one_lane{}, table_.view(), arrivals_.data(), out);
    std::vector<u32> found;
    for (u32 e = 0; e < n_experts_; ++e) {
      if ((table_.view().expert(e).where & expert_word::slot_mask) != 0) {
        found.push_back(e);
      }
    }
    return found;
  }

 private:
  u32 absent() {
    do {
      next_ = next_ + 1 == n_experts_ ? 0 : next_ + 1;
    } while ((table_.view().expert(next_).where & expert_word::slot_mask) != 0);
    return next_;
  }

  u32 n_experts_;
  u32 next_ = 0;
  table<Policy> table_;
  std::vector<u32> arrivals_;
  std::unique_ptr<plan_of<Policy>> plan_;
  std::unique_ptr<workspace_of<Policy>> work_;
};

/// The naive cache, as full, with its residents in turn.
class naive {
 public:
  explicit naive(u32 capacity)
      : capacity_(capacity), cache_(1, 2 * capacity, capacity), stamps_(capacity) {
    for (u32 i = 0; i < 2 * capacity; ++i) {
      miss();
    }
    for (u32 i = 0; i < capacity; ++i) {
      stamps_[i] = 1'000 + (i * 2'654'435'761u >> 8) % 100'000;
    }
  }

  void miss() {
    next_ = next_ + 1 == 2 * capacity_ ? 0 : next_ + 1;  // absent longest
    step(next_);
  }
  void hit() {
    at_ = at_ + 1 == capacity_ ? 0 : at_ + 1;
    step(next_ >= at_ ? next_ - at_ : next_ + 2 * capacity_ - at_);
  }
  u32 victim() const {
    u32 best = 0;
    for (u32 s = 1; s < capacity_; ++s) {
      best = stamps_[s] < stamps_[best] ? s : best;
    }
    return best;
  }
  bool guarded(u64 challenger) const {
    u64 const v = stamps_[victim()];
    return challenger > v + v / 4 + 4;
  }

 private:
  void step(u32 expert) {
    auto const id = static_cast<routed_id>(expert);
    cache_.step(0, &id, 1);
    benchmark::DoNotOptimize(cache_.slots.data());
  }

  u32 capacity_;
  u32 next_ = 0;
  u32 at_ = 0;
  bench::hand_welded_scan cache_;
  std::vector<u32> stamps_;
};

inline double median(std::vector<double>& of) {
  auto const middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

/// Runs blocks of both in turn. The ratio is that of the medians of the blocks: one that was interrupted does not count.
template <class Own, class Other>
void beside(benchmark::State& state, Own&& own, Other&& other) {
  using clock = std::chrono::steady_clock;
  constexpr u32 block = 64;
  auto const seconds = [](auto&& f) {
    auto const begin = clock::now();
    for (u32 i = 0; i < block; ++i) {
      f();
    }
    return std::chrono::duration<double>(clock::now() - begin).count();
  };
  std::vector<double> own_times;
  std::vector<double> naive_times;
  for (auto _ : state) {
    own_times.push_back(seconds(own));
    naive_times.push_back(seconds(other));
    state.SetIterationTime(own_times.back());
  }
  double const own_time = median(own_times);
  double const naive_time = median(naive_times);
  state.counters["ratio"] = own_time / naive_time;
  state.counters["ns"] = own_time / block * 1e9;
  state.counters["naive_ns"] = naive_time / block * 1e9;
}

template <class Policy>
void hit(benchmark::State& state) {
  auto const capacity = static_cast<u32>(state.range(0));
  pool<Policy> p(capacity);
  naive n(capacity);
  std::vector<u32> const ids = p.residents();
  std::size_t at = 0;
  beside(
      state,
      [&] {
        p.demand(ids[at]);
        at = at + 1 == ids.size() ? 0 : at + 1;
      },
      [&] { n.hit(); });
}

template <class Policy>
void miss(benchmark::State& state) {
  pool<Policy> p(static_cast<u32>(state.range(0)));
  naive n(static_cast<u32>(state.range(0)));
  beside(
      state, [&] { p.miss(); }, [&] { n.miss(); });
}

template <class Policy>
void victim(benchmark::State& state) {
  pool<Policy> p(static_cast<u32>(state.range(0)));
  (void)p.residents();
  naive n(static_cast<u32>(state.range(0)));
  beside(
      state, [&] { benchmark::DoNotOptimize(p.victim()); },
      [&] {
        benchmark::ClobberMemory();
        benchmark::DoNotOptimize(n.victim());
      });
}

template <class Policy>
void guard_asked(benchmark::State& state) {
  pool<Policy> p(static_cast<u32>(state.range(0)));
  (void)p.residents();
  naive n(static_cast<u32>(state.range(0)));
  if (p.hint() != 1) {
    state.SkipWithError("the guard was not asked");
    return;
  }
  beside(
      state, [&] { benchmark::DoNotOptimize(p.hint()); },
      [&] {
        benchmark::ClobberMemory();
        benchmark::DoNotOptimize(n.guarded(2'000));
      });
}

void sizes(benchmark::internal::Benchmark* b) {
  b->UseManualTime()->RangeMultiplier(8)->Range(8, 4096);
}

template <class Bundle>
void add() {
  if constexpr (!contextual_score<typename Bundle::score>) {
    std::string const name = Bundle::name;
    benchmark::RegisterBenchmark(("hit/" + name).c_str(), hit<wide<Bundle>>)->Apply(sizes);
    benchmark::RegisterBenchmark(("miss/" + name).c_str(), miss<wide<Bundle>>)->Apply(sizes);
    benchmark::RegisterBenchmark(("victim/" + name).c_str(), victim<wide<Bundle>>)->Apply(sizes);
  }
}

template <class Score, class Guard>
void add_guard() {
  using policy = wide<bundles::guarded<bundles::of<Score>, Guard>>;
  std::string const name = std::string("guard/") + Guard::name + "/" + Score::name;
  benchmark::RegisterBenchmark(name.c_str(), guard_asked<policy>)->Apply(sizes);
}

[[maybe_unused]] bool const registered = [] {
  bundles::for_each(bundles::all{}, []<class Bundle>() { add<Bundle>(); });
  add<bundles::admitted<bundles::of<score::decayed_count>, admit::frequency_gate>>();
  add_guard<score::lru, guard::none>();
  add_guard<score::decayed_count, guard::challenger_must_win>();
  add_guard<score::decayed_count, guard::warm_then_challenger_must_win>();
  add_guard<score::decayed_count, guard::victim_must_be_hotter>();
  return true;
}();

}  // namespace
