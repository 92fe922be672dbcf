// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "../core/geometry.hpp"
#include "abi.cuh"
#include "backend.hpp"
#include "host_directed.hpp"
#include "kernels.cuh"
#include "mapped_memory.hpp"
#include "memory.hpp"
#include "words.cuh"

/// Host-directed mode on a device: kernels that publish routed ids, wait for the worker's answers and say what has been
/// read. They count on the device, so that a graph that holds them may be launched again and again.
namespace warmset::inline v0::cuda {

inline namespace WARMSET_CUDA_TAG {
WARMSET_HIDE_KERNELS

// Templates, so that one is made only where it is launched.

template <class Words>
__global__ void __launch_bounds__(32)
    publish_kernel(signal::channel_view c, directed_state* s, step_ticket* t, u32 layer, phase in_phase,
                   routed_id const* ids, u32 n_ids) {
  publish_on_device<Words>(warp_lanes{}, c, *s, *t, layer, in_phase, ids, n_ids, device_clock{});
}

template <class Words>
__global__ void __launch_bounds__(detail::block_threads)
    await_kernel(signal::channel_view c, directed_state* s, step_ticket* t, directed_place p, routed_id const* ids,
                 u32 n_ids, i32* slots) {
  __shared__ block_words shared;
  await_on_device<Words>(block_lanes{shared}, c, *s, *t, p, ids, n_ids, slots, device_clock{},
                         [](unsigned char* to, unsigned char const* from, u64 bytes) { detail::copy_by_block(to, from, bytes); });
}

/// publish_kernel and await_kernel in one.
template <class Words>
__global__ void __launch_bounds__(detail::block_threads)
    ask_kernel(signal::channel_view c, directed_state* s, step_ticket* t, phase in_phase, directed_place p,
               routed_id const* ids, u32 n_ids, i32* slots) {
  __shared__ block_words shared;
  block_lanes const block{shared};
  publish_on_device<Words>(block, c, *s, *t, p.layer, in_phase, ids, n_ids, device_clock{});
  await_on_device<Words>(block, c, *s, *t, p, ids, n_ids, slots, device_clock{},
                         [](unsigned char* to, unsigned char const* from, u64 bytes) { detail::copy_by_block(to, from, bytes); });
}

template <class Words>
__global__ void finish_kernel(signal::channel_view c, step_ticket const* t) {
  finish_on_device<Words>(c, *t);
}

template <class Words>
__global__ void __launch_bounds__(32) hint_kernel(signal::channel_view c, directed_state* s, u32 layer,
                                                      routed_id const* ids, u32 n_ids, u32 ahead) {
  hint_on_device<Words>(warp_lanes{}, c, *s, layer, ids, n_ids, ahead);
}

template <class Words>
__global__ void await_hint_kernel(signal::channel_view c, directed_state* s) {
  await_hint_on_device<Words>(c, *s, device_clock{});
}

WARMSET_SHOW_AGAIN

/// Of whose mapped memory kernels read: the spans that the copy engine copies from. Where they are not mapped there is no
/// address, and steps are waited for past their deadline.
class mapped_spans {
 public:
  explicit mapped_spans(move::span_source const& of) noexcept : of_(&of) {}
  unsigned char const* bank(layer_id layer, u32 bank) const noexcept {
    void* device = nullptr;
    void* const host = const_cast<std::byte*>(of_->bytes(layer, bank).data());
    if (cudaHostGetDevicePointer(&device, host, 0) != cudaSuccess) {
      (void)cudaGetLastError();
      return nullptr;
    }
    return static_cast<unsigned char const*>(device);
  }

 private:
  move::span_source const* of_;
};

/// No memory that kernels can read.
struct no_mapped_source {
  static unsigned char const* bank(layer_id, u32) noexcept { return nullptr; }
};

struct directed_options {
  directed_limits limits{100'000'000, 20'000};
  u32 share = 0;   ///< of the engine's own scratch: that of the share-th of so many streams
  u32 shares = 1;
};

/// One stream's end of a channel, for kernels. A step is publish, await, what reads the slots, and finish, in stream order.
/// Steps of further layers may be published before; from await to finish steps do not overlap, since all that are served
/// past their deadline use the same scratch. All of them only launch, and may be captured.
///
/// The constructor makes the device of the engine the current one, allocates everything, has the kernels loaded (a kernel
/// that is loaded while another waits for the worker may wait for that one), and throws config_error. Nothing after it
/// allocates. The stream must be of that device, and nothing that the worker's thread calls may synchronise it.
class host_directed {
 public:
  /// @param model, engine  what the worker's cache has: the engine is open
  /// @param source         bank(layer, bank): expert 0 of that bank as kernels see it, or nullptr
  template <class Source = no_mapped_source>
  host_directed(mapped_channel& channel, geometry const& model, copy_engine const& engine, Source const& source = {},
                directed_options options = {})
      : channel_(channel.device_view()), end_(channel.view()), device_(engine.options().device) {
    on_device<runtime> const here(runtime_, device_);
    if (!here.result() || options.shares == 0 || options.share >= options.shares) {
      throw config_error("host-directed on device ", device_, " with share ", options.share, " of ", options.shares,
                         " cannot be");
    }
    state_ = device_memory<directed_state>(1);
    directed_state const state = directed_state_of(channel.view(), options.limits);
    detail::require(state_.write(&state, 1).code, "the state of a channel");
    for (pool_site const& site : engine.sites()) {
      add_pool(site, model, engine, source, options);
    }
    tickets_ = device_memory<step_ticket>(places_.size());
    load_kernels();
  }

  /// Publishes the ids of a layer's step. @param ids  `n_ids` in device memory, at an address that a graph may keep
  status publish(cudaStream_t stream, layer_id layer, routed_id const* ids, u32 n_ids, phase p = phase::decode) noexcept {
    std::size_t const at = find(layer);
    return launch(at, [&] {
      publish_kernel<mapped_words><<<1, 32, 0, stream>>>(channel_, state_.data(), tickets_.data() + at, layer.value, p, ids, n_ids);
    });
  }
  /// Where the stream gets past it the bytes are in place: `slots` has the index in the banks for each id, or -1.
  status await(cudaStream_t stream, layer_id layer, routed_id const* ids, u32 n_ids, i32* slots) noexcept {
    std::size_t const at = find(layer);
    return launch(at, [&] {
      await_kernel<mapped_words><<<1, detail::block_threads, 0, stream>>>(channel_, state_.data(), tickets_.data() + at,
                                                                           places_[at].place, ids, n_ids, slots);
    });
  }
  /// Publishes and waits in one kernel: a node less where nothing runs between the two.
  status ask(cudaStream_t stream, layer_id layer, routed_id const* ids, u32 n_ids, i32* slots,
             phase p = phase::decode) noexcept {
    std::size_t const at = find(layer);
    return launch(at, [&] {
      ask_kernel<mapped_words><<<1, detail::block_threads, 0, stream>>>(channel_, state_.data(), tickets_.data() + at, p,
                                                                         places_[at].place, ids, n_ids, slots);
    });
  }
  /// The slots of the layer's step, and of those published before it, have been read.
  status finish(cudaStream_t stream, layer_id layer) noexcept {
    std::size_t const at = find(layer);
    return launch(at, [&] { finish_kernel<mapped_words><<<1, 1, 0, stream>>>(channel_, tickets_.data() + at); });
  }
  status hint(cudaStream_t stream, layer_id layer, routed_id const* ids, u32 n_ids, u32 ahead = 1) noexcept {
    return launch(find(layer), [&] {
      hint_kernel<mapped_words><<<1, 32, 0, stream>>>(channel_, state_.data(), layer.value, ids, n_ids, ahead);
    });
  }
  status await_hint(cudaStream_t stream) noexcept {
    return launch(0, [&] { await_hint_kernel<mapped_words><<<1, 1, 0, stream>>>(channel_, state_.data()); });
  }

  /// For the launches from now on. Synchronises.
  status set(directed_limits limits) noexcept {
    on_device<runtime> const here(runtime_, device_);
    status const s{cudaMemcpy(&state_.data()->limits, &limits, sizeof limits, cudaMemcpyHostToDevice)};
    // from pageable memory the call may return while the bytes are on their way
    return s ? status{cudaStreamSynchronize(cudaStreamLegacy)} : s;
  }
  /// What has been counted. Synchronises.
  status counted(directed_tally& out) const noexcept {
    return {cudaMemcpy(&out, &state_.data()->out, sizeof out, cudaMemcpyDeviceToHost)};
  }
  /// How the layer's last step went. Synchronises.
  status last(layer_id layer, step_ticket& out) const noexcept {
    std::size_t const at = find(layer);
    return at == places_.size() ? status{cudaErrorInvalidValue}
                                : status{cudaMemcpy(&out, tickets_.data() + at, sizeof out, cudaMemcpyDeviceToHost)};
  }
  /// The same as kernels read it; nullptr for a layer that is not there.
  step_ticket const* ticket(layer_id layer) const noexcept {
    std::size_t const at = find(layer);
    return at == places_.size() ? nullptr : tickets_.data() + at;
  }

 private:
  struct layer_place {
    layer_id layer;
    directed_place place;
  };

  template <class Source>
  void add_pool(pool_site const& site, geometry const& model, copy_engine const& engine, Source const& source,
                directed_options const& options) {
    u32 const n_banks = engine.layout(site.group).n_banks();
    u32 const n_own = engine.n_own(site.group) / options.shares;
    std::vector<unsigned char const*> sources;
    bool is_mapped = n_own != 0;
    for (u32 bank = 0; bank < n_banks; ++bank) {
      for (layer_id layer : site.layers) {
        sources.push_back(source.bank(layer, bank));
        is_mapped = is_mapped && sources.back() != nullptr;
      }
    }
    sources_.emplace_back(sources.size());
    detail::require(sources_.back().write(sources.data(), sources.size()).code, "a pool's sources");
    std::vector<bank_addresses> banks;
    for (u32 bank = 0; bank < n_banks; ++bank) {
      banks.push_back({sources_.back().data() + bank * site.layers.size(), engine.bank(site.group, bank), nullptr,
                       engine.layout(site.group).stride(bank)});
    }
    banks_.emplace_back(banks.size());
    detail::require(banks_.back().write(banks.data(), banks.size()).code, "a pool's banks");
    for (u32 row = 0; row < site.layers.size(); ++row) {
      places_.push_back({site.layers[row],
                         {banks_.back().data(), n_banks, site.layers[row].value, row, model.find(site.layers[row])->n_experts,
                          site.n_slots, site.first_slot, site.first_scratch,
                          engine.first_own(site.group) + options.share * n_own, n_own, is_mapped ? 1u : 0u}});
    }
  }

  static void load_kernels() {
    cudaFuncAttributes a{};
    for (void const* kernel :
         {reinterpret_cast<void const*>(&publish_kernel<mapped_words>), reinterpret_cast<void const*>(&await_kernel<mapped_words>),
          reinterpret_cast<void const*>(&ask_kernel<mapped_words>), reinterpret_cast<void const*>(&finish_kernel<mapped_words>),
          reinterpret_cast<void const*>(&hint_kernel<mapped_words>),
          reinterpret_cast<void const*>(&await_hint_kernel<mapped_words>)}) {
      detail::require(cudaFuncGetAttributes(&a, kernel), "loading a kernel");
    }
  }

  std::size_t find(layer_id layer) const noexcept {
    std::size_t at = 0;
    while (at < places_.size() && places_[at].layer != layer) {
      ++at;
    }
    return at;
  }

  template <class Launch>
  status launch(std::size_t at, Launch&& launch) noexcept {
    if (at >= places_.size()) {
      return {cudaErrorInvalidValue};
    }
    on_device<runtime> const here(runtime_, device_);
    if (!here.result()) {
      return {static_cast<cudaError_t>(here.result().code)};
    }
    launch();
    return {cudaGetLastError()};
  }

  signal::channel_view channel_;
  signal::device_end end_;  ///< for the right to publish: the kernels do it
  runtime runtime_;
  u32 device_;
  device_memory<directed_state> state_;
  device_memory<step_ticket> tickets_;
  std::vector<device_memory<unsigned char const*>> sources_;  ///< by pool
  std::vector<device_memory<bank_addresses>> banks_;
  std::vector<layer_place> places_;
};

}  // namespace WARMSET_CUDA_TAG
}  // namespace warmset::inline v0::cuda
