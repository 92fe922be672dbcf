// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <warmset/core/intent.hpp>

#include "engine.hpp"

namespace CLI {
class App;
}

namespace warmset_llama {

/// What goes through the model: a prompt, tokens that are given after it, and tokens that are generated.
struct sequence {
  std::string label;
  std::vector<u32> tokens;  ///< the prompt first
  u32 n_prompt = 0;
  u32 n_generate = 0;

  u32 length() const noexcept { return static_cast<u32>(tokens.size()) + n_generate; }
};

/// The texts that a command line names, and how they are computed.
struct text_options {
  std::string model;
  std::vector<std::string> prompts;
  std::vector<std::string> texts;
  std::string tokens_path;
  std::string lines = "all";
  std::optional<u32> prompt_tokens;
  u32 length = 512;
  u32 generate = 64;
  u32 batch = 512;
  u32 threads = 0;  ///< 0 = one per processor; `check` puts the number there
  bool all_outputs = false;

  /// Adds the options to a command line.
  void add_to(CLI::App& app);
  /// Throws usage_error for numbers that cannot work.
  void check();
};

/// The sequences that the options name. Throws usage_error, file_error and engine_error.
std::vector<sequence> read_sequences(text_options const& o, model const& m);

/// Tokens of the longest sequence: what a context must hold.
u32 longest(std::vector<sequence> const& all) noexcept;
/// Decodes that all of it takes, as a bound: what a progress bar counts.
std::size_t count_decodes(std::vector<sequence> const& all, u32 batch) noexcept;

/// One decode.
struct pass {
  u32 sequence;  ///< from 0
  u32 position;  ///< of the first token
  warmset::phase phase;
  std::span<u32 const> tokens;
  outputs wanted;

  u32 n_outputs() const noexcept {
    return wanted == outputs::all ? static_cast<u32>(tokens.size()) : wanted == outputs::last ? 1 : 0;
  }
};

/// Who wants to know of each decode; either may be empty.
struct listeners {
  std::function<void(pass const&)> before = {};
  std::function<void(pass const&, context const&)> after = {};
};

/// Computes sequences one after the other: each prompt in batches, then token by token what is given and what is
/// generated, the likeliest token always, up to the end of the text. Only a prompt's last batch has an output, unless all are
/// wanted.
/// @return the text that was generated, by sequence
std::vector<std::string> compute(model const& m, context& c, std::vector<sequence> const& all,
                                 text_options const& o, listeners const& who);

}  // namespace warmset_llama
