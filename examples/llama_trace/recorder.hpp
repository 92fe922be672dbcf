// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include <warmset/trace/builder.hpp>

#include "llama_common/experts.hpp"
#include "llama_common/sequences.hpp"

namespace warmset_llama {

/// Writes down which experts each layer's last product reads: from `src[2]` of that node, as it has just been computed.
/// The node `ffn_moe_topk` would not do: it is a strided view into the whole order of the experts, some models change the ids
/// behind it, and to stop there cuts a router in two that a GPU computes as one.
///
/// Router weights, where they are wanted, are read at the product that applies them, which is one stop more per layer.
class recorder final : public hook {
 public:
  recorder(std::vector<expert_layer> const& layers, bool with_weights);

  bool wants(ggml_tensor* node) noexcept override;
  void reached(ggml_tensor* node) override;

  void begin(pass const& p);
  /// Takes a decode into the trace. Throws engine_error where a layer has not been seen, or not as expected.
  void end(pass const& p);

  /// Stops of the evaluation: each waits for the device.
  u64 stops() const noexcept { return stops_; }
  /// The trace. Throws config_error where one of its invariants is broken.
  warmset::trace::recording take(std::string model_name, std::vector<sequence> const& sequences);

 private:
  struct event {
    std::vector<u16> ids;
    std::vector<float> weights;
    u32 n_tokens = 0;
    bool is_seen = false;
  };
  void read_ids(u32 row, ggml_tensor const* ids);
  void read_weights(u32 row, ggml_tensor const* weights);

  std::vector<expert_layer> const& layers_;
  bool with_weights_;
  std::unordered_map<std::string, u32> row_of_;  // by the name of the last product
  std::vector<ggml_tensor*> last_product_;       // of this graph, by row
  std::vector<event> events_;                    // of this decode, by row
  ggml_tensor* wanted_weighted_ = nullptr;
  u32 weighted_row_ = 0;
  std::vector<std::byte> bytes_;
  warmset::trace::builder builder_;
  u64 stops_ = 0;
};

}  // namespace warmset_llama
