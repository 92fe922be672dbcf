// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <warmset/gate/group_state.hpp>

/// An explicit-state model checker: two planners of the host, one worker and one transition over one group.
/// The group is a value and its behaviour `Rules::apply`, the function that the atomic wrapper runs; each
/// atomic operation, each access to a table and each notification is one step of one actor.
namespace warmset::gate::model {

/// The rules as they are.
struct real_rules {
  static gate_change apply(group_state g, gate_call c) { return gate::apply(g, c); }
};

enum class pc : u8 {
  look,    // read the group's word
  enter,   // under the epoch that was read
  verify,  // inside: is the table of that epoch
  use,     // inside: the table is read and written
  go_on,   // inside: enter again, as what a lease covers does
  leave_inner,
  leave,
  commit,  // enter with the epoch of the plan, which may be old
  use_commit,
  leave_commit,
  begin,
  prepare,
  copy_block,
  copy_epoch,
  complete,
  wake,        // notify_all after a change that wakes; then `after`
  wait_look,   // wait_while: read the word
  wait_block,  // and sleep if it is still that
  asleep,
  finished,
};

enum class actor_kind : u8 { planner, worker, transition };

struct actor {
  u64 seen;  // the word that was read
  actor_kind kind;
  pc at;
  pc after;       // where `wake`, or a wait, goes on
  u8 rounds;      // operations still to do
  u8 waits_idle;  // what the wait is for: nobody inside, else an open gate
  u8 goal;        // transition: whom to
  u8 may_fail;    // transition: whether it may still choose to
  u8 epoch;       // of the plan
};

struct world {
  u64 word;
  u8 epoch_of[n_holders];    // of each side's table
  bool is_whole[n_holders];  // whether it has every write that took place
  actor actors[4];
  u64 completed;  // transitions

  bool operator==(world const& o) const { return std::memcmp(this, &o, sizeof *this) == 0; }
};

/// The same state in one form: without what nobody will read again, and the planners in one order.
inline world normal(world w) {
  for (actor& a : w.actors) {
    a.seen = a.at == pc::wait_block ? a.seen : 0;
    bool const returns =
        a.at == pc::wake || a.at == pc::wait_look || a.at == pc::wait_block || a.at == pc::asleep;
    a.after = returns ? a.after : pc::finished;
    a.waits_idle = returns ? a.waits_idle : 0;
    bool const forgets = a.at == pc::look || a.at == pc::finished ||
                         (returns && a.after == pc::look) || (returns && a.after == pc::finished);
    a.epoch = forgets ? 0 : a.epoch;
  }
  if (std::memcmp(&w.actors[0], &w.actors[1], sizeof(actor)) > 0) {
    std::swap(w.actors[0], w.actors[1]);
  }
  return w;
}

struct hash_of_world {
  std::size_t operator()(world const& w) const {
    return std::hash<std::string_view>{}({reinterpret_cast<char const*>(&w), sizeof w});
  }
};

inline world start(u8 rounds) {
  world w;
  std::memset(&w, 0, sizeof w);
  w.word = pack({0, 0, gate_state::open, holder::host, holder::nobody});
  w.is_whole[static_cast<u32>(holder::host)] = true;
  auto const make = [&](u32 i, actor_kind kind, pc at, u8 n) {
    w.actors[i].kind = kind;
    w.actors[i].at = at;
    w.actors[i].after = at;
    w.actors[i].rounds = n;
  };
  make(0, actor_kind::planner, pc::look, rounds);
  make(1, actor_kind::planner, pc::look, rounds);
  make(2, actor_kind::worker, pc::look, rounds);
  make(3, actor_kind::transition, pc::begin, 2);  // there and back again
  w.actors[3].goal = static_cast<u8>(holder::worker);
  w.actors[3].may_fail = 1;
  return w;
}

/// What a transition chooses where it can: to go on, to fail and be tried again, to fail for good.
enum class choice : u8 { go_on, fail_once, give_up };

/// What a run of the checker came to.
struct report {
  u64 states = 0;
  u64 steps = 0;
  u32 depth = 0;       ///< of the longest shortest way to a state
  std::string broken;  ///< the first property that did not hold
  explicit operator bool() const { return broken.empty(); }
};

template <class Rules>
class checker {
 public:
  /// Every state that any schedule reaches, and from each whether somebody can go on.
  report all_states(u8 rounds) {
    report r;
    std::unordered_set<world, hash_of_world> seen;
    std::vector<world> now{normal(start(rounds))}, next;
    seen.insert(now[0]);
    for (; !now.empty() && r.broken.empty(); ++r.depth) {
      next.clear();
      for (world const& from : now) {
        next_of(from, r, [&](world const& to) {
          ++r.steps;
          if (world const found = normal(to); seen.insert(found).second) {
            next.push_back(found);
          }
        });
      }
      now.swap(next);
    }
    r.states = seen.size();
    return r;
  }

  /// Every schedule of so many steps, one after the other. Returns how many there are.
  u64 all_schedules(u8 rounds, u32 length, report& r) { return walk(start(rounds), length, r); }

 private:
  u64 walk(world const& from, u32 left, report& r) {
    if (left == 0 || !r.broken.empty()) {
      return 1;
    }
    u64 n = 0;
    next_of(from, r, [&](world const& to) {
      ++r.steps;
      n += walk(to, left - 1, r);
    });
    return n == 0 ? 1 : n;
  }

  /// Calls f(world) for each step that is possible; checks the properties of each, and of a standstill.
  template <class F>
  void next_of(world const& from, report& r, F&& f) {
    bool moved = false;
    bool all_finished = true;
    for (u32 i = 0; i < 4 && r.broken.empty(); ++i) {
      pc const at = from.actors[i].at;
      all_finished = all_finished && at == pc::finished;
      if (at == pc::finished || at == pc::asleep) {
        continue;
      }
      moved = true;
      for (choice const chosen : {choice::go_on, choice::fail_once, choice::give_up}) {
        bool const has_choice = from.actors[i].kind == actor_kind::transition &&
                                from.actors[i].may_fail &&
                                (at == pc::prepare || at == pc::copy_epoch || at == pc::complete);
        if (chosen != choice::go_on && !has_choice) {
          continue;
        }
        world to = from;
        step(to, i, chosen, r);
        check(to, r);
        if (!r.broken.empty()) {
          return;
        }
        f(to);
      }
    }
    if (!moved && !all_finished) {
      r.broken = "deadlock: nobody can go on, and somebody sleeps for ever";
    }
    if (all_finished && r.broken.empty()) {
      group_state const g = unpack(from.word);
      holder const other = g.who == holder::host ? holder::worker : holder::host;
      if (g.state != gate_state::open || g.active != 0 || g.next != holder::nobody) {
        r.broken = "the end is not an open, empty gate";
      } else if (g.epoch != from.completed) {
        r.broken = "the epoch does not count the transitions";
      } else if (!from.is_whole[static_cast<u32>(g.who)]) {
        r.broken = "a write was lost";
      } else if (from.epoch_of[static_cast<u32>(other)] == g.epoch && from.completed == 2) {
        r.broken = "two tables have the group's epoch";
      }
    }
  }

  static void check(world const& w, report& r) {
    group_state const g = unpack(w.word);
    u32 inside = 0;
    bool copying = false;
    for (actor const& a : w.actors) {
      bool const holds = a.at == pc::verify || a.at == pc::use || a.at == pc::go_on ||
                         a.at == pc::leave || a.at == pc::use_commit || a.at == pc::leave_commit;
      inside += holds ? 1 : a.at == pc::leave_inner ? 2 : 0;
      copying = copying || a.at == pc::copy_block || a.at == pc::copy_epoch || a.at == pc::complete;
    }
    if (g.active != inside) {
      r.broken = "the active count is not the number inside";
    } else if (copying && inside != 0) {
      r.broken = "a block is copied while somebody is inside";
    }
  }

  /// Somebody uses the table of `who` under the epoch of its plan.
  static void access(world& w, actor const& a, holder who, report& r) {
    group_state const g = unpack(w.word);
    if (g.who != who) {
      r.broken = "a table is used by another than the holder";
    } else if (g.epoch != a.epoch) {
      r.broken = "a stale epoch was accepted";
    } else if (w.epoch_of[static_cast<u32>(who)] != g.epoch) {
      r.broken = "a stale table is used";
    } else if (!w.is_whole[static_cast<u32>(who)]) {
      r.broken = "a table that lacks writes is used";
    }
  }
  static void write(world& w, holder who) {
    for (bool& whole : w.is_whole) {
      whole = false;
    }
    w.is_whole[static_cast<u32>(who)] = true;
  }

  /// A change of the group; on success the actor goes to `next`, by way of `wake` where that is due.
  static bool change(world& w, actor& a, gate_call call, pc next, reason& why) {
    gate_change const c = Rules::apply(unpack(w.word), call);
    why = c.why;
    if (!c) {
      return false;
    }
    w.word = pack(c.after);
    a.at = c.wakes ? pc::wake : next;
    a.after = next;
    return true;
  }

  static void wait_for(actor& a, bool idle, pc then) {
    a.waits_idle = idle ? 1 : 0;
    a.after = then;
    a.at = pc::wait_look;
  }

  static void end_round(actor& a) { a.at = --a.rounds == 0 ? pc::finished : pc::look; }

  void step(world& w, u32 i, choice chosen, report& r) {
    actor& a = w.actors[i];
    if (chosen != choice::go_on) {
      fail(w, a, chosen == choice::fail_once ? pc::begin : pc::finished, r);
      return;
    }
    holder const who = a.kind == actor_kind::worker ? holder::worker : holder::host;
    reason why{};
    switch (a.at) {
    case pc::look:
      a.seen = w.word;
      a.epoch = static_cast<u8>(unpack(a.seen).epoch);
      a.at = pc::enter;
      break;
    case pc::enter:
      if (!change(w, a, {gate_event::enter, who, a.epoch}, pc::verify, why)) {
        if (why == reason::gate_closed) {
          wait_for(a, false, pc::look);
        } else if (why == reason::stale_epoch) {
          a.at = pc::look;
        } else {
          end_round(a);  // another holder's: the stock way
        }
      }
      break;
    case pc::verify:
      a.at = w.epoch_of[static_cast<u32>(who)] == a.epoch ? pc::use : pc::leave;
      break;
    case pc::use:
      access(w, a, who, r);
      write(w, who);
      a.at = a.kind == actor_kind::worker ? pc::go_on : pc::leave;
      break;
    case pc::go_on:
      if (!change(w, a, {gate_event::reenter, who, a.epoch}, pc::leave_inner, why)) {
        r.broken = "what is inside may not go on";
      }
      break;
    case pc::leave_inner:
      access(w, a, who, r);
      (void)change(w, a, {gate_event::leave}, pc::leave, why);
      break;
    case pc::leave: {
      pc const next = a.kind == actor_kind::planner ? pc::commit : pc::look;
      if (!change(w, a, {gate_event::leave}, next, why)) {
        r.broken = "somebody inside may not leave";
      } else if (a.kind == actor_kind::worker && --a.rounds == 0) {
        a.after = pc::finished;
        a.at = a.at == pc::wake ? pc::wake : pc::finished;
      }
      break;
    }
    case pc::commit:  // the plan's epoch, which may have passed; a refusal drops the plan
      if (!change(w, a, {gate_event::enter, who, a.epoch}, pc::use_commit, why)) {
        end_round(a);
      }
      break;
    case pc::use_commit:
      access(w, a, who, r);
      write(w, who);
      a.at = pc::leave_commit;
      break;
    case pc::leave_commit:
      if (!change(w, a, {gate_event::leave}, pc::look, why)) {
        r.broken = "somebody inside may not leave";
      } else if (--a.rounds == 0) {
        a.after = pc::finished;
        a.at = a.at == pc::wake ? pc::wake : pc::finished;
      }
      break;
    case pc::begin:
      if (!change(w, a, {gate_event::begin, static_cast<holder>(a.goal)}, pc::prepare, why)) {
        r.broken = "the only transition may not begin";
      }
      break;
    case pc::prepare:
      if (!change(w, a, {gate_event::prepare}, pc::copy_block, why)) {
        if (why == reason::busy) {
          wait_for(a, true, pc::prepare);
        } else {
          r.broken = "the only transition may not be prepared";
        }
      }
      break;
    case pc::copy_block: {
      u32 const from = static_cast<u32>(unpack(w.word).who);
      w.epoch_of[a.goal] = w.epoch_of[from];
      w.is_whole[a.goal] = w.is_whole[from];
      a.epoch = static_cast<u8>(unpack(w.word).epoch + 1);
      a.at = pc::copy_epoch;
      break;
    }
    case pc::copy_epoch:
      w.epoch_of[a.goal] = a.epoch;
      a.at = pc::complete;
      break;
    case pc::complete:
      if (!change(w, a, {gate_event::complete}, pc::begin, why)) {
        r.broken = "a prepared transition may not complete";
      } else {
        ++w.completed;
        end_transition(a,
                       static_cast<u8>(a.goal == static_cast<u8>(holder::worker) ? holder::host
                                                                                 : holder::worker));
      }
      break;
    case pc::wake:
      a.at = a.after;
      for (actor& other : w.actors) {
        if (other.at == pc::asleep) {
          other.at = pc::wait_look;
        }
      }
      break;
    case pc::wait_look: {
      group_state const g = unpack(w.word);
      bool const shut = g.state == gate_state::closing || g.state == gate_state::moving;
      bool const goes_on = a.waits_idle ? g.active == 0 : !shut;
      a.seen = w.word;
      a.at = goes_on ? a.after : pc::wait_block;
      break;
    }
    case pc::wait_block:  // as a futex does: compare and sleep are one
      a.at = w.word == a.seen ? pc::asleep : pc::wait_look;
      break;
    default:
      break;
    }
  }

  /// The transition fails: nothing but the gate has changed.
  static void fail(world& w, actor& a, pc next, report& r) {
    group_state const before = unpack(w.word);
    reason why{};
    if (!change(w, a, {gate_event::fail}, next, why)) {
      r.broken = "a transition may not fail";
      return;
    }
    group_state const after = unpack(w.word);
    if (after.who != before.who || after.epoch != before.epoch || after.active != before.active ||
        after.next != holder::nobody || after.state != gate_state::open) {
      r.broken = "a failed transition changed something";
    }
    a.may_fail = 0;
  }
  static void end_transition(actor& a, u8 next_goal) {
    a.goal = next_goal;
    if (--a.rounds == 0) {
      a.after = pc::finished;
      a.at = a.at == pc::wake ? pc::wake : pc::finished;
    }
  }
};

}  // namespace warmset::gate::model
