// SPDX-License-Identifier: Apache-2.0
#include "successor_figures.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include <warmset/trace/oracle.hpp>

// The successor score's published hit rates, on the real traces, by its reference.
//
// What the figures count: look-ups of distinct experts per (token, layer), one token a step, layer by layer
// within a token, all layers, all sequences one after the other from a cold start with nothing reset between
// them. gpt-oss-20b has decode only; of tinymoe both phases are played, token by token, as its teacher-forced
// routes were recorded; of the BigMoeOnEdge traces decode alone, the prompt left out altogether.
//
// Which slots the missing experts of a step get decides nothing but ties between experts of equal key and
// last use. Here they go to ascending ids, as in the library; with slots in rank order the figures fit a
// little better. It shows in one trace: a few of the 4,608 look-ups of gpt-oss-120b.

using namespace trace_test;
using Catch::Matchers::WithinAbs;
using kit::id_list;
using kit::reference_cache;
using kit::reference_pools;
using kit::successor_form;

namespace {

constexpr cell with_bypass(u32 slots, double expected) {
  return {{.slots_per_layer = slots, .bypass = true}, expected};
}
constexpr cell shared_with_bypass(u32 slots, double expected) {
  return {{.slots_per_layer = slots, .shared = true, .floor = 1, .bypass = true}, expected};
}
/// As the figure was measured: before the gate that keeps bypass off at first.
constexpr cell ungated(cell c) {
  c.pool.bypass_from = 0;
  return c;
}

void check(trace::recording const& r, trace::selection const& which, successor_form form,
           std::vector<cell> const& cells, double within = tolerance) {
  std::vector<reference_pools::options> pools;
  for (cell const& c : cells) {
    pools.push_back(c.pool);
  }
  auto const& layers = r.geometry().layers();
  u32 const n_experts = layers[0].n_experts;
  reference_cache cache(static_cast<u32>(layers.size()), n_experts, form, pools);
  trace::detail::row_marks marks(n_experts);
  id_list ids;
  trace::for_each_event(r, which, [&](trace::event const& e) {
    ids.clear();
    trace::append_distinct(e.ids, marks, ids);
    cache.demand(e.row, ids);
  });
  INFO("order " << form.order << ", " << form.bits << " bits");
  std::size_t i = 0;
  for (cell const& c : cells) {
    INFO(c.pool.slots_per_layer << " slots" << (c.pool.shared ? ", shared" : "")
                                << (c.pool.bypass ? ", bypass" : ""));
    CHECK_THAT(cache.pool(i++).hit_rate(), WithinAbs(c.expected, within));
  }
}

void check(trace::recording const& r, trace::selection const& which, std::vector<figures> const& expected,
           double within = tolerance) {
  for (figures const& f : expected) {
    check(r, which, f.form, f.cells, within);
  }
}

}  // namespace

TEST_CASE("successor figures: gpt-oss-20b, slots per layer") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, gpt_oss_20b);
  trace::recording const r = read_trace_file(*path);
  check(r, {}, figures_of_gpt_oss_20b);
}

TEST_CASE("successor figures: gpt-oss-20b, with bypass") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, gpt_oss_20b);
  check(read_trace_file(*path), {}, {2, 16},
        {with_bypass(4, .491), with_bypass(8, .720), with_bypass(16, .921)});
}

TEST_CASE("successor figures: gpt-oss-20b, one pool for all layers") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, gpt_oss_20b);
  trace::recording const r = read_trace_file(*path);
  check(r, {}, shared_figures_of_gpt_oss_20b);
}

TEST_CASE("successor figures: gpt-oss-20b, one pool with bypass") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, gpt_oss_20b);
  check(read_trace_file(*path), {}, {2, 16},
        {shared_with_bypass(4, .496), shared_with_bypass(8, .724), shared_with_bypass(16, .932)});
}

TEST_CASE("successor figures: tinymoe-12x64") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, tinymoe_12x64);
  trace::recording const r = read_trace_file(*path);
  check(r, {}, figures_of_tinymoe_12x64);
}

TEST_CASE("successor figures: tinymoe-8x32") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, tinymoe_8x32);
  trace::recording const r = read_trace_file(*path);
  check(r, {}, figures_of_tinymoe_8x32);
}

TEST_CASE("successor figures: Qwen3-30B-A3B, six experts a token, decode") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, qwen3_30b);
  trace::recording const r = read_trace_file(*path);
  check(r, decode, figures_of_qwen3_30b);
  check(r, decode, {2, 16},
        {ungated(with_bypass(16, .626)), ungated(with_bypass(32, .817)), ungated(with_bypass(64, .913)),
         ungated(shared_with_bypass(16, .630)), ungated(shared_with_bypass(32, .828)),
         ungated(shared_with_bypass(64, .917))});
}

TEST_CASE("successor figures: gpt-oss-120b, two experts a token, decode") {
  REQUIRE_TRACE(path, gpt_oss_120b);
  trace::recording const r = read_trace_file(*path);
  check(r, decode, figures_of_gpt_oss_120b, tolerance_with_ties);
}

TEST_CASE("successor figures: two streams of gpt-oss-20b in turns need the last sets of both") {
  // Even and odd sequences as two streams, token by token, every fourth layer. The published shares of the
  // gap to the oracle are of two sequences that are not named; what is checked is that the forms differ as
  // they do.
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, gpt_oss_20b);
  trace::recording const r = read_trace_file(*path);
  std::vector<std::pair<trace::block const*, u32>> tokens[2];
  for (trace::block const& b : r.blocks()) {
    for (u32 step = 0; step < b.n_steps; ++step) {
      tokens[b.sequence % 2].push_back({&b, step});
    }
  }
  auto const play = [&](u32 order, bool by_sequence) {
    reference_cache cache(6, 32, {order, 16}, {{.slots_per_layer = 8}});
    for (std::size_t i = 0; i < std::min(tokens[0].size(), tokens[1].size()); ++i) {
      for (u32 stream = 0; stream < 2; ++stream) {
        for (u32 layer = 0; layer < 6; ++layer) {
          auto const& [b, step] = tokens[stream][i];
          auto const ids = r.at(*b, step, 4 * layer).ids;
          cache.demand(layer, id_list(ids.begin(), ids.end()), by_sequence ? stream : 0);
        }
      }
    }
    return cache.pool(0).hit_rate();
  };
  double const s1_alone = play(1, false);
  double const s2_alone = play(2, false);
  double const s1_both = play(1, true);
  CHECK(s2_alone > s1_alone + .01);
  CHECK(s1_both > s2_alone + .015);
}
