// SPDX-License-Identifier: Apache-2.0

#include <catch2/catch_test_macros.hpp>

#include <warmset/core/presets.hpp>

#include "support.hpp"

namespace trace_test {
namespace {

/// A recording has the preset's layers, experts and bytes. Its k may be smaller: some were made with fewer.
void check_same_model(trace::recording const& r, char const* name) {
  geometry const preset = presets::find(name);
  std::vector<layer_geometry> const& recorded = r.geometry().layers();
  REQUIRE(recorded.size() == preset.layers().size());
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    layer_geometry const& layer = preset.layers()[i];
    INFO("layer " << layer.layer.value);
    CHECK(recorded[i].layer == layer.layer);
    CHECK(recorded[i].n_experts == layer.n_experts);
    CHECK(recorded[i].k <= layer.k);
    CHECK(recorded[i].expert_bytes() == layer.expert_bytes());
  }
  CHECK(r.geometry().total_bytes() == preset.total_bytes());
}

std::string existing(char const* relative) {
  std::optional<std::string> const path = trace_file(relative);
  if (!path) {
    SKIP("the trace " << relative << " or zstd is not there");
  }
  return *path;
}

}  // namespace

TEST_CASE("the preset of Qwen3-30B-A3B has the bytes of every layer of a real file") {
  check_same_model(read_trace_file(existing("raw/BigMoeOnEdge/qwen.route.csv.zst")),
                   "qwen3-30b-a3b");
}

TEST_CASE("the preset of gpt-oss-120b has the bytes of every layer of a real file") {
  check_same_model(read_trace_file(existing("raw/BigMoeOnEdge/gptoss.route.csv.zst")),
                   "gpt-oss-120b");
}

TEST_CASE("the preset of gpt-oss-20b has the shape of its trace, whose bytes are assumed") {
  trace::recording const r =
      read_trace_file(existing("raw/gpt-oss-20b-ExpertFingerprinting/ids.rtb.zst"));
  CHECK(r.expert_bytes_assumed());
  check_same_model(r, "gpt-oss-20b");
  CHECK(r.geometry().cycle() == presets::find("gpt-oss-20b").cycle());
}

}  // namespace trace_test
