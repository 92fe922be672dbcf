// SPDX-License-Identifier: Apache-2.0
// How much of what a layer uses is predicted, on real traces. `warmset_test_predict "predictor figures*" -s` prints
// the figures of docs/predict.md.

#include "../trace/successor_figures.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <warmset/cache.hpp>
#include <warmset/policy/score/lru.hpp>
#include <warmset/predict/named.hpp>
#include <warmset/trace/recall.hpp>

using namespace trace_test;
using Catch::Matchers::WithinAbs;

namespace {

constexpr char const* gpt_oss_tokens = "raw/gpt-oss-20b-ExpertFingerprinting/meta.json.zst";

/// Transition tables as the published figures have them: the mean of P(x | c), and with decayed heat the two mixed.
/// Written down without the library's parts; layers of up to 32 experts.
template <u32 Horizon>
struct mean_transition {
  static constexpr bool speculates = true;
  static constexpr char const* name = "mean_transition";
  static constexpr u32 horizon = Horizon;

  explicit mean_transition(double heats = 0) : heat_share(heats) {}

  double const kept = std::exp2(-1. / 16);
  double heat_share;
  u32 rows = 0, n = 0;
  std::vector<double> pairs, seen, heat;
  std::vector<std::vector<u32>> last;
  std::vector<layer_id> layers;

  void open(geometry const& model) {
    rows = static_cast<u32>(model.layers().size());
    n = model.layers()[0].n_experts;
    pairs.assign(rows * n * n, 0);
    seen.assign(rows * n, 0);
    heat.assign(rows * n, 0);
    last.assign(rows, {});
    layers.clear();
    for (layer_geometry const& layer : model.layers()) {
      layers.push_back(layer.layer);
    }
  }
  void learn(routing_snapshot const& s) noexcept {
    if (s.row >= Horizon) {
      for (u32 c : last[s.row - Horizon]) {
        seen[s.row * n + c] += 1;
        for (u32 x : s.experts) {
          pairs[(s.row * n + c) * n + x] += 1;
        }
      }
    }
    for (u32 x = 0; x < n; ++x) {
      heat[s.row * n + x] *= kept;
    }
    for (u32 x : s.experts) {
      heat[s.row * n + x] += 1 - kept;
    }
    last[s.row].assign(s.experts.begin(), s.experts.end());
  }
  u32 predict(routing_snapshot const& s, u32 width, array_view<hint> out) const noexcept {
    u32 const row = s.row + Horizon;
    std::array<std::pair<double, u32>, 32> worth;
    for (u32 x = 0; x < n; ++x) {
      double sum = 0;
      for (u32 c : s.experts) {
        sum += pairs[(row * n + c) * n + x] / (seen[row * n + c] + 1);
      }
      sum /= static_cast<double>(s.experts.size());
      worth[x] = {-(1 - heat_share) * sum - heat_share * heat[row * n + x], x};
    }
    std::partial_sort(worth.begin(), worth.begin() + width, worth.begin() + n);
    for (u32 i = 0; i < width; ++i) {
      out[i] = {layers[row], static_cast<routed_id>(worth[i].second), static_cast<u16>(i), 0};
    }
    return width;
  }
};

struct halves {
  trace::selection first, second;
};
/// By sequence number.
halves halved(u32 n_sequences) {
  halves h;
  h.first.sequences = h.second.sequences = trace::selection::rule::range;
  h.first.last = n_sequences / 2 - 1;
  h.second.first = n_sequences / 2;
  return h;
}

template <class P>
trace::recall_counts tested(trace::recording const& r, halves const& h, P predictor,
                            trace::recall_options options = {.first_row = 2}) {
  predictor.open(r.geometry());
  trace::teach(r, h.first, predictor);
  return trace::recall_of(r, h.second, predictor, options);
}

/// What two prefetches a layer would cover of the misses of an LRU that goes without them.
struct coverage {
  u64 misses = 0, issued = 0, covered = 0;
};

struct lru_policy : default_policy {
  using score = warmset::score::lru;
};

template <class P>
coverage cover(trace::recording const& r, trace::selection const& which, P& predictor, u32 slots,
               u32 most) {
  cache<lru_policy, move::immediate> pool(r.geometry(), budget::of_slots(slots));
  std::vector<std::vector<u32>> hinted(r.geometry().layers().size());
  coverage c;
  trace::routed_steps(r, which).for_each(
      1, [&](trace::event const& e, routing_snapshot const& seen, auto) {
        if (e.row >= 2) {
          c.issued += hinted[e.row].size();
          for (u32 x : seen.experts) {
            bool const missing = !pool.is_resident({e.layer, {x}});
            c.misses += missing ? 1 : 0;
            c.covered += missing && predict::detail::contains(hinted[e.row], x) ? 1 : 0;
          }
        }
        (void)pool.step(e.layer, seen.experts);
        pool.settle();  // what it loaded is there
        predictor.learn(seen);
        hint hints[64];
        if (e.row + 1 < hinted.size()) {
          u32 const n = predictor.predict(seen, 32, hints);
          hinted[e.row + 1].clear();
          for (u32 i = 0; i < n && hinted[e.row + 1].size() < most; ++i) {
            if (!pool.is_resident({hints[i].layer, {static_cast<u32>(hints[i].expert)}})) {
              hinted[e.row + 1].push_back(static_cast<u32>(hints[i].expert));
            }
          }
        }
      });
  return c;
}

double part(u64 a, u64 b) {
  return static_cast<double>(a) / static_cast<double>(b);
}

}  // namespace

TEST_CASE("predictor figures: gpt-oss-20b, recall of 4") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, gpt_oss_20b);
  trace::recording const r = read_trace_file(*path);
  halves const h = halved(160);
  constexpr trace::recall_options frozen{.first_row = 2, .learns = false};

  SECTION("what others measured, by their rules") {
    CHECK_THAT(tested(r, h, predict::previous_step<>{}).recall(), WithinAbs(.45, .005));
    CHECK_THAT(tested(r, h, mean_transition<1>{}, frozen).recall(), WithinAbs(.59, .01));
    CHECK_THAT(tested(r, h, mean_transition<2>{}, frozen).recall(), WithinAbs(.57, .01));
    CHECK_THAT(tested(r, h, mean_transition<1>{.3}).recall(), WithinAbs(.62, .01));
  }
  SECTION("what ships") {
    CHECK_THAT(tested(r, h, predict::transition<1>{}).recall(), WithinAbs(.676, .003));
    CHECK_THAT(tested(r, h, predict::transition<2>{}).recall(), WithinAbs(.661, .003));
    CHECK_THAT(tested(r, h, predict::random<>{}).recall(), WithinAbs(.125, .002));
    CHECK(tested(r, h, predict::oracle<>{}).recall() == 1);
    CHECK(tested(r, h, predict::adversarial<>{}).came_true == 0);
  }
}

TEST_CASE("predictor figures: gpt-oss-20b, tokens") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, gpt_oss_20b);
  REQUIRE_TRACE(tokens, gpt_oss_tokens);
  std::vector<std::byte> const list = warmset_tools::read_file(*tokens);
  trace::recording const r = trace::with_tokens(read_trace_file(*path), trace::text_of(list));
  halves const h = halved(160);
  CHECK_THAT(tested(r, h, predict::token_table<>{}, {.first_row = 2, .learns = false}).recall(),
             WithinAbs(.53, .01));
  CHECK_THAT(tested(r, h, predict::token_table<>{}).recall(), WithinAbs(.641, .005));
}

TEST_CASE("predictor figures: gpt-oss-20b, misses covered under LRU") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, gpt_oss_20b);
  trace::recording const r = read_trace_file(*path);
  halves const h = halved(160);
  auto const covers = [&](auto predictor) {
    predictor.open(r.geometry());
    trace::teach(r, h.first, predictor);
    return cover(r, h.second, predictor, 8, 2);
  };
  SECTION("what others measured") {
    coverage const c = covers(mean_transition<1>{.3});
    CHECK_THAT(part(c.covered, c.misses), WithinAbs(.51, .02));
    CHECK_THAT(part(c.covered, c.issued), WithinAbs(.33, .02));
  }
  SECTION("what ships") {
    coverage const c = covers(predict::transition<1>{});
    CHECK_THAT(part(c.covered, c.misses), WithinAbs(.567, .005));
    CHECK_THAT(part(c.covered, c.issued), WithinAbs(.374, .005));
  }
}

TEST_CASE("predictor figures: gpt-oss-20b, how often hints come true by their confidence") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, gpt_oss_20b);
  trace::recording const r = read_trace_file(*path);
  halves const h = halved(160);
  trace::selection sample = h.second;
  sample.last = sample.first + 19;
  predict::transition<1> predictor;
  predictor.open(r.geometry());
  trace::teach(r, h.first, predictor);
  std::array<u64, 10> hinted{}, came_true{};  // by tenths of confidence
  trace::routed_steps(r, sample).for_each(
      1, [&](trace::event const& e, routing_snapshot const& seen, array_view<u32 const> next) {
        predictor.learn(seen);
        if (e.row < 1 || e.row + 1 >= r.geometry().layers().size() || next.empty()) {
          return;
        }
        hint hints[32];
        u32 const n = predictor.predict(seen, 32, hints);
        for (u32 i = 0; i < n; ++i) {
          std::size_t const tenth = hints[i].confidence * std::size_t{10} / 65536;
          ++hinted[tenth];
          came_true[tenth] +=
              predict::detail::contains(next, static_cast<u32>(hints[i].expert)) ? 1 : 0;
        }
      });
  double const expected[] = {.02, .15, .25, .35, .45, .56, .68, .79, .90, .94};
  for (std::size_t tenth = 0; tenth < 10; ++tenth) {
    INFO("confidence from " << tenth << " tenths on");
    CHECK_THAT(part(came_true[tenth], hinted[tenth]), WithinAbs(expected[tenth], .006));
  }
}

TEST_CASE("predictor figures: tinymoe-12x64, recall of 8") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, tinymoe_12x64);
  trace::recording const r = read_trace_file(*path);
  halves const h = halved(62);
  CHECK_THAT(tested(r, h, predict::transition<1>{}).recall(), WithinAbs(.506, .001));
  CHECK_THAT(tested(r, h, predict::transition<2>{}).recall(), WithinAbs(.497, .001));
  CHECK_THAT(tested(r, h, predict::previous_step<>{}).recall(), WithinAbs(.341, .001));
}

TEST_CASE("predictor figures: tinymoe-12x64, the next layer's router") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, tinymoe_12x64);
  trace::recording const r = read_trace_file(*path);
  struct figure {
    u32 width;
    double precision, recall;
  };
  for (figure f : {figure{4, .937, .468},
                   {6, .876, .657},
                   {8, .792, .792},
                   {10, .697, .871},
                   {12, .610, .916}}) {
    predict::router_lookahead<> predictor;
    predictor.open(r.geometry());
    trace::recall_counts const c =
        trace::recall_of(r, {}, predictor, {.width = f.width, .first_row = 1});
    CHECK_THAT(c.precision(), WithinAbs(f.precision, .001));
    CHECK_THAT(c.recall(), WithinAbs(f.recall, .001));
  }
}
