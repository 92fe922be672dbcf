// SPDX-License-Identifier: Apache-2.0
// Hints under a governor: they never cost more than a little, and good ones save much.

#include "speculate.hpp"

#include <algorithm>
#include <cstdio>

#include "support/rounds.hpp"

using namespace trace_test;

namespace {

using plain = bundles::of<score::lru>;
using with_hints = hinted<plain>;
using plain_pool = bundles::shared<plain>;
using in_one_pool = bundles::shared<with_hints>;

}  // namespace

namespace {

/// Widths, links and computes that a sweep goes through.
struct grid {
  std::vector<u32> widths;
  std::vector<u64> gbps;
  std::vector<u64> us;  ///< compute of a layer
};

grid whole() {
  return {{1, 2, 3, 4, 6, 8, 12, 16},
          {4, 8, 16, 32, 64},
          {0, 50, 100, 200, 300, 500, 700, 1000, 1500, 2000}};
}
grid smallest() {
  return slow_build ? grid{{16}, {16}, {1000}} : grid{{4, 16}, {16}, {0, 1000}};
}

grid small() {
  if (slow_build) {
    return smallest();
  }
  return {{1, 4, 16}, {4, 16, 64}, {0, 300, 1000, 2000}};
}

template <class... P>
struct predictors {};
using usual = predictors<predict::oracle<>, predict::random<>, predict::adversarial<>,
                         predict::transition<1>>;
using others = predictors<predict::oracle<2>, predict::transition<2>, predict::previous_step<>>;

/// Checks over a grid that the stall with hints is at most what is allowed.
template <class Bundle, class Hinted, class... P>
void check_never_hurts(std::string const& what, trace::recording const& r,
                       trace::selection const& which, grid const& over, predictors<P...>) {
  double worst = 0;
  std::string where;
  setting s;
  s.which = which;
  for (u64 speed : over.gbps) {
    for (u64 compute : over.us) {
      s.link.bytes_per_second = speed * 1'000'000'000;
      s.link.compute_ns = compute * 1'000;
      trace::speculative_report const without = speculate<Bundle, predict::none>(r, s).report;
      double const allowed = allowed_ns(without, s, r.geometry().layers()[0]);
      for (u32 width : over.widths) {
        s.how.width = width;
        auto const one = [&](char const* name, trace::speculative_report const& with) {
          double const ratio = static_cast<double>(with.total_stall_ns()) / allowed;
          std::string const here = std::string(name) + ", width " + std::to_string(width) + ", " +
                                   std::to_string(speed) + " GB/s, " + std::to_string(compute) +
                                   " us";
          INFO(here);
          CHECK(ratio <= 1.0);
          if (ratio > worst) {
            worst = ratio;
            where = here;
          }
        };
        (one(P::name, speculate<Hinted>(r, s, any_predictor::of<P>()).report), ...);
      }
    }
  }
  std::string names;
  ((names += names.empty() ? "" : ", ", names += P::name), ...);
  std::printf(
      "speculation never hurts, %s pool, %s: worst stall / (1.01 x stall without + min_samples "
      "experts) = %.4f (%s)\n",
      what.c_str(), names.c_str(), worst, where.c_str());
  CHECK(worst > 0);
}

/// Whether the whole grid is asked for. It takes minutes, and hours in a build that is checked or not optimised: such
/// builds play the small one.
bool all_of_it() {
  char const* const sweep = std::getenv("WARMSET_SPECULATION_SWEEP");
  return fast_build && sweep != nullptr && *sweep != '\0';
}

template <class Bundle, class Hinted>
void check_whole_sweep(std::string const& pool, trace::recording const& bundled_routes) {
  auto const both = [&](std::string const& what, trace::recording const& r,
                        trace::selection const& which) {
    check_never_hurts<Bundle, Hinted>(what, r, which, whole(), usual{});
    check_never_hurts<Bundle, Hinted>(what, r, which, whole(), others{});
  };
  both(pool, bundled_routes, decoded(0, 20));
  if (std::optional<std::string> const file =
          trace_file("raw/gpt-oss-20b-ExpertFingerprinting/ids.rtb.zst")) {
    both("gpt-oss-20b, " + pool, read_trace_file(*file), decoded(0, 3));
  }
}

}  // namespace

TEST_CASE("speculation never hurts under guard none in per-layer pools") {
  REQUIRE_BUNDLED(r);
  if (all_of_it()) {
    check_whole_sweep<plain, with_hints>("per-layer", *r);
    return;
  }
  check_never_hurts<plain, with_hints>("per-layer", *r, decoded(0, 2), small(), usual{});
  check_never_hurts<plain, with_hints>("per-layer", *r, decoded(0, 2), smallest(), others{});
}

TEST_CASE("speculation never hurts under guard none in a shared pool") {
  REQUIRE_BUNDLED(r);
  if (all_of_it()) {
    check_whole_sweep<plain_pool, in_one_pool>("shared", *r);
    return;
  }
  check_never_hurts<plain_pool, in_one_pool>("shared", *r, decoded(0, 2), smallest(), usual{});
  check_never_hurts<plain_pool, in_one_pool>("shared", *r, decoded(0, 2), smallest(), others{});
}

TEST_CASE("speculation never hurts on gpt-oss-20b") {
  if (!fast_build) {
    SKIP("skipped: too long for a build that is checked or not optimised");
  }
  std::optional<std::string> const file =
      trace_file("raw/gpt-oss-20b-ExpertFingerprinting/ids.rtb.zst");
  if (!file) {
    SKIP("skipped: the trace of gpt-oss-20b is not there; WARMSET_TRACES names the folder of "
         "traces");
  }
  trace::recording const r = read_trace_file(*file);
  check_never_hurts<plain, with_hints>("gpt-oss-20b, per-layer", r, decoded(0, 3), small(),
                                       usual{});
  check_never_hurts<plain_pool, in_one_pool>("gpt-oss-20b, shared", r, decoded(0, 3), smallest(),
                                             usual{});
}

TEST_CASE("transition on gpt-oss-20b at 8 slots, 16 GB/s and 2 ms a layer waits at most three "
          "quarters as long") {
  std::optional<std::string> const file =
      trace_file("raw/gpt-oss-20b-ExpertFingerprinting/ids.rtb.zst");
  if (!file) {
    SKIP("skipped: the trace of gpt-oss-20b is not there; WARMSET_TRACES names the folder of "
         "traces");
  }
  trace::recording const r = read_trace_file(*file);
  setting s;
  s.which = decoded(0, 5);
  s.link.compute_ns = 2'000'000;
  double const without =
      static_cast<double>(speculate<plain, predict::none>(r, s).report.total_stall_ns());
  s.how.width = 4;
  played const with = speculate<with_hints>(r, s, any_predictor::of<predict::transition<1>>());
  double const ratio = static_cast<double>(with.report.total_stall_ns()) / without;
  std::printf("transition on gpt-oss-20b: stall %.3f x, precision %.3f, coverage %.3f\n", ratio,
              trace::precision_of(with.sum), trace::coverage_of(with.sum));
  CHECK(ratio <= .75);
}

TEST_CASE("horizon 2 in a shared pool does not eat itself") {
  REQUIRE_BUNDLED(r);
  setting s;
  s.which = decoded(0, 3);
  s.link.compute_ns = 1'000'000;
  s.how.width = 4;
  for (u32 slots : {6u, 8u, 16u}) {
    s.slots = slots;
    for (bool governed : {false, true}) {
      s.how.governed = governed;
      played const p = speculate<in_one_pool>(*r, s, any_predictor::of<predict::oracle<2>>());
      double const used = trace::precision_of(p.sum);
      std::printf(
          "oracle, horizon 2, shared pool of %u slots per layer%s: %.3f of issued hints used\n",
          slots, governed ? ", governed" : "", used);
      INFO("slots " << slots << ", governed " << governed);
      CHECK(p.sum.issued[1].value > 1000);
      CHECK(used >= .6);
    }
  }
}
