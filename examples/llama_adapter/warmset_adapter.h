// SPDX-License-Identifier: Apache-2.0
//
// The replacement policy of an expert cache inside llama.cpp or a relative of it, made by Warmset. This header is C++17 and
// includes nothing of llama.cpp or Warmset; warmset_adapter.cpp is C++20 and needs Warmset's headers alone. Drop both
// beside the cache and ask `adapter` wherever it asked its own list.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace warmset_llama {

/// Layers whose experts have the same tensors, types and shapes, and share one bank of slots.
struct adapter_group {
  std::uint32_t n_layers = 0;
  std::uint32_t n_experts = 0;   ///< of a layer
  std::uint32_t n_used = 0;      ///< experts of a token
  std::uint32_t n_slots = 0;     ///< of all layers together, without the guard entry behind them
  std::uint64_t expert_bytes = 0;  ///< of one expert, all its tensors; for the counters
  char const* policy = "class_lru";  ///< a name of `adapter::policies`
};

enum class adapter_status : std::uint8_t {
  ok,          ///< every expert has its slot; copy the loads before the product reads them
  too_wide,    ///< more distinct experts than the group can hold at once: nothing changed, read residents where they are
  bad_layer,   ///< no such layer in the group; nothing changed
  bad_expert,  ///< an id is not below n_experts; nothing changed
  too_long     ///< more ids than `adapter::max_ids`; nothing changed
};

/// What a step is of, where a policy asks.
struct adapter_step {
  bool is_prefill = false;
  std::uint32_t sequence = 0;
  std::uint32_t token = 0xFFFFFFFF;  ///< input token of a step of one token; none otherwise
};

/// An expert that must be copied into a slot.
struct adapter_load {
  std::uint32_t expert;
  std::uint32_t slot;
};

/// One entry of the table expert -> slot that has changed.
struct adapter_change {
  std::uint32_t layer;  ///< row in the group; an expert of another layer may have made way
  std::uint32_t expert;
  std::int32_t slot;  ///< -1: it has none any more
};

/// Loads of neighbouring experts into neighbouring slots: one copy per tensor.
struct adapter_run {
  std::uint32_t first_expert;
  std::uint32_t first_slot;
  std::uint32_t n;
};

/// A decision. The arrays belong to the adapter and live until its next call.
struct adapter_plan {
  adapter_status status = adapter_status::ok;
  std::int32_t const* slots = nullptr;  ///< one per id; -1 for a negative id, and where `too_wide` found no resident
  adapter_load const* loads = nullptr;  ///< ascending by expert
  std::size_t n_loads = 0;
  adapter_change const* changes = nullptr;  ///< those that made way first
  std::size_t n_changes = 0;
  adapter_run const* runs = nullptr;  ///< the loads again
  std::size_t n_runs = 0;
};

/// What was counted since the beginning. Unit: experts, one per distinct expert of a step, unless named otherwise.
struct adapter_counters {
  std::uint64_t steps = 0;           ///< that were planned and fitted
  std::uint64_t too_wide_steps = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;          ///< loaded
  std::uint64_t evictions = 0;
  std::uint64_t looked_up_hits = 0;  ///< of `look_up` and of steps that were too wide
  std::uint64_t looked_up_misses = 0;
  std::uint64_t bytes_loaded = 0;
};

/// One replacement state for a group. One owner thread; everything but `make` neither allocates nor throws.
class adapter {
 public:
  /// Most ids of one call: 512 tokens of 32 experts.
  static constexpr std::size_t max_ids = 16384;

  /// The adapter of a group, or nothing, with one sentence in `why`, where the numbers cannot work: no slot for a token's
  /// experts beside one for each other layer, or a policy that is not known.
  static std::unique_ptr<adapter> make(adapter_group const& group, char* why, std::size_t why_size) noexcept;
  /// The names of policies, separated by blanks.
  static char const* policies() noexcept;

  virtual ~adapter() = default;

  /// Decides where the experts of one step of a layer are, and takes it as done: all hits are touched before a miss takes
  /// a slot, and no expert of the step makes way. Negative ids are padding.
  virtual adapter_plan plan(std::uint32_t layer, std::int32_t const* ids, std::size_t n_ids,
                            adapter_step const& step = {}) noexcept = 0;
  /// Where the experts of a step are, without changing anything: for batches that go past the cache.
  virtual adapter_plan look_up(std::uint32_t layer, std::int32_t const* ids, std::size_t n_ids) noexcept = 0;

  /// Slot of every expert of a layer, -1 for those that have none: what a table on a device must hold once the changes of
  /// all plans are in it. n_experts entries; null for a layer that is not there.
  virtual std::int32_t const* table(std::uint32_t layer) const noexcept = 0;
  /// The same into a map that a graph looks up with the ids of the last plan: who has no slot gets 0, which is
  /// a slot that exists.
  virtual bool fill(std::uint32_t layer, std::int32_t* slot_map) const noexcept = 0;

  /// Forgets what layers have in slots: their weights or the slots' memory have changed. History stays. Gives no changes:
  /// what a device has of these layers is to be set from table().
  virtual bool invalidate(std::uint32_t first_layer, std::uint32_t n_layers) noexcept = 0;

  virtual adapter_counters counters() const noexcept = 0;
};

}  // namespace warmset_llama
