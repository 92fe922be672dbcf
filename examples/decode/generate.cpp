// SPDX-License-Identifier: Apache-2.0
#include "generate.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <stdexcept>

namespace warmset_decode {

using namespace warmset;

namespace {

/// A digest that depends on every bit and on the order. Not cryptographic.
class digest {
 public:
  void add(std::span<float const> values) noexcept {
    for (float v : values) {
      state_ = (state_ ^ std::bit_cast<u32>(v)) * 0x9E37'79B9'7F4A'7C15ull;
      state_ ^= state_ >> 29;
    }
  }
  u64 value() const noexcept { return state_; }

 private:
  u64 state_ = 0xCBF2'9CE4'8422'2325ull;
};

class sampler {
 public:
  sampler(float temperature, u64 seed) : temperature_(temperature), state_(seed) {}

  u32 operator()(std::span<float const> logits) {
    u32 const best = likeliest(logits);
    if (temperature_ <= 0) {
      return best;
    }
    shares_.resize(logits.size());
    double sum = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      shares_[i] = std::exp(double{logits[i] - logits[best]} / double{temperature_});
      sum += shares_[i];
    }
    double at = sum * unit();
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      at -= shares_[i];
      if (at < 0) {
        return static_cast<u32>(i);
      }
    }
    return best;
  }

 private:
  /// 0 up to, but not, 1 (splitmix64).
  double unit() noexcept {
    u64 x = state_ += 0x9E37'79B9'7F4A'7C15ull;
    x = (x ^ x >> 30) * 0xBF58'476D'1CE4'E5B9ull;
    x = (x ^ x >> 27) * 0x94D0'49BB'1331'11EBull;
    return static_cast<double>((x ^ x >> 31) >> 11) * 0x1p-53;
  }

  float temperature_;
  u64 state_;
  std::vector<double> shares_;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

u32 likeliest(std::span<float const> logits) noexcept {
  return static_cast<u32>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

generation generate(device& on, tokenizer const& words, generation_request const& request) {
  if (request.prompt.empty()) {
    throw std::invalid_argument("the prompt is empty");
  }
  generation made;
  digest hash;
  sampler choose(request.temperature, request.seed);
  on.forget();
  auto begin = std::chrono::steady_clock::now();
  std::span<float const> logits;
  std::span<u32 const> const prompt(request.prompt);
  std::size_t const width = std::max(request.batch, 1u);
  for (std::size_t at = 0; at < prompt.size(); at += width) {
    std::size_t const n = std::min(width, prompt.size() - at);
    logits = on.forward({prompt.subspan(at, n), phase::prefill, at + n == prompt.size()});
  }
  hash.add(logits);
  made.prompt_seconds = seconds_since(begin);
  begin = std::chrono::steady_clock::now();
  for (u32 i = 0; i < request.n_tokens; ++i) {
    u32 const token = choose(logits);
    if (request.stops_at_end && words.ends(token)) {
      break;
    }
    made.tokens.push_back(token);
    bool const goes_on = !request.on_token || request.on_token(token);
    logits = on.forward({std::span<u32 const>(&token, 1), phase::decode, true});
    hash.add(logits);
    ++made.decode_steps;
    if (!goes_on) {
      break;
    }
  }
  made.decode_seconds = seconds_since(begin);
  made.logits_hash = hash.value();
  return made;
}

void follow(device& on, std::span<u32 const> tokens, u32 n_prompt,
            std::function<void(u32 position, std::span<float const> logits)> const& on_logits) {
  on.forget();
  for (u32 i = 0; i < tokens.size(); ++i) {
    phase const p = i < n_prompt ? phase::prefill : phase::decode;
    std::span<float const> const logits =
        on.forward({tokens.subspan(i, 1), p, static_cast<bool>(on_logits)});
    if (on_logits) {
      on_logits(i, logits);
    }
  }
}

}  // namespace warmset_decode
