// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "../core/integers.hpp"

namespace warmset::inline v0 {

/// Takes text in pieces: sink(data, n). What it does with them, and whether it may throw, is its own affair.
template <class Sink>
concept text_sink = requires(Sink& sink, char const* data, std::size_t n) {
  sink(data, n);
};

/// Writes to a caller's buffer, ends it with '\0' and counts what does not fit.
class buffer_sink {
 public:
  buffer_sink(char* data, std::size_t capacity) noexcept : data_(data), capacity_(capacity) {
    if (capacity_ != 0) {
      data_[0] = '\0';
    }
  }

  void operator()(char const* text, std::size_t n) noexcept {
    for (std::size_t i = 0; i < n; ++i, ++needed_) {
      if (needed_ + 1 < capacity_) {
        data_[needed_] = text[i];
        data_[needed_ + 1] = '\0';
      }
    }
  }

  /// Characters that the whole text has, without the '\0'.
  std::size_t needed() const noexcept { return needed_; }
  /// Whether the text is cut off: a buffer of needed() + 1 would have held it.
  bool truncated() const noexcept { return needed_ + 1 > capacity_; }
  std::size_t size() const noexcept {
    return !truncated() ? needed_ : capacity_ == 0 ? 0 : capacity_ - 1;
  }

 private:
  char* data_;
  std::size_t capacity_;
  std::size_t needed_ = 0;
};

static_assert(text_sink<buffer_sink>, "buffer_sink must be a text_sink");

/// Puts texts and numbers together and hands them to a sink in pieces of some hundred characters. What is not
/// flushed is lost.
template <text_sink Sink>
class text_writer {
 public:
  explicit text_writer(Sink& sink) noexcept : sink_(sink) {}
  text_writer(text_writer const&) = delete;
  text_writer& operator=(text_writer const&) = delete;

  text_writer& put(char c) {
    if (n_ == sizeof piece_) {
      flush();
    }
    piece_[n_++] = c;
    return *this;
  }
  text_writer& put(char const* text) {
    for (; *text != '\0'; ++text) {
      put(*text);
    }
    return *this;
  }
  text_writer& put(u64 number) {
    char digits[20];
    u32 n = 0;
    do {
      digits[n++] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    while (n != 0) {
      put(digits[--n]);
    }
    return *this;
  }
  text_writer& put(u32 number) { return put(u64{number}); }
  text_writer& put(bool value) { return put(value ? "true" : "false"); }
  /// A part of 65536 as a decimal fraction of six digits, rounded down; the whole is 1.000000.
  text_writer& put_q16(u32 part) {
    put(u64{part >> 16}).put('.');
    u64 rest = part & 0xFFFF;
    for (u32 i = 0; i < 6; ++i) {
      rest *= 10;
      put(static_cast<char>('0' + (rest >> 16)));
      rest &= 0xFFFF;
    }
    return *this;
  }
  /// A name as an identifier: blanks become underscores.
  text_writer& put_identifier(char const* name) {
    for (; *name != '\0'; ++name) {
      put(*name == ' ' ? '_' : *name);
    }
    return *this;
  }
  /// Between quotes, as JSON and most log readers have it. Bytes beyond ASCII pass as they are: UTF-8 stays.
  text_writer& put_quoted(char const* text) {
    constexpr char hex[] = "0123456789abcdef";
    put('"');
    for (; *text != '\0'; ++text) {
      u32 const c = static_cast<unsigned char>(*text);
      if (c == '"' || c == '\\') {
        put('\\').put(*text);
      } else if (c == '\n') {
        put("\\n");
      } else if (c < 0x20 || c == 0x7F) {
        put("\\u00").put(hex[c >> 4]).put(hex[c & 0xF]);
      } else {
        put(*text);
      }
    }
    return put('"');
  }

  void flush() {
    if (n_ != 0) {
      sink_(static_cast<char const*>(piece_), n_);
      n_ = 0;
    }
  }

 private:
  Sink& sink_;
  std::size_t n_ = 0;
  char piece_[256];
};

}  // namespace warmset::inline v0
