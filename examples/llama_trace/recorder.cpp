// SPDX-License-Identifier: Apache-2.0
#include "recorder.hpp"

#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <ggml-backend.h>

namespace warmset_llama {

recorder::recorder(std::vector<expert_layer> const& layers, bool with_weights)
    : layers_(layers), with_weights_(with_weights), last_product_(layers.size()),
      events_(layers.size()) {
  for (u32 row = 0; row < layers.size(); ++row) {
    row_of_.emplace(layers[row].last_product, row);
  }
  builder_.parts.geometry = geometry_of(layers);
}

bool recorder::wants(ggml_tensor* node) noexcept {
  if (node->op == GGML_OP_MUL_MAT_ID) {
    auto const at = row_of_.find(ggml_get_name(node));
    if (at == row_of_.end()) {
      return false;
    }
    last_product_[at->second] = node;
    return true;
  }
  if (!with_weights_ || node->op != GGML_OP_MUL) {
    return false;
  }
  for (u32 row = 0; row < layers_.size(); ++row) {
    if (last_product_[row] == nullptr || events_[row].weights.size() == events_[row].ids.size()) {
      continue;
    }
    // the product itself, or the product with the experts' biases
    ggml_tensor const* from = node->src[0];
    from = from->op == GGML_OP_ADD_ID ? from->src[0] : from;
    if (from == last_product_[row]) {
      wanted_weighted_ = node;
      weighted_row_ = row;
      return true;
    }
  }
  return false;
}

void recorder::reached(ggml_tensor* node) {
  ++stops_;
  if (node == wanted_weighted_) {
    wanted_weighted_ = nullptr;
    read_weights(weighted_row_, node->src[1]);
  } else {
    read_ids(row_of_.at(ggml_get_name(node)), node->src[2]);
  }
}

void recorder::read_ids(u32 row, ggml_tensor const* ids) {
  expert_layer const& layer = layers_[row];
  event& e = events_[row];
  if (ids->type != GGML_TYPE_I32 || ids->ne[0] != layer.k) {
    throw engine_error(fmt::format("layer {}: {} ids of a token where there were {}", layer.layer,
                                   ids->ne[0], layer.k));
  }
  e.is_seen = true;
  e.n_tokens = static_cast<u32>(ids->ne[1]);
  e.ids.clear();
  e.weights.clear();
  if (e.n_tokens == 0) {
    return;
  }
  bytes_.resize(ggml_nbytes(ids));
  ggml_backend_tensor_get(ids, bytes_.data(), 0, bytes_.size());
  for (u32 token = 0; token < e.n_tokens; ++token) {
    for (u32 rank = 0; rank < layer.k; ++rank) {
      std::int32_t id = 0;
      std::memcpy(&id, bytes_.data() + token * ids->nb[1] + rank * ids->nb[0], sizeof id);
      if (id < 0 || static_cast<u32>(id) >= layer.n_experts) {
        throw engine_error(fmt::format("layer {}: expert {} of {}", layer.layer, id,
                                       layer.n_experts));
      }
      e.ids.push_back(static_cast<u16>(id));
    }
  }
}

void recorder::read_weights(u32 row, ggml_tensor const* weights) {
  expert_layer const& layer = layers_[row];
  event& e = events_[row];
  if (weights->type != GGML_TYPE_F32 ||
      ggml_nelements(weights) != static_cast<std::int64_t>(e.ids.size()) ||
      !ggml_is_contiguous(weights)) {
    throw engine_error(fmt::format("layer {}: the weights of its experts are not one number for each",
                                   layer.layer));
  }
  e.weights.resize(e.ids.size());
  if (!e.weights.empty()) {
    ggml_backend_tensor_get(weights, e.weights.data(), 0, e.weights.size() * sizeof(float));
  }
}

void recorder::begin(pass const&) {
  for (event& e : events_) {
    e = {};
  }
  last_product_.assign(layers_.size(), nullptr);
}

void recorder::end(pass const& p) {
  for (u32 row = 0; row < layers_.size(); ++row) {
    event const& e = events_[row];
    std::string const where = fmt::format("layer {} at position {}", layers_[row].layer, p.position);
    if (!e.is_seen) {
      throw engine_error(where + ": the graph has not computed its last product");
    }
    if (with_weights_ && e.weights.size() != e.ids.size()) {
      throw engine_error(where + ": no product applies the weights of its experts; leave out --weights");
    }
    if (e.n_tokens == 0) {
      continue;  // nobody reads what this layer would have made of this batch
    }
    // all tokens, or behind the last attention those whose output is wanted
    u32 const n = static_cast<u32>(p.tokens.size());
    if (e.n_tokens != n && e.n_tokens != p.n_outputs()) {
      throw engine_error(fmt::format("{}: ids of {} tokens, in a batch of {} with {} outputs", where,
                                     e.n_tokens, n, p.n_outputs()));
    }
    u32 const first = n - e.n_tokens;
    builder_.add(p.sequence, p.position + first, p.phase, row, e.n_tokens, layers_[row].k, e.ids,
                 p.tokens.subspan(first));
    builder_.parts.weights.insert(builder_.parts.weights.end(), e.weights.begin(), e.weights.end());
  }
}

warmset::trace::recording recorder::take(std::string model_name,
                                         std::vector<sequence> const& sequences) {
  builder_.parts.model = std::move(model_name);
  builder_.parts.source = "recorded from llama.cpp by warmset-llama-trace";
  for (u32 i = 0; i < sequences.size(); ++i) {
    builder_.parts.labels.push_back({i, sequences[i].label});
  }
  return warmset::trace::recording(builder_.take());
}

}  // namespace warmset_llama
