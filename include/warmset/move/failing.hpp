// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adaptor.hpp"
#include "external.hpp"
#include "failure_schedule.hpp"

namespace warmset::inline v0 {
namespace move {

/// A backend some of whose transfers fail, by a schedule.
///
/// Errors: those of B. Does not allocate after open. Complexity: start O(orders), and O(transfers
/// in flight) per start and poll.
template <move_backend B>
class failing {
 public:
  failing() = default;
  explicit failing(failure_schedule schedule, B inner = B{})
      : inner_(std::move(inner)), schedule_(schedule) {}

  u64 tail_bytes() const noexcept { return inner_.tail_bytes(); }

  void open(geometry const& model, array_view<pool_site const> sites) {
    words_.open(sites);
    flights_.open(sites);
    inner_.open(model, sites);
  }

  u32 const* arrivals(u32 pool) const noexcept { return words_.of(pool); }

  void start(u32 pool, array_view<transfer_order const> orders) noexcept {
    std::size_t first = 0;  // of the orders not yet handed on
    for (std::size_t i = 0; i < orders.size(); ++i) {
      transfer_order const& order = orders[i];
      bool const doomed = schedule_.fails(n_started_++);
      u32& word = words_.at(pool, order.slot);
      if (doomed) {
        ++n_doomed_;
      }
      if (doomed && schedule_.when == failure_schedule::moment::at_start) {
        word = arrival::word(order.generation, transfer::failed);
        hand_on(pool, orders.subspan(first, i - first));
        first = i + 1;
        continue;
      }
      word = arrival::word(order.generation, transfer::loading);
      flights_.add({pool, order.slot, order.generation, doomed});
    }
    hand_on(pool, orders.subspan(first));
    take_in();
  }

  void poll() noexcept {
    inner_.poll();
    take_in();
  }

  void close() noexcept {
    inner_.close();
    take_in();
    words_.fail_all();
    flights_.clear();
  }

  B& inner() noexcept { return inner_; }
  B const& inner() const noexcept { return inner_; }

  failure_schedule const& schedule() const noexcept { return schedule_; }
  void set_schedule(failure_schedule schedule) noexcept { schedule_ = schedule; }
  /// Transfers started so far: the number of the next.
  u64 n_started() const noexcept { return n_started_; }
  /// Transfers that the schedule has let fail.
  u64 n_doomed() const noexcept { return n_doomed_; }

 private:
  struct flight {
    u32 pool;
    slot_id slot;
    u32 generation;
    bool doomed;
  };

  void hand_on(u32 pool, array_view<transfer_order const> orders) noexcept {
    if (!orders.empty()) {
      inner_.start(pool, orders);
    }
  }

  void take_in() noexcept {
    flights_.drop_if([this](flight const& f) {
      transfer const end = detail::end_of(inner_, f.pool, f.slot, f.generation);
      if (end == transfer::loading) {
        return false;
      }
      words_.publish(f.pool, f.slot, f.doomed ? transfer::failed : end);
      return true;
    });
  }

  B inner_{};
  failure_schedule schedule_{};
  detail::arrival_words words_;
  detail::flight_list<flight> flights_;
  u64 n_started_ = 0;
  u64 n_doomed_ = 0;
};

}  // namespace move

static_assert(move_backend<move::failing<move::external>>, "failing must satisfy move_backend");

}  // namespace warmset::inline v0
