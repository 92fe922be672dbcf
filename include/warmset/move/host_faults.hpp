// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "failure_schedule.hpp"

namespace warmset::inline v0 {
namespace move {

/// Where the virtual driver and the host backend can be made to fail.
enum class fault_point : u8 {
  allocate,  ///< memory is asked for
  launch,    ///< a copy or kernel is put into a stream
  copy,      ///< a copy ends
  event,     ///< an event is recorded or queried, or a transfer's completion is noticed
  publish,   ///< an arrival word is written
  release,   ///< memory is given back, or a slot's old bytes are given up
};

inline constexpr u32 n_fault_points = 6;

constexpr char const* name_of(fault_point p) noexcept {
  constexpr char const* names[n_fault_points] = {"allocate", "launch",  "copy",
                                                 "event",    "publish", "release"};
  return static_cast<u32>(p) < n_fault_points ? names[static_cast<u32>(p)] : "unknown";
}

/// Numbers every fault point as it is passed and says which strike: by a schedule over all of them
/// together and by one over those of each kind. Deterministic: the same calls and schedules, the
/// same strikes. O(1).
class fault_injector {
 public:
  /// Over all points together, in the order they are passed, from 0.
  void schedule(failure_schedule s) noexcept { any_ = s; }
  /// Over the points of one kind.
  void schedule(fault_point p, failure_schedule s) noexcept { of_[static_cast<u32>(p)] = s; }
  /// No point strikes any more; the numbers go on.
  void clear() noexcept {
    any_ = {};
    for (failure_schedule& s : of_) {
      s = {};
    }
  }

  /// Passes a point; true = it fails.
  bool strikes(fault_point p) noexcept {
    u32 const kind = static_cast<u32>(p);
    bool const all = any_.fails(n_passed_++);
    bool const own = of_[kind].fails(passed_[kind]++);
    struck_[kind] += all || own ? 1 : 0;
    return all || own;
  }

  u64 passed() const noexcept { return n_passed_; }
  u64 passed(fault_point p) const noexcept { return passed_[static_cast<u32>(p)]; }
  u64 struck(fault_point p) const noexcept { return struck_[static_cast<u32>(p)]; }
  u64 struck() const noexcept {
    u64 sum = 0;
    for (u64 n : struck_) {
      sum += n;
    }
    return sum;
  }

 private:
  failure_schedule any_;
  failure_schedule of_[n_fault_points];
  u64 n_passed_ = 0;
  u64 passed_[n_fault_points] = {};
  u64 struck_[n_fault_points] = {};
};

}  // namespace move
}  // namespace warmset::inline v0
