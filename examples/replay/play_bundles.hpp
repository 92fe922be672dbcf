// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <type_traits>
#include <utility>

#include "policy.hpp"
#include "warmset/cache.hpp"
#include "warmset/table/bundles.hpp"

/// Replays of the bundles of the library's table, a third of them in each of play_bundles_<n>.cpp so that they are
/// compiled side by side. A new bundle needs no edit here.
namespace warmset_tools {

inline constexpr unsigned n_parts = 3;

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

/// One instantiation for replays with and without a log: these are most of what this tool costs to compile.
template <class Cache, class PoolOf>
warmset::trace::replay_report play(play_request const& request, Cache& cache, PoolOf&& pool_of) {
  std::optional<log_recorder> log;
  if (request.log != nullptr) {
    log.emplace(request);
  }
  return warmset::trace::replay(request.recording, request.which, cache,
                                [&](warmset::trace::event const& e, auto const& decision) {
                                  if (log) {
                                    log->step(e, pool_of(e.layer), decision);
                                  }
                                });
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
warmset::trace::replay_report play_bundle(play_request const& request) {
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

/// Whether a number of tuning changes the policy's objects.
template <class Bundle>
bool depends_on(warmset::u32 warmset::tuning::*member) {
  using components = warmset::components<Bundle>;
  static_assert(std::is_trivially_copyable_v<components>);
  alignas(components) unsigned char bytes[2][sizeof(components)] = {};
  warmset::tuning numbers = Bundle::numbers;
  ::new (bytes[0]) components(numbers);
  numbers.*member = numbers.*member * 2;
  ::new (bytes[1]) components(numbers);
  return std::memcmp(bytes[0], bytes[1], sizeof(components)) != 0;
}

template <class Bundle>
policy describe() {
  policy p{Bundle::name, {}, Bundle::numbers, &play_bundle<Bundle>};
  for (parameter const& each : parameters) {
    if (depends_on<Bundle>(each.member)) {
      p.parameters.push_back(each.name);
    }
  }
  return p;
}

template <unsigned Part, unsigned Index, class Bundle>
void append_one(std::vector<std::pair<unsigned, policy>>& to) {
  if constexpr (Index % n_parts == Part) {
    to.emplace_back(Index, describe<Bundle>());
  }
}

template <unsigned Part, class... Bundles>
void append_part(std::vector<std::pair<unsigned, policy>>& to, warmset::bundles::list<Bundles...>) {
  [&]<unsigned... I>(std::integer_sequence<unsigned, I...>) {
    (append_one<Part, I, Bundles>(to), ...);
  }
  (std::make_integer_sequence<unsigned, sizeof...(Bundles)>{});
}

}  // namespace detail

template <unsigned Part>
void append_bundles(std::vector<std::pair<unsigned, policy>>& to) {
  detail::append_part<Part>(to, warmset::bundles::all{});
}

}  // namespace warmset_tools
