// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "device.hpp"
#include "tokenizer.hpp"

namespace warmset_decode {

/// What is to be generated.
struct generation_request {
  std::vector<u32> prompt;  ///< at least one token
  u32 n_tokens = 64;        ///< to generate
  u32 batch = 1;            ///< prompt tokens per forward pass
  float temperature = 0;    ///< 0 = the likeliest token, always
  u64 seed = 1;
  bool stops_at_end = true;  ///< whether the token that ends a text ends the generation
  std::function<bool(u32 token)> on_token = {};  ///< false: that was enough
};

/// What was generated.
struct generation {
  std::vector<u32> tokens;
  u64 logits_hash = 0;  ///< of the logits of every decode step and of the prompt's end, bit by bit
  u64 decode_steps = 0;
  double prompt_seconds = 0;
  double decode_seconds = 0;
};

/// Runs a prompt and generates. Begins a new sequence.
generation generate(device& on, tokenizer const& words, generation_request const& request);

/// Runs given tokens one by one, the first `n_prompt` as a prompt, and calls on_logits after each where it is
/// given. Begins a new sequence.
void follow(device& on, std::span<u32 const> tokens, u32 n_prompt,
            std::function<void(u32 position, std::span<float const> logits)> const& on_logits = {});

/// The index of the largest; the first of equals.
u32 likeliest(std::span<float const> logits) noexcept;

}  // namespace warmset_decode
