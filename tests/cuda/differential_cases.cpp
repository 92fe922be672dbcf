// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <warmset/trace/read_warmset.hpp>

#include "cuda/differential.hpp"

using namespace warmset;
using namespace differential;

// Host and device decide alike, bit for bit: answers, loads, block and every counter, step by step.

namespace {

u32 n_random_steps() {
  char const* const said = std::getenv("WARMSET_GPU_STEPS");
  return said != nullptr && *said != '\0' ? static_cast<u32>(std::strtoul(said, nullptr, 10)) : 20'000;
}

void check_holds(std::vector<verdict> const& verdicts) {
  REQUIRE(!verdicts.empty());
  for (verdict const& v : verdicts) {
    CAPTURE(v.bundle, v.error, v.compared, v.planned, v.first_difference, v.blocks_equal);
    CHECK(v.holds());
  }
}

/// The decode steps of one layer of a Warmset trace.
recorded_steps steps_of(std::filesystem::path const& file, u32 which_layer) {
  std::ifstream in(file, std::ios::binary);
  std::string const text{std::istreambuf_iterator<char>(in), {}};
  auto const* const first = reinterpret_cast<std::byte const*>(text.data());
  trace::recording const r = trace::read_warmset({first, text.size()});
  u32 const row = which_layer * (static_cast<u32>(r.geometry().layers().size()) - 1) / 2;
  recorded_steps s;
  s.k = r.geometry().layers()[row].k;
  s.n_experts = r.geometry().layers()[row].n_experts;
  for_each_event(r, [&](trace::event const& e) {
    if (e.row != row || e.phase != phase::decode || e.n_tokens != 1) {
      return;
    }
    for (u32 i = 0; i < s.k; ++i) {
      s.ids.push_back(i < e.ids.size() ? e.ids[i] : trace::padding);
    }
    s.sequences.push_back(e.sequence);
  });
  return s;
}

}  // namespace

TEST_CASE("a warp decides random steps like the host, with every bundle", "[cuda]") {
  if (!gpu_is_there()) {
    SKIP("skipped: no GPU");
  }
  check_holds(play_all({.n_steps = n_random_steps()}));
}

TEST_CASE("a block of warps decides random steps like the host", "[cuda]") {
  if (!gpu_is_there()) {
    SKIP("skipped: no GPU");
  }
  check_holds(play_blocks({.n_steps = min_of(n_random_steps(), 100'000u)}));
}

TEST_CASE("a short run of each bundle for the sanitizers", "[cuda][short]") {
  if (!gpu_is_there()) {
    SKIP("skipped: no GPU");
  }
  check_holds(play_all({.n_steps = 100}));
  check_holds(play_blocks({.n_steps = 100}));
}

TEST_CASE("a warp decides recorded routes like the host, with every bundle", "[cuda]") {
  if (!gpu_is_there()) {
    SKIP("skipped: no GPU");
  }
  char const* const named = std::getenv("WARMSET_GPU_TRACES");
  std::filesystem::path const folder = named != nullptr && *named != '\0' ? named : WARMSET_SOURCE_DIR "/build/gpu-traces";
  if (!std::filesystem::is_directory(folder)) {
    SKIP("skipped: no traces under WARMSET_GPU_TRACES or build/gpu-traces; warmset-replay convert writes them");
  }
  u32 n_traces = 0;
  for (std::filesystem::directory_entry const& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".wst") {
      continue;
    }
    ++n_traces;
    for (u32 const layer : {0u, 1u, 2u}) {  // the first, the middle, the last
      CAPTURE(entry.path().filename().string(), layer);
      recorded_steps const recorded = steps_of(entry.path(), layer);
      REQUIRE(recorded.n_steps() > 50);
      check_holds(play_all({.n_steps = min_of(recorded.n_steps(), 20'000u), .recorded = &recorded}));
    }
  }
  CHECK(n_traces != 0);
}

TEST_CASE("the differential finds one bit, and a device that planned nothing", "[cuda]") {
  if (!gpu_is_there()) {
    SKIP("skipped: no GPU");
  }
  for (verdict const& v : play_all({.n_steps = 1500, .flips_at = 1234})) {
    CAPTURE(v.bundle, v.error);
    CHECK_FALSE(v.holds());  // the blocks may be equal again in the end: the next demand of the expert writes over the bit
    CHECK(v.first_difference == 1234);
  }
  for (verdict const& v : play_all({.n_steps = 0})) {
    CHECK_FALSE(v.holds());
  }
}
