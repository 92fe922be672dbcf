// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "../core/array_view.hpp"
#include "../core/geometry.hpp"
#include "../move/backend.hpp"
#include "../table/table.hpp"
#include "branch.hpp"
#include "kernels.cuh"
#include "memory.hpp"

namespace warmset::inline v0::cuda {

/// Where the experts of a model lie: for each bank of each layer the address of its expert 0, expert after expert without
/// gaps, in host memory that kernels can read (mapped pinned) or in the memory of a device. Addresses are the device's.
class mapped_source {
 public:
  virtual ~mapped_source() = default;
  virtual unsigned char const* bank(layer_id layer, u32 bank) const = 0;
};

struct device_options {
  u64 tail_bytes = 0;         ///< zeroed behind each bank
  u32 gather_blocks = 8;      ///< of 512 threads
  u32 piece_bytes = 8'192;    ///< what one warp fetches at a time; a multiple of 16
};

inline namespace WARMSET_CUDA_TAG {

/// The pools of a model in device memory, and the kernels that decide their steps inside a graph. Owns tables, arrival
/// words and banks; no step of it needs the host. One stream at a time orders the steps of a pool, which is also the lease
/// of what they answer.
///
/// The constructor allocates everything and throws config_error where something cannot work; nothing after it allocates.
/// `take_over` and `give_back` synchronise; `record` only launches.
template <checked_bundle Policy>
class device_pools {
  static_assert(!Policy::selector::host_only, "the selector is host_only: no kernel can run the bundle");

 public:
  /// @param sites   as check_sites wants them
  /// @param tables  one per site, whose blocks are the first state; they stay where they are
  device_pools(geometry const& model, std::vector<pool_site> sites, array_view<table<Policy> const> tables,
               mapped_source const& source, device_options options = {})
      : model_(model), sites_(std::move(sites)), options_(options), now_(1) {
    check_sites(model_, {sites_.data(), sites_.size()});
    if (tables.size() != sites_.size()) {
      throw config_error("device_pools: ", tables.size(), " tables for ", sites_.size(), " pools");
    }
    if (options_.piece_bytes == 0 || options_.piece_bytes % 16 != 0 || options_.gather_blocks == 0) {
      throw config_error("device_pools: pieces of ", options_.piece_bytes, " bytes for ", options_.gather_blocks,
                         " blocks; a multiple of 16 bytes and at least one block are possible");
    }
    layouts_ = layouts_of(model_, {sites_.data(), sites_.size()}, options_.tail_bytes);
    for (group_layout const& layout : layouts_) {
      banks_.emplace_back(static_cast<std::size_t>(layout.bytes()));
    }
    for (std::size_t i = 0; i < sites_.size(); ++i) {
      add_pool(sites_[i], tables[i], source);
    }
  }

  /// Makes the device the holder: copies the blocks there, with this epoch in them. Synchronises.
  status take_over(array_view<table<Policy>> tables, u32 epoch) {
    for (std::size_t i = 0; i < pools_.size(); ++i) {
      tables[i].view().header().epoch = epoch;
      status const s = pools_[i].block.write(static_cast<unsigned char const*>(tables[i].block()),
                                             static_cast<std::size_t>(tables[i].block_bytes()));
      if (!s) {
        return s;
      }
    }
    return set({epoch, phase::decode});
  }

  /// Copies the blocks back into tables of the same shape. Synchronises; what is under way has ended then.
  status give_back(array_view<table<Policy>> tables) const {
    status const s{cudaDeviceSynchronize()};
    for (std::size_t i = 0; s && i < pools_.size(); ++i) {
      status const copied = pools_[i].block.read(static_cast<unsigned char*>(tables[i].view().block()),
                                                 static_cast<std::size_t>(tables[i].block_bytes()));
      if (!copied) {
        return copied;
      }
    }
    return s;
  }

  /// What the next launches are under. Synchronises.
  status set(launch_state now) { return now_.write(&now, 1); }

  /// Whether every step of so many tokens fits: what a capture asks. Scratch must hold what admission declines.
  bool fits(layer_id layer, u32 n_tokens) const {
    std::size_t pool = 0;
    u32 row = 0;
    layer_geometry const* const known = model_.find(layer);
    return known != nullptr && find(layer, pool, row) &&
           u64{n_tokens} * known->k <= Policy::max_experts &&
           min_of(u64{n_tokens} * known->k, u64{known->n_experts}) <= pools_[pool].usable &&
           (!Policy::admission::may_decline ||
            min_of(u64{n_tokens} * known->k, u64{known->n_experts}) <= sites_[pool].n_scratch);
  }

  /// Puts one step of a layer into a stream, or into the graph that it captures: decide, then fetch. Where the stream gets
  /// past it, `slots` has the answers and their bytes are there. Does not synchronise.
  ///
  /// @param ids, slots  `n_ids` each, in device memory, at addresses that a graph may keep
  template <class Id>
  status record(cudaStream_t stream, layer_id layer, Id const* ids, u32 n_ids, i32* slots, step_memory memory = {}) {
    std::size_t pool = 0;
    u32 row = 0;
    if (!find(layer, pool, row)) {
      return {cudaErrorInvalidValue};
    }
    status joined = join(stream);
    if (!joined) {
      return joined;
    }
    pool_view<Policy> const& view = pools_[pool].view;
    plan_kernel<Policy, Id><<<1, detail::warp_size, 0, stream>>>(view, row, now_.data(), ids, n_ids, slots, memory);
    if constexpr (contextual_score<typename Policy::score>) {
      status const forked = aside_.fork(stream);
      if (!forked) {
        return forked;
      }
      learn_kernel<Policy><<<1, detail::learn_threads, 0, aside_.stream()>>>(view);
    }
    gather_kernel<Policy><<<options_.gather_blocks, detail::gather_threads, 0, stream>>>(view);
    return {cudaGetLastError()};
  }

  /// Makes the stream wait for what the last `record` left to run beside it. Every `record` begins with it; whoever ends
  /// a capture, or reads a table, calls it after the last one. Does not synchronise.
  status join(cudaStream_t stream) { return aside_.join(stream); }

  /// The bank of a group: where index i of an answer lies at `i * bytes of one expert`.
  unsigned char* bank(u32 group, u32 bank) const {
    return banks_[group].data() + layouts_[group].offset(bank, 0);
  }

  /// What all steps of a pool did so far. Synchronises.
  status counted(u32 pool, outcome& out) const { return pools_[pool].out.read(&out, 1); }

  /// The first fault of a pool's steps. Synchronises.
  status fault(u32 pool, step_fault& what) const {
    u32 word = 0;
    status const s{cudaMemcpy(&word, &pools_[pool].queue.data()->fault, sizeof word, cudaMemcpyDeviceToHost)};
    what = static_cast<step_fault>(word);
    return s;
  }

  u32 n_pools() const noexcept { return static_cast<u32>(pools_.size()); }

 private:
  struct device_pool {
    device_memory<unsigned char> block;
    device_memory<u32> arrivals;
    device_memory<plan_of<Policy>> plan;
    device_memory<outcome> out;
    device_memory<fetch_queue<Policy::max_experts>> queue;
    device_memory<unsigned char const*> sources;
    device_memory<bank_addresses> addresses;
    pool_view<Policy> view;
    u32 usable;
  };

  bool find(layer_id layer, std::size_t& pool, u32& row) const noexcept {
    for (pool = 0; pool < sites_.size(); ++pool) {
      for (row = 0; row < sites_[pool].layers.size(); ++row) {
        if (sites_[pool].layers[row] == layer) {
          return true;
        }
      }
    }
    return false;
  }

  void add_pool(pool_site const& site, table<Policy> const& from, mapped_source const& source) {
    group_layout const& layout = layouts_[site.group];
    u32 const n_banks = layout.n_banks();
    std::size_t const n_rows = site.layers.size();
    device_memory<unsigned char> block(static_cast<std::size_t>(from.block_bytes()));
    device_memory<u32> arrivals(site.n_words());
    device_memory<plan_of<Policy>> plan(contextual_score<typename Policy::score> ? 1 : 0);
    device_memory<outcome> out(1);
    device_memory<fetch_queue<Policy::max_experts>> queue(1);
    device_memory<unsigned char const*> source_of(n_banks * n_rows);
    device_memory<bank_addresses> bank_of(n_banks);
    std::vector<unsigned char const*> sources;
    std::vector<bank_addresses> addresses;
    u32 n_pieces = 0;
    for (u32 bank = 0; bank < n_banks; ++bank) {
      addresses.push_back({source_of.data() + bank * n_rows, this->bank(site.group, bank) + site.first_slot * layout.stride(bank),
                           this->bank(site.group, bank) + site.first_scratch * layout.stride(bank), layout.stride(bank)});
      n_pieces += static_cast<u32>(ceil_div(layout.stride(bank), u64{options_.piece_bytes}));
      for (layer_id layer : site.layers) {
        sources.push_back(source.bank(layer, bank));
      }
    }
    detail::require(block.write(static_cast<unsigned char const*>(from.block()), block.size()).code, "a pool's block");
    detail::require(source_of.write(sources.data(), sources.size()).code, "a pool's sources");
    detail::require(bank_of.write(addresses.data(), addresses.size()).code, "a pool's banks");
    pool_view<Policy> const view{block.data(), from.parts(), from.view().shape(), arrivals.data(), plan.data(),
                                 out.data(), queue.data(), bank_of.data(), n_banks, options_.piece_bytes, n_pieces,
                                 site.first_slot, site.first_scratch};
    pools_.push_back({std::move(block), std::move(arrivals), std::move(plan), std::move(out), std::move(queue),
                      std::move(source_of), std::move(bank_of), view, from.view().usable()});
  }

  geometry model_;
  std::vector<pool_site> sites_;
  device_options options_;
  device_memory<launch_state> now_;
  branch aside_;  // what learns while the stream goes on
  std::vector<group_layout> layouts_;
  std::vector<device_memory<unsigned char>> banks_;  // per group
  std::vector<device_pool> pools_;
};

}  // namespace WARMSET_CUDA_TAG
}  // namespace warmset::inline v0::cuda
