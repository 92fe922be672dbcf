// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "decode/arms.hpp"

namespace decode_test {

using namespace warmset_decode;

/// Folder of the models that are not in the repository: WARMSET_MODELS, else `shared/model` beside the source tree or
/// above it.
inline std::optional<std::filesystem::path> models_folder() {
  if (char const* named = std::getenv("WARMSET_MODELS"); named != nullptr && *named != '\0') {
    return std::filesystem::path(named);
  }
  for (std::filesystem::path at = WARMSET_SOURCE_DIR;; at = at.parent_path()) {
    if (std::filesystem::is_directory(at / "shared" / "model")) {
      return at / "shared" / "model";
    }
    if (at == at.parent_path()) {
      return std::nullopt;
    }
  }
}

inline std::optional<std::string> model_file(std::string const& name) {
  std::optional<std::filesystem::path> const folder = models_folder();
  return folder && std::filesystem::exists(*folder / name)
             ? std::optional((*folder / name).string())
             : std::nullopt;
}

inline std::string small_model_file() {
  return std::string(WARMSET_SOURCE_DIR) + "/examples/data/tinymoe-8x32.gguf";
}

/// A model and all that comes with it.
struct loaded {
  explicit loaded(std::string const& path) : file(path), model(file), words(file) {}
  gguf::file file;
  warmset_decode::model model;
  tokenizer words;
};

/// A prompt and `n_tokens` after it, whatever they are.
inline generation_request request_for(loaded const& m, warmset::u32 n_tokens) {
  generation_request r;
  r.prompt =
      m.words.encode("The kernel maps a page of memory into the address space of a process.");
  r.n_tokens = n_tokens;
  r.stops_at_end = false;
  return r;
}

}  // namespace decode_test
