// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adaptor.hpp"
#include "copy_planner.hpp"
#include "external.hpp"

namespace warmset::inline v0 {
namespace move {

/// What a counting adaptor has seen since it was made. issued = arrived + failed + in flight, in
/// experts and in bytes.
struct move_counts {
  u64 starts = 0;
  u64 issued = 0;  ///< experts
  u64 arrived = 0;
  u64 failed = 0;
  u64 bytes_issued = 0;
  u64 bytes_arrived = 0;
  u64 bytes_failed = 0;
  u64 copies = 0;        ///< as the copy planner makes them of each start
  u64 small_copies = 0;  ///< of these, below the planner's bound
  u64 merged = 0;        ///< experts that travelled in a neighbour's copies
  u64 batches = 0;

  u64 in_flight() const noexcept { return issued - arrived - failed; }
  u64 bytes_in_flight() const noexcept { return bytes_issued - bytes_arrived - bytes_failed; }
  bool operator==(move_counts const&) const = default;
};

/// A backend whose copies, bytes and failures are counted. Ends are counted when start, poll or
/// close sees them.
///
/// Errors: those of B; config_error where a site's group is unknown. Does not allocate after open.
/// Complexity: start O(orders · banks), and O(transfers in flight) per start and poll.
template <move_backend B>
class counting {
 public:
  counting() = default;
  explicit counting(B inner, u64 large_copy = large_copy_bytes)
      : inner_(std::move(inner)), large_copy_(large_copy) {}

  u64 tail_bytes() const noexcept { return inner_.tail_bytes(); }

  void open(geometry const& model, array_view<pool_site const> sites) {
    std::vector<geometry_group> const groups = model.groups();
    for (pool_site const& site : sites) {
      if (site.group >= groups.size()) {
        throw config_error("pool ", site.pool, " lies in group ", site.group, " of ",
                           groups.size());
      }
    }
    std::vector<group_layout> layouts = layouts_of(model, sites, inner_.tail_bytes());
    std::vector<pool_site> own_sites(sites.begin(), sites.end());
    flights_.open(sites);
    inner_.open(model, sites);
    layouts_ = std::move(layouts);
    sites_ = std::move(own_sites);
  }

  u32 const* arrivals(u32 pool) const noexcept { return inner_.arrivals(pool); }

  void start(u32 pool, array_view<transfer_order const> orders) noexcept {
    take_in();  // before a slot's next transfer hides how its last one ended
    group_layout const& layout = layouts_[sites_[pool].group];
    copy_plan const plan = count_copies(orders, sites_[pool], layout, large_copy_);
    ++counts_.starts;
    counts_.issued += orders.size();
    counts_.bytes_issued += plan.bytes;
    counts_.copies += plan.n_copies();
    counts_.small_copies += plan.n_small;
    counts_.merged += plan.n_orders - plan.n_runs;
    counts_.batches += plan.n_batches();
    u64 const bytes = orders.empty() ? 0 : plan.bytes / orders.size();
    for (transfer_order const& order : orders) {
      flights_.add({pool, order.slot, order.generation, bytes});
    }
    inner_.start(pool, orders);
    take_in();
  }

  void poll() noexcept {
    inner_.poll();
    take_in();
  }

  void close() noexcept {
    inner_.close();
    take_in();
  }

  B& inner() noexcept { return inner_; }
  B const& inner() const noexcept { return inner_; }
  move_counts const& counts() const noexcept { return counts_; }

 private:
  struct flight {
    u32 pool;
    slot_id slot;
    u32 generation;
    u64 bytes;
  };

  void take_in() noexcept {
    flights_.drop_if([this](flight const& f) {
      transfer const end = detail::end_of(inner_, f.pool, f.slot, f.generation);
      if (end == transfer::loading) {
        return false;
      }
      bool const arrived = end == transfer::arrived;
      ++(arrived ? counts_.arrived : counts_.failed);
      (arrived ? counts_.bytes_arrived : counts_.bytes_failed) += f.bytes;
      return true;
    });
  }

  B inner_{};
  u64 large_copy_ = large_copy_bytes;
  move_counts counts_{};
  std::vector<group_layout> layouts_;
  std::vector<pool_site> sites_;
  detail::flight_list<flight> flights_;
};

}  // namespace move

static_assert(move_backend<move::counting<move::external>>, "counting must satisfy move_backend");

}  // namespace warmset::inline v0
