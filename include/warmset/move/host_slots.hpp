// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "backend.hpp"
#include "host_block.hpp"
#include "host_reads.hpp"

namespace warmset::inline v0 {
namespace move {

/// The memory of a host backend's slots, group by group, and what each bank of each slot holds.
/// Complexity: O(1) but for bytes.
class host_slots {
 public:
  struct group {
    group_layout layout;
    owned_block memory;
    std::vector<bank_tag> tags;  ///< bank after bank

    u32 n_indices() const noexcept { return layout.n_slots() + layout.n_scratch(); }
    bank_tag& tag(u32 bank, u32 index) noexcept {
      return tags[std::size_t{bank} * n_indices() + index];
    }
    std::span<std::byte> bytes(u32 bank, u32 index) noexcept {
      return memory.bytes().subspan(layout.offset(bank, index), layout.stride(bank));
    }
  };

  host_slots() = default;
  /// @param take  gives the block for so many bytes, or throws
  template <class Take>
  host_slots(geometry const& model, array_view<pool_site const> sites, u64 tail_bytes, Take&& take)
      : sites_(sites.begin(), sites.end()) {
    std::vector<group_layout> layouts = layouts_of(model, sites, tail_bytes);
    std::vector<group> groups(layouts.size());
    for (std::size_t g = 0; g < layouts.size(); ++g) {
      groups[g].layout = std::move(layouts[g]);
      groups[g].memory = take(groups[g].layout.bytes());
      groups[g].tags.resize(std::size_t{groups[g].n_indices()} * groups[g].layout.n_banks());
    }
    groups_.swap(groups);
  }

  std::vector<pool_site> const& sites() const noexcept { return sites_; }
  u32 n_groups() const noexcept { return static_cast<u32>(groups_.size()); }
  group& operator[](u32 g) noexcept { return groups_[g]; }
  group const& operator[](u32 g) const noexcept { return groups_[g]; }

  u64 bytes() const noexcept {
    u64 sum = 0;
    for (group const& g : groups_) {
      sum += g.layout.bytes();
    }
    return sum;
  }
  std::vector<u32> n_indices() const {
    std::vector<u32> result;
    for (group const& g : groups_) {
      result.push_back(g.n_indices());
    }
    return result;
  }
  /// Banks of all slots and scratch slots: as many copies fit under way at a time.
  std::size_t n_banks() const noexcept {
    std::size_t sum = 0;
    for (group const& g : groups_) {
      sum += g.tags.size();
    }
    return sum;
  }
  u64 largest_bank() const noexcept {
    u64 largest = 0;
    for (group const& g : groups_) {
      for (u32 bank = 0; bank < g.layout.n_banks(); ++bank) {
        largest = max_of(largest, g.layout.stride(bank));
      }
    }
    return largest;
  }

  /// Null where the claim names no bank of a slot.
  bank_tag const* find(read_claim const& claim) const noexcept {
    if (claim.pool >= sites_.size() || claim.slot.value >= sites_[claim.pool].n_words()) {
      return nullptr;
    }
    pool_site const& site = sites_[claim.pool];
    group const& g = groups_[site.group];
    return claim.bank >= g.layout.n_banks()
               ? nullptr
               : &g.tags[std::size_t{claim.bank} * g.n_indices() + site.bank_index(claim.slot)];
  }

  std::span<std::byte const> memory(u32 g) const noexcept { return groups_[g].memory.bytes(); }
  std::span<std::byte> raw(u32 pool, slot_id slot, u32 bank) noexcept {
    pool_site const& site = sites_[pool];
    return groups_[site.group].bytes(bank, site.bank_index(slot));
  }
  std::span<std::byte const> raw(u32 pool, slot_id slot, u32 bank) const noexcept {
    return const_cast<host_slots*>(this)->raw(pool, slot, bank);
  }

 private:
  std::vector<pool_site> sites_;
  std::vector<group> groups_;
};

}  // namespace move
}  // namespace warmset::inline v0
