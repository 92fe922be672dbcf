// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "geometry.hpp"

namespace warmset::inline v0 {

/// Shapes of published models, for planning and for benchmarks. An engine takes the bytes from its own
/// tensors: what a file holds is its maker's choice.
namespace presets {

/// How a file stores its experts. Bytes per weight are those of ggml's blocks.
enum class encoding : u8 {
  q4_k,    ///< 144 bytes per 256 weights; 22 per 32 (Q5_0) where a row does not divide by 256
  q4_k_m,  ///< two expert sizes: `down` of some layers has 210 bytes per 256 (Q6_K), or 34 per 32 (Q8_0)
  mxfp4    ///< 17 bytes per 32 weights
};

/// One weight tensor of one expert: a bank, in weights.
struct tensor {
  char const* name;
  u32 rows;
  u32 columns;  ///< the length of a row, which quantization blocks divide

  constexpr u64 weights() const noexcept { return u64{rows} * columns; }
};

/// A model's shape. Routed experts only: shared ones are always active and never cached.
struct model {
  static constexpr u32 max_tensors = 3;

  char const* name;
  u32 layers;       ///< of the model; heads that predict further tokens are not counted
  u32 first_layer;  ///< the first with routed experts; all that follow have them
  u32 n_experts;
  u32 k;
  u32 n_tensors;
  tensor tensors[max_tensors];
  encoding usual;  ///< what its 4-bit files mostly have

  constexpr u32 moe_layers() const noexcept { return layers - first_layer; }
};

namespace detail {

/// A model whose experts are gate, up and down.
constexpr model gated(char const* name, u32 layers, u32 first_layer, u32 n_experts, u32 k, u32 hidden, u32 ff,
                      encoding usual = encoding::q4_k_m) noexcept {
  return {name, layers, first_layer, n_experts,
          k,    3,      {{"gate", ff, hidden}, {"up", ff, hidden}, {"down", hidden, ff}},
          usual};
}

constexpr bool same_text(char const* a, char const* b) noexcept {
  for (; *a != '\0' && *a == *b; ++a, ++b) {
  }
  return *a == *b;
}

}  // namespace detail

/// The models, each with its source: "slime" is THUDM/slime, scripts/models; "config" a copy of the model's
/// config.json; "trace" the header of a trace of Helldez/BigMoeOnEdge, which has the bytes of every layer.
inline constexpr model models[] = {
    // layers, first with experts, experts, k, hidden, ff
    detail::gated("mixtral-8x7b", 32, 0, 8, 2, 4096, 14336),          // candle, mixtral.rs v0_1_8x7b
    detail::gated("phi-3.5-moe", 32, 0, 16, 2, 4096, 6400),           // Phi-3CookBook, for the sizes too
    detail::gated("olmoe-1b-7b-0924", 16, 0, 64, 8, 2048, 1024),      // config
    detail::gated("deepseek-v2-lite", 27, 1, 64, 6, 2048, 1408),      // DeepSeek's inference
    detail::gated("qwen1.5-moe-a2.7b", 24, 0, 60, 4, 2048, 1408),     // Qwen2MoeConfig's defaults
    detail::gated("glm-4.7-flash", 47, 1, 64, 4, 2048, 1536),         // slime, glm4.7-30B-A3B.sh
    detail::gated("qwen3-30b-a3b", 48, 0, 128, 8, 2048, 768),         // slime, qwen3-30B-A3B.sh; a trace
    detail::gated("qwen3-235b-a22b", 94, 0, 128, 8, 4096, 1536),      // slime, qwen3-235B-A22B.sh
    detail::gated("qwen3-coder-480b", 62, 0, 160, 8, 6144, 2560),     // config
    detail::gated("qwen3-next-80b-a3b", 48, 0, 512, 10, 2048, 512),   // slime, qwen3_next
    detail::gated("qwen3.5-35b-a3b", 40, 0, 256, 8, 2048, 512),       // config, qwen3_5_moe; Qwen3.6 too
    detail::gated("qwen3.8-flash-next", 48, 0, 512, 10, 2560, 640),   // config, qwen4_exp
    detail::gated("gpt-oss-20b", 24, 0, 32, 4, 2880, 2880, encoding::mxfp4),  // config; biases not counted
    detail::gated("gpt-oss-120b", 36, 0, 128, 4, 2880, 2880, encoding::mxfp4),  // config; a trace
    detail::gated("gemma-4-26b-a4b", 30, 0, 128, 8, 2816, 704),       // a trace of BigMoeOnEdge
    detail::gated("glm-4.5-air", 46, 1, 128, 8, 4096, 1408),          // slime, glm4.5-106B
    detail::gated("glm-4.5", 92, 3, 160, 8, 5120, 1536),              // slime, glm4.5-355B-A32B.sh; 4.6 too
    detail::gated("glm-5", 78, 3, 256, 8, 6144, 2048),                // slime, glm5
    detail::gated("deepseek-v3", 61, 3, 256, 8, 7168, 2048),          // DeepSeek's config_671B; R1 too
    detail::gated("deepseek-v4-flash", 43, 0, 256, 6, 4096, 2048),    // config; llama.cpp #26563
    detail::gated("kimi-k2", 61, 1, 384, 8, 7168, 2048),              // config of K2.6
    detail::gated("minimax-m2", 62, 0, 256, 8, 3072, 1536),           // config
    detail::gated("llama-4-scout", 48, 0, 16, 1, 5120, 8192),         // Llama4TextConfig
};

/// The model of that name, or nullptr. O(models).
constexpr model const* lookup(char const* name) noexcept {
  for (model const& each : models) {
    if (detail::same_text(each.name, name)) {
      return &each;
    }
  }
  return nullptr;
}

/// Whether a Q4_K_M file has more bits for `down` of this layer: the first and the last eighth of the layers
/// and every third between them. Source: llama.cpp's rule; the header of a trace agrees layer by layer.
constexpr bool has_more_bits(u32 layer, u32 layers) noexcept {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

/// Bytes of one expert's tensor in one layer. The last tensor is `down`.
constexpr u64 bank_bytes(model const& m, u32 tensor_index, u32 layer, encoding e) noexcept {
  tensor const& t = m.tensors[tensor_index];
  if (e == encoding::mxfp4) {
    return t.weights() / 32 * 17;
  }
  bool const down = tensor_index + 1 == m.n_tensors;
  bool const more = e == encoding::q4_k_m && down && has_more_bits(layer, m.layers);
  return t.columns % 256 == 0 ? t.weights() / 256 * (more ? 210 : 144) : t.weights() / 32 * (more ? 34 : 22);
}

/// The model as a cache sees it: layer ids as in the model, exact bytes of every bank.
template <class Layer = layer_geometry>
geometry make(model const& m, encoding e) {
  std::vector<Layer> layers;
  layers.reserve(m.moe_layers());
  for (u32 id = m.first_layer; id < m.layers; ++id) {
    layers.push_back(Layer{layer_id{id}, m.n_experts, m.k, {}});
    for (u32 i = 0; i < m.n_tensors; ++i) {
      layers.back().bank_bytes.push_back(bank_bytes(m, i, id, e));
    }
  }
  return geometry{std::move(layers)};
}

/// The model of that name. Throws config_error, which lists the known names, where there is none.
inline model const& get(char const* name) {
  model const* const found = lookup(name);
  if (found == nullptr) {
    sentence known;
    for (model const& each : models) {
      known.append(&each == models ? "" : ", ", each.name);
    }
    throw config_error("presets: there is no model '", name, "'; there are ", known.c_str());
  }
  return *found;
}

/// The geometry of the model of that name, in its usual encoding or in another one. Throws as `get`.
template <class Layer = layer_geometry>
geometry find(char const* name) {
  model const& m = get(name);
  return make<Layer>(m, m.usual);
}
template <class Layer = layer_geometry>
geometry find(char const* name, encoding e) {
  return make<Layer>(get(name), e);
}

}  // namespace presets
}  // namespace warmset::inline v0
