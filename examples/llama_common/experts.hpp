// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <ggml.h>

#include <warmset/core/geometry.hpp>

#include "engine.hpp"

namespace warmset_llama {

/// A weight tensor that holds one matrix of every expert of a layer: [columns, rows, n_experts], expert i at i * stride.
struct bank {
  std::string name;              ///< of the tensor
  ggml_tensor* weights = nullptr;
  void* source = nullptr;        ///< the weights as they were loaded
  u64 stride = 0;                ///< bytes of one expert, exact
};

/// Where the experts of a layer are in a graph, by names: nodes are made anew for every graph.
struct expert_layer {
  u32 layer = 0;      ///< as in the model
  u32 n_experts = 0;
  u32 k = 0;          ///< experts of a token
  std::vector<bank> banks;
  std::string ids;           ///< the tensor from which the products read their experts
  std::string last_product;  ///< the last MUL_MAT_ID of the layer
  std::string gate;          ///< the last node before the first product: the ids are there, nothing has read an expert
  std::string obstacle;      ///< why ids cannot be rewritten there; empty where they can

  warmset::layer_geometry geometry() const;
};

/// The layers with experts that a forward pass goes through, ascending, from one decode of one token that is then
/// forgotten. Throws engine_error where there are none, or a name does not tell a product's layer.
std::vector<expert_layer> learn_layers(model const& m, u32 threads);

/// The layers as a library's geometry.
warmset::geometry geometry_of(std::vector<expert_layer> const& layers);

}  // namespace warmset_llama
