// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <warmset/core/geometry.hpp>

#include "common/gguf.hpp"

namespace warmset_decode {

using warmset::u32;
using warmset::u64;

/// The numbers of a `qwen3moe` model, all from the file's metadata.
struct architecture {
  u32 layers = 0;
  u32 hidden = 0;
  u32 heads = 0;     ///< of queries
  u32 kv_heads = 0;  ///< of keys and values; each serves heads / kv_heads queries
  u32 head_size = 0;
  u32 experts = 0;
  u32 k = 0;
  u32 expert_ff = 0;
  u32 context = 0;  ///< positions
  u32 vocabulary = 0;
  float epsilon = 0;
  float rope_base = 0;
};

/// The banks of an expert, in the order of the cache's geometry.
enum bank : u32 { bank_gate, bank_up, bank_down, n_banks };

/// A model out of a file: the dense weights as single-precision numbers, resident; of the experts only where they lie.
///
/// The constructor throws gguf::format_error where the file is no `qwen3moe` model, lacks a tensor or has one of
/// another shape or of a type that is not computed with.
class model {
 public:
  struct layer {
    std::vector<float> attention_norm, query, key, value, query_norm, key_norm, output;
    std::vector<float> expert_norm, router;
    gguf::tensor const* experts[n_banks];  ///< stacked: slice e is expert e's
  };

  explicit model(gguf::file const& file);

  std::string const& file_name() const noexcept { return file_.name(); }
  gguf::file const& file() const noexcept { return file_; }

  std::string name;
  architecture numbers;
  std::vector<float> embedding;  ///< [vocabulary][hidden]
  std::vector<float> output_norm;
  std::vector<float> output;  ///< [vocabulary][hidden]; empty: the embedding is used
  std::vector<layer> layers;

  float const* output_weights() const noexcept {
    return output.empty() ? embedding.data() : output.data();
  }
  /// The experts as a cache sees them: exact bytes of every bank.
  warmset::geometry geometry() const;

 private:
  gguf::file const& file_;
};

}  // namespace warmset_decode
