// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// An expert cache in the shape of upstream's (init, plan, fill), over ggml on the CPU, whose replacement state is the
/// adapter. C++17: what an engine's own source would be.
namespace stand_in {

struct moe_cache;

struct options {
  std::uint32_t n_layers = 0;
  std::uint32_t n_experts = 0;
  std::uint32_t n_used = 0;
  std::uint32_t n_slots = 0;
  std::uint32_t n_embd = 32;
  std::uint32_t n_ff = 16;
};

/// Makes weights, one bank of slots with a guard entry behind them, and the adapter; throws std::runtime_error with the
/// adapter's sentence.
std::shared_ptr<moe_cache> init(options const& o);

/// What one step came to.
struct step_result {
  std::vector<std::int32_t> slots;    ///< that the graph looked up, one per id
  std::vector<float> from_slots;      ///< the products over the slot bank
  std::vector<float> from_weights;    ///< over all weights
  std::size_t n_copies = 0;
  bool is_bypassed = false;           ///< it went past the cache
};

/// One step of a layer: plan, copies, fill of the slot map, and the graph get_rows(slot_map, ids) -> mul_mat_id.
step_result step(moe_cache& c, std::uint32_t layer, std::vector<std::int32_t> const& ids, std::uint32_t n_tokens);

std::uint64_t hits(moe_cache const& c);
std::uint64_t misses(moe_cache const& c);

}  // namespace stand_in
