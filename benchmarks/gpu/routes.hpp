// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <warmset/core/geometry.hpp>

namespace gpu_bench {

/// A model's shape with its routes of some hundred decode steps, from a recorded trace.
struct model_routes {
  warmset::geometry model;
  std::string name;
  std::string source;  ///< which trace, and how its routes were mapped where its shape is another
  warmset::u32 k;
  warmset::u32 n_steps;
  std::vector<warmset::i32> ids;  ///< [step][layer][k], distinct within a step of a layer

  warmset::u32 n_layers() const { return static_cast<warmset::u32>(model.layers().size()); }
  warmset::i32 const* of(warmset::u32 step, warmset::u32 layer) const {
    return ids.data() + (static_cast<std::size_t>(step) * n_layers() + layer) * k;
  }
};

/// Reads a Warmset trace and takes the decode steps of it for a model of `presets`. Where the trace has fewer experts,
/// the model's experts stand in groups of as many, and each group takes its share of k from another layer of the trace;
/// where it has fewer layers they are used again. Throws std::runtime_error or config_error with a sentence.
model_routes read_routes(char const* model, std::string const& path, warmset::u32 most_steps);

/// Hints of one layer's step, at most.
inline constexpr warmset::u32 most_hints = 16;

/// What stands for a look-ahead, since a trace has no hidden states to look ahead from: [step][layer][most_hints]. Each of
/// the first k hints is the expert routed there with this probability; every other hint is an expert that the layer was
/// routed to in some other step, and -1 where there is no further one. So recall is `recall` from a width of k on, and what
/// lies beyond k is always wrong. The same for the same routes.
std::vector<warmset::i32> stand_in_hints(model_routes const& m, double recall);

}  // namespace gpu_bench
