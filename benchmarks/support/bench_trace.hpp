// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<zstd.h>)
#include <zstd.h>
#endif

#include <warmset/trace/read.hpp>

namespace bench {

/// One demand step as an engine issues it.
struct step {
  warmset::layer_id layer;
  std::vector<warmset::routed_id> ids;
};

/// The steps of one trace that a benchmark plays, and the model that they are of.
struct workload {
  std::string name;
  warmset::geometry model;
  std::vector<std::vector<step>> passes;  ///< the same steps, the ids of each in another order: see decode_workload
  std::size_t lookups = 0;                ///< of a pass
};

inline std::vector<std::byte> read_file(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error(path.string() + ": cannot be opened");
  }
  std::vector<char> raw{std::istreambuf_iterator<char>(file), {}};
  auto const* const begin = reinterpret_cast<std::byte const*>(raw.data());
  if (path.extension() != ".zst") {
    return {begin, begin + raw.size()};
  }
#if __has_include(<zstd.h>)
  std::vector<std::byte> bytes;
  std::vector<char> chunk(ZSTD_DStreamOutSize());
  ZSTD_DStream* const stream = ZSTD_createDStream();
  ZSTD_inBuffer in{raw.data(), raw.size(), 0};
  while (in.pos < in.size) {
    ZSTD_outBuffer out{chunk.data(), chunk.size(), 0};
    if (ZSTD_isError(ZSTD_decompressStream(stream, &out, &in)) != 0) {
      ZSTD_freeDStream(stream);
      throw std::runtime_error(path.string() + ": not a zstd file");
    }
    auto const* const part = reinterpret_cast<std::byte const*>(chunk.data());
    bytes.insert(bytes.end(), part, part + out.pos);
  }
  ZSTD_freeDStream(stream);
  return bytes;
#else
  throw std::runtime_error(path.string() + ": built without zstd");
#endif
}

/// The Qwen3-30B-A3B decode trace where it is at hand, the bundled one otherwise: WARMSET_BENCH_TRACE names a
/// file, WARMSET_TRACES a folder of traces, else shared/traces beside or above the sources.
inline std::filesystem::path find_trace() {
  namespace fs = std::filesystem;
  if (char const* const file = std::getenv("WARMSET_BENCH_TRACE")) {
    return file;
  }
  fs::path const qwen = fs::path("raw") / "BigMoeOnEdge" / "qwen.route.csv.zst";
  if (char const* const folder = std::getenv("WARMSET_TRACES")) {
    return fs::path(folder) / qwen;
  }
  for (fs::path at = fs::path(__FILE__).parent_path(); !at.empty() && at != at.root_path();
       at = at.parent_path()) {
    fs::path const candidate = at / "shared" / "traces" / qwen;
    if (fs::exists(candidate)) {
      return candidate;
    }
  }
  fs::path const data = fs::path(__FILE__).parent_path().parent_path().parent_path() / "examples" / "data";
  for (fs::directory_entry const& entry : fs::directory_iterator(data)) {
    if (entry.path().string().find(".wst") != std::string::npos) {
      return entry.path();
    }
  }
  throw std::runtime_error("no trace found: set WARMSET_BENCH_TRACE");
}

/// The decode steps of the trace. A benchmark plays them again and again, and a branch predictor that is large enough learns by
/// heart where a pass misses, which no engine's routes let it: a table of 16 slots was played twice as fast on one machine as on
/// the next. So passes differ: in each the experts of a step come in another order. Whoever plays several caches gives each the
/// same passes.
inline workload const& decode_workload() {
  static workload const loaded = [] {
    constexpr std::size_t n_passes = 16;
    std::filesystem::path const path = find_trace();
    std::vector<std::byte> const bytes = read_file(path);
    warmset::trace::recording const trace = warmset::trace::read(bytes);
    workload w{path.filename().string(), trace.geometry(), std::vector<std::vector<step>>(1), 0};
    warmset::trace::for_each_event(trace, [&](warmset::trace::event const& e) {
      if (e.phase != warmset::phase::decode) {
        return;
      }
      step s{e.layer, {}};
      for (warmset::u16 id : e.ids) {
        s.ids.push_back(warmset::trace::routed(id));
      }
      w.lookups += s.ids.size();
      w.passes.front().push_back(std::move(s));
    });
    std::fprintf(stderr, "trace: %s, %zu decode steps, %zu look-ups\n", w.name.c_str(), w.passes.front().size(),
                 w.lookups);
    std::mt19937 dice(1);
    while (w.passes.size() < n_passes) {
      w.passes.push_back(w.passes.front());
      for (step& s : w.passes.back()) {
        for (std::size_t i = s.ids.size(); i > 1; --i) {
          std::swap(s.ids[i - 1], s.ids[dice() % i]);
        }
      }
    }
    return w;
  }();
  return loaded;
}

}  // namespace bench
