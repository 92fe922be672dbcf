// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "format_error.hpp"
#include "trace.hpp"

namespace warmset::inline v0 {
namespace trace {
namespace detail {

/// A little-endian unsigned number at `p`.
template <class T>
T load_le(std::byte const* p) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    return value;
  } else {
    T value = 0;
    for (std::size_t i = sizeof(T); i-- != 0;) {
      value = static_cast<T>((u64{value} << 8) | static_cast<u64>(p[i]));
    }
    return value;
  }
}

template <class T>
void store_le(std::byte* p, T value) noexcept {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    p[i] = static_cast<std::byte>(static_cast<u64>(value) >> (8 * i));
  }
}

/// Fills a column of u8-, u16- or f32-like values from little-endian bytes: a memcpy on most
/// machines.
template <class T>
void load_column(column<T>& to, std::byte const* from, std::size_t n) {
  to.resize(n);
  if constexpr (std::endian::native == std::endian::little || sizeof(T) == 1) {
    if (n != 0) {
      std::memcpy(static_cast<void*>(to.data()), from, n * sizeof(T));
    }
  } else {
    using word = std::conditional_t<sizeof(T) == 2, u16, u32>;
    for (std::size_t i = 0; i < n; ++i) {
      to[i] = std::bit_cast<T>(load_le<word>(from + i * sizeof(T)));
    }
  }
}

template <class T>
void store_column(std::byte* to, std::span<T const> from) {
  if constexpr (std::endian::native == std::endian::little || sizeof(T) == 1) {
    if (!from.empty()) {
      std::memcpy(to, from.data(), from.size_bytes());
    }
  } else {
    using word = std::conditional_t<sizeof(T) == 2, u16, u32>;
    for (std::size_t i = 0; i < from.size(); ++i) {
      store_le(to + i * sizeof(T), std::bit_cast<word>(from[i]));
    }
  }
}

/// a * b, or u64_max where that does not fit.
constexpr u64 saturating_mul(u64 a, u64 b) noexcept {
  return a != 0 && b > u64_max / a ? u64_max : a * b;
}

constexpr u64 saturating_sum(u64 a, u64 b) noexcept {
  return b > u64_max - a ? u64_max : a + b;
}

/// Reads little-endian fields one after the other; running out of bytes is a format_error.
class byte_cursor {
 public:
  byte_cursor(std::string_view layout, std::span<std::byte const> bytes) noexcept
      : layout_(layout), bytes_(bytes) {}

  u64 at() const noexcept { return at_; }
  u64 left() const noexcept { return bytes_.size() - at_; }

  template <class T>
  T take(std::string_view field) {
    std::byte const* const p = take_bytes(field, sizeof(T));
    return load_le<T>(p);
  }

  /// The next n bytes; checked against what is left before anything is allocated for them.
  std::byte const* take_bytes(std::string_view field, u64 n) {
    if (n > left()) {
      fail(std::string(field) + " needs " + std::to_string(n) +
           " bytes, but the input ends after " + std::to_string(left()));
    }
    std::byte const* const p = bytes_.data() + at_;
    at_ += n;
    return p;
  }

  std::string take_text(std::string_view field, u64 n) {
    std::byte const* const p = take_bytes(field, n);
    return std::string(reinterpret_cast<char const*>(p), static_cast<std::size_t>(n));
  }

  /// Skips to the next multiple of 8; the skipped bytes must be zero.
  void align() {
    while (at_ % 8 != 0) {
      if (take<u8>("padding") != 0) {
        fail_at(at_ - 1, "padding is not zero");
      }
    }
  }

  [[noreturn]] void fail(std::string_view what) const { fail_at(at_, what); }
  [[noreturn]] void fail_at(u64 at, std::string_view what) const {
    throw format_error(layout_, format_error::unit::byte, at, what);
  }

 private:
  std::string_view layout_;
  std::span<std::byte const> bytes_;
  u64 at_ = 0;
};

}  // namespace detail

/// Checksum of a byte sequence in 64-bit little-endian words, the last one filled up with zeros;
/// the length is part of it. Four independent lanes, so that it runs at several words per
/// multiplication latency. It finds damage; it does not resist an adversary. Takes the bytes in
/// parts, each but the last a multiple of 32.
class checksummer {
 public:
  /// Takes the next part in and, where `copy_to` is given, copies it there while it is in the
  /// cache. O(bytes).
  void add(std::span<std::byte const> bytes, std::byte* copy_to = nullptr) noexcept {
    constexpr std::size_t chunk = 8192;
    size_ += bytes.size();
    while (bytes.size() > chunk) {
      take(bytes.first(chunk));
      if (copy_to != nullptr) {
        std::memcpy(copy_to, bytes.data(), chunk);
        copy_to += chunk;
      }
      bytes = bytes.subspan(chunk);
    }
    take(bytes);
    if (copy_to != nullptr && !bytes.empty()) {
      std::memcpy(copy_to, bytes.data(), bytes.size());
    }
  }

  u64 sum() const noexcept {
    u64 result = size_;
    for (u64 value : lane_) {
      result = mixed(result, value);
    }
    return result ^ (result >> 32);
  }

 private:
  static u64 mixed(u64 lane, u64 word) noexcept {
    return std::rotl((lane ^ word) * 0x9E37'79B9'7F4A'7C15ull, 29);
  }

  void take(std::span<std::byte const> bytes) noexcept {
    // Copies of the lanes, which stay in registers while the loop runs.
    u64 a = lane_[0], b = lane_[1], c = lane_[2], d = lane_[3];
    std::byte const* p = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 32; left -= 32, p += 32) {
      a = mixed(a, detail::load_le<u64>(p));
      b = mixed(b, detail::load_le<u64>(p + 8));
      c = mixed(c, detail::load_le<u64>(p + 16));
      d = mixed(d, detail::load_le<u64>(p + 24));
    }
    lane_[0] = a;
    lane_[1] = b;
    lane_[2] = c;
    lane_[3] = d;
    for (std::size_t i = 0; left != 0; ++i) {
      std::byte word[8] = {};
      std::size_t const n = left < 8 ? left : 8;
      std::memcpy(word, p, n);
      lane_[i] = mixed(lane_[i], detail::load_le<u64>(word));
      p += n;
      left -= n;
    }
  }

  u64 lane_[4] = {1, 2, 3, 4};
  u64 size_ = 0;
};

/// Checksum of all the bytes. O(bytes).
inline u64 checksum(std::span<std::byte const> bytes) noexcept {
  checksummer c;
  c.add(bytes);
  return c.sum();
}

}  // namespace trace
}  // namespace warmset::inline v0
