// SPDX-License-Identifier: Apache-2.0
//
// What loading a trace of five million look-ups costs beside reading the same bytes from a file.
// The file is made here, with the shape of a 24-layer model of 32 experts and k 4, and is in the
// page cache. All buffers are fresh, as in a program that loads one trace. `per_read` is the time
// as a multiple of reading alone.

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <warmset/trace/read.hpp>

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

namespace {

using namespace warmset;

constexpr u32 n_layers = 24;
constexpr u32 n_experts = 32;
constexpr u32 k = 4;
constexpr u32 n_tokens = 51'610;
constexpr u32 n_sequences = 160;

std::vector<std::byte> rtb1_bytes() {
  std::vector<std::byte> bytes;
  auto put = [&bytes](u32 value, int n) {
    for (int i = 0; i < n; ++i) {
      bytes.push_back(static_cast<std::byte>(value >> (8 * i)));
    }
  };
  for (char c : std::string("RTB1")) {
    bytes.push_back(static_cast<std::byte>(c));
  }
  for (u32 count : {n_layers, n_experts, k, n_sequences, n_tokens}) {
    put(count, 4);
  }
  for (u32 s = 0; s < n_sequences; ++s) {
    put(s + 1 < n_sequences ? n_tokens / n_sequences
                            : n_tokens - (n_sequences - 1) * (n_tokens / n_sequences),
        4);
  }
  std::mt19937 random(1);
  for (u32 row = 0; row < n_tokens * n_layers; ++row) {
    u32 const first = static_cast<u32>(random() % n_experts);
    for (u32 rank = 0; rank < k; ++rank) {
      put((first + rank * 7) % n_experts, 2);
    }
  }
  return bytes;
}

/// A file that goes away with the program.
class temporary_file {
 public:
  temporary_file(char const* name, std::span<std::byte const> bytes)
      : path_((std::filesystem::temp_directory_path() / name).string()), size_(bytes.size()) {
    std::FILE* const f = std::fopen(path_.c_str(), "wb");
    if (f == nullptr || std::fwrite(bytes.data(), 1, size_, f) != size_ || std::fclose(f) != 0) {
      std::perror(path_.c_str());
      std::exit(1);
    }
  }
  ~temporary_file() { std::remove(path_.c_str()); }
  temporary_file(temporary_file const&) = delete;
  temporary_file& operator=(temporary_file const&) = delete;

  std::size_t size() const { return size_; }

  std::unique_ptr<std::byte[]> read() const {
    std::unique_ptr<std::byte[]> buffer = std::make_unique_for_overwrite<std::byte[]>(size_);
    std::FILE* const f = std::fopen(path_.c_str(), "rb");
    if (f == nullptr || std::fread(buffer.get(), 1, size_, f) != size_) {
      std::perror(path_.c_str());
      std::exit(1);
    }
    std::fclose(f);
    return buffer;
  }

 private:
  std::string path_;
  std::size_t size_;
};

temporary_file const& rtb1_file() {
  static temporary_file const file("warmset-load-bench.rtb", rtb1_bytes());
  return file;
}

temporary_file const& warmset_file() {
  static temporary_file const file("warmset-load-bench.wst",
                                   trace::write_warmset(trace::read_rtb1(rtb1_bytes())));
  return file;
}

/// The same with every column that a trace can have.
temporary_file const& columns_file() {
  auto const with_columns = [] {
    trace::contents parts = trace::read_rtb1(rtb1_bytes()).release();
    parts.residency.assign(parts.ids.size(), trace::recorded_access::hit);
    parts.lookahead_width = k;
    parts.lookahead = parts.ids;
    parts.weights.assign(parts.ids.size(), 0.25f);
    parts.tokens.assign(n_tokens, 1);
    return trace::write_warmset(trace::recording(std::move(parts)));
  };
  static temporary_file const file("warmset-load-bench-columns.wst", with_columns());
  return file;
}

/// Whether the allocator keeps freed memory for the next round: without page faults, only the work
/// itself is left.
void keep_pages(bool keep) {
#if defined(M_TRIM_THRESHOLD)
  mallopt(M_MMAP_THRESHOLD, keep ? 1 << 30 : 1 << 17);
  mallopt(M_TRIM_THRESHOLD, keep ? 1 << 30 : 1 << 17);
#else
  (void)keep;
#endif
}

template <temporary_file const& (*File)()>
void load(benchmark::State& state) {
  using clock = std::chrono::steady_clock;
  temporary_file const& file = File();
  keep_pages(state.range(0) != 0);
  clock::duration reading{};
  clock::duration all{};
  for (auto _ : state) {
    clock::time_point const start = clock::now();
    std::unique_ptr<std::byte[]> const bytes = file.read();
    clock::time_point const between = clock::now();
    trace::recording const r = trace::read({bytes.get(), file.size()});
    benchmark::DoNotOptimize(r.ids().data());
    all += clock::now() - start;
    reading += between - start;
  }
  state.counters["per_read"] =
      std::chrono::duration<double>(all).count() / std::chrono::duration<double>(reading).count();
  state.SetBytesProcessed(static_cast<std::int64_t>(file.size()) * state.iterations());
  state.SetItemsProcessed(std::int64_t{n_tokens} * n_layers * k * state.iterations());
}

void checksum_speed(benchmark::State& state) {
  std::vector<std::byte> const bytes = rtb1_bytes();
  for (auto _ : state) {
    benchmark::DoNotOptimize(trace::checksum(bytes));
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes.size()) * state.iterations());
}

BENCHMARK(load<rtb1_file>)
    ->Name("load/rtb1")
    ->ArgName("warm_pages")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(load<warmset_file>)
    ->Name("load/warmset")
    ->ArgName("warm_pages")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(load<columns_file>)
    ->Name("load/warmset_columns")
    ->ArgName("warm_pages")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(checksum_speed)->Name("checksum")->Unit(benchmark::kMillisecond);

}  // namespace
