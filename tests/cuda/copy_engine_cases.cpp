// SPDX-License-Identifier: Apache-2.0
#include "cuda/gpu_experts.hpp"

#include <catch2/generators/catch_generators.hpp>

#include <chrono>
#include <string>

#include <warmset/cache.hpp>
#include <warmset/cuda.hpp>
#include <warmset/policy/score/lfru.hpp>

#include "move/sites.hpp"
#include "support/dice.hpp"

using namespace warmset;
using namespace gpu;

// The twin of copy_engine_test.cpp on a GPU. Needs no nvcc.

bool gpu::drain(cuda::copy_engine& e) {
  auto const begin = std::chrono::steady_clock::now();
  while (e.ledger().copies.in_flight != 0) {
    e.poll();
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(10)) {
      return false;
    }
  }
  return true;
}

namespace {

enum class way { batch, loop, staged };

cuda::copy_options options_of(way w) {
  cuda::copy_options o;
  o.batches = w == way::batch;
  o.register_source = w != way::staged;
  o.staging_bytes = 100'000;
  return o;
}

double microseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

/// All of a group's memory.
std::vector<unsigned char> memory_of(cuda::copy_engine const& e) {
  std::vector<unsigned char> all(e.layout(0).bytes());
  REQUIRE(cudaMemcpy(all.data(), e.bank(0, 0), all.size(), cudaMemcpyDeviceToHost) == cudaSuccess);
  return all;
}

u64 free_bytes() {
  std::size_t left = 0, all = 0;
  REQUIRE(cudaMemGetInfo(&left, &all) == cudaSuccess);
  return left;
}

}  // namespace

TEST_CASE("a GPU's copy engine moves every byte, in batches, one by one and staged", "[cuda][short]") {
  require_devices(1);
  std::vector<u64> const banks =
      GENERATE(std::vector<u64>{1}, std::vector<u64>{7, 300, 64}, std::vector<u64>{4099}, std::vector<u64>{262'143, 24},
               std::vector<u64>{262'144, 96}, std::vector<u64>{786'432});
  constexpr u32 n_experts = 40, n_slots = 32;
  std::vector<std::vector<unsigned char>> memories;
  for (way w : {way::batch, way::loop, way::staged}) {
    CAPTURE(banks.size(), banks[0], static_cast<int>(w));
    experts x{one_layer(banks, n_experts), w != way::staged};
    cuda::copy_engine e = x.engine(options_of(w));
    e.open(x.model, warmset_test::make_sites(x.model, n_slots, 4));
    CHECK(e.degraded() == (w == way::staged ? reason::pageable : reason::none));
    for (u32 n : {1u, 2u, 3u, 8u, 32u}) {
      std::vector<transfer_order> orders;
      u32 expert = n % 3;
      for (u32 slot = 0; slot < n; ++slot) {
        orders.push_back(order((slot * 5 + n) % n_slots, expert, n));
        expert += n == 32 ? 1 : 1 + slot % 2;
      }
      std::sort(orders.begin(), orders.end(), [](auto const& a, auto const& b) { return a.expert < b.expert; });
      e.start(0, orders);
      REQUIRE(drain(e));
      for (transfer_order const& o : orders) {
        REQUIRE(word(e, 0, o.slot.value) == transfer::arrived);
        REQUIRE(x.holds(e, 0, o.slot, o.expert));
      }
    }
    CHECK(e.ledger().balances());
    CHECK(e.ledger().copies.failed == 0);
    CHECK(e.failure().call == nullptr);
    memories.push_back(memory_of(e));
  }
  CHECK(memories[0] == memories[1]);
  CHECK(memories[0] == memories[2]);
}

TEST_CASE("a GPU's copy engine uses batches where the runtime has them, and merges neighbours", "[cuda]") {
  require_devices(1);
  experts x{one_layer({300'000, 96}, 16)};
  cuda::copy_engine e = x.engine();
  e.open(x.model, warmset_test::make_sites(x.model, 8, 2));
  CHECK(e.batches() == cuda::runtime{}.has_batch_copy());
  e.start(0, {{order(0, 3), order(1, 4), order(2, 5), order(4, 9)}});
  REQUIRE(drain(e));
  CHECK(e.ledger().merged == 2);
  CHECK(e.ledger().copies.issued == 4);
  CHECK(e.ledger().batches == (e.batches() ? 2 : 4));
  for (transfer_order const& o : {order(0, 3), order(1, 4), order(2, 5), order(4, 9)}) {
    CHECK(x.holds(e, 0, o.slot, o.expert));
  }
}

TEST_CASE("pageable memory is registered with a GPU, or staged and said, or refused", "[cuda]") {
  require_devices(1);
  experts x{one_layer({5000, 77}, 16), false};
  auto const sites = warmset_test::make_sites(x.model, 8, 2);
  {
    cuda::copy_engine e = x.engine();
    e.open(x.model, sites);
    CHECK(e.degraded() == reason::none);
    e.start(0, {{order(0, 3), order(4, 9)}});
    REQUIRE(drain(e));
    CHECK(x.holds(e, 0, {0}, {layer_id{1}, {3}}));
    CHECK(x.holds(e, 0, {4}, {layer_id{1}, {9}}));
  }
  cuda::copy_options refuse = options_of(way::staged);
  refuse.pageable = move::if_pageable::fail;
  cuda::copy_engine refused = x.engine(refuse);
  CHECK_THROWS_AS(refused.open(x.model, sites), config_error);
  cuda::copy_engine staged = x.engine(options_of(way::staged));
  staged.open(x.model, sites);
  CHECK(staged.degraded() == reason::pageable);
}

TEST_CASE("B84 copy engine: headroom of a GPU is kept, and what does not fit leaves nothing behind", "[cuda]") {
  require_devices(1);
  experts x{one_layer({u64{1} << 20}, 16)};
  auto const sites = warmset_test::make_sites(x.model, 8, 2);
  {
    cuda::copy_engine e = x.engine();
    e.open(x.model, sites);  // the context has what it needs from here on
  }
  u64 const before = free_bytes();
  auto const refused = [&](cuda::copy_options o, geometry const& model, std::vector<pool_site> const& where) {
    cuda::copy_engine e = x.engine(o);
    try {
      e.open(model, where);
      FAIL("it does not fit");
    } catch (config_error const& error) {
      CHECK(std::string(error.what()).find("device 0") != std::string::npos);
    }
    CHECK(free_bytes() == before);
  };
  cuda::copy_options o;
  o.headroom = before - (u64{4} << 20);
  refused(o, x.model, sites);
  o.headroom = u64{1} << 20;
  o.tail_bytes = before;
  refused(o, x.model, sites);
  // an allocation that the driver itself refuses: bytes of several devices on one
  o = {};
  o.device = n_devices();
  cuda::copy_engine elsewhere = x.engine(o);
  CHECK_THROWS_AS(elsewhere.open(x.model, sites), config_error);
  cuda::runtime runtime;
  void* memory = nullptr;
  cuda::call_result const r = runtime.allocate(memory, u64{1} << 50);
  CHECK(r.why == reason::no_memory);
  CHECK(cudaGetLastError() == cudaSuccess);  // it has been told
  CHECK(free_bytes() == before);
}

TEST_CASE("B16 copy engine: the recency clock counts every demand", "[cuda]") {
  require_devices(1);
  struct plain : default_policy {
    using score = warmset::score::lfru;
  };
  experts x{one_layer({4096, 52}, 42)};
  cache<plain, cuda::copy_engine> c{x.model, budget::of_slots(8), plain::numbers, x.engine()};
  warmset_test::dice random{3};
  u32 n = 0;
  for (u32 i = 0; i < 200; ++i) {
    std::vector<routed_id> ids;
    for (u32 j = 0; j < 1 + random.below(4); ++j) {
      ids.push_back(static_cast<routed_id>(random.below(42)));
    }
    auto const lease = c.demand(layer_id{1}, ids);
    REQUIRE(lease);
    REQUIRE(drain(c.backend()));
    for (u32 j = 0; j < lease.view().experts.size(); ++j) {
      u32 const expert = lease.view().experts[j];
      REQUIRE(c.pools()[0].view().expert(expert).last == ++n);
      REQUIRE(x.holds(c.backend(), 0, {lease.view().slots[j]}, {layer_id{1}, {expert}}));
    }
    REQUIRE(c.pools()[0].view().header().tick == n);
  }
  CHECK(n > 300);
}

TEST_CASE("B80 copy engine: a word says arrived after all banks, expert by expert", "[cuda][short]") {
  require_devices(1);
  u64 const big = u64{8} << 20;
  experts x{one_layer({big, big, big}, 12)};
  cuda::copy_engine e = x.engine(options_of(way::loop));
  e.open(x.model, warmset_test::make_sites(x.model, 8, 2));
  u32 apart = 0;
  for (u32 round = 1; round < 6; ++round) {
    e.start(0, {{order(0, round, round), order(5, round + 4, round)}});
    bool was_read = false;
    while (e.ledger().copies.in_flight != 0) {
      e.poll();
      if (!was_read && word(e, 0, 0) == transfer::arrived) {
        was_read = true;
        apart += word(e, 0, 5) == transfer::loading ? 1 : 0;
        REQUIRE(x.holds(e, 0, {0}, {layer_id{1}, {round}}));
      }
    }
    REQUIRE(x.holds(e, 0, {5}, {layer_id{1}, {round + 4}}));
  }
  CHECK(apart > 0);
}

TEST_CASE("B98 copy engine: a consumer waits for its own entry, not for a later copy", "[cuda]") {
  require_devices(1);
  experts x{geometry{{{layer_id{1}, 4, 1, {4096}}, {layer_id{2}, 2, 1, {u64{256} << 20}}}}};
  cuda::copy_engine e = x.engine(options_of(GENERATE(way::batch, way::loop)));
  e.open(x.model, warmset_test::make_sites(x.model, 2, 1));
  cudaStream_t consumer{};
  cudaEvent_t done_event{};
  REQUIRE(cudaStreamCreateWithFlags(&consumer, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&done_event, cudaEventDisableTiming) == cudaSuccess);
  e.start(0, {{order(0, 3)}});
  e.start(1, {{order(0, 1, 1, 2)}});  // five milliseconds
  REQUIRE(e.order_after_arrival(consumer, 0, {0}));
  REQUIRE(cudaEventRecord(done_event, consumer) == cudaSuccess);
  while (cudaEventQuery(done_event) == cudaErrorNotReady) {
  }
  e.poll();
  CHECK(word(e, 0, 0) == transfer::arrived);
  CHECK(word(e, 1, 0) == transfer::loading);
  REQUIRE(drain(e));
  CHECK(word(e, 1, 0) == transfer::arrived);
  CHECK(x.holds(e, 0, {0}, {layer_id{1}, {3}}));
  CHECK(cudaEventDestroy(done_event) == cudaSuccess);
  CHECK(cudaStreamDestroy(consumer) == cudaSuccess);
}

TEST_CASE("B96 copy engine: small entries have a batch of their own, and nothing waits in start", "[cuda]") {
  require_devices(1);
  u64 const large = 768 * 1024;
  experts x{one_layer({large, 16'384}, 64)};
  std::vector<transfer_order> orders;
  for (u32 i = 0; i < 32; ++i) {
    orders.push_back(order(i, 2 * i));  // no neighbours
  }
  struct timing {
    double start, all;
  };
  auto const measure = [&](u64 large_from) {
    cuda::copy_options o;
    o.large_copy = large_from;
    cuda::copy_engine e = x.engine(o);
    e.open(x.model, warmset_test::make_sites(x.model, 32, 2));
    timing best{1e9, 1e9};
    for (u32 i = 0; i < 20; ++i) {
      auto const begin = std::chrono::steady_clock::now();
      e.start(0, orders);
      double const started = microseconds_since(begin);
      REQUIRE(drain(e));
      double const all = microseconds_since(begin);
      best = {std::min(best.start, started), std::min(best.all, all)};
    }
    CHECK(e.ledger().batches == (e.batches() ? (large_from == 0 ? 20u : 40u) : 20u * 64));
    return best;
  };
  timing const together = measure(0);
  timing const apart = measure(move::large_copy_bytes);
  WARN("32 x (768 KiB + 16 KiB): one batch " << together.start << " us in start, " << together.all
                                             << " us in all; a batch for each class " << apart.start << " us, "
                                             << apart.all << " us");
  CHECK(2 * apart.start < apart.all);  // start comes back long before the bytes have come
  CHECK(apart.all < 1.25 * together.all);
}

TEST_CASE("a capture of another stream goes on while the copy engine works", "[cuda]") {
  require_devices(1);
  experts x{one_layer({5000, 77}, 16)};
  cuda::copy_engine e = x.engine(options_of(GENERATE(way::batch, way::loop)));
  e.open(x.model, warmset_test::make_sites(x.model, 8, 2));
  cudaStream_t captured{};
  REQUIRE(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking) == cudaSuccess);
  void* word_of_graph = nullptr;
  REQUIRE(cudaMalloc(&word_of_graph, 4) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(word_of_graph, 0, 4, captured) == cudaSuccess);
  e.start(0, {{order(0, 3), order(4, 9)}});
  bool const came = drain(e);
  cudaGraph_t graph{};
  CHECK(cudaStreamEndCapture(captured, &graph) == cudaSuccess);
  CHECK(came);
  CHECK(e.failure().call == nullptr);
  CHECK(x.holds(e, 0, {4}, {layer_id{1}, {9}}));
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaFree(word_of_graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(captured) == cudaSuccess);
}

TEST_CASE("B40 B68 R32 copy engine: two GPUs keep bytes and budgets apart", "[cuda]") {
  require_devices(2);
  experts x{one_layer({4096, 52}, 42)};
  cuda::copy_options o;
  cuda::copy_engine first = x.engine(o);
  o.device = 1;
  cuda::copy_engine second = x.engine(o);
  auto const sites = warmset_test::make_sites(x.model, 6, 2);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  first.open(x.model, sites);
  second.open(x.model, sites);
  cudaPointerAttributes where{};
  REQUIRE(cudaPointerGetAttributes(&where, second.bank(0, 1)) == cudaSuccess);
  CHECK(where.device == 1);
  REQUIRE(cudaPointerGetAttributes(&where, first.bank(0, 1)) == cudaSuccess);
  CHECK(where.device == 0);
  for (u32 i = 0; i < 40; ++i) {
    cuda::copy_engine& active = i % 2 == 0 ? first : second;
    cuda::copy_engine& other = i % 2 == 0 ? second : first;
    auto const before = memory_of(other);
    active.start(0, {{order(i % 6, i, i)}});
    REQUIRE(drain(active));
    int current = -1;
    REQUIRE(cudaGetDevice(&current) == cudaSuccess);
    CHECK(current == 0);
    CHECK(active.ledger().balances());
    CHECK(x.holds(active, 0, {i % 6}, {layer_id{1}, {i}}));
    CHECK(memory_of(other) == before);
  }
  // the memory of the second is full, whatever the first has left
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  o.headroom = free_bytes();
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  cuda::copy_engine third = x.engine(o);
  try {
    third.open(x.model, sites);
    FAIL("it does not fit");
  } catch (config_error const& error) {
    CHECK(std::string(error.what()).find("device 1") != std::string::npos);
  }
}

TEST_CASE("the phase probe tells experts from the rest on a GPU, eager and in a graph", "[cuda]") {
  require_devices(1);
  bool const in_graph = GENERATE(false, true);
  cudaStream_t stream{};
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  void* memory = nullptr;
  u64 const bytes = u64{256} << 20;
  REQUIRE(cudaMalloc(&memory, bytes) == cudaSuccess);
  phase_table table{4};
  {
    cuda::phase_probe probe{4};
    auto const play = [&] {
      REQUIRE(probe.begin_step(stream));
      REQUIRE(probe.begin(stream, time_row::experts));
      for (u32 i = 0; i < 8; ++i) {
        REQUIRE(cudaMemsetAsync(memory, 1, bytes, stream) == cudaSuccess);
      }
      REQUIRE(probe.end(stream, time_row::experts));
      REQUIRE(probe.begin(stream, time_row::dense));
      REQUIRE(cudaMemsetAsync(memory, 1, 4096, stream) == cudaSuccess);
      REQUIRE(probe.end(stream, time_row::dense));
      REQUIRE(probe.end_step(stream));
    };
    cudaGraph_t graph{};
    cudaGraphExec_t ready{};
    if (in_graph) {
      REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
      play();
      REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
      REQUIRE(cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess);
    }
    for (u32 i = 0; i < 3; ++i) {
      if (in_graph) {
        REQUIRE(cudaGraphLaunch(ready, stream) == cudaSuccess);
        probe.launched();
      } else {
        play();
      }
      REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
      CHECK(probe.collect(table) == 1);
    }
    if (in_graph) {
      CHECK(cudaGraphExecDestroy(ready) == cudaSuccess);
      CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    }
  }
  CHECK(table.on());
  CHECK(table.steps().value == 3);
  u64 sum = 0;
  for (amount<unit::nanoseconds> const& row : table.sum().rows) {
    sum += row.value;
  }
  CHECK(sum == table.sum().step.value);
  CHECK(table.sum()[time_row::experts].value > 10 * table.sum()[time_row::dense].value);
  CHECK(table.sum()[time_row::experts].value > 100'000);
  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}
