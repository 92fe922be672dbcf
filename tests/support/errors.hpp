// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <warmset/core/error.hpp>

namespace warmset_test {

/// The sentence of the config_error that f throws; empty where it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (warmset::config_error const& e) {
    return e.what();
  }
  return "";
}

inline bool mentions(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace warmset_test
