// SPDX-License-Identifier: Apache-2.0
#include <span>

#include "trace_fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace warmset;
  std::span<std::byte const> const bytes = std::as_bytes(std::span(data, size));
  fuzz::read_and_use([&] { return trace::read_warmset(bytes); });
  if (size >= 32) {
    // A mutation hardly ever finds the checksum and the size, so they are made right.
    std::vector<std::byte> sealed(bytes.begin(), bytes.end());
    trace::detail::store_le(sealed.data() + 16, u64{size});
    u64 const sum = trace::checksum(std::span<std::byte const>(sealed).first(size - 8));
    trace::detail::store_le(sealed.data() + size - 8, sum);
    fuzz::read_and_use([&] { return trace::read_warmset(sealed); });
  }
  return 0;
}
