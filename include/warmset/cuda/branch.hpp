// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "status.hpp"

namespace warmset::inline v0::cuda {

/// A stream beside an engine's, for work that only a later point of it waits for. In a capture it becomes a branch of the
/// graph, which must join before the capture ends. The constructor throws config_error; nothing after it allocates or
/// synchronises. Movable.
class branch {
 public:
  branch() {
    detail::require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream for a branch");
    detail::require(cudaEventCreateWithFlags(&forks_, cudaEventDisableTiming), "an event for a branch");
    detail::require(cudaEventCreateWithFlags(&joins_, cudaEventDisableTiming), "an event for a branch");
  }
  branch(branch&& other) noexcept
      : stream_(std::exchange(other.stream_, nullptr)),
        forks_(std::exchange(other.forks_, nullptr)),
        joins_(std::exchange(other.joins_, nullptr)),
        is_forked_(std::exchange(other.is_forked_, false)) {}
  branch& operator=(branch&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(forks_, other.forks_);
    std::swap(joins_, other.joins_);
    std::swap(is_forked_, other.is_forked_);
    return *this;
  }
  ~branch() {
    if (stream_ != nullptr) {
      (void)cudaStreamDestroy(stream_);
    }
    for (cudaEvent_t event : {forks_, joins_}) {
      if (event != nullptr) {
        (void)cudaEventDestroy(event);
      }
    }
  }

  /// What is put into `stream()` from here on runs after what `from` has so far.
  status fork(cudaStream_t from) noexcept {
    status const s{cudaEventRecord(forks_, from)};
    if (!s) {
      return s;
    }
    is_forked_ = true;
    return {cudaStreamWaitEvent(stream_, forks_, 0)};
  }

  /// Makes `to` wait for the branch; nothing where it has not forked since.
  status join(cudaStream_t to) noexcept {
    if (!is_forked_) {
      return {};
    }
    is_forked_ = false;
    status const s{cudaEventRecord(joins_, stream_)};
    return s ? status{cudaStreamWaitEvent(to, joins_, 0)} : s;
  }

  cudaStream_t stream() const noexcept { return stream_; }
  bool is_forked() const noexcept { return is_forked_; }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t forks_ = nullptr;
  cudaEvent_t joins_ = nullptr;
  bool is_forked_ = false;
};

}  // namespace warmset::inline v0::cuda
