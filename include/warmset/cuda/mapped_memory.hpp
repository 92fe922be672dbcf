// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>

#include "../signal/channel.hpp"
#include "counter_page.hpp"
#include "status.hpp"

namespace warmset::inline v0::cuda {

/// Zeroed pinned host memory for `n` objects of a trivially copyable type that kernels of all devices read and write too.
/// Owns it; movable. The constructor throws config_error where there is none.
template <class T>
class mapped_memory {
 public:
  mapped_memory() = default;
  explicit mapped_memory(std::size_t n) : n_(n) {
    void* host = nullptr;
    void* device = nullptr;
    detail::require(cudaHostAlloc(&host, n * sizeof(T), cudaHostAllocPortable | cudaHostAllocMapped), "mapped memory");
    cudaError_t const seen = cudaHostGetDevicePointer(&device, host, 0);
    if (seen != cudaSuccess) {
      (void)cudaFreeHost(host);
      detail::require(seen, "an address of mapped memory");
    }
    std::memset(host, 0, n * sizeof(T));
    host_ = static_cast<T*>(host);
    device_ = static_cast<T*>(device);
  }
  mapped_memory(mapped_memory&& other) noexcept
      : host_(std::exchange(other.host_, nullptr)), device_(std::exchange(other.device_, nullptr)),
        n_(std::exchange(other.n_, 0)) {}
  mapped_memory& operator=(mapped_memory&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(device_, other.device_);
    std::swap(n_, other.n_);
    return *this;
  }
  ~mapped_memory() {
    if (host_ != nullptr) {
      (void)cudaFreeHost(host_);
    }
  }

  T* data() const noexcept { return host_; }
  /// The same memory as kernels name it.
  T* device_data() const noexcept { return device_; }
  std::size_t size() const noexcept { return n_; }

 private:
  T* host_ = nullptr;
  T* device_ = nullptr;
  std::size_t n_ = 0;
};

/// A channel between a worker and one stream of a device, in mapped memory. The worker takes `view()`, kernels
/// `device_view()`. Throws config_error where no channel has the shape, or there is no such memory.
class mapped_channel {
 public:
  explicit mapped_channel(signal::channel_shape shape = {}, u32 first = 1) : words_(checked(shape)) {
    view_ = {words_.data(), shape};
    signal::format_channel(view_, first);
  }
  signal::channel_view view() const noexcept { return view_; }
  signal::channel_view device_view() const noexcept { return {words_.device_data(), view_.shape}; }

 private:
  static std::size_t checked(signal::channel_shape shape) {
    signal::require_possible(shape);
    return static_cast<std::size_t>(shape.words());
  }
  mapped_memory<u32> words_;  // page by page, so that it is aligned to lines
  signal::channel_view view_;
};

/// A counter page in mapped memory: kernels publish into `device_view()`, the host reads `view()`. Throws config_error where
/// there is no such memory.
class mapped_counters {
 public:
  explicit mapped_counters(u32 n_pools)
      : words_(static_cast<std::size_t>(counter_page::words_of(n_pools))), n_pools_(n_pools) {}
  counter_page view() const noexcept { return {words_.data(), n_pools_}; }
  counter_page device_view() const noexcept { return {words_.device_data(), n_pools_}; }

 private:
  mapped_memory<u32> words_;  // page by page, so that it is aligned to lines
  u32 n_pools_;
};

}  // namespace warmset::inline v0::cuda
