// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integers.hpp"

namespace warmset::inline v0 {

/// Text of at most `capacity` characters, put together from texts and unsigned numbers. Without <string>,
/// which would double the cost of including the library, and without templates, for the same reason. What
/// does not fit is cut off.
class sentence {
 public:
  static constexpr u32 capacity = 511;

  /// A text or an unsigned number.
  struct part {
    char const* text = "";
    unsigned long long number = 0;
    constexpr part() noexcept {}  // defaulted, clang would need the initializers too early
    constexpr part(char const* t) noexcept : text(t) {}
    constexpr part(unsigned n) noexcept : text(nullptr), number(n) {}
    constexpr part(unsigned long n) noexcept : text(nullptr), number(n) {}
    constexpr part(unsigned long long n) noexcept : text(nullptr), number(n) {}
  };

  explicit sentence(part a = {}, part b = {}, part c = {}, part d = {}, part e = {}, part f = {}, part g = {},
                    part h = {}, part i = {}, part j = {}, part k = {}, part l = {}) noexcept {
    append(a, b, c, d, e, f, g, h, i, j, k, l);
  }

  void append(part a, part b = {}, part c = {}, part d = {}, part e = {}, part f = {}, part g = {}, part h = {},
              part i = {}, part j = {}, part k = {}, part l = {}) noexcept {
    part const parts[] = {a, b, c, d, e, f, g, h, i, j, k, l};
    for (part const& p : parts) {
      p.text != nullptr ? append_text(p.text) : append_number(p.number);
    }
    text_[length_] = '\0';
  }

  char const* c_str() const noexcept { return text_; }

 private:
  void append_text(char const* text) noexcept {
    for (; *text != '\0' && length_ < capacity; ++text) {
      text_[length_++] = *text;
    }
  }
  void append_number(unsigned long long number) noexcept {
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
