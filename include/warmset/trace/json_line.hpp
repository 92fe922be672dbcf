// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text.hpp"
#include "trace.hpp"

namespace warmset::inline v0 {
namespace trace {

namespace detail {

/// Members of one JSON object of a line, without recursion: strings without escapes beyond skipping
/// them, whole numbers, lists of whole numbers; other values are skipped.
class json_line {
 public:
  explicit json_line(lines const& in)
      : in_(in), at_(in.line().data()), end_(at_ + in.line().size()) {
    expect('{', "an object");
  }

  /// Moves to the next member; false at the end of the object.
  bool next() {
    skip_blanks();
    if (at_ != end_ && *at_ == '}') {
      ++at_;
      skip_blanks();
      if (at_ != end_) {
        in_.fail("'" + rest() + "' follows the object");
      }
      return false;
    }
    if (!first_) {
      expect(',', "',' or '}'");
      skip_blanks();
    }
    first_ = false;
    key_ = string("a key");
    expect(':', "':'");
    skip_blanks();
    return true;
  }

  std::string_view key() const noexcept { return key_; }

  u32 number(u64 most) { return in_.number_of32(key_, token(), most); }
  u64 wide_number(u64 most) { return in_.number_of(key_, token(), most); }
  std::string_view string() { return string(key_); }

  /// A list of whole numbers of at most `most`, appended to `out`.
  void numbers(u32 most, std::vector<u32>& out) {
    list([&](std::string_view value) { out.push_back(in_.number_of32(key_, value, most)); });
  }

  /// A list of whole numbers of at most `most`, appended to `out`; −1 becomes padding.
  void ids(u32 most, std::vector<u16>& out) {
    list([&](std::string_view value) {
      out.push_back(value == "-1" ? padding : static_cast<u16>(in_.number_of(key_, value, most)));
    });
  }

  void skip() {
    u32 depth = 0;
    do {
      skip_blanks();
      if (at_ == end_) {
        in_.fail("the line ends within '" + shown(key_) + "'");
      }
      if (*at_ == '"') {
        string(key_);
      } else if (*at_ == '[' || *at_ == '{') {
        ++depth;
        ++at_;
      } else if (depth != 0 && (*at_ == ']' || *at_ == '}')) {
        --depth;
        ++at_;
      } else if (depth != 0 && (*at_ == ',' || *at_ == ':')) {
        ++at_;
      } else {
        token();
      }
    } while (depth != 0);
  }

 private:
  /// Calls f(text) for each element of a list of plain values.
  template <class F>
  void list(F&& f) {
    expect('[', "a list");
    skip_blanks();
    if (at_ != end_ && *at_ == ']') {
      ++at_;
      return;
    }
    for (;;) {
      f(token());
      skip_blanks();
      if (at_ != end_ && *at_ == ']') {
        ++at_;
        return;
      }
      expect(',', "',' or ']'");
      skip_blanks();
    }
  }

  void skip_blanks() noexcept {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t')) {
      ++at_;
    }
  }

  std::string rest() const { return shown({at_, static_cast<std::size_t>(end_ - at_)}); }

  void expect(char c, std::string_view what) {
    skip_blanks();
    if (at_ == end_ || *at_ != c) {
      in_.fail(at_ == end_ ? "the line ends where " + std::string(what) + " is due"
                           : "'" + rest() + "' where " + std::string(what) + " is due");
    }
    ++at_;
  }

  std::string_view string(std::string_view what) {
    expect('"', what);
    char const* const start = at_;
    while (at_ != end_ && *at_ != '"') {
      at_ += *at_ == '\\' && end_ - at_ > 1 ? 2 : 1;
    }
    if (at_ == end_) {
      in_.fail("the line ends within a string");
    }
    return {start, static_cast<std::size_t>(at_++ - start)};
  }

  /// Characters up to the next that ends a number.
  std::string_view token() {
    char const* const start = at_;
    while (at_ != end_ && *at_ != ',' && *at_ != ']' && *at_ != '}' && *at_ != ' ' && *at_ != '[' &&
           *at_ != '{' && *at_ != '"' && *at_ != ':') {
      ++at_;
    }
    if (at_ == start) {
      in_.fail(at_ == end_ ? "the line ends where a value is due"
                           : "'" + rest() + "' where a value is due");
    }
    return {start, static_cast<std::size_t>(at_ - start)};
  }

  lines const& in_;
  char const* at_;
  char const* end_;
  bool first_ = true;
  std::string_view key_;
};

}  // namespace detail

}  // namespace trace
}  // namespace warmset::inline v0
