// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <span>
#include <string>
#include <string_view>

#include "format_error.hpp"

namespace warmset::inline v0 {
namespace trace {

/// The bytes as text.
inline std::string_view text_of(std::span<std::byte const> bytes) noexcept {
  return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
}

inline std::span<std::byte const> bytes_of(std::string_view text) noexcept {
  return {reinterpret_cast<std::byte const*>(text.data()), text.size()};
}

namespace detail {

/// A value as an error message shows it: cut to a readable length, control characters replaced.
inline std::string shown(std::string_view value) {
  std::string result(value.substr(0, 40));
  for (char& c : result) {
    c = c >= ' ' && c <= '~' ? c : '?';
  }
  return value.size() > 40 ? result + "…" : result;
}

/// Lines of a text, one after the other, with their numbers for errors. Accepts LF and CRLF.
class lines {
 public:
  lines(std::string_view layout, std::string_view text) noexcept : layout_(layout), rest_(text) {}

  /// Moves to the next line; false at the end of the text.
  bool next() noexcept {
    if (rest_.empty()) {
      return false;
    }
    std::size_t const end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    ended_ = end != std::string_view::npos;
    rest_ = ended_ ? rest_.substr(end + 1) : std::string_view();
    if (!line_.empty() && line_.back() == '\r') {
      line_.remove_suffix(1);
    }
    ++number_;
    return true;
  }

  std::string_view line() const noexcept { return line_; }
  u64 number() const noexcept { return number_; }

  [[noreturn]] void fail(std::string_view what) const {
    throw format_error(layout_, format_error::unit::line, number_, what);
  }

  /// The field as a number of at most `most`.
  u64 number_of(std::string_view field, std::string_view value, u64 most) const {
    u64 result = 0;
    char const* const end = value.data() + value.size();
    auto const [stop, error] = std::from_chars(value.data(), end, result);
    if (error == std::errc() && stop == end && !value.empty() && result <= most) {
      return result;
    }
    bad_number(field, value, most);
  }

  u32 number_of32(std::string_view field, std::string_view value, u64 most = u32_max) const {
    return static_cast<u32>(number_of(field, value, min_of(most, u64{u32_max})));
  }

  [[noreturn]] void bad_number(std::string_view field, std::string_view value, u64 most) const {
    std::string const shown_value = std::string(field) + " is '" + shown(value) + "', ";
    bool digits = !value.empty();
    for (std::size_t i = value.substr(0, 1) == "-" ? 1 : 0; i < value.size(); ++i) {
      digits = digits && value[i] >= '0' && value[i] <= '9';
    }
    if (!digits) {
      fail(shown_value + "not a whole number");
    }
    if (value[0] == '-') {
      fail(shown_value + "below 0");
    }
    fail(shown_value + "more than " + std::to_string(most));
  }

 private:
  std::string_view layout_;
  std::string_view rest_;
  std::string_view line_;
  u64 number_ = 0;
  bool ended_ = true;
};

}  // namespace detail
}  // namespace trace
}  // namespace warmset::inline v0
