// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "../core/intent.hpp"
#include "../move/backend.hpp"
#include "bytes.hpp"

namespace warmset::inline v0::trace {

/// The machine that a replay imagines: one serial link to the device, and the work beside it. Nanoseconds and bytes.
///
/// move::link_model (move/link.hpp) is another: what the copies and batches of a driver cost, which a backend makes of a
/// plan and a host backend plays with real bytes; here an expert is one transfer that later demand overtakes, without bytes.
struct link_numbers {
  u64 bytes_per_second = 25'000'000'000;
  u64 latency_ns =
      0;  ///< from the end of a transfer on the link to its arrival; the link is free meanwhile
  u64 copy_ns = 5'000;       ///< fixed cost, on the link, of each copy of one bank of one expert
  u64 compute_ns = 100'000;  ///< work of one layer for one token
};

/// a * b / c, rounded down; the largest number where c is 0 or the result does not fit. Exact for all inputs. O(1).
constexpr u64 scaled(u64 a, u64 b, u64 c) noexcept {
  if (c == 0) {
    return u64_max;
  }
  u64 quotient = 0;
  u64 rest = 0;  // below c
  for (u32 bit = 64; bit-- != 0;) {
    // (quotient, rest) = 2 * (quotient, rest) + (bit of a) * b
    if (quotient > u64_max / 2) {
      return u64_max;
    }
    quotient *= 2;
    u64 const to_c = c - rest;
    if (rest >= to_c) {
      rest -= to_c;
      ++quotient;
    } else {
      rest += rest;
    }
    if ((a >> bit & 1) != 0) {
      u64 const whole = b / c;
      if (whole > u64_max - quotient) {
        return u64_max;
      }
      quotient += whole;
      u64 const more = b % c;
      if (more >= c - rest) {
        rest = more - (c - rest);
        if (quotient == u64_max) {
          return u64_max;
        }
        ++quotient;
      } else {
        rest += more;
      }
    }
  }
  return quotient;
}

static_assert(scaled(7, 3, 2) == 10 && scaled(u64_max, u64_max, u64_max) == u64_max);
static_assert(scaled(u64_max, 2, 1) == u64_max && scaled(5, 5, 0) == u64_max);

/// Time that one expert occupies the link: its bytes, and a fixed cost for each of its banks.
constexpr u64 link_time(link_numbers const& n, u64 expert_bytes, u32 banks) noexcept {
  u64 const moving = scaled(expert_bytes, 1'000'000'000, n.bytes_per_second);
  return detail::saturating_sum(moving, scaled(banks, n.copy_ns, 1));
}

/// What has gone over a link for one intent: that which started the transfer.
struct link_traffic {
  u64 transfers = 0;  ///< of experts, completed
  u64 bytes = 0;
  u64 busy_ns = 0;
};

/// A backend without bytes whose transfers take time: one serial link on a virtual clock that only its owner moves.
///
/// Transfers of demand go before queued speculation, each class in the order of its start. A transfer that has begun
/// is finished: a demand waits for the rest of one speculated expert at most. A demand that joins a speculated
/// transfer (`join`) makes it one of demand. The words say `arrived` as soon as the clock is there; nothing fails. The clock
/// ends at the largest number, where all that takes longer arrives.
///
/// Errors: open throws config_error where the link is of 0 bytes per second, and bad_alloc. Afterwards no allocation. O(queued transfers) for each transfer that begins.
class link_backend {
 public:
  explicit link_backend(link_numbers numbers = {}) noexcept : numbers_(numbers) {}

  // ---- what a cache calls

  static constexpr u64 tail_bytes() noexcept { return 0; }

  void open(geometry const& model, array_view<pool_site const> sites) {
    if (numbers_.bytes_per_second == 0) {
      throw config_error("a link of 0 bytes per second moves nothing");
    }
    words_.open(sites);
    std::size_t n_words = 0;
    for (pool_site const& site : sites) {
      n_words += site.n_words();
    }
    queue_.reserve(n_words);
    landing_.reserve(n_words);
    costs_.assign(model.layers().empty() ? 0 : model.layers().back().layer.value + 1, cost{});
    for (layer_geometry const& layer : model.layers()) {
      u64 const bytes = layer.expert_bytes();
      costs_[layer.layer.value] = {
          bytes, link_time(numbers_, bytes, static_cast<u32>(layer.bank_bytes.size()))};
    }
  }

  u32 const* arrivals(u32 pool) const noexcept { return words_.of(pool); }

  void start(u32 pool, array_view<transfer_order const> orders) noexcept {
    for (transfer_order const& order : orders) {
      words_.at(pool, order.slot) = arrival::word(order.generation, transfer::loading);
      queue_.push_back({pool, order.slot, order.expert.layer.value, started_for_, started_for_});
      demanded_ += started_for_ == intent::demand ? 1 : 0;
    }
    begin_next(now_);
  }

  void poll() noexcept {}

  void close() noexcept {
    words_.fail_all();
    queue_.clear();
    landing_.clear();
    is_moving_ = false;
    demanded_ = 0;
  }

  // ---- what the owner of the clock calls

  /// What the transfers are for that start from now on.
  void start_for(intent what) noexcept { started_for_ = what; }

  /// A demand waits for the slot's transfer: it is one of demand now. Nothing where none is under way.
  void join(u32 pool, slot_id slot) noexcept {
    auto const promote = [&](flight& f) {
      if (f.pool == pool && f.slot == slot && f.urgency == intent::speculative) {
        f.urgency = intent::demand;
        ++demanded_;
      }
    };
    if (is_moving_) {
      promote(moving_);
    }
    for (flight& f : queue_) {
      promote(f);
    }
    for (flight& f : landing_) {
      promote(f);
    }
  }

  u64 now() const noexcept { return now_; }

  /// Moves the clock. O(transfers that end).
  void advance(u64 ns) noexcept {
    u64 const until = detail::saturating_sum(now_, ns);
    while (is_active() && next_event() <= until) {
      handle_next_event();
    }
    now_ = until;
  }

  /// Moves the clock to the arrival of the last transfer of demand. Returns how long that took.
  u64 wait_for_demand() noexcept {
    u64 const from = now_;
    while (demanded_ != 0 && is_active()) {
      handle_next_event();
    }
    return now_ - from;
  }

  /// Moves the clock to the end of all that is under way.
  void finish() noexcept {
    while (is_active()) {
      handle_next_event();
    }
  }

  /// Time for which what is queued and under way will occupy the link.
  u64 backlog_ns() const noexcept {
    u64 sum = is_moving_ ? ends_ - now_ : 0;
    for (flight const& f : queue_) {
      sum = detail::saturating_sum(sum, costs_[f.layer].ns);
    }
    return sum;
  }

  /// Time that an expert of the layer occupies the link, and its bytes.
  u64 expert_ns(layer_id layer) const noexcept { return costs_[layer.value].ns; }
  u64 expert_bytes(layer_id layer) const noexcept { return costs_[layer.value].bytes; }

  link_numbers const& numbers() const noexcept { return numbers_; }
  link_traffic const& traffic(intent of) const noexcept { return traffic_[static_cast<u32>(of)]; }

 private:
  struct cost {
    u64 bytes = 0;
    u64 ns = 0;
  };
  struct flight {
    u32 pool;
    slot_id slot;
    u32 layer;
    intent cause;
    intent urgency;
    u64 lands = 0;
  };

  /// Whether anything is under way; what is queued is then moving or has begun to.
  bool is_active() const noexcept { return is_moving_ || !landing_.empty(); }

  void begin_next(u64 at) noexcept {
    if (is_moving_ || queue_.empty()) {
      return;
    }
    std::size_t next = 0;
    while (next < queue_.size() && queue_[next].urgency != intent::demand) {
      ++next;
    }
    next = next == queue_.size() ? 0 : next;
    moving_ = queue_[next];
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(next));
    is_moving_ = true;
    ends_ = detail::saturating_sum(at, costs_[moving_.layer].ns);
  }

  u64 next_event() const noexcept {
    u64 const end = is_moving_ ? ends_ : u64_max;
    return landing_.empty()
               ? end
               : min_of(end, landing_.front().lands);  // they land in the order of their ends
  }

  void handle_next_event() noexcept {
    u64 const at = next_event();
    now_ = at;
    if (is_moving_ && ends_ == at) {
      is_moving_ = false;
      link_traffic& t = traffic_[static_cast<u32>(moving_.cause)];
      ++t.transfers;
      t.bytes += costs_[moving_.layer].bytes;
      t.busy_ns = detail::saturating_sum(t.busy_ns, costs_[moving_.layer].ns);
      moving_.lands = detail::saturating_sum(at, numbers_.latency_ns);
      landing_.push_back(moving_);
      begin_next(at);
    }
    while (!landing_.empty() && landing_.front().lands <= at) {
      flight const& f = landing_.front();
      demanded_ -= f.urgency == intent::demand ? 1 : 0;
      words_.publish(f.pool, f.slot, transfer::arrived);
      landing_.erase(landing_.begin());
    }
  }

  link_numbers numbers_;
  move::detail::arrival_words words_;
  std::vector<cost> costs_;  // by layer id
  std::vector<flight> queue_;
  std::vector<flight> landing_;
  flight moving_{};
  bool is_moving_ = false;
  u64 ends_ = 0;  // of moving_, on the clock
  u64 now_ = 0;
  u32 demanded_ = 0;  // transfers of demand that have not arrived
  intent started_for_ = intent::demand;
  link_traffic traffic_[n_intents]{};
};

static_assert(move_backend<link_backend>, "link_backend must satisfy move_backend");

}  // namespace warmset::inline v0::trace
