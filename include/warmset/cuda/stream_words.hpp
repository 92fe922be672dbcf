// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "../core/integers.hpp"
#include "status.hpp"

namespace warmset::inline v0::cuda {

/// Streams that wait for a word of mapped memory, or write one, without a kernel. For work that is not captured: a graph
/// would keep the value that was waited for when it was captured, and every later launch would go through; a captured
/// stream is refused with cudaErrorStreamCaptureUnsupported. The driver's functions are asked for by name, so that nothing
/// links against it; where it has none every call is refused with cudaErrorNotSupported.
class stream_words {
 public:
  stream_words() noexcept {
    wait_ = reinterpret_cast<function*>(entry("cuStreamWaitValue32"));
    write_ = reinterpret_cast<function*>(entry("cuStreamWriteValue32"));
  }
  explicit operator bool() const noexcept { return wait_ != nullptr && write_ != nullptr; }

  /// What the stream is given from now on begins once the word has come to `value`, modulo 2^32, as signal::reached.
  /// @param word  its address on the device
  status wait_until_reached(cudaStream_t stream, u32 const* word, u32 value) const noexcept {
    return call(wait_, stream, word, value, CU_STREAM_WAIT_VALUE_GEQ);
  }
  /// Writes the word in the stream's turn, after all that comes before it.
  status write(cudaStream_t stream, u32* word, u32 value) const noexcept {
    return call(write_, stream, word, value, CU_STREAM_WRITE_VALUE_DEFAULT);
  }

 private:
  using function = CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned);

  static void* entry(char const* name) noexcept {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult how = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t const asked = cudaGetDriverEntryPointByVersion(name, &found, 12'000, cudaEnableDefault, &how);
#else
    cudaError_t const asked = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &how);
#endif
    if (asked != cudaSuccess) {
      (void)cudaGetLastError();
    }
    return asked == cudaSuccess && how == cudaDriverEntryPointSuccess ? found : nullptr;
  }

  static status call(function* f, cudaStream_t stream, u32 const* word, u32 value, unsigned how) noexcept {
    if (f == nullptr) {
      return {cudaErrorNotSupported};
    }
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    if (cudaError_t const asked = cudaStreamIsCapturing(stream, &capturing); asked != cudaSuccess) {
      return {asked};
    }
    if (capturing != cudaStreamCaptureStatusNone) {
      return {cudaErrorStreamCaptureUnsupported};
    }
    CUresult const r = f(stream, reinterpret_cast<CUdeviceptr>(word), value, how);
    return {r == CUDA_SUCCESS             ? cudaSuccess
            : r == CUDA_ERROR_NOT_SUPPORTED ? cudaErrorNotSupported
                                            : cudaErrorUnknown};
  }

  function* wait_ = nullptr;
  function* write_ = nullptr;
};

}  // namespace warmset::inline v0::cuda
