// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "../core/array_view.hpp"
#include "../core/geometry.hpp"
#include "../move/backend.hpp"
#include "../table/table.hpp"
#include "branch.hpp"
#include "counter_page.hpp"
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
  u32 gather_blocks = 32;     ///< of 128 threads
  u32 piece_bytes = 8'192;    ///< what one warp fetches at a time; a multiple of 16
  bool reads_host = false;    ///< readers ask `served`: what admission declines is answered -1 and read where it lies
};

inline namespace WARMSET_CUDA_TAG {

/// The pools of a model in device memory, and the kernels that decide their steps inside a graph. Owns tables, arrival
/// words and banks; no step of it needs the host. One stream orders the steps of all pools, which is also the lease of what
/// they answer: pools of one geometry share scratch, and what learns runs beside that stream.
///
/// The constructor allocates everything and throws config_error where something cannot work; nothing after it allocates.
/// What synchronises waits for the whole device, so that it may be called while a graph is in flight; `record`, `join` and
/// what puts hints into a stream only launch.
///
/// @tparam Adaptor  of the gathers; see gather_adaptor
template <checked_bundle Policy, gather_adaptor Adaptor = plain_gather>
class device_pools {
  static_assert(!Policy::selector::host_only, "the selector is host_only: no kernel can run the bundle");

 public:
  /// @param sites   as check_sites wants them
  /// @param tables  one per site and of its shape, without residents, since the banks are empty; they stay where they are
  device_pools(geometry const& model, std::vector<pool_site> sites, array_view<table<Policy> const> tables,
               mapped_source const& source, device_options options = {}, Adaptor adaptor = {})
      : model_(model), sites_(std::move(sites)), options_(options), adaptor_(adaptor), now_(1), aside_(branch::make()) {
    check_sites(model_, {sites_.data(), sites_.size()});
    if (tables.size() != sites_.size()) {
      throw config_error("device_pools: ", tables.size(), " tables for ", sites_.size(), " pools");
    }
    if constexpr (requires { Policy::score::reads_model_tick; }) {
      if (Policy::score::reads_model_tick && sites_.size() > 1) {
        throw config_error("device_pools: ", Policy::score::name,
                           " counts the ticks of all layers, which no pool on a device knows of the others");
      }
    }
    if (options_.piece_bytes == 0 || options_.piece_bytes % 16 != 0 || options_.gather_blocks == 0) {
      throw config_error("device_pools: pieces of ", options_.piece_bytes, " bytes for ", options_.gather_blocks,
                         " blocks; a multiple of 16 bytes and at least one block are possible");
    }
    layouts_ = layouts_of(model_, {sites_.data(), sites_.size()}, options_.tail_bytes);
    for (group_layout const& layout : layouts_) {
      banks_.emplace_back(static_cast<std::size_t>(layout.bytes()));
    }
    counters_ = device_memory<outcome>(sites_.size() * n_phases);
    for (std::size_t i = 0; i < sites_.size(); ++i) {
      check_table(i, tables[i].view());
      add_pool(sites_[i], tables[i], source);
    }
  }

  /// Makes the device the holder: copies the blocks there, with this epoch in them. Their residents must be those of these
  /// banks: none at first, afterwards what give_back brought. Refused with cudaErrorInvalidValue, and nothing changed, where
  /// a table has another shape or transfers in flight. Synchronises.
  status take_over(array_view<table<Policy>> tables, u32 epoch) {
    if (tables.size() != pools_.size()) {
      return {cudaErrorInvalidValue};
    }
    for (std::size_t i = 0; i < pools_.size(); ++i) {
      if (tables[i].block_bytes() != pools_[i].block.size() || tables[i].view().header().in_flight != 0) {
        return {cudaErrorInvalidValue};
      }
    }
    status s{cudaDeviceSynchronize()};
    for (std::size_t i = 0; s && i < pools_.size(); ++i) {
      block_header& header = tables[i].view().header();
      u32 const before = header.epoch;
      header.epoch = epoch;
      s = pools_[i].block.write(static_cast<unsigned char const*>(tables[i].block()), pools_[i].block.size());
      pools_[i].usable = tables[i].view().usable();
      if (!s) {
        header.epoch = before;
      }
    }
    return s ? set({epoch, phase::decode}) : s;
  }

  /// Copies the blocks back into tables of the same shape, and takes in what has arrived. From then on no launch commits
  /// anything until the next take_over: it finds another epoch. What arrived is counted under the phase of the last `set`.
  /// Synchronises; what is under way has ended then.
  status give_back(array_view<table<Policy>> tables) {
    if (tables.size() != pools_.size()) {
      return {cudaErrorInvalidValue};
    }
    for (std::size_t i = 0; i < pools_.size(); ++i) {
      if (tables[i].block_bytes() != pools_[i].block.size()) {
        return {cudaErrorInvalidValue};
      }
    }
    status s{cudaDeviceSynchronize()};
    std::vector<outcome> counted(counters_.size());
    s = s ? counters_.read(counted.data(), counted.size()) : s;
    if (!s) {
      return s;
    }
    for (std::size_t i = 0; s && i < pools_.size(); ++i) {
      table_writer<Policy> const t = tables[i].view();
      s = pools_[i].block.read(static_cast<unsigned char*>(t.block()), pools_[i].block.size());
      std::vector<u32> words(pools_[i].arrivals.size());
      s = s ? pools_[i].arrivals.read(words.data(), words.size()) : s;
      if (s) {
        settle<Policy>(one_lane{}, t, words.data(), counted[i * n_phases + static_cast<u32>(phase_)]);
      }
    }
    status const written = counters_.write(counted.data(), counted.size());
    if (!s || !written) {
      return s ? written : s;
    }
    return pools_.empty() ? s : set({~tables[0].view().header().epoch, phase::decode});
  }

  /// What the next launches are under. Synchronises.
  status set(launch_state now) {
    status s{cudaDeviceSynchronize()};
    s = s ? now_.write(&now, 1) : s;
    phase_ = s ? phase{now.in_phase} : phase_;
    return s;
  }

  /// The same in the order of a stream, from pinned memory that lives until then. Does not synchronise.
  status set(cudaStream_t stream, launch_state const* now) {
    return {cudaMemcpyAsync(now_.data(), now, sizeof *now, cudaMemcpyHostToDevice, stream)};
  }

  /// Whether every step of so many tokens fits: what a capture asks. Scratch must hold what admission declines, unless
  /// readers take it from the source.
  bool fits(layer_id layer, u32 n_tokens) const {
    std::size_t pool = 0;
    u32 row = 0;
    layer_geometry const* const known = model_.find(layer);
    return known != nullptr && find(layer, pool, row) &&
           u64{n_tokens} * known->k <= Policy::max_experts &&
           min_of(u64{n_tokens} * known->k, u64{known->n_experts}) <= pools_[pool].usable &&
           (!Policy::admission::may_decline || options_.reads_host ||
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
    status const joined = join(stream);
    if (!joined) {
      return joined;
    }
    pool_view<Policy> const& view = pools_[pool].view;
    status const planned = launch(plan_kernel<Policy, Id>, 1, detail::warp_size, stream, view, row, now_.data(), ids, n_ids,
                                  slots, memory);
    if (!planned) {
      return planned;  // what the plan before has listed is not fetched again
    }
    // whatever comes of the branch, what the plan has listed is fetched
    if constexpr (contextual_score<typename Policy::score>) {
      status const forked = aside_.fork(stream);
      status const fetched = launch(gather_kernel<Policy, Adaptor>, options_.gather_blocks, detail::gather_threads, stream,
                                    view, adaptor_);
      if (!forked) {
        return forked;
      }
      status const learned = launch(learn_kernel<Policy>, 1, detail::learn_threads, aside_.stream(), view);
      return fetched ? learned : fetched;
    } else {
      return launch(gather_kernel<Policy, Adaptor>, options_.gather_blocks, detail::gather_threads, stream, view, adaptor_);
    }
  }

  /// Puts a batch of hints for a layer's next step into a stream beside the one of the steps, or into a branch of its graph:
  /// decide within launch_state::hint_bytes what to fetch. It may run beside the steps of other layers, and has forked behind
  /// `join`, or a `record`, that came after its layer's last one: what that left to learn. `fetch_hints` must follow. Does not
  /// synchronise.
  ///
  /// Best beside the step of the layer before: while that fetches, nobody computes, and beside an engine's kernels the same
  /// decision takes several times as long.
  ///
  /// @param ids  `n_ids` in memory that the device reads, at an address that a graph may keep; surest first, -1 is padding
  template <class Id>
  status plan_hints(cudaStream_t stream, layer_id layer, Id const* ids, u32 n_ids) {
    static_assert(speculates<Policy>, "the bundle has predictor none: it takes no hints");
    std::size_t pool = 0;
    u32 row = 0;
    if (!find(layer, pool, row)) {
      return {cudaErrorInvalidValue};
    }
    return launch(hint_plan_kernel<Policy, Id>, 1, detail::warp_size, stream, hint_view(pool), row, now_.data(), ids, n_ids,
                  pools_[pool].hint_plan.data());
  }

  /// Fetches what the layer's last plan_hints has decided: behind the step of the layer before, whose misses come first on
  /// the link. Once for each plan_hints that succeeded: what it lists is fetched again otherwise, into slots that may have
  /// been given away. The engine's stream has joined it before the next `record` of this layer. Does not synchronise.
  status fetch_hints(cudaStream_t stream, layer_id layer) {
    static_assert(speculates<Policy>, "the bundle has predictor none: it takes no hints");
    std::size_t pool = 0;
    u32 row = 0;
    if (!find(layer, pool, row)) {
      return {cudaErrorInvalidValue};
    }
    return launch(gather_kernel<Policy, Adaptor>, options_.gather_blocks, detail::gather_threads, stream, hint_view(pool),
                  adaptor_);
  }

  /// Both, one behind the other.
  template <class Id>
  status advise(cudaStream_t stream, layer_id layer, Id const* ids, u32 n_ids) {
    status const planned = plan_hints(stream, layer, ids, n_ids);
    return planned ? fetch_hints(stream, layer) : planned;
  }

  /// Makes the stream wait for what the last `record` left to run beside it. Every `record` begins with it. Call it after
  /// the last one: before a capture ends, and, where steps ran outside of one, before a capture begins or a graph is
  /// launched. Does not synchronise.
  status join(cudaStream_t stream) { return aside_.join(stream); }

  /// The bank of a group: where index i of an answer lies at `i * bytes of one expert`.
  unsigned char* bank(u32 group, u32 bank) const {
    return banks_[group].data() + layouts_[group].offset(bank, 0);
  }

  /// Where readers of a layer's steps find what they were answered: for kernels behind a `record` of it, or in place of
  /// `bank` where transfers may fail. Throws config_error for a layer that is in no pool.
  served_experts served(layer_id layer) const {
    std::size_t pool = 0;
    u32 row = 0;
    if (!find(layer, pool, row)) {
      throw config_error("device_pools: layer ", layer.value, " is in no pool");
    }
    pool_view<Policy> const& v = pools_[pool].view;
    return {v.banks, v.arrivals, row, v.shape.n_slots, v.first_slot, v.first_scratch};
  }

  /// What the last step of a pool fetched, or its last batch of hints: for kernels behind both.
  fetch_queue<Policy::max_experts> const* fetched(u32 pool, intent by) const noexcept {
    return by == intent::demand ? pools_[pool].queue.data() : pools_[pool].hint_queue.data();
  }
  /// The counters of a pool, one record for each phase: for kernels behind its step and its hints.
  outcome const* counters(u32 pool) const noexcept { return counters_.data() + pool * n_phases; }

  /// Puts a publication of all counters into a stream, or into the graph that it captures: behind the last step and the
  /// join of the last hints. A graph has one, and graphs with the same page do not run side by side. Does not synchronise.
  ///
  /// @param page  as the device names it: mapped_counters::device_view
  status publish(cudaStream_t stream, counter_page page) const {
    if (page.n_pools != n_pools()) {
      return {cudaErrorInvalidValue};
    }
    counters_kernel<mapped_words><<<1, detail::block_threads, 0, stream>>>(page, counters_.data());
    return {cudaPeekAtLastError()};
  }

  /// What a pool's operations in one phase did so far. Synchronises.
  status counted(u32 pool, phase p, outcome& out) const {
    outcome by_phase[n_phases] = {};
    status const s = read_counters(pool, by_phase);
    out = by_phase[static_cast<u32>(p)];
    return s;
  }
  /// The same in all phases. Synchronises.
  status counted(u32 pool, outcome& out) const {
    outcome by_phase[n_phases] = {};
    status const s = read_counters(pool, by_phase);
    out = by_phase[0] + by_phase[1];
    return s;
  }

  /// The first fault of a pool's steps since the last clear_fault. Synchronises.
  status fault(u32 pool, step_fault& what) const {
    u32 word = 0;
    status s{cudaDeviceSynchronize()};
    s = s ? status{cudaMemcpy(&word, &pools_[pool].queue.data()->fault, sizeof word, cudaMemcpyDeviceToHost)} : s;
    what = static_cast<step_fault>(word);
    return s;
  }
  /// Forgets a pool's fault, so that the next one is told. Synchronises.
  status clear_fault(u32 pool) {
    status const s{cudaDeviceSynchronize()};
    return s ? status{cudaMemset(&pools_[pool].queue.data()->fault, 0, sizeof(u32))} : s;
  }

  u32 n_pools() const noexcept { return static_cast<u32>(pools_.size()); }

 private:
  /// Launches a kernel; the status is this launch's and no older one's.
  template <class... Parameters, class... Arguments>
  static status launch(void (*kernel)(Parameters...), u32 blocks, u32 threads, cudaStream_t stream,
                       Arguments const&... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = stream;
    return {cudaLaunchKernelEx(&config, kernel, arguments...)};
  }

  struct device_pool {
    device_memory<unsigned char> block;
    device_memory<u32> arrivals;
    device_memory<plan_of<Policy>> plan;
    device_memory<fetch_queue<Policy::max_experts>> queue;
    device_memory<fetch_queue<Policy::max_experts>> hint_queue;
    device_memory<hint_memory<Policy>> hint_plan;
    device_memory<unsigned char const*> sources;
    device_memory<bank_addresses> addresses;
    pool_view<Policy> view;
    u32 usable;
  };

  status read_counters(u32 pool, outcome (&out)[n_phases]) const {
    status const s{cudaDeviceSynchronize()};
    return s ? status{cudaMemcpy(out, counters(pool), sizeof out, cudaMemcpyDeviceToHost)} : s;
  }

  pool_view<Policy> hint_view(std::size_t pool) const noexcept {
    pool_view<Policy> view = pools_[pool].view;
    view.queue = pools_[pool].hint_queue.data();
    return view;
  }

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

  void check_table(std::size_t pool, table_reader<Policy> const& t) const {
    pool_site const& site = sites_[pool];
    block_header const& h = t.header();
    if (h.n_slots != site.n_slots || h.n_scratch != site.n_scratch) {
      throw config_error("device_pools: the table of pool ", pool, " has ", h.n_slots, " slots and ", h.n_scratch,
                         " scratch slots; its site has ", site.n_slots, " and ", site.n_scratch);
    }
    if (h.n_layers != site.layers.size()) {
      throw config_error("device_pools: the table of pool ", pool, " has ", h.n_layers, " layers; its site has ",
                         site.layers.size());
    }
    for (u32 row = 0; row < h.n_layers; ++row) {
      layer_geometry const* const known = model_.find(site.layers[row]);
      if (t.layer(row).id != site.layers[row].value || known == nullptr || t.layer(row).n_experts != known->n_experts) {
        throw config_error("device_pools: row ", row, " of the table of pool ", pool, " is layer ", t.layer(row).id, " with ",
                           t.layer(row).n_experts, " experts; its site says layer ", site.layers[row].value);
      }
    }
    if (h.resident + h.reserved + h.draining != 0) {
      throw config_error("device_pools: the table of pool ", pool, " has experts in ", h.resident + h.reserved + h.draining,
                         " slots, of which the new banks know nothing");
    }
  }

  void add_pool(pool_site const& site, table<Policy> const& from, mapped_source const& source) {
    group_layout const& layout = layouts_[site.group];
    u32 const n_banks = layout.n_banks();
    std::size_t const n_rows = site.layers.size();
    device_memory<unsigned char> block(static_cast<std::size_t>(from.block_bytes()));
    device_memory<u32> arrivals(site.n_words());
    device_memory<plan_of<Policy>> plan(contextual_score<typename Policy::score> ? 1 : 0);
    device_memory<fetch_queue<Policy::max_experts>> queue(1);
    device_memory<fetch_queue<Policy::max_experts>> hint_queue(speculates<Policy> ? 1 : 0);
    device_memory<hint_memory<Policy>> hint_plan(speculates<Policy> ? 1 : 0);
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
                                 counters_.data() + pools_.size() * n_phases, queue.data(), bank_of.data(), n_banks,
                                 options_.piece_bytes, n_pieces, site.first_slot, site.first_scratch, options_.reads_host};
    pools_.push_back({std::move(block), std::move(arrivals), std::move(plan), std::move(queue),
                      std::move(hint_queue), std::move(hint_plan), std::move(source_of), std::move(bank_of), view,
                      from.view().usable()});
  }

  geometry model_;
  std::vector<pool_site> sites_;
  device_options options_;
  Adaptor adaptor_;
  device_memory<launch_state> now_;
  phase phase_ = phase::decode;  // what now_ says
  branch aside_;  // what learns while the stream goes on
  std::vector<group_layout> layouts_;
  std::vector<device_memory<unsigned char>> banks_;  // per group
  device_memory<outcome> counters_;  // per pool and phase
  std::vector<device_pool> pools_;
};

}  // namespace WARMSET_CUDA_TAG
}  // namespace warmset::inline v0::cuda
