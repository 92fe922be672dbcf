// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>

#include "../core/result.hpp"
#include "../move/backend.hpp"

namespace warmset::inline v0::cuda {

/// What a call of a runtime came to: a reason of this library and the runtime's own code, 0 for success. Contextually
/// true where it is success; `busy` is what an event answers that has not come.
struct [[nodiscard]] call_result {
  reason why = reason::none;
  i32 code = 0;
  constexpr explicit operator bool() const noexcept { return why == reason::none; }
};

/// The calls of a runtime that the copy engine makes, each with a result: cuda::runtime on a device, and one of ordinary
/// memory in tests. Nothing of it throws. Calls are for the current device, which one thread has for itself.
///
/// - `current_device(d)`, `use_device(d)`, `count_devices(n)`, `free_bytes(n)`: of the current device's memory
/// - `allocate(p, bytes)`, `release(p)`: device memory; `allocate_pinned`, `release_pinned`: mapped host memory
/// - `register_host(p, bytes)`, `unregister_host(p)`: pins memory that somebody else owns
/// - `kind_of(p, kind)`: where an address lies; `clear(p, bytes, stream)`: zeroes device memory
/// - `copy`, `copy_batch(to, from, bytes, n, stream)`: to the current device, in the stream's turn; the batch is there
///   where `has_batch_copy()`, takes none or all, and answers `unsupported` where it turns out not to be there
/// - `record(event, stream)`, `query(event)`, `order(stream, event)`, `synchronise(stream)`
/// - `enter_relaxed(mode)`, `leave_relaxed(mode)`: until then, captures of other threads forbid this one nothing
template <class R>
concept copy_runtime = requires(R& r, R const& c, typename R::stream& stream, typename R::event& event, void*& memory,
                                void* const* to, void const* const* from, std::size_t const* bytes, void const* address,
                                u32& number, u64& amount, move::memory_kind& kind, i32& mode) {
  requires std::copyable<R>;
  { r.count_devices(number) } noexcept -> std::same_as<call_result>;
  { r.current_device(number) } noexcept -> std::same_as<call_result>;
  { r.use_device(number) } noexcept -> std::same_as<call_result>;
  { r.free_bytes(amount) } noexcept -> std::same_as<call_result>;
  { r.allocate(memory, amount) } noexcept -> std::same_as<call_result>;
  { r.release(memory) } noexcept -> std::same_as<call_result>;
  { r.allocate_pinned(memory, amount) } noexcept -> std::same_as<call_result>;
  { r.release_pinned(memory) } noexcept -> std::same_as<call_result>;
  { r.register_host(address, amount) } noexcept -> std::same_as<call_result>;
  { r.unregister_host(address) } noexcept -> std::same_as<call_result>;
  { r.kind_of(address, kind) } noexcept -> std::same_as<call_result>;
  { r.clear(memory, amount, stream) } noexcept -> std::same_as<call_result>;
  { r.make_stream(stream) } noexcept -> std::same_as<call_result>;
  { r.destroy_stream(stream) } noexcept -> std::same_as<call_result>;
  { r.make_event(event) } noexcept -> std::same_as<call_result>;
  { r.destroy_event(event) } noexcept -> std::same_as<call_result>;
  { r.copy(memory, address, amount, stream) } noexcept -> std::same_as<call_result>;
  { c.has_batch_copy() } noexcept -> std::same_as<bool>;
  { r.copy_batch(to, from, bytes, std::size_t{}, stream) } noexcept -> std::same_as<call_result>;
  { r.record(event, stream) } noexcept -> std::same_as<call_result>;
  { r.query(event) } noexcept -> std::same_as<call_result>;
  { r.order(stream, event) } noexcept -> std::same_as<call_result>;
  { r.synchronise(stream) } noexcept -> std::same_as<call_result>;
  { r.enter_relaxed(mode) } noexcept -> std::same_as<call_result>;
  { r.leave_relaxed(mode) } noexcept -> std::same_as<call_result>;
};

/// Makes a device the current one and the thread's capture mode relaxed for as long as it lives, then both as they
/// were. O(1); nothing but two questions where the device is the current one already.
template <copy_runtime R>
class on_device {
 public:
  on_device(R& runtime, u32 device) noexcept : runtime_(runtime) {
    result_ = runtime_.current_device(before_);
    if (result_ && before_ != device) {
      result_ = runtime_.use_device(device);
      moved_ = static_cast<bool>(result_);
    }
    relaxed_ = result_ && runtime_.enter_relaxed(mode_);
  }
  on_device(on_device const&) = delete;
  on_device& operator=(on_device const&) = delete;
  ~on_device() {
    if (relaxed_) {
      (void)runtime_.leave_relaxed(mode_);
    }
    if (moved_) {
      (void)runtime_.use_device(before_);
    }
  }
  /// Whether the device is the current one.
  call_result result() const noexcept { return result_; }

 private:
  R& runtime_;
  call_result result_{};
  u32 before_ = 0;
  i32 mode_ = 0;
  bool moved_ = false;
  bool relaxed_ = false;
};

}  // namespace warmset::inline v0::cuda
