// SPDX-License-Identifier: Apache-2.0
#include "trace_fuzz.hpp"

// The input is a list of tokens for a trace of two sequences, of two and one positions.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace warmset;
  std::string_view const text(reinterpret_cast<char const*>(data), size);
  fuzz::read_and_use([&] {
    trace::contents c;
    c.geometry = geometry::uniform(2, 4, 1, 10);
    for (u32 sequence : {0u, 3u}) {
      trace::block b;
      b.sequence = sequence;
      b.n_rows = 2;
      b.n_steps = sequence == 0 ? 2 : 1;
      b.k = 1;
      c.blocks.push_back(b);
    }
    c.ids = {0, 1, 2, 3, 0, 1};
    trace::recording r = trace::with_tokens(trace::recording(std::move(c)), text);
    fuzz::require(r.tokens().size() == 3);
    return r;
  });
  return 0;
}
