// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "llama_common/experts.hpp"
#include "llama_common/sequences.hpp"
#include "pool.hpp"

namespace warmset_llama {

/// Finds the last node before each layer's products over experts, and the tensor that has its ids, in graph after graph.
class gate_finder : public hook {
 public:
  explicit gate_finder(std::vector<expert_layer> const& layers);
  bool wants(ggml_tensor* node) noexcept override;

 protected:
  static constexpr u32 none = warmset::u32_max;
  /// The layer's row, or none.
  u32 row_of_gate(ggml_tensor const* node) const noexcept;
  /// A product over a layer's experts is next.
  virtual void on_product(u32) noexcept {}

  std::vector<expert_layer> const& layers_;
  std::vector<ggml_tensor*> ids_;  ///< of this graph, by row

 private:
  struct role {
    u32 row;
    bool is_gate;
  };
  std::unordered_map<std::string, role> roles_;
  std::unordered_map<ggml_tensor const*, u32> row_of_weights_;
  std::string name_;            // a buffer
};

/// Stops where a streamer stops and does nothing: what the stops themselves cost.
class idle_gates final : public gate_finder {
 public:
  using gate_finder::gate_finder;
  void reached(ggml_tensor*) override {}
};

/// Serves the experts of an unpatched llama.cpp on the CPU from slots in memory.
///
/// Before a layer's products run, their ids are planned, experts that are missing are copied from the mapped file into slots, the
/// weight tensors are pointed at the slots, and the ids are overwritten with slot numbers. A step wider than the pool is
/// left alone: the tensors are pointed at the file and nothing is committed.
///
/// Throws engine_error where a layer cannot be served so, and config_error where the pool cannot work. The weights are
/// as they were after its end.
class streamer final : public gate_finder {
 public:
  streamer(std::vector<expert_layer> const& layers, std::string const& policy, u32 slots);
  ~streamer() override;
  streamer(streamer const&) = delete;

  void reached(ggml_tensor* gate) override;

  void begin(pass const& p);
  /// Throws engine_error where a layer's products ran without having been served.
  void end() const;

  u64 served_steps() const noexcept { return served_; }
  u64 overflow_steps() const noexcept { return overflowed_; }
  u64 bytes_copied() const noexcept { return bytes_copied_; }
  u64 pool_bytes() const noexcept { return pool_bytes_; }
  expert_pool& pool() noexcept { return *pool_; }

 private:
  struct aligned_deleter {
    void operator()(std::byte* p) const noexcept { ::operator delete(p, std::align_val_t{64}); }
  };
  void on_product(u32 row) noexcept override;
  void point_at_source(u32 row) noexcept;

  u32 slots_;
  std::unique_ptr<expert_pool> pool_;
  std::vector<std::vector<std::unique_ptr<std::byte, aligned_deleter>>> memory_;  // [row][bank]
  std::vector<bool> is_served_;  // in this pass, by row
  std::vector<u32> slot_of_;     // by expert, of the step
  std::vector<warmset::routed_id> routed_;
  pass pass_{};
  u32 unserved_ = none;  // a row
  u64 served_ = 0;
  u64 overflowed_ = 0;
  u64 bytes_copied_ = 0;
  u64 pool_bytes_ = 0;
};

}  // namespace warmset_llama
