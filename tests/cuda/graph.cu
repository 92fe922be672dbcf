// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda/device_pool.hpp"
#include "cuda/differential.hpp"
#include "cuda/gpu.cuh"
#include "support/dice.hpp"
#include "warmset/cuda.cuh"
#include "warmset/observe/record_totals.hpp"
#include "warmset/table/audit.hpp"

using namespace warmset;

namespace {

/// The experts in mapped pinned memory.
class pinned_experts : public cuda::mapped_source {
 public:
  pinned_experts(geometry const& model) : model_(model) {
    for (layer_geometry const& layer : model_.layers()) {
      for (std::size_t bank = 0; bank < layer.bank_bytes.size(); ++bank) {
        std::size_t const bytes = layer.n_experts * layer.bank_bytes[bank];
        unsigned char* memory = nullptr;
        REQUIRE(cudaHostAlloc(reinterpret_cast<void**>(&memory), bytes, cudaHostAllocMapped) == cudaSuccess);
        for (std::size_t i = 0; i < bytes; ++i) {
          memory[i] = steps::sources::value(layer.layer.value, static_cast<u32>(bank),
                                            static_cast<u32>(i / layer.bank_bytes[bank]), i % layer.bank_bytes[bank]);
        }
        memory_.push_back(memory);
      }
    }
  }
  ~pinned_experts() override {
    for (unsigned char* memory : memory_) {
      cudaFreeHost(memory);
    }
  }
  unsigned char const* bank(layer_id layer, u32 bank) const override {
    std::size_t at = 0;
    for (layer_geometry const& known : model_.layers()) {
      if (known.layer == layer) {
        break;
      }
      at += known.bank_bytes.size();
    }
    void* device = nullptr;
    REQUIRE(cudaHostGetDevicePointer(&device, memory_[at + bank], 0) == cudaSuccess);
    return static_cast<unsigned char const*>(device);
  }

 private:
  geometry model_;
  std::vector<unsigned char*> memory_;
};

/// The mover of the host's decisions: everything arrives at once. No lambda, since commit is host-device code.
struct all_arrive {
  u32* words;
  WARMSET_HD void operator()(u32, planned_load load, u32 generation) const {
    words[load.slot] = arrival::word(generation, transfer::arrived);
  }
};

/// The same where an adaptor lets some fail.
struct arrive_or_fail {
  u32* words;
  cuda::failing_gather<> adaptor;
  u32 first_slot;
  WARMSET_HD void operator()(u32, planned_load load, u32 generation) const {
    cuda::fetch_order const order{0, load.expert, load.slot, generation};
    words[load.slot] = arrival::word(generation, adaptor.end_of(first_slot + load.slot, order));
  }
};

/// Counts bytes that readers find and that are not those of the expert that asked.
__global__ void check_served_kernel(cuda::served_experts served, u64 bytes, u32 layer, u32 bank, i32 const* ids, u32 n_ids,
                                    u32 n_experts, i32 const* answers, unsigned long long* wrong, unsigned long long* read) {
  for (u32 j = 0; j < n_ids; ++j) {
    if (ids[j] < 0 || static_cast<u32>(ids[j]) >= n_experts) {
      continue;
    }
    unsigned char const* const found = served.bytes(bank, static_cast<u32>(ids[j]), answers[j]);
    for (u64 i = threadIdx.x; i < bytes; i += blockDim.x) {
      if (found[i] != steps::sources::value(layer, bank, static_cast<u32>(ids[j]), i)) {
        atomicAdd(wrong, 1ull);
      }
      atomicAdd(read, 1ull);
    }
  }
}

/// Counts bytes that are not those of the expert that asked: what a consumer in the same graph would read.
__global__ void check_kernel(unsigned char const* bank, u64 bytes, u32 layer, u32 bank_number, i32 const* ids, u32 n_ids,
                             u32 n_experts, i32 const* slots, unsigned long long* wrong, unsigned long long* read) {
  for (u32 j = 0; j < n_ids; ++j) {
    bool const valid = ids[j] >= 0 && static_cast<u32>(ids[j]) < n_experts;
    if (!valid) {
      if (threadIdx.x == 0 && slots[j] != -1) {
        atomicAdd(wrong, 1ull);
      }
      continue;
    }
    for (u64 i = threadIdx.x; i < bytes; i += blockDim.x) {
      unsigned char const expected = steps::sources::value(layer, bank_number, static_cast<u32>(ids[j]), i);
      if (slots[j] < 0 || bank[static_cast<u64>(slots[j]) * bytes + i] != expected) {
        atomicAdd(wrong, 1ull);
      }
      atomicAdd(read, 1ull);
    }
  }
}

}  // namespace

bool differential::gpu_is_there() { return has_gpu(); }

namespace device_steps {

/// What device_pools refuses: tables of another shape, with residents, with transfers in flight.
template <class Policy>
void check_refusals(cuda::device_pools<Policy>& pools, pinned_experts const& experts, geometry const& model,
                    std::vector<pool_site> const& sites, std::vector<table<Policy>>& held) {
  auto const refuses = [&](array_view<table<Policy> const> tables) {
    try {
      cuda::device_pools<Policy> const made{model, sites, tables, experts};
    } catch (config_error const&) {
      return true;
    }
    return false;
  };
  CHECK(refuses({held.data(), held.size()}));  // their residents are in other banks
  auto const with = [&](u32 slots, u32 scratch) {
    std::vector<table<Policy>> tables;
    for (pool_site const& site : sites) {
      tables.emplace_back(std::vector<layer_geometry>{*model.find(site.layers[0])}, pool_size{slots, slots},
                          tuning{.scratch_slots = scratch});
    }
    return tables;
  };
  u32 const n = sites[0].n_slots;
  u32 const k = sites[0].n_scratch;
  for (auto const& [slots, scratch] : {std::pair{n + 1, k}, {n - 1, k}, {n, k + 1}}) {
    std::vector<table<Policy>> others = with(slots, scratch);
    CHECK(refuses({others.data(), others.size()}));
    CHECK(pools.take_over({others.data(), others.size()}, 7).code == cudaErrorInvalidValue);
    CHECK(pools.give_back({others.data(), others.size()}).code == cudaErrorInvalidValue);
  }
  std::vector<table<Policy>> fresh = with(n, k);
  CHECK_FALSE(refuses({fresh.data(), fresh.size()}));
  CHECK_FALSE(pools.take_over({fresh.data(), fresh.size() - 1}, 7));
  fresh[0].view().header().in_flight = 1;
  CHECK(pools.take_over({fresh.data(), fresh.size()}, 7).code == cudaErrorInvalidValue);
}

/// One captured graph of three layers, launched with a thousand routes, beside the host's decisions.
template <class TestType>
void check_graph() {
  if (!has_gpu()) {
    SKIP("skipped: no GPU");
  }
  constexpr u32 n_layers = 3, n_experts = 32, k = 4, n_slots = 9;
  char const* const said = std::getenv("WARMSET_GPU_LAUNCHES");
  u32 const n_launches = said != nullptr && *said != '\0' ? static_cast<u32>(std::strtoul(said, nullptr, 10)) : 1000;
  std::vector<layer_geometry> layers;
  for (u32 l = 0; l < n_layers; ++l) {
    layers.push_back({layer_id{l}, n_experts, k, l == 1 ? std::vector<u64>{96, 52, 7} : std::vector<u64>{4096, 1024}});
  }
  geometry const model{layers};
  pinned_experts const experts{model};

  std::vector<pool_site> sites;
  std::vector<table<TestType>> tables;
  std::vector<u32> next(model.groups().size(), 0);
  auto const groups = model.groups();
  for (u32 l = 0; l < n_layers; ++l) {
    u32 const group = l == 1 ? 1 : 0;
    u32 const in_group = group == 1 ? 1 : 2;
    sites.push_back({l, group, next[group], n_slots, in_group * n_slots, k, {layer_id{l}}});
    next[group] += n_slots;
    tables.emplace_back(std::vector<layer_geometry>{layers[l]}, pool_size{n_slots, n_slots}, tuning{.scratch_slots = k});
  }
  cuda::device_pools<TestType> pools{model, sites, {tables.data(), tables.size()}, experts, {.gather_blocks = 3, .piece_bytes = 1024}};
  REQUIRE(pools.take_over({tables.data(), tables.size()}, 5));
  CHECK(pools.fits(layer_id{0}, 1));
  CHECK_FALSE(pools.fits(layer_id{0}, 3));

  cuda::device_memory<i32> ids{n_layers * k};
  cuda::device_memory<i32> slots{n_layers * k};
  cuda::device_memory<unsigned long long> counts{2};
  cuda::mapped_counters const page{n_layers};
  cuda::mapped_counters const page_of_more{n_layers + 1};
  cudaStream_t stream{};
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  for (u32 l = 0; l < n_layers; ++l) {
    REQUIRE(pools.record(stream, layer_id{l}, ids.data() + l * k, k, slots.data() + l * k));
    for (u32 bank = 0; bank < layers[l].bank_bytes.size(); ++bank) {
      check_kernel<<<1, 128, 0, stream>>>(pools.bank(sites[l].group, bank), layers[l].bank_bytes[bank], l, bank,
                                          ids.data() + l * k, k, n_experts, slots.data() + l * k, counts.data(),
                                          counts.data() + 1);
    }
  }
  REQUIRE(pools.join(stream));
  REQUIRE(pools.publish(stream, page.device_view()));
  CHECK(pools.publish(stream, page_of_more.device_view()).code == cudaErrorInvalidValue);
  cudaGraph_t graph{};
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  cudaGraphExec_t ready{};
  REQUIRE(cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess);

  // the same routes, decided here
  warmset_test::dice random{3};
  auto const workspace = std::make_unique<workspace_of<TestType>>();
  auto const plan = std::make_unique<plan_of<TestType>>();
  std::vector<std::vector<u32>> arrivals(n_layers, std::vector<u32>(n_slots));
  std::vector<outcome> out(n_layers * n_phases);
  std::vector<i32> route(n_layers * k);
  record_totals totals{model, {sites.data(), sites.size()}};
  snapshot now{model};
  CHECK(totals.read(page.view(), now).why == reason::unsupported);
  phase in_phase = phase::decode;
  for (u32 launch = 0; launch < n_launches; ++launch) {
    if (launch % 16 == 0) {
      in_phase = launch % 32 == 0 ? phase::prefill : phase::decode;
      REQUIRE(pools.set({5, in_phase}));
    }
    auto const counts = [&](u32 l) -> outcome& { return out[l * n_phases + static_cast<u32>(in_phase)]; };
    for (i32& id : route) {
      id = static_cast<i32>(random.below(1 + random.below(n_experts))) - (random.below(40) == 0 ? 1 : 0);
    }
    REQUIRE(ids.write(route.data(), route.size()));
    REQUIRE(cudaGraphLaunch(ready, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    for (u32 l = 0; l < n_layers; ++l) {
      table_writer<TestType> const t = tables[l].view();
      settle<TestType>(one_lane{}, t, arrivals[l].data(), counts(l));
      plan_demand<TestType>(one_lane{}, table_reader<TestType>{t}, step_input{0, in_phase, t.header().model_tick},
                            route.data() + l * k, k, *workspace, *plan);
      if (plan->kind == plan_kind::step) {
        REQUIRE(commit<TestType>(one_lane{}, t, *plan, counts(l), all_arrive{arrivals[l].data()}));
      } else {
        record_uncommitted<TestType>(*plan, counts(l));
      }
    }
    REQUIRE(totals.read(page.view(), now));  // the launch has ended, and so has its publication
    REQUIRE(now.sum().demanded.value != 0);
  }
  std::vector<outcome> told(n_layers * n_phases);
  REQUIRE(page.view().read(told.data()));
  for (u32 l = 0; l < n_layers; ++l) {
    for (phase const p : {phase::prefill, phase::decode}) {
      u32 const at = l * n_phases + static_cast<u32>(p);
      outcome counted{};
      REQUIRE(pools.counted(l, p, counted));
      CHECK(std::memcmp(&told[at], &counted, sizeof counted) == 0);
      CHECK(std::memcmp(&told[at], &out[at], sizeof counted) == 0);
      CHECK(now.at(l, p).demanded.value == counted.demanded);
      CHECK(now.at(l, p).bytes[0].value == u64{counted.arrived[0]} * layers[l].expert_bytes());
    }
  }
  unsigned long long seen[2] = {};
  REQUIRE(counts.read(seen, 2));
  CHECK(seen[0] == 0);
  CHECK(seen[1] > u64{n_launches} * n_layers * k / 2 * 155);

  std::vector<table<TestType>> after;
  for (u32 l = 0; l < n_layers; ++l) {
    after.emplace_back(std::vector<layer_geometry>{layers[l]}, pool_size{n_slots, n_slots}, tuning{.scratch_slots = k});
  }
  REQUIRE(pools.give_back({after.data(), after.size()}));
  for (u32 l = 0; l < n_layers; ++l) {
    outcome& last = out[l * n_phases + static_cast<u32>(in_phase)];
    settle<TestType>(one_lane{}, tables[l].view(), arrivals[l].data(), last);  // as give_back does
    CAPTURE(l);
    CHECK(after[l].block_bytes() == tables[l].block_bytes());
    CHECK(std::memcmp(after[l].block(), tables[l].block(), tables[l].block_bytes()) == 0);
    CHECK(audit(after[l].view()));
    outcome there{};
    REQUIRE(pools.counted(l, there));
    outcome const all = out[l * n_phases] + out[l * n_phases + 1];
    CHECK(std::memcmp(&there, &all, sizeof there) == 0);
    CHECK(there.steps > n_launches * 9 / 10);
    CHECK(there.issued[0] > n_launches / 10);
    cuda::step_fault fault{};
    REQUIRE(pools.fault(l, fault));
    CHECK(fault == cuda::step_fault::none);
  }
  REQUIRE(pools.take_over({after.data(), after.size()}, 6));  // what came back can go there again
  check_refusals(pools, experts, model, sites, after);
  CHECK(cudaGraphExecDestroy(ready) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

/// One captured graph whose branches plan and fetch hints for the next layer's pool while this one decides, with transfers
/// that fail, launched with changing routes, hints and budgets, beside the host's decisions.
template <class TestType>
void check_hints() {
  if (!has_gpu()) {
    SKIP("skipped: no GPU");
  }
  constexpr u32 n_layers = 3, n_experts = 32, k = 4, n_slots = 9, width = 6;
  char const* const said = std::getenv("WARMSET_GPU_LAUNCHES");
  u32 const n_launches = said != nullptr && *said != '\0' ? static_cast<u32>(std::strtoul(said, nullptr, 10)) : 1000;
  std::vector<layer_geometry> layers;
  std::vector<pool_site> sites;
  auto const fresh = [&] {
    std::vector<table<TestType>> tables;
    for (layer_geometry const& layer : layers) {
      tables.emplace_back(std::vector<layer_geometry>{layer}, pool_size{n_slots, n_slots},
                          tuning{.speculative_slots = 4, .scratch_slots = k});
    }
    return tables;
  };
  for (u32 l = 0; l < n_layers; ++l) {
    layers.push_back({layer_id{l}, n_experts, k, {4096, 1024}});
    sites.push_back({l, 0, l * n_slots, n_slots, n_layers * n_slots, k, {layer_id{l}}});
  }
  geometry const model{layers};
  pinned_experts const experts{model};
  std::vector<table<TestType>> tables = fresh();
  cuda::failing_gather<> const adaptor{{}, 7, 3'277};
  cuda::device_pools<TestType, cuda::failing_gather<>> pools{
      model, sites, {tables.data(), tables.size()}, experts, {.gather_blocks = 3, .piece_bytes = 1024}, adaptor};
  REQUIRE(pools.take_over({tables.data(), tables.size()}, 5));

  cuda::device_memory<i32> ids{n_layers * k};
  cuda::device_memory<i32> hints{n_layers * width};
  cuda::device_memory<i32> slots{n_layers * k};
  cuda::device_memory<unsigned long long> counts{2};
  cuda::branch beside[2] = {cuda::branch::make(), cuda::branch::make()};
  cudaStream_t stream{};
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  for (u32 l = 0; l < n_layers; ++l) {
    if (l + 1 < n_layers) {
      REQUIRE(beside[l % 2].fork(stream));
      i32 const* const said = hints.data() + (l + 1) * width;
      REQUIRE((l % 3 == 0 ? pools.advise(beside[l % 2].stream(), layer_id{l + 1}, said, width)
                          : pools.plan_hints(beside[l % 2].stream(), layer_id{l + 1}, said, width)));
    }
    if (l != 0) {
      REQUIRE(beside[(l - 1) % 2].join(stream));
    }
    REQUIRE(pools.record(stream, layer_id{l}, ids.data() + l * k, k, slots.data() + l * k));
    if (l + 1 < n_layers && l % 3 != 0) {
      REQUIRE(beside[l % 2].fork(stream));
      REQUIRE(pools.fetch_hints(beside[l % 2].stream(), layer_id{l + 1}));
    }
    for (u32 bank = 0; bank < 2; ++bank) {
      check_served_kernel<<<1, 128, 0, stream>>>(pools.served(layer_id{l}), layers[l].bank_bytes[bank], l, bank,
                                                 ids.data() + l * k, k, n_experts, slots.data() + l * k, counts.data(),
                                                 counts.data() + 1);
    }
  }
  REQUIRE(pools.join(stream));
  cudaGraph_t graph{};
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  cudaGraphExec_t ready{};
  REQUIRE(cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess);

  warmset_test::dice random{5};
  auto const workspace = std::make_unique<workspace_of<TestType>>();
  auto const plan = std::make_unique<plan_of<TestType>>();
  std::vector<std::vector<u32>> arrivals(n_layers, std::vector<u32>(n_slots));
  std::vector<outcome> out(n_layers);
  std::vector<i32> route(n_layers * k);
  std::vector<i32> hinted(n_layers * width);
  u64 budget = u64_max;
  for (u32 launch = 0; launch < n_launches; ++launch) {
    for (i32& id : route) {
      id = static_cast<i32>(random.below(1 + random.below(n_experts)));
    }
    for (i32& id : hinted) {
      id = static_cast<i32>(random.below(n_experts + 1)) - (random.below(10) == 0 ? 1 : 0);
    }
    if (launch % 16 == 0) {
      budget = random.below(3) == 0 ? u64_max : random.below(4) * u64{5120};
      REQUIRE(pools.set({5, phase::decode, 0, step_context::no_token, budget}));
    }
    REQUIRE(ids.write(route.data(), route.size()));
    REQUIRE(hints.write(hinted.data(), hinted.size()));
    REQUIRE(cudaGraphLaunch(ready, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    for (u32 l = 0; l < n_layers; ++l) {
      table_writer<TestType> const t = tables[l].view();
      arrive_or_fail const mover{arrivals[l].data(), adaptor, sites[l].first_slot};
      if (l != 0) {
        settle<TestType>(one_lane{}, t, arrivals[l].data(), out[l]);
        u32 const most = static_cast<u32>(min_of(budget / 5120, u64{TestType::max_experts}));
        plan_speculative<TestType>(one_lane{}, table_reader<TestType>{t},
                                   speculation_input{0, t.layer(0).step + 1, most, t.header().model_tick},
                                   hinted.data() + l * width, width, *workspace, *plan);
        REQUIRE(commit<TestType>(one_lane{}, t, *plan, out[l], mover));
      }
      settle<TestType>(one_lane{}, t, arrivals[l].data(), out[l]);
      plan_demand<TestType>(one_lane{}, table_reader<TestType>{t}, step_input{0, phase::decode, t.header().model_tick},
                            route.data() + l * k, k, *workspace, *plan);
      REQUIRE(commit<TestType>(one_lane{}, t, *plan, out[l], mover));
    }
  }
  unsigned long long seen[2] = {};
  REQUIRE(counts.read(seen, 2));
  CHECK(seen[0] == 0);
  CHECK(seen[1] == u64{n_launches} * n_layers * k * 5120);

  std::vector<table<TestType>> after = fresh();
  REQUIRE(pools.give_back({after.data(), after.size()}));
  for (u32 l = 0; l < n_layers; ++l) {
    settle<TestType>(one_lane{}, tables[l].view(), arrivals[l].data(), out[l]);  // as give_back does
    CAPTURE(l);
    CHECK(std::memcmp(after[l].block(), tables[l].block(), tables[l].block_bytes()) == 0);
    CHECK(audit(after[l].view()));
    outcome there{};
    REQUIRE(pools.counted(l, there));
    CHECK(std::memcmp(&there, &out[l], sizeof there) == 0);
    CHECK((there.issued[static_cast<u32>(intent::speculative)] != 0) == (l != 0));
    CHECK((there.failed[0] != 0 || n_launches < 200));
    cuda::step_fault fault{};
    REQUIRE(pools.fault(l, fault));
    CHECK(fault == cuda::step_fault::none);
  }
  CHECK(cudaGraphExecDestroy(ready) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

/// One captured graph whose readers take what admission declines from the source, with too little scratch for it: the
/// blocks are those of the host's decisions, exactly what is declined is answered -1, and readers find every byte.
template <class TestType>
void check_reads_host() {
  if (!has_gpu()) {
    SKIP("skipped: no GPU");
  }
  constexpr u32 n_experts = 32, k = 4, n_slots = 9, n_launches = 300;
  std::vector<layer_geometry> const layers{{layer_id{0}, n_experts, k, {4096, 1024}}};
  geometry const model{layers};
  pinned_experts const experts{model};
  std::vector<pool_site> const sites{{0, 0, 0, n_slots, n_slots, 1, {layer_id{0}}}};
  auto const fresh = [&] {
    std::vector<table<TestType>> made;
    made.emplace_back(layers, pool_size{n_slots, n_slots}, tuning{.scratch_slots = 1});
    return made;
  };
  std::vector<table<TestType>> tables = fresh();
  CHECK_FALSE((cuda::device_pools<TestType>{model, sites, {tables.data(), 1}, experts}.fits(layer_id{0}, 1)));
  cuda::device_pools<TestType> pools{model, sites, {tables.data(), 1}, experts, {.piece_bytes = 1024, .reads_host = true}};
  CHECK(pools.fits(layer_id{0}, 1));
  REQUIRE(pools.take_over({tables.data(), 1}, 5));

  cuda::device_memory<i32> ids{k};
  cuda::device_memory<i32> slots{k};
  cuda::device_memory<unsigned long long> counts{2};
  cudaStream_t stream{};
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  REQUIRE(pools.record(stream, layer_id{0}, ids.data(), k, slots.data()));
  for (u32 bank = 0; bank < 2; ++bank) {
    check_served_kernel<<<1, 128, 0, stream>>>(pools.served(layer_id{0}), layers[0].bank_bytes[bank], 0, bank, ids.data(), k,
                                               n_experts, slots.data(), counts.data(), counts.data() + 1);
  }
  REQUIRE(pools.join(stream));
  cudaGraph_t graph{};
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  cudaGraphExec_t ready{};
  REQUIRE(cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess);

  warmset_test::dice random{29};
  auto const workspace = std::make_unique<workspace_of<TestType>>();
  auto const plan = std::make_unique<plan_of<TestType>>();
  std::vector<u32> arrivals(n_slots);
  outcome out{};
  std::vector<i32> route(k);
  std::vector<i32> answers(k);
  table_writer<TestType> const t = tables[0].view();
  for (u32 launch = 0; launch < n_launches; ++launch) {
    for (i32& id : route) {
      id = static_cast<i32>(random.below(1 + random.below(n_experts)));
    }
    REQUIRE(ids.write(route.data(), k));
    REQUIRE(cudaGraphLaunch(ready, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    REQUIRE(slots.read(answers.data(), k));
    settle<TestType>(one_lane{}, t, arrivals.data(), out);
    plan_demand<TestType>(one_lane{}, table_reader<TestType>{t}, step_input{0, phase::decode, t.header().model_tick},
                          route.data(), k, *workspace, *plan);
    REQUIRE(commit<TestType>(one_lane{}, t, *plan, out, all_arrive{arrivals.data()}));
    for (u32 j = 0; j < k; ++j) {
      u32 i = 0;
      while (plan->expert[i] != static_cast<u32>(route[j])) {
        ++i;
      }
      REQUIRE(answers[j] == (plan->how[i] == access_kind::declined ? -1 : static_cast<i32>(plan->slot[i])));
    }
  }
  unsigned long long seen[2] = {};
  REQUIRE(counts.read(seen, 2));
  CHECK(seen[0] == 0);
  CHECK(seen[1] == u64{n_launches} * k * 5120);
  CHECK(out[access_kind::declined] > n_launches / 10);
  std::vector<table<TestType>> after = fresh();
  REQUIRE(pools.give_back({after.data(), 1}));
  settle<TestType>(one_lane{}, t, arrivals.data(), out);  // as give_back does
  CHECK(std::memcmp(after[0].block(), tables[0].block(), tables[0].block_bytes()) == 0);
  outcome there{};
  REQUIRE(pools.counted(0, there));
  CHECK(std::memcmp(&there, &out, sizeof there) == 0);
  cuda::step_fault fault{};
  REQUIRE(pools.fault(0, fault));
  CHECK(fault == cuda::step_fault::none);
  CHECK(cudaGraphExecDestroy(ready) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

}  // namespace device_steps

// The test cases are in graph_cases.cpp: cudafe++ takes minutes over one in this file.
template void device_steps::check_graph<bundles::of<score::lru>>();
template void device_steps::check_graph<bundles::of<score::decayed_count>>();
template void device_steps::check_graph<bundles::of<score::successor<>>>();
template void device_steps::check_graph<bundles::of<score::lru, select::clock<1>>>();
template void device_steps::check_graph<bundles::admitted<bundles::of<score::lru>, admit::second_touch<8>>>();
template void device_steps::check_graph<
    bundles::admitted<bundles::of<score::successor<>>, admit::colder_than_victim<20>>>();
template void device_steps::check_reads_host<bundles::admitted<bundles::of<score::lru>, admit::second_touch<8>>>();
template void device_steps::check_reads_host<
    bundles::admitted<bundles::of<score::successor<>>, admit::colder_than_victim<20>>>();
template void device_steps::check_hints<bundles::guarded<bundles::of<score::successor<>>, guard::none>>();
template void device_steps::check_hints<bundles::guarded<bundles::of<score::decayed_count>, guard::spare_only>>();
