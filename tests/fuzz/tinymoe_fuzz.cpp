// SPDX-License-Identifier: Apache-2.0
#include "trace_fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::string_view const text(reinterpret_cast<char const*>(data), size);
  fuzz::read_and_use([&] { return warmset::trace::read_tinymoe(text); });
  return 0;
}
