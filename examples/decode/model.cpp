// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <initializer_list>
#include <string>

namespace warmset_decode {

namespace {

constexpr u32 most = 1u << 20;  // of any number of the architecture: beyond, products would not fit

class metadata {
 public:
  metadata(gguf::file const& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  u32 count(std::string const& key) const {
    u64 const n = file_.count(prefix_ + key);
    if (n == 0 || n > most) {
      file_.fail("metadata key '" + prefix_ + key + "' is " + std::to_string(n) +
                 ", not between 1 and " + std::to_string(most));
    }
    return static_cast<u32>(n);
  }
  float number(std::string const& key) const {
    double const n = file_.number(prefix_ + key);
    if (!(n > 0)) {
      file_.fail("metadata key '" + prefix_ + key + "' is not above 0");
    }
    return static_cast<float>(n);
  }
  bool has(std::string const& key) const { return file_.has(prefix_ + key); }

 private:
  gguf::file const& file_;
  std::string prefix_;
};

architecture read_architecture(gguf::file const& file) {
  std::string const name(file.text("general.architecture"));
  std::string const prefix = "qwen3moe.";
  if (name + "." != prefix) {
    bool const has_experts = file.has(name + ".expert_count");
    file.fail("the architecture is '" + name + "'" + (has_experts ? "" : ", which has no experts") +
              "; qwen3moe is what this program runs");
  }
  metadata const m(file, prefix);
  architecture a;
  a.layers = m.count("block_count");
  a.hidden = m.count("embedding_length");
  a.heads = m.count("attention.head_count");
  a.kv_heads = m.has("attention.head_count_kv") ? m.count("attention.head_count_kv") : a.heads;
  a.head_size =
      m.has("attention.key_length") ? m.count("attention.key_length") : a.hidden / a.heads;
  a.experts = m.count("expert_count");
  a.k = m.count("expert_used_count");
  a.expert_ff = m.count("expert_feed_forward_length");
  a.context = m.count("context_length");
  a.epsilon = m.number("attention.layer_norm_rms_epsilon");
  a.rope_base = m.number("rope.freq_base");
  a.vocabulary = static_cast<u32>(file.texts("tokenizer.ggml.tokens").size());
  if (a.heads % a.kv_heads != 0 || a.head_size % 2 != 0 || a.head_size == 0) {
    file.fail(std::to_string(a.heads) + " heads over " + std::to_string(a.kv_heads) +
              " of keys, of size " + std::to_string(a.head_size) +
              ": they must divide, and the size must be even");
  }
  if (m.has("attention.value_length") && m.count("attention.value_length") != a.head_size) {
    file.fail("keys and values of different lengths");
  }
  if (a.k > a.experts) {
    file.fail(std::to_string(a.k) + " experts a token of " + std::to_string(a.experts));
  }
  return a;
}

}  // namespace

model::model(gguf::file const& file) : numbers(read_architecture(file)), file_(file) {
  name = file.has("general.name") ? std::string(file.text("general.name")) : "unnamed";
  architecture const& a = numbers;
  auto const get = [&](std::string const& tensor,
                       std::initializer_list<u64> shape) -> gguf::tensor const& {
    return file.get(tensor, std::span<u64 const>(shape.begin(), shape.size()));
  };
  auto const floats = [&](std::string const& tensor, std::initializer_list<u64> shape) {
    return file.floats(get(tensor, shape));
  };
  u64 const queries = u64{a.heads} * a.head_size;
  u64 const keys = u64{a.kv_heads} * a.head_size;
  embedding = floats("token_embd.weight", {a.hidden, a.vocabulary});
  output_norm = floats("output_norm.weight", {a.hidden});
  if (file.find("output.weight") != nullptr) {
    output = floats("output.weight", {a.hidden, a.vocabulary});
  }
  for (u32 i = 0; i < a.layers; ++i) {
    std::string const b = "blk." + std::to_string(i) + ".";
    layer l;
    l.attention_norm = floats(b + "attn_norm.weight", {a.hidden});
    l.query = floats(b + "attn_q.weight", {a.hidden, queries});
    l.key = floats(b + "attn_k.weight", {a.hidden, keys});
    l.value = floats(b + "attn_v.weight", {a.hidden, keys});
    l.query_norm = floats(b + "attn_q_norm.weight", {a.head_size});
    l.key_norm = floats(b + "attn_k_norm.weight", {a.head_size});
    l.output = floats(b + "attn_output.weight", {queries, a.hidden});
    l.expert_norm = floats(b + "ffn_norm.weight", {a.hidden});
    l.router = floats(b + "ffn_gate_inp.weight", {a.hidden, a.experts});
    l.experts[bank_gate] = &get(b + "ffn_gate_exps.weight", {a.hidden, a.expert_ff, a.experts});
    l.experts[bank_up] = &get(b + "ffn_up_exps.weight", {a.hidden, a.expert_ff, a.experts});
    l.experts[bank_down] = &get(b + "ffn_down_exps.weight", {a.expert_ff, a.hidden, a.experts});
    for (gguf::tensor const* t : l.experts) {
      if (t->type != gguf::encoding::q8_0) {
        file.fail("tensor '" + std::string(t->name) + "' is " + name_of(t->type) +
                  "; experts are computed with as Q8_0");
      }
    }
    layers.push_back(std::move(l));
  }
}

warmset::geometry model::geometry() const {
  std::vector<warmset::layer_geometry> rows;
  for (u32 i = 0; i < numbers.layers; ++i) {
    rows.push_back({warmset::layer_id{i}, numbers.experts, numbers.k, {}});
    for (gguf::tensor const* t : layers[i].experts) {
      rows.back().bank_bytes.push_back(t->slice_bytes());
    }
  }
  return warmset::geometry(std::move(rows));
}

}  // namespace warmset_decode
