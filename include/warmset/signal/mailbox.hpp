// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "wait.hpp"

namespace warmset::inline v0::signal {

/// One word in which one side posts numbers that only grow, and any number of others wait for one that
/// they can compute.
///
/// It takes 32-bit words and nothing else: a byte-wise fill makes 0x01010101 of a 1, for which an equal-to-1
/// wait never ends. A wait here is for "at least", has a deadline, and counts itself when it ends empty.
template <memory_words Words = host_words>
class mailbox {
 public:
  WARMSET_HD explicit constexpr mailbox(u32* word) noexcept : word_(word) {}

  /// Publishes the number and all that this side wrote before.
  WARMSET_SIDE_OF_WORDS
  WARMSET_HD void post(u32 value) const noexcept { Words::store_release(word_, value); }
  template <class T>
  void post(T) const = delete;  // bool, bytes, signed numbers

  /// The last number posted, and all that was written before it.
  WARMSET_SIDE_OF_WORDS
  WARMSET_HD u32 read() const noexcept { return Words::load_acquire(word_); }
  WARMSET_HD bool has(u32 value) const noexcept { return reached(read(), value); }
  template <class T>
  bool has(T) const = delete;

  /// Waits until the word has come to `value` or `ticks` of the clock have passed: done or `deadline`.
  template <class Clock = steady_clock>
  status wait(u32 value, u64 ticks, wait_counters& counters,
              Clock const& clock = {}) const noexcept {
    ++counters.waits;
    u64 const begin = clock.now();
    for (backoff pause; !has(value); pause.once()) {
      if (clock.now() - begin >= ticks) {
        ++counters.waited_empty;
        return {reason::deadline};
      }
    }
    return done;
  }

 private:
  u32* word_;
};

static_assert(std::is_trivially_copyable_v<mailbox<>>, "a mailbox is a view");

}  // namespace warmset::inline v0::signal
