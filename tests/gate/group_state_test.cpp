// SPDX-License-Identifier: Apache-2.0
// The transition table against a specification that was written without it: a few words of prose as code.

#include <optional>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/gate/group_state.hpp>

namespace warmset::gate {
namespace {

constexpr holder holders[] = {holder::nobody, holder::host, holder::device, holder::worker};

/// A group in the words of the design, without states: somebody has the authority or nobody; the gate stands
/// open or not; the block is being copied or not.
struct group_in_words {
  std::optional<holder> has_authority;
  std::optional<holder> is_going_to;  // the gate is shut while it is
  bool is_copied = false;
  u32 inside = 0;
  u32 epoch = 0;
};

std::optional<group_in_words> in_words(group_state g) {
  group_in_words w;
  w.epoch = g.epoch;
  w.inside = g.active;
  if (g.who != holder::nobody) {
    w.has_authority = g.who;
  }
  if (g.next != holder::nobody) {
    w.is_going_to = g.next;
  }
  w.is_copied = g.state == gate_state::moving;
  bool const consistent = (g.state == gate_state::unpublished) == !w.has_authority &&
                          (g.state == gate_state::closing || g.state == gate_state::moving) ==
                              w.is_going_to.has_value() &&
                          (w.has_authority || w.inside == 0) && !(w.is_copied && w.inside != 0) &&
                          (!w.is_going_to || w.is_going_to != w.has_authority);
  return consistent ? std::optional{w} : std::nullopt;
}

/// What an event does to it. A reason leaves it as it was.
reason happen(group_in_words& g, gate_call call) {
  bool const shut = g.is_going_to.has_value();
  switch (call.what) {
  case gate_event::publish:
    if (g.has_authority)
      return reason::in_use;
    if (call.who == holder::nobody)
      return reason::unsupported;
    g.has_authority = call.who;
    return reason::none;
  case gate_event::withdraw:
    if (!g.has_authority)
      return reason::no_authority;
    if (shut)
      return reason::gate_closed;
    if (g.inside > 0)
      return reason::busy;
    g.has_authority.reset();
    g.epoch += 1;
    return reason::none;
  case gate_event::enter:
    if (!g.has_authority)
      return reason::no_authority;
    if (shut)
      return reason::gate_closed;
    if (g.has_authority != call.who)
      return reason::no_authority;
    if (g.epoch != call.epoch)
      return reason::stale_epoch;
    if (g.inside == 65'535)
      return reason::limited;
    g.inside += 1;
    return reason::none;
  case gate_event::reenter:
    if (!g.has_authority || g.is_copied)
      return reason::unsupported;
    if (g.has_authority != call.who)
      return reason::no_authority;
    if (g.epoch != call.epoch)
      return reason::stale_epoch;
    if (g.inside == 0)
      return reason::unsupported;
    if (g.inside == 65'535)
      return reason::limited;
    g.inside += 1;
    return reason::none;
  case gate_event::leave:
    if (g.inside == 0)
      return reason::unsupported;
    g.inside -= 1;
    return reason::none;
  case gate_event::begin:
    if (!g.has_authority)
      return reason::no_authority;
    if (shut)
      return reason::gate_closed;
    if (call.who == holder::nobody || g.has_authority == call.who)
      return reason::unsupported;
    g.is_going_to = call.who;
    return reason::none;
  case gate_event::prepare:
    if (!shut || g.is_copied)
      return reason::unsupported;
    if (g.inside > 0)
      return reason::busy;
    g.is_copied = true;
    return reason::none;
  case gate_event::complete:
    if (!g.is_copied)
      return reason::unsupported;
    g.has_authority = g.is_going_to;
    g.is_going_to.reset();
    g.is_copied = false;
    g.epoch += 1;
    return reason::none;
  case gate_event::fail:
    if (!shut)
      return reason::unsupported;
    g.is_going_to.reset();
    g.is_copied = false;
    return reason::none;
  }
  return reason::corrupt;
}

bool equal(group_in_words const& a, group_in_words const& b) {
  return a.has_authority == b.has_authority && a.is_going_to == b.is_going_to &&
         a.is_copied == b.is_copied && a.inside == b.inside && a.epoch == b.epoch;
}

/// Every consistent group with these counts and epochs.
std::vector<group_state> all_groups() {
  std::vector<group_state> all;
  for (u32 s = 0; s < n_gate_states; ++s) {
    for (holder who : holders) {
      for (holder next : holders) {
        for (u32 active : {0u, 1u, 2u, 65'534u, 65'535u}) {
          for (u32 epoch : {0u, 1u, 7u, u32_max}) {
            group_state const g{epoch, static_cast<u16>(active), static_cast<gate_state>(s), who,
                                next};
            if (in_words(g)) {
              all.push_back(g);
            }
          }
        }
      }
    }
  }
  return all;
}

std::vector<gate_call> all_calls(u32 epoch) {
  std::vector<gate_call> all;
  for (u32 e = 0; e < n_gate_events; ++e) {
    for (holder who : holders) {
      for (u32 asked : {epoch, epoch - 1, epoch + 1, 0u}) {
        all.push_back({static_cast<gate_event>(e), who, asked});
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("every state and event is what the words say") {
  u32 pairs[n_gate_states][n_gate_events] = {};
  u64 n = 0;
  for (group_state const before : all_groups()) {
    for (gate_call const call : all_calls(before.epoch)) {
      gate_change const got = apply(before, call);
      group_in_words expected = *in_words(before);
      reason const why = happen(expected, call);
      INFO(name_of(before.state) << " " << name_of(call.what) << " by " << name_of(call.who)
                                 << ", epoch " << call.epoch << " of " << before.epoch << ", "
                                 << before.active << " inside");
      REQUIRE(name_of(got.why) == std::string{name_of(why)});
      auto const after = in_words(got.after);
      REQUIRE(after.has_value());
      REQUIRE(equal(*after, expected));
      if (why != reason::none) {
        REQUIRE(got.after == before);  // a refusal changes nothing
        REQUIRE(!got.wakes);
      }
      ++pairs[static_cast<u32>(before.state)][static_cast<u32>(call.what)];
      ++n;
    }
  }
  for (auto const& row : pairs) {
    for (u32 const seen : row) {
      CHECK(seen > 0);
    }
  }
  WARN(n << " calls of all " << n_gate_states * n_gate_events << " pairs");
}

TEST_CASE("a group is one word") {
  for (group_state const g : all_groups()) {
    REQUIRE(unpack(pack(g)) == g);
  }
  CHECK(pack({}) == 0);
}

TEST_CASE("a waiter is woken by whatever can end its wait") {
  // who waits: a transition for the last one inside to leave; others for a shut gate to open
  for (group_state const before : all_groups()) {
    for (gate_call const call : all_calls(before.epoch)) {
      gate_change const c = apply(before, call);
      if (!c) {
        continue;
      }
      auto const is_shut = [](group_state g) {
        return g.state == gate_state::closing || g.state == gate_state::moving;
      };
      bool const idle_now = is_shut(before) && before.active != 0 && c.after.active == 0;
      bool const opened = is_shut(before) && !is_shut(c.after);
      INFO(name_of(before.state) << " " << name_of(call.what));
      if (idle_now || opened) {
        REQUIRE(c.wakes);
      }
      if (before.state == gate_state::open && c.after.state == gate_state::open) {
        REQUIRE(!c.wakes);  // the steps of an open group wake nobody
      }
    }
  }
}

}  // namespace warmset::gate
