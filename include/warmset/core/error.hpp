// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>

#include "integers.hpp"

namespace warmset::inline v0 {

/// A configuration that cannot work. Thrown by constructors only; the message is one sentence that names
/// the values. It is put together without <string>, which would double the cost of including the library.
class config_error : public std::exception {
 public:
  /// @param parts  texts and unsigned numbers, joined; what exceeds 255 characters is cut off
  template <class... Parts>
  explicit config_error(Parts const&... parts) noexcept {
    (append(parts), ...);
    text_[length_] = '\0';
  }

  char const* what() const noexcept override { return text_; }

 private:
  static constexpr u32 capacity = 255;

  void append(char const* text) noexcept {
    for (; *text != '\0' && length_ < capacity; ++text) {
      text_[length_++] = *text;
    }
  }
  void append(u64 number) noexcept {
    char digits[20];
    u32 n = 0;
    do {
      digits[n++] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    while (n != 0 && length_ < capacity) {
      text_[length_++] = digits[--n];
    }
  }

  u32 length_ = 0;
  char text_[capacity + 1];
};

}  // namespace warmset::inline v0
