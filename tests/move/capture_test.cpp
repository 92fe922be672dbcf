// SPDX-License-Identifier: Apache-2.0
#include <warmset/move/virtual_driver.hpp>

#include <catch2/catch_test_macros.hpp>

#include <string>

using namespace warmset;
using namespace warmset::move;

namespace {

struct fixture {
  virtual_driver d{{{.bytes = 1}}, {{}, {}}};
  u32 stream = d.make_stream(0), other = d.make_stream(0);
  u32 event = d.make_event(), outside = d.make_event();
  block_id pinned = d.allocate_host(memory_kind::pinned, 16).block;
  block_id pageable = d.allocate_host(memory_kind::pageable, 16).block;
  block_id mapped = d.allocate_host(memory_kind::mapped, 16).block;
  block_id device = d.allocate(0, 16).block;

  fixture() {
    REQUIRE(d.record(outside, other));
    d.streams().advance_to_idle();
  }

  /// Makes one call of a kind, where it is for a stream on the capturing one.
  status call(stream_call c) { return call(c, stream); }
  status call(stream_call c, u32 on) {
    block_copy const copy{device, 0, pinned, 0, 8};
    switch (c) {
    case stream_call::copy:
      return d.copy(on, copy);
    case stream_call::copy_pageable:
      return d.copy(on, {device, 0, pageable, 0, 8});
    case stream_call::copy_batch:
      return d.copy_batch(on, {&copy, 1});
    case stream_call::launch:
      return d.launch(on, {[](void*, kernel_access&) {}});
    case stream_call::launch_host:
      return d.launch_host(
          on, [](void*) {}, nullptr);
    case stream_call::launch_callback:
      return d.launch_callback(
          on, [](void*) {}, nullptr);
    case stream_call::record:
      return d.record(event, on);
    case stream_call::wait_captured:
      (void)d.record(event, on);
      return d.wait(on, event);
    case stream_call::wait_foreign:
      return d.wait(on, outside);
    case stream_call::wait_word:
      return d.wait_word(on, mapped, 0, 1);
    case stream_call::query:
      return d.query(outside);
    case stream_call::synchronise:
      return d.synchronise(other);
    case stream_call::allocate:
      return {d.allocate(0, 1).why};
    case stream_call::release:
      return d.release(device);
    case stream_call::launch_graph:
      return d.launch_graph(0, on);
    }
    return {reason::unsupported};
  }
};

}  // namespace

TEST_CASE("every call keeps its rule under capture, and is allowed outside", "[move]") {
  for (u32 i = 0; i < n_stream_calls; ++i) {
    stream_call const c = static_cast<stream_call>(i);
    CAPTURE(name_of(c));
    fixture f;
    u32 graph = 0;
    REQUIRE(f.d.begin_capture(f.stream));
    REQUIRE(f.d.end_capture(f.stream, graph));

    REQUIRE(f.d.begin_capture(f.stream));
    capture_rule const& rule = rule_of(c);
    CHECK(f.call(c).why == rule.why);
    CHECK(f.d.capture_is_valid() == !rule.invalidates);
    CHECK(f.d.calls_in_capture(c) == 1);
    CHECK(f.d.streams().idle());  // nothing ran
    CHECK(static_cast<bool>(f.d.end_capture(f.stream, graph)) == !rule.invalidates);
    if (rule.invalidates) {
      CHECK(f.d.broken_by() == c);
    }
    // the capture is gone in any case, and the call works
    CHECK_FALSE(f.d.captures(f.stream));
    if (rule.why != reason::none) {
      CHECK(f.call(c));
    }
  }
}

TEST_CASE("a stream outside the capture is refused what is forbidden everywhere, and nothing else",
          "[move]") {
  for (u32 i = 0; i < n_stream_calls; ++i) {
    stream_call const c = static_cast<stream_call>(i);
    CAPTURE(name_of(c));
    fixture f;
    u32 graph = 0;
    REQUIRE(f.d.begin_capture(f.stream));
    REQUIRE(f.d.end_capture(f.stream, graph));

    REQUIRE(f.d.begin_capture(f.stream));
    capture_rule const& rule = rule_of(c);
    bool const forbidden = rule.scope == rule_scope::everywhere;
    CHECK(f.call(c, f.other).why == (forbidden ? rule.why : reason::none));
    CHECK(f.d.capture_is_valid() == !(forbidden && rule.invalidates));
    CHECK_FALSE(f.d.captures(f.other));
    CHECK(static_cast<bool>(f.d.end_capture(f.stream, graph)) == !(forbidden && rule.invalidates));
  }
  CHECK(rule_of(stream_call::copy_batch).scope == rule_scope::captured);
  CHECK(rule_of(stream_call::launch_graph).scope == rule_scope::captured);
  CHECK(rule_of(stream_call::allocate).scope == rule_scope::everywhere);
}

TEST_CASE("a worker's batches and graphs run on while an engine captures", "[move]") {
  fixture f;
  u32 graph = 0, captured = 0;
  f.d.memory().host_view(f.pinned)[0] = std::byte{7};
  REQUIRE(f.d.begin_capture(f.other));
  REQUIRE(f.d.copy(f.other, {f.device, 4, f.pinned, 0, 4}));
  REQUIRE(f.d.end_capture(f.other, graph));

  REQUIRE(f.d.begin_capture(f.stream));
  REQUIRE(f.d.launch(f.stream, {[](void*, kernel_access&) {}}));
  block_copy const two[] = {{f.device, 0, f.pinned, 0, 2}, {f.device, 2, f.pinned, 0, 2}};
  REQUIRE(f.d.copy_batch(f.other, two));
  REQUIRE(f.d.launch_graph(graph, f.other));
  f.d.streams().advance_to_idle();
  for (u32 at : {0u, 2u, 4u}) {
    CHECK(f.d.memory().peek(f.device)[at] == std::byte{7});
  }
  // a stream that has joined the capture is held to its rules
  REQUIRE(f.d.record(f.event, f.stream));
  REQUIRE(f.d.wait(f.other, f.event));
  CHECK(f.d.copy_batch(f.other, two).why == reason::unsupported);
  CHECK(f.d.launch_graph(graph, f.other).why == reason::unsupported);
  u32 const back = f.d.make_event();
  REQUIRE(f.d.record(back, f.other));
  REQUIRE(f.d.wait(f.stream, back));
  REQUIRE(f.d.end_capture(f.stream, captured));
  CHECK(f.d.n_nodes(captured) == 1);
}

TEST_CASE("one capture at a time, ended where it began", "[move]") {
  fixture f;
  u32 graph = 0;
  CHECK(f.d.end_capture(f.stream, graph).why == reason::unsupported);
  REQUIRE(f.d.begin_capture(f.stream));
  CHECK(f.d.begin_capture(f.other).why == reason::busy);
  CHECK(f.d.end_capture(f.other, graph).why == reason::unsupported);
  CHECK(f.d.captures(f.stream));
  // a stream that takes no part goes on
  REQUIRE(f.d.copy(f.other, {f.device, 8, f.pinned, 8, 8}));
  CHECK_FALSE(f.d.streams().idle(f.other));
  CHECK(f.d.end_capture(f.stream, graph));
  CHECK(f.d.n_nodes(graph) == 0);
}

TEST_CASE("a fork joins by an event of the capture and must come back", "[move]") {
  fixture f;
  u32 const back = f.d.make_event();
  u32 graph = 0;
  auto const fork = [&] {
    REQUIRE(f.d.begin_capture(f.stream));
    REQUIRE(f.d.record(f.event, f.stream));
    REQUIRE(f.d.wait(f.other, f.event));
    CHECK(f.d.captures(f.other));
    REQUIRE(f.d.copy(f.other, {f.device, 0, f.pinned, 0, 8}));
  };
  SECTION("it comes back") {
    fork();
    REQUIRE(f.d.record(back, f.other));
    REQUIRE(f.d.wait(f.stream, back));
    CHECK(f.d.end_capture(f.stream, graph));
    CHECK(f.d.n_nodes(graph) == 1);
    CHECK(f.d.memory().references(f.device) == 1);
    CHECK_FALSE(f.d.captures(f.other));
    // the events belong to the graph until they are recorded anew
    CHECK(f.d.wait(f.stream, back).why == reason::unsupported);
    CHECK(f.d.query(back).why == reason::unsupported);
    REQUIRE(f.d.record(back, f.other));
    CHECK(f.d.wait(f.stream, back));
  }
  SECTION("it does not") {
    fork();
    CHECK(f.d.end_capture(f.stream, graph).why == reason::unsupported);
    CHECK(f.d.memory().references(f.device) == 0);
  }
  SECTION("it works on after the join") {
    fork();
    REQUIRE(f.d.record(back, f.other));
    REQUIRE(f.d.wait(f.stream, back));
    REQUIRE(f.d.copy(f.other, {f.device, 8, f.pinned, 8, 8}));
    CHECK(f.d.end_capture(f.stream, graph).why == reason::unsupported);
  }
}

TEST_CASE("a graph keeps its blocks, its addresses and its order", "[move]") {
  fixture f;
  u32 graph = 0;
  std::string order;
  auto const put = [](void* context, kernel_access&) {
    static_cast<std::string*>(context)->push_back('k');
  };
  f.d.memory().host_view(f.pinned)[0] = std::byte{1};
  REQUIRE(f.d.begin_capture(f.stream));
  REQUIRE(f.d.copy(f.stream, {f.device, 0, f.pinned, 0, 8}));
  REQUIRE(f.d.launch(f.stream, {put, &order, 3}));
  REQUIRE(f.d.launch_host(
      f.stream, [](void* context) { static_cast<std::string*>(context)->push_back('h'); }, &order));
  REQUIRE(f.d.end_capture(f.stream, graph));
  CHECK(f.d.streams().idle());
  CHECK(f.d.release(f.device).why == reason::in_use);
  for (u8 i = 5; i < 8; ++i) {
    f.d.memory().host_view(f.pinned)[0] = std::byte{i};
    REQUIRE(f.d.launch_graph(graph, f.stream));
    CHECK(f.d.streams().advance_to_idle() == 11);
    CHECK(f.d.memory().peek(f.device)[0] == std::byte{i});
  }
  CHECK(order == "khkhkh");
  u32 const elsewhere = f.d.make_stream(1);
  CHECK(f.d.launch_graph(graph, elsewhere).why == reason::wrong_device);
  f.d.faults().schedule(fault_point::launch, failure_schedule::all());
  CHECK(f.d.launch_graph(graph, f.stream).why == reason::device_error);
  f.d.destroy_graph(graph);
  CHECK(f.d.release(f.device));
}
