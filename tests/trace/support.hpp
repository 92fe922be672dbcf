// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/trace/read.hpp>

#include "../../examples/common/file.hpp"

namespace trace_test {

using namespace warmset;

/// Folder of the real traces: WARMSET_TRACES, else `shared/traces` beside the source tree or above
/// it.
inline std::optional<std::filesystem::path> traces_folder() {
  if (char const* named = std::getenv("WARMSET_TRACES"); named != nullptr && *named != '\0') {
    return std::filesystem::path(named);
  }
  for (std::filesystem::path at = WARMSET_SOURCE_DIR;; at = at.parent_path()) {
    if (std::filesystem::is_directory(at / "shared" / "traces")) {
      return at / "shared" / "traces";
    }
    if (at == at.parent_path()) {
      return std::nullopt;
    }
  }
}

/// A real trace's file, or nothing where the data or zstd is not there.
inline std::optional<std::string> trace_file(std::string_view relative) {
#if defined(WARMSET_HAS_ZSTD)
  std::optional<std::filesystem::path> const folder = traces_folder();
  if (folder && std::filesystem::exists(*folder / relative)) {
    return (*folder / relative).string();
  }
#else
  (void)relative;
#endif
  return std::nullopt;
}

inline trace::recording read_trace_file(std::string const& path) {
  return trace::read(warmset_tools::read_file(path));
}

/// The format_error that f throws, or nothing.
template <class F>
std::optional<trace::format_error> format_error_of(F&& f) {
  try {
    (void)f();
  } catch (trace::format_error const& e) {
    return e;
  }
  return std::nullopt;
}

/// The text with one part replaced; the part must occur.
inline std::string with(std::string text, std::string_view part, std::string_view replacement) {
  std::size_t const at = text.find(part);
  REQUIRE(at != std::string::npos);
  return text.replace(at, part.size(), replacement);
}

/// One malformed input: what it is, the input, where the error points and what it must mention.
struct malformed {
  char const* name;
  std::string input;
  u64 at;
  char const* mentions;
};

template <class Read>
void check_malformed(std::vector<malformed> const& cases, trace::format_error::unit unit,
                     Read&& read) {
  for (malformed const& c : cases) {
    INFO(c.name);
    auto const error = format_error_of([&] { return read(c.input); });
    REQUIRE(error.has_value());
    INFO(error->what());
    CHECK(error->counted() == unit);
    CHECK(error->at() == c.at);
    CHECK(std::string_view(error->what()).find(c.mentions) != std::string_view::npos);
  }
}

/// A recording of one layer and decode steps of single experts or small sets.
inline trace::recording one_layer(u32 n_experts, u32 k,
                                  std::vector<std::vector<u16>> const& steps) {
  trace::contents c;
  c.geometry = geometry::uniform(1, n_experts, k, 100);
  trace::block b;
  b.n_rows = 1;
  b.n_steps = static_cast<u32>(steps.size());
  b.k = k;
  c.blocks.push_back(b);
  for (std::vector<u16> const& step : steps) {
    REQUIRE(step.size() <= k);
    c.ids.insert(c.ids.end(), step.begin(), step.end());
    c.ids.insert(c.ids.end(), k - step.size(), trace::padding);
  }
  return trace::recording(std::move(c));
}

/// The ids of an event, as a vector that prints and compares.
inline std::vector<u16> ids_of(trace::event const& e) {
  return {e.ids.begin(), e.ids.end()};
}

}  // namespace trace_test
