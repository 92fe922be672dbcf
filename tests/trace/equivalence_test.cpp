// SPDX-License-Identifier: Apache-2.0
// Hints never change a byte: on real traces, with and without a guard, over slow links and links that fail.

#include "equivalence.hpp"

#include <warmset/predict/transition.hpp>

#include <cstdlib>

#include "support/rounds.hpp"

using namespace trace_test;
using trace::equivalence_fault;

namespace {

void require_equivalent(trace::equivalence_report const& report, u64 at_least) {
  INFO(trace::to_sentence(report));
  REQUIRE(report);
  REQUIRE(report.runs.size() >= 4);
  for (trace::equivalence_run const& run : report.runs) {
    CHECK(run.delivered == report.runs[0].delivered);
    CHECK(run.digest == report.runs[0].digest);
  }
  CHECK(report.runs[0].delivered >= at_least);
  CHECK(report.runs[0].hints == 0);
}

/// Steps of a layer that are played: `usual`, a twentieth of it where a sanitizer watches, all where a build that
/// nothing slows `can_be_whole`; or what WARMSET_EQUIVALENCE_EVENTS says, where 0 is the whole trace.
u64 played(unsigned usual, bool can_be_whole) {
  char const* const said = std::getenv("WARMSET_EQUIVALENCE_EVENTS");
  if (said == nullptr || *said == '\0') {
    return can_be_whole && fast_build ? u64_max : rounds(usual);
  }
  u64 const events = std::strtoull(said, nullptr, 10);
  return events == 0 ? u64_max : events;
}

trace::recording bundled(char const* name) {
#if defined(WARMSET_HAS_ZSTD)
  return read_trace_file(std::string(WARMSET_SOURCE_DIR) + "/examples/data/" + name);
#else
  SKIP("skipped: built without zstd, " << name << " cannot be read");
  std::abort();  // not reached: SKIP throws
#endif
}

}  // namespace

TEST_CASE("equivalence: the bundled traces deliver the same bytes under any hints") {
  SECTION("8 x 32") {
    trace::recording const r = bundled("tinymoe-8x32.wst.zst");
    trace::equivalence_options const options{.max_events = played(40'000, true)};
    u64 const at_least = 4 * min_of(options.max_events, r.n_events());
    predict::transition<1> own;
    require_equivalent(trace::check_equivalence(r, {}, caches<hinting>(r, 8), options, own),
                       at_least);
    require_equivalent(trace::check_equivalence(r, {}, caches<unguarded>(r, 8), options), at_least);
    require_equivalent(trace::check_equivalence(r, {}, caches<unguarded_pool>(r, 6), options),
                       at_least);
  }
  SECTION("8 x 32, the prompt in steps of 32 tokens, which overflow") {
    trace::recording const r = trace::rebatch(bundled("tinymoe-8x32.wst.zst"), phase::prefill, 32);
    trace::equivalence_options const options{.max_events = played(8'000, true)};
    require_equivalent(trace::check_equivalence(r, {}, caches<unguarded>(r, 8), options),
                       4 * min_of(options.max_events, r.n_events()));
  }
  SECTION("12 x 64") {
    trace::recording const r = bundled("tinymoe-12x64.wst.zst");
    trace::equivalence_options const options{.max_events = played(12'000, true)};
    require_equivalent(trace::check_equivalence(r, {}, caches<hinting>(r, 16), options),
                       8 * min_of(options.max_events, r.n_events()));
  }
}

namespace {

/// A public trace under hints: with the default guard and without one, in per-layer pools and in a shared one.
void check_public(std::string const& name, unsigned guarded, unsigned bare, bool can_be_whole) {
  std::optional<std::string> const path = trace_file(name);
  if (!path) {
    SKIP("skipped: " << name << " is not there; WARMSET_TRACES names the folder of traces");
  }
  trace::recording const r = read_trace_file(*path);
  auto const check = [&](char const* how, unsigned events, auto make) {
    INFO(how);
    u64 const n = played(events, can_be_whole);
    require_equivalent(trace::check_equivalence(r, {}, make, {.max_events = n}),
                       min_of(n, r.n_events()));
  };
  check("default guard", guarded, caches<hinting>(r, 8));
  check("no guard", bare, caches<unguarded>(r, 8));
  check("no guard, shared pool", bare, caches<unguarded_pool>(r, 8));
}

}  // namespace

TEST_CASE("equivalence: gpt-oss-20b, guarded and not, per layer and shared") {
  check_public("raw/gpt-oss-20b-ExpertFingerprinting/ids.rtb.zst", 6'000, 3'000, false);
}

TEST_CASE("equivalence: Qwen3-30B-A3B, guarded and not, per layer and shared") {
  check_public("raw/BigMoeOnEdge/qwen.route.csv.zst", 6'000, 3'000, true);
}

TEST_CASE("equivalence: gpt-oss-120b, guarded and not, per layer and shared") {
  check_public("raw/BigMoeOnEdge/gptoss.route.csv.zst", 6'000, 3'000, true);
}

TEST_CASE("equivalence: a slow link, where hints and demands meet in flight") {
  trace::recording const r = round_trip();
  auto const slow = [] {
    return move::host(move::host_options{.bytes_per_tick = 16, .latency = 2});
  };
  require_equivalent(trace::check_equivalence(r, {}, caches<unguarded>(r, 6, slow)), 300);
}

TEST_CASE("equivalence: transfers that fail are served through scratch") {
  trace::recording const r = round_trip();
  auto const flaky = [] {
    move::host backend;
    backend.fail_when([](void*, move::copy_attempt const& c) { return c.n % 7 == 3; });
    return backend;
  };
  trace::equivalence_report const report =
      trace::check_equivalence(r, {}, caches<unguarded>(r, 6, flaky));
  require_equivalent(report, 300);

  auto const dead = [] {
    move::host backend;
    backend.fail_when([](void*, move::copy_attempt const&) { return true; });
    return backend;
  };
  trace::equivalence_report const none =
      trace::check_equivalence(r, {}, caches<unguarded>(r, 6, dead));
  CHECK(none.fault == equivalence_fault::not_delivered);
  CHECK(none.run == 0);
}
