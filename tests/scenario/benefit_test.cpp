// SPDX-License-Identifier: Apache-2.0
// Speculation that costs more than it saves: prefill, doubled bytes, hints that are too far ahead.

#include <algorithm>
#include <random>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/cache.hpp>
#include <warmset/observe/laws.hpp>
#include <warmset/predict/named.hpp>
#include <warmset/table/bundles.hpp>
#include <warmset/trace/speculative_replay.hpp>

namespace warmset::scenario {
namespace {

constexpr u64 expert_bytes = 1'000'000;
constexpr trace::link_numbers usual_link{1'000'000'000, 0, 0,
                                         500'000};  // an expert takes a millisecond

/// Random routes: `hot` of the experts of each layer are used in four of five places.
trace::recording routes(u32 layers, u32 experts, u32 k, u32 prompt, u32 decoded, u32 hot,
                        u64 seed) {
  std::mt19937_64 random{seed};
  trace::contents c;
  c.geometry = geometry::uniform(layers, experts, k, expert_bytes);
  for (phase p : {phase::prefill, phase::decode}) {
    trace::block b;
    b.phase = p;
    b.first_position = p == phase::prefill ? 0 : prompt;
    b.n_rows = layers;
    b.n_steps = p == phase::prefill ? prompt : decoded;
    b.k = k;
    if (b.n_steps == 0) {
      continue;
    }
    c.blocks.push_back(b);
    for (u32 i = 0; i < b.n_steps * layers; ++i) {
      std::vector<u16> ids;
      while (ids.size() < k) {
        u16 const id = static_cast<u16>(random() % 5 != 0 ? random() % hot : random() % experts);
        if (std::find(ids.begin(), ids.end(), id) == ids.end()) {
          ids.push_back(id);
        }
      }
      c.ids.insert(c.ids.end(), ids.begin(), ids.end());
    }
  }
  return trace::recording(std::move(c));
}

struct hinted : bundles::guarded<bundles::of<score::lru>, guard::none> {};

struct outcome_of {
  trace::speculative_report report;
  total_counters sum;

  u64 bytes() const { return report.traffic[0].bytes + report.traffic[1].bytes; }
  u64 useful_hits() const { return sum.hits().value; }
};

template <class Bundle, class Predictor>
outcome_of play(trace::recording const& r, u32 slots, trace::speculation const& how,
                trace::link_numbers link = usual_link, Predictor predictor = Predictor()) {
  tuning numbers;
  numbers.speculative_slots = speculates<Bundle> ? std::min(how.width, slots - 1) : 0;
  cache<Bundle, trace::link_backend> c{r.geometry(), budget::of_slots(slots), numbers,
                                       trace::link_backend{link}};
  outcome_of o{trace::replay_speculatively(r, {}, c, predictor, how), {}};
  o.sum = c.observer().total();
  CHECK(c.audit());
  CHECK(check_laws(o.sum, c.slot_counts()));
  return o;
}

}  // namespace

TEST_CASE("B89 prefill speculates 122,327 slabs and uses 3.9 % of them") {
  trace::recording const r = routes(8, 64, 4, 800, 50, 40, 1);
  trace::speculation how;
  how.width = 4;
  SECTION("off by default: not one hint in a prompt, and none is computed") {
    for (bool governed : {true, false}) {
      how.governed = governed;
      trace::selection prompt;
      prompt.decode = false;
      tuning numbers;
      numbers.speculative_slots = 4;
      cache<hinted, trace::link_backend> c{r.geometry(), budget::of_slots(16), numbers,
                                           trace::link_backend{usual_link}};
      predict::transition<1> predictor;
      trace::speculative_report const report =
          trace::replay_speculatively(r, prompt, c, predictor, how);
      CHECK(report.asked == 8 * 800);
      CHECK(report.predicted == 0);
      CHECK(c.observer().total().issued[1].value == 0);
      CHECK(report.traffic[1].bytes == 0);
    }
    gate::governor g;
    CHECK(g.ask(phase::prefill, u64_max, 1).why == reason::in_prefill);
    CHECK(g.state() == gate::governor_state::sampling);  // a prompt teaches it nothing
  }
  SECTION("on, the waste cap stops it") {
    how.numbers.in_prefill = true;
    how.governed = false;
    outcome_of const wild = play<hinted, predict::random<>>(r, 16, how);
    CHECK(trace::precision_of(wild.sum) < .2);
    CHECK(wild.sum.issued[1].value > 8'000);
    how.governed = true;
    outcome_of const governed = play<hinted, predict::random<>>(r, 16, how);
    CHECK(governed.report.governor.stops() != 0);
    CHECK(governed.sum.issued[1].value * 20 < wild.sum.issued[1].value);
  }
  SECTION("S (1 - p) > slack for w windows in a row stops it, for w - 1 it does not") {
    for (u32 w : {1u, 2u, 5u}) {
      gate::governor_numbers n;
      n.in_prefill = true;
      n.bad_windows = w;
      gate::governor g(n);
      for (u32 i = 0; i < n.min_samples; ++i) {
        (void)g.ask(phase::prefill, 100, 100);
        g.judge(i % 2, 1 - i % 2, 0);
      }
      REQUIRE(g.state() == gate::governor_state::open);
      auto const window = [&](u64 issued) {
        for (u32 i = 0; i < n.window_steps; ++i) {
          (void)g.ask(phase::prefill, 100, 100);
          g.issued(issued);
        }
      };
      (void)g.ask(phase::prefill, 100, 100);
      for (u32 i = 0; i + 1 < w; ++i) {
        window(300);  // half of it wasted: 150 a step of 100
      }
      window(150);  // and one that pays
      for (u32 i = 0; i + 1 < w; ++i) {
        window(300);
      }
      CHECK(g.state() == gate::governor_state::open);
      window(300);
      window(300);
      (void)g.ask(phase::prefill, 100, 100);
      CHECK(g.state() == gate::governor_state::stopped);
      CHECK(g.why() == reason::not_paying);
    }
  }
}

TEST_CASE("B91 speculation doubles the bytes at a flat hit rate") {
  trace::recording const r = routes(8, 64, 4, 0, 1500, 24, 2);
  trace::speculation how;
  how.width = 4;
  trace::link_numbers link = usual_link;
  link.compute_ns = 10'000'000;  // the link has time for everything: only the bytes tell
  outcome_of const without =
      play<bundles::of<score::lru>, predict::none>(r, 24, {}, link, predict::none{});
  how.governed = false;
  outcome_of const wild = play<hinted, predict::random<>>(r, 24, how, link);
  // the reported case: about twice the bytes, the same hits
  CHECK(static_cast<double>(wild.bytes()) > 1.8 * static_cast<double>(without.bytes()));
  CHECK(wild.sum.hit_rate() < without.sum.hit_rate() + .03);
  how.governed = true;
  outcome_of const governed = play<hinted, predict::random<>>(r, 24, how, link);
  // bytes per useful hit return to what they were, and the gate is off with its reason
  auto const bytes_per_hit = [](outcome_of const& o) {
    return static_cast<double>(o.bytes()) / static_cast<double>(o.useful_hits());
  };
  CHECK(bytes_per_hit(wild) > 1.7 * bytes_per_hit(without));
  CHECK(bytes_per_hit(governed) < 1.05 * bytes_per_hit(without));
  CHECK(governed.report.governor.is_stopped());
  CHECK(governed.report.governor.why() == reason::not_paying);
  CHECK(governed.report.predicted <
        governed.report.asked / 5);  // its producer does not go on spending
  // hints that pay are not turned off by the same gate
  outcome_of const paying = play<hinted, predict::oracle<>>(r, 24, how, link);
  CHECK(paying.report.governor.stops() == 0);
  CHECK(paying.sum.hit_rate() > without.sum.hit_rate() + .1);
  CHECK(static_cast<double>(paying.bytes()) < 1.1 * static_cast<double>(without.bytes()));
}

namespace {

/// Names the experts of the layer's step again, a whole token ahead.
struct same_layer {
  static constexpr bool speculates = true;
  static constexpr char const* name = "same_layer";
  static constexpr u32 horizon = 1;
  void open(geometry const&) {}
  void learn(routing_snapshot const&) noexcept {}
  u32 predict(routing_snapshot const& s, u32 width, array_view<hint> out) const noexcept {
    u32 n = 0;
    for (u32 x = 0; x < 64 && n < width && n < out.size(); ++x) {
      if (std::find(s.experts.begin(), s.experts.end(), x) == s.experts.end()) {
        out[n] = {s.layer, static_cast<routed_id>(x), static_cast<u16>(n), 0};
        ++n;
      }
    }
    return n;
  }
};

}  // namespace

TEST_CASE("R45 a prediction whose reuse is beyond its expected residence") {
  // routes without reuse: every step loads k experts, so that a pool of S slots keeps one for S / k steps
  u32 const layers = 16, k = 4;
  trace::contents c;
  c.geometry = geometry::uniform(layers, 64, k, expert_bytes);
  trace::block b;
  b.n_rows = layers;
  b.n_steps = 200;
  b.k = k;
  c.blocks.push_back(b);
  for (u32 step = 0; step < b.n_steps; ++step) {
    for (u32 row = 0; row < layers; ++row) {
      for (u32 i = 0; i < k; ++i) {
        c.ids.push_back(static_cast<u16>((step * k + i) % 64));
      }
    }
  }
  trace::recording const r(std::move(c));
  trace::speculation how;
  how.width = 2;
  how.governed = false;
  using in_one_pool = bundles::shared<hinted>;
  SECTION("beyond: dropped by admission before any byte moves") {
    // residence 16 * 4 / 4 = 16 steps less what the hints load: a token ahead is 16 steps
    outcome_of const o = play<in_one_pool, same_layer>(r, 4, how);
    u64 const dropped = o.sum.hints_dropped[static_cast<u32>(reason::admission)].value;
    CHECK(dropped == o.report.beyond_residence);
    CHECK(dropped * 10 > o.sum.hints_offered.value * 4);
  }
  SECTION("far beyond: nearly none is issued") {
    gate::residence pool(64);
    for (u32 i = 0; i < 100; ++i) {
      pool.step();
      pool.load(k);
    }
    CHECK(pool.outlasts(15));
    CHECK_FALSE(pool.outlasts(17));
  }
  SECTION("within: offered to the table") {
    outcome_of const o = play<in_one_pool, same_layer>(r, 12, how);
    CHECK(o.report.beyond_residence == 0);
    CHECK(o.sum.hints_offered.value > 1000);
    // the next layer is one step away: always within
    outcome_of const next = play<in_one_pool, predict::transition<1>>(r, 4, how);
    CHECK(next.report.beyond_residence == 0);
    CHECK(next.sum.issued[1].value > 100);
  }
}

}  // namespace warmset::scenario
