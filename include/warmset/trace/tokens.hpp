// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "json_line.hpp"

namespace warmset::inline v0 {
namespace trace {

namespace detail {

/// Reader of token lists. One object per input.
class token_list_reader {
 public:
  explicit token_list_reader(std::string_view text) : text_(text), in_("tokens", text) {}

  recording add_to(recording r) {
    if (text_.empty()) {
      fail_at(1, "the input is empty");
    }
    while (in_.next()) {
      read_line();
    }
    std::sort(lists_.begin(), lists_.end(), [](list const& a, list const& b) {
      return a.sequence != b.sequence ? a.sequence < b.sequence : a.line < b.line;
    });
    for (std::size_t i = 1; i < lists_.size(); ++i) {
      if (lists_[i].sequence == lists_[i - 1].sequence) {
        fail_at(lists_[i].line, "sequence " + std::to_string(lists_[i].sequence) +
                                    " has tokens on line " + std::to_string(lists_[i - 1].line));
      }
    }
    u64 const n_inputs = r.n_inputs();
    contents parts = std::move(r).release();
    parts.tokens.clear();
    parts.tokens.reserve(static_cast<std::size_t>(n_inputs));
    if (of_all_) {
      std::vector<u32> const& all = lists_.front().tokens;
      if (all.size() != n_inputs) {
        fail_at(1,
                std::to_string(all.size()) + " tokens for a trace of " + std::to_string(n_inputs));
      }
      parts.tokens.assign(all.begin(), all.end());
    } else {
      for (block const& b : parts.blocks) {
        append(b, parts.tokens);
      }
    }
    return recording::checked(std::move(parts), [](fault const& f) { fail_at(1, f.what); });
  }

 private:
  struct list {
    u32 sequence = 0;
    u64 line = 0;
    std::vector<u32> tokens;
  };

  [[noreturn]] static void fail_at(u64 line, std::string_view what) {
    throw format_error("tokens", format_error::unit::line, line, what);
  }

  void read_line() {
    list made;
    made.line = in_.number();
    bool has_sequence = false;
    bool has_tokens = false;
    json_line object(in_);
    while (object.next()) {
      std::string_view const key = object.key();
      if (key == "s") {
        made.sequence = object.number(u32_max);
        has_sequence = true;
      } else if (key == "tokens" || key == "token") {
        made.tokens.clear();
        object.numbers(token_bound - 1, made.tokens);
        has_tokens = true;
      } else {
        object.skip();
      }
    }
    if (!has_tokens) {
      in_.fail("tokens are missing");
    }
    if (of_all_ || (!has_sequence && !lists_.empty())) {
      in_.fail("a list without s is of all sequences and stands alone");
    }
    of_all_ = !has_sequence;
    lists_.push_back(std::move(made));
  }

  /// The tokens at the positions of a block.
  void append(block const& b, column<u32>& to) const {
    auto const at = std::lower_bound(lists_.begin(), lists_.end(), b.sequence,
                                     [](list const& l, u32 s) { return l.sequence < s; });
    if (at == lists_.end() || at->sequence != b.sequence) {
      in_.fail("sequence " + std::to_string(b.sequence) + " of the trace has no tokens");
    }
    u64 const end = b.first_position + b.n_inputs();
    if (end > at->tokens.size()) {
      fail_at(at->line, "sequence " + std::to_string(b.sequence) + " has " +
                            std::to_string(at->tokens.size()) +
                            " tokens, but the trace has position " + std::to_string(end - 1));
    }
    auto const first = at->tokens.begin() + static_cast<std::ptrdiff_t>(b.first_position);
    to.insert(to.end(), first, first + static_cast<std::ptrdiff_t>(b.n_inputs()));
  }

  std::string_view text_;
  lines in_;
  std::vector<list> lists_;
  bool of_all_ = false;  ///< one list, in recorded order
};

}  // namespace detail

/// The recording with the input token ids of a list that stands beside it, already decompressed:
/// JSON lines with `s`, a sequence, and `tokens`, its token ids from position 0 on; or one line
/// without `s` whose `token` or `tokens` has the token ids of all steps in recorded order.
///
/// Sequences that the recording lacks and tokens beyond its positions are passed over; tokens that it
/// had are replaced. Throws format_error with the line where tokens are missing, or left over in a
/// list of all steps. O(size + ids).
inline recording with_tokens(recording r, std::string_view text) {
  return detail::token_list_reader(text).add_to(std::move(r));
}

/// The recording with its input token ids numbered anew from 0 in the order of their first
/// appearance: equal ids stay equal, but no vocabulary spells the text from them, so that a recording
/// can be passed on where its text may not be. O(ids).
inline recording renumber_tokens(recording r) {
  contents parts = std::move(r).release();
  std::unordered_map<u32, u32> numbers;
  for (u32& token : parts.tokens) {
    token = numbers.try_emplace(token, static_cast<u32>(numbers.size())).first->second;
  }
  return recording(std::move(parts));
}

}  // namespace trace
}  // namespace warmset::inline v0
