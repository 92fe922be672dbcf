// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <barrier>
#include <cstddef>
#include <thread>
#include <vector>

#include <warmset/core/lanes.hpp>

/// A lane group whose lanes are threads: what a warp or a block does, where no device is needed to see it and a
/// thread sanitizer sees every write that no barrier orders.
namespace kit {

using namespace warmset;

class thread_lanes;

/// What the lanes of one group share: a barrier, and a place for each lane's part of an answer.
class lane_team {
 public:
  explicit lane_team(u32 n_lanes)
      : barrier_(static_cast<std::ptrdiff_t>(n_lanes)), keys_(n_lanes), counts_(n_lanes) {}

  /// Calls f(lanes) on as many threads as there are lanes, and joins them. f must not throw.
  template <class F>
  void run(F&& f);

 private:
  friend thread_lanes;
  std::barrier<> barrier_;
  std::vector<order_key> keys_;
  std::vector<u32> counts_;
};

/// One lane of a team. Each operation begins with a barrier, as a device's groups do: what the lanes read between two
/// operations is not yet written by the next.
class thread_lanes {
 public:
  static constexpr bool is_single = false;

  thread_lanes(lane_team& team, u32 lane) : team_(&team), lane_(lane) {}

  template <class F>
  void for_each(u32 n, F&& f) const {
    sync();
    for (u32 i = lane_; i < n; i += size()) {
      f(i);
    }
    sync();
  }

  template <class F>
  order_key min_key(u32 n, F&& f) const {
    sync();
    order_key mine = no_key;
    for (u32 i = lane_; i < n; i += size()) {
      f(i, mine);
    }
    team_->keys_[lane_] = mine;
    sync();
    order_key best = no_key;
    for (order_key const& key : team_->keys_) {
      lower(best, key);
    }
    return best;
  }

  template <class P>
  bool any(u32 n, P&& p) const {
    return count(n, p) != 0;
  }

  template <class P>
  u32 count(u32 n, P&& p) const {
    sync();
    u32 mine = 0;
    for (u32 i = lane_; i < n; i += size()) {
      mine += p(i) ? 1 : 0;
    }
    team_->counts_[lane_] = mine;
    sync();
    return below(size());
  }

  template <class P, class Emit>
  u32 append_in_order(u32 n, P&& p, Emit&& emit) const {
    sync();
    u32 const share = (n + size() - 1) / size();
    u32 const first = lane_ * share < n ? lane_ * share : n;
    u32 const end = first + share < n ? first + share : n;
    std::vector<u32> mine;
    for (u32 i = first; i < end; ++i) {
      if (p(i)) {
        mine.push_back(i);
      }
    }
    team_->counts_[lane_] = static_cast<u32>(mine.size());
    sync();
    u32 at = below(lane_);
    for (u32 i : mine) {
      emit(i, at++);
    }
    u32 const all = below(size());
    sync();
    return all;
  }

  template <class F>
  void leader(F&& f) const {
    sync();
    if (lane_ == 0) {
      f();
    }
    sync();
  }

  template <class F, class G>
  void for_each_then_leader(u32 n, F&& f, G&& then) const {
    for_each(n, f);
    if (lane_ == 0) {
      for (u32 i = 0; i < n; ++i) {
        then(i);
      }
    }
    sync();
  }

 private:
  u32 size() const { return static_cast<u32>(team_->counts_.size()); }
  void sync() const { team_->barrier_.arrive_and_wait(); }
  u32 below(u32 lane) const {
    u32 sum = 0;
    for (u32 i = 0; i < lane; ++i) {
      sum += team_->counts_[i];
    }
    return sum;
  }

  lane_team* team_;
  u32 lane_;
};

static_assert(lane_group<thread_lanes>, "kit::thread_lanes must satisfy lane_group");

template <class F>
void lane_team::run(F&& f) {
  std::vector<std::thread> threads;
  for (u32 lane = 0; lane < counts_.size(); ++lane) {
    threads.emplace_back([this, lane, &f] { f(thread_lanes{*this, lane}); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace kit
