// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <utility>
#include <vector>

#include "../core/array_view.hpp"
#include "../core/arrival.hpp"
#include "../core/fixed_array.hpp"
#include "../core/geometry.hpp"

namespace warmset::inline v0 {

namespace move {

/// Where bytes lie, as far as it decides who may touch them.
enum class memory_kind : u8 {
  device,    ///< kernels and copies of one device
  pinned,    ///< host memory that copies take as it is
  mapped,    ///< pinned, and kernels read and write it
  pageable,  ///< host memory that copies must stage
};

constexpr bool is_host_readable(memory_kind k) noexcept {
  return k != memory_kind::device;
}
constexpr bool is_kernel_readable(memory_kind k) noexcept {
  return k == memory_kind::device || k == memory_kind::mapped;
}

/// The memory in which a backend keeps its slots: its `slot_memory`, or device memory.
template <class B>
constexpr memory_kind slot_memory_of() noexcept {
  if constexpr (requires { B::slot_memory; }) {
    return B::slot_memory;
  } else {
    return memory_kind::device;
  }
}

}  // namespace move

/// One expert that is to be brought into one slot: what commit decided and a backend carries out.
/// `slot` is local to the pool; from the pool's n_slots on it is a scratch slot. `generation` is
/// the slot's own in the table, and the caller's choice for scratch.
struct transfer_order {
  slot_id slot;
  expert_key expert;
  u32 generation;
  bool operator==(transfer_order const&) const = default;
};

/// Where a pool lies in the bank allocation of its geometry group, in slots.
///
/// A group has one allocation. Each bank in it is: the slots of all pools of the group back to back
/// (stable base, exact stride, never padded), then the scratch slots that these pools share, then a
/// zeroed tail.
struct pool_site {
  u32 pool;           ///< the pool's number; pools are listed as 0, 1, 2, ...
  u32 group;          ///< index in geometry::groups()
  u32 first_slot;     ///< index in the bank of the pool's slot 0
  u32 n_slots;        ///< slots reserved; the capacity may be lower
  u32 first_scratch;  ///< index in the bank of the group's first scratch slot
  u32 n_scratch;
  std::vector<layer_id> layers;  ///< the pool's rows

  /// Arrival words of the pool.
  u32 n_words() const noexcept { return n_slots + n_scratch; }

  /// Index in the bank of a slot of the pool, scratch included.
  u32 bank_index(slot_id slot) const noexcept {
    return slot.value < n_slots ? first_slot + slot.value : first_scratch + (slot.value - n_slots);
  }
};

/// Byte offsets of one geometry group's allocation: bank after bank, each with slots of exactly its
/// `bank_bytes` stride, scratch, and a tail of at least `tail_bytes` that ends where the next bank
/// begins, at a multiple of 256. What reserves memory and what fills it compute the size here.
class group_layout {
 public:
  static constexpr u64 alignment = 256;
  static constexpr u64 max_bytes = u64{1} << 60;

  group_layout() = default;

  /// Throws config_error where a group takes more than `max_bytes`: no sum wraps.
  ///
  /// @param n_slots  slots of all pools of the group
  template <class Bytes>
  group_layout(std::vector<Bytes> bank_bytes, u32 n_slots, u32 n_scratch, u64 tail_bytes)
      : stride_(std::move(bank_bytes)), n_slots_(n_slots), n_scratch_(n_scratch) {
    u64 const slots = u64{n_slots} + n_scratch;
    u64 at = 0;
    begin_.reserve(stride_.size() + 1);
    for (u64 stride : stride_) {
      begin_.push_back(at);
      if (at > max_bytes || tail_bytes > max_bytes || (slots != 0 && stride > max_bytes / slots)) {
        throw config_error("a bank of ", slots, " slots of ", stride, " bytes and a tail of ", tail_bytes,
                           " bytes is more than memory can be");
      }
      at += slots * stride + tail_bytes;
      at = (at + alignment - 1) / alignment * alignment;
    }
    begin_.push_back(at);
  }

  u32 n_banks() const noexcept { return static_cast<u32>(stride_.size()); }
  u32 n_slots() const noexcept { return n_slots_; }
  u32 n_scratch() const noexcept { return n_scratch_; }
  /// Bytes of the whole allocation: slots, scratch and tails of all banks.
  u64 bytes() const noexcept { return begin_.size() == 0 ? 0 : begin_[begin_.size() - 1]; }
  /// Bytes of one expert in the bank.
  u64 stride(u32 bank) const noexcept { return stride_[bank]; }
  /// Offset of a slot of the bank, given by its index in it (pool_site::bank_index).
  u64 offset(u32 bank, u32 bank_index) const noexcept {
    return begin_[bank] + bank_index * stride_[bank];
  }
  u64 tail_offset(u32 bank) const noexcept { return offset(bank, n_slots_ + n_scratch_); }
  u64 tail_bytes(u32 bank) const noexcept { return begin_[bank + 1] - tail_offset(bank); }

 private:
  std::vector<u64> stride_;
  std::vector<u64> begin_;
  u32 n_slots_ = 0;
  u32 n_scratch_ = 0;
};

/// Throws config_error where the sites do not describe a bank: pools out of order, an unknown
/// group, a layer that is not of the group or lies in two pools, slots that overlap or leave a gap,
/// scratch that does not follow the slots or that pools of one group see differently. O(pools +
/// layers).
template <class Group = geometry_group>
void check_sites(geometry const& model, array_view<pool_site const> sites) {
  std::vector<Group> const groups = model.groups<Group>();
  struct progress {
    u32 next_slot = 0;
    u32 first_scratch = 0;
    u32 n_scratch = 0;
    std::vector<layer_id> placed;
    bool seen = false;
  };
  std::vector<progress> of_group(groups.size());
  for (std::size_t i = 0; i < sites.size(); ++i) {
    pool_site const& site = sites[i];
    if (site.pool != i) {
      throw config_error("pool ", site.pool, " is listed at place ", i);
    }
    if (site.group >= groups.size()) {
      throw config_error("pool ", i, " lies in group ", site.group, " of ", groups.size());
    }
    progress& p = of_group[site.group];
    if (site.first_slot != p.next_slot) {
      throw config_error("pool ", i, " begins at slot ", site.first_slot,
                         " of its bank; the slots before it end at ", p.next_slot);
    }
    if (u64{site.first_slot} + site.n_slots + site.n_scratch > u32_max - 1) {
      throw config_error("pool ", i, " has more slots than 32 bits can number");
    }
    p.next_slot += site.n_slots;
    if (p.seen && (site.first_scratch != p.first_scratch || site.n_scratch != p.n_scratch)) {
      throw config_error("pool ", i, " sees other scratch slots than the pools before it");
    }
    p.seen = true;
    p.first_scratch = site.first_scratch;
    p.n_scratch = site.n_scratch;
    for (layer_id layer : site.layers) {
      bool is_of_group = false;
      for (layer_id of : groups[site.group].layers) {
        is_of_group = is_of_group || of == layer;
      }
      if (!is_of_group) {
        throw config_error("pool ", i, " serves layer ", layer.value,
                           ", which is not of its group");
      }
      for (layer_id of : p.placed) {
        if (of == layer) {
          throw config_error("pool ", i, " serves layer ", layer.value,
                             ", which is already served by a pool");
        }
      }
      p.placed.push_back(layer);
    }
  }
  for (std::size_t g = 0; g < of_group.size(); ++g) {
    if (of_group[g].seen && of_group[g].first_scratch != of_group[g].next_slot) {
      throw config_error("the scratch slots of group ", g, " begin at ", of_group[g].first_scratch,
                         " and its slots end at ", of_group[g].next_slot);
    }
  }
}

/// The layout of each group for these sites, in the order of geometry::groups(). A group without a
/// pool has no slots.
template <class Layout = group_layout, class Group = geometry_group>
std::vector<Layout> layouts_of(geometry const& model, array_view<pool_site const> sites,
                               u64 tail_bytes) {
  std::vector<Group> const groups = model.groups<Group>();
  std::vector<Layout> result(groups.size());
  for (pool_site const& site : sites) {
    if (result[site.group].n_banks() == 0) {
      result[site.group] = Layout{groups[site.group].bank_bytes, site.first_scratch,
                                        site.n_scratch, tail_bytes};
    }
  }
  return result;
}

namespace move_detail {

/// As std::destructible, which proves first that B is complete: that costs more than all the rest.
template <class B>
concept is_destroyed_without_throwing = requires(B& b) {
  { b.~B() } noexcept;
};

template <class B>
concept opens_once = requires(B& b, geometry const& model, array_view<pool_site const> sites) {
  { b.open(model, sites) } -> std::same_as<void>;
};

template <class B>
concept says_its_tail = requires(B const& b) {
  { b.tail_bytes() }
  noexcept->std::same_as<u64>;
};

template <class B>
concept shows_arrivals = requires(B const& b, u32 pool) {
  { b.arrivals(pool) }
  noexcept->std::same_as<u32 const*>;
};

template <class B>
concept starts_without_throwing = requires(B& b, u32 pool, array_view<transfer_order const> orders) {
  { b.start(pool, orders) }
  noexcept->std::same_as<void>;
};

template <class B>
concept polls_without_throwing = requires(B& b) {
  { b.poll() }
  noexcept->std::same_as<void>;
};

template <class B>
concept closes_without_throwing = requires(B& b) {
  { b.close() }
  noexcept->std::same_as<void>;
};

/// A scheduler that may read cached memory from the host goes round the cache.
template <class B>
concept hides_slots_from_the_host = !move::is_host_readable(move::slot_memory_of<B>());

}  // namespace move_detail

/// What moves experts' bytes into slots. It owns the bytes and the arrival words and never sees the
/// table.
///
/// - `open(geometry, sites)`: called once, by the cache's constructor. Allocates everything; throws
///   config_error or bad_alloc and is then as before.
/// - `tail_bytes()`: zeroed bytes that its readers need behind each bank. Callable before open.
/// - `arrivals(pool)`: one word per slot of the pool (core/arrival.hpp), n_slots first, n_scratch
///   after. The address is the same from open to the destructor.
/// - `start(pool, orders)`: begins transfers, in ascending expert index. Each word says `loading`
///   of the order's generation; after **all** banks `arrived`; or `failed`, once no bank of the
///   expert is under way any more. A failure is a published word and nothing else.
/// - `poll()`: publishes what has completed by now.
/// - `slot_memory` (static, optional): where the slots lie; never host-readable memory.
/// - `close()`: no byte is written after it; what had not arrived is published as failed.
///   Idempotent; the destructor does it.
///
/// After open nothing allocates and nothing throws. One owner thread: words change within start,
/// poll and close, and where a backend says so. A slot has one transfer at a time: start names no
/// slot whose word says `loading`. No member but close waits for a device.
template <class B>
concept move_backend =
    move_detail::is_destroyed_without_throwing<B> && move_detail::opens_once<B> && move_detail::says_its_tail<B> &&
    move_detail::shows_arrivals<B> && move_detail::starts_without_throwing<B> &&
    move_detail::polls_without_throwing<B> && move_detail::closes_without_throwing<B> &&
    move_detail::hides_slots_from_the_host<B>;

namespace move::detail {

/// The arrival words of all pools, as backends and adaptors keep them. Zero = no transfer.
class arrival_words {
 public:
  /// Allocates n_words() per site, all zero. O(words).
  template <class Sites>
  void open(Sites const& sites) {
    fixed_array<std::size_t> first(sites.size() + 1);
    std::size_t i = 0;
    std::size_t n = 0;
    for (auto const& site : sites) {
      first[i++] = n;
      n += site.n_words();
    }
    first[sites.size()] = n;
    fixed_array<u32> words(n);
    words_ = static_cast<fixed_array<u32>&&>(words);
    first_ = static_cast<fixed_array<std::size_t>&&>(first);
  }

  u32 n_pools() const noexcept { return first_.size() == 0 ? 0 : static_cast<u32>(first_.size() - 1); }
  std::size_t size() const noexcept { return words_.size(); }
  bool has(u32 pool, slot_id slot) const noexcept {
    return pool < n_pools() && slot.value < first_[pool + 1] - first_[pool];
  }
  u32 const* of(u32 pool) const noexcept { return words_.data() + first_[pool]; }
  u32* of(u32 pool) noexcept { return words_.data() + first_[pool]; }
  u32& at(u32 pool, slot_id slot) noexcept { return of(pool)[slot.value]; }
  u32 at(u32 pool, slot_id slot) const noexcept { return of(pool)[slot.value]; }

  /// Writes `to` where the word says `loading`; false where it does not. O(1).
  bool publish(u32 pool, slot_id slot, transfer to) noexcept {
    u32& word = at(pool, slot);
    if (arrival::state(word) != transfer::loading) {
      return false;
    }
    word = arrival::word(word >> 2, to);
    return true;
  }

  /// Publishes every transfer that still runs as failed. O(words).
  void fail_all() noexcept {
    for (u32& word : words_) {
      if (arrival::state(word) == transfer::loading) {
        word = arrival::word(word >> 2, transfer::failed);
      }
    }
  }

 private:
  fixed_array<u32> words_;
  fixed_array<std::size_t> first_;
};

}  // namespace move::detail
}  // namespace warmset::inline v0
