// SPDX-License-Identifier: Apache-2.0
#include <warmset/move/virtual_driver.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <string>

using namespace warmset;
using namespace warmset::move;

namespace {

/// Two devices on links of their own, a byte per tick; a stream and an event on each.
struct fixture {
  virtual_driver d;
  u32 s0, s1, e0, e1;
  block_id pinned, device0, device1;

  explicit fixture(std::vector<link_model> const& links = {{.bytes = 1}, {.bytes = 1}},
                   std::vector<virtual_device> const& devices = {{1000, 0}, {500, 1}})
      : d(links, devices), s0(d.make_stream(0)), s1(d.make_stream(1)), e0(d.make_event()),
        e1(d.make_event()), pinned(d.allocate_host(memory_kind::pinned, 100).block),
        device0(d.allocate(0, 100).block), device1(d.allocate(1, 100).block) {
    std::span<std::byte> const bytes = d.memory().host_view(pinned);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(i + 1);
    }
  }
  block_copy to0(u64 bytes, u64 at = 0) const { return {device0, at, pinned, at, bytes}; }
  std::byte byte_of(block_id b, u64 at) const { return d.memory().peek(b)[at]; }
};

void append(void* context, kernel_access&) {
  static_cast<std::string*>(context)->push_back('k');
}

}  // namespace

TEST_CASE("budgets are per device, and a refusal names the device", "[move]") {
  fixture f;
  host_memory const& m = f.d.memory();
  allocation const a = f.d.allocate(1, 401);
  CHECK(a.why == reason::over_budget);
  CHECK(a.device == 1);
  CHECK(m.ledger(1).held() == 100);
  CHECK(f.d.allocate(1, 400));
  CHECK(m.ledger(1).left() == 0);
  CHECK(m.ledger(0).left() == 900);
  CHECK(f.d.allocate(0, 901).why == reason::over_budget);
  CHECK(f.d.allocate(2, 1).why == reason::wrong_device);
  CHECK(f.d.allocate(0, u64_max).why == reason::over_budget);
  CHECK(f.d.allocate(0, u64_max, 256).why == reason::over_budget);
}

TEST_CASE("what refers to a block keeps it", "[move]") {
  fixture f;
  REQUIRE(f.d.copy(f.s0, f.to0(10)));
  CHECK(f.d.release(f.device0).why == reason::in_use);
  CHECK(f.d.release(f.pinned).why == reason::in_use);
  f.d.streams().advance_to_idle();
  CHECK(f.d.release(f.device0));
  CHECK(f.d.release(f.device0).why == reason::out_of_range);
  CHECK(f.d.copy(f.s0, f.to0(10)).why == reason::out_of_range);
  CHECK(f.d.memory().ledger(0).held() == 0);
}

TEST_CASE("copies are checked, poison what they write and then write it", "[move]") {
  fixture f;
  CHECK(f.d.copy(f.s0, f.to0(60, 41)).why == reason::out_of_range);
  CHECK(f.d.copy(f.s1, f.to0(10)).why == reason::wrong_device);
  CHECK(f.d.copy(f.s0, {f.pinned, 0, f.pinned, 50, 10}).why == reason::wrong_device);
  CHECK(f.d.copy(f.s0, {f.pinned, 0, f.device1, 0, 10}).why == reason::wrong_device);
  REQUIRE(f.d.copy(f.s0, f.to0(10)));
  f.d.streams().advance(9);
  CHECK(f.byte_of(f.device0, 3) == virtual_driver::poison);
  f.d.streams().advance(1);
  CHECK(f.byte_of(f.device0, 3) == std::byte{4});
  // from another device's memory, and back to the host
  REQUIRE(f.d.copy(f.s1, {f.device1, 0, f.device0, 0, 10}));
  REQUIRE(f.d.copy(f.s1, {f.pinned, 50, f.device1, 2, 4}));
  f.d.streams().advance_to_idle();
  CHECK(f.byte_of(f.pinned, 51) == std::byte{4});
  CHECK(f.d.copied_bytes() == 24);
}

TEST_CASE("devices on one link share it, devices on two do not", "[move]") {
  auto const both = [](fixture& f) {
    REQUIRE(f.d.copy(f.s0, {f.device0, 0, f.pinned, 0, 40}));
    REQUIRE(f.d.copy(f.s1, {f.device1, 0, f.pinned, 0, 30}));
    f.d.streams().advance(20);
    bool const side_by_side = f.byte_of(f.device1, 0) == virtual_driver::poison;
    CHECK(side_by_side == (f.d.link_of(0) != f.d.link_of(1)));
    return 20 + f.d.streams().advance_to_idle();
  };
  fixture apart;
  fixture together{{{.bytes = 1}}, {{1000, 0}, {1000, 0}}};
  CHECK(both(apart) == 40);
  CHECK(both(together) == 70);
  CHECK_THROWS_AS(fixture({{.bytes = 1}}, {{1000, 1}}), config_error);
}

TEST_CASE("a batch pays the latency once", "[move]") {
  fixture f{{{.bytes = 1, .latency = 100}, {}}};
  block_copy const copies[] = {f.to0(10), f.to0(20, 10), f.to0(30, 30)};
  REQUIRE(f.d.copy_batch(f.s0, copies));
  CHECK(f.d.streams().advance_to_idle() == 160);
  for (block_copy const& c : copies) {
    REQUIRE(f.d.copy(f.s0, c));
  }
  CHECK(f.d.streams().advance_to_idle() == 360);
  block_copy const bad[] = {f.to0(10), f.to0(101)};
  CHECK(f.d.copy_batch(f.s0, bad).why == reason::out_of_range);
  CHECK(f.d.streams().idle());
}

TEST_CASE("events order streams and tell of failed copies", "[move]") {
  fixture f;
  std::string order;
  CHECK(f.d.query(f.e0));  // never recorded
  REQUIRE(f.d.wait(f.s1, f.e0));
  CHECK(f.d.streams().idle());
  REQUIRE(f.d.copy(f.s0, f.to0(50)));
  REQUIRE(f.d.record(f.e0, f.s0));
  REQUIRE(f.d.wait(f.s1, f.e0));
  REQUIRE(f.d.launch(f.s1, {append, &order}));
  f.d.streams().advance(49);
  CHECK(f.d.query(f.e0).why == reason::busy);
  CHECK(order.empty());
  f.d.streams().advance(1);
  CHECK(f.d.query(f.e0));
  CHECK(order == "k");

  f.d.faults().schedule(fault_point::copy, failure_schedule::nth(1));
  REQUIRE(f.d.copy(f.s0, f.to0(5)));
  REQUIRE(f.d.record(f.e0, f.s0));
  REQUIRE(f.d.copy(f.s0, f.to0(5)));
  REQUIRE(f.d.record(f.e1, f.s0));
  f.d.streams().advance_to_idle();
  CHECK(f.d.query(f.e0).why == reason::device_error);
  CHECK(f.d.query(f.e1));
  CHECK(f.d.failed_copies() == 1);
}

TEST_CASE("a later record does not hold back who waited for an earlier one", "[move]") {
  fixture f;
  std::string order;
  REQUIRE(f.d.copy(f.s0, f.to0(10)));
  REQUIRE(f.d.record(f.e0, f.s0));
  REQUIRE(f.d.wait(f.s1, f.e0));
  REQUIRE(f.d.launch(f.s1, {append, &order}));
  REQUIRE(f.d.copy(f.s0, f.to0(90)));
  REQUIRE(f.d.record(f.e0, f.s0));
  f.d.streams().advance(10);
  CHECK(order == "k");
  CHECK(f.d.query(f.e0).why == reason::busy);
}

TEST_CASE("synchronise runs the clock, and says so where it never would end", "[move]") {
  fixture f;
  REQUIRE(f.d.copy(f.s0, f.to0(50)));
  REQUIRE(f.d.copy(f.s1, {f.device1, 0, f.pinned, 0, 100}));
  CHECK(f.d.synchronise(f.s0));
  CHECK(f.d.now() == 50);
  CHECK_FALSE(f.d.streams().idle());
  f.d.streams().set_engine(f.s0, {engine_state::kind::paused, 1});
  REQUIRE(f.d.copy(f.s0, f.to0(1)));
  CHECK(f.d.synchronise(f.s0).why == reason::busy);
}

TEST_CASE("mapped words: a stream waits for the host, the host for a kernel", "[move]") {
  fixture f;
  block_id const words = f.d.allocate_host(memory_kind::mapped, 8).block;
  u32* const host = reinterpret_cast<u32*>(f.d.memory().host_view(words).data());
  struct both {
    block_id words, pinned, other;
    u32 seen = 0;
  } c{words, f.pinned, f.device1};
  REQUIRE(f.d.wait_word(f.s0, words, 0, 3));
  REQUIRE(f.d.launch(f.s0, {[](void* context, kernel_access& a) {
                              both& b = *static_cast<both*>(context);
                              b.seen = *a.word(b.words, 0);
                              *a.word(b.words, 1) = 77;
                              (void)a.bytes(b.pinned, 0, 1);  // not mapped
                              (void)a.bytes(b.other, 0, 1);   // another device's
                              (void)a.bytes(b.words, 5, 4);   // beyond its end
                            },
                            &c, 10}));
  f.d.streams().advance(50);
  CHECK(c.seen == 0);
  host[0] = 4;
  f.d.streams().advance(9);
  CHECK(host[1] == 0);
  f.d.streams().advance(1);
  CHECK(host[1] == 77);
  CHECK(c.seen == 4);
  CHECK(f.d.access_faults() == 3);
  CHECK(f.d.wait_word(f.s0, f.pinned, 0, 1).why == reason::wrong_device);
  CHECK(f.d.wait_word(f.s0, words, 2, 1).why == reason::out_of_range);
}

TEST_CASE("engines: slow, paused, dead", "[move]") {
  fixture f;
  f.d.streams().set_engine(f.s0, {engine_state::kind::running, 3});
  REQUIRE(f.d.copy(f.s0, f.to0(10)));
  CHECK(f.d.streams().advance_to_idle() == 30);
  f.d.streams().set_engine(f.s0, {engine_state::kind::paused, 1});
  REQUIRE(f.d.copy(f.s0, f.to0(10)));
  f.d.streams().advance(1000);
  CHECK(f.d.streams().pending(f.s0) == 1);
  f.d.streams().set_engine(f.s0, {});
  CHECK(f.d.streams().advance_to_idle() == 10);
  f.d.streams().set_engine(f.s0, {engine_state::kind::dead, 1});
  REQUIRE(f.d.copy(f.s0, f.to0(10)));
  REQUIRE(f.d.record(f.e0, f.s0));
  CHECK(f.d.streams().advance_to_idle() == 0);
  CHECK(f.d.query(f.e0).why == reason::device_error);
  CHECK(f.d.failed_copies() == 1);
}

TEST_CASE("every fault point is numbered, of its kind and of all", "[move]") {
  fixture f;  // three allocations
  fault_injector& faults = f.d.faults();
  REQUIRE(faults.passed() == 3);
  faults.schedule(failure_schedule::nth(4));
  CHECK(f.d.allocate(0, 1));
  CHECK(f.d.allocate(0, 1).why == reason::no_memory);
  CHECK(f.d.allocate(0, 1));
  faults.schedule(fault_point::launch, failure_schedule{0, 2, 0, 0});
  CHECK(f.d.copy(f.s0, f.to0(1)).why == reason::device_error);
  CHECK(f.d.launch(f.s0, {append, nullptr}).why == reason::none);
  CHECK(f.d.copy(f.s0, f.to0(1)).why == reason::device_error);
  faults.schedule(fault_point::event, failure_schedule::all());
  CHECK(f.d.record(f.e0, f.s0).why == reason::device_error);
  CHECK(f.d.query(f.e0).why == reason::device_error);
  faults.schedule(fault_point::release, failure_schedule::nth(0));
  CHECK(f.d.release(f.device1).why == reason::device_error);
  CHECK(f.d.release(f.device1));
  CHECK(faults.struck() == 6);
  CHECK(faults.struck(fault_point::launch) == 2);
  CHECK(faults.passed(fault_point::allocate) == 6);
  faults.clear();
  CHECK(f.d.query(f.e0));
  CHECK(std::strcmp(name_of(fault_point::publish), "publish") == 0);
}
