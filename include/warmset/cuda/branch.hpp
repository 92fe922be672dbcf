// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "status.hpp"

namespace warmset::inline v0::cuda {

/// A stream beside an engine's, for work that only a later point of it waits for. In a capture it becomes a branch of the
/// graph, which must join before the capture ends. Nothing allocates or synchronises after `make`. Movable.
class branch {
 public:
  branch() = default;
  branch(branch&& other) noexcept { swap(other); }
  branch& operator=(branch&& other) noexcept {
    swap(other);
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

  /// A branch of the current device. Throws config_error.
  static branch make() {
    branch made;
    detail::require(cudaStreamCreateWithFlags(&made.stream_, cudaStreamNonBlocking), "a stream for a branch");
    detail::require(cudaEventCreateWithFlags(&made.forks_, cudaEventDisableTiming), "an event for a branch");
    detail::require(cudaEventCreateWithFlags(&made.joins_, cudaEventDisableTiming), "an event for a branch");
    return made;
  }

  /// What is put into `stream()` from here on runs after what `from` has so far.
  status fork(cudaStream_t from) noexcept {
    unsigned long long capture = 0;
    status s = capture_of(from, capture);
    if (s) {
      s = {cudaEventRecord(forks_, from)};
    }
    if (s) {
      s = {cudaStreamWaitEvent(stream_, forks_, 0)};
    }
    if (s) {
      is_forked_ = true;
      capture_ = capture;
    }
    return s;
  }

  /// Makes `to` wait for the branch; nothing where it has not forked since, or in a capture that is over. A stream that is
  /// captured cannot wait for what ran outside: cudaErrorStreamCaptureIsolation, and the capture is as it was.
  status join(cudaStream_t to) noexcept {
    if (!is_forked_) {
      return {};
    }
    unsigned long long capture = 0;
    status s = capture_of(to, capture);
    if (!s) {
      return s;
    }
    if (capture != capture_) {
      if (capture_ == 0) {
        return {cudaErrorStreamCaptureIsolation};
      }
      is_forked_ = false;  // that capture has ended without it
      return {};
    }
    is_forked_ = false;
    s = {cudaEventRecord(joins_, stream_)};
    return s ? status{cudaStreamWaitEvent(to, joins_, 0)} : s;
  }

  cudaStream_t stream() const noexcept { return stream_; }

 private:
  /// The id of the capture that a stream is in; 0: none.
  static status capture_of(cudaStream_t stream, unsigned long long& id) noexcept {
    cudaStreamCaptureStatus is = cudaStreamCaptureStatusNone;
    id = 0;
    status const s{cudaStreamGetCaptureInfo(stream, &is, &id)};
    id = is == cudaStreamCaptureStatusActive ? id : 0;
    return s;
  }
  void swap(branch& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(forks_, other.forks_);
    std::swap(joins_, other.joins_);
    std::swap(capture_, other.capture_);
    std::swap(is_forked_, other.is_forked_);
  }

  cudaStream_t stream_ = nullptr;
  cudaEvent_t forks_ = nullptr;
  cudaEvent_t joins_ = nullptr;
  unsigned long long capture_ = 0;  // in which it forked; 0: in none
  bool is_forked_ = false;
};

}  // namespace warmset::inline v0::cuda
