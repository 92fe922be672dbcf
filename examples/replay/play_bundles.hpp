// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstring>
#include <type_traits>
#include <utility>

#include "policy.hpp"
#include "warmset/cache.hpp"
#include "warmset/table/bundles.hpp"

/// Replays of the bundles of the library's tables, a quarter of them in each of play_bundles_<n>.cpp so that they are
/// compiled side by side. A new bundle needs no edit here.
namespace warmset_tools {

inline constexpr unsigned n_parts = 4;

/// The bundles with index Part, Part + n_parts, ... of the table.
template <unsigned Part>
void append_bundles(std::vector<std::pair<unsigned, policy>>& to);

namespace detail {

/// Writes the decision log of a replay. Who was in a slot before is remembered here, as decisions do not say it.
class log_recorder {
 public:
  log_recorder(play_request const& request)
      : writer_(warmset::trace::vector_sink(*request.log),
                {request.recording.geometry().fingerprint(), request.log_name}) {}

  template <class Decision>
  void step(warmset::trace::event const& e, warmset::u32 pool, Decision const& d) {
    accesses_.clear();
    for (std::size_t i = 0; i < d.experts.size(); ++i) {
      accesses_.push_back({d.experts[i], d.how[i], d.slots[i]});
    }
    loads_.clear();
    if (d.kind == warmset::plan_kind::step) {
      for (warmset::planned_load const& l : d.loads) {
        resident& before = at(pool, l.slot);
        loads_.push_back({l.expert, l.slot, before.row, before.expert});
        before = {e.row, l.expert};
      }
    }
    trims_.clear();
    if constexpr (requires { d.reclaimed; }) {
      for (auto const& r : d.reclaimed) {
        trims_.push_back(r.slot);
        at(pool, r.slot) = {};
      }
    }
    writer_.step(e.row, e.phase, warmset::intent::demand, accesses_, loads_, trims_);
  }

 private:
  struct resident {
    warmset::u32 row = warmset::trace::logged_load::none;
    warmset::u32 expert = warmset::trace::logged_load::none;
  };

  resident& at(warmset::u32 pool, warmset::u32 slot) {
    if (pool >= owners_.size()) {
      owners_.resize(pool + 1);
    }
    if (slot >= owners_[pool].size()) {
      owners_[pool].resize(slot + 1);
    }
    return owners_[pool][slot];
  }

  warmset::trace::log_writer<warmset::trace::vector_sink> writer_;
  std::vector<std::vector<resident>> owners_;
  std::vector<warmset::trace::logged_access> accesses_;
  std::vector<warmset::trace::logged_load> loads_;
  std::vector<warmset::u32> trims_;
};

inline void count(stretch& to, std::span<warmset::access_kind const> how) {
  for (warmset::access_kind each : how) {
    to.hits += each == warmset::access_kind::hit || each == warmset::access_kind::first_use ||
               each == warmset::access_kind::overflow_hit;
  }
  to.lookups += how.size();
}

/// One instantiation for replays with and without a log: these are most of what this tool costs to compile.
template <class Cache, class PoolOf>
warmset::trace::replay_report play(play_request const& request, Cache& cache, PoolOf&& pool_of) {
  using clock = std::chrono::steady_clock;
  std::optional<log_recorder> log;
  if (request.log != nullptr) {
    log.emplace(request);
  }
  std::array<warmset::u64, warmset::n_phases> n_steps{};
  clock::time_point const start = clock::now();
  warmset::trace::replay_report report = warmset::trace::replay(
      request.recording, request.which, cache,
      [&](warmset::trace::event const& e, auto const& decision) {
        if (log) {
          log->step(e, pool_of(e.layer), decision);
        }
        if (request.by_stretch != nullptr) {
          auto const p = static_cast<std::size_t>(e.phase);
          count((*request.by_stretch)[p][n_steps[p]++ * n_stretches / request.steps[p]],
                decision.how);
        }
      });
  if (request.seconds != nullptr) {
    request.seconds->push_back(std::chrono::duration<double>(clock::now() - start).count());
  }
  return report;
}

template <class Bundle>
warmset::trace::replay_report play_slots(play_request const& request) {
  warmset::cache<Bundle, warmset::move::immediate, warmset::observe::counting> cache(
      request.recording.geometry(), warmset::budget::of_slots(request.size.slots), request.numbers);
  return play(request, cache, [&cache](warmset::layer_id layer) {
    warmset::u32 pool = 0;
    warmset::u32 row = 0;
    (void)cache.find(layer, pool, row);
    return pool;
  });
}

template <class Bundle>
warmset::trace::replay_report play_once(play_request const& request) {
  if (request.size.pool == pool_kind::per_layer) {
    return play_slots<Bundle>(request);
  }
  if (request.size.slots != 0) {
    return play_slots<warmset::bundles::shared<Bundle>>(request);
  }
  warmset::trace::byte_pool<Bundle> cache(request.recording.geometry(), request.size.budget_bytes,
                                          request.numbers);
  return play(request, cache, [](warmset::layer_id) { return 0u; });
}

template <class Bundle>
warmset::trace::replay_report play_bundle(play_request const& request) {
  for (unsigned i = 1; i < request.repeat; ++i) {
    (void)play_once<Bundle>(request);
  }
  return play_once<Bundle>(request);
}

/// Bytes of a state; an empty one takes none.
template <class State>
constexpr std::size_t bytes_of = std::is_empty_v<State> ? 0 : sizeof(State);

/// Bytes per expert of a score: its state, and its share of what a contextual score keeps of a layer of 64.
template <class Bundle>
std::size_t bytes_of_score() {
  using score = typename Bundle::score;
  std::size_t bytes = bytes_of<typename score::state>;
  if constexpr (warmset::contextual_score<score>) {
    bytes += warmset::components<Bundle>(Bundle::numbers).score.context_bytes(64) / 64;
  }
  return bytes;
}

template <class Part>
bool differ(Part const& a, Part const& b) {
  static_assert(std::is_trivially_copyable_v<Part>);
  if constexpr (std::is_empty_v<Part>) {
    return false;
  } else {
    return std::memcmp(&a, &b, sizeof(Part)) != 0;
  }
}

/// Whether a number of tuning changes the policy's objects.
template <class Bundle>
bool depends_on(parameter const& one) {
  using components = warmset::components<Bundle>;
  alignas(components) unsigned char bytes[2][sizeof(components)] = {};
  warmset::tuning numbers = Bundle::numbers;
  components const& a = *::new (bytes[0]) components(numbers);
  one.set(numbers, one.of(numbers) * 2 + 1);
  components const& b = *::new (bytes[1]) components(numbers);
  return differ(a.score, b.score) || differ(a.selector, b.selector) || differ(a.guard, b.guard) ||
         differ(a.admission, b.admission);
}

template <class Bundle>
policy describe() {
  policy p{Bundle::name,
           {},
           Bundle::numbers,
           warmset::trace::traits_of<Bundle>(),
           bytes_of_score<Bundle>() + bytes_of<typename Bundle::selector::slot_state>,
           Bundle::admission::may_decline,
           Bundle::admission::may_decline && !warmset::keeps_bytes<Bundle>,
           &play_bundle<Bundle>};
  for (parameter const& each : parameters) {
    if (depends_on<Bundle>(each)) {
      p.parameters.push_back(each.name);
    }
  }
  return p;
}

/// Whether a trace holds all that the score wants to be told: no trace has the keys of an engine.
template <class Score>
consteval bool is_playable() {
  if constexpr (warmset::contextual_score<Score>) {
    return !Score::uses_supplied;
  } else {
    return true;
  }
}

template <unsigned Part, unsigned Index, class Bundle>
void append_one(std::vector<std::pair<unsigned, policy>>& to) {
  if constexpr (Index % n_parts == Part && is_playable<typename Bundle::score>()) {
    to.emplace_back(Index, describe<Bundle>());
  }
}

template <unsigned Part, class... Bundles, class... More>
void append_part(std::vector<std::pair<unsigned, policy>>& to, warmset::bundles::list<Bundles...>,
                 warmset::bundles::list<More...>) {
  constexpr unsigned n = sizeof...(Bundles);
  [&]<unsigned... I>(std::integer_sequence<unsigned, I...>) {
    (append_one<Part, I, Bundles>(to), ...);
  }
  (std::make_integer_sequence<unsigned, n>{});
  [&]<unsigned... I>(std::integer_sequence<unsigned, I...>) {
    (append_one<Part, n + I, More>(to), ...);
  }
  (std::make_integer_sequence<unsigned, sizeof...(More)>{});
}

}  // namespace detail

template <unsigned Part>
void append_bundles(std::vector<std::pair<unsigned, policy>>& to) {
  detail::append_part<Part>(to, warmset::bundles::all{}, warmset::bundles::admitting{});
}

}  // namespace warmset_tools
