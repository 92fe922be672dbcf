// SPDX-License-Identifier: Apache-2.0
#include "engine.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include <ggml-backend.h>
#include <sys/stat.h>

namespace warmset_llama {

namespace {

/// The errors of llama.cpp's log since `begin`, of which the first tells the cause.
struct log_of_errors {
  std::mutex mutex;
  std::string first;

  static log_of_errors& instance() {
    static log_of_errors log;
    return log;
  }
  static void take(ggml_log_level level, char const* text, void*) {
    if (level != GGML_LOG_LEVEL_ERROR) {
      return;
    }
    log_of_errors& log = instance();
    std::lock_guard const lock(log.mutex);
    if (log.first.empty()) {
      std::string_view line(text);
      line = line.substr(0, line.find('\n'));
      // `llama_model_load: error loading model: `: functions and headings say nothing to a person
      for (std::size_t end = line.find(": ");
           end != line.npos && (line.find(' ') >= end || line.starts_with("error loading model"));
           end = line.find(": ")) {
        line.remove_prefix(end + 2);
      }
      log.first = line;
    }
  }
  void begin() {
    std::lock_guard const lock(mutex);
    first.clear();
  }
  std::string cause(char const* otherwise) {
    std::lock_guard const lock(mutex);
    return first.empty() ? otherwise : first;
  }
};

/// Throws where the file cannot be one: llama.cpp says of most such that it failed to open it.
void check_file(std::string const& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) {
    throw engine_error(path + ": a directory, not a file");
  }
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> const file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file) {
    throw engine_error(path + ": " + std::strerror(errno));
  }
  char magic[4] = {};
  if (std::fread(magic, 1, sizeof magic, file.get()) != sizeof magic ||
      std::memcmp(magic, "GGUF", sizeof magic) != 0) {
    throw engine_error(path + ": not a GGUF file: it does not begin with GGUF");
  }
}

std::string metadata(llama_model const* m, std::string const& key) {
  char text[256];
  return llama_model_meta_val_str(m, key.c_str(), text, sizeof text) < 0 ? "" : text;
}

}  // namespace

model::model(std::string const& path) : path_(path) {
  check_file(path);
  llama_log_set(&log_of_errors::take, nullptr);
  llama_backend_init();
  log_of_errors::instance().begin();
  llama_model_params p = llama_model_default_params();
  p.n_gpu_layers = 0;
  p.load_mode = LLAMA_LOAD_MODE_MMAP;
  p.use_extra_bufts = false;
  model_.reset(llama_model_load_from_file(path.c_str(), p));
  if (!model_) {
    throw engine_error(path + ": llama.cpp cannot load it: " +
                       log_of_errors::instance().cause("no reason given"));
  }
  std::string const architecture = metadata(get(), "general.architecture");
  std::string const experts = metadata(get(), architecture + ".expert_count");
  if (experts.empty() || experts == "0") {
    throw engine_error(path + ": a model without experts (architecture " + architecture +
                       "): it routes nothing");
  }
  name_ = metadata(get(), "general.name");
  if (name_.empty()) {
    name_ = architecture;
  }
  vocabulary_ = static_cast<u32>(llama_vocab_n_tokens(llama_model_get_vocab(get())));
  context_ = static_cast<u32>(llama_model_n_ctx_train(get()));
}

std::vector<u32> model::tokenize(std::string const& text) const {
  llama_vocab const* const v = llama_model_get_vocab(get());
  int const size = static_cast<int>(text.size());
  std::vector<llama_token> tokens(text.size() + 8);
  int const n = llama_tokenize(v, text.data(), size, tokens.data(),
                               static_cast<int>(tokens.size()), true, false);
  if (n < 0) {
    throw engine_error(path_ + ": a text of " + std::to_string(size) +
                       " bytes cannot be cut into tokens");
  }
  return {tokens.begin(), tokens.begin() + n};
}

std::string model::piece(u32 token) const {
  char text[256];
  int const n = llama_token_to_piece(llama_model_get_vocab(get()), static_cast<llama_token>(token),
                                     text, sizeof text, 0, true);
  return n < 0 ? "" : std::string(text, static_cast<std::size_t>(n));
}

bool model::ends_text(u32 token) const noexcept {
  return llama_vocab_is_eog(llama_model_get_vocab(get()), static_cast<llama_token>(token));
}

bool hook::call(ggml_tensor* node, bool ask, void* self) noexcept {
  hook& h = *static_cast<hook*>(self);
  if (ask) {
    return h.wants(node);
  }
  try {
    h.reached(node);
  } catch (...) {
    if (!h.failure_) {
      h.failure_ = std::current_exception();
    }
  }
  return true;
}

context::context(model const& m, options const& o)
    : listener_(o.listener), vocabulary_(m.vocabulary()) {
  llama_context_params p = llama_context_default_params();
  p.n_ctx = o.tokens;
  p.n_batch = o.batch;
  p.n_ubatch = o.batch;
  p.n_threads = static_cast<int>(o.threads);
  p.n_threads_batch = static_cast<int>(o.threads);
  if (listener_ != nullptr) {
    p.cb_eval = &hook::call;
    p.cb_eval_user_data = listener_;
  }
  log_of_errors::instance().begin();
  context_.reset(llama_init_from_model(m.get(), p));
  if (!context_) {
    throw engine_error(m.path() + ": llama.cpp makes no context of " + std::to_string(o.tokens) +
                       " tokens: " + log_of_errors::instance().cause("no reason given"));
  }
  batch_.reset(new llama_batch(llama_batch_init(static_cast<int>(o.batch), 0, 1)));
}

void context::clear() noexcept {
  llama_memory_clear(llama_get_memory(context_.get()), true);
}

void context::decode(std::span<u32 const> tokens, u32 first, outputs wanted) {
  llama_batch& b = *batch_;
  b.n_tokens = static_cast<int>(tokens.size());
  rows_.clear();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    b.token[i] = static_cast<llama_token>(tokens[i]);
    b.pos[i] = static_cast<llama_pos>(first + i);
    b.n_seq_id[i] = 1;
    b.seq_id[i][0] = 0;
    b.logits[i] = wanted == outputs::all || (wanted == outputs::last && i + 1 == tokens.size());
    if (b.logits[i] != 0) {
      rows_.push_back(static_cast<u32>(i));
    }
  }
  log_of_errors::instance().begin();
  int const result = llama_decode(context_.get(), b);
  if (listener_ != nullptr && listener_->failure_) {
    std::rethrow_exception(std::exchange(listener_->failure_, nullptr));
  }
  if (result != 0) {
    throw engine_error("llama.cpp could not compute the tokens at position " +
                       std::to_string(first) + ": " +
                       log_of_errors::instance().cause("no reason given") + " (" +
                       std::to_string(result) + ")");
  }
}

std::span<float const> context::logits(u32 output) const {
  float const* const row =
      llama_get_logits_ith(context_.get(), static_cast<int>(rows_.at(output)));
  return {row, vocabulary_};
}

}  // namespace warmset_llama
