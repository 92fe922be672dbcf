// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "usage_error.hpp"

namespace warmset_tools {

using warmset::u32;
using warmset::u64;

namespace {

/// Whether the text is a number and nothing else.
template <class Number>
bool reads(std::string_view text, Number& value) {
  auto const [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && stop == text.data() + text.size();
}

}  // namespace

double number_of(std::string_view text, char const* option, double least, double most) {
  double value = 0;
  if (!reads(text, value) || !(value >= least && value <= most)) {
    throw usage_error(
        fmt::format("{}: '{}' is no number between {} and {}", option, text, least, most));
  }
  return value;
}

u32 whole_of(std::string_view text, char const* option, u32 least, u32 most) {
  u32 value = 0;
  if (!reads(text, value) || value < least || value > most) {
    throw usage_error(
        fmt::format("{}: '{}' is no whole number between {} and {}", option, text, least, most));
  }
  return value;
}

u64 seed_of(std::string_view text, char const* option) {
  u64 value = 0;
  if (!reads(text, value)) {
    throw usage_error(fmt::format("{}: '{}' is no whole number from 0 to 2^64 - 1", option, text));
  }
  return value;
}

u32 slots_of(std::string_view text, u32 experts) {
  if (text.ends_with('%')) {
    double const percent = number_of(text.substr(0, text.size() - 1), "--slots", 0, 100);
    return std::max(static_cast<u32>(percent * experts / 100), 1u);
  }
  return whole_of(text, "--slots", 1, experts);
}

}  // namespace warmset_tools
