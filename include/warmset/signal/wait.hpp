// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <thread>

#include "../core/result.hpp"
#include "words.hpp"

namespace warmset::inline v0::signal {

/// The clock of deadlines: nanoseconds since some moment. Tests hand in one of their own.
struct steady_clock {
  u64 now() const noexcept {
    return static_cast<u64>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                std::chrono::steady_clock::now().time_since_epoch())
                                .count());
  }
};

/// What a side does between two looks at a word: first nothing, then it lets other threads run, then it
/// sleeps for 50 microseconds at a time.
class backoff {
 public:
  explicit backoff(u32 spins = 64, u32 yields = 2000) noexcept : spins_(spins), yields_(yields) {}
  void once() noexcept {
    if (n_ >= spins_ + yields_) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      return;
    }
    if (++n_ > spins_) {
      std::this_thread::yield();
    }
  }
  void reset() noexcept { n_ = 0; }

 private:
  u32 n_ = 0;
  u32 spins_;
  u32 yields_;
};

/// What one waiting side has counted; it alone writes them.
struct wait_counters {
  u64 waits = 0;         ///< waits that began
  u64 waited_empty = 0;  ///< waits that ended without what they waited for
  u64 overdue = 0;       ///< demands that passed their deadline and were waited for on
  u64 from_source = 0;   ///< demands that their waiting side served from the source
};

}  // namespace warmset::inline v0::signal
