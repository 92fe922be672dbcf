// SPDX-License-Identifier: Apache-2.0
// What can go wrong between a decision and the bytes: memory, streams, capture, failing copies.

#include <warmset/cache.hpp>
#include <warmset/move/counting.hpp>
#include <warmset/move/failing.hpp>
#include <warmset/move/host.hpp>
#include <warmset/observe/health_facts.hpp>
#include <warmset/observe/laws.hpp>
#include <warmset/table/bundles.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <string>
#include <vector>

namespace warmset::scenario {
namespace {

using move::memory_kind;
using move::read_fault;
using move::stream_call;
using ids = std::vector<routed_id>;

struct small : default_policy {
  using score = warmset::score::lru;
  using guard = warmset::guard::none;
  using predictor = predict::supplied;
  using decay = no_decay;
  static constexpr u32 max_experts = 16;
};

constexpr u32 n_experts = 16;
constexpr layer_id layer{3};
constexpr move::host_options by_hand{.bytes_per_tick = 1, .ticks_per_poll = 0};

geometry one_layer(std::vector<u64> banks) {
  return geometry{{{layer, n_experts, 2, std::move(banks)}}};
}
std::vector<u64> const unequal = {40, 24, 11};
constexpr u64 expert_bytes = 75;

/// A cache of one layer over a host backend.
struct rig {
  cache<small, move::host> c;

  explicit rig(move::host_options options, u32 slots = 4, geometry model = one_layer(unequal),
               move::shared_driver driver = {})
      : c(std::move(model), budget::of_slots(slots), small::numbers,
          move::host(options, move::patterned_source{}, std::move(driver))) {
    check();
  }

  move::host& host() { return c.backend(); }
  move::virtual_driver& driver() { return host().driver(); }

  step_view step(ids const& experts) {
    step_view const v = c.step(layer, experts);
    check();
    return v;
  }
  void settle() {
    c.settle();
    check();
  }
  void finish() {
    host().advance_to_idle();
    settle();
  }
  void check() {
    REQUIRE(c.audit());
    REQUIRE(host().ledger().balances());
    REQUIRE(check_laws(c.observer().total(), c.slot_counts()));
  }

  bool resident(u32 e) const { return c.is_resident({layer, expert_id{e}}); }
  u32 generation(u32 slot) { return c.pools()[0].view().generation(slot); }
  read_fault read(u32 slot, u32 expert, u32 bank) {
    return host().read(0, slot_id{slot}, {layer, expert_id{expert}}, generation(slot), bank).fault;
  }
  transfer word(u32 slot) { return arrival::state(host().arrivals(0)[slot]); }
  /// Every resident slot holds its expert.
  bool all_right() {
    auto const& view = c.pools()[0].view();
    bool right = true;
    for (u32 e = 0; e < n_experts; ++e) {
      u32 const where = view.expert(e).where & expert_word::slot_mask;
      for (u32 bank = 0; resident(e) && bank < host().layout(0).n_banks(); ++bank) {
        right = right && read(where - 1, e, bank) == read_fault::none;
      }
    }
    return right;
  }
};

/// A backend that would let a scheduler read its slots from the host.
struct managed : move::external {
  static constexpr memory_kind slot_memory = memory_kind::mapped;
};

move::link_model byte_per_tick() {
  move::link_model m;
  m.bytes = 1;
  return m;
}

}  // namespace

TEST_CASE("B34 shrinking while a prediction is in flight frees every slot once") {
  for (u64 when : {0u, 10u, 74u, 75u}) {  // the transfer takes 75 ticks
    for (u32 capacity : {0u, 1u, 2u, 3u}) {
      CAPTURE(when, capacity);
      rig r{by_hand};
      (void)r.step({0, 1});
      r.finish();
      REQUIRE(r.c.advise(layer, ids{5}) == 1);
      r.host().advance(when);
      REQUIRE(r.c.resize(layer, capacity));
      r.check();
      u64 const released = r.host().ledger().released;
      r.finish();
      CHECK(r.c.pools()[0].view().header().retired == 4 - capacity);
      CHECK(r.host().ledger().released == released);  // no copy was begun for it
      CHECK(r.all_right());
      REQUIRE(r.c.resize(layer, 4));
      r.check();
      (void)r.step({6, 7});
      r.finish();
      CHECK(r.resident(6));
      CHECK(r.resident(7));
      CHECK(r.all_right());
      CHECK(r.host().ledger().held() <= 4 * expert_bytes);
    }
  }
}

TEST_CASE("B38 an abandoned swap leaves residency as before") {
  SECTION("decided and never committed: not a bit has changed, and no byte") {
    rig r{by_hand};
    (void)r.step({0, 1});
    r.finish();
    (void)r.step({2, 3});
    r.finish();
    auto const before =
        std::vector<std::byte>(r.host().memory(0).begin(), r.host().memory(0).end());
    step_view const v = r.c.plan(layer, ids{8, 9});
    CHECK(v.loads.size() == 2);
    r.finish();
    for (u32 e : {0u, 1u, 2u, 3u}) {
      CHECK(r.resident(e));
    }
    CHECK(std::memcmp(before.data(), r.host().memory(0).data(), before.size()) == 0);
    CHECK(r.host().ledger().copies.issued == 6);  // two runs, three banks
  }
  SECTION("the backend stops at any tick of the swap: the others stay, nothing is half there") {
    for (u64 tick = 0; tick <= 2 * expert_bytes; tick += 5) {
      CAPTURE(tick);
      rig r{by_hand};
      (void)r.step({0, 1});
      r.finish();
      (void)r.step({2, 3});
      r.finish();
      (void)r.step({8, 10});
      r.host().advance(tick);
      r.host().close();
      r.settle();
      CHECK(r.host().idle());
      CHECK(r.resident(2));
      CHECK(r.resident(3));
      CHECK(r.all_right());
      table_counts const now = r.c.slot_counts();
      CHECK(now.in_flight[0] + now.in_flight[1] == 0);
    }
  }
}

TEST_CASE("B39 a source with live references is not released") {
  move::virtual_driver d{{byte_per_tick()}};
  u32 const stream = d.make_stream(0);
  move::block_id const source = d.allocate_host(memory_kind::pinned, 64).block;
  move::block_id const slots = d.allocate(0, 64).block;
  REQUIRE(d.copy(stream, {slots, 0, source, 0, 32}));
  REQUIRE(d.copy(stream, {slots, 32, source, 32, 32}));
  CHECK(d.release(source).why == reason::in_use);
  d.streams().advance(32);  // one of two copies has ended
  CHECK(d.release(source).why == reason::in_use);
  d.streams().advance(32);
  // a graph refers to it as long as it can be launched
  u32 graph = 0;
  REQUIRE(d.begin_capture(stream));
  REQUIRE(d.copy(stream, {slots, 0, source, 0, 32}));
  REQUIRE(d.end_capture(stream, graph));
  CHECK(d.release(source).why == reason::in_use);
  d.destroy_graph(graph);
  CHECK(d.release(source));
  CHECK(d.memory().ledger(move::host_tier).held() == 0);
}

TEST_CASE("B40 a device writes only its own range") {
  auto driver = move::shared_driver::make({byte_per_tick()}, {{4096, 0}, {4096, 0}});
  move::host_options first = by_hand;
  move::host_options second = by_hand;
  second.device = 1;
  rig a{first, 3, one_layer(unequal), driver};
  rig b{second, 3, one_layer(unequal), driver};
  auto const snapshot = [](rig& r) {
    return std::vector<std::byte>(r.host().memory(0).begin(), r.host().memory(0).end());
  };
  for (u32 i = 0; i < 40; ++i) {
    rig& active = i % 2 == 0 ? a : b;
    rig& other = i % 2 == 0 ? b : a;
    auto const before = snapshot(other);
    (void)active.step({static_cast<routed_id>(i % 16), static_cast<routed_id>((i * 5 + 1) % 16)});
    active.finish();
    CHECK(active.all_right());
    CHECK(other.all_right());
    CHECK(before == snapshot(other));
  }
  CHECK(driver->memory().device(a.host().block(0)) == 0);
  CHECK(driver->memory().device(b.host().block(0)) == 1);
}

TEST_CASE("B54 evicting k slabs releases exactly their bytes, at every alignment") {
  SECTION("slots that are overwritten") {
    for (u64 odd = 1; odd <= 64; odd += 7) {
      CAPTURE(odd);
      std::vector<u64> const banks = {256 - odd, 64 + odd, odd};
      u64 const slab = 320 + odd;
      rig r{{}, 8, one_layer(banks)};
      for (routed_id e : {0, 2, 4, 6}) {  // two by two: eight residents
        (void)r.step({e, e + 1});
        r.finish();
      }
      REQUIRE(r.host().ledger().held() == 8 * slab);
      for (u32 k = 1; k <= 4; ++k) {
        u64 const before = r.host().ledger().released;
        ids evicting;
        for (u32 i = 0; i < k; ++i) {
          evicting.push_back(static_cast<routed_id>((8 + k * (k - 1) / 2 + i) % 16));
        }
        (void)r.step(evicting);
        r.finish();
        REQUIRE(r.c.last_plan().n_loads == k);
        CHECK(r.host().ledger().released - before == k * slab);
        CHECK(r.host().ledger().held() == 8 * slab);
      }
    }
  }
  SECTION("blocks that are given back") {
    for (u64 alignment : {1u, 2u, 64u, 256u, 4096u, 100u}) {
      for (u64 bytes : {1u, 63u, 64u, 255u, 256u, 257u, 4097u}) {
        move::virtual_driver d;
        std::vector<move::block_id> blocks;
        for (u32 i = 0; i < 6; ++i) {
          blocks.push_back(d.allocate(0, bytes, alignment).block);
        }
        u64 const slab = ceil_div(bytes, alignment) * alignment;
        for (u64 k = 1; k <= 6; ++k) {
          CHECK(d.release(blocks[k - 1]));
          CHECK(d.memory().ledger(0).held() == (6 - k) * slab);
          CHECK(d.memory().ledger(0).released == k * slab);
        }
      }
    }
  }
}

TEST_CASE("B74 cached memory never reports host-readable") {
  static_assert(!move_backend<managed>, "slots in host-readable memory are no backend");
  static_assert(move::slot_memory_of<move::host>() == memory_kind::device);
  static_assert(!move::is_host_readable(move::slot_memory_of<move::external>()));
  rig r{{}};
  CHECK(r.driver().memory().host_view(r.host().block(0)).empty());
  move::allocation const pinned = r.driver().allocate_host(memory_kind::pinned, 8);
  CHECK(r.driver().memory().host_view(pinned.block).size() == 8);
}

namespace {

/// Experts in mapped host memory, two slots on the device, a routed pair in mapped words.
struct captured_step {
  move::virtual_driver d{{byte_per_tick()}};
  move::patterned_source source{5};
  static constexpr u64 bytes = 48;
  u32 stream = d.make_stream(0);
  move::block_id bank = d.allocate_host(memory_kind::mapped, n_experts* bytes).block;
  move::block_id slots = d.allocate(0, 2 * bytes).block;
  move::block_id routed = d.allocate_host(memory_kind::mapped, 8).block;
  u32 wrong = 0;
  u32 checked = 0;

  captured_step() {
    for (u32 e = 0; e < n_experts; ++e) {
      source.read({layer, expert_id{e}}, 0, 0,
                  d.memory().host_view(bank).subspan(e * bytes, bytes));
    }
  }
  void route(u32 a, u32 b) {
    u32 const words[] = {a, b};
    std::memcpy(d.memory().host_view(routed).data(), words, sizeof words);
  }
  u32 routed_to(u32 slot) {
    u32 e = 0;
    std::memcpy(&e, d.memory().host_view(routed).data() + 4 * slot, 4);
    return e;
  }

  /// The experts' kernel: uses what lies in the slots and notes whether it is what was routed.
  static void use(void* context, move::kernel_access& access) {
    captured_step& s = *static_cast<captured_step*>(context);
    for (u32 slot = 0; slot < 2; ++slot) {
      expert_key const key{layer, expert_id{*access.word(s.routed, slot)}};
      s.wrong += !s.source.equals(key, 0, 0, access.bytes(s.slots, slot * bytes, bytes));
      ++s.checked;
    }
  }
  /// The transport's kernel: reads the routed ids on the device and gathers.
  static void gather(void* context, move::kernel_access& access) {
    captured_step& s = *static_cast<captured_step*>(context);
    for (u32 slot = 0; slot < 2; ++slot) {
      u64 const e = *access.word(s.routed, slot);
      auto const from = access.bytes(s.bank, e * bytes, bytes);
      std::memcpy(access.bytes(s.slots, slot * bytes, bytes).data(), from.data(), bytes);
    }
  }
  status copy_routed(u32 slot) {
    return d.copy(stream, {slots, slot * bytes, bank, routed_to(slot) * bytes, bytes});
  }
  u64 host_calls() const {
    u64 n = 0;
    for (stream_call c :
         {stream_call::synchronise, stream_call::query, stream_call::copy_pageable,
          stream_call::copy_batch, stream_call::launch_host, stream_call::launch_callback,
          stream_call::allocate, stream_call::release}) {
      n += d.calls_in_capture(c);
    }
    return n;
  }
};

}  // namespace

TEST_CASE("B75 the captured producer path holds nothing that synchronises") {
  captured_step s;
  u32 graph = 0;
  REQUIRE(s.d.begin_capture(s.stream));
  REQUIRE(s.d.launch(s.stream, {captured_step::gather, &s, 10}));
  REQUIRE(s.d.launch(s.stream, {captured_step::use, &s, 10}));
  CHECK(s.host_calls() == 0);
  REQUIRE(s.d.end_capture(s.stream, graph));
  CHECK(s.d.n_nodes(graph) == 2);

  // each way of bringing the ids to the host's code is an error that spoils the capture
  move::block_id const pageable = s.d.allocate_host(memory_kind::pageable, 8).block;
  u32 const event = s.d.make_event();
  REQUIRE(s.d.record(event, s.stream));
  s.d.streams().advance_to_idle();
  for (u32 way = 0; way < 4; ++way) {
    CAPTURE(way);
    REQUIRE(s.d.begin_capture(s.stream));
    REQUIRE(s.d.launch(s.stream, {captured_step::gather, &s, 10}));
    status const result = way == 0   ? s.d.synchronise(s.stream)
                          : way == 1 ? s.d.copy(s.stream, {pageable, 0, s.slots, 0, 8})
                          : way == 2 ? s.d.query(event)
                                     : s.d.launch_callback(
                                           s.stream, [](void*) {}, nullptr);
    CHECK_FALSE(result);
    CHECK_FALSE(s.d.capture_is_valid());
    CHECK_FALSE(s.d.end_capture(s.stream, graph));
  }

  // a host function is taken, and shows in the count of what the path must not hold
  REQUIRE(s.d.begin_capture(s.stream));
  u64 const before = s.host_calls();
  CHECK(s.d.launch_host(
      s.stream, [](void*) {}, nullptr));
  CHECK(s.host_calls() == before + 1);
  CHECK(s.d.end_capture(s.stream, graph));
}

TEST_CASE("B76 captured copies replay the wrong expert; indirection through the device does not") {
  u32 const routes[][2] = {{3, 4}, {4, 3}, {0, 15}, {9, 9}};
  SECTION("frozen addresses") {
    captured_step s;
    u32 graph = 0;
    s.route(3, 4);
    REQUIRE(s.d.begin_capture(s.stream));
    REQUIRE(s.copy_routed(0));
    REQUIRE(s.copy_routed(1));
    REQUIRE(s.d.launch(s.stream, {captured_step::use, &s}));
    REQUIRE(s.d.end_capture(s.stream, graph));
    for (auto const& r : routes) {
      u32 const before = s.wrong;
      s.route(r[0], r[1]);
      REQUIRE(s.d.launch_graph(graph, s.stream));
      s.d.streams().advance_to_idle();
      CHECK((s.wrong - before) == (r[0] != 3 ? 1u : 0u) + (r[1] != 4 ? 1u : 0u));
    }
    CHECK(s.wrong == 6);
  }
  SECTION("the ids are read where they are") {
    captured_step s;
    u32 graph = 0;
    s.route(3, 4);
    REQUIRE(s.d.begin_capture(s.stream));
    REQUIRE(s.d.launch(s.stream, {captured_step::gather, &s, 20}));
    REQUIRE(s.d.launch(s.stream, {captured_step::use, &s}));
    REQUIRE(s.d.end_capture(s.stream, graph));
    for (auto const& r : routes) {
      s.route(r[0], r[1]);
      REQUIRE(s.d.launch_graph(graph, s.stream));
      s.d.streams().advance_to_idle();
    }
    CHECK(s.checked == 8);
    CHECK(s.wrong == 0);
    CHECK(s.d.access_faults() == 0);
  }
}

TEST_CASE("B77 a captured stream does not wait for an event from outside") {
  captured_step s;
  u32 const transport = s.d.make_stream(0);
  u32 const arrived = s.d.make_event();
  u32 const fork = s.d.make_event();
  u32 graph = 0;
  s.route(1, 2);
  SECTION("of an uncaptured stream: an error that spoils the capture") {
    REQUIRE(s.d.copy(transport, {s.slots, 0, s.bank, 0, 48}));
    REQUIRE(s.d.record(arrived, transport));
    REQUIRE(s.d.begin_capture(s.stream));
    CHECK(s.d.wait(s.stream, arrived).why == reason::unsupported);
    CHECK(s.d.broken_by() == stream_call::wait_foreign);
    CHECK_FALSE(s.d.end_capture(s.stream, graph));
  }
  SECTION("transport forks and joins inside the capture") {
    REQUIRE(s.d.begin_capture(s.stream));
    REQUIRE(s.d.record(fork, s.stream));
    REQUIRE(s.d.wait(transport, fork));
    REQUIRE(s.d.launch(transport, {captured_step::gather, &s, 30}));
    REQUIRE(s.d.record(arrived, transport));
    REQUIRE(s.d.wait(s.stream, arrived));
    REQUIRE(s.d.launch(s.stream, {captured_step::use, &s, 5}));
    REQUIRE(s.d.end_capture(s.stream, graph));
    REQUIRE(s.d.launch_graph(graph, s.stream));
    s.d.streams().advance_to_idle();
    CHECK(s.checked == 2);
    CHECK(s.wrong == 0);
  }
  SECTION("or the stream waits for a word that the transport writes") {
    move::block_id const word = s.d.allocate_host(memory_kind::mapped, 4).block;
    REQUIRE(s.d.begin_capture(s.stream));
    REQUIRE(s.d.wait_word(s.stream, word, 0, 1));
    REQUIRE(s.d.launch(s.stream, {captured_step::use, &s}));
    REQUIRE(s.d.end_capture(s.stream, graph));
    REQUIRE(s.d.launch_graph(graph, s.stream));
    REQUIRE(s.copy_routed(0).why == reason::none);  // in the same stream it would wait for ever:
    s.d.streams().advance_to_idle();                // so the transport has its own
    CHECK(s.checked == 0);
    REQUIRE(s.d.copy(transport, {s.slots, 0, s.bank, 48, 48}));
    REQUIRE(s.d.copy(transport, {s.slots, 48, s.bank, 96, 48}));
    s.d.streams().advance_to_idle();
    s.d.memory().host_view(word)[0] = std::byte{1};
    s.d.streams().advance_to_idle();
    CHECK(s.checked == 2);
    CHECK(s.wrong == 0);
  }
}

TEST_CASE("B80 a slot is published after all of its banks, expert by expert") {
  rig r{by_hand};
  step_view const v = r.step({2, 5});  // no neighbours: six copies
  u32 const first = v.slot_of(expert_id{2}).value;
  u32 const second = v.slot_of(expert_id{5}).value;
  u32 apart = 0;
  for (u32 tick = 0; tick <= 2 * expert_bytes; ++tick) {
    for (u32 slot : {first, second}) {
      u32 right = 0;
      for (u32 bank = 0; bank < 3; ++bank) {
        right += r.read(slot, slot == first ? 2 : 5, bank) == read_fault::none;
      }
      CHECK((r.word(slot) == transfer::arrived) == (right == 3));
    }
    CHECK_FALSE((r.word(second) == transfer::arrived && r.word(first) != transfer::arrived));
    apart += r.word(first) == transfer::arrived && r.word(second) == transfer::loading;
    r.host().advance(1);
  }
  CHECK(apart == expert_bytes);  // so long the first is ready and the reader of the second is not
}

TEST_CASE("B81 failed copies count as failed and move no byte") {
  rig r{by_hand, 6};
  r.host().fail_when([](void*, move::copy_attempt const& a) { return a.copy.bank == 2; });
  for (routed_id e = 0; e < 10; ++e) {
    (void)r.c.advise(layer, ids{e});
    for (u32 tick = 0; tick < 80; tick += 3) {
      r.host().advance(3);
      move::move_ledger const& l = r.host().ledger();
      CHECK(l.copies.issued == l.copies.completed + l.copies.failed + l.copies.in_flight);
      CHECK(l.bytes.issued == l.bytes.completed + l.bytes.failed + l.bytes.in_flight);
    }
    r.settle();
  }
  move::move_ledger const& l = r.host().ledger();
  CHECK(l.copies.failed == 10);
  CHECK(l.copies.completed == 20);
  CHECK(l.bytes.completed == 10 * 64);
  CHECK(l.bytes.failed == 10 * 11);
  CHECK(l.transfers.failed == 10);
  total_counters const c = r.c.observer().total();
  CHECK(c.failed[static_cast<u32>(intent::speculative)].value == 10);
  CHECK(c.bytes[static_cast<u32>(intent::speculative)].value == 0);
  CHECK(c.slabs[static_cast<u32>(intent::speculative)].value == 0);
  for (u32 e = 0; e < 10; ++e) {
    CHECK_FALSE(r.resident(e));
  }
}

TEST_CASE("B82 memory that is refused beside the cache does not touch the demand path") {
  u64 const lane = 2 * expert_bytes;
  u64 const cache_bytes = [] {
    rig r{{}};
    return r.host().ledger().allocated;
  }();
  auto driver = move::shared_driver::make({byte_per_tick()}, {{cache_bytes + 52 * lane, 0}});
  rig r{{}, 4, one_layer(unequal), driver};
  std::vector<move::block_id> lanes;
  auto const serve = [&](u32 i) {
    (void)r.step({static_cast<routed_id>(i % 16), static_cast<routed_id>((i + 7) % 16)});
    r.finish();
    CHECK(r.resident(i % 16));
    CHECK(r.resident((i + 7) % 16));
    CHECK(r.all_right());
  };
  for (u32 i = 0; i < 60; ++i) {
    move::allocation const a = driver->allocate(0, lane);
    CHECK(a.why == (i < 52 ? reason::none : reason::over_budget));
    if (a) {
      lanes.push_back(a.block);
    }
    serve(i);
  }
  CHECK(driver->memory().ledger(0).left() == 0);
  CHECK(driver->release(lanes.back()));
  driver->faults().schedule(move::fault_point::allocate, move::failure_schedule::all());
  CHECK(driver->allocate(0, lane).why == reason::no_memory);
  serve(3);
  CHECK(driver->memory().ledger(0).left() == lane);
  driver->faults().clear();
  CHECK(driver->allocate(0, lane));
}

TEST_CASE("B82 nor does a copy engine that is slow, paused or dead") {
  using kind = move::engine_state::kind;
  rig r{by_hand};
  (void)r.step({0, 1});
  r.finish();
  r.host().set_copy_engine({kind::running, 10});
  (void)r.step({2, 3});
  CHECK(r.host().advance_to_idle() == 10 * 2 * expert_bytes);
  r.settle();
  CHECK(r.resident(3));

  r.host().set_copy_engine({kind::paused, 1});
  CHECK(r.c.advise(layer, ids{8}) == 1);
  step_view v = r.step({8, 2});
  r.host().advance(10'000);
  r.settle();
  CHECK(v.how[0] == access_kind::late);
  CHECK(r.word(v.slot_of(expert_id{8}).value) == transfer::loading);  // it waits, and says so
  CHECK(r.all_right());
  r.host().set_copy_engine({});
  r.finish();
  CHECK(r.resident(8));

  r.host().set_copy_engine({kind::dead, 1});
  v = r.step({9, 2});
  r.finish();
  CHECK_FALSE(r.resident(9));
  CHECK(r.resident(2));
  CHECK(r.word(v.slot_of(expert_id{9}).value) == transfer::failed);
  CHECK(r.c.serve_failed() == 1);  // scratch is filled by the same engine
  r.finish();
  CHECK(r.word(4) == transfer::failed);
  r.host().set_copy_engine({});
  (void)r.step({9, 2});
  r.finish();
  CHECK(r.resident(9));
  CHECK(r.all_right());
}

TEST_CASE("B96 small entries have a batch of their own") {
  // experts with one large and one small bank over a link on which a small entry slows its batch
  move::link_model link = byte_per_tick();
  link.bytes = 1024;
  link.latency = 50;
  link.per_small_copy = 400;
  link.large_from = 1024;
  auto const ticks = [&](u64 large_copy) {
    move::host_options options;
    options.ticks_per_poll = 0;
    options.batches = true;
    options.large_copy = large_copy;
    rig r{options, 8, one_layer({4096, 64}), move::shared_driver::make({link})};
    (void)r.step({0, 2, 4, 6});
    u64 const result = r.host().advance_to_idle();
    r.settle();
    CHECK(r.host().ledger().copies.completed == 8);
    CHECK(r.host().ledger().large_copies == (large_copy == 1024 ? 4 : 8));
    CHECK(r.host().ledger().batches == (large_copy == 1024 ? 2 : 1));
    CHECK(r.all_right());
    return result;
  };
  CHECK(ticks(1024) == (50 + 4 * 4) + (50 + 4 * 401));
  CHECK(ticks(0) == 50 + 4 * 404 + 4 * 401);  // one batch for all: the large ones wait as well
}

TEST_CASE("B98 a consumer waits for its own entry, not for a later copy") {
  rig r{by_hand};
  step_view const v = r.step({2, 5});
  u32 const slot = v.slot_of(expert_id{2}).value;
  while (r.word(slot) == transfer::loading) {
    r.host().advance(1);
  }
  CHECK(r.host().ledger().copies.in_flight == 3);
  for (u32 bank = 0; bank < 3; ++bank) {
    (void)r.host().enqueue_read(
        {0, slot_id{slot}, {layer, expert_id{2}}, r.generation(slot), bank});
  }
  r.host().advance(0);
  REQUIRE(r.host().reports().size() == 3);
  CHECK(r.host().n_faults() == 0);
  CHECK(r.host().ledger().copies.in_flight == 3);
  r.finish();
  CHECK(r.host().now() == 2 * expert_bytes);

  // by events: each copy has its own, and a later one in the same stream holds nobody up
  move::virtual_driver& d = r.driver();
  u32 const copies = d.make_stream(0), consumer = d.make_stream(0);
  u32 const mine = d.make_event(), later = d.make_event();
  move::block_id const source = d.allocate_host(memory_kind::pinned, 500).block;
  move::block_id const staged = d.allocate(0, 500).block;
  REQUIRE(d.copy(copies, {staged, 0, source, 0, 10}));
  REQUIRE(d.record(mine, copies));
  REQUIRE(d.copy(copies, {staged, 10, source, 10, 490}));
  REQUIRE(d.record(later, copies));
  REQUIRE(d.wait(consumer, mine));
  bool ran = false;
  REQUIRE(d.launch(
      consumer,
      {[](void* context, move::kernel_access&) { *static_cast<bool*>(context) = true; }, &ran}));
  d.streams().advance(10);
  CHECK(ran);
  CHECK(d.query(mine));
  CHECK(d.query(later).why == reason::busy);
}

TEST_CASE("R32 an install on a device without slots is an error, not a copy to another device") {
  auto driver = move::shared_driver::make({byte_per_tick()}, {{4096, 0}, {4096, 0}});
  rig r{by_hand, 4, one_layer(unequal), driver};
  auto const before = std::vector<std::byte>(r.host().memory(0).begin(), r.host().memory(0).end());
  move::block_id const source = driver->allocate_host(memory_kind::mapped, 100).block;
  u32 const stream = driver->make_stream(1);
  CHECK(driver->copy(stream, {r.host().block(0), 0, source, 0, 75}).why == reason::wrong_device);
  move::block_copy const batch[] = {{r.host().block(0), 0, source, 0, 75}};
  CHECK(driver->copy_batch(stream, batch).why == reason::wrong_device);
  struct gather {
    move::block_id slots;
    bool saw = false;
  } g{r.host().block(0)};
  REQUIRE(driver->launch(stream, {[](void* context, move::kernel_access& a) {
                                    gather& self = *static_cast<gather*>(context);
                                    self.saw = !a.bytes(self.slots, 0, 75).empty();
                                  },
                                  &g}));
  driver->streams().advance_to_idle();
  CHECK_FALSE(g.saw);
  CHECK(driver->access_faults() == 1);
  CHECK(std::memcmp(before.data(), r.host().memory(0).data(), before.size()) == 0);
  CHECK(driver->memory().ledger(1).allocated == 0);
  move::host_options third = by_hand;
  third.device = 2;
  CHECK_THROWS_AS(rig(third, 4, one_layer(unequal), driver), config_error);
}

TEST_CASE("R33 a staging ring has at least two slots") {
  move::host_options staged = by_hand;
  staged.pageable_source = true;
  staged.staging_rate = 1;
  for (u32 slots : {0u, 1u}) {
    staged.staging_slots = slots;
    CHECK_THROWS_AS(rig(staged), config_error);
  }
  auto const ticks = [&](u32 slots) {
    staged.staging_slots = slots;
    rig r{staged, 4, one_layer({50})};
    (void)r.step({1, 3, 5, 7});
    u64 const result = r.host().advance_to_idle();
    r.settle();
    CHECK(r.all_right());
    return result;
  };
  CHECK(ticks(2) == 5 * 50);  // staging and copying overlap: 8 · 50 without
  CHECK(ticks(4) == 5 * 50);
}

TEST_CASE("R35 B68 a pool has the memory of its own device, never the sum") {
  std::vector<move::virtual_device> const four(4, {1000, 0});
  auto driver = move::shared_driver::make({byte_per_tick()}, four);
  for (u32 device = 0; device < 4; ++device) {
    move::host_options options = by_hand;
    options.device = device;
    try {
      rig r{options, 16, one_layer(unequal), driver};  // 16 + 2 slots of 75 bytes
      FAIL("it does not fit");
    } catch (config_error const& e) {
      std::string const text = e.what();
      CHECK(text.find("device " + std::to_string(device)) != std::string::npos);
      CHECK(text.find("1000 bytes") != std::string::npos);
    }
    CHECK(driver->memory().ledger(device).held() == 0);
  }
  // what fits one of them is charged to that one
  move::host_options options = by_hand;
  options.device = 2;
  {
    rig r{options, 1, one_layer(unequal), driver};
    CHECK(driver->memory().ledger(2).held() == r.host().ledger().allocated);
    CHECK(driver->memory().ledger(0).held() == 0);
  }
  CHECK(driver->memory().ledger(2).held() == 0);
}

TEST_CASE("R39 a source that cannot be pinned is staged and said, or refused") {
  auto const serves = [](rig& r) {
    for (routed_id e = 0; e < 12; ++e) {
      (void)r.step({e, static_cast<routed_id>((e * 7) % 16)});
      r.finish();
      CHECK(r.all_right());
    }
  };
  auto const check_health = [](auto const& c, bool is_staged) {
    health_monitor monitor{health_setup_of(c)};
    CHECK(monitor.report().state == (is_staged ? health_state::degraded : health_state::active));
    CHECK(monitor.report().why == (is_staged ? reason::pageable : reason::none));
    health_event e{};
    CHECK(monitor.next_event(e) == is_staged);
    CHECK((!is_staged || (e.condition == health_condition::pageable &&
                          e.level == health_level::warning && e.step == 0)));
  };
  {
    rig r{by_hand};
    CHECK(r.host().degraded() == reason::none);
    CHECK(r.host().ledger().staging == 0);
    check_health(r.c, false);
  }
  move::host_options pageable = by_hand;
  pageable.pageable_source = true;
  {
    rig r{pageable};
    CHECK(r.host().degraded() == reason::pageable);
    CHECK(r.host().ledger().staging == 4 * 40);
    check_health(r.c, true);
    serves(r);
  }
  for (bool const is_staged : {false, true}) {  // whatever stands before it
    using adapted = move::counting<move::failing<move::host>>;
    cache<small, adapted> c{
        one_layer(unequal), budget::of_slots(4), small::numbers,
        adapted{move::failing<move::host>{{}, move::host{is_staged ? pageable : by_hand}}}};
    check_health(c, is_staged);
  }
  pageable.pageable = move::if_pageable::fail;
  CHECK_THROWS_AS(rig(pageable), config_error);

  // the same where pinning fails at run time: it is the second allocation of open
  for (bool fails_fast : {false, true}) {
    auto driver = move::shared_driver::make({byte_per_tick()});
    driver->faults().schedule(move::fault_point::allocate, move::failure_schedule::nth(1));
    move::host_options options = by_hand;
    options.pageable = fails_fast ? move::if_pageable::fail : move::if_pageable::stage;
    if (fails_fast) {
      CHECK_THROWS_AS(rig(options, 4, one_layer(unequal), driver), config_error);
      CHECK(driver->memory().ledger(0).held() == 0);
    } else {
      rig r{options, 4, one_layer(unequal), driver};
      CHECK(r.host().degraded() == reason::pageable);
      check_health(r.c, true);
      serves(r);
    }
  }
}

TEST_CASE("R41 experts of 1.00 and 1.08 MiB lie in two pools of exact stride") {
  constexpr u64 MiB = u64{1} << 20;
  constexpr u64 larger = MiB * 108 / 100;
  geometry model{{{layer_id{0}, 4, 2, {MiB}}, {layer_id{1}, 4, 2, {larger}}}};
  rig r{{.compare_bytes = true}, 2, model};
  REQUIRE(r.host().n_groups() == 2);
  CHECK(r.host().layout(0).stride(0) == MiB);
  CHECK(r.host().layout(1).stride(0) == larger);
  for (u32 pool = 0; pool < 2; ++pool) {
    auto const at = [&](u32 slot) { return r.host().raw(pool, slot_id{slot}, 0).data(); };
    CHECK(at(1) - at(0) == static_cast<std::ptrdiff_t>(pool == 0 ? MiB : larger));
  }
  CHECK(r.host().ledger().allocated <= 4 * (MiB + larger) + 2 * group_layout::alignment);
  for (u32 l = 0; l < 2; ++l) {
    (void)r.c.step(layer_id{l}, ids{1, 3});
    r.finish();
    for (u32 slot = 0; slot < 2; ++slot) {
      CHECK(r.host().read(l, slot_id{slot}, {layer_id{l}, expert_id{2 * slot + 1}}, 1, 0));
    }
  }
}

TEST_CASE("R52 the bytes of both tiers are reported, and the host's copies stay") {
  rig r{{}};
  u64 const source = n_experts * expert_bytes;
  CHECK(r.host().ledger().source == source);
  CHECK(r.host().ledger().allocated == r.c.effective_budget().effective_bytes);
  for (routed_id e = 0; e < 16; ++e) {
    (void)r.step({e, static_cast<routed_id>((e + 3) % 16)});
    r.finish();
    CHECK(r.host().ledger().source == source);  // an install copies, it does not move
    CHECK(r.host().ledger().held() <= 4 * expert_bytes);
  }
  CHECK(r.host().ledger().held() == 4 * expert_bytes);
  CHECK(r.driver().memory().ledger(0).held() == r.host().ledger().allocated);
}

TEST_CASE("R63 the size from which a copy counts as large is a parameter, and copies are counted") {
  for (u64 large_copy : {u64{0}, u64{12}, u64{30}, u64{41}, u64{200}}) {
    CAPTURE(large_copy);
    move::host_options options;
    options.large_copy = large_copy;
    rig r{options, 8};
    (void)r.step({0, 1, 4, 6});  // 0 and 1 are neighbours: copies of 80, 48, 22; twice 40, 24, 11
    r.finish();
    u64 large = 0;
    for (u64 bytes : {80u, 48u, 22u, 40u, 24u, 11u, 40u, 24u, 11u}) {
      large += bytes >= large_copy;
    }
    move::move_ledger const& l = r.host().ledger();
    CHECK(l.large_copies == large);
    CHECK(l.large_copies + l.small_copies == 9);
    CHECK(l.copies.completed == 9);
    CHECK(l.merged == 1);
    CHECK(l.batches == (large != 0 && large != 9 ? 2u : 1u));
    CHECK(r.all_right());
  }
  CHECK(move::large_copy_bytes == 256 * 1024);
}

}  // namespace warmset::scenario
