// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>

#include "sentence.hpp"

namespace warmset::inline v0 {

/// A configuration that cannot work. Thrown by constructors only; the message is one sentence that names
/// the values.
class config_error : public std::exception {
 public:
  using part = sentence::part;

  /// Joins texts and unsigned numbers; what exceeds sentence::capacity is cut off.
  explicit config_error(part a = {}, part b = {}, part c = {}, part d = {}, part e = {}, part f = {}, part g = {},
                        part h = {}, part i = {}, part j = {}, part k = {}, part l = {}) noexcept
      : text_(a, b, c, d, e, f, g, h, i, j, k, l) {}

  char const* what() const noexcept override { return text_.c_str(); }

 private:
  sentence text_;
};

}  // namespace warmset::inline v0
