// SPDX-License-Identifier: Apache-2.0
// The atomic wrapper: what each call does, transitions as objects, the hand-over with an injected clock.

#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/gate/hand_over.hpp>
#include <warmset/gate/held_by.hpp>

#include "gate/virtual_clock.hpp"

namespace warmset::gate {
namespace {

struct three_groups {
  references memory;
  authority groups{3};
  three_groups() {
    for (u32 g = 0; g < 3; ++g) {
      REQUIRE(groups.publish(g, holder::host, memory));
    }
  }
};

}  // namespace

TEST_CASE("an authority over nothing is no authority") {
  CHECK_THROWS_AS(authority{0}, config_error);
}

TEST_CASE("groups are apart") {
  three_groups t;
  CHECK(t.groups.enter(1, holder::host, 0));
  auto moving = t.groups.begin(1, holder::device);
  REQUIRE(moving);
  CHECK(t.groups.enter(0, holder::host, 0));
  CHECK(t.groups.look(0).active == 1);
  CHECK(t.groups.look(1).state == gate_state::closing);
  CHECK(t.groups.look(2) == group_state{0, 0, gate_state::open, holder::host, holder::nobody});
}

TEST_CASE("publish holds memory and withdraw lets it go") {
  references memory;
  authority groups{2};
  CHECK(groups.refusal(0, reason::no_authority) == result{not_published{}});
  CHECK(groups.publish(0, holder::nobody, memory).why == reason::unsupported);
  CHECK(memory.count() == 0);
  REQUIRE(groups.publish(0, holder::host, memory));
  CHECK(groups.publish(0, holder::device, memory).why == reason::in_use);
  CHECK(memory.count() == 1);
  CHECK(memory.release().why == reason::in_use);
  REQUIRE(groups.enter(0, holder::host, 0));
  CHECK(groups.withdraw(0).why == reason::busy);
  groups.leave(0);
  {
    auto moving = groups.begin(0, holder::device);
    CHECK(groups.withdraw(0).why == reason::gate_closed);
  }
  REQUIRE(groups.withdraw(0));
  CHECK(groups.withdraw(0).why == reason::no_authority);
  CHECK(groups.look(0).epoch == 1);  // a table of before is stale
  CHECK(memory.count() == 0);
  REQUIRE(memory.release());
  CHECK(groups.publish(0, holder::host, memory).why == reason::no_memory);
  references again;
  REQUIRE(groups.publish(0, holder::host, again));
  CHECK(groups.enter(0, holder::host, 0).why == reason::stale_epoch);
  CHECK(groups.enter(0, holder::host, 1));
}

TEST_CASE("a transition is an object that fails unless it completes") {
  three_groups t;
  group_state const before = t.groups.look(0);
  {
    authority::transition moving = t.groups.begin(0, holder::device);
    REQUIRE(moving);
    CHECK(moving.next_epoch() == 1);
    authority::transition second = t.groups.begin(0, holder::worker);
    CHECK(!second);
    CHECK(second.why() == reason::gate_closed);
    second.fail();  // an empty one does nothing
    CHECK(t.groups.look(0).state == gate_state::closing);
    authority::transition moved = std::move(moving);
    CHECK(!moving);
    CHECK(moved.complete().why == reason::unsupported);  // not prepared
    CHECK(moved);
    CHECK(moved.prepare());
    CHECK(moved.prepare().why == reason::unsupported);  // once
    CHECK(t.groups.look(0).state == gate_state::moving);
  }
  CHECK(t.groups.look(0) == before);
  {
    authority::transition moving = t.groups.begin(0, holder::device);
    moving = t.groups.begin(1, holder::device);  // the one before fails
    CHECK(t.groups.look(0) == before);
    REQUIRE(moving.prepare());
    REQUIRE(moving.complete());
    CHECK(!moving);
  }
  CHECK(t.groups.look(1) == group_state{1, 0, gate_state::open, holder::device, holder::nobody});
  CHECK(t.groups.begin(1, holder::device).why() == reason::unsupported);  // it has it
}

TEST_CASE("a transition that is not under way has nothing to prepare or complete") {
  three_groups t;
  authority::transition refused = t.groups.begin(0, holder::host);
  authority::transition never;
  authority::transition moving = t.groups.begin(0, holder::device);
  REQUIRE(moving.prepare());
  REQUIRE(moving.complete());
  group_state const after = t.groups.look(0);
  for (authority::transition* const x : {&refused, &never, &moving}) {
    REQUIRE(!*x);
    CHECK(x->prepare().why == reason::unsupported);
    CHECK(x->complete().why == reason::unsupported);
    x->wait_until_idle();
    x->fail();
  }
  CHECK(t.groups.look(0) == after);
}

TEST_CASE("hand_over tries eight times two hundred milliseconds apart") {
  three_groups t;
  virtual_clock clock;
  u32 copies = 0;
  auto const copy = [&](u32) {
    ++copies;
    return done;
  };
  SECTION("somebody inside never leaves") {
    REQUIRE(t.groups.enter(0, holder::host, 0));
    group_state const before = t.groups.look(0);
    CHECK(hand_over(t.groups, 0, holder::device, copy, clock) ==
          result{refused{reason::busy, 0, 0, true}});
    CHECK(clock.sleeps == std::vector<u64>{200, 400, 600, 800, 1000, 1200, 1400});
    CHECK(copies == 0);
    CHECK(t.groups.look(0) == before);
  }
  SECTION("it leaves after three tries") {
    REQUIRE(t.groups.enter(0, holder::host, 0));
    clock.at(500, [&] { t.groups.leave(0); });
    CHECK(hand_over(t.groups, 0, holder::device, copy, clock) == result{ready{1}});
    CHECK(clock.sleeps.size() == 3);
    CHECK(copies == 1);
    CHECK(t.groups.look(0).epoch == 1);
  }
  SECTION("another transition is under way and ends") {
    auto other = t.groups.begin(0, holder::worker);
    clock.at(300, [&] {
      REQUIRE(other.prepare());
      REQUIRE(other.complete());
    });
    CHECK(hand_over(t.groups, 0, holder::device, copy, clock) == result{ready{1}});
    CHECK(t.groups.look(0).epoch == 2);
    CHECK(t.groups.look(0).who == holder::device);
  }
  SECTION("every other transition begins the tries anew") {
    // each time another one has just ended in another epoch: seven tries in each of two epochs
    auto other = t.groups.begin(0, holder::worker);
    clock.at(1300, [&] {
      REQUIRE(other.prepare());
      REQUIRE(other.complete());
      other = t.groups.begin(0, holder::host);
    });
    clock.at(2600, [&] { other.fail(); });
    CHECK(hand_over(t.groups, 0, holder::device, copy, clock) == result{ready{1}});
    CHECK(clock.sleeps.size() > 8);
  }
  SECTION("what cannot succeed is tried once") {
    CHECK(hand_over(t.groups, 0, holder::host, copy, clock) ==
          result{refused{reason::unsupported, 0, 0, false}});
    authority nobody{1};
    CHECK(hand_over(nobody, 0, holder::host, copy, clock) == result{not_published{}});
    auto const fails = [](u32) { return status{reason::no_memory}; };
    CHECK(hand_over(t.groups, 0, holder::device, fails, clock) ==
          result{refused{reason::no_memory, 0, 0, false}});
    CHECK(clock.sleeps.empty());
  }
}

TEST_CASE("held_by counts its own entries and lets continuations in") {
  three_groups t;
  held_by<holder::host> gate{t.groups, 1};
  CHECK_THROWS_AS(gate.open(3), config_error);
  gate.open(2);
  u32 const epoch = 0;
  u32 const old = 7;
  CHECK(gate.enter(0, old, purpose::demand).why == reason::stale_epoch);
  CHECK(t.groups.look(1).active == 0);
  REQUIRE(gate.enter(0, epoch, purpose::demand));
  auto moving = t.groups.begin(1, holder::device);
  CHECK(gate.enter(0, epoch, purpose::upkeep).why == reason::gate_closed);
  CHECK(gate.look(0, purpose::demand).why == reason::gate_closed);
  REQUIRE(gate.enter(0, epoch, purpose::continuation));
  CHECK(t.groups.look(1).active == 2);
  gate.leave(0);
  gate.leave(0);
  CHECK(gate.enter(0, epoch, purpose::continuation).why ==
        reason::gate_closed);  // nothing to continue
  CHECK(moving.prepare());
}

namespace {
struct needs_a_worker {
  static constexpr bool speculates = true;
  bool const* runs;
  pass may(u32 group) const noexcept {
    return *runs ? pass{reason::none, 3 + group} : pass{reason::worker_down, 0};
  }
};
}  // namespace

TEST_CASE("the permit is asked after the authority and for speculation alone") {
  three_groups t;
  bool runs = true;
  held_by<holder::host, needs_a_worker> gate{t.groups, 0, nullptr, needs_a_worker{&runs}};
  gate.open(3);
  u32 const epoch = 0;
  pass const may = gate.enter(2, epoch, purpose::speculation);
  CHECK(may);
  CHECK(may.max_loads == 5);
  gate.leave(2);
  runs = false;
  CHECK(gate.look(2, purpose::speculation).why == reason::worker_down);
  CHECK(gate.enter(2, epoch, purpose::speculation).why == reason::worker_down);
  CHECK(t.groups.look(2).active == 0);
  CHECK(gate.enter(2, epoch, purpose::demand));
  gate.leave(2);
  auto const moving = t.groups.begin(2, holder::device);
  CHECK(gate.enter(2, epoch, purpose::speculation).why == reason::gate_closed);
  CHECK(gate.look(2, purpose::speculation).why == reason::gate_closed);
  STATIC_CHECK(!held_by<holder::device, no_permit>::speculates);
}

}  // namespace warmset::gate
