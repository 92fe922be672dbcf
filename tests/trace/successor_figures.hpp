// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support.hpp"
#include "support/optimised.hpp"

#include <optional>
#include <string>
#include <vector>

#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <kit/successor_reference.hpp>

/// The published figures of the successor score, which its reference and the library have to reach alike.
namespace trace_test {

#define REQUIRE_TRACE(name, relative)                                                                        \
  std::optional<std::string> const name = trace_file(relative);                                              \
  if (!name) {                                                                                               \
    SKIP("skipped: " << (relative) << " is not there; WARMSET_TRACES names the folder of traces");           \
  }

inline constexpr double tolerance = .001;
inline constexpr double tolerance_with_ties = .0015;
inline constexpr char const* gpt_oss_20b = "raw/gpt-oss-20b-ExpertFingerprinting/ids.rtb.zst";
inline constexpr char const* tinymoe_12x64 = "tinymoe/tinymoe-12x64.jsonl.zst";
inline constexpr char const* tinymoe_8x32 = "tinymoe/tinymoe-8x32.jsonl.zst";
inline constexpr char const* qwen3_30b = "raw/BigMoeOnEdge/qwen.route.csv.zst";
inline constexpr char const* gpt_oss_120b = "raw/BigMoeOnEdge/gptoss.route.csv.zst";

inline constexpr trace::selection decode{.prefill = false};

/// One pool and the hit rate that it must reach.
struct cell {
  kit::reference_pools::options pool;
  double expected;
};

constexpr cell per_layer(u32 slots, double expected) {
  return {{.slots_per_layer = slots}, expected};
}
constexpr cell shared(u32 slots, u32 floor, double expected) {
  return {{.slots_per_layer = slots, .shared = true, .floor = floor}, expected};
}

/// A form and its hit rates.
struct figures {
  kit::successor_form form;
  std::vector<cell> cells;
};

inline std::vector<figures> const figures_of_gpt_oss_20b{
    {{1, 16}, {per_layer(4, .431), per_layer(8, .707), per_layer(16, .919)}},
    {{1, 8}, {per_layer(8, .707), per_layer(16, .919)}},
    {{2, 16}, {per_layer(8, .709), per_layer(16, .920)}},
    {{2, 8}, {per_layer(8, .709), per_layer(16, .920)}},
    {{3, 16}, {per_layer(8, .711), per_layer(16, .920)}},
    {{3, 8}, {per_layer(8, .711), per_layer(16, .920)}},
};
inline std::vector<figures> const shared_figures_of_gpt_oss_20b{
    {{2, 16}, {shared(4, 4, .431), shared(8, 4, .722), shared(16, 4, .932)}},
    {{3, 16}, {shared(8, 4, .727), shared(16, 4, .933)}},
};
inline std::vector<figures> const figures_of_tinymoe_12x64{
    {{1, 16}, {per_layer(16, .579), per_layer(32, .810)}},
    {{1, 8}, {per_layer(16, .578), per_layer(32, .809)}},
    {{2, 16}, {per_layer(16, .581), per_layer(32, .812)}},
    {{2, 8}, {per_layer(16, .580), per_layer(32, .811)}},
    {{3, 16}, {per_layer(16, .584), per_layer(32, .813)}},
    {{3, 8}, {per_layer(16, .583), per_layer(32, .811)}},
};
inline std::vector<figures> const figures_of_tinymoe_8x32{
    {{1, 16}, {per_layer(8, .582), per_layer(16, .816)}},
    {{1, 8}, {per_layer(8, .582), per_layer(16, .816)}},
    {{2, 16}, {per_layer(8, .584), per_layer(16, .817)}},
    {{2, 8}, {per_layer(8, .584), per_layer(16, .817)}},
    {{3, 16}, {per_layer(8, .586), per_layer(16, .817)}},
    {{3, 8}, {per_layer(8, .586), per_layer(16, .817)}},
};
inline std::vector<figures> const figures_of_qwen3_30b{
    {{1, 16}, {per_layer(16, .654), per_layer(32, .825), per_layer(64, .913)}},
    {{1, 8}, {per_layer(16, .654), per_layer(32, .825), per_layer(64, .913)}},
    {{2, 16},
     {per_layer(16, .654), per_layer(32, .826), per_layer(64, .913), shared(16, 6, .629), shared(32, 6, .828),
      shared(64, 6, .917)}},
    {{2, 8}, {per_layer(16, .654), per_layer(32, .826), per_layer(64, .913)}},
    {{3, 16},
     {per_layer(16, .655), per_layer(32, .826), per_layer(64, .913), shared(16, 6, .630), shared(32, 6, .826),
      shared(64, 6, .917)}},
    {{3, 8}, {per_layer(16, .654), per_layer(32, .826), per_layer(64, .913)}},
};
inline std::vector<figures> const figures_of_gpt_oss_120b{
    {{1, 16}, {per_layer(16, .639), per_layer(32, .711)}},
    {{1, 8}, {per_layer(16, .638), per_layer(32, .711)}},
    {{2, 16}, {per_layer(16, .634), per_layer(32, .711)}},
    {{2, 8}, {per_layer(16, .633), per_layer(32, .711)}},
    {{3, 16}, {per_layer(16, .636), per_layer(32, .712)}},
    {{3, 8}, {per_layer(16, .634), per_layer(32, .711)}},
};

}  // namespace trace_test
