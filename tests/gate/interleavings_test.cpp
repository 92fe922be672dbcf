// SPDX-License-Identifier: Apache-2.0
// Two planners, one worker and one transition, there and back, in every order; and the same with each rule
// broken in turn, which the checker has to see.

#include <catch2/catch_test_macros.hpp>

#include "gate/model_checker.hpp"

namespace warmset::gate::model {
namespace {

/// Operations of each planner and worker. A build for sanitizers, which is not optimised, takes one.
#if defined(__OPTIMIZE__)
constexpr u8 most_rounds = 2;
#else
constexpr u8 most_rounds = 1;
#endif

/// The rules with one of them broken. `Break(before, call, change)` repairs or spoils the change.
template <auto Break>
struct broken_rules {
  static gate_change apply(group_state g, gate_call c) { return Break(g, c, gate::apply(g, c)); }
};

gate_change skips_the_epoch(group_state g, gate_call c, gate_change right) {
  return right.why == reason::stale_epoch ? gate::apply(g, {c.what, c.who, g.epoch}) : right;
}
gate_change skips_the_holder(group_state g, gate_call c, gate_change right) {
  return right.why == reason::no_authority ? gate::apply(g, {c.what, g.who, c.epoch}) : right;
}
gate_change keeps_the_epoch(group_state g, gate_call c, gate_change right) {
  if (c.what == gate_event::complete) {
    right.after.epoch = g.epoch;
  }
  return right;
}
gate_change prepares_while_busy(group_state g, gate_call c, gate_change right) {
  if (c.what == gate_event::prepare && right.why == reason::busy) {
    right = {g, reason::none, false};
    right.after.state = gate_state::moving;
  }
  return right;
}
gate_change enters_while_moving(group_state g, gate_call c, gate_change right) {
  if (c.what == gate_event::enter && g.state == gate_state::moving && c.who == g.who &&
      c.epoch == g.epoch) {
    right = {g, reason::none, false};
    ++right.after.active;
  }
  return right;
}
template <gate_event Silent>
gate_change forgets_to_wake(group_state, gate_call c, gate_change right) {
  right.wakes = right.wakes && c.what != Silent;
  return right;
}
gate_change fails_and_stays_shut(group_state g, gate_call c, gate_change right) {
  if (c.what == gate_event::fail && right) {
    right.after.state = gate_state::closing;
    right.after.next = g.next;
  }
  return right;
}
gate_change fails_into_the_next(group_state g, gate_call c, gate_change right) {
  if (c.what == gate_event::fail && right) {
    right.after.who = g.next;
  }
  return right;
}
gate_change fails_with_an_epoch(group_state, gate_call c, gate_change right) {
  right.after.epoch += c.what == gate_event::fail && right ? 1 : 0;
  return right;
}
gate_change leaves_twice(group_state, gate_call c, gate_change right) {
  right.after.active = static_cast<u16>(c.what == gate_event::leave && right.after.active != 0
                                            ? right.after.active - 1
                                            : right.after.active);
  return right;
}
gate_change shuts_out_what_is_inside(group_state g, gate_call c, gate_change right) {
  if (c.what == gate_event::reenter && g.state == gate_state::closing) {
    right = {g, reason::gate_closed, false};
  }
  return right;
}

template <auto Break>
std::string found() {
  return checker<broken_rules<Break>>{}.all_states(most_rounds).broken;
}

}  // namespace

TEST_CASE("every state of two planners one worker and one transition") {
  for (u8 rounds = 1; rounds <= most_rounds; ++rounds) {
    report const r = checker<real_rules>{}.all_states(rounds);
    CHECK(r.broken == "");
    CHECK(r.states > 1000);
    WARN("rounds " << +rounds << ": " << r.states << " states, " << r.steps << " steps, up to "
                   << r.depth << " deep; no deadlock, no lost wake-up, no stale epoch");
  }
}

TEST_CASE("every schedule of ten steps") {
  report r;
  u64 const n = checker<real_rules>{}.all_schedules(2, 10, r);
  CHECK(r.broken == "");
  CHECK(n > 1'000'000);
  WARN(n << " schedules of 10 steps");
}

TEST_CASE("the checker sees each broken rule") {
  CHECK(found<skips_the_epoch>() == "a stale epoch was accepted");
  CHECK(found<skips_the_holder>() != "");
  CHECK(found<keeps_the_epoch>() != "");
  CHECK(found<prepares_while_busy>() == "a block is copied while somebody is inside");
  CHECK(found<enters_while_moving>() == "a block is copied while somebody is inside");
  CHECK(found<fails_and_stays_shut>() != "");
  CHECK(found<fails_into_the_next>() == "a failed transition changed something");
  CHECK(found<fails_with_an_epoch>() == "a failed transition changed something");
  CHECK(found<leaves_twice>() == "the active count is not the number inside");
  CHECK(found<shuts_out_what_is_inside>() == "what is inside may not go on");
  std::string const deadlock = "deadlock: nobody can go on, and somebody sleeps for ever";
  CHECK(found<forgets_to_wake<gate_event::leave>>() == deadlock);
  CHECK(found<forgets_to_wake<gate_event::complete>>() == deadlock);
  CHECK(found<forgets_to_wake<gate_event::fail>>() == deadlock);
}

}  // namespace warmset::gate::model
