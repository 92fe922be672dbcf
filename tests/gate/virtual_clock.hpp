// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <vector>

#include <warmset/core/integers.hpp>

namespace warmset::gate {

/// Time that passes only where somebody sleeps; what was planned for the time between happens then.
struct virtual_clock {
  u64 time = 0;
  std::vector<u64> sleeps;
  std::multimap<u64, std::function<void()>> planned;

  u64 now() const noexcept { return time; }
  void at(u64 when, std::function<void()> what) { planned.emplace(when, std::move(what)); }
  void sleep_until(u64 until) {
    sleeps.push_back(until);
    while (!planned.empty() && planned.begin()->first <= until) {
      auto const next = planned.begin();
      time = next->first > time ? next->first : time;
      auto const what = next->second;
      planned.erase(next);
      what();
    }
    time = until > time ? until : time;
  }
};

}  // namespace warmset::gate
