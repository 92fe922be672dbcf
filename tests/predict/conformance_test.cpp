// SPDX-License-Identifier: Apache-2.0
// What every predictor owes, whatever its rule: one suite over all that are named.

#include <catch2/catch_test_macros.hpp>

#include <limits>
#include <string>
#include <vector>

#include <warmset/predict/named.hpp>
#include <warmset/predict/supplied.hpp>

#include "support/count_allocations.hpp"
#include "support/dice.hpp"

using namespace warmset;

namespace {

/// Unequal layers with holes in their numbering, as models have them.
geometry uneven() {
  return geometry{{{layer_id{1}, 16, 2, {64}},
                   {layer_id{2}, 1, 1, {64}},
                   {layer_id{5}, 40, 4, {64}},
                   {layer_id{9}, 16, 2, {64}}}};
}

using warmset_test::dice;

/// Routed steps with everything that a snapshot can have, and now and then what it should not.
class steps {
 public:
  explicit steps(geometry const& g, u64 seed) : g_(g), random_(seed), activation_(48) {}

  routing_snapshot next() {
    layer_geometry const& layer = g_.layers()[row_];
    layer_geometry const& there = g_.layers()[(row_ + 1) % g_.layers().size()];
    experts_.clear();
    u32 const n = random_.below(8) == 0 ? random_.below(layer.n_experts + 1) : layer.k;
    for (u32 i = 0; i < n; ++i) {
      u32 const e = random_.below(layer.n_experts);
      if (!predict::detail::contains(experts_, e)) {
        experts_.push_back(e);
      }
    }
    for (float& a : activation_) {
      a = static_cast<float>(random_.below(2001)) - 1000;
    }
    logits_.clear();
    lookahead_.clear();
    for (u32 e = 0; e < there.n_experts; ++e) {
      logits_.push_back(static_cast<float>(random_.below(100)) - 50);
    }
    for (u32 i = 0; i < 6; ++i) {  // padding, ids of no expert, repetitions
      lookahead_.push_back(static_cast<routed_id>(random_.below(there.n_experts + 3)) - 1);
    }
    routing_snapshot s;
    s.layer = layer.layer;
    s.row = row_;
    s.in_phase = random_.below(10) == 0 ? phase::prefill : phase::decode;
    s.sequence = random_.below(5);
    s.token = random_.below(4) == 0 ? routing_snapshot::no_token : random_.below(300);
    s.experts = experts_;
    switch (random_.below(4)) {
    case 0:
      break;
    case 1:
      s.logits = logits_;
      s.activation = activation_;
      break;
    case 2:
      s.lookahead = lookahead_;
      break;
    default:
      s.activation = activation_;
      s.lookahead = lookahead_;
    }
    row_ = (row_ + 1) % static_cast<u32>(g_.layers().size());
    return s;
  }

 private:
  geometry const& g_;
  dice random_;
  u32 row_ = 0;
  std::vector<u32> experts_;
  std::vector<float> activation_, logits_;
  std::vector<routed_id> lookahead_;
};

template <class P>
void tell(P& p, u32 row, geometry const& g, u64 i) {
  if constexpr (predict::is_told<P>) {
    u32 const future[] = {static_cast<u32>(i % g.layers()[row].n_experts)};
    p.tell(row, future);
  }
}

bool same(hint a, hint b) {
  return a.layer == b.layer && a.expert == b.expert && a.rank == b.rank &&
         a.confidence == b.confidence;
}

/// Everything that a predictor says over a number of steps.
template <class P>
std::vector<hint> said(P& p, geometry const& g, u32 n_steps, u32 width) {
  std::vector<hint> all;
  std::vector<hint> out(80);
  steps routed(g, 7);
  p.open(g);
  for (u32 i = 0; i < n_steps; ++i) {
    routing_snapshot const s = routed.next();
    p.learn(s);
    tell(p, (s.row + P::horizon) % static_cast<u32>(g.layers().size()), g, i);
    u32 const n = p.predict(s, width, out);
    all.insert(all.end(), out.begin(), out.begin() + n);
  }
  return all;
}

}  // namespace

TEST_CASE("predictors: names are unique, and the engine's own hints need none of this") {
  std::vector<std::string> names;
  predict::for_each(predict::named{}, [&]<class P>() { names.push_back(P::name); });
  for (std::size_t i = 0; i < names.size(); ++i) {
    CHECK(!names[i].empty());
    for (std::size_t j = 0; j < i; ++j) {
      CHECK(names[i] != names[j]);
    }
  }
  CHECK(names.size() == predict::named::size);
  CHECK(std::string(predict::transition<1>::name) == "transition");
  CHECK(std::string(predict::transition<2>::name) == "transition_2");
  CHECK(std::string(predict::oracle<12>::name) == "oracle_12");
  STATIC_CHECK(predictor_kind<predict::supplied>);
  STATIC_CHECK(!predictor<predict::supplied>);
}

TEST_CASE(
    "predictors: hints name distinct experts of the layer ahead, surest first, within the width") {
  geometry const g = uneven();
  predict::for_each(predict::named{}, [&]<class P>() {
    INFO(P::name);
    u32 const n_rows = static_cast<u32>(g.layers().size());
    u64 n_hints = 0;
    for (u32 const width : {0u, 1u, 2u, 3u, 4u, 8u, 42u, 64u, 1000u}) {
      for (u32 const room : {0u, 1u, 5u, 80u}) {
        P p;
        p.open(g);
        steps routed(g, width + 1);
        std::vector<hint> out(room + 1, hint{{77}, -7, 7, 7});
        for (u32 i = 0; i < 120; ++i) {
          routing_snapshot const s = routed.next();
          p.learn(s);
          u32 const row = (s.row + P::horizon) % n_rows;
          tell(p, row, g, i);
          u32 const n = p.predict(s, width, {out.data(), room});
          n_hints += n;
          REQUIRE(n <= width);
          REQUIRE(n <= room);
          REQUIRE(n <= g.layers()[row].n_experts);
          REQUIRE(out[room].expert == -7);  // nothing is written behind the room
          for (u32 j = 0; j < n; ++j) {
            REQUIRE(out[j].layer == g.layers()[row].layer);
            REQUIRE(out[j].expert >= 0);
            REQUIRE(static_cast<u32>(out[j].expert) < g.layers()[row].n_experts);
            REQUIRE(out[j].rank == j);
            REQUIRE((j == 0 || out[j].confidence <= out[j - 1].confidence));
            for (u32 i2 = 0; i2 < j; ++i2) {
              REQUIRE(out[i2].expert != out[j].expert);
            }
          }
        }
      }
    }
    CHECK((n_hints != 0) == P::speculates);
  });
}

TEST_CASE("predictors: the same steps are the same hints, also after open") {
  geometry const g = uneven();
  predict::for_each(predict::named{}, [&]<class P>() {
    INFO(P::name);
    P a, b;
    std::vector<hint> const first = said(a, g, 300, 4);
    std::vector<hint> const second = said(b, g, 300, 4);
    std::vector<hint> const opened_again = said(a, g, 300, 4);
    REQUIRE(first.size() == second.size());
    REQUIRE(first.size() == opened_again.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
      REQUIRE(same(first[i], second[i]));
      REQUIRE(same(first[i], opened_again[i]));
    }
  });
}

TEST_CASE("predictors: hints that were given change nothing, nor does how often it is asked") {
  geometry const g = uneven();
  predict::for_each(predict::named{}, [&]<class P>() {
    INFO(P::name);
    P often, once;
    often.open(g);
    once.open(g);
    steps routed(g, 3);
    std::vector<hint> out(64), mine(64);
    for (u32 i = 0; i < 300; ++i) {
      routing_snapshot const s = routed.next();
      often.learn(s);
      once.learn(s);
      u32 const row = (s.row + P::horizon) % static_cast<u32>(g.layers().size());
      tell(often, row, g, i);
      tell(once, row, g, i);
      for (u32 width : {1u, 64u, 3u}) {
        (void)often.predict(s, width, out);
      }
      if (i % 10 == 9) {
        u32 const n = once.predict(s, 8, mine);
        REQUIRE(often.predict(s, 8, out) == n);
        for (u32 j = 0; j < n; ++j) {
          REQUIRE(same(out[j], mine[j]));
        }
      }
    }
  });
}

TEST_CASE("predictors: a narrower call is the start of a wider one") {
  geometry const g = uneven();
  predict::for_each(predict::named{}, [&]<class P>() {
    INFO(P::name);
    P p;
    p.open(g);
    steps routed(g, 11);
    hint wide[64], narrow[64];
    for (u32 i = 0; i < 200; ++i) {
      routing_snapshot const s = routed.next();
      p.learn(s);
      tell(p, (s.row + P::horizon) % static_cast<u32>(g.layers().size()), g, i);
      u32 const n = p.predict(s, 64, wide);
      u32 const m = p.predict(s, 2, narrow);
      REQUIRE(m == (n < 2 ? n : 2));
      for (u32 j = 0; j < m; ++j) {
        REQUIRE(same(wide[j], narrow[j]));
      }
    }
  });
}

TEST_CASE("predictors: nothing is allocated after open") {
  geometry const g = uneven();
  predict::for_each(predict::named{}, [&]<class P>() {
    P p;
    p.open(g);
    steps routed(g, 5);
    hint out[64];
    (void)routed.next();
    unsigned long during = 0;
    for (u32 i = 0; i < 400; ++i) {
      routing_snapshot const s = routed.next();
      unsigned long const before = warmset_test::n_allocations();
      p.learn(s);
      tell(p, (s.row + P::horizon) % 4, g, i);
      (void)p.predict(s, 16, out);
      during += warmset_test::n_allocations() - before;
    }
    INFO(P::name);
    CHECK(during == 0);
  });
}

TEST_CASE("predictors: rows, experts and numbers that are none are passed over") {
  geometry const g = uneven();
  predict::for_each(predict::named{}, [&]<class P>() {
    INFO(P::name);
    P p;
    hint out[64];
    routing_snapshot s;
    CHECK(p.predict(s, 4, out) == 0);  // not open
    p.learn(s);
    p.open(g);
    u32 const strange[] = {3, 4'000'000'000u, 16, 2};
    float const nothing[] = {std::numeric_limits<float>::quiet_NaN(),
                             std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(), 1e38f};
    routed_id const ids[] = {-1, 1000, -5, std::numeric_limits<routed_id>::max()};
    for (u32 row = 0; row < 6; ++row) {
      s.row = row;
      s.experts = strange;
      s.activation = nothing;
      s.logits = nothing;
      s.lookahead = ids;
      p.learn(s);
      u32 const n = p.predict(s, 64, out);
      for (u32 i = 0; i < n; ++i) {
        layer_geometry const* const layer = g.find(out[i].layer);
        REQUIRE(layer != nullptr);
        REQUIRE(static_cast<u32>(out[i].expert) < layer->n_experts);
      }
      CHECK((row < 4 || n == 0));
    }
  });
}
