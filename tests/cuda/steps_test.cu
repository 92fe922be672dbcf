// SPDX-License-Identifier: Apache-2.0
// What differential_cases.cpp asks for. No Catch2 here: cudafe++ takes minutes over test cases beside this many kernels.
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cuda/differential.hpp"
#include "cuda/fixture.hpp"
#include "cuda/steps_kernel.cuh"
#include "warmset/table/audit.hpp"

using namespace warmset;

namespace differential {
namespace {

constexpr u32 steps_per_launch = 1000;

void check(cudaError_t code) {
  if (code != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(code));
  }
}

/// Device memory that starts as a copy of host memory.
template <class T>
cuda::device_memory<T> device_copy(T const* from, std::size_t n) {
  cuda::device_memory<T> memory(n);
  check(memory.write(from, n).code);
  return memory;
}

template <class Policy>
table<Policy> table_for(options const& o) {
  if (o.recorded != nullptr) {
    u32 const n = max_of(o.recorded->k + 1, o.recorded->n_experts / 4);
    return {std::vector<layer_geometry>{{layer_id{0}, o.recorded->n_experts, o.recorded->k, {64}}}, pool_size{n, n},
            tuning{.sequences = 2}};
  }
  return {steps::rows(Policy::pool::spans_layers), steps::pool<Policy>::sizes(), tuning{.sequences = 2}};
}

template <class Policy, bool ByBlock>
void play(options const& o, verdict& v) {
  table<Policy> owner = table_for<Policy>(o);
  u64 const bytes = owner.block_bytes();
  std::unique_ptr<steps::run_state<Policy>> const state = steps::pool<Policy>::fresh_state();
  auto const there = std::make_unique<steps::run_state<Policy>>(*state);
  there->flips_at = o.flips_at;

  auto const block = device_copy(static_cast<unsigned char const*>(owner.block()), static_cast<std::size_t>(bytes));
  auto const device_state = device_copy(there.get(), 1);
  cuda::device_memory<u64> const device_digests(steps_per_launch);
  steps::script here{};
  steps::script on_device{};
  cuda::device_memory<u16> ids;
  cuda::device_memory<u32> sequences;
  if (o.recorded != nullptr) {
    ids = device_copy(o.recorded->ids.data(), o.recorded->ids.size());
    sequences = device_copy(o.recorded->sequences.data(), o.recorded->sequences.size());
    here = {o.recorded->ids.data(), o.recorded->sequences.data(), o.recorded->k};
    on_device = {ids.data(), sequences.data(), o.recorded->k};
  }
  cudaStream_t stream{};
  cudaEvent_t played{};
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check(cudaEventCreateWithFlags(&played, cudaEventDisableTiming | cudaEventBlockingSync));
  std::vector<u64> digests(steps_per_launch);
  std::vector<u64> device_answers(steps_per_launch);
  std::vector<unsigned char> after(static_cast<std::size_t>(bytes));
  bool differs = false;
  for (u32 done = 0; done < o.n_steps;) {
    u32 const n = min_of(steps_per_launch, o.n_steps - done);
    if constexpr (ByBlock) {
      steps::run_block_kernel<Policy><<<1, 128, 0, stream>>>(owner.parts(), block.data(), owner.view().shape(), bytes, n,
                                                            device_state.data(), on_device, device_digests.data());
    } else {
      steps::run_kernel<Policy><<<1, 32, 0, stream>>>(owner.parts(), block.data(), owner.view().shape(), bytes, n,
                                                      device_state.data(), on_device, device_digests.data());
    }
    check(cudaGetLastError());
    check(cudaEventRecord(played, stream));
    steps::run<Policy>(one_lane{}, owner.view(), bytes, n, *state, here, digests.data());
    check(cudaEventSynchronize(played));  // a copy into pageable memory waits in the runtime, and all other bundles with it
    check(cudaMemcpyAsync(device_answers.data(), device_digests.data(), n * sizeof(u64), cudaMemcpyDeviceToHost, stream));
    check(cudaMemcpyAsync(after.data(), block.data(), after.size(), cudaMemcpyDeviceToHost, stream));
    check(cudaMemcpyAsync(there.get(), device_state.data(), sizeof *there, cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
    for (u32 i = 0; i < n && !differs; ++i) {
      differs = digests[i] != device_answers[i];
      v.first_difference += differs ? 0 : 1;
    }
    v.compared += n;
    v.blocks_equal = v.blocks_equal && std::memcmp(after.data(), owner.block(), after.size()) == 0 &&
                     std::memcmp(&there->out, &state->out, sizeof state->out) == 0 &&
                     std::memcmp(there->arrivals, state->arrivals, sizeof state->arrivals) == 0 &&
                     there->random.state == state->random.state && there->refused == state->refused;
    done += n;
  }
  v.planned = there->out.steps;
  v.audited = static_cast<bool>(audit(owner.view()));
  check(cudaEventDestroy(played));
  check(cudaStreamDestroy(stream));
}

template <class Policy, bool ByBlock>
void play_or_say_why(options const& o, verdict& v) {
  try {
    play<Policy, ByBlock>(o, v);
  } catch (std::exception const& e) {
    v.error = e.what();
  }
}

template <bool ByBlock, class... Bundles>
std::vector<verdict> play_list(options const& o, steps::list<Bundles...>) {
  using work = void (*)(options const&, verdict&);
  work const all[] = {&play_or_say_why<Bundles, ByBlock>...};
  std::vector<verdict> verdicts;
  (void)std::initializer_list<int>{(verdicts.emplace_back().bundle = Bundles::name, 0)...};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    verdicts[i].bundle += " (" + std::to_string(i) + ")";
    threads.emplace_back(all[i], std::cref(o), std::ref(verdicts[i]));
  }
  for (std::thread& t : threads) {
    t.join();
  }
  return verdicts;
}

}  // namespace

std::vector<verdict> play_all(options const& o) {
  return play_list<false>(o, decltype(steps::every<WARMSET_TEST_BUNDLE_STEP>(steps::all{})){});
}

std::vector<verdict> play_blocks(options const& o) {
  return play_list<true>(o, steps::for_blocks{});
}

}  // namespace differential
