// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#if defined(WARMSET_HAS_ZSTD)
#include <zstd.h>
#endif

namespace warmset::scenario {

/// Where real traces are: WARMSET_TRACES, else shared/traces in a folder above the sources.
inline std::filesystem::path traces() {
  if (char const* const named = std::getenv("WARMSET_TRACES")) {
    return named;
  }
  std::filesystem::path at = WARMSET_SOURCE_DIR;
  for (; at.has_relative_path(); at = at.parent_path()) {
    if (std::filesystem::exists(at / "shared/traces")) {
      return at / "shared/traces";
    }
  }
  return {};
}

/// The bytes of a zstd file; empty where there is none or no zstd.
inline std::vector<std::byte> unpacked(std::filesystem::path const& file) {
  std::vector<std::byte> out;
#if defined(WARMSET_HAS_ZSTD)
  std::ifstream in{file, std::ios::binary};
  std::string const packed{std::istreambuf_iterator<char>{in}, {}};
  if (packed.empty()) {
    return out;
  }
  ZSTD_DCtx* const context = ZSTD_createDCtx();
  ZSTD_inBuffer from{packed.data(), packed.size(), 0};
  while (from.pos < from.size) {
    std::size_t const had = out.size();
    out.resize(had + (1u << 20));
    ZSTD_outBuffer to{out.data() + had, 1u << 20, 0};
    std::size_t const more = ZSTD_decompressStream(context, &to, &from);
    out.resize(had + to.pos);
    if (ZSTD_isError(more) != 0) {
      out.clear();
      break;
    }
  }
  ZSTD_freeDCtx(context);
#else
  (void)file;
#endif
  return out;
}

}  // namespace warmset::scenario
