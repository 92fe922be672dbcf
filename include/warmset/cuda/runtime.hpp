// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "copy_runtime.hpp"

namespace warmset::inline v0::cuda {

/// The reason that stands for a code of the CUDA runtime.
inline reason reason_of(cudaError_t code) noexcept {
  switch (code) {
  case cudaSuccess:
    return reason::none;
  case cudaErrorNotReady:
    return reason::busy;
  case cudaErrorMemoryAllocation:
    return reason::no_memory;
  case cudaErrorInvalidDevice:
  case cudaErrorNoDevice:
    return reason::wrong_device;
  case cudaErrorNotSupported:
  case cudaErrorCallRequiresNewerDriver:
  case cudaErrorStreamCaptureUnsupported:
    return reason::unsupported;
  default:
    return reason::device_error;
  }
}

/// The CUDA runtime, call by call, with results. Has no state but whether batches are there. A code that a call gives
/// is taken out of the runtime's memory of the last error, so that it is not found by somebody who did not cause it.
class runtime {
 public:
  using stream = cudaStream_t;
  using event = cudaEvent_t;

  runtime() noexcept {
#if CUDART_VERSION >= 12080
    int library = 0;
    int driver = 0;
    has_batch_copy_ = cudaRuntimeGetVersion(&library) == cudaSuccess && cudaDriverGetVersion(&driver) == cudaSuccess &&
                      library >= 12'080 && driver >= 12'080;
#endif
  }

  call_result count_devices(u32& n) noexcept {
    int found = 0;
    call_result const r = told(cudaGetDeviceCount(&found));
    n = r ? static_cast<u32>(found) : 0;
    return r;
  }
  call_result current_device(u32& device) noexcept {
    int now = 0;
    call_result const r = told(cudaGetDevice(&now));
    device = static_cast<u32>(now);
    return r;
  }
  call_result use_device(u32 device) noexcept { return told(cudaSetDevice(static_cast<int>(device))); }
  call_result free_bytes(u64& bytes) noexcept {
    std::size_t left = 0;
    std::size_t all = 0;
    call_result const r = told(cudaMemGetInfo(&left, &all));
    bytes = left;
    return r;
  }

  call_result allocate(void*& memory, u64 bytes) noexcept { return told(cudaMalloc(&memory, bytes)); }
  call_result release(void* memory) noexcept { return told(cudaFree(memory)); }
  call_result allocate_pinned(void*& memory, u64 bytes) noexcept {
    return told(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
  }
  call_result release_pinned(void* memory) noexcept { return told(cudaFreeHost(memory)); }
  /// Tried as it is, and then as memory that may only be read, such as a mapped file.
  call_result register_host(void const* memory, u64 bytes) noexcept {
    void* const at = const_cast<void*>(memory);
    constexpr unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
    if (call_result const r = told(cudaHostRegister(at, bytes, flags))) {
      return r;
    }
    return told(cudaHostRegister(at, bytes, flags | cudaHostRegisterReadOnly));
  }
  call_result unregister_host(void const* memory) noexcept {
    return told(cudaHostUnregister(const_cast<void*>(memory)));
  }
  /// Managed memory counts as pageable: no copy of it is asynchronous.
  call_result kind_of(void const* memory, move::memory_kind& kind) noexcept {
    cudaPointerAttributes of{};
    call_result const r = told(cudaPointerGetAttributes(&of, memory));
    kind = of.type == cudaMemoryTypeDevice ? move::memory_kind::device
           : of.type != cudaMemoryTypeHost ? move::memory_kind::pageable
           : of.devicePointer != nullptr   ? move::memory_kind::mapped
                                           : move::memory_kind::pinned;
    return r;
  }

  call_result clear(void* memory, u64 bytes, stream s) noexcept { return told(cudaMemsetAsync(memory, 0, bytes, s)); }
  call_result make_stream(stream& s) noexcept { return told(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); }
  call_result destroy_stream(stream s) noexcept { return told(cudaStreamDestroy(s)); }
  call_result make_event(event& e) noexcept { return told(cudaEventCreateWithFlags(&e, cudaEventDisableTiming)); }
  call_result destroy_event(event e) noexcept { return told(cudaEventDestroy(e)); }

  call_result copy(void* to, void const* from, u64 bytes, stream s) noexcept {
    return told(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s));
  }
  /// Whether `copy_batch` is worth a try: it came with 12.8, in the library and in the driver.
  bool has_batch_copy() const noexcept { return has_batch_copy_; }
  call_result copy_batch([[maybe_unused]] void* const* to, [[maybe_unused]] void const* const* from,
                         [[maybe_unused]] std::size_t const* bytes, [[maybe_unused]] std::size_t n,
                         [[maybe_unused]] stream s) noexcept {
#if CUDART_VERSION >= 12080
    cudaMemcpyAttributes how{};
    how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
#if CUDART_VERSION >= 13000
    return told(cudaMemcpyBatchAsync(to, from, bytes, n, &how, &first, 1, s));
#else
    std::size_t failed = 0;
    return told(cudaMemcpyBatchAsync(const_cast<void**>(to), const_cast<void**>(from), const_cast<std::size_t*>(bytes), n,
                                     &how, &first, 1, &failed, s));
#endif
#else
    return {reason::unsupported, static_cast<i32>(cudaErrorNotSupported)};
#endif
  }

  call_result record(event e, stream s) noexcept { return told(cudaEventRecord(e, s)); }
  call_result query(event e) noexcept { return told(cudaEventQuery(e)); }
  call_result order(stream s, event e) noexcept { return told(cudaStreamWaitEvent(s, e, 0)); }
  call_result synchronise(stream s) noexcept { return told(cudaStreamSynchronize(s)); }

  call_result enter_relaxed(i32& before) noexcept {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    call_result const r = told(cudaThreadExchangeStreamCaptureMode(&mode));
    before = static_cast<i32>(mode);
    return r;
  }
  call_result leave_relaxed(i32 before) noexcept {
    cudaStreamCaptureMode mode = static_cast<cudaStreamCaptureMode>(before);
    return told(cudaThreadExchangeStreamCaptureMode(&mode));
  }

  // ---- what the phase probe asks for

  call_result make_timed_event(event& e) noexcept { return told(cudaEventCreate(&e)); }
  /// Of a stream that is being captured: at every launch of the graph.
  call_result record_timed(event e, stream s) noexcept {
    bool captured = false;
    call_result const r = is_captured(s, captured);
    return r ? told(cudaEventRecordWithFlags(e, s, captured ? cudaEventRecordExternal : cudaEventRecordDefault)) : r;
  }
  call_result is_captured(stream s, bool& captured) noexcept {
    cudaStreamCaptureStatus now = cudaStreamCaptureStatusNone;
    call_result const r = told(cudaStreamIsCapturing(s, &now));
    captured = now != cudaStreamCaptureStatusNone;
    return r;
  }
  call_result elapsed(u64& nanoseconds, event from, event to) noexcept {
    float milliseconds = 0;
    call_result const r = told(cudaEventElapsedTime(&milliseconds, from, to));
    nanoseconds = milliseconds > 0 ? static_cast<u64>(static_cast<double>(milliseconds) * 1e6 + 0.5) : 0;
    return r;
  }

 private:
  static call_result told(cudaError_t code) noexcept {
    if (code != cudaSuccess && code != cudaErrorNotReady) {
      (void)cudaGetLastError();
    }
    return {reason_of(code), static_cast<i32>(code)};
  }
  bool has_batch_copy_ = false;
};

static_assert(copy_runtime<runtime>, "cuda::runtime must satisfy copy_runtime");

}  // namespace warmset::inline v0::cuda
