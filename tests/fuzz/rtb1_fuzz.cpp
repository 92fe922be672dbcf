// SPDX-License-Identifier: Apache-2.0
#include <span>

#include "trace_fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::span<std::byte const> const bytes = std::as_bytes(std::span(data, size));
  fuzz::read_and_use([&] { return warmset::trace::read_rtb1(bytes); });
  return 0;
}
