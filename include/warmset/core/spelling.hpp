// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integers.hpp"

namespace warmset::inline v0 {

/// A policy's name: the stem, and its number behind it where that is not the usual one.
struct spelling {
  char text[32];

  consteval spelling(char const* stem, u32 number, u32 usual) : text{} {
    u32 at = 0;
    for (; stem[at] != '\0'; ++at) {
      text[at] = stem[at];
    }
    if (number == usual) {
      return;
    }
    u32 divisor = 1;
    for (; number / divisor >= 10; divisor *= 10) {
    }
    text[at++] = '_';
    for (; divisor != 0; divisor /= 10) {
      text[at++] = static_cast<char>('0' + number / divisor % 10);
    }
  }
};

/// The names of two parts, `a+b`, or with another sign between them.
struct joined_spelling {
  char text[64];

  consteval joined_spelling(char const* a, char const* b, char between = '+') : text{} {
    u32 at = 0;
    for (; *a != '\0'; ++a) {
      text[at++] = *a;
    }
    text[at++] = between;
    for (; *b != '\0'; ++b) {
      text[at++] = *b;
    }
  }
};

}  // namespace warmset::inline v0
