// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <unistd.h>

#include <warmset/trace/read.hpp>

#include "decode/gguf_builder.hpp"
#include "decode/support.hpp"
#include "llama_common/sequences.hpp"
#include "llama_trace/recorder.hpp"
#include "common/file.hpp"

/// What the tests over llama.cpp share.
namespace llama_test {

using namespace warmset_llama;

/// A figure that a run script picks out of what passed.
inline void tell(std::string const& figure) { std::printf("llama.cpp: %s\n", figure.c_str()); }

/// A text that stays as it is: the licence.
inline std::string fixed_text() {
  return std::string(WARMSET_SOURCE_DIR) + "/LICENSE";
}

/// A file of `../shared/traces/tinymoe`, where that folder is there.
inline std::optional<std::string> reference_file(std::string const& name) {
  std::optional<std::filesystem::path> const models = decode_test::models_folder();
  std::filesystem::path const file =
      models ? models->parent_path() / "traces" / "tinymoe" / name : std::filesystem::path();
  return models && std::filesystem::exists(file) ? std::optional(file.string()) : std::nullopt;
}

/// A folder that is gone afterwards.
class temporary_folder {
 public:
  temporary_folder() {
    std::string made = (std::filesystem::temp_directory_path() / "warmset-llama-XXXXXX").string();
    path = ::mkdtemp(made.data());
  }
  temporary_folder(temporary_folder const&) = delete;
  ~temporary_folder() { std::filesystem::remove_all(path); }

  std::string write(std::string const& name, std::string const& bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return (path / name).string();
  }

  std::filesystem::path path;
};

/// One thread: the machine that tests may have others to spare.
inline text_options one_text() {
  text_options o;
  o.threads = 1;
  return o;
}

/// Records sequences.
inline warmset::trace::recording record(model const& m, std::vector<sequence> const& all,
                                        text_options const& o, bool with_weights = false,
                                        std::vector<float>* logits = nullptr) {
  std::vector<expert_layer> const layers = learn_layers(m, o.threads);
  recorder writer(layers, with_weights);
  context c(m, {longest(all), std::min(o.batch, longest(all)), o.threads, &writer});
  (void)compute(m, c, all, o,
                {[&](pass const& p) { writer.begin(p); },
                 [&](pass const& p, context const& from) {
                   writer.end(p);
                   for (u32 i = 0; logits != nullptr && i < p.n_outputs(); ++i) {
                     std::span<float const> const row = from.logits(i);
                     logits->insert(logits->end(), row.begin(), row.end());
                   }
                 }});
  return writer.take(m.name(), all);
}

}  // namespace llama_test
