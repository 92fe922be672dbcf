// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "../core/geometry.hpp"

namespace warmset::inline v0 {

namespace move_detail {

template <class S>
concept reads_bytes = requires(S const& s, expert_key key, u32 bank, u64 offset,
                               std::span<std::byte> out) {
  { s.read(key, bank, offset, out) }
  noexcept->std::same_as<void>;
};

template <class S>
concept compares_bytes = requires(S const& s, expert_key key, u32 bank, u64 offset,
                                  std::span<std::byte const> bytes) {
  { s.equals(key, bank, offset, bytes) }
  noexcept->std::same_as<bool>;
};

template <class S>
concept checks_layers = requires(S& s, layer_geometry const& layer) {
  { s.check(layer) } -> std::same_as<void>;
};

}  // namespace move_detail

/// Where experts' bytes come from. `read` fills `out` with the bytes of one expert's bank from
/// `offset` on, `equals` compares them, `check` throws config_error where the source cannot serve a
/// layer. Both are called only for layers that passed `check` and inside the bank.
template <class S>
concept byte_source =
    move_detail::reads_bytes<S> && move_detail::compares_bytes<S> && move_detail::checks_layers<S>;

namespace move {

/// A source whose bytes are a function of (layer, expert, bank, offset), so that every read of a
/// slot can tell whose bytes it sees. Needs no memory.
class patterned_source {
 public:
  /// @param salt  sources with different salts have different bytes
  explicit constexpr patterned_source(u64 salt = 0) noexcept : salt_(salt) {}

  static constexpr void check(layer_geometry const&) noexcept {}

  /// The byte at `offset` of one expert's bank. O(1).
  constexpr std::byte at(expert_key key, u32 bank, u64 offset) const noexcept {
    return byte_of(word(seed(key, bank), offset / 8), offset % 8);
  }

  void read(expert_key key, u32 bank, u64 offset, std::span<std::byte> out) const noexcept {
    u64 const s = seed(key, bank);
    for (std::size_t i = 0; i < out.size();) {
      u64 const w = word(s, (offset + i) / 8);
      for (u64 j = (offset + i) % 8; j < 8 && i < out.size(); ++j, ++i) {
        out[i] = byte_of(w, j);
      }
    }
  }

  bool equals(expert_key key, u32 bank, u64 offset,
              std::span<std::byte const> bytes) const noexcept {
    u64 const s = seed(key, bank);
    for (std::size_t i = 0; i < bytes.size();) {
      u64 const w = word(s, (offset + i) / 8);
      for (u64 j = (offset + i) % 8; j < 8 && i < bytes.size(); ++j, ++i) {
        if (bytes[i] != byte_of(w, j)) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  static constexpr u64 mix(u64 x) noexcept {
    x = (x ^ x >> 30) * 0xBF58'476D'1CE4'E5B9ull;
    x = (x ^ x >> 27) * 0x94D0'49BB'1331'11EBull;
    return x ^ x >> 31;
  }
  constexpr u64 seed(expert_key key, u32 bank) const noexcept {
    u64 const who = u64{key.layer.value} << 32 | key.expert.value;
    return mix(mix(who + 0x9E37'79B9'7F4A'7C15ull) + bank + salt_ * 0xD134'2543'DE82'EF95ull);
  }
  static constexpr u64 word(u64 seed, u64 index) noexcept {
    return mix(seed + (index + 1) * 0x9E37'79B9'7F4A'7C15ull);
  }
  static constexpr std::byte byte_of(u64 word, u64 i) noexcept {
    return static_cast<std::byte>(word >> 8 * i & 0xFF);
  }

  u64 salt_;
};

/// A source of bytes that the user keeps: per layer and bank one span, expert-major without gaps.
/// The bytes must outlive it.
class span_source {
 public:
  /// Names the bytes of one bank of a layer. Allocates. Later spans of the same bank replace
  /// earlier ones.
  void add(layer_id layer, u32 bank, std::span<std::byte const> bytes) {
    if (entry* const e = find(layer, bank)) {
      e->bytes = bytes;
      return;
    }
    entries_.push_back({layer, bank, 0, bytes});
  }

  /// Throws config_error where a bank is missing or is not n_experts times its bytes long. Notes
  /// the stride.
  void check(layer_geometry const& layer) {
    for (u32 bank = 0; bank < layer.bank_bytes.size(); ++bank) {
      entry* const e = find(layer.layer, bank);
      u64 const wanted = layer.n_experts * layer.bank_bytes[bank];
      if (e == nullptr && wanted != 0) {
        throw config_error("the source has no bytes for bank ", bank, " of layer ",
                           layer.layer.value);
      }
      if (e != nullptr && e->bytes.size() != wanted) {
        throw config_error("the source has ", e->bytes.size(), " bytes for bank ", bank,
                           " of layer ", layer.layer.value, "; its experts have ", wanted);
      }
      if (e != nullptr) {
        e->stride = layer.bank_bytes[bank];
      }
    }
  }

  /// The bytes of one bank of a layer; empty where none were named. O(spans).
  std::span<std::byte const> bytes(layer_id layer, u32 bank) const noexcept {
    for (entry const& e : entries_) {
      if (e.layer == layer && e.bank == bank) {
        return e.bytes;
      }
    }
    return {};
  }

  void read(expert_key key, u32 bank, u64 offset, std::span<std::byte> out) const noexcept {
    if (!out.empty()) {
      std::memcpy(out.data(), at(key, bank, offset), out.size());
    }
  }

  bool equals(expert_key key, u32 bank, u64 offset,
              std::span<std::byte const> bytes) const noexcept {
    return bytes.empty() || std::memcmp(bytes.data(), at(key, bank, offset), bytes.size()) == 0;
  }

 private:
  struct entry {
    layer_id layer;
    u32 bank;
    u64 stride;  ///< known since check
    std::span<std::byte const> bytes;
  };

  entry* find(layer_id layer, u32 bank) noexcept {
    for (entry& e : entries_) {
      if (e.layer == layer && e.bank == bank) {
        return &e;
      }
    }
    return nullptr;
  }
  std::byte const* at(expert_key key, u32 bank, u64 offset) const noexcept {
    std::size_t i = 0;
    while (entries_[i].layer != key.layer || entries_[i].bank != bank) {
      ++i;
    }
    return entries_[i].bytes.data() + key.expert.value * entries_[i].stride + offset;
  }

  std::vector<entry> entries_;
};

}  // namespace move

static_assert(byte_source<move::patterned_source>, "patterned_source must satisfy byte_source");
static_assert(byte_source<move::span_source>, "span_source must satisfy byte_source");

}  // namespace warmset::inline v0
