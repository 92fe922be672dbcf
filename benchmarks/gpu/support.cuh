// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

/// What the GPU benchmarks share: checked calls, graphs, medians, a table that is a JSON file as well.
namespace gpu_bench {

inline void check(cudaError_t code, char const* what) {
  if (code != cudaSuccess) {
    std::fprintf(stderr, "error: %s: %s\n", what, cudaGetErrorString(code));
    std::exit(1);
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

/// One measured line: what, how much, of which unit, and what it is compared with.
struct figure {
  std::string name;
  double value;
  std::string unit;
  double bound = 0;        ///< 0: none
  bool at_most = true;     ///< how the bound is meant
  bool holds() const { return bound == 0 || (at_most ? value <= bound : value >= bound); }
};

/// Figures in the order in which they were measured; printed as they come.
class report {
 public:
  void add(figure f) {
    std::printf("%-64s %10.3f %-8s", f.name.c_str(), f.value, f.unit.c_str());
    if (f.bound != 0) {
      std::printf(" %s %-7.3g %s", f.at_most ? "<=" : ">=", f.bound, f.holds() ? "holds" : "DOES NOT HOLD");
    }
    std::printf("\n");
    std::fflush(stdout);
    figures_.push_back(std::move(f));
  }

  /// Writes all of them as one JSON array. Names and units hold no character that JSON would escape.
  void write(char const* path) const {
    std::FILE* const file = std::fopen(path, "w");
    if (file == nullptr) {
      std::fprintf(stderr, "error: cannot write %s\n", path);
      std::exit(1);
    }
    std::fprintf(file, "[\n");
    for (std::size_t i = 0; i < figures_.size(); ++i) {
      figure const& f = figures_[i];
      std::fprintf(file, "  {\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"", f.name.c_str(), f.value,
                   f.unit.c_str());
      if (f.bound != 0) {
        std::fprintf(file, ", \"%s\": %.6g, \"holds\": %s", f.at_most ? "at_most" : "at_least", f.bound,
                     f.holds() ? "true" : "false");
      }
      std::fprintf(file, "}%s\n", i + 1 == figures_.size() ? "" : ",");
    }
    std::fprintf(file, "]\n");
    if (std::fclose(file) != 0) {
      std::fprintf(stderr, "error: cannot write %s\n", path);
      std::exit(1);
    }
  }

 private:
  std::vector<figure> figures_;
};

}  // namespace gpu_bench
