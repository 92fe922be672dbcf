// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

/// Writes GGUF files byte by byte, sound ones and others.
namespace decode_test {

class bytes_writer {
 public:
  template <class T>
  bytes_writer& put(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof value);
    bytes.append(raw, sizeof value);
    return *this;
  }
  bytes_writer& text(std::string const& s) {
    put<std::uint64_t>(s.size());
    bytes += s;
    return *this;
  }
  std::string bytes;
};

class gguf_builder {
 public:
  gguf_builder& number(std::string const& key, std::uint32_t value) {
    head(key, 4).put(value);
    return *this;
  }
  gguf_builder& real(std::string const& key, float value) {
    head(key, 6).put(value);
    return *this;
  }
  gguf_builder& text(std::string const& key, std::string const& value) {
    head(key, 8).text(value);
    return *this;
  }
  gguf_builder& texts(std::string const& key, std::vector<std::string> const& values) {
    bytes_writer& w = head(key, 9).put<std::uint32_t>(8).put<std::uint64_t>(values.size());
    for (std::string const& v : values) {
      w.text(v);
    }
    return *this;
  }
  /// @param bytes  of the tensor's data
  gguf_builder& tensor(std::string const& name, std::vector<std::uint64_t> const& shape,
                       std::uint32_t type, std::string const& bytes) {
    if (name == left_out) {
      return *this;
    }
    while (data_.size() % alignment != 0) {
      data_ += '\0';
    }
    tensors_.text(name).put(static_cast<std::uint32_t>(shape.size()));
    for (std::uint64_t n : shape) {
      tensors_.put(n);
    }
    tensors_.put(type).put<std::uint64_t>(data_.size() + shift);
    data_ += bytes;
    ++n_tensors_;
    return *this;
  }

  std::string bytes() const {
    bytes_writer w;
    w.bytes = "GGUF";
    w.put(version).put(n_tensors_).put(n_keys_);
    w.bytes += keys_.bytes + tensors_.bytes;
    while (w.bytes.size() % alignment != 0) {
      w.bytes += '\0';
    }
    return w.bytes + data_;
  }

  bytes_writer& head(std::string const& key, std::uint32_t type) {
    ++n_keys_;
    return keys_.text(key).put(type);
  }

  std::uint32_t version = 3;
  std::string left_out;     ///< a tensor that is not written
  std::uint64_t shift = 0;  ///< added to the offsets that follow
  std::size_t alignment = 32;

 private:
  bytes_writer keys_;
  bytes_writer tensors_;
  std::string data_;
  std::uint64_t n_keys_ = 0;
  std::uint64_t n_tensors_ = 0;
};

/// The character that GPT-2 spells a byte with, as UTF-8.
inline std::string spelled(unsigned byte) {
  unsigned next = 256;
  unsigned code = 0;
  for (unsigned b = 0; b <= byte; ++b) {
    bool const visible = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    code = visible ? b : next++;
  }
  if (code < 0x80) {
    return std::string(1, static_cast<char>(code));
  }
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

/// A whole model, as small as one can be: 2 layers of 4 experts, 2 a token, 32 hidden, a vocabulary of bytes.
/// The weights are a function of their place.
/// @param left_out  a tensor that it lacks
/// @param dense     whether it has one feed-forward network a layer instead of experts
inline gguf_builder small_model(std::string const& left_out = "", bool dense = false) {
  constexpr std::uint64_t hidden = 32, ff = 32, experts = 4, head = 16;
  gguf_builder b;
  b.left_out = left_out;
  std::string const architecture = dense ? "qwen3" : "qwen3moe";
  std::string const a = architecture + ".";
  b.text("general.architecture", architecture).text("general.name", "made");
  b.number(a + "block_count", 2)
      .number(a + "context_length", 64)
      .number(a + "embedding_length", hidden);
  b.number(a + "attention.head_count", 2).number(a + "attention.head_count_kv", 1);
  b.number(a + "attention.key_length", head).number(a + "attention.value_length", head);
  if (dense) {
    b.number(a + "feed_forward_length", ff);
  } else {
    b.number(a + "expert_count", experts).number(a + "expert_used_count", 2);
    b.number(a + "expert_feed_forward_length", ff);
  }
  b.real(a + "rope.freq_base", 10000.0f).real(a + "attention.layer_norm_rms_epsilon", 1e-6f);
  std::vector<std::string> tokens;
  for (unsigned byte = 0; byte < 256; ++byte) {
    tokens.push_back(spelled(byte));
  }
  tokens.push_back("th");
  tokens.push_back("the");
  b.text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", tokens);
  b.texts("tokenizer.ggml.merges", {"t h", "th e"});
  std::uint32_t state = 1;
  auto const random = [&state] { return (state = state * 1664525 + 1013904223) >> 16; };
  auto const floats = [&](std::uint64_t n, float scale, float middle) {
    bytes_writer w;
    for (std::uint64_t i = 0; i < n; ++i) {
      w.put(middle + scale * (static_cast<float>(random() % 1000) / 500.0f - 1.0f));
    }
    return w.bytes;
  };
  auto const q8 = [&](std::uint64_t n) {
    bytes_writer w;
    for (std::uint64_t i = 0; i < n / 32; ++i) {
      w.put<std::uint16_t>(0x1400);  // 2^-10
      for (int j = 0; j < 32; ++j) {
        w.put(static_cast<signed char>(static_cast<int>(random() % 255) - 127));
      }
    }
    return w.bytes;
  };
  std::uint64_t const vocabulary = tokens.size();
  b.tensor("token_embd.weight", {hidden, vocabulary}, 0, floats(hidden * vocabulary, 1, 0));
  b.tensor("output_norm.weight", {hidden}, 0, floats(hidden, 0.1f, 1));
  for (int layer = 0; layer < 2; ++layer) {
    std::string const p = "blk." + std::to_string(layer) + ".";
    b.tensor(p + "attn_norm.weight", {hidden}, 0, floats(hidden, 0.1f, 1));
    b.tensor(p + "attn_q.weight", {hidden, 2 * head}, 0, floats(hidden * 2 * head, 0.3f, 0));
    b.tensor(p + "attn_k.weight", {hidden, head}, 0, floats(hidden * head, 0.3f, 0));
    b.tensor(p + "attn_v.weight", {hidden, head}, 0, floats(hidden * head, 0.3f, 0));
    b.tensor(p + "attn_q_norm.weight", {head}, 0, floats(head, 0.1f, 1));
    b.tensor(p + "attn_k_norm.weight", {head}, 0, floats(head, 0.1f, 1));
    b.tensor(p + "attn_output.weight", {2 * head, hidden}, 0, floats(2 * head * hidden, 0.3f, 0));
    b.tensor(p + "ffn_norm.weight", {hidden}, 0, floats(hidden, 0.1f, 1));
    if (dense) {
      for (char const* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
        b.tensor(p + name + ".weight", {hidden, ff}, 8, q8(hidden * ff));
      }
      continue;
    }
    b.tensor(p + "ffn_gate_inp.weight", {hidden, experts}, 0, floats(hidden * experts, 0.3f, 0));
    b.tensor(p + "ffn_gate_exps.weight", {hidden, ff, experts}, 8, q8(hidden * ff * experts));
    b.tensor(p + "ffn_up_exps.weight", {hidden, ff, experts}, 8, q8(hidden * ff * experts));
    b.tensor(p + "ffn_down_exps.weight", {ff, hidden, experts}, 8, q8(ff * hidden * experts));
  }
  return b;
}

}  // namespace decode_test
