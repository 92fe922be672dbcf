// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <llama.h>

#include <warmset/core/integers.hpp>

namespace warmset_llama {

using warmset::u16;
using warmset::u32;
using warmset::u64;

/// What llama.cpp refused, or a model that is of no use here. The message is one line.
class engine_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A model in llama.cpp: mapped, on the CPU, and its weights as the file has them, since a repacked copy of experts is
/// no array of experts. Its log is kept silent; what it says last of an error becomes the message.
///
/// Throws engine_error where the file is no GGUF, cannot be read or loaded, or has no experts.
class model {
 public:
  explicit model(std::string const& path);

  llama_model* get() const noexcept { return model_.get(); }
  std::string const& path() const noexcept { return path_; }
  std::string const& name() const noexcept { return name_; }
  u32 vocabulary() const noexcept { return vocabulary_; }
  u32 context() const noexcept { return context_; }  ///< tokens that it was trained for
  /// With the special tokens that the model wants in front of a text.
  std::vector<u32> tokenize(std::string const& text) const;
  std::string piece(u32 token) const;
  bool ends_text(u32 token) const noexcept;

 private:
  struct deleter {
    void operator()(llama_model* m) const noexcept { llama_model_free(m); }
  };
  std::unique_ptr<llama_model, deleter> model_;
  std::string path_;
  std::string name_;
  u32 vocabulary_ = 0;
  u32 context_ = 0;
};

/// What listens to a context's evaluation.
///
/// llama.cpp asks `wants` of each node in the order of the graph, before it computes the nodes up to the one that is wanted;
/// then it waits for them and calls `reached`. Whatever `reached` throws comes out of `context::decode`, once the graph has
/// been computed to its end: an evaluation that is broken off computes later parts from stale data.
class hook {
 public:
  virtual ~hook() = default;
  virtual bool wants(ggml_tensor* node) noexcept = 0;
  virtual void reached(ggml_tensor* node) = 0;

 private:
  friend class context;
  static bool call(ggml_tensor* node, bool ask, void* self) noexcept;
  std::exception_ptr failure_;
};

/// Of which tokens of a decode logits are wanted.
enum class outputs { none, last, all };

/// A llama.cpp context of one sequence, with its logits.
class context {
 public:
  struct options {
    u32 tokens = 512;   ///< most of a sequence
    u32 batch = 512;    ///< most of one decode, which is one micro-batch
    u32 threads = 1;
    hook* listener = nullptr;  ///< must outlive the context
  };

  context(model const& m, options const& o);

  /// Forgets the sequence.
  void clear() noexcept;
  /// Computes tokens at positions from `first` on. Throws engine_error, and what the hook threw.
  void decode(std::span<u32 const> tokens, u32 first, outputs wanted);
  /// Logits of the last decode: of output i, vocabulary() numbers.
  std::span<float const> logits(u32 output) const;

 private:
  struct deleter {
    void operator()(llama_context* c) const noexcept { llama_free(c); }
  };
  struct batch_deleter {
    void operator()(llama_batch* b) const noexcept {
      llama_batch_free(*b);
      delete b;
    }
  };
  std::unique_ptr<llama_context, deleter> context_;
  std::unique_ptr<llama_batch, batch_deleter> batch_;
  hook* listener_;
  u32 vocabulary_;
  std::vector<u32> rows_;  // in the batch, of each output
};

}  // namespace warmset_llama
