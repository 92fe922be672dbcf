// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

#include <kit/mutant_guards.hpp>
#include <kit/operations.hpp>
#include <warmset/policy/admit/concept.hpp>
#include <warmset/policy/score/concept.hpp>
#include <warmset/policy/select/concept.hpp>

/// What every model of a concept must do. Each shipped model has one short file that calls its suite.
namespace warmset::conformance {

/// A few experts of one layer and the clocks that a table would keep for them.
template <score_policy Score>
struct small_layer {
  static constexpr u32 n = 6;

  explicit small_layer(u32 first, tuning const& numbers = {})
      : score(detail::make_part<Score>(numbers)), now{first, first, first, first} {}

  void demand(u32 x, bool install) {
    ++now.tick, ++now.layer_tick, ++now.model_tick, ++now.step;
    if (install) {
      if constexpr (score_detail::has_install_hook<Score>) {
        score.on_install(state[x], now);
      }
      resident[x] = true;
    }
    score.on_demand(state[x], now);
    last[x] = now.tick;
    accessed[x] = true;
  }
  /// Other layers and other pools go on.
  void pass(u32 ticks) { now.tick += ticks, now.model_tick += 3 * ticks; }
  expert_facts facts(u32 x) const { return {last[x], accessed[x], resident[x]}; }
  u64 value(u32 x) const { return score.value(state[x], facts(x), now); }

  Score score;
  clocks now;
  typename Score::state state[n]{};
  u32 last[n]{};
  bool accessed[n]{}, resident[n]{};
};

template <score_policy Score>
void check_score() {
  using layer = small_layer<Score>;
  constexpr u32 far = 1u << 20;

  SECTION("never demanded is coldest, whatever the clocks say") {
    for (u32 const first : {0u, 1u, 300u, 0x7FFF'FFFFu, 0x8000'0000u, u32_max - 3}) {
      layer a(first);
      CHECK(a.value(0) == 0);
      a.demand(1, true);
      CHECK(a.value(1) >= a.value(0));
      if constexpr (counting_score<Score>) {
        CHECK(a.score.heat(a.state[0], a.facts(0), a.now) == 0);
        CHECK(a.score.heat(a.state[1], a.facts(1), a.now) == 1);
      }
    }
  }
  SECTION("the clocks' origin does not matter, so that they may wrap") {
    kit::integers random(21);
    layer low(far);
    layer wrapping(0u - far);
    for (u32 i = 0; i < 40'000; ++i) {
      u32 const x = random.below(layer::n) * random.below(2);
      bool const install = !low.resident[x] || random.one_in(5);
      low.demand(x, install);
      wrapping.demand(x, install);
      u32 const ticks = random.one_in(9) ? random.below(100) : 0;
      low.pass(ticks);
      wrapping.pass(ticks);
      for (u32 e = 0; e < layer::n; ++e) {
        REQUIRE(low.value(e) == wrapping.value(e));
      }
    }
  }
  SECTION("a read says the same twice, a touch never makes colder, a rebase changes no value") {
    kit::integers random(22);
    layer a(far);
    for (u32 i = 0; i < 5'000; ++i) {
      u32 const x = random.below(layer::n);
      u64 const value = a.value(x);
      REQUIRE(a.value(x) == value);
      auto touched = a;
      touched.score.on_demand(touched.state[x], touched.now);
      if (a.accessed[x]) {
        REQUIRE(touched.value(x) >= value);
      }
      if constexpr (score_detail::has_rebase_hook<Score>) {
        if (a.accessed[x]) {
          auto rebased = a;
          rebased.score.rebase(rebased.state[x], rebased.now);
          REQUIRE(rebased.value(x) == value);
        }
      }
      if constexpr (counting_score<Score>) {
        u32 const heat = a.score.heat(a.state[x], a.facts(x), a.now);
        REQUIRE(value >= heat * u64{Score::one_count});
        REQUIRE(heat <= i);
      }
      a.demand(x, !a.resident[x] || random.one_in(7));
    }
  }
  SECTION("equal histories are equal bytes") {
    if constexpr (!std::is_empty_v<typename Score::state>) {
      layer a(far);
      layer b(far);
      for (u32 i = 0; i < 200; ++i) {
        a.demand(i % 5, i % 3 == 0);
        b.demand(i % 5, i % 3 == 0);
      }
      CHECK(std::memcmp(a.state, b.state, sizeof a.state) == 0);
    }
  }
}

/// A pool of slots as a selector sees it, with an LRU key; slot s holds one of the experts s and n + s.
template <class Selector>
struct small_pool {
  explicit small_pool(u32 n) : last(n), second(n), held(n), blocked(n), own(n), experts(2 * n) {}

  u32 size() const { return static_cast<u32>(last.size()); }
  bool evictable(u32 s) const { return held[s] && !blocked[s]; }
  void lower_to(u32 s, order_key& best) const {
    lower(best, eviction_key(u32_max - (tick - last[s]), true, tick - last[s], s));
  }
  auto& selector_pool() const { return pool; }
  auto& selector_slot(u32 s) const { return own[s]; }
  auto& selector_expert(u32 index) const { return experts[index]; }
  u32 expert_index(u32 s) const { return second[s] ? size() + s : s; }
  u32 expert_count() const { return 2 * size(); }

  u32 tick = 0;
  std::vector<u32> last;
  std::vector<u8> second, held, blocked;
  mutable typename Selector::pool_state pool{};
  mutable std::vector<typename Selector::slot_state> own;
  mutable std::vector<typename Selector::expert_state> experts;
};

/// What the optional hooks do is what the hooks do for which they stand: a step of hits and of experts that replace others,
/// played on two copies of the pool.
template <class Selector>
void check_optional_hooks(small_pool<Selector> const& before, kit::integers& random) {
  Selector const selector{};
  std::vector<u32> touched;  // different slots
  std::vector<u8> replaced;
  for (u32 s = 0; s < before.size(); ++s) {
    if (random.one_in(2)) {
      u32 const at = random.below(static_cast<u32>(touched.size()) + 1);
      touched.insert(touched.begin() + at, s);
      replaced.insert(replaced.begin() + at, before.held[s] && random.one_in(2));
    }
  }
  if (touched.empty()) {
    return;
  }
  u32 const n = static_cast<u32>(touched.size());
  small_pool<Selector> one = before;
  small_pool<Selector> other = before;
  for (u32 i = 0; i < n; ++i) {
    u32 const s = touched[i];
    if (replaced[i]) {
      selector.on_remove(one, s);
      if constexpr (select_detail::has_replace_hook<Selector>) {
        selector.on_replace(other, s);
      } else {
        selector.on_remove(other, s);
      }
    }
  }
  for (small_pool<Selector>* pool : {&one, &other}) {
    for (u32 i = 0; i < n; ++i) {
      u32 const s = touched[i];
      pool->second[s] = replaced[i] || !pool->held[s] ? pool->second[s] ^ 1 : pool->second[s];
      pool->held[s] = 1;
      pool->last[s] = ++pool->tick;
    }
  }
  for (u32 s : touched) {
    selector.on_touch(one, s);
  }
  if constexpr (select_detail::has_touches_hook<Selector>) {
    std::vector<u32> asked;
    selector.on_touches(other, n, [&](u32 i) {
      asked.push_back(i);
      return touched[i];
    });
    REQUIRE(asked.size() == n);
    REQUIRE(std::is_sorted(asked.begin(), asked.end()));
  } else {
    for (u32 s : touched) {
      selector.on_touch(other, s);
    }
  }
  if constexpr (!std::is_empty_v<typename Selector::slot_state>) {
    REQUIRE(std::memcmp(one.own.data(), other.own.data(), one.size() * sizeof one.own[0]) == 0);
  }
  if constexpr (!std::is_empty_v<typename Selector::pool_state>) {
    REQUIRE(std::memcmp(&one.pool, &other.pool, sizeof one.pool) == 0);
  }
  if constexpr (!std::is_empty_v<typename Selector::expert_state>) {
    REQUIRE(std::memcmp(one.experts.data(), other.experts.data(), one.experts.size() * sizeof one.experts[0]) == 0);
  }
}

/// @param ordered  the selector walks in the order of the keys, least recently used first
template <selector_policy Selector>
void check_selector(bool ordered) {
  kit::integers random(31);
  Selector const selector{};
  for (u32 const n : {1u, 2u, 3u, 4u, 8u, 42u}) {
    small_pool<Selector> pool(n);
    for (u32 i = 0; i < 600; ++i) {
      u32 const s = random.below(n);
      if (pool.held[s] && random.one_in(4)) {
        selector.on_remove(pool, s);
        pool.held[s] = 0;
      } else {
        pool.second[s] = pool.held[s] ? pool.second[s] : random.one_in(2);
        pool.held[s] = 1;
        pool.last[s] = ++pool.tick;
        selector.on_touch(pool, s);
      }
      pool.blocked[random.below(n)] = random.one_in(5);
      check_optional_hooks(pool, random);
      if (random.one_in(3)) {  // some are offered, and the last of them goes
        typename Selector::walk_state walk{};
        slot_id victim = no_slot;
        for (u32 left = 1 + random.below(4); left != 0; --left) {
          slot_id const at = selector.next(one_lane{}, pool, walk);
          victim = at != no_slot ? at : victim;
        }
        selector.apply(pool, walk);
        if (victim != no_slot) {
          selector.on_remove(pool, victim.value);
          pool.held[victim.value] = 0;
        }
      }

      // the walk: every candidate once, then no_slot for ever; the pool is not written
      auto const before = pool.own;
      auto const pool_before = pool.pool;
      typename Selector::walk_state walk{};
      std::vector<u32> order;
      for (slot_id at = selector.next(one_lane{}, pool, walk); at != no_slot;
           at = selector.next(one_lane{}, pool, walk)) {
        order.push_back(at.value);
        REQUIRE(order.size() <= n);
        REQUIRE(pool.evictable(at.value));
      }
      REQUIRE(selector.next(one_lane{}, pool, walk) == no_slot);
      std::vector<u32> expected;
      for (u32 c = 0; c < n; ++c) {
        if (pool.evictable(c)) {
          expected.push_back(c);
        }
      }
      if (ordered) {
        std::sort(expected.begin(), expected.end(), [&](u32 a, u32 b) { return pool.last[a] < pool.last[b]; });
      } else {
        std::sort(order.begin(), order.end());
      }
      REQUIRE(order == expected);
      if constexpr (!std::is_empty_v<typename Selector::slot_state>) {
        REQUIRE(std::memcmp(before.data(), pool.own.data(), n * sizeof pool.own[0]) == 0);
      }
      if constexpr (!std::is_empty_v<typename Selector::pool_state>) {
        REQUIRE(std::memcmp(&pool_before, &pool.pool, sizeof pool_before) == 0);
      }
      if constexpr (requires { selector.consistent(pool, n, [](u32) { return true; }); }) {
        REQUIRE(selector.consistent(pool, n, [&](u32 c) { return pool.held[c] != 0; }));
      }
    }
  }
}

/// The guard keeps its rule at every boundary, and says the same twice.
template <guard_policy Guard, class Rule>
void check_guard(Rule&& rule) {
  CHECK(kit::disagreements(Guard{}, rule).empty());
  for (duel const& d : kit::boundary_duels()) {
    REQUIRE(Guard{}.permits(d) == Guard{}.permits(d));
    if (Guard::keeps_reserve && !d.victim_spare) {
      REQUIRE_FALSE(Guard{}.permits(d));  // the reserve rests on this
    }
    if (!Guard::needs_heat) {
      duel other = d;
      other.victim_heat = 7;
      other.victim_score = 1;
      other.challenger_score = 2;
      REQUIRE(Guard{}.permits(d) == Guard{}.permits(other));
    }
  }
}

template <admission_policy Admission>
void check_admission(tuning const& numbers = {}) {
  auto const admission = detail::make_part<Admission>(numbers);
  kit::integers random(41);
  for (u32 i = 0; i < 1'000; ++i) {
    admission_question q{};
    q.score = random.next();
    q.expert_bytes = 1 + random.below(50);
    q.age = random.below(1000);
    q.installs = random.below(5);
    q.misses = q.installs + 1 + random.below(5);
    q.free_slots = random.below(3);
    q.accessed = random.one_in(2);
    q.in_phase = random.one_in(2) ? phase::decode : phase::prefill;
    bool const answer = admission.admits(q);
    REQUIRE(admission.admits(q) == answer);
    if (!Admission::may_decline) {
      REQUIRE(answer);
    }
    if constexpr (admit_detail::recent_first<Admission>) {
      static_assert(Admission::may_decline);
    }
    if constexpr (admit_detail::compares<Admission>) {
      static_assert(Admission::may_decline);
      admission_step const s{random.below(2000), q.in_phase};
      REQUIRE(admission.compares_in(s) == admission.compares_in(s));
      replacement_question r{random.below(4), random.below(4), random.below(4), random.below(4)};
      bool const replaces = admission.replaces(r);
      REQUIRE(admission.replaces(r) == replaces);
      // a hotter challenger is never worse off
      ++r.challenger_score;
      ++r.challenger_heat;
      REQUIRE(admission.replaces(r) >= replaces);
    }
  }
}

}  // namespace warmset::conformance
