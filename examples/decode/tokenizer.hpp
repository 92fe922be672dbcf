// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/gguf.hpp"

namespace warmset_decode {

/// Byte-level byte-pair encoding as GPT-2 has it: text is cut into words, the bytes of each word are spelled as
/// characters, and neighbours are merged, the strongest pair first. Every byte string has tokens, and decoding gives
/// it back. Control tokens stand for no text.
///
/// The vocabulary's file must outlive it. The constructor throws gguf::format_error.
class tokenizer {
 public:
  explicit tokenizer(gguf::file const& file);

  std::vector<std::uint32_t> encode(std::string_view text) const;
  std::string decode(std::span<std::uint32_t const> tokens) const;

  std::size_t size() const noexcept { return bytes_.size(); }
  /// Whether a text ends with this token.
  bool ends(std::uint32_t token) const noexcept { return static_cast<std::int64_t>(token) == end_; }

 private:
  struct merge {
    std::uint32_t rank;
    std::uint32_t token;
  };
  void encode_word(std::string_view word, std::vector<std::uint32_t>& out) const;

  std::vector<std::string> bytes_;                   // by token id
  std::unordered_map<std::uint64_t, merge> merges_;  // by the two tokens
  std::uint32_t of_byte_[256];
  std::int64_t end_;
};

/// The words of a text: pieces that merges do not reach across. The pattern is GPT-2's,
/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ (openai/gpt-2, src/encoder.py). Letters
/// beyond ASCII are told by blocks of code points, not one by one.
std::vector<std::string_view> words_of(std::string_view text);

}  // namespace warmset_decode
