// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "report.hpp"

/// What the GPU benchmarks share: checked calls, graphs, medians.
namespace gpu_bench {

/// Throws std::runtime_error, so that what has been measured before is still written.
inline void check(cudaError_t code, char const* what) {
  if (code != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
  }
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::size_t const n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/// A stream, and the microseconds that work in it takes by the device's clock.
class timer {
 public:
  timer() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
    check(cudaEventCreate(&begin_), "an event");
    check(cudaEventCreate(&end_), "an event");
  }
  timer(timer const&) = delete;
  timer& operator=(timer const&) = delete;
  ~timer() {
    (void)cudaEventDestroy(begin_);
    (void)cudaEventDestroy(end_);
    (void)cudaStreamDestroy(stream_);
  }
  cudaStream_t stream() const { return stream_; }

  template <class F>
  double microseconds(F&& work) const {
    check(cudaEventRecord(begin_, stream_), "an event");
    work();
    check(cudaEventRecord(end_, stream_), "an event");
    check(cudaEventSynchronize(end_), "the measured work");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_, end_), "an event");
    return ms * 1000.0;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

/// What `record(stream)` puts into a stream, as a graph.
class graph {
 public:
  template <class Record>
  graph(cudaStream_t stream, Record&& record) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "a capture");
    record(stream);
    cudaGraph_t made = nullptr;
    check(cudaStreamEndCapture(stream, &made), "a capture");
    check(cudaGraphInstantiate(&ready_, made, 0), "a graph");
    check(cudaGraphDestroy(made), "a graph");
  }
  graph(graph&& other) noexcept : ready_(std::exchange(other.ready_, nullptr)) {}
  graph& operator=(graph&&) = delete;
  ~graph() {
    if (ready_ != nullptr) {
      (void)cudaGraphExecDestroy(ready_);
    }
  }
  void launch(cudaStream_t stream) const { check(cudaGraphLaunch(ready_, stream), "a graph's launch"); }

 private:
  cudaGraphExec_t ready_ = nullptr;
};

}  // namespace gpu_bench
