// SPDX-License-Identifier: Apache-2.0
#include <warmset/move/host.hpp>

#include "backend_conformance.hpp"

#include <algorithm>
#include <cstring>
#include <span>

using namespace warmset;
using namespace warmset_test;
using move::read_fault;

namespace {

transfer_order order_of(u32 layer, u32 expert, u32 slot, u32 generation) {
  return {slot_id{slot}, {layer_id{layer}, expert_id{expert}}, generation};
}

transfer word_of(move::host const& h, u32 pool, u32 slot) {
  return arrival::state(h.arrivals(pool)[slot]);
}

read_fault fault_of(move::host const& h, u32 pool, transfer_order const& o, u32 bank) {
  return h.read(pool, o.slot, o.expert, o.generation, bank).fault;
}

struct opened {
  geometry model;
  std::vector<pool_site> sites;
  move::host backend;

  explicit opened(move::host_options options = {}, u32 slots = 4, bool shared = false)
      : model(two_groups()), sites(make_sites(model, slots, 2, shared)), backend(options) {
    backend.open(model, sites);
  }
  void start(u32 pool, std::vector<transfer_order> const& orders) { backend.start(pool, orders); }
};

constexpr move::host_options by_hand{.bytes_per_tick = 1, .latency = 0, .ticks_per_poll = 0};

}  // namespace

TEST_CASE("host conforms", "[move]") {
  backend_conforms([] { return move::host{}; });
}

TEST_CASE("host conforms over a slow link", "[move]") {
  backend_conforms(
      [] { return move::host{{.bytes_per_tick = 97, .latency = 3, .ticks_per_poll = 5}}; });
}

TEST_CASE("host conforms in batches, over a staging ring, and beside another on one driver",
          "[move]") {
  backend_conforms(
      [] { return move::host{{.bytes_per_tick = 50, .latency = 3, .batches = true}}; });
  backend_conforms([] {
    return move::host{{.bytes_per_tick = 97,
                       .ticks_per_poll = 5,
                       .pageable_source = true,
                       .staging_slots = 2,
                       .staging_rate = 50}};
  });
  auto const driver = move::shared_driver::make({move::link_model{}});
  move::host other{{}, move::patterned_source{}, driver};
  geometry const model = two_groups();
  std::vector<pool_site> const sites = make_sites(model, 4, 2);
  other.open(model, sites);
  std::vector<transfer_order> const one = {order_of(1, 7, 2, 9)};
  other.start(0, one);
  backend_conforms([&] { return move::host{{}, move::patterned_source{}, driver}; });
  CHECK(fault_of(other, 0, one[0], 1) == read_fault::none);
  CHECK(driver->memory().ledger(0).held() == other.ledger().allocated);
}

TEST_CASE("a failing completion, publication, launch or release fails the expert alone", "[move]") {
  using move::fault_point;
  for (fault_point p :
       {fault_point::launch, fault_point::event, fault_point::publish, fault_point::release}) {
    CAPTURE(name_of(p));
    opened o{by_hand};
    o.start(0, {order_of(1, 1, 0, 1), order_of(1, 3, 1, 1), order_of(1, 5, 2, 1)});
    o.backend.advance_to_idle();
    u64 const passed = o.backend.driver().faults().passed(p);
    o.backend.driver().faults().schedule(p, move::failure_schedule::nth(passed));
    transfer_order const first = order_of(1, 9, 0, 2);
    transfer_order const second = order_of(1, 11, 1, 2);
    o.start(0, {first, second});
    o.backend.advance_to_idle();
    // a word that could not be written is written by the next poll
    CHECK(word_of(o.backend, 0, 0) ==
          (p == fault_point::publish ? transfer::loading : transfer::failed));
    CHECK(o.backend.ledger().balances());
    o.backend.poll();
    CHECK(word_of(o.backend, 0, 0) == transfer::failed);
    CHECK(word_of(o.backend, 0, 1) == transfer::arrived);
    for (u32 bank = 0; bank < 3; ++bank) {
      CHECK(fault_of(o.backend, 0, second, bank) == read_fault::none);
    }
    // what could not be launched or given up lies there as it was
    bool const is_old = p == fault_point::launch || p == fault_point::release;
    CHECK(fault_of(o.backend, 0, first, 0) ==
          (is_old ? read_fault::other_expert : read_fault::none));
    CHECK(fault_of(o.backend, 0, order_of(1, 1, 0, 1), 0) ==
          (is_old ? read_fault::none : read_fault::other_expert));
    CHECK(o.backend.driver().faults().struck() == 1);
    CHECK(o.backend.ledger().transfers.failed == 1);
    CHECK(o.backend.ledger().balances());
    // and the slot works
    o.start(0, {order_of(1, 12, 0, 3)});
    o.backend.advance_to_idle();
    CHECK(word_of(o.backend, 0, 0) == transfer::arrived);
  }
}

TEST_CASE("bytes go through the staging ring, piece by piece", "[move]") {
  opened o{{.bytes_per_tick = 1,
            .ticks_per_poll = 0,
            .pageable_source = true,
            .staging_slots = 2,
            .staging_rate = 2}};
  CHECK(o.backend.degraded() == reason::pageable);
  CHECK(o.backend.ledger().staging == 2 * 33);
  std::vector<transfer_order> const orders = {order_of(1, 1, 0, 1), order_of(1, 2, 1, 1),
                                              order_of(1, 3, 2, 1)};
  o.start(0, orders);  // one run, staged expert by expert
  CHECK(o.backend.ledger().copies.issued == 9);
  CHECK(o.backend.ledger().merged == 2);
  CHECK(o.backend.advance_to_idle() == 12 + 3 * 44);  // the first piece is staged before
  for (transfer_order const& order : orders) {
    for (u32 bank = 0; bank < 3; ++bank) {
      CHECK(fault_of(o.backend, 0, order, bank) == read_fault::none);
    }
  }
  CHECK(o.backend.driver().memory().ledger(move::host_tier).held() == 66);
}

TEST_CASE("host over spans conforms", "[move]") {
  static std::vector<std::byte> const bytes(42 * 64, std::byte{7});
  backend_conforms([] {
    move::span_source source;
    std::span<std::byte const> const all = bytes;
    for (u32 layer : {1u, 5u}) {
      source.add(layer_id{layer}, 0, all.first(42 * 24));
      source.add(layer_id{layer}, 1, all.first(42 * 13));
      source.add(layer_id{layer}, 2, all.first(42 * 7));
    }
    source.add(layer_id{2}, 0, all.first(42 * 33));
    source.add(layer_id{9}, 0, all.first(42 * 33));
    return move::basic_host<move::span_source>{{.tail_bytes = 64}, source};
  });
}

TEST_CASE("a source of spans that does not fit the model is refused at open", "[move]") {
  std::vector<std::byte> const bytes(42 * 33);
  geometry const model = geometry{{{layer_id{2}, 42, 4, {33}}}};
  std::vector<pool_site> const sites = make_sites(model, 4, 2);
  move::span_source source;
  move::basic_host<move::span_source> none{{}, source};
  CHECK_THROWS_AS(none.open(model, sites), config_error);
  source.add(layer_id{2}, 0, std::span(bytes).first(42 * 33 - 1));
  move::basic_host<move::span_source> few{{}, source};
  CHECK_THROWS_AS(few.open(model, sites), config_error);
  source.add(layer_id{2}, 0, bytes);  // replaces
  move::basic_host<move::span_source> right{{}, source};
  CHECK_NOTHROW(right.open(model, sites));
}

TEST_CASE("spans deliver their own bytes", "[move]") {
  geometry const model = geometry{{{layer_id{2}, 6, 4, {33, 5}}}};
  std::vector<pool_site> const sites = make_sites(model, 4, 2);
  std::vector<std::byte> a(6 * 33), b(6 * 5);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::byte>(i * 7);
  }
  for (std::size_t i = 0; i < b.size(); ++i) {
    b[i] = static_cast<std::byte>(200 - i);
  }
  move::span_source source;
  source.add(layer_id{2}, 0, a);
  source.add(layer_id{2}, 1, b);
  move::basic_host<move::span_source> h{{}, source};
  h.open(model, sites);
  transfer_order const orders[] = {order_of(2, 2, 0, 1), order_of(2, 3, 1, 1),
                                   order_of(2, 5, 3, 1)};
  h.start(0, orders);
  h.poll();
  for (transfer_order const& o : orders) {
    auto const r0 = h.read(0, o.slot, o.expert, 1, 0);
    auto const r1 = h.read(0, o.slot, o.expert, 1, 1);
    REQUIRE(r0);
    REQUIRE(r1);
    CHECK(std::memcmp(r0.bytes.data(), &a[o.expert.expert.value * 33], 33) == 0);
    CHECK(std::memcmp(r1.bytes.data(), &b[o.expert.expert.value * 5], 5) == 0);
  }
}

TEST_CASE("patterned bytes are a function of layer, expert, bank and offset", "[move]") {
  move::patterned_source const source{3};
  expert_key const key{layer_id{4}, expert_id{9}};
  std::vector<std::byte> whole(101);
  source.read(key, 1, 0, whole);
  for (u32 i = 0; i < whole.size(); ++i) {
    CHECK(source.at(key, 1, i) == whole[i]);
  }
  std::vector<std::byte> part(30);
  source.read(key, 1, 13, part);
  CHECK(std::equal(part.begin(), part.end(), whole.begin() + 13));
  CHECK(source.equals(key, 1, 13, part));
  part[29] ^= std::byte{1};
  CHECK_FALSE(source.equals(key, 1, 13, part));
  CHECK_FALSE(source.equals(key, 0, 0, whole));
  CHECK_FALSE(source.equals({layer_id{9}, expert_id{4}}, 1, 0, whole));
  CHECK_FALSE(source.equals({layer_id{4}, expert_id{8}}, 1, 0, whole));
  CHECK_FALSE(move::patterned_source{4}.equals(key, 1, 0, whole));
}

TEST_CASE("a word says arrived after the last bank, and not before", "[move]") {
  opened o{by_hand};
  transfer_order const order = order_of(1, 7, 2, 9);  // banks of 24, 13 and 7 bytes: small ones
  o.start(0, {order});
  CHECK(word_of(o.backend, 0, 2) == transfer::loading);
  o.backend.advance(43);
  o.backend.poll();
  CHECK(word_of(o.backend, 0, 2) == transfer::loading);
  CHECK(fault_of(o.backend, 0, order, 0) == read_fault::none);
  CHECK(fault_of(o.backend, 0, order, 1) == read_fault::none);
  CHECK(fault_of(o.backend, 0, order, 2) == read_fault::torn);
  CHECK(o.backend.ledger().transfers.in_flight == 1);
  o.backend.advance(1);
  CHECK(o.backend.arrivals(0)[2] == arrival::word(9, transfer::arrived));
  CHECK(fault_of(o.backend, 0, order, 2) == read_fault::none);
  CHECK(o.backend.now() == 44);
  CHECK(o.backend.idle());
}

TEST_CASE("copies run one after the other at the link's speed", "[move]") {
  opened o{{.bytes_per_tick = 10, .latency = 5, .ticks_per_poll = 0}};
  o.start(1, {order_of(5, 1, 0, 1), order_of(5, 2, 1, 1)});  // one run: 48, 26 and 14 bytes
  CHECK(o.backend.ledger().copies.issued == 3);
  CHECK(o.backend.ledger().merged == 1);
  CHECK(o.backend.advance_to_idle() == (5 + 5) + (5 + 3) + (5 + 2));
  o.backend.advance(100);
  u64 const before = o.backend.now();
  o.start(2, {order_of(2, 3, 0, 1)});
  CHECK(o.backend.advance_to_idle() == 5 + 4);
  CHECK(o.backend.now() == before + 9);
}

TEST_CASE("reads report what is wrong", "[move]") {
  opened o{by_hand};
  transfer_order const order = order_of(1, 7, 2, 9);
  CHECK(fault_of(o.backend, 0, order, 0) == read_fault::empty);
  o.start(0, {order});
  o.backend.advance_to_idle();
  CHECK(fault_of(o.backend, 0, order, 0) == read_fault::none);
  CHECK(fault_of(o.backend, 0, order_of(1, 8, 2, 9), 0) == read_fault::other_expert);
  CHECK(fault_of(o.backend, 0, order_of(5, 7, 2, 9), 0) == read_fault::other_expert);
  CHECK(fault_of(o.backend, 0, order_of(1, 7, 2, 8), 0) == read_fault::other_generation);
  CHECK(fault_of(o.backend, 0, order, 3) == read_fault::out_of_range);
  CHECK(fault_of(o.backend, 0, order_of(1, 7, 6, 9), 0) == read_fault::out_of_range);
  CHECK(fault_of(o.backend, 9, order, 0) == read_fault::out_of_range);
  CHECK(fault_of(o.backend, 1, order, 0) == read_fault::empty);
  o.backend.raw(0, slot_id{2}, 1)[4] ^= std::byte{0x10};
  CHECK(fault_of(o.backend, 0, order, 1) == read_fault::other_bytes);
  CHECK(fault_of(o.backend, 0, order, 0) == read_fault::none);
  CHECK(std::strcmp(move::name_of(read_fault::closed), "closed") == 0);
}

TEST_CASE("memory: one allocation per group, exact strides, shared scratch, zeroed tails",
          "[move]") {
  opened o{{.tail_bytes = 100}};
  REQUIRE(o.backend.n_groups() == 2);
  CHECK(o.backend.ledger().allocated == o.backend.layout(0).bytes() + o.backend.layout(1).bytes());
  void const* const base = o.backend.memory(0).data();
  // sites 0 and 1 are of group 0
  CHECK(o.backend.raw(1, slot_id{0}, 1).data() - o.backend.raw(0, slot_id{0}, 1).data() == 4 * 13);
  CHECK(o.backend.raw(0, slot_id{1}, 2).data() - o.backend.raw(0, slot_id{0}, 2).data() == 7);
  CHECK(o.backend.raw(0, slot_id{4}, 0).data() == o.backend.raw(1, slot_id{4}, 0).data());
  CHECK(o.backend.raw(0, slot_id{4}, 0).data() - o.backend.raw(0, slot_id{0}, 0).data() == 8 * 24);
  for (u32 generation = 1; generation < 4; ++generation) {
    for (u32 pool : {0u, 1u}) {
      std::vector<transfer_order> orders;
      for (u32 s = 0; s < (pool == 0 ? 6u : 4u); ++s) {
        orders.push_back(order_of(pool == 0 ? 1 : 5, s + generation, s, generation));
      }
      o.start(pool, orders);
    }
    o.backend.poll();
  }
  for (u32 bank = 0; bank < 3; ++bank) {
    auto const tail = o.backend.tail(0, bank);
    CHECK(tail.size() >= 100);
    CHECK(std::all_of(tail.begin(), tail.end(), [](std::byte b) { return b == std::byte{0}; }));
  }
  CHECK(o.backend.memory(0).data() == base);
  // scratch filled through one pool, read through the other
  CHECK(o.backend.read(1, slot_id{5}, {layer_id{1}, expert_id{8}}, 3, 0));
}

TEST_CASE("orders that cannot be carried out fail and are counted", "[move]") {
  opened o{by_hand};
  o.start(0, {order_of(1, 7, 2, 1)});
  u32 const running = o.backend.arrivals(0)[2];
  o.start(0, {order_of(1, 8, 2, 2)});  // the slot has a transfer running
  CHECK(o.backend.arrivals(0)[2] == running);
  o.start(0, {order_of(1, 42, 1, 2)});  // no such expert
  CHECK(o.backend.arrivals(0)[1] == arrival::word(2, transfer::failed));
  o.start(0, {order_of(5, 1, 1, 3)});  // another pool's layer
  CHECK(o.backend.arrivals(0)[1] == arrival::word(3, transfer::failed));
  o.start(0, {order_of(1, 1, 6, 3)});  // no such slot
  o.start(0, {order_of(1, 1, 4, 3)});
  o.start(1, {order_of(5, 1, 4, 3)});  // the same scratch, through another pool
  CHECK(o.backend.arrivals(1)[4] == arrival::word(3, transfer::failed));
  CHECK(o.backend.ledger().refused == 5);
  o.backend.advance_to_idle();
  CHECK(o.backend.ledger().transfers.completed == 2);
  CHECK(o.backend.ledger().balances());
  o.backend.close();
  o.start(0, {order_of(1, 1, 1, 4)});
  CHECK(o.backend.arrivals(0)[1] == arrival::word(4, transfer::failed));
}

TEST_CASE("a failing copy poisons its slots and fails its experts alone, at every index",
          "[move]") {
  // two runs of two, one expert alone: 3 copies each
  for (u64 n = 0; n < 9; ++n) {
    CAPTURE(n);
    opened o;
    o.backend.fail_copy(n);
    std::vector<transfer_order> const orders = {order_of(1, 1, 0, 1), order_of(1, 2, 1, 1),
                                                order_of(1, 5, 2, 1), order_of(1, 8, 4, 1),
                                                order_of(1, 9, 5, 1)};
    o.start(0, orders);
    REQUIRE(o.backend.ledger().copies.issued == 9);
    o.backend.poll();
    u32 n_failed = 0;
    for (transfer_order const& order : orders) {
      u32 n_poisoned = 0;
      for (u32 bank = 0; bank < 3; ++bank) {
        read_fault const fault = fault_of(o.backend, 0, order, bank);
        bool const is_poisoned = fault == read_fault::poisoned;
        CHECK((is_poisoned || fault == read_fault::none));
        n_poisoned += is_poisoned;
      }
      transfer const word = word_of(o.backend, 0, order.slot.value);
      CHECK(word == (n_poisoned != 0 ? transfer::failed : transfer::arrived));
      n_failed += word == transfer::failed;
    }
    CHECK((n_failed == 1 || n_failed == 2));
    CHECK(o.backend.ledger().transfers.failed == n_failed);
    CHECK(o.backend.ledger().copies.failed == 1);
    CHECK(o.backend.ledger().balances());
    CHECK(o.backend.ledger().transfers.in_flight == 0);
  }
}

TEST_CASE("a failed word waits for the expert's other banks", "[move]") {
  opened o{by_hand};
  o.backend.fail_copy(0);
  o.start(0, {order_of(1, 7, 2, 9)});
  o.backend.advance(43);
  CHECK(word_of(o.backend, 0, 2) == transfer::loading);
  o.backend.advance(1);
  CHECK(word_of(o.backend, 0, 2) == transfer::failed);
}

TEST_CASE("copies fail by predicate", "[move]") {
  opened o;
  u32 wanted = 8;
  o.backend.fail_when(
      [](void* context, move::copy_attempt const& a) {
        u32 const expert = *static_cast<u32*>(context);
        return a.copy.bank == 1 && a.copy.first_expert <= expert &&
               expert < a.copy.first_expert + a.copy.n_experts;
      },
      &wanted);
  o.start(0, {order_of(1, 1, 0, 1), order_of(1, 8, 1, 1)});
  o.backend.poll();
  CHECK(word_of(o.backend, 0, 0) == transfer::arrived);
  CHECK(word_of(o.backend, 0, 1) == transfer::failed);
  o.backend.fail_when(nullptr);
  o.start(0, {order_of(1, 8, 1, 2)});
  o.backend.poll();
  CHECK(word_of(o.backend, 0, 1) == transfer::arrived);
}

TEST_CASE("deferred readers catch a use before arrival", "[move]") {
  opened o{by_hand};
  transfer_order const order = order_of(1, 7, 2, 9);
  auto const claim = [&](u32 bank) {
    return move::read_claim{0, order.slot, order.expert, order.generation, bank};
  };
  o.start(0, {order});                                 // runs from tick 0 to 44
  u32 const early = o.backend.enqueue_read(claim(0));  // begins at tick 0: a copy is writing
  o.backend.advance(30);
  u32 const in_time = o.backend.enqueue_read(claim(0));
  u32 const unwritten = o.backend.enqueue_read(claim(2));
  o.backend.advance(14);
  u32 const after = o.backend.enqueue_read(claim(2), 10);
  o.backend.advance_to_idle();
  REQUIRE(o.backend.reports().size() == 4);
  CHECK(o.backend.reports()[early].fault == read_fault::torn);
  CHECK(o.backend.reports()[in_time].fault == read_fault::none);
  CHECK(o.backend.reports()[unwritten].fault == read_fault::empty);
  CHECK(o.backend.reports()[after].fault == read_fault::none);
  CHECK(o.backend.reports()[after].end == 54);
  CHECK(o.backend.n_faults() == 2);
}

TEST_CASE("deferred readers catch an eviction under them", "[move]") {
  opened o{by_hand};
  o.start(2, {order_of(2, 7, 2, 1)});
  o.backend.advance_to_idle();
  move::read_claim const claim{2, slot_id{2}, {layer_id{2}, expert_id{7}}, 1, 0};
  (void)o.backend.enqueue_read(claim, 10);  // 33 … 43
  o.backend.advance(5);
  o.start(2, {order_of(2, 8, 2, 2)});       // 38 … 71
  (void)o.backend.enqueue_read(claim, 10);  // 43 … 53
  o.backend.advance(30);
  (void)o.backend.enqueue_read(claim);  // 68
  o.backend.advance_to_idle();
  (void)o.backend.enqueue_read(claim);  // the new expert has arrived
  o.backend.advance_to_idle();
  CHECK(o.backend.reports()[0].fault == read_fault::changed);
  CHECK(o.backend.reports()[1].fault == read_fault::torn);
  CHECK(o.backend.reports()[2].fault == read_fault::torn);
  CHECK(o.backend.reports()[3].fault == read_fault::other_expert);
  // a copy that begins when the reader ends does no harm
  (void)o.backend.enqueue_read({2, slot_id{2}, {layer_id{2}, expert_id{8}}, 2, 0}, 10);
  o.backend.advance(10);
  o.start(2, {order_of(2, 9, 2, 3)});
  o.backend.advance_to_idle();
  CHECK(o.backend.reports()[4].fault == read_fault::none);
}

TEST_CASE("at one tick the stream that was asked first goes first", "[move]") {
  opened o{by_hand};
  o.start(2, {order_of(2, 7, 2, 1)});
  o.backend.advance_to_idle();
  move::read_claim const claim{2, slot_id{2}, {layer_id{2}, expert_id{7}}, 1, 0};
  (void)o.backend.enqueue_read(claim);
  o.start(2, {order_of(2, 8, 2, 2)});
  (void)o.backend.enqueue_read(claim);
  o.backend.advance_to_idle();
  CHECK(o.backend.reports()[0].fault == read_fault::none);
  CHECK(o.backend.reports()[1].fault == read_fault::torn);
}

TEST_CASE("close ends what runs and what waits", "[move]") {
  opened o{by_hand};
  o.start(0, {order_of(1, 7, 2, 1), order_of(1, 9, 3, 1)});
  (void)o.backend.enqueue_read({0, slot_id{3}, {layer_id{1}, expert_id{9}}, 1, 0}, 100);
  o.backend.advance(20);
  (void)o.backend.enqueue_read({0, slot_id{2}, {layer_id{1}, expert_id{7}}, 1, 0});
  o.backend.close();
  CHECK(word_of(o.backend, 0, 2) == transfer::failed);
  CHECK(word_of(o.backend, 0, 3) == transfer::failed);
  REQUIRE(o.backend.reports().size() == 2);
  CHECK(o.backend.reports()[1].fault == read_fault::closed);
  CHECK(o.backend.ledger().transfers.in_flight == 0);
  CHECK(o.backend.ledger().balances());
  CHECK(o.backend.idle());
  // opened anew it is as new
  o.backend.open(o.model, o.sites);
  CHECK(word_of(o.backend, 0, 2) == transfer::none);
  o.start(0, {order_of(1, 7, 2, 1)});
  o.backend.advance_to_idle();
  CHECK(word_of(o.backend, 0, 2) == transfer::arrived);
}

TEST_CASE("host refuses sites that are no bank, and is then as before", "[move]") {
  opened o;
  std::vector<pool_site> bad = o.sites;
  bad[1].first_slot = 1;
  move::host fresh;
  CHECK_THROWS_AS(fresh.open(o.model, bad), config_error);
  CHECK_NOTHROW(fresh.open(o.model, o.sites));
}
