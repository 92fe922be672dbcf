// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "../core/result.hpp"
#include "backend.hpp"

namespace warmset::inline v0 {
namespace move {

/// A block of virtual memory. Numbers are not reused.
struct block_id {
  u32 value;
  bool operator==(block_id const&) const = default;
};

inline constexpr block_id no_block{u32_max};
/// In place of a device's number: the host.
inline constexpr u32 host_tier = u32_max;

/// A block, or why there is none and on which device.
struct [[nodiscard]] allocation {
  block_id block = no_block;
  reason why = reason::none;
  u32 device = host_tier;
  explicit operator bool() const noexcept { return why == reason::none; }
};

/// Bytes of one device or of the host: held = allocated - released, at every moment.
struct tier_ledger {
  u64 budget = u64_max;
  u64 allocated = 0;
  u64 released = 0;
  u64 held() const noexcept { return allocated - released; }
  u64 left() const noexcept { return budget - held(); }
};

/// The memory of several devices, each with its own budget, and of the host.
///
/// A block is charged its bytes rounded up to its alignment, and exactly that is given back. A
/// block that something refers to is not released. Errors: results; only the constructor and
/// allocate allocate. Complexity: O(1) but for zeroing.
class host_memory {
 public:
  explicit host_memory(std::vector<u64> const& budgets) : devices_(budgets.size()) {
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      devices_[i].budget = budgets[i];
    }
  }

  u32 n_devices() const noexcept { return static_cast<u32>(devices_.size()); }
  /// Of a device, or of host_tier.
  tier_ledger const& ledger(u32 device) const noexcept {
    return device < devices_.size() ? devices_[device] : host_;
  }

  /// Zeroed bytes. Refused: `wrong_device` (no such device), `over_budget`, `no_memory`. Throws
  /// nothing.
  allocation allocate(u32 device, memory_kind kind, u64 bytes, u64 alignment = 1) noexcept {
    bool const of_device = kind == memory_kind::device;
    if (of_device != (device < devices_.size())) {
      return {no_block, reason::wrong_device, device};
    }
    tier_ledger& tier = of_device ? devices_[device] : host_;
    u64 const unit = max_of(alignment, u64{1});
    u64 const padding = (unit - bytes % unit) % unit;
    if (bytes > u64_max - padding || bytes + padding > tier.left()) {
      return {no_block, reason::over_budget, device};
    }
    try {
      std::vector<std::byte> memory(bytes);
      blocks_.push_back({std::move(memory), bytes + padding, device, kind, 0, true});
    } catch (std::exception const&) {
      return {no_block, reason::no_memory, device};
    }
    tier.allocated += bytes + padding;
    return {block_id{static_cast<u32>(blocks_.size() - 1)}, reason::none, device};
  }

  /// Refused: `out_of_range` (no such block, or released before), `in_use`.
  status release(block_id id) noexcept {
    if (!is_live(id)) {
      return {reason::out_of_range};
    }
    block& b = blocks_[id.value];
    if (b.references != 0) {
      return {reason::in_use};
    }
    (b.kind == memory_kind::device ? devices_[b.device] : host_).released += b.charged;
    b.is_live = false;
    std::vector<std::byte>().swap(b.bytes);
    return done;
  }

  /// Something refers to the block until `drop`.
  void refer(block_id id) noexcept { ++blocks_[id.value].references; }
  void drop(block_id id) noexcept { --blocks_[id.value].references; }
  u32 references(block_id id) const noexcept { return blocks_[id.value].references; }

  bool is_live(block_id id) const noexcept {
    return id.value < blocks_.size() && blocks_[id.value].is_live;
  }
  memory_kind kind(block_id id) const noexcept { return blocks_[id.value].kind; }
  u32 device(block_id id) const noexcept { return blocks_[id.value].device; }
  u64 size(block_id id) const noexcept { return blocks_[id.value].bytes.size(); }
  /// Whether [offset, offset + n) lies in a live block.
  bool covers(block_id id, u64 offset, u64 n) const noexcept {
    return is_live(id) && offset <= size(id) && n <= size(id) - offset;
  }

  /// What host code may touch: the bytes of a host block, nothing of a device's.
  std::span<std::byte> host_view(block_id id) noexcept {
    return is_live(id) && is_host_readable(kind(id)) ? peek(id) : std::span<std::byte>{};
  }

  /// For the driver and for tests that look behind it: the bytes, wherever they lie. The address
  /// stays until release.
  std::span<std::byte> peek(block_id id) noexcept { return blocks_[id.value].bytes; }
  std::span<std::byte const> peek(block_id id) const noexcept { return blocks_[id.value].bytes; }

 private:
  struct block {
    std::vector<std::byte> bytes;
    u64 charged;
    u32 device;
    memory_kind kind;
    u32 references;
    bool is_live;
  };

  std::vector<tier_ledger> devices_;
  tier_ledger host_;
  std::vector<block> blocks_;
};

}  // namespace move
}  // namespace warmset::inline v0
