// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "../core/integers.hpp"

namespace warmset::inline v0 {
namespace trace {

/// An input that is not what its layout promises. Thrown by readers; the message is one sentence
/// with the layout, the byte offset or line, the field and the value.
class format_error : public std::runtime_error {
 public:
  /// What `at()` counts: bytes from 0, or lines from 1.
  enum class unit : u8 { byte, line };

  format_error(std::string_view layout, unit counted, u64 at, std::string_view what)
      : std::runtime_error(std::string(layout) + (counted == unit::byte ? ": byte " : ": line ") +
                           std::to_string(at) + ": " + std::string(what)),
        counted_(counted), at_(at) {}

  unit counted() const noexcept { return counted_; }
  u64 at() const noexcept { return at_; }

 private:
  unit counted_;
  u64 at_;
};

}  // namespace trace
}  // namespace warmset::inline v0
