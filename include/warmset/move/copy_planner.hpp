// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend.hpp"
#include "link.hpp"

namespace warmset::inline v0 {
namespace move {

/// One copy of one bank: `n_experts` neighbours of a layer's bank into as many neighbouring slots.
/// The source of a bank is expert-major without gaps, as engines keep it.
struct copy_entry {
  layer_id layer;
  u32 bank;
  u32 first_expert;
  u32 first_index;  ///< first slot, as its index in the bank
  u32 n_experts;
  u32 first_order;    ///< the orders [first_order, first_order + n_experts) are what it serves
  u64 source_offset;  ///< bytes from the beginning of the layer's bank
  u64 device_offset;  ///< bytes from the beginning of the group's allocation
  u64 bytes;
};

/// What plan_copies made of some orders. The entries [0, n_large) are one batch and
/// [n_large, n_large + n_small) another; either may be empty.
struct copy_plan {
  u32 n_orders;  ///< orders planned: all, unless the array was too short
  u32 n_large;
  u32 n_small;
  u32 n_runs;  ///< groups of neighbours; n_orders - n_runs orders travel in another's copies
  u64 bytes;   ///< of all copies: the bytes of the experts named, and no other

  u32 n_copies() const noexcept { return n_large + n_small; }
  u32 n_batches() const noexcept { return (n_large != 0 ? 1u : 0u) + (n_small != 0 ? 1u : 0u); }
  bool operator==(copy_plan const&) const = default;
};

namespace detail {

/// Orders from `first` on that continue each other in expert and slot. O(length).
inline u32 run_length(array_view<transfer_order const> orders, u32 first, pool_site const& site,
                      u32 limit) noexcept {
  u32 n = 1;
  while (first + n < limit) {
    transfer_order const& a = orders[first + n - 1];
    transfer_order const& b = orders[first + n];
    if (b.expert.layer != a.expert.layer || b.expert.expert.value != a.expert.expert.value + 1 ||
        site.bank_index(b.slot) != site.bank_index(a.slot) + 1) {
      break;
    }
    ++n;
  }
  return n;
}

inline copy_plan count_copies(array_view<transfer_order const> orders, pool_site const& site,
                              group_layout const& layout, u64 large_from, u32 limit) noexcept {
  copy_plan plan{limit, 0, 0, 0, 0};
  for (u32 first = 0; first < limit;) {
    u32 const n = run_length(orders, first, site, limit);
    for (u32 bank = 0; bank < layout.n_banks(); ++bank) {
      u64 const bytes = n * layout.stride(bank);
      ++(bytes >= large_from ? plan.n_large : plan.n_small);
      plan.bytes += bytes;
    }
    ++plan.n_runs;
    first += n;
  }
  return plan;
}

}  // namespace detail

/// What plan_copies would make of these orders, without an array. O(orders · banks).
inline copy_plan count_copies(array_view<transfer_order const> orders, pool_site const& site,
                              group_layout const& layout,
                              u64 large_from = large_copy_bytes) noexcept {
  return detail::count_copies(orders, site, layout, large_from, static_cast<u32>(orders.size()));
}

/// Turns orders of one pool into copies: one per bank, and one for all of neighbouring experts that
/// go to neighbouring slots. Entries of at least `large_from` bytes never share a batch with
/// smaller ones. Within a batch the copies of earlier orders come first.
///
/// @param orders  in ascending expert index, as start gets them
/// @param out     takes orders · banks entries at most; where it is shorter, as many of the first
///                orders are planned as are certain to fit, and `n_orders` says how many
///
/// Errors: none. Does not allocate or wait. Complexity: O(orders · banks).
inline copy_plan plan_copies(array_view<transfer_order const> orders, pool_site const& site,
                             group_layout const& layout, u64 large_from,
                             array_view<copy_entry> out) noexcept {
  u32 const n_banks = layout.n_banks();
  u64 const room = n_banks == 0 ? 0 : out.size() / n_banks;
  u32 const limit = static_cast<u32>(min_of(u64{orders.size()}, room));
  copy_plan const plan = detail::count_copies(orders, site, layout, large_from, limit);
  u32 next_large = 0;
  u32 next_small = plan.n_large;
  for (u32 first = 0; first < limit;) {
    u32 const n = detail::run_length(orders, first, site, limit);
    transfer_order const& order = orders[first];
    u32 const index = site.bank_index(order.slot);
    for (u32 bank = 0; bank < n_banks; ++bank) {
      u64 const stride = layout.stride(bank);
      u64 const bytes = n * stride;
      u32& at = bytes >= large_from ? next_large : next_small;
      out[at++] = {order.expert.layer,
                   bank,
                   order.expert.expert.value,
                   index,
                   n,
                   first,
                   order.expert.expert.value * stride,
                   layout.offset(bank, index),
                   bytes};
    }
    first += n;
  }
  return plan;
}

}  // namespace move
}  // namespace warmset::inline v0
