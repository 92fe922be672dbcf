// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Ranges for Nsight and other tools of NVTX: there where the toolkit's header is, and nothing where it is not. Without a
/// tool a range costs a few nanoseconds.
#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define WARMSET_HAS_NVTX 1
#endif
#endif

#if defined(WARMSET_HAS_NVTX)

#include <nvtx3/nvToolsExt.h>

#include <utility>

#include "../core/fixed_array.hpp"
#include "../move/tracing.hpp"

namespace warmset::inline v0 {
namespace cuda {

/// A range on the timeline of this thread, for as long as it lives: around a step, say. The text must outlive it.
class nvtx_scope {
 public:
  explicit nvtx_scope(char const* text) noexcept { (void)nvtxRangePushA(text); }
  nvtx_scope(nvtx_scope const&) = delete;
  nvtx_scope& operator=(nvtx_scope const&) = delete;
  ~nvtx_scope() { (void)nvtxRangePop(); }
};

/// A sink of move::tracing that shows each transfer as a range from its start until it has arrived or failed; the payload
/// is layer << 32 | expert. Has one place per slot: `open` before the backend is.
class nvtx_sink {
 public:
  template <class Sites>
  void open(Sites const& sites) {
    first_ = fixed_array<std::size_t>(sites.size() + 1);
    std::size_t n = 0;
    std::size_t i = 0;
    for (auto const& site : sites) {
      first_[i++] = n;
      n += site.n_words();
    }
    first_[i] = n;
    ranges_ = fixed_array<nvtxRangeId_t>(n);
  }

  void operator()(move::move_event const& e) noexcept {
    if (e.pool + 1 >= first_.size() || e.order.slot.value >= first_[e.pool + 1] - first_[e.pool]) {
      return;
    }
    nvtxRangeId_t& range = ranges_[first_[e.pool] + e.order.slot.value];
    if (e.what != move::move_event::kind::start) {
      nvtxRangeEnd(range);
      return;
    }
    nvtxEventAttributes_t how{};
    how.version = NVTX_VERSION;
    how.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    how.messageType = NVTX_MESSAGE_TYPE_ASCII;
    how.message.ascii = "expert";
    how.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    how.payload.ullValue = u64{e.order.expert.layer.value} << 32 | e.order.expert.expert.value;
    range = nvtxRangeStartEx(&how);
  }

 private:
  fixed_array<std::size_t> first_;
  fixed_array<nvtxRangeId_t> ranges_;
};

/// A backend whose transfers are ranges of NVTX.
///
/// Errors: those of B. Does not allocate after open. Complexity: that of move::tracing.
template <move_backend B>
class nvtx_tracing {
 public:
  nvtx_tracing() = default;
  explicit nvtx_tracing(B inner) : traced_(nvtx_sink{}, std::move(inner)) {}

  u64 tail_bytes() const noexcept { return traced_.tail_bytes(); }
  void open(geometry const& model, array_view<pool_site const> sites) {
    traced_.sink().open(sites);
    traced_.open(model, sites);
  }
  u32 const* arrivals(u32 pool) const noexcept { return traced_.arrivals(pool); }
  void start(u32 pool, array_view<transfer_order const> orders) noexcept { traced_.start(pool, orders); }
  void poll() noexcept { traced_.poll(); }
  void close() noexcept { traced_.close(); }

  B& inner() noexcept { return traced_.inner(); }
  B const& inner() const noexcept { return traced_.inner(); }

 private:
  move::tracing<B, nvtx_sink> traced_;
};

}  // namespace cuda

static_assert(move_backend<cuda::nvtx_tracing<move::external>>, "nvtx_tracing must satisfy move_backend");

}  // namespace warmset::inline v0

#endif
