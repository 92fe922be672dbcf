// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstring>
#include <optional>
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
/// parts, each but the last a multiple of 8.
class checksummer {
 public:
  void add(std::span<std::byte const> bytes) noexcept {
    add(bytes, [](std::byte const*) {});
  }

  /// Takes the next part in and calls also(p) for every 32 bytes of it, the rest left out, one after the other: what it
  /// does with them costs little, as the sum waits for its multiplications. Returns what it was given, which is a copy so
  /// that its members stay in registers as well. O(bytes).
  template <class Also>
  Also add(std::span<std::byte const> bytes, Also also) noexcept {
    // Copies of the lanes, which stay in registers while the loop runs; the next word is due to the first of them.
    u64 const due = size_ / 8;
    u64 a = lane(due), b = lane(due + 1), c = lane(due + 2), d = lane(due + 3);
    std::byte const* p = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 32; left -= 32, p += 32) {
      a = mixed(a, detail::load_le<u64>(p));
      keep_apart(a);
      b = mixed(b, detail::load_le<u64>(p + 8));
      keep_apart(b);
      also(p);
      c = mixed(c, detail::load_le<u64>(p + 16));
      keep_apart(c);
      d = mixed(d, detail::load_le<u64>(p + 24));
      keep_apart(d);
    }
    lane(due) = a;
    lane(due + 1) = b;
    lane(due + 2) = c;
    lane(due + 3) = d;
    for (u64 i = due; left != 0; ++i) {
      std::byte word[8] = {};
      std::size_t const n = left < 8 ? left : 8;
      std::memcpy(word, p, n);
      lane(i) = mixed(lane(i), detail::load_le<u64>(word));
      p += n;
      left -= n;
    }
    size_ += bytes.size();
    return also;
  }

  u64 sum() const noexcept {
    u64 result = size_;
    for (u64 value : lanes_) {
      result = mixed(result, value);
    }
    return result ^ (result >> 32);
  }

 private:
  static u64 mixed(u64 lane, u64 word) noexcept {
    return std::rotl((lane ^ word) * 0x9E37'79B9'7F4A'7C15ull, 29);
  }

  /// Keeps the multiplication of one lane beside its own turn. Compilers else put all four side by side, where they wait for the
  /// one unit that multiplies: a third more time for the whole sum.
  static void keep_apart([[maybe_unused]] u64& lane) noexcept {
#if defined(__GNUC__) && defined(__x86_64__)
    asm volatile("" : "+r"(lane));
#endif
  }

  u64& lane(u64 word) noexcept { return lanes_[word % 4]; }

  u64 lanes_[4] = {1, 2, 3, 4};
  u64 size_ = 0;
};

namespace detail {

/// Goes over bytes as a checksummer does, for layouts without a checksum.
struct no_sum {
  template <class Also>
  Also add(std::span<std::byte const> bytes, Also also) noexcept {
    for (std::size_t at = 0; at + 32 <= bytes.size(); at += 32) {
      also(bytes.data() + at);
    }
    return also;
  }
};

struct no_look {
  void operator()(std::byte const*) noexcept {}
};

/// Copies 32 bytes a call, and looks at them.
template <class Look>
struct copy_and_look {
  std::byte* to;
  Look look;

  void operator()(std::byte const* from) noexcept {
    // Both halves are read before one is written, which for all that a compiler knows may be where the other is.
    std::byte first[16];
    std::byte second[16];
    std::memcpy(first, from, 16);
    std::memcpy(second, from + 16, 16);
    look(from);
    std::memcpy(to, first, 16);
    std::memcpy(to + 16, second, 16);
    to += 32;
  }
};

/// Fills a column in the pass of `sum` over its whole words, so that its bytes come from memory once; look(p) sees every
/// 32 bytes of it, the rest left out. The number of bytes that went into the sum; on a big-endian machine 0, and nothing
/// is looked at.
template <class T, class Sum, class Look>
std::size_t load_column(column<T>& to, std::byte const* from, std::size_t n, [[maybe_unused]] Sum& sum,
                        [[maybe_unused]] Look& look) {
  if constexpr (std::endian::native == std::endian::little) {
    to.resize(n);
    std::size_t const size = n * sizeof(T);
    copy_and_look<Look> const done =
        sum.add({from, size / 8 * 8}, copy_and_look<Look>{reinterpret_cast<std::byte*>(to.data()), look});
    look = done.look;
    if (size % 32 != 0) {
      std::memcpy(done.to, from + size / 32 * 32, size % 32);
    }
    return size / 8 * 8;
  } else {
    load_column(to, from, n);
    return 0;
  }
}

template <class T, class Sum>
std::size_t load_column(column<T>& to, std::byte const* from, std::size_t n, Sum& sum) {
  no_look look;
  return load_column(to, from, n, sum, look);
}

/// The same for rows of k ids each; `plain` says whether all are plain, as far as one pass tells.
template <class Sum>
std::size_t load_rows(column<u16>& to, std::byte const* from, std::size_t n, u32 k, u32 n_experts, Sum& sum,
                      bool& plain) {
  std::optional<std::size_t> summed;
  if constexpr (std::endian::native == std::endian::little) {
    plain = with_row_check(k, n_experts, [&](auto check) {
      summed = load_column(to, from, n, sum, check);
      check.take_rest(to.data() + n / 16 * 16, n % 16);
      return check;
    });
  }
  return summed ? *summed : load_column(to, from, n, sum);
}

}  // namespace detail

/// Checksum of all the bytes. O(bytes).
inline u64 checksum(std::span<std::byte const> bytes) noexcept {
  checksummer c;
  c.add(bytes);
  return c.sum();
}

}  // namespace trace
}  // namespace warmset::inline v0
