// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "adaptor.hpp"
#include "external.hpp"

namespace warmset::inline v0 {
namespace move {

/// The clock of a throttling adaptor that counts its polls.
struct poll_clock {
  u64 n = 0;
  void on_poll() noexcept { ++n; }
  template <class B>
  u64 now(B const&) const noexcept {
    return n;
  }
};

/// The clock of a throttling adaptor that reads the virtual ticks of the backend inside.
struct tick_clock {
  void on_poll() noexcept {}
  template <class B>
  u64 now(B const& b) const noexcept {
    return innermost(b).now();
  }
};

/// What a throttling adaptor measures its delay with.
template <class C, class B>
concept delay_clock = requires(C& c, C const& reading, B const& b) {
  { c.on_poll() }
  noexcept->std::same_as<void>;
  { reading.now(b) }
  noexcept->std::same_as<u64>;
};

/// A backend whose transfers show later: the word of each changes `delay` after it ended inside, in
/// polls or in ticks. The delay begins when start or poll first sees the end.
///
/// Errors: those of B. Does not allocate after open. Complexity: O(transfers in flight) per start
/// and poll.
template <move_backend B, class Clock = poll_clock>
requires delay_clock<Clock, B>
class throttling {
 public:
  throttling() = default;
  explicit throttling(u64 delay, B inner = B{}) : inner_(std::move(inner)), delay_(delay) {}

  u64 tail_bytes() const noexcept { return inner_.tail_bytes(); }

  void open(geometry const& model, array_view<pool_site const> sites) {
    words_.open(sites);
    flights_.open(sites);
    inner_.open(model, sites);
  }

  u32 const* arrivals(u32 pool) const noexcept { return words_.of(pool); }

  void start(u32 pool, array_view<transfer_order const> orders) noexcept {
    for (transfer_order const& order : orders) {
      words_.at(pool, order.slot) = arrival::word(order.generation, transfer::loading);
      flights_.add({pool, order.slot, order.generation, transfer::loading, 0});
    }
    inner_.start(pool, orders);
    take_in();
  }

  void poll() noexcept {
    clock_.on_poll();
    inner_.poll();
    take_in();
  }

  void close() noexcept {
    inner_.close();
    words_.fail_all();
    flights_.clear();
  }

  B& inner() noexcept { return inner_; }
  B const& inner() const noexcept { return inner_; }

  u64 delay() const noexcept { return delay_; }
  void set_delay(u64 delay) noexcept { delay_ = delay; }

 private:
  struct flight {
    u32 pool;
    slot_id slot;
    u32 generation;
    transfer end;
    u64 seen;
  };

  void take_in() noexcept {
    u64 const now = clock_.now(inner_);
    flights_.drop_if([this, now](flight& f) {
      if (f.end == transfer::loading) {
        f.end = detail::end_of(inner_, f.pool, f.slot, f.generation);
        f.seen = now;
      }
      if (f.end == transfer::loading || now - f.seen < delay_) {
        return false;
      }
      words_.publish(f.pool, f.slot, f.end);
      return true;
    });
  }

  B inner_{};
  u64 delay_ = 0;
  [[no_unique_address]] Clock clock_{};
  detail::arrival_words words_;
  detail::flight_list<flight> flights_;
};

}  // namespace move

static_assert(move_backend<move::throttling<move::external>>,
              "throttling must satisfy move_backend");

}  // namespace warmset::inline v0
