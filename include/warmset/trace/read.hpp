// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "read_bigmoe.hpp"
#include "read_rtb1.hpp"
#include "read_tinymoe.hpp"
#include "read_warmset.hpp"
#include "tokens.hpp"

namespace warmset::inline v0 {
namespace trace {

/// The trace layouts that `read` recognises.
enum class layout : u8 { warmset, bigmoe, tinymoe, rtb1 };

constexpr char const* name_of(layout l) noexcept {
  constexpr char const* names[] = {"warmset", "bigmoe", "tinymoe", "rtb1"};
  return static_cast<u32>(l) < 4 ? names[static_cast<u32>(l)] : "unknown";
}

/// The layout by the first bytes, or nothing. A JSON object counts as tinymoe. O(1).
inline std::optional<layout> recognise(std::span<std::byte const> bytes) noexcept {
  std::string_view const text = text_of(bytes.first(bytes.size() < 32 ? bytes.size() : 32));
  if (text.starts_with("WARMSET\n")) {
    return layout::warmset;
  }
  if (text.starts_with("RTB1")) {
    return layout::rtb1;
  }
  if (text.starts_with("# route_trace")) {
    return layout::bigmoe;
  }
  return text.starts_with("{") ? std::optional(layout::tinymoe) : std::nullopt;
}

/// Reads a trace of any known layout, already decompressed; `rtb1` says what that layout leaves
/// open. Throws format_error. O(size).
inline recording read(std::span<std::byte const> bytes, rtb1_options rtb1 = {}) {
  if (bytes.empty()) {
    throw format_error("trace", format_error::unit::byte, 0, "the input is empty");
  }
  std::optional<layout> const found = recognise(bytes);
  if (!found) {
    throw format_error("trace", format_error::unit::byte, 0,
                       "none of the layouts warmset, bigmoe, tinymoe, rtb1 starts with '" +
                           detail::shown(text_of(bytes).substr(0, 8)) + "'");
  }
  switch (*found) {
  case layout::warmset:
    return read_warmset(bytes);
  case layout::bigmoe:
    return read_bigmoe(text_of(bytes));
  case layout::tinymoe:
    return read_tinymoe(text_of(bytes));
  case layout::rtb1:
    break;
  }
  return read_rtb1(bytes, std::move(rtb1));
}

}  // namespace trace
}  // namespace warmset::inline v0
