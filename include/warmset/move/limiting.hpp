// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adaptor.hpp"
#include "external.hpp"

namespace warmset::inline v0 {
namespace move {

/// What a limiting adaptor lets through at a time. An expert larger than `bytes` goes alone.
struct transfer_limit {
  u32 transfers = u32_max;
  u64 bytes = u64_max;
};

/// A backend that begins at most so much per start. The rest waits in order and is never lost: each
/// later start lets as much through again, and so does a poll once all that was let through has
/// ended. A waiting transfer's word says `loading`.
///
/// Errors: those of B; config_error where a site's group is unknown. Does not allocate after open.
/// Complexity: start and poll O(transfers in flight or waiting).
template <move_backend B>
class limiting {
 public:
  limiting() = default;
  explicit limiting(transfer_limit limit, B inner = B{})
      : inner_(std::move(inner)), limit_(limit) {}

  u64 tail_bytes() const noexcept { return inner_.tail_bytes(); }

  void open(geometry const& model, array_view<pool_site const> sites) {
    std::vector<geometry_group> const groups = model.groups();
    std::vector<u64> expert_bytes;
    std::size_t n = 0;
    for (pool_site const& site : sites) {
      if (site.group >= groups.size()) {
        throw config_error("pool ", site.pool, " lies in group ", site.group, " of ",
                           groups.size());
      }
      expert_bytes.push_back(groups[site.group].expert_bytes());
      n += site.n_words();
    }
    std::vector<transfer_order> orders(n);
    std::vector<u32> pools(n);
    words_.open(sites);
    flights_.open(sites);
    inner_.open(model, sites);
    expert_bytes_ = std::move(expert_bytes);
    orders_ = std::move(orders);
    pools_ = std::move(pools);
    n_waiting_ = 0;
  }

  u32 const* arrivals(u32 pool) const noexcept { return words_.of(pool); }

  void start(u32 pool, array_view<transfer_order const> orders) noexcept {
    for (transfer_order const& order : orders) {
      words_.at(pool, order.slot) = arrival::word(order.generation, transfer::loading);
      WARMSET_ASSERT(n_waiting_ < orders_.size(), "a slot has two transfers at a time");
      orders_[n_waiting_] = order;
      pools_[n_waiting_] = pool;
      ++n_waiting_;
    }
    let_through();
    take_in();
  }

  void poll() noexcept {
    inner_.poll();
    take_in();
    if (flights_.size() == 0 && n_waiting_ != 0) {
      let_through();
      take_in();
    }
  }

  void close() noexcept {
    inner_.close();
    take_in();
    words_.fail_all();
    flights_.clear();
    n_waiting_ = 0;
  }

  B& inner() noexcept { return inner_; }
  B const& inner() const noexcept { return inner_; }

  transfer_limit const& limit() const noexcept { return limit_; }
  void set_limit(transfer_limit limit) noexcept { limit_ = limit; }
  /// Transfers that have not been let through.
  u32 n_waiting() const noexcept { return static_cast<u32>(n_waiting_); }

 private:
  struct flight {
    u32 pool;
    slot_id slot;
    u32 generation;
  };

  void let_through() noexcept {
    u64 bytes = 0;
    std::size_t n = 0;
    while (n < n_waiting_) {
      u64 const more = expert_bytes_[pools_[n]];
      if (n != 0 && (n >= limit_.transfers || more > saturating_sub(limit_.bytes, bytes))) {
        break;
      }
      bytes += more;
      ++n;
    }
    // one start per stretch of one pool in ascending order
    for (std::size_t first = 0; first < n;) {
      std::size_t end = first + 1;
      while (end < n && pools_[end] == pools_[first] &&
             orders_[end - 1].expert < orders_[end].expert) {
        ++end;
      }
      for (std::size_t i = first; i < end; ++i) {
        flights_.add({pools_[i], orders_[i].slot, orders_[i].generation});
      }
      inner_.start(pools_[first], array_view<transfer_order const>(&orders_[first], end - first));
      first = end;
    }
    n_waiting_ -= n;
    for (std::size_t i = 0; i < n_waiting_; ++i) {
      orders_[i] = orders_[n + i];
      pools_[i] = pools_[n + i];
    }
  }

  void take_in() noexcept {
    flights_.drop_if([this](flight const& f) {
      transfer const end = detail::end_of(inner_, f.pool, f.slot, f.generation);
      if (end == transfer::loading) {
        return false;
      }
      words_.publish(f.pool, f.slot, end);
      return true;
    });
  }

  B inner_{};
  transfer_limit limit_{};
  std::vector<u64> expert_bytes_;  ///< by pool
  detail::arrival_words words_;
  detail::flight_list<flight> flights_;
  std::vector<transfer_order> orders_;  ///< waiting, oldest first
  std::vector<u32> pools_;
  std::size_t n_waiting_ = 0;
};

}  // namespace move

static_assert(move_backend<move::limiting<move::external>>, "limiting must satisfy move_backend");

}  // namespace warmset::inline v0
