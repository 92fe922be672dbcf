// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "../core/integers.hpp"
#include "status.hpp"

namespace warmset::inline v0::cuda {

/// Zeroed device memory for `n` objects of a trivially copyable type. Owns it; movable. The constructor throws
/// config_error where there is no room, and synchronises the device once.
template <class T>
class device_memory {
 public:
  device_memory() = default;
  explicit device_memory(std::size_t n) : device_memory() {  // what throws below is an object that will be destroyed
    if (n != 0) {
      detail::require(cudaMalloc(reinterpret_cast<void**>(&data_), n * sizeof(T)), "device memory");
      n_ = n;
      detail::require(cudaMemset(data_, 0, n * sizeof(T)), "zeroing device memory");
      detail::require(cudaDeviceSynchronize(), "zeroing device memory");
    }
  }
  device_memory(device_memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), n_(std::exchange(other.n_, 0)) {}
  device_memory& operator=(device_memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(n_, other.n_);
    return *this;
  }
  ~device_memory() {
    if (data_ != nullptr) {
      (void)cudaFree(data_);
    }
  }

  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return n_; }
  std::size_t bytes() const noexcept { return n_ * sizeof(T); }

  /// Copies from the host and waits.
  status write(T const* from, std::size_t n) noexcept {
    status const s{cudaMemcpy(data_, from, n * sizeof(T), cudaMemcpyHostToDevice)};
    // from pageable memory the call may return while the bytes are on their way
    return s ? status{cudaStreamSynchronize(cudaStreamLegacy)} : s;
  }
  /// Copies to the host and waits.
  status read(T* to, std::size_t n) const noexcept {
    return {cudaMemcpy(to, data_, n * sizeof(T), cudaMemcpyDeviceToHost)};
  }

 private:
  T* data_ = nullptr;
  std::size_t n_ = 0;
};

}  // namespace warmset::inline v0::cuda
