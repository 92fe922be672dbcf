// SPDX-License-Identifier: Apache-2.0
//
// `step` carries its plan out without checking it. Two caches, one stepped and one planned and committed, hear the same
// random steps, hints, pins, resizes and endings of transfers, and must not differ in any answer, byte or counter.

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/table/bundles.hpp>

#include "support/dice.hpp"
#include "support/rounds.hpp"
#include "support/whole_cache.hpp"

namespace warmset {
namespace {

using warmset_test::bytes_of;
using warmset_test::dice;
using warmset_test::require_sound;

geometry model_of(bool one_shape) {
  std::vector<layer_geometry> layers{{layer_id{0}, 12, 3, {100}}, {layer_id{1}, 12, 3, {100}}};
  if (!one_shape) {
    layers.push_back({layer_id{3}, 70, 4, {30, 50}});
  }
  return geometry{std::move(layers)};
}

template <class T>
std::vector<T> copy_of(array_view<T const> of) {
  return {of.begin(), of.end()};
}

/// What a step answers, beyond the next call.
struct answer {
  plan_kind kind;
  reason why;
  u32 n_waves;
  std::vector<u32> experts, slots, waves;
  std::vector<access_kind> how;
  std::vector<u32> loads;

  explicit answer(step_view const& v)
      : kind(v.kind), why(v.why), n_waves(v.n_waves), experts(copy_of(v.experts)), how(copy_of(v.how)) {
    for (std::size_t i = 0; i < v.experts.size(); ++i) {
      bool const waits = how[i] == access_kind::declined || how[i] == access_kind::overflow_miss;
      slots.push_back(v.kind == plan_kind::busy ? 0 : v.slots[i]);
      waves.push_back(v.kind != plan_kind::busy && waits ? v.waves[i] : 0);
    }
    for (planned_load const& load : v.loads) {
      loads.push_back(load.expert);
      loads.push_back(load.slot);
    }
  }
  bool operator==(answer const&) const = default;
};

template <class Cache>
void require_equal(Cache& a, Cache& b) {
  REQUIRE((bytes_of(a) == bytes_of(b)));
  for (u32 pool = 0; pool < a.pools().size(); ++pool) {
    std::size_t const n = a.sites()[pool].n_words() * sizeof(u32);
    REQUIRE(std::memcmp(a.backend().arrivals(pool), b.backend().arrivals(pool), n) == 0);
  }
  for (u32 layer = 0; layer < a.model().layers().size(); ++layer) {
    for (phase const p : {phase::prefill, phase::decode}) {
      total_counters const of_a = a.observer().total(layer, p);
      total_counters const of_b = b.observer().total(layer, p);
      REQUIRE(std::memcmp(&of_a, &of_b, sizeof of_a) == 0);
    }
  }
}

template <class Policy>
void play(u64 seed, u32 n_rounds) {
  CAPTURE(Policy::score::name, Policy::selector::name, Policy::admission::name, seed);
  dice random(seed);
  constexpr u32 slot_counts[] = {1, 2, 3, 5, 8, 12, 40};
  geometry const model = model_of(Policy::pool::spans_layers);
  budget const size{0, slot_counts[(Policy::pool::spans_layers ? 3 : speculates<Policy> ? 1 : 0) + random.below(4)], 2};
  tuning numbers = Policy::numbers;
  numbers.scratch_slots = random.below(3);
  cache<Policy> stepped{model, size, numbers}, planned{model, size, numbers};
  std::vector<routed_id> ids;
  for (u32 round = 0; round < n_rounds; ++round) {
    u32 const index = random.below(static_cast<u32>(model.layers().size()));
    layer_geometry const& layer = model.layers()[index];
    auto const both = [&](auto&& f) {
      f(stepped);
      f(planned);
    };
    // most steps are of few hot experts and hit; some name padding, repetitions and what there is not, some overflow
    u32 const hot = random.below(3) == 0 ? layer.n_experts : min_of(layer.n_experts, size.slots + 1);
    u32 const n = random.below(12) == 0 ? random.below(80) : random.below(layer.k + 2);
    bool const is_odd = random.below(4) == 0;
    ids.clear();
    for (u32 i = 0; i < n; ++i) {
      routed_id const id = static_cast<routed_id>(is_odd ? random.below(layer.n_experts + 3) : random.below(hot)) -
                           (is_odd ? 2 : 0);
      bool const is_new = is_odd || std::find(ids.begin(), ids.end(), id) == ids.end();
      if (is_new) {
        ids.push_back(id);
      }
    }
    std::span<routed_id const> const asked = ids;
    std::vector<i32> keys;
    step_facts facts{random.below(5) == 0 ? phase::prefill : phase::decode, random.below(2), random.below(9)};
    if (random.below(2) == 0) {
      for (u32 x = 0; x < layer.n_experts; ++x) {
        keys.push_back(static_cast<i32>(random.below(50)));
      }
      facts.supplied = {keys.data(), keys.size()};
    }
    answer const of_step(stepped.step(layer.layer, asked, facts));
    answer const of_plan(planned.plan(layer.layer, asked, facts));
    REQUIRE(of_step == of_plan);
    if (of_plan.kind == plan_kind::step) {
      REQUIRE(planned.commit());
    } else {
      REQUIRE(answer(planned.step(layer.layer, asked, facts)) == of_step);  // a step records what was not committed
    }
    REQUIRE(stepped.commit().why == planned.commit().why);
    require_equal(stepped, planned);
    if constexpr (speculates<Policy>) {
      if (random.below(2) == 0) {
        routed_id const hints[] = {static_cast<routed_id>(random.below(layer.n_experts)),
                                   static_cast<routed_id>(random.below(layer.n_experts))};
        both([&](auto& c) { (void)c.advise(layer.layer, std::span<routed_id const>(hints)); });
      }
    }
    u32 const deed = random.below(40);
    u32 const about = random.below(layer.n_experts);
    both([&](auto& c) {
      expert_key const key{layer.layer, expert_id{about}};
      switch (deed) {
      case 0: (void)c.resize(layer.layer, 1 + about % (size.slots + 2)); break;
      case 1: (void)c.invalidate(layer.layer); break;
      case 2: (void)c.pin(key); break;
      case 3: (void)c.unpin(key); break;
      default: break;
      }
    });
    u32 const most = random.below(3);  // all transfers end, some, or none
    for (u32 pool = 0; most != 0 && pool < stepped.pools().size(); ++pool) {
      for (u32 slot = 0; slot < stepped.sites()[pool].n_words(); ++slot) {
        u32 const end = most == 2 ? 0 : random.below(4);
        both([&](auto& c) {
          if (end == 0) {
            (void)c.backend().arrived(pool, slot_id{slot});
          } else if (end == 1) {
            (void)c.backend().failed(pool, slot_id{slot});
          }
        });
      }
    }
    require_sound(stepped);
    require_sound(planned);
  }
}

template <class Policy>
void play_all() {
  for (u64 seed = 1; seed <= 4; ++seed) {
    play<Policy>(seed, rounds(200));
  }
}

}  // namespace

TEST_CASE("step is plan and commit, for every bundle", "[cache]") {
  bundles::for_each(bundles::all{}, []<class Policy>() { play_all<Policy>(); });
}

TEST_CASE("step is plan and commit, behind every admission", "[cache]") {
  bundles::for_each(bundles::admitting{}, []<class Policy>() { play_all<Policy>(); });
}

TEST_CASE("step is plan and commit, between hints and over a shared pool", "[cache]") {
  using hinted = bundles::guarded<default_policy, guard::warm_then_challenger_must_win>;
  play_all<hinted>();
  play_all<bundles::guarded<bundles::of<score::lru, select::lru_list>, guard::spare_only>>();
  play_all<bundles::shared<hinted>>();
  play_all<bundles::shared<bundles::of<score::lru, select::lru_list>>>();
}

}  // namespace warmset
