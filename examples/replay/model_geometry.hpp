// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "warmset/core/geometry.hpp"

namespace warmset_tools {

/// The MoE layers of a model file: experts, experts of a token, and the exact bytes of one expert in each of its
/// tensors, in the order gate, gate_up, up, down.
struct model_file {
  std::string name;
  warmset::geometry geometry;
};

/// Reads a GGUF file's header. Throws gguf::format_error, which names the file: for what is no GGUF, for a part of a
/// split model, for a model without experts, and where a layer lacks a tensor or has one of another number of experts.
model_file read_model_file(std::string const& path);

}  // namespace warmset_tools
