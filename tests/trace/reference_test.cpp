// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"
#include "support/optimised.hpp"
#include "support/rounds.hpp"

#include <cstdio>
#include <map>
#include <set>
#include <sstream>

#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <warmset/trace/oracle.hpp>

// Against numbers that others have published or that an independent implementation gave, on real
// traces.

using namespace trace_test;
using Catch::Matchers::WithinAbs;
using trace::capacity;

namespace {

#define REQUIRE_TRACE(name, relative)                                                              \
  std::optional<std::string> const name = trace_file(relative);                                    \
  if (!name) {                                                                                     \
    SKIP("skipped: " relative " is not there; WARMSET_TRACES names the folder of the traces");     \
  }

std::size_t distinct(std::span<u32 const> values) {
  return std::set<u32>(values.begin(), values.end()).size();
}

/// Share of the first layer's ids that it also chose the last time that it saw the same token; with
/// the token `ahead` steps later in its place.
double repeats_by_token(trace::recording const& r, u64 ahead) {
  std::map<u32, std::vector<u16>> last;
  u64 same = 0;
  u64 all = 0;
  for (trace::block const& b : r.blocks()) {
    for (u64 step = 0; step + ahead < b.n_steps; ++step) {
      std::vector<u16> const ids = ids_of(r.at(b, step, 0));
      std::vector<u16>& before = last[r.at(b, step + ahead, 0).tokens[0]];
      for (u16 id : before) {
        same += std::find(ids.begin(), ids.end(), id) != ids.end() ? 1 : 0;
      }
      all += before.size();
      before = ids;
    }
  }
  return static_cast<double>(same) / static_cast<double>(all);
}

std::string decimals(double value, int n) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", n, value);
  return text;
}

}  // namespace

TEST_CASE("reference: the oracles on gpt-oss-20b decode, slots per layer") {
  REQUIRE_OPTIMISED();
  REQUIRE_TRACE(path, "raw/gpt-oss-20b-ExpertFingerprinting/ids.rtb.zst");
  trace::recording const r = read_trace_file(*path);
  CHECK(r.geometry() == geometry::uniform(24, 32, 4, trace::gpt_oss_expert_bytes));
  CHECK(r.blocks().size() == 160);
  CHECK(r.n_token_rows() == 51'610 * 24);
  CHECK(trace::count_lookups(r) == 4'954'560);
  trace::next_uses const uses(r);
  struct row {
    u64 slots;
    double must, bypass;
  };
  for (row const expected : {row{4, .431, .604}, row{8, .769, .806}, row{16, .949, .954}}) {
    if (slow_build && expected.slots != 8) {
      continue;
    }
    CHECK_THAT(trace::belady(uses, capacity::slots_per_layer(expected.slots)).total().hit_rate(),
               WithinAbs(expected.must, .002));
    CHECK_THAT(
        trace::belady_bypass(uses, capacity::slots_per_layer(expected.slots)).total().hit_rate(),
        WithinAbs(expected.bypass, .002));
  }
}

TEST_CASE(
    "reference: the oracles on Qwen3-30B-A3B decode, slots per layer, played without the prompt") {
  REQUIRE_TRACE(path, "raw/BigMoeOnEdge/qwen.route.csv.zst");
  trace::recording const r = read_trace_file(*path);
  trace::selection decode;
  decode.prefill = false;
  trace::next_uses const uses(r, decode);
  CHECK(uses.n_steps() == 128 * 48);
  struct row {
    u64 slots;
    double must, bypass;
  };
  for (row const expected : {row{16, .748, .771}, row{32, .881, .885}}) {
    CHECK_THAT(trace::belady(uses, capacity::slots_per_layer(expected.slots)).total().hit_rate(),
               WithinAbs(expected.must, .002));
    CHECK_THAT(
        trace::belady_bypass(uses, capacity::slots_per_layer(expected.slots)).total().hit_rate(),
        WithinAbs(expected.bypass, .002));
  }
}

TEST_CASE("reference: BigMoeOnEdge's belady column, to the printed decimal") {
  struct model {
    char const* name;
    u64 lookups;
  };
  for (model const m : {model{"gptoss", 6'375}, model{"qwen", 39'526}}) {
    INFO(m.name);
    std::string const base = std::string("raw/BigMoeOnEdge/") + m.name;
    std::optional<std::string> const path = trace_file(base + ".route.csv.zst");
    std::optional<std::string> const curve_path = trace_file(base + "-curve.csv");
    if (!path || !curve_path) {
      SKIP("skipped: the BigMoeOnEdge traces are not there; WARMSET_TRACES names the folder of the "
           "traces");
    }
    trace::recording const r = read_trace_file(*path);
    CHECK(trace::count_lookups(r) == m.lookups);
    trace::next_uses const uses(r);
    std::vector<std::byte> const curve = warmset_tools::read_file(*curve_path);
    std::istringstream lines{std::string(trace::text_of(curve))};
    int rows = 0;
    for (std::string line; std::getline(lines, line);) {
      std::size_t const at = line.find(",belady,");
      if (at == std::string::npos) {
        continue;
      }
      ++rows;
      u64 const mib = std::stoull(line.substr(0, at));
      trace::oracle_report const report = trace::belady(uses, capacity::shared_bytes(mib << 20));
      CHECK(line.substr(at + 8) ==
            decimals(100 * report.total().hit_rate(), 3) + "," +
                decimals(100 * report.total(phase::decode).hit_rate(), 3) + "," +
                decimals(static_cast<double>(report.total().read_bytes) / (1 << 20), 1));
    }
    CHECK(rows == 11);
  }
}

TEST_CASE("reference: the tinymoe traces read and convert") {
  for (char const* name : {"tinymoe-8x32", "tinymoe-12x64"}) {
    INFO(name);
    std::optional<std::string> const path =
        trace_file(std::string("tinymoe/") + name + ".jsonl.zst");
    if (!path) {
      SKIP("skipped: the tinymoe traces are not there; WARMSET_TRACES names the folder of the "
           "traces");
    }
    trace::recording const r = read_trace_file(*path);
    bool const large = r.model() == "tinymoe-12x64";
    CHECK(r.labels().size() == 62);
    CHECK(r.n_token_rows() == 62u * 512 * (large ? 12 : 8));
    CHECK(r.lookahead_width() == (large ? 12 : 0));
    CHECK(r.geometry().layers()[0].expert_bytes() == (large ? 52'224 : 26'112));
    trace::recording const again = trace::read_warmset(trace::write_warmset(r));
    CHECK(trace::write_warmset(again) == trace::write_warmset(r));
    CHECK(again.label(0) == "c-code");
  }
}

TEST_CASE("reference: the token lists beside the traces fit") {
  REQUIRE_TRACE(path, "raw/gpt-oss-20b-ExpertFingerprinting/ids.rtb.zst");
  REQUIRE_TRACE(list, "raw/gpt-oss-20b-ExpertFingerprinting/meta.json.zst");
  std::vector<std::byte> const text = warmset_tools::read_file(*list);
  trace::recording const r = trace::with_tokens(read_trace_file(*path), trace::text_of(text));
  CHECK(r.tokens().size() == 51'610);
  CHECK(distinct(r.tokens()) == 5'013);  // its vocabulary
  CHECK(r[0].tokens[0] == 3'920);
  CHECK(r[47].tokens[0] == 4'273);
  CHECK(r[48].tokens[0] == 3'922);
  trace::recording const again = trace::read_warmset(trace::write_warmset(r));
  CHECK(std::equal(r.tokens().begin(), r.tokens().end(), again.tokens().begin()));
  // Where tokens belong to their steps, what a token's first layer chose before is much the same again.
  CHECK(repeats_by_token(r, 0) > 0.8);
  CHECK(repeats_by_token(r, 1) < 0.6);
}

TEST_CASE("reference: the bundled traces read, with every kind of text, look-ahead and tokens") {
#if defined(WARMSET_HAS_ZSTD)
  std::string const folder = std::string(WARMSET_SOURCE_DIR) + "/examples/data/";
  trace::recording const small = read_trace_file(folder + "tinymoe-8x32.wst.zst");
  CHECK(small.model() == "tinymoe-8x32");
  CHECK(small.labels().size() == 31);
  CHECK(trace::count_lookups(small) == 31u * 512 * 8 * 4);
  std::vector<std::string> kinds;
  for (trace::sequence_label const& l : small.labels()) {
    CHECK(l.sequence % 2 == 0);
    if (std::find(kinds.begin(), kinds.end(), l.label) == kinds.end()) {
      kinds.push_back(l.label);
    }
  }
  CHECK(kinds.size() == 14);
  trace::recording const large = read_trace_file(folder + "tinymoe-12x64.wst.zst");
  CHECK(large.lookahead_width() == 12);
  CHECK(large.labels().size() == 6);
  CHECK(large[0].lookahead[0] == trace::padding);
  CHECK(large[1].lookahead[11] < 64);
  CHECK(small.tokens().size() == 31u * 512);
  CHECK(large.tokens().size() == 6u * 512);
  for (trace::recording const* r : {&small, &large}) {
    CHECK(repeats_by_token(*r, 0) > 0.8);
    CHECK(repeats_by_token(*r, 1) < 0.5);
    std::optional<std::string> const list = trace_file("tinymoe/" + r->model() + ".tokens.jsonl");
    if (list) {
      std::vector<std::byte> const text = warmset_tools::read_file(*list);
      trace::recording const made =
          trace::renumber_tokens(trace::with_tokens(*r, trace::text_of(text)));
      CHECK(trace::write_warmset(made) == trace::write_warmset(*r));
    }
  }
#else
  SKIP("skipped: this build has no zstd");
#endif
}
