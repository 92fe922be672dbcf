// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <span>
#include <string>

#include "decode/model.hpp"
#include "decode/tokenizer.hpp"

/// Reads a file, and as much of a model as it has. A format_error is the only answer besides.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  try {
    gguf::file const file(std::as_bytes(std::span(data, size)), "input");
    for (gguf::tensor const& t : file.tensors()) {
      if (t.type == gguf::encoding::f32 || t.type == gguf::encoding::f16 ||
          t.type == gguf::encoding::q8_0) {
        (void)file.floats(t);
      }
      if (t.shape.size() > 1) {
        (void)t.slice(t.shape.back() - 1);
      }
    }
    if (file.has("tokenizer.ggml.model")) {
      warmset_decode::tokenizer const words(file);
      std::string const text(reinterpret_cast<char const*>(data), size < 64 ? size : 64);
      if (words.decode(words.encode(text)) != text) {
        __builtin_trap();
      }
    }
    warmset_decode::model const m(file);
    (void)m.geometry();
  } catch (gguf::format_error const&) {
  }
  return 0;
}
