// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/result.hpp"

namespace warmset::inline v0::gate {

/// Who plans and commits for a group: it owns the only writable table, the others have snapshots.
enum class holder : u8 {
  nobody,
  host,    ///< the engine's decode thread
  device,  ///< plan kernels
  worker,  ///< a worker thread that plans for the device
};

inline constexpr u32 n_holders = 4;

constexpr char const* name_of(holder h) noexcept {
  constexpr char const* names[n_holders] = {"nobody", "host", "device", "worker"};
  return static_cast<u32>(h) < n_holders ? names[static_cast<u32>(h)] : "unknown";
}

/// Where a group stands.
enum class gate_state : u8 {
  unpublished,  ///< nobody has the authority
  open,         ///< its holder may enter
  closing,      ///< a transition has begun: nobody enters, what is inside ends
  moving,       ///< nobody is inside: the block is being copied to the next holder
};

inline constexpr u32 n_gate_states = 4;

constexpr char const* name_of(gate_state s) noexcept {
  constexpr char const* names[n_gate_states] = {"unpublished", "open", "closing", "moving"};
  return static_cast<u32>(s) < n_gate_states ? names[static_cast<u32>(s)] : "unknown";
}

/// What can happen to a group.
enum class gate_event : u8 {
  publish,   ///< memory is reserved: somebody gets the authority for the first time
  withdraw,  ///< the authority ends
  enter,     ///< an operation begins
  reenter,   ///< what is inside already goes on
  leave,     ///< an operation ends
  begin,     ///< a transition to another holder begins
  prepare,   ///< the transition asks whether it may copy
  complete,  ///< the block is with the next holder
  fail,      ///< the transition ends without effect
};

inline constexpr u32 n_gate_events = 9;

constexpr char const* name_of(gate_event e) noexcept {
  constexpr char const* names[n_gate_events] = {
      "publish", "withdraw", "enter", "reenter", "leave", "begin", "prepare", "complete", "fail"};
  return static_cast<u32>(e) < n_gate_events ? names[static_cast<u32>(e)] : "unknown";
}

/// One cell of the transition table: the next state, or why there is none. What the cell allows can still
/// be refused for the group's numbers: see `apply`.
struct gate_rule {
  gate_state next;
  reason why;  ///< none = allowed
  friend constexpr bool operator==(gate_rule, gate_rule) = default;
};

/// The transition table, by state and event. `unsupported` marks pairs that no correct caller produces.
struct gate_rules {
  gate_rule cell[n_gate_states][n_gate_events];

  constexpr gate_rule at(gate_state s, gate_event e) const noexcept {
    return cell[static_cast<u32>(s)][static_cast<u32>(e)];
  }
};

inline constexpr gate_rules gate_table = [] {
  using s = gate_state;
  using e = gate_event;
  gate_rules t{};
  for (u32 i = 0; i < n_gate_states; ++i) {
    for (gate_rule& cell : t.cell[i]) {
      cell = {static_cast<s>(i), reason::unsupported};
    }
  }
  auto set = [&t](s from, e what, s to, reason why = reason::none) {
    t.cell[static_cast<u32>(from)][static_cast<u32>(what)] = {to, why};
  };
  set(s::unpublished, e::publish, s::open);
  set(s::unpublished, e::withdraw, s::unpublished, reason::no_authority);
  set(s::unpublished, e::enter, s::unpublished, reason::no_authority);
  set(s::unpublished, e::begin, s::unpublished, reason::no_authority);
  set(s::open, e::publish, s::open, reason::in_use);
  set(s::open, e::withdraw, s::unpublished);
  set(s::open, e::enter, s::open);
  set(s::open, e::reenter, s::open);
  set(s::open, e::leave, s::open);
  set(s::open, e::begin, s::closing);
  set(s::closing, e::publish, s::closing, reason::in_use);
  set(s::closing, e::withdraw, s::closing, reason::gate_closed);
  set(s::closing, e::enter, s::closing, reason::gate_closed);
  set(s::closing, e::reenter, s::closing);
  set(s::closing, e::leave, s::closing);
  set(s::closing, e::begin, s::closing, reason::gate_closed);
  set(s::closing, e::prepare, s::moving);
  set(s::closing, e::fail, s::open);
  set(s::moving, e::publish, s::moving, reason::in_use);
  set(s::moving, e::withdraw, s::moving, reason::gate_closed);
  set(s::moving, e::enter, s::moving, reason::gate_closed);
  set(s::moving, e::begin, s::moving, reason::gate_closed);
  set(s::moving, e::complete, s::open);
  set(s::moving, e::fail, s::open);
  return t;
}();

namespace detail {

/// A refusal stays where it is, and every allowed cell leads to a state of the table.
consteval bool is_total(gate_rules const& t) {
  for (u32 s = 0; s < n_gate_states; ++s) {
    for (gate_rule const& cell : t.cell[s]) {
      if (static_cast<u32>(cell.next) >= n_gate_states) {
        return false;
      }
      if (cell.why != reason::none && static_cast<u32>(cell.next) != s) {
        return false;
      }
    }
  }
  return true;
}

/// Every state is reached from `unpublished`, and leads back to it.
consteval bool is_reachable(gate_rules const& t) {
  bool reach[n_gate_states][n_gate_states] = {};
  for (u32 s = 0; s < n_gate_states; ++s) {
    reach[s][s] = true;
    for (gate_rule const& cell : t.cell[s]) {
      reach[s][static_cast<u32>(cell.next)] = true;
    }
  }
  for (u32 via = 0; via < n_gate_states; ++via) {
    for (u32 a = 0; a < n_gate_states; ++a) {
      for (u32 b = 0; b < n_gate_states; ++b) {
        reach[a][b] = reach[a][b] || (reach[a][via] && reach[via][b]);
      }
    }
  }
  for (u32 s = 0; s < n_gate_states; ++s) {
    if (!reach[0][s] || !reach[s][0]) {
      return false;
    }
  }
  return true;
}

/// Whether any event leads from one state to the other.
consteval bool leads(gate_rules const& t, gate_state from, gate_state to) {
  for (gate_rule const& cell : t.cell[static_cast<u32>(from)]) {
    if (cell.why == reason::none && cell.next == to) {
      return true;
    }
  }
  return false;
}

}  // namespace detail

static_assert(detail::is_total(gate_table), "every state answers every event, and a refusal stays");
static_assert(detail::is_reachable(gate_table), "every state is reached, and left again");
static_assert(!detail::leads(gate_table, gate_state::open, gate_state::moving),
              "a block is copied only behind a closed gate");
static_assert(!detail::leads(gate_table, gate_state::closing, gate_state::unpublished) &&
                  !detail::leads(gate_table, gate_state::moving, gate_state::unpublished),
              "the authority does not end during a transition");
static_assert(!detail::leads(gate_table, gate_state::moving, gate_state::closing),
              "nobody waits twice in one transition");
static_assert(gate_table.at(gate_state::closing, gate_event::enter).why == reason::gate_closed &&
                  gate_table.at(gate_state::moving, gate_event::enter).why == reason::gate_closed,
              "nobody enters through a closed gate");
static_assert(gate_table.at(gate_state::closing, gate_event::complete).why == reason::unsupported,
              "a transition completes only after it was prepared");

/// All of one group: plain data, packed into one 64-bit word by `pack`.
struct group_state {
  u32 epoch = 0;   ///< counts the authorities that ended; wraps after 2^32 of them
  u16 active = 0;  ///< operations inside
  gate_state state = gate_state::unpublished;
  holder who = holder::nobody;
  holder next = holder::nobody;  ///< whom a transition goes to

  friend constexpr bool operator==(group_state, group_state) = default;
};

constexpr u64 pack(group_state g) noexcept {
  return u64{g.epoch} << 32 | u64{g.active} << 16 | u64{static_cast<u8>(g.state)} << 8 |
         u64{static_cast<u8>(g.who)} << 4 | static_cast<u8>(g.next);
}
constexpr group_state unpack(u64 word) noexcept {
  return {static_cast<u32>(word >> 32), static_cast<u16>(word >> 16),
          static_cast<gate_state>(word >> 8 & 0xFF), static_cast<holder>(word >> 4 & 0xF),
          static_cast<holder>(word & 0xF)};
}

/// An event with its arguments.
struct gate_call {
  gate_event what;
  holder who =
      holder::nobody;  ///< enter, reenter: who asks; publish, begin: who gets the authority
  u32 epoch = 0;       ///< enter, reenter: of the table that the caller would use
};

/// What an event leads to. A refusal leaves the group as it is.
struct [[nodiscard]] gate_change {
  group_state after;
  reason why = reason::none;
  bool wakes =
      false;  ///< somebody may wait for this: the last one has left a closing gate, or a gate moved
  constexpr explicit operator bool() const noexcept { return why == reason::none; }
};

/// The whole behaviour of a group: a pure function of its state and the event. `authority` runs it on an
/// atomic word, tests run it on values.
///
/// Beyond the table it refuses: `enter` and `reenter` of another than the holder (`no_authority`) or of
/// another epoch (`stale_epoch`), `enter` where 65,535 are inside (`limited`), `prepare` and `withdraw`
/// while somebody is inside (`busy`), and calls that no correct caller makes (`unsupported`): `leave` and
/// `reenter` of an empty group, a transition to nobody or to the holder itself.
constexpr gate_change apply(group_state now, gate_call call) noexcept {
  gate_rule const rule = gate_table.at(now.state, call.what);
  auto const refused = [&](reason why) { return gate_change{now, why, false}; };
  if (rule.why != reason::none) {
    return refused(rule.why);
  }
  group_state after = now;
  after.state = rule.next;
  bool wakes = false;
  switch (call.what) {
  case gate_event::publish:
    if (call.who == holder::nobody) {
      return refused(reason::unsupported);
    }
    after.who = call.who;
    wakes = true;
    break;
  case gate_event::withdraw:
    if (now.active != 0) {
      return refused(reason::busy);
    }
    after.who = holder::nobody;
    ++after.epoch;
    wakes = true;
    break;
  case gate_event::enter:
  case gate_event::reenter:
    if (call.who != now.who) {
      return refused(reason::no_authority);
    }
    if (call.epoch != now.epoch) {
      return refused(reason::stale_epoch);
    }
    if (call.what == gate_event::reenter && now.active == 0) {
      return refused(reason::unsupported);
    }
    if (now.active == 0xFFFF) {
      return refused(reason::limited);
    }
    ++after.active;
    break;
  case gate_event::leave:
    if (now.active == 0) {
      return refused(reason::unsupported);
    }
    --after.active;
    wakes = after.active == 0 && after.state == gate_state::closing;
    break;
  case gate_event::begin:
    if (call.who == holder::nobody || call.who == now.who) {
      return refused(reason::unsupported);
    }
    after.next = call.who;
    break;
  case gate_event::prepare:
    if (now.active != 0) {
      return refused(reason::busy);
    }
    break;
  case gate_event::complete:
    after.who = now.next;
    after.next = holder::nobody;
    ++after.epoch;
    wakes = true;
    break;
  case gate_event::fail:
    after.next = holder::nobody;
    wakes = true;
    break;
  }
  return {after, reason::none, wakes};
}

}  // namespace warmset::inline v0::gate
