// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <catch2/catch_test_macros.hpp>

#include <span>
#include <string>
#include <vector>

#include <kit/operations.hpp>
#include <warmset/table/bundles.hpp>
#include <warmset/table/persist.hpp>
#include <warmset/table/table.hpp>

/// Steps through a real table whose loads arrive at once.
namespace warmset::play {

template <class Bundle>
class player {
 public:
  player(u32 n_experts, u32 capacity, tuning const& numbers = Bundle::numbers)
      : table_({{layer_id{0}, n_experts, 1, {1}}}, {capacity, capacity}, numbers), arrivals_(capacity), states_(1) {}

  /// The slots of the ids' hits, and no_slot for each miss.
  std::vector<u32> step(std::span<u32 const> ids, phase in_phase = phase::decode) {
    outcome out{};
    state& s = states_.front();
    warmset::plan_demand<Bundle>(one_lane{}, table_.view(), {0, in_phase, 0}, ids.data(),
                                 static_cast<u32>(ids.size()), s.work, s.plan);
    if (!warmset::commit<Bundle>(one_lane{}, table_.view(), s.plan, out)) {
      return {};
    }
    std::vector<u32> hits;
    for (u32 i = 0; i < s.plan.n; ++i) {
      hits.push_back(s.plan.how[i] == access_kind::hit ? s.plan.slot[i] : no_slot.value);
    }
    for (u32 i = 0; i < s.plan.n_loads; ++i) {
      u32 const at = s.plan.loads[i].slot;
      arrivals_[at] = arrival::word(table_.view().generation(at), transfer::arrived);
    }
    warmset::settle<Bundle>(one_lane{}, table_.view(), arrivals_.data(), out);
    return hits;
  }
  bool hits(u32 id) { return step({&id, 1}).at(0) != no_slot.value; }
  /// Demands one after another; 'h' for each hit, '.' for each miss.
  std::string run(std::string const& letters) {
    std::string said;
    for (char const c : letters) {
      said += hits(static_cast<u32>(c - 'a')) ? 'h' : '.';
    }
    return said;
  }
  /// The residents as letters, in the order in which the walk would offer them.
  std::string order() const {
    typename Bundle::selector::walk_state walk{};
    auto const& t = table_.view();
    detail::candidate_view<Bundle> const candidates{t, 0};
    std::string said;
    for (slot_id at; (at = t.parts().selector.next(one_lane{}, candidates, walk)) != no_slot;) {
      said += static_cast<char>('a' + t.expert_index(at.value));
    }
    return said;
  }

  plan_of<Bundle> const& last_plan() const { return states_.front().plan; }
  table<Bundle>& tested() { return table_; }

 private:
  struct state {
    plan_of<Bundle> plan{};
    workspace_of<Bundle> work{};
  };
  table<Bundle> table_;
  std::vector<u32> arrivals_;
  std::vector<state> states_;
};

/// A stream of ids with popularities of 1 / rank, whose ranks drift.
inline std::vector<u32> zipf_stream(u32 n_experts, u32 length, u64 seed) {
  std::vector<double> below;
  double sum = 0;
  for (u32 rank = 1; rank <= n_experts; ++rank) {
    below.push_back(sum += 1.0 / rank);
  }
  kit::integers random(seed);
  std::vector<u32> stream;
  for (u32 i = 0; i < length; ++i) {
    double const at = static_cast<double>(random.next() >> 11) / 9007199254740992.0 * sum;
    u32 rank = 0;
    while (rank + 1 < n_experts && below[rank] < at) {
      ++rank;
    }
    stream.push_back((rank * 37 + i / 1000) % n_experts);
  }
  return stream;
}

/// Demands one by one: the table hits exactly where a textbook simulator does, which is made from a capacity
/// and has hits(id).
template <class Bundle, class Simulator>
void check_against() {
  constexpr u32 n_experts = 120;
  for (u32 const capacity : {1u, 2u, 3u, 8u, 42u, n_experts}) {
    for (u64 const seed : {1u, 2u, 3u}) {
      player<Bundle> real(n_experts, capacity);
      Simulator expected(capacity);
      u32 n_hits = 0;
      for (u32 const id : zipf_stream(n_experts, 8'000, seed)) {
        bool const hit = real.hits(id);
        REQUIRE(hit == expected.hits(id));
        n_hits += hit ? 1 : 0;
      }
      CHECK(n_hits != 0);
      CHECK(audit(real.tested().view()));
    }
  }
}

/// Misses of the stream that the figures of other simulators are quoted for.
template <class Selector>
u32 misses_on_reference_stream(u32 capacity) {
  player<bundles::of<score::lru, Selector>> real(120, capacity);
  u32 misses = 0;
  for (u32 const id : zipf_stream(120, 30'000, 5)) {
    misses += real.hits(id) ? 0 : 1;
  }
  return misses;
}

/// Audit finds what `plant` breaks in the selector's state after these demands.
template <class Bundle, class Plant>
void check_audit(std::string const& demands, Plant&& plant) {
  player<Bundle> real(8, 4);
  (void)real.run(demands);
  auto const& t = real.tested().view();
  REQUIRE(audit(t));
  plant(t);
  CHECK(audit(t).broken == invariant::A14_selector);
}

}  // namespace warmset::play
