// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "../core/error.hpp"
#include "../core/fixed_array.hpp"
#include "group_state.hpp"
#include "references.hpp"
#include "result.hpp"

namespace warmset::inline v0::gate {

/// The execution authority: for every group, who plans and commits, under which epoch, and how many are
/// inside. Each group is one atomic word on a cache line of its own, changed by `apply` in a compare-and-swap
/// loop, so that any member but publish and withdraw may be called by several threads at once.
///
/// Lock-free; allocates in the constructor only, which throws config_error for no groups. What the holder
/// wrote before its `leave` is seen by the transition whose `prepare` succeeds, and what that wrote by every
/// `enter` after its end.
class authority {
 public:
  explicit authority(u32 n_groups) : groups_(n_groups) {
    if (n_groups == 0) {
      throw config_error("an authority over 0 groups is not possible");
    }
  }
  authority(authority const&) = delete;
  authority& operator=(authority const&) = delete;

  u32 size() const noexcept { return static_cast<u32>(groups_.size()); }

  /// The group at this moment.
  group_state look(u32 group) const noexcept {
    return unpack(groups_[group].word.load(std::memory_order_acquire));
  }

  /// A refusal of this group as a result. `not_published` where nobody has the authority.
  result refusal(u32 group, reason why) const noexcept {
    group_state const now = look(group);
    return now.state == gate_state::unpublished
               ? result{not_published{}}
               : result{refused{why, group, now.epoch, is_retryable(why)}};
  }

  // ---- set-up and tear-down: one thread -------------------------------------------------------------

  /// Gives the group its first holder. Its memory must be reserved before, and stays until withdraw:
  /// `memory` is held. Refused with `in_use` where the group has a holder, `no_memory` where the memory
  /// was released.
  status publish(u32 group, holder who, references& memory) noexcept {
    if (status const held = memory.hold(); !held) {
      return held;
    }
    if (reason const why = change(group, {gate_event::publish, who}).why; why != reason::none) {
      memory.let_go();
      return {why};
    }
    groups_[group].memory = &memory;
    return done;
  }

  /// Ends the group's authority and lets its memory go; the epoch is bumped. Refused with `busy` while
  /// somebody is inside, `gate_closed` during a transition, `no_authority` where nobody has it.
  status withdraw(u32 group) noexcept {
    reason const why = change(group, {gate_event::withdraw}).why;
    if (why == reason::none) {
      groups_[group].memory->let_go();
      groups_[group].memory = nullptr;
    }
    return {why};
  }

  // ---- operations -----------------------------------------------------------------------------------

  /// An operation of `who` begins, on a table of this epoch. Refused with `no_authority`, `stale_epoch`,
  /// `gate_closed` (retryable), `limited`; nothing may then be read from the table. Once per operation or
  /// graph launch.
  pass enter(u32 group, holder who, u32 epoch) noexcept {
    return {change(group, {gate_event::enter, who, epoch}).why};
  }
  /// The same for what goes on inside another entry, which must last: a closing gate lets it.
  pass reenter(u32 group, holder who, u32 epoch) noexcept {
    return {change(group, {gate_event::reenter, who, epoch}).why};
  }
  /// An operation ends. Wakes a transition that waits for the last one.
  void leave(u32 group) noexcept {
    [[maybe_unused]] gate_change const c = change(group, {gate_event::leave});
    WARMSET_ASSERT(c.why == reason::none, "leave without enter");
  }
  /// What enter would answer at this moment.
  pass would_enter(u32 group, holder who, u32 epoch) const noexcept {
    return {apply(look(group), {gate_event::enter, who, epoch}).why};
  }

  /// Blocks the calling thread until the group's gate is not closed. For threads that may wait; a decode
  /// path goes its stock way instead.
  void wait_while_closed(u32 group) const noexcept {
    wait_while(group, [](group_state s) {
      return s.state == gate_state::closing || s.state == gate_state::moving;
    });
  }

  // ---- transitions ----------------------------------------------------------------------------------

  /// One transition of one group: begun, prepared, then completed, or failed. Movable. Destroyed before it
  /// was completed, it fails. It must not outlive the authority.
  class transition {
   public:
    transition() = default;
    transition(transition&& other) noexcept
        : of_(other.of_), group_(other.group_), epoch_(other.epoch_), why_(other.why_) {
      other.of_ = nullptr;
    }
    transition& operator=(transition&& other) noexcept {
      if (this != &other) {
        fail();
        of_ = other.of_;
        group_ = other.group_;
        epoch_ = other.epoch_;
        why_ = other.why_;
        other.of_ = nullptr;
      }
      return *this;
    }
    ~transition() { fail(); }

    /// Whether it is under way.
    explicit operator bool() const noexcept { return of_ != nullptr; }
    /// Why it could not begin.
    reason why() const noexcept { return why_; }
    /// The epoch that its completion brings: what the copied block is given.
    u32 next_epoch() const noexcept { return epoch_ + 1; }

    /// Whether the block may be copied now. `busy` while somebody is inside: ask again. `unsupported` where it
    /// is not under way, or was prepared.
    status prepare() noexcept {
      return {of_ == nullptr ? reason::unsupported
                             : of_->change(group_, {gate_event::prepare}).why};
    }
    /// Blocks the calling thread until nobody is inside; not at all where it is not under way.
    void wait_until_idle() const noexcept {
      if (of_ != nullptr) {
        of_->wait_while(group_, [](group_state s) { return s.active != 0; });
      }
    }
    /// The block is with the next holder, under next_epoch(). `unsupported` where it was not prepared, the
    /// transition is then still under way; or where it is not under way.
    status complete() noexcept {
      if (of_ == nullptr) {
        return {reason::unsupported};
      }
      reason const why = of_->change(group_, {gate_event::complete}).why;
      of_ = why == reason::none ? nullptr : of_;
      return {why};
    }
    /// Ends it without effect: holder, epoch and active count are as before it began.
    void fail() noexcept {
      if (of_ != nullptr) {
        (void)of_->change(group_, {gate_event::fail});
        of_ = nullptr;
      }
    }

   private:
    friend class authority;
    authority* of_ = nullptr;
    u32 group_ = 0;
    u32 epoch_ = 0;
    reason why_ = reason::none;
  };

  /// Closes the group's gate, to give its authority to another holder. Where that is refused
  /// (`gate_closed`: another transition is under way; `no_authority`: nobody has it; `unsupported`: it is
  /// the holder's already) the result converts to false and says why.
  transition begin(u32 group, holder to) noexcept {
    transition t;
    gate_change const c = change(group, {gate_event::begin, to});
    t.why_ = c.why;
    if (c) {
      t.of_ = this;
      t.group_ = group;
      t.epoch_ = c.after.epoch;
    }
    return t;
  }

 private:
  struct alignas(64) group_word {
    std::atomic<u64> word{0};
    references* memory = nullptr;  ///< of publish and withdraw alone
  };
  static_assert(std::atomic<u64>::is_always_lock_free);
  static_assert(pack(group_state{}) == 0, "a fresh word is an unpublished group");

  gate_change change(u32 group, gate_call call) noexcept {
    std::atomic<u64>& word = groups_[group].word;
    u64 seen = word.load(std::memory_order_relaxed);
    for (;;) {
      gate_change const c = apply(unpack(seen), call);
      if (!c) {
        return c;
      }
      if (word.compare_exchange_weak(seen, pack(c.after), std::memory_order_acq_rel,
                                     std::memory_order_relaxed)) {
        if (c.wakes) {
          word.notify_all();
        }
        return c;
      }
    }
  }

  template <class Condition>
  void wait_while(u32 group, Condition&& holds) const noexcept {
    std::atomic<u64> const& word = groups_[group].word;
    for (u64 seen = word.load(std::memory_order_acquire); holds(unpack(seen));
         seen = word.load(std::memory_order_acquire)) {
      word.wait(seen, std::memory_order_acquire);
    }
  }

  fixed_array<group_word> groups_;
};

}  // namespace warmset::inline v0::gate
