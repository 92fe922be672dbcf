// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// The reader of GGUF files, version 3. Layout and type numbers: docs/gguf.md and ggml.h of github.com/ggml-org/ggml.
namespace gguf {

/// A file that cannot be read or lacks what is asked for. The message is one line: the file, and what.
class format_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How a tensor's weights are stored. Only the first three can be computed with; the others are listed.
enum class encoding : std::uint32_t { f32 = 0, f16 = 1, q8_0 = 8 };

/// The type's name as ggml spells it; "unknown" where it has none here.
char const* name_of(encoding e) noexcept;

/// A half-precision number as a single-precision one. Exact.
inline float to_float(std::uint16_t half) noexcept {
  std::uint32_t const sign = std::uint32_t{half} >> 15 << 31;
  std::uint32_t const exponent = half >> 10 & 0x1F;
  std::uint32_t const mantissa = half & 0x3FF;
  if (exponent == 0) {  // zero, or below the least normal number
    float const f = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -f : f;
  }
  std::uint32_t const wide = exponent == 0x1F ? 0xFF : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

/// A named array of weights inside the file.
struct tensor {
  std::string_view name;
  encoding type{};
  std::vector<std::uint64_t> shape;  ///< elements, the fastest dimension first
  std::vector<std::uint64_t>
      stride;  ///< bytes from one index to the next; of the first dimension from block to block
  std::span<std::byte const> bytes;  ///< all of it, exact

  std::uint64_t n_elements() const noexcept;
  /// Bytes of one slice of the last dimension: one expert of a stacked tensor. Exact, without padding.
  std::uint64_t slice_bytes() const noexcept { return stride.back(); }
  std::span<std::byte const> slice(std::uint64_t i) const noexcept {
    return bytes.subspan(i * slice_bytes(), slice_bytes());
  }
};

/// What the vocabulary of a file says.
struct vocabulary {
  std::span<std::string_view const> tokens;  ///< byte-level spelling, by token id
  std::span<std::string_view const> merges;  ///< `left right`, the strongest first
  std::vector<std::int64_t> kinds;  ///< by token id; 3 = control. Empty where the file does not say
  std::string_view model;           ///< gpt2 = byte-level byte-pair encoding
  std::string_view splitter;        ///< how text is cut before merging
  std::int64_t end_of_text = -1;    ///< -1: none
};

/// One GGUF file: its metadata and its tensors, in place. Nothing is copied but names of keys; views live as long as
/// the file. Every malformed input is a format_error; sizes are compared with the file before anything is allocated.
class file {
 public:
  /// Maps the file. Throws format_error where it cannot be read or is malformed.
  explicit file(std::string const& path);
  /// Reads bytes that the caller keeps; `name` is for messages.
  file(std::span<std::byte const> bytes, std::string name);
  file(file&& other) noexcept;
  file& operator=(file&&) = delete;
  ~file();

  std::string const& name() const noexcept { return name_; }
  std::vector<tensor> const& tensors() const noexcept { return tensors_; }
  std::size_t n_keys() const noexcept { return keys_.size(); }

  /// The tensor of that name, or nullptr.
  tensor const* find(std::string_view tensor_name) const noexcept;
  /// The tensor of that name; throws where there is none, where its shape is another, and where its type is none that
  /// can be computed with.
  tensor const& get(std::string_view tensor_name, std::span<std::uint64_t const> shape) const;
  /// A tensor's weights as single-precision numbers. Throws, by name, for types that cannot be computed with.
  std::vector<float> floats(tensor const& t) const;

  bool has(std::string_view key) const noexcept { return keys_.contains(key); }
  // Values by key; each throws where the key is missing or of another type.
  std::uint64_t count(std::string_view key) const;  ///< a whole number that is not negative
  double number(std::string_view key) const;        ///< any number
  std::string_view text(std::string_view key) const;
  std::span<std::string_view const> texts(std::string_view key) const;  ///< an array of strings
  std::vector<std::int64_t> integers(std::string_view key) const;  ///< an array of whole numbers

  /// Throws where the file has no vocabulary or a damaged one.
  gguf::vocabulary vocabulary() const;

  /// Throws a format_error about this file.
  [[noreturn]] void fail(std::string const& what) const;

 private:
  struct value {
    std::uint32_t type = 0;
    std::uint32_t element_type = 0;       ///< of an array
    std::uint64_t n = 0;                  ///< elements of an array
    std::span<std::byte const> bytes;     ///< of a number, or of an array of numbers
    std::vector<std::string_view> texts;  ///< of a string, or of an array of strings
  };
  class cursor;

  void map(std::string const& path);
  void read();
  value read_value(cursor& at, std::string_view key) const;
  void read_tensor(cursor& at);
  void place_tensors(cursor const& end);
  value const& find_value(std::string_view key, char const* wanted,
                          bool (*fits)(value const&)) const;

  std::string name_;
  std::span<std::byte const> bytes_;
  bool is_mapped_ = false;
  std::map<std::string_view, value> keys_;
  std::vector<tensor> tensors_;
  std::vector<std::uint64_t> offsets_;  // of tensors, while reading
  std::map<std::string_view, std::size_t> by_name_;
};

}  // namespace gguf
