// SPDX-License-Identifier: Apache-2.0
#include "tokenizer.hpp"

#include <algorithm>

namespace warmset_decode {

namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

/// One code point of a text and its bytes. What is no UTF-8 is one byte of class other.
struct code_point {
  u32 value;
  std::size_t bytes;
};

code_point next_of(std::string_view text) noexcept {
  auto const byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  u32 const first = byte(0);
  std::size_t const n = first < 0x80                    ? 1
                        : first >= 0xC2 && first < 0xE0 ? 2
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 0;
  if (n == 1) {
    return {first, 1};
  }
  if (n == 0 || text.size() < n) {
    return {0xFFFD, 1};
  }
  u32 value = first & (0x7Fu >> n);
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) {
      return {0xFFFD, 1};
    }
    value = value << 6 | (byte(i) & 0x3Fu);
  }
  return {value, n};
}

enum class kind { letter, number, space, other };

struct block {
  u32 first, last;
  kind what;
};

/// Code points beyond ASCII that are no letters, by block, ascending. What is in none is a letter.
constexpr block blocks[] = {
    {0x80, 0x84, kind::other},      {0x85, 0x85, kind::space},      {0x86, 0x9F, kind::other},
    {0xA0, 0xA0, kind::space},      {0xA1, 0xA9, kind::other},      {0xAB, 0xB1, kind::other},
    {0xB2, 0xB3, kind::number},     {0xB4, 0xB4, kind::other},      {0xB6, 0xB8, kind::other},
    {0xB9, 0xB9, kind::number},     {0xBB, 0xBB, kind::other},      {0xBC, 0xBE, kind::number},
    {0xBF, 0xBF, kind::other},      {0xD7, 0xD7, kind::other},      {0xF7, 0xF7, kind::other},
    {0x2C2, 0x2C5, kind::other},    {0x2D2, 0x2DF, kind::other},    {0x300, 0x36F, kind::other},
    {0x483, 0x489, kind::other},    {0x591, 0x5CF, kind::other},    {0x660, 0x669, kind::number},
    {0x1680, 0x1680, kind::space},  {0x2000, 0x200A, kind::space},  {0x200B, 0x2027, kind::other},
    {0x2028, 0x2029, kind::space},  {0x202A, 0x202E, kind::other},  {0x202F, 0x202F, kind::space},
    {0x2030, 0x205E, kind::other},  {0x205F, 0x205F, kind::space},  {0x2060, 0x206F, kind::other},
    {0x2070, 0x2070, kind::number}, {0x2074, 0x2079, kind::number}, {0x207A, 0x207E, kind::other},
    {0x2080, 0x2089, kind::number}, {0x208A, 0x208E, kind::other},  {0x20A0, 0x2101, kind::other},
    {0x2150, 0x2189, kind::number}, {0x2190, 0x245F, kind::other},  {0x2460, 0x249B, kind::number},
    {0x249C, 0x24E9, kind::other},  {0x24EA, 0x24FF, kind::number}, {0x2500, 0x2775, kind::other},
    {0x2776, 0x2793, kind::number}, {0x2794, 0x2BFF, kind::other},  {0x2E00, 0x2FFF, kind::other},
    {0x3000, 0x3000, kind::space},  {0x3001, 0x3004, kind::other},  {0x3007, 0x3007, kind::number},
    {0x3008, 0x3020, kind::other},  {0x3021, 0x3029, kind::number}, {0x302A, 0x3030, kind::other},
    {0x303D, 0x303F, kind::other},  {0x3099, 0x309C, kind::other},  {0x30A0, 0x30A0, kind::other},
    {0x30FB, 0x30FB, kind::other},  {0xFE00, 0xFE6F, kind::other},  {0xFEFF, 0xFF0F, kind::other},
    {0xFF10, 0xFF19, kind::number}, {0xFF1A, 0xFF20, kind::other},  {0xFF3B, 0xFF40, kind::other},
    {0xFF5B, 0xFF65, kind::other},  {0xFFE0, 0xFFFF, kind::other},  {0x1F000, 0x1FAFF, kind::other},
};

kind kind_of(u32 c) noexcept {
  if (c < 0x80) {
    bool const letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    bool const space = c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F);
    return letter                 ? kind::letter
           : c >= '0' && c <= '9' ? kind::number
           : space                ? kind::space
                                  : kind::other;
  }
  auto const* const b = std::lower_bound(std::begin(blocks), std::end(blocks), c,
                                         [](block const& x, u32 v) { return x.last < v; });
  return b != std::end(blocks) && c >= b->first ? b->what : kind::letter;
}

/// The character that spells a byte: itself where it can be seen, else the next of those from 256 on.
void spell_bytes(u32 (&character)[256]) noexcept {
  u32 next = 256;
  for (u32 b = 0; b < 256; ++b) {
    bool const visible = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    character[b] = visible ? b : next++;
  }
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  auto const run = [&](std::size_t from, kind what) {  // where code points of this kind end
    while (from < text.size()) {
      code_point const c = next_of(text.substr(from));
      if (kind_of(c.value) != what) {
        break;
      }
      from += c.bytes;
    }
    return from;
  };
  for (std::size_t at = 0; at < text.size();) {
    std::string_view const rest = text.substr(at);
    std::size_t end = at;
    for (std::string_view const ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
      if (end == at && rest.starts_with(ending)) {
        end = at + ending.size();
      }
    }
    std::size_t const begin =
        rest.front() == ' ' && rest.size() > 1 ? at + 1 : at;  // a blank goes with its word
    if (end == at) {
      kind const what = kind_of(next_of(text.substr(begin)).value);
      if (what != kind::space) {
        end = run(begin, what);
      } else {
        end = run(at, kind::space);
        std::size_t last = at;  // of the run's code points
        for (std::size_t i = at; i < end; i += next_of(text.substr(i)).bytes) {
          last = i;
        }
        if (end < text.size() && last != at) {
          end = last;  // the last one stays for the word behind it
        }
      }
    }
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

tokenizer::tokenizer(gguf::file const& file) {
  gguf::vocabulary const v = file.vocabulary();
  if (v.model != "gpt2") {
    file.fail("the tokenizer is '" + std::string(v.model) + "'; gpt2 is what this program has");
  }
  end_ = v.end_of_text;
  u32 character[256];
  spell_bytes(character);
  std::unordered_map<u32, unsigned char> byte_of;
  for (u32 b = 0; b < 256; ++b) {
    byte_of[character[b]] = static_cast<unsigned char>(b);
    of_byte_[b] = static_cast<u32>(v.tokens.size());
  }
  std::unordered_map<std::string_view, u32> ids;
  for (u32 id = 0; id < v.tokens.size(); ++id) {
    std::string text;
    bool const control = !v.kinds.empty() && v.kinds[id] == 3;
    for (std::string_view rest = control ? std::string_view() : v.tokens[id]; !rest.empty();) {
      code_point const c = next_of(rest);
      auto const found = byte_of.find(c.value);
      if (found == byte_of.end()) {
        file.fail("token " + std::to_string(id) + " of the vocabulary is not spelled in bytes");
      }
      text += static_cast<char>(found->second);
      rest.remove_prefix(c.bytes);
    }
    if (text.size() == 1) {
      of_byte_[static_cast<unsigned char>(text[0])] = id;
    }
    ids.emplace(v.tokens[id], id);
    bytes_.push_back(std::move(text));
  }
  for (u32 b = 0; b < 256; ++b) {
    if (of_byte_[b] == v.tokens.size()) {
      file.fail("the vocabulary has no token for byte " + std::to_string(b));
    }
  }
  for (u32 rank = 0; rank < v.merges.size(); ++rank) {
    std::string_view const both = v.merges[rank];
    std::size_t const gap = both.find(' ');
    std::string_view const left = both.substr(0, gap);
    std::string_view const right = gap == both.npos ? std::string_view() : both.substr(gap + 1);
    auto const a = ids.find(left), b = ids.find(right),
               ab = ids.find(std::string(left) + std::string(right));
    if (a == ids.end() || b == ids.end() || ab == ids.end()) {
      file.fail("merge " + std::to_string(rank) + " of the vocabulary names what is no token");
    }
    merges_.emplace(u64{a->second} << 32 | b->second, merge{rank, ab->second});
  }
}

void tokenizer::encode_word(std::string_view word, std::vector<u32>& out) const {
  std::vector<u32> parts;
  for (char c : word) {
    parts.push_back(of_byte_[static_cast<unsigned char>(c)]);
  }
  for (;;) {
    merge best{~u32{0}, 0};
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      auto const found = merges_.find(u64{parts[i]} << 32 | parts[i + 1]);
      if (found != merges_.end() && found->second.rank < best.rank) {
        best = found->second;
        where = i;
      }
    }
    if (best.rank == ~u32{0}) {
      break;
    }
    parts[where] = best.token;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
  out.insert(out.end(), parts.begin(), parts.end());
}

std::vector<u32> tokenizer::encode(std::string_view text) const {
  std::vector<u32> out;
  for (std::string_view word : words_of(text)) {
    encode_word(word, out);
  }
  return out;
}

std::string tokenizer::decode(std::span<u32 const> tokens) const {
  std::string text;
  for (u32 t : tokens) {
    text += t < bytes_.size() ? bytes_[t] : std::string();
  }
  return text;
}

}  // namespace warmset_decode
