// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "authority.hpp"
#include "retry.hpp"

namespace warmset::inline v0::gate {

/// Time as a caller injects it.
template <class C>
concept retry_clock = requires(C& c, u64 time) {
  { c.now() } -> std::convertible_to<u64>;
  c.sleep_until(time);
};

/// Gives a group to another holder: closes its gate, waits until nobody is inside, copies, and opens it for
/// the new holder under the next epoch. Not for a decode path: it sleeps between tries.
///
/// @param copy  called as copy(next_epoch) once nobody is inside; returns a status. It brings the block to
///              the next holder's storage and that epoch into the block: see copy_block in table/
/// @return ready{1}; refused with what ended it: `busy` or `gate_closed` after the last try, what copy
///         said, `no_authority`, `unsupported`; not_published. Where it is not ready the holder, the epoch
///         and what is inside are as before.
template <class Copy, retry_clock Clock>
result hand_over(authority& groups, u32 group, holder to, Copy&& copy, Clock& clock,
                 retry_rule rule = {}) {
  retry tries;
  authority::transition t;
  for (;;) {
    if (!t) {
      t = groups.begin(group, to);
    }
    reason const why = t ? t.prepare().why : t.why();
    if (why == reason::none) {
      break;
    }
    u32 const epoch = groups.look(group).epoch;
    if (is_retryable(why)) {
      tries.tried(epoch, clock.now(), rule);
    }
    if (!is_retryable(why) || tries.is_exhausted(epoch, rule)) {
      t.fail();
      return groups.refusal(group, why);
    }
    clock.sleep_until(tries.next());
  }
  if (status const copied = copy(t.next_epoch()); !copied) {
    t.fail();
    return groups.refusal(group, copied.why);
  }
  (void)t.complete();
  return ready{1};
}

}  // namespace warmset::inline v0::gate
