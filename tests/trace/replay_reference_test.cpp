// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"
#include "support/optimised.hpp"
#include "support/rounds.hpp"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <warmset/cache.hpp>
#include <warmset/trace/replay.hpp>

// The replay against figures that others have published or that an independent implementation gave, on real traces.

using namespace trace_test;
using Catch::Matchers::WithinAbs;

namespace {

#define REQUIRE_TRACE(name, relative)                                                              \
  std::optional<std::string> const name = trace_file(relative);                                    \
  if (!name) {                                                                                     \
    SKIP("skipped: " relative " is not there; WARMSET_TRACES names the folder of the traces");     \
  }

using lru = bundles::of<score::lru>;
using lfu = bundles::of<score::lfu>;
using decayed = bundles::of<score::decayed_count>;
using fifo = bundles::of<score::fifo>;

/// Tolerance for figures that are printed with three decimals.
constexpr double tolerance = .002;
constexpr double printed = .0005;

template <class Bundle>
double decode_hit_rate(trace::recording const& r, u32 slots, tuning numbers = Bundle::numbers,
                       trace::selection const& which = {}) {
  cache<Bundle, move::immediate, observe::counting> made(r.geometry(), budget::of_slots(slots),
                                                         numbers);
  (void)trace::replay(r, which, made);
  return made.observer().total(phase::decode).hit_rate();
}

/// The same events with the ids of each token in ascending order: sets instead of ranks.
trace::recording as_sets(trace::recording const& r) {
  trace::contents c;
  c.geometry = r.geometry();
  c.blocks = r.blocks();
  c.ids.assign(r.ids().begin(), r.ids().end());
  for (trace::block const& b : c.blocks) {
    auto row = c.ids.begin() + static_cast<std::ptrdiff_t>(b.ids_at);
    for (u64 i = 0; i < b.n_token_rows(); ++i, row += b.k) {
      std::sort(row, row + b.k);
    }
  }
  return trace::recording(std::move(c));
}

/// The first tokens of a trace of decode steps of one token.
trace::recording first_tokens(trace::recording const& r, u32 n) {
  trace::contents c;
  c.geometry = r.geometry();
  for (trace::block b : r.blocks()) {
    if (n == 0) {
      break;
    }
    b.n_steps = std::min(b.n_steps, n);
    n -= b.n_steps;
    auto const from = r.ids().subspan(b.ids_at, b.n_ids());
    c.ids.insert(c.ids.end(), from.begin(), from.end());
    c.blocks.push_back(b);
  }
  return trace::recording(std::move(c));
}

struct cells {
  u32 slots;
  double lru, lfu, decay, fifo;
};

/// LRU depends on the order of recency within a step. The library's is the order of the ids, which are in rank order;
/// the reference takes a step as a set. The other columns have the same order within a step, or none.
void check_cells(trace::recording const& r, cells const& expected,
                 trace::selection const& which = {}) {
  INFO(expected.slots << " slots per layer");
  CHECK_THAT(decode_hit_rate<lru>(as_sets(r), expected.slots, {}, which),
             WithinAbs(expected.lru, tolerance));
  CHECK_THAT(decode_hit_rate<lru>(r, expected.slots, {}, which),
             WithinAbs(expected.lru, tolerance + printed));
  CHECK_THAT(decode_hit_rate<lfu>(r, expected.slots, {}, which),
             WithinAbs(expected.lfu, tolerance));
  CHECK_THAT(decode_hit_rate<decayed>(r, expected.slots, {.half_life = 64}, which),
             WithinAbs(expected.decay, tolerance));
  CHECK_THAT(decode_hit_rate<fifo>(r, expected.slots, {}, which),
             WithinAbs(expected.fifo, tolerance));
}

}  // namespace

TEST_CASE("replay reference: policies on gpt-oss-20b decode, slots per layer") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, "raw/gpt-oss-20b-ExpertFingerprinting/ids.rtb.zst");
  trace::recording const r = read_trace_file(*path);
  check_cells(r, {4, .431, .431, .431, .431});
  check_cells(r, {8, .647, .638, .678, .617});
  check_cells(r, {16, .895, .872, .909, .860});
}

TEST_CASE("replay reference: policies on Qwen3-30B-A3B decode, with and without the prompt") {
  REQUIRE_TRACE(path, "raw/BigMoeOnEdge/qwen.route.csv.zst");
  trace::recording const r = read_trace_file(*path);
  trace::selection decode;
  decode.prefill = false;
  for (trace::selection const& which : {trace::selection{}, decode}) {
    check_cells(r, {16, .609, .644, .647, .577}, which);
    check_cells(r, {32, .807, .819, .821, .770}, which);
  }
}

TEST_CASE("replay reference: half-lives on the first 3,000 tokens of gpt-oss-20b, 8 slots") {
  REQUIRE_TRACE(path, "raw/gpt-oss-20b-ExpertFingerprinting/ids.rtb.zst");
  trace::recording const r = first_tokens(read_trace_file(*path), 3000);
  CHECK(trace::count_token_rows(r)[0][1] == 3000);
  struct row {
    u32 half_life;
    double expected;
  };
  for (row const each :
       {row{4, .672}, row{8, .678}, row{16, .679}, row{32, .679}, row{64, .675}, row{128, .669}}) {
    INFO("half-life " << each.half_life);
    CHECK_THAT(decode_hit_rate<decayed>(r, 8, {.half_life = each.half_life}),
               WithinAbs(each.expected, tolerance));
  }
}

TEST_CASE("replay reference: one pool of gpt-oss-20b with a floor of k, slots on average") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, "raw/gpt-oss-20b-ExpertFingerprinting/ids.rtb.zst");
  trace::recording const r = read_trace_file(*path);
  CHECK_THAT(decode_hit_rate<bundles::shared<lru>>(r, 8), WithinAbs(.602, tolerance));
  CHECK_THAT(decode_hit_rate<bundles::shared<lru>>(r, 16), WithinAbs(.907, tolerance));
  CHECK_THAT(decode_hit_rate<bundles::shared<decayed>>(r, 8, {.half_life = 16}),
             WithinAbs(.677, tolerance));
  CHECK_THAT(decode_hit_rate<bundles::shared<decayed>>(r, 16, {.half_life = 16}),
             WithinAbs(.923, tolerance));
}

// ---- the engine that recorded the BigMoeOnEdge traces ---------------------------------------------------------

namespace {

struct recorded_engine {
  char const* name;
  u64 budget_mib;
  u64 lookups;
  double decode_hit_percent;
};
constexpr recorded_engine engines[] = {{"qwen", 4000, 39'526, 80.29},
                                       {"gptoss", 3000, 6'375, 44.84}};

std::optional<trace::recording> recorded_by(recorded_engine const& engine) {
  std::optional<std::string> const path =
      trace_file(std::string("raw/BigMoeOnEdge/") + engine.name + ".route.csv.zst");
  return path ? std::optional(read_trace_file(*path)) : std::nullopt;
}

template <class Bundle>
void check_residency(recorded_engine const& engine, trace::recording const& r) {
  trace::byte_pool<Bundle> made(r.geometry(), engine.budget_mib << 20);
  u64 lookups = 0;
  u64 agree = 0;
  std::vector<trace::recorded_access> flag_of(r.geometry().layers()[0].n_experts);
  trace::replay_report const report =
      trace::replay(r, {}, made, [&](trace::event const& e, auto const& d) {
        for (std::size_t i = 0; i < e.ids.size(); ++i) {
          if (e.residency[i] != trace::recorded_access::repeat) {
            flag_of[e.ids[i]] = e.residency[i];
          }
        }
        for (std::size_t i = 0; i < d.experts.size(); ++i) {
          bool const recorded = flag_of[d.experts[i]] == trace::recorded_access::hit;
          agree += recorded == (d.how[i] == access_kind::hit) ? 1 : 0;
          ++lookups;
        }
      });
  CHECK(lookups == engine.lookups);
  CHECK(agree == engine.lookups);
  CHECK_THAT(100 * made.observer().total(phase::decode).hit_rate(),
             WithinAbs(engine.decode_hit_percent, .005));
  CHECK(made.audit());
}

std::string decimals(double value, int n) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", n, value);
  return text;
}

/// Every row of one policy of the published curve: hit rates of both phases and of decode in percent, MiB read.
template <class Bundle>
void check_curve(recorded_engine const& engine, trace::recording const& r,
                 std::string const& policy) {
  auto const path = trace_file(std::string("raw/BigMoeOnEdge/") + engine.name + "-curve.csv");
  if (!path) {
    SKIP("skipped: the published curve is not at hand");
  }
  std::vector<std::byte> const curve = warmset_tools::read_file(*path);
  std::istringstream lines{std::string(trace::text_of(curve))};
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    std::size_t const at = line.find("," + policy + ",");
    if (at == std::string::npos) {
      continue;
    }
    INFO(engine.name << " " << line);
    trace::byte_pool<Bundle> made(r.geometry(), std::stoull(line.substr(0, at)) << 20);
    (void)trace::replay(r, {}, made);
    u64 read = 0;
    for (u32 row = 0; row < r.geometry().layers().size(); ++row) {
      for (phase p : {phase::prefill, phase::decode}) {
        read += made.observer().total(row, p).bytes[0].value;
      }
    }
    CHECK(line.substr(at + policy.size() + 2) ==
          decimals(100 * made.observer().total().hit_rate(), 3) + "," +
              decimals(100 * made.observer().total(phase::decode).hit_rate(), 3) + "," +
              decimals(static_cast<double>(read) / 1048576.0, 1));
    ++rows;
  }
  CHECK(rows == 11);
}

}  // namespace

TEST_CASE("replay reference: the recorded residency of BigMoeOnEdge on every look-up") {
  for (recorded_engine const& engine : engines) {
    INFO(engine.name);
    std::optional<trace::recording> const r = recorded_by(engine);
    if (!r) {
      SKIP("skipped: the BigMoeOnEdge traces are not there; WARMSET_TRACES names the folder of the "
           "traces");
    }
    check_residency<lru>(engine, *r);
    check_residency<bundles::of<score::lru, select::lru_list>>(engine, *r);
  }
}

TEST_CASE("replay reference: BigMoeOnEdge's lru and lfu columns, to the printed decimal") {
  for (recorded_engine const& engine : engines) {
    std::optional<trace::recording> const r = recorded_by(engine);
    if (!r) {
      SKIP("skipped: the BigMoeOnEdge traces are not there; WARMSET_TRACES names the folder of the "
           "traces");
    }
    check_curve<bundles::of<score::lru, select::lru_list>>(engine, *r, "lru");
    if (!slow_build) {
      check_curve<lfu>(engine, *r, "lfu");
    }
  }
}
