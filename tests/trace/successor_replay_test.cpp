// SPDX-License-Identifier: Apache-2.0
#include "successor_figures.hpp"

#include <utility>
#include <vector>

#include <warmset/cache.hpp>
#include <warmset/trace/oracle.hpp>
#include <warmset/trace/replay.hpp>

// The successor score's published hit rates by the library: what replay and a cache make of the real traces. The
// cells, and what they count, are those of the reference (successor_figures_test.cpp). Two things differ, both only
// between experts of equal key that were used at the same step: the library knows the order of demand within a step,
// and gives slots to ascending ids.

using namespace trace_test;
using Catch::Matchers::WithinAbs;

namespace {

/// The model with experts of equal size, so that there is one pool: the figures count slots, whatever their bytes.
geometry of_equal_experts(geometry const& model) {
  std::vector<layer_geometry> layers = model.layers();
  for (layer_geometry& layer : layers) {
    layer.bank_bytes = {1};
  }
  return geometry(std::move(layers));
}

template <class Bundle>
double hit_rate(trace::recording const& r, trace::selection const& which, kit::reference_pools::options const& pool) {
  tuning numbers = Bundle::numbers;
  numbers.floor = pool.floor;
  cache<Bundle, move::immediate, observe::counting> made(of_equal_experts(r.geometry()),
                                                         budget::of_slots(pool.slots_per_layer), numbers);
  (void)trace::replay(r, which, made);
  u64 hits = 0;
  u64 lookups = 0;
  for (phase const p : {phase::prefill, phase::decode}) {
    auto const total = made.observer().total(p);
    hits += total.hits().value;
    lookups += total.demanded.value;
  }
  return static_cast<double>(hits) / static_cast<double>(lookups);
}

template <class Score>
void check_form(trace::recording const& r, trace::selection const& which, figures const& expected, double within) {
  using bundle = bundles::of<Score>;
  for (cell const& c : expected.cells) {
    INFO(Score::name << ", " << c.pool.slots_per_layer << " slots" << (c.pool.shared ? ", shared" : ""));
    CHECK_THAT(c.pool.shared ? hit_rate<bundles::shared<bundle>>(r, which, c.pool) : hit_rate<bundle>(r, which, c.pool),
               WithinAbs(c.expected, within));
  }
}

void check(trace::recording const& r, trace::selection const& which, std::vector<figures> const& expected,
           double within = tolerance) {
  for (figures const& f : expected) {
    bool const wide = f.form.bits == 16;
    switch (f.form.order) {
      case 1:
        wide ? check_form<score::successor<1>>(r, which, f, within)
             : check_form<score::successor<1, i8>>(r, which, f, within);
        break;
      case 2:
        wide ? check_form<score::successor<2>>(r, which, f, within)
             : check_form<score::successor<2, i8>>(r, which, f, within);
        break;
      default:
        wide ? check_form<score::successor<3>>(r, which, f, within)
             : check_form<score::successor<3, i8>>(r, which, f, within);
    }
  }
}

/// Step by step, a shared pool is the reference's pool, once that breaks ties as the library does.
template <class Score>
void check_shared_is_reference(trace::recording const& r, trace::selection const& which, kit::successor_form form,
                               u32 slots, u32 floor) {
  auto const& layers = r.geometry().layers();
  u32 const n_experts = layers[0].n_experts;
  kit::reference_cache reference(
      static_cast<u32>(layers.size()), n_experts, form,
      {{.slots_per_layer = slots, .shared = true, .floor = floor, .demand_order = true}});
  cache<bundles::shared<bundles::of<Score>>, move::immediate> made(of_equal_experts(r.geometry()), budget::of_slots(slots),
                                                                   {.floor = floor});
  trace::detail::row_marks marks(n_experts);
  kit::id_list ids;
  u64 hits = 0;
  u64 differ = 0;
  trace::for_each_event(r, which, [&](trace::event const& e) {
    ids.clear();
    trace::append_distinct(e.ids, marks, ids);
    reference.demand(e.row, ids);
    for (access_kind const how : made.step(e.layer, ids).how) {
      hits += how == access_kind::hit ? 1 : 0;
    }
    differ += hits != reference.pool(0).hits() ? 1 : 0;
  });
  INFO(Score::name);
  CHECK(hits > reference.pool(0).lookups() / 4);
  CHECK(differ == 0);
}

}  // namespace

TEST_CASE("successor replay: gpt-oss-20b, slots per layer") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, gpt_oss_20b);
  check(read_trace_file(*path), {}, figures_of_gpt_oss_20b);
}

TEST_CASE("successor replay: gpt-oss-20b, one pool for all layers") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, gpt_oss_20b);
  check(read_trace_file(*path), {}, shared_figures_of_gpt_oss_20b);
}

TEST_CASE("successor replay: tinymoe-12x64") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, tinymoe_12x64);
  check(read_trace_file(*path), {}, figures_of_tinymoe_12x64);
}

TEST_CASE("successor replay: tinymoe-8x32") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, tinymoe_8x32);
  check(read_trace_file(*path), {}, figures_of_tinymoe_8x32);
}

TEST_CASE("successor replay: tinymoe-8x32, one pool, step by step") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, tinymoe_8x32);
  trace::recording const r = read_trace_file(*path);
  u32 const k = r.geometry().layers()[0].k;
  check_shared_is_reference<score::successor<2>>(r, {}, {2, 16}, 8, k);
  check_shared_is_reference<score::successor<3, i8>>(r, {}, {3, 8}, 16, k);
}

TEST_CASE("successor replay: Qwen3-30B-A3B, six experts a token, decode") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, qwen3_30b);
  trace::recording const r = read_trace_file(*path);
  check(r, decode, figures_of_qwen3_30b);
  check_shared_is_reference<score::successor<2>>(r, decode, {2, 16}, 32, 6);
  check_shared_is_reference<score::successor<3>>(r, decode, {3, 16}, 32, 6);
}

TEST_CASE("successor replay: gpt-oss-120b, two experts a token, decode") {
  REQUIRE_TRACE(path, gpt_oss_120b);
  check(read_trace_file(*path), decode, figures_of_gpt_oss_120b, tolerance_with_ties);
}
