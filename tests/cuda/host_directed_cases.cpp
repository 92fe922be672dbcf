// SPDX-License-Identifier: Apache-2.0
#include "cuda/gpu_experts.hpp"

#include <catch2/generators/catch_generators.hpp>

#include <chrono>
#include <memory>
#include <thread>

#include <warmset/cache.hpp>
#include <warmset/cuda/memory.hpp>
#include <warmset/cuda/stream_words.hpp>
#include <warmset/policy/score/lru.hpp>
#include <warmset/predict/supplied.hpp>
#include <warmset/signal/worker.hpp>

#include "cuda/host_directed_device.hpp"
#include "support/dice.hpp"

using namespace warmset;
using namespace gpu;

// The twin of host_directed_test.cpp on a GPU: kernels of a graph on one side, a worker over the copy engine on the other.
// Every wait has a deadline, so that what is broken fails and does not hang.

namespace {

constexpr u64 seconds = 1'000'000'000;
constexpr u32 n_layers = 3, n_experts = 32, k = 4;

template <bool Hinted>
struct bundle : default_policy {
  using score = warmset::score::lru;
};
template <>
struct bundle<true> : default_policy {
  using score = warmset::score::lru;
  using predictor = warmset::predict::supplied;
};

geometry three_layers() {
  std::vector<layer_geometry> layers;
  for (u32 l = 0; l < n_layers; ++l) {
    layers.push_back({layer_id{l}, n_experts, k, l == 1 ? std::vector<u64>{96, 52, 7} : std::vector<u64>{4096, 1024}});
  }
  return geometry{layers};
}

/// A stream of the device, its channel and its kernels' memory.
struct stream_of_steps {
  explicit stream_of_steps(u32 n_ids) : ids(n_layers * n_ids), slots(n_layers * n_ids), launch(1), counts(1), per_layer(n_ids) {
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  }
  ~stream_of_steps() {
    if (ready != nullptr) {
      (void)cudaGraphExecDestroy(ready);
      (void)cudaGraphDestroy(graph);
    }
    (void)cudaStreamDestroy(stream);
  }
  directed::checked counted() const {
    directed::checked c{};
    REQUIRE(counts.read(&c, 1));
    return c;
  }

  cudaStream_t stream{};
  cudaGraph_t graph{};
  cudaGraphExec_t ready{};
  cuda::device_memory<routed_id> all;
  cuda::device_memory<routed_id> ids;
  cuda::device_memory<i32> slots;
  cuda::device_memory<u32> launch;
  cuda::device_memory<directed::checked> counts;
  u32 per_layer;
};

template <bool Hinted>
struct rig {
  using worker = signal::worker<cache<bundle<Hinted>, cuda::copy_engine>>;
  struct sizes {
    u32 slots = 9;
    u32 own = k;
    u32 channels = 1;
    bool mapped = true;
    u64 deadline = 5 * seconds;
    signal::channel_shape shape{16, 16};
    cuda::copy_options options{};
  };

  explicit rig(sizes s) : experts_(three_layers()), n_channels(s.channels) {
    s.options.own_bytes = s.channels * cuda::own_scratch_bytes(experts_.model, s.own);
    std::vector<signal::channel_view> views;
    for (u32 i = 0; i < s.channels; ++i) {
      channels.push_back(std::make_unique<cuda::mapped_channel>(s.shape));
      views.push_back(channels.back()->view());
    }
    the_worker = std::make_unique<worker>(array_view<signal::channel_view const>{views}, typename worker::options_type{},
                                          experts_.model, budget::of_slots(s.slots), bundle<Hinted>::numbers,
                                          experts_.engine(s.options));
    for (u32 i = 0; i < s.channels; ++i) {
      devices.push_back(std::make_unique<directed::device>(*channels[i], experts_.model, engine(),
                                                           s.mapped ? &experts_.source : nullptr,
                                                           cuda::directed_limits{s.deadline, 50'000}, i, s.channels));
    }
  }
  ~rig() { the_worker->stop(); }

  cuda::copy_engine& engine() { return the_worker->cache().backend(); }
  signal::worker_counters counters() { return the_worker->counters(); }

  /// The kernels of one launch: all layers, with hints for the next where the bundle takes them.
  void put_steps(stream_of_steps& s, u32 channel = 0) {
    directed::device& d = *devices[channel];
    u32 const n = s.per_layer;
    if (s.all.size() != 0) {
      REQUIRE(directed::next_ids(s.stream, s.all.data(), s.launch.data(), n_layers * n, s.ids.data()) == cudaSuccess);
    }
    for (u32 l = 0; l < n_layers; ++l) {
      routed_id const* const ids = s.ids.data() + l * n;
      i32* const slots = s.slots.data() + l * n;
      if (l + 1 == n_layers) {
        REQUIRE(d.ask(s.stream, l, ids, n, slots) == cudaSuccess);
      } else {
        REQUIRE(d.publish(s.stream, l, ids, n) == cudaSuccess);
        if (Hinted) {
          REQUIRE(d.hint(s.stream, l + 1, ids + n, n) == cudaSuccess);
        }
        REQUIRE(d.await(s.stream, l, ids, n, slots) == cudaSuccess);
      }
      check(s, l);
      REQUIRE(d.finish(s.stream, l) == cudaSuccess);
    }
  }
  /// Pools are listed group by group, not in the order of the layers.
  pool_site const& site_of(u32 l) {
    for (pool_site const& site : engine().sites()) {
      if (site.layers.front().value == l) {
        return site;
      }
    }
    FAIL("no pool has layer " << l);
    return engine().sites()[0];
  }
  void check(stream_of_steps& s, u32 l) {
    layer_geometry const& layer = *experts_.model.find(layer_id{l});
    u32 const group = site_of(l).group;
    for (u32 bank = 0; bank < layer.bank_bytes.size(); ++bank) {
      REQUIRE(directed::check(s.stream, engine().bank(group, bank), layer.bank_bytes[bank], l, bank,
                              s.ids.data() + l * s.per_layer, s.per_layer, n_experts, s.slots.data() + l * s.per_layer,
                              engine().first_own(group), s.counts.data()) == cudaSuccess);
    }
  }
  void capture(stream_of_steps& s, u32 channel = 0, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    REQUIRE(cudaStreamBeginCapture(s.stream, mode) == cudaSuccess);
    put_steps(s, channel);
    REQUIRE(cudaStreamEndCapture(s.stream, &s.graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&s.ready, s.graph, 0) == cudaSuccess);
  }
  /// Launches the captured graph with these ids for its layers, and waits.
  void launch_with(stream_of_steps& s, std::vector<routed_id> const& ids) {
    REQUIRE(cudaMemcpyAsync(s.ids.data(), ids.data(), ids.size() * sizeof(routed_id), cudaMemcpyHostToDevice, s.stream) ==
            cudaSuccess);
    REQUIRE(cudaGraphLaunch(s.ready, s.stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(s.stream) == cudaSuccess);
  }

  experts experts_;
  u32 n_channels;
  std::vector<std::unique_ptr<cuda::mapped_channel>> channels;
  std::unique_ptr<worker> the_worker;
  std::vector<std::unique_ptr<directed::device>> devices;
};

std::vector<routed_id> routes(u32 launches, u32 per_layer, u64 seed, bool odd = true) {
  warmset_test::dice random{seed};
  std::vector<routed_id> all(std::size_t{launches} * n_layers * per_layer);
  for (routed_id& id : all) {
    id = static_cast<routed_id>(random.below(1 + random.below(n_experts)));
    if (odd && random.below(40) == 0) {
      id = random.below(2) == 0 ? -1 : static_cast<routed_id>(n_experts);
    }
  }
  return all;
}

template <bool Hinted>
void thousand_launches() {
  require_devices(1);
  constexpr u32 n_launches = 1000;
  rig<Hinted> r{{}};
  stream_of_steps s{k};
  std::vector<routed_id> const all = routes(n_launches, k, 3);
  s.all = cuda::device_memory<routed_id>(all.size());
  REQUIRE(s.all.write(all.data(), all.size()));
  r.capture(s);
  REQUIRE(r.the_worker->start());
  for (u32 i = 0; i < n_launches; ++i) {
    REQUIRE(cudaGraphLaunch(s.ready, s.stream) == cudaSuccess);
  }
  REQUIRE(cudaStreamSynchronize(s.stream) == cudaSuccess);
  r.the_worker->stop();

  directed::checked const c = s.counted();
  CHECK(c.wrong == 0);
  CHECK(c.read > u64{n_launches} * n_layers * k * 155 / 2);
  CHECK(c.from_own == 0);
  cuda::directed_tally const t = r.devices[0]->counted();
  CHECK(t.steps == n_launches * n_layers);
  CHECK(t.published == t.steps);
  CHECK(t.from_slots == t.steps);
  CHECK(t.overdue == 0);
  CHECK((t.hints != 0) == Hinted);
  signal::worker_counters const seen = r.counters();
  CHECK(seen[signal::tally::demands] == t.steps);
  CHECK(seen[signal::tally::torn] == 0);
  CHECK(seen[signal::tally::intruders] == 0);
  CHECK(seen[signal::tally::hints] <= t.hints);
  CHECK(seen[signal::tally::hints] + 2 >= t.hints);  // two may be waiting when the worker is stopped
  CHECK(r.engine().ledger().transfers.completed > n_launches / 2);
  CHECK(r.engine().ledger().copies.failed == 0);
  CHECK(r.engine().failure().call == nullptr);
  CHECK(r.the_worker->cache().audit());
}

}  // namespace

TEST_CASE("host-directed: 1,000 launches of one graph, every byte checked", "[cuda]") { thousand_launches<false>(); }

TEST_CASE("host-directed: 1,000 launches of one graph with hints, every byte checked", "[cuda]") {
  thousand_launches<true>();
}

TEST_CASE("host-directed: two streams of one worker do not mix", "[cuda][short]") {
  require_devices(1);
  constexpr u32 n_launches = 300;
  rig<true> r{{.slots = 12, .channels = 2}};
  stream_of_steps first{k}, second{k};
  u64 seed = 1;
  for (stream_of_steps* s : {&first, &second}) {
    std::vector<routed_id> const all = routes(n_launches, k, seed++);
    s->all = cuda::device_memory<routed_id>(all.size());
    REQUIRE(s->all.write(all.data(), all.size()));
  }
  r.capture(first, 0);
  r.capture(second, 1);
  REQUIRE(r.the_worker->start());
  for (u32 i = 0; i < n_launches; ++i) {
    REQUIRE(cudaGraphLaunch(first.ready, first.stream) == cudaSuccess);
    REQUIRE(cudaGraphLaunch(second.ready, second.stream) == cudaSuccess);
  }
  REQUIRE(cudaStreamSynchronize(first.stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(second.stream) == cudaSuccess);
  r.the_worker->stop();
  for (u32 i = 0; i < 2; ++i) {
    CHECK((i == 0 ? first : second).counted().wrong == 0);
    CHECK(r.devices[i]->counted().from_slots == n_launches * n_layers);
  }
}

TEST_CASE("host-directed: a demand past its deadline is served into scratch, and marked", "[cuda]") {
  require_devices(1);
  rig<false> r{{.deadline = 2'000'000}};
  stream_of_steps s{k};
  r.capture(s);
  REQUIRE(r.the_worker->start_by_hand());  // it runs, as far as anybody can see, and takes no step
  std::vector<routed_id> const all = routes(8, k, 5);
  for (u32 i = 0; i < 8; ++i) {
    r.launch_with(s, {all.begin() + i * n_layers * k, all.begin() + (i + 1) * n_layers * k});
    for (u32 l = 0; l < n_layers; ++l) {
      CHECK(r.devices[0]->last(l).by == static_cast<u32>(cuda::step_served::source));
    }
  }
  cuda::directed_tally t = r.devices[0]->counted();
  CHECK(s.counted().wrong == 0);
  CHECK(s.counted().from_own > 0);
  CHECK(t.from_source == 24);
  CHECK(t.overdue == 16);        // the ring takes as many
  CHECK(t.not_published == 8);
  // and with a worker that works, the next launch is its own again
  r.the_worker->stop();
  REQUIRE(r.devices[0]->set({5 * seconds, 50'000}) == cudaSuccess);
  REQUIRE(r.the_worker->start());
  r.launch_with(s, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  t = r.devices[0]->counted();
  CHECK(t.from_slots == n_layers);
  CHECK(s.counted().wrong == 0);
  CHECK(r.counters()[signal::tally::abandoned] == 16);
}

TEST_CASE("host-directed: a worker that has ended holds up no graph", "[cuda]") {
  require_devices(1);
  bool const mapped = GENERATE(true, false);
  rig<false> r{{.mapped = mapped}};
  stream_of_steps s{k};
  r.capture(s);
  REQUIRE(r.the_worker->start());
  std::vector<routed_id> const ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  r.launch_with(s, ids);
  CHECK(s.counted().wrong == 0);
  REQUIRE(r.the_worker->die());
  u64 const before = s.counted().wrong;
  r.launch_with(s, ids);
  cuda::directed_tally const t = r.devices[0]->counted();
  CHECK(t.from_slots == n_layers);
  CHECK((mapped ? t.from_source : t.nobody) == n_layers);
  CHECK((s.counted().wrong == before) == mapped);  // without a source no id has an answer, and the check says so
  REQUIRE(r.the_worker->start());
  r.launch_with(s, ids);
  CHECK(r.devices[0]->counted().from_slots == 2 * n_layers);
}

TEST_CASE("host-directed: a slow worker without a mapped source is waited for", "[cuda]") {
  require_devices(1);
  rig<false> r{{.mapped = false, .deadline = 100'000}};
  stream_of_steps s{k};
  r.capture(s);
  REQUIRE(r.the_worker->start());
  r.the_worker->slow_down(3'000'000);
  r.launch_with(s, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  cuda::directed_tally const t = r.devices[0]->counted();
  CHECK(t.from_slots == n_layers);
  CHECK(t.overdue > 0);
  CHECK(s.counted().wrong == 0);
}

TEST_CASE("B26 host-directed: the worker of a GPU decides as the host does", "[cuda]") {
  require_devices(1);
  rig<false> r{{}};
  stream_of_steps s{k};
  r.capture(s);
  REQUIRE(r.the_worker->start());
  cache<bundle<false>, move::immediate> here{r.experts_.model, budget::of_slots(9)};
  constexpr u32 n = 200;
  std::vector<routed_id> const all = routes(n, k, 9);
  for (u32 i = 0; i < n; ++i) {
    std::vector<routed_id> const ids(all.begin() + i * n_layers * k, all.begin() + (i + 1) * n_layers * k);
    r.launch_with(s, ids);
    std::vector<i32> slots(ids.size());
    REQUIRE(s.slots.read(slots.data(), slots.size()));
    for (u32 l = 0; l < n_layers; ++l) {
      array_view<routed_id const> const own{ids.data() + l * k, k};
      auto const lease = here.demand(layer_id{l}, own);
      for (u32 j = 0; j < k; ++j) {
        i32 expected = -1;
        for (u32 x = 0; lease && x < lease.view().experts.size(); ++x) {
          if (static_cast<routed_id>(lease.view().experts[x]) == own[j]) {
            expected = static_cast<i32>(r.site_of(l).bank_index({lease.view().slots[x]}));
          }
        }
        REQUIRE(slots[l * k + j] == expected);
      }
    }
  }
  CHECK(s.counted().wrong == 0);
}

TEST_CASE("B45 host-directed: more experts than slots in one step", "[cuda][short]") {
  require_devices(1);
  u32 const own = GENERATE(6u, 4u);
  rig<false> r{{.slots = 4, .own = own}};
  stream_of_steps narrow{k}, wide{6};
  r.capture(narrow);
  r.capture(wide);
  REQUIRE(r.the_worker->start());
  r.launch_with(narrow, {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(narrow.counted().wrong == 0);
  // six misses over four scratch slots of the worker come in two passes, which no graph waits for
  r.launch_with(wide, {10, 11, 12, 13, 14, 15, 10, 11, 12, 13, 14, 15, 10, 11, 12, 13, 14, 15});
  cuda::directed_tally const t = r.devices[0]->counted();
  CHECK(t.refused == n_layers);
  CHECK(t.from_source == (own == 6 ? n_layers : 1));  // the scratch is measured in bytes: layer 1 has small experts
  CHECK(t.nobody == n_layers - t.from_source);
  CHECK((wide.counted().wrong == 0) == (own == 6));
  // the residents are those of before
  r.launch_with(narrow, {3, 2, 1, 0, 3, 2, 1, 0, 3, 2, 1, 0});
  CHECK(narrow.counted().wrong == 0);
  r.the_worker->stop();
  total_counters const total = r.the_worker->cache().observer().total();
  CHECK(total.overflow_steps.value == n_layers);
  CHECK(total[access_kind::hit].value == n_layers * 4);
}

TEST_CASE("B75 host-directed: the captured path holds nothing that synchronises", "[cuda]") {
  require_devices(1);
  rig<true> r{{}};
  stream_of_steps s{k};
  REQUIRE(r.the_worker->start());  // its own calls spoil no capture, whose mode forbids most to all threads
  std::vector<routed_id> const all = routes(1, k, 3);
  s.all = cuda::device_memory<routed_id>(all.size());
  REQUIRE(s.all.write(all.data(), all.size()));
  r.capture(s, 0, cudaStreamCaptureModeGlobal);
  std::size_t n = 0;
  REQUIRE(cudaGraphGetNodes(s.graph, nullptr, &n) == cudaSuccess);
  std::vector<cudaGraphNode_t> nodes(n);
  REQUIRE(cudaGraphGetNodes(s.graph, nodes.data(), &n) == cudaSuccess);
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    REQUIRE(cudaGraphNodeGetType(node, &type) == cudaSuccess);
    CHECK(type == cudaGraphNodeTypeKernel);  // no copy, no host function, no wait for a frozen value
  }
  CHECK(n == 1 + (n_layers * 3 - 1) + (n_layers - 1) + 2 * 2 + 3);
  REQUIRE(cudaGraphLaunch(s.ready, s.stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(s.stream) == cudaSuccess);
  CHECK(s.counted().wrong == 0);

  // each way of bringing ids to the host's code is an error that spoils a capture
  cudaEvent_t event{};
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  for (u32 way = 0; way < 3; ++way) {
    REQUIRE(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    REQUIRE(r.devices[0]->publish(s.stream, 0, s.ids.data(), k) == cudaSuccess);
    cudaError_t const result = way == 0   ? cudaStreamSynchronize(s.stream)
                               : way == 1 ? cudaDeviceSynchronize()
                                          : (cudaEventRecord(event, s.stream), cudaEventQuery(event));
    CHECK(result != cudaSuccess);
    cudaGraph_t spoilt{};
    cudaError_t const ended = cudaStreamEndCapture(s.stream, &spoilt);
    CHECK((ended != cudaSuccess || way == 1));  // what is forbidden is an error, whatever becomes of the capture
    if (spoilt != nullptr) {
      CHECK(cudaGraphDestroy(spoilt) == cudaSuccess);
    }
    (void)cudaGetLastError();
  }
  CHECK(cudaEventDestroy(event) == cudaSuccess);
}

TEST_CASE("B76 host-directed: a graph brings what each launch asks for", "[cuda]") {
  require_devices(1);
  rig<false> r{{}};
  stream_of_steps s{2};
  REQUIRE(r.the_worker->start());
  std::vector<routed_id> const captured_with{3, 4, 3, 4, 3, 4};
  REQUIRE(s.ids.write(captured_with.data(), captured_with.size()));
  r.capture(s);
  for (auto const& route : {std::vector<routed_id>{3, 4}, {4, 3}, {0, 15}, {9, 9}}) {
    std::vector<routed_id> ids;
    for (u32 l = 0; l < n_layers; ++l) {
      ids.insert(ids.end(), route.begin(), route.end());
    }
    r.launch_with(s, ids);
    CHECK(s.counted().wrong == 0);
  }
  CHECK(s.counted().read == u64{8} * (2 * (4096 + 1024) + 96 + 52 + 7));
}

TEST_CASE("B77 host-directed: a captured stream waits for a word, not for an event from outside", "[cuda]") {
  require_devices(1);
  rig<false> r{{}};
  stream_of_steps s{k};
  cudaStream_t transport = r.engine().stream();
  cudaEvent_t arrived{};
  REQUIRE(cudaEventCreateWithFlags(&arrived, cudaEventDisableTiming) == cudaSuccess);
  REQUIRE(cudaEventRecord(arrived, transport) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(s.stream, arrived, 0) == cudaErrorStreamCaptureIsolation);
  cudaGraph_t spoilt{};
  (void)cudaStreamEndCapture(s.stream, &spoilt);
  (void)cudaGetLastError();
  if (spoilt != nullptr) {
    (void)cudaGraphDestroy(spoilt);
  }

  cuda::stream_words const words;
  REQUIRE(words);
  REQUIRE(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(words.wait_until_reached(s.stream, r.channels[0]->device_view().base, 0).code == cudaErrorStreamCaptureUnsupported);
  REQUIRE(cudaStreamEndCapture(s.stream, &spoilt) == cudaSuccess);  // asking has not spoilt it
  CHECK(cudaGraphDestroy(spoilt) == cudaSuccess);

  r.capture(s);
  REQUIRE(r.the_worker->start());
  r.launch_with(s, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  CHECK(s.counted().wrong == 0);
  CHECK(cudaEventDestroy(arrived) == cudaSuccess);
}

TEST_CASE("B80 host-directed: an answer comes after all banks of its experts", "[cuda][short]") {
  require_devices(1);
  rig<false> r{{.slots = 8, .options = {.batches = GENERATE(true, false), .events = GENERATE(1u, 256u)}}};
  stream_of_steps s{k};
  r.capture(s);
  REQUIRE(r.the_worker->start());
  for (u32 i = 0; i < 200; ++i) {  // all of them misses
    std::vector<routed_id> ids;
    for (u32 j = 0; j < n_layers * k; ++j) {
      ids.push_back(static_cast<routed_id>((i * k + j % k) % n_experts));
    }
    r.launch_with(s, ids);
  }
  CHECK(s.counted().wrong == 0);
  CHECK(s.counted().read == u64{200} * k * (2 * (4096 + 1024) + 96 + 52 + 7));
  CHECK(r.engine().ledger().transfers.completed == 200 * n_layers * k);
}

TEST_CASE("host-directed: a stream that is not captured waits by a word for its answer", "[cuda]") {
  require_devices(1);
  rig<false> r{{}};
  stream_of_steps s{k};
  cuda::stream_words const words;
  REQUIRE(words);
  REQUIRE(r.the_worker->start());
  std::vector<routed_id> const ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  REQUIRE(s.ids.write(ids.data(), ids.size()));
  signal::channel_view const there = r.channels[0]->device_view();
  for (u32 sequence = 1; sequence < 40; ++sequence) {
    u32 const l = sequence % n_layers;
    REQUIRE(r.devices[0]->publish(s.stream, l, s.ids.data() + l * k, k) == cudaSuccess);
    REQUIRE(words.wait_until_reached(s.stream, there.answers().cell(sequence), sequence));
    REQUIRE(r.devices[0]->await(s.stream, l, s.ids.data() + l * k, k, s.slots.data() + l * k) == cudaSuccess);
    r.check(s, l);
    REQUIRE(r.devices[0]->finish(s.stream, l) == cudaSuccess);
  }
  REQUIRE(cudaStreamSynchronize(s.stream) == cudaSuccess);
  CHECK(s.counted().wrong == 0);
  CHECK(r.devices[0]->counted().from_slots == 39);
}

TEST_CASE("host-directed: waits for hints expire", "[cuda]") {
  require_devices(1);
  rig<true> r{{}};
  stream_of_steps s{k};
  REQUIRE(r.the_worker->start_by_hand());
  REQUIRE(r.devices[0]->hint(s.stream, 0, s.ids.data(), k) == cudaSuccess);
  REQUIRE(r.devices[0]->await_hint(s.stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(s.stream) == cudaSuccess);
  CHECK(r.devices[0]->counted().hint_waits_expired == 1);
  r.the_worker->stop();
  REQUIRE(r.the_worker->start());
  REQUIRE(r.devices[0]->set({5 * seconds, 5 * seconds}) == cudaSuccess);
  REQUIRE(r.devices[0]->await_hint(s.stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(s.stream) == cudaSuccess);
  CHECK(r.devices[0]->counted().hint_waits_expired == 1);
  CHECK(r.counters()[signal::tally::hints] == 1);
}

// Run by name: times of a machine that others use prove nothing.
TEST_CASE("host-directed: a round trip of the ring beside a read-back", "[.][measure]") {
  require_devices(1);
  constexpr u32 n = 2000;
  rig<false> r{{}};
  stream_of_steps s{k};
  REQUIRE(r.the_worker->start());
  std::vector<routed_id> const ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  REQUIRE(s.ids.write(ids.data(), ids.size()));
  auto const microseconds = [](auto begin) {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  };
  // hits from the second on, in a graph of a hundred
  REQUIRE(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  for (u32 i = 0; i < 100; ++i) {
    REQUIRE(r.devices[0]->ask(s.stream, 0, s.ids.data(), k, s.slots.data()) == cudaSuccess);
    REQUIRE(r.devices[0]->finish(s.stream, 0) == cudaSuccess);
  }
  REQUIRE(cudaStreamEndCapture(s.stream, &s.graph) == cudaSuccess);
  REQUIRE(cudaGraphInstantiate(&s.ready, s.graph, 0) == cudaSuccess);
  for (u32 i = 0; i < 3; ++i) {
    REQUIRE(cudaGraphLaunch(s.ready, s.stream) == cudaSuccess);
  }
  REQUIRE(cudaStreamSynchronize(s.stream) == cudaSuccess);
  u64 const before = r.devices[0]->counted().round_trip;
  auto begin = std::chrono::steady_clock::now();
  for (u32 i = 0; i < n / 100; ++i) {
    REQUIRE(cudaGraphLaunch(s.ready, s.stream) == cudaSuccess);
  }
  REQUIRE(cudaStreamSynchronize(s.stream) == cudaSuccess);
  double const step = microseconds(begin) / n;
  double const ring = static_cast<double>(r.devices[0]->counted().round_trip - before) / 1000 / n;
  cuda::mapped_memory<routed_id> pinned{k};
  begin = std::chrono::steady_clock::now();
  for (u32 i = 0; i < n; ++i) {
    REQUIRE(cudaMemcpyAsync(pinned.data(), s.ids.data(), k * sizeof(routed_id), cudaMemcpyDeviceToHost, s.stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(s.stream) == cudaSuccess);
  }
  double const read_back = microseconds(begin) / n;
  WARN("from publication to the answer, decided: " << ring << " us; a whole step, two nodes of a graph: " << step
                                                    << " us; a pinned read-back with a synchronisation: " << read_back
                                                    << " us");
  CHECK(r.devices[0]->counted().from_slots == 300 + n);
  CHECK(ring <= 0.6 * read_back);
}
