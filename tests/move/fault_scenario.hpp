// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <warmset/cache.hpp>
#include <warmset/move/host.hpp>
#include <warmset/observe/laws.hpp>
#include <warmset/table/bundles.hpp>

#include <memory>
#include <new>
#include <random>
#include <vector>

namespace warmset_test {

using namespace warmset;

/// A cache over a host backend that plays a script of operations while faults strike, and keeps
/// count of what must never happen.
///
/// The script is a function of its seed alone: the same operations whatever fails.
class fault_scenario {
 public:
  struct small : default_policy {
    using predictor = predict::supplied;
    static constexpr u32 max_experts = 16;
  };
  using cache_type = cache<small, move::host>;

  /// What must stay 0, and what may be counted where faults strike.
  struct tally {
    u32 wrong_reads = 0;     ///< an arrived word, and other bytes than the expert's
    u32 broken = 0;          ///< audits, laws, ledgers
    u32 lost = 0;            ///< demands that neither arrived nor failed
    u32 demanded_again = 0;  ///< steps with an expert whose word says failed
    u32 failed_demands = 0;  ///< of those: the second demand failed as well
    u32 delivered = 0;
    u32 refused_calls = 0;  ///< typed refusals of the driver
    u32 not_launched = 0;   ///< deferred readers that were refused
    u32 late_reads = 0;     ///< deferred reads that were verified
    u32 put_off = 0;        ///< demands that were answered `busy` or named nothing
    bool degraded = false;
    bool opened_twice = false;
    u32 capacity = 0;  ///< slots that every pool has at the end, summed
    // what the script came by
    u64 overflow_steps = 0, speculated = 0, first_uses = 0, declined = 0, dropped = 0, retired = 0;
    u64 fingerprint = 0;
    bool operator==(tally const&) const = default;
  };

  static constexpr u32 n_layers = 3;

  static move::link_model link() {
    move::link_model m;
    m.bytes = 4;
    m.latency = 2;
    m.large_from = 20;
    return m;
  }

  static geometry model() {
    return geometry{{{layer_id{0}, 12, 3, {24, 13, 7}},
                     {layer_id{1}, 12, 3, {24, 13, 7}},
                     {layer_id{4}, 10, 2, {33}}}};
  }
  static layer_id layer_of(u32 i) { return layer_id{i == 2 ? 4u : i}; }

  explicit fault_scenario(u64 script_seed, move::failure_schedule faults,
                          move::host_options options)
      : random_(script_seed), options_(options), driver_(move::shared_driver::make({link()})) {
    driver_->faults().schedule(faults);
    open();
  }

  /// Plays n operations and then to the end; what is left is checked last.
  tally play(u32 n) {
    for (u32 i = 0; i < n; ++i) {
      operation();
      check();
    }
    finish();
    return tally_;
  }

  move::virtual_driver& driver() noexcept { return *driver_; }

 private:
  struct held {
    cache_type::lease lease;
    std::vector<u32> tickets;
  };

  u32 any(u32 n) { return static_cast<u32>(random_() % n); }

  void note(u64 x) {
    tally_.fingerprint = (tally_.fingerprint ^ x) * 0x100'0000'01B3ull + (x >> 32);
  }

  void open() {
    for (u32 attempt = 0; attempt < 64 && cache_ == nullptr; ++attempt) {
      try {
        cache_ =
            std::make_unique<cache_type>(model(), budget{0, 5, 2}, tuning{},
                                         move::host(options_, move::patterned_source{}, driver_));
      } catch (std::bad_alloc const&) {
        tally_.opened_twice = true;
        leaked_ = driver_->memory().ledger(0).held();
        tally_.broken += leaked_ != 0 && driver_->faults().struck(move::fault_point::release) == 0;
      }
    }
    if (cache_ == nullptr) {
      throw std::bad_alloc();
    }
    tally_.degraded = host().degraded() == reason::pageable;
  }

  move::host& host() { return cache_->backend(); }

  void operation() {
    u32 const layer = any(n_layers);
    u32 const what = any(100);
    // every kind draws as many numbers, whatever happens: the script does not depend on faults
    u32 const a = any(1u << 16), b = any(1u << 16), c = any(1u << 16);
    if (what < 44) {
      serve(layer, ids_of(layer, a, b, 1 + c % 4), false);
    } else if (what < 56) {
      serve(layer, ids_of(layer, a, b, 2), true);
    } else if (what < 62) {
      serve(layer, ids_of(layer, a, b, 9), false);  // more than the pool has
    } else if (what < 76) {
      note(cache_->advise(layer_of(layer), ids_of(layer, a, b, 1 + c % 2)));
    } else if (what < 80) {
      (void)cache_->resize(layer_of(layer), 3 + a % 5);
    } else if (what < 83) {
      (void)cache_->invalidate(layer_of(layer));
    } else if (what < 88) {
      fence();
    } else if (what < 92) {
      lane(64 + a % 64);
    } else {
      host().advance(a % 40);
      cache_->settle();
    }
    while (held_.size() > 2) {
      let_go();
    }
  }

  std::vector<routed_id> ids_of(u32 layer, u32 a, u32 b, u32 n) const {
    u32 const n_experts = layer == 2 ? 10 : 12;
    std::vector<routed_id> ids;
    for (u32 i = 0; i < n; ++i) {
      // few experts are wanted often
      u32 const e = n > 4 ? a + i : (b >> 3 * i & 7) < 5 ? (a >> i & 3) : (a >> 2 * i) % n_experts;
      ids.push_back(static_cast<routed_id>(e % n_experts));
    }
    return ids;
  }

  /// Demands until every expert was read in its slot; a second time where a word says failed.
  void serve(u32 layer, std::vector<routed_id> const& ids, bool holds) {
    if (!serve_once(layer, ids, holds)) {
      ++tally_.demanded_again;
      tally_.failed_demands += !serve_once(layer, ids, holds);
    }
  }

  /// One demanded step to its end. False: an expert's word says failed, and scratch did not help.
  bool serve_once(u32 layer, std::vector<routed_id> const& ids, bool holds) {
    cache_type::lease lease = cache_->demand(layer_of(layer), ids);
    step_view const& view = lease.view();
    note(static_cast<u64>(view.kind));
    if (!lease) {
      // the script has covered layers and no gate: either nothing was named, or leases hold the scratch
      bool const is_busy = view.kind == plan_kind::busy && !held_.empty();
      bool const is_nothing = view.kind == plan_kind::empty && ids.empty();
      tally_.broken += view.why != reason::none || !(is_busy || is_nothing);
      ++tally_.put_off;
      return true;
    }
    u32 pool = 0, row = 0;
    cache_->find(layer_of(layer), pool, row);
    u32 const n_slots = cache_->sites()[pool].n_slots;
    std::vector<u32> generations(view.experts.size(), 0);
    std::vector<bool> is_done(view.experts.size(), false);
    auto const look = [&](std::size_t i, u32 generation) {
      await(pool, view.slots[i], generation);
      generations[i] = generation;
      is_done[i] = judge(pool, layer, view.experts[i], view.slots[i], generation);
    };
    for (std::size_t i = 0; i < view.experts.size(); ++i) {
      if (view.slots[i] < n_slots) {
        look(i, cache_->pools()[pool].view().generation(view.slots[i]));
      }
    }
    for (u32 wave = 0; wave < view.n_waves; ++wave) {
      for (u32 attempt = 0; attempt < 2 && in_wave(view, n_slots, wave, is_done); ++attempt) {
        cache_->start_wave(wave);
        for (std::size_t i = 0; i < view.experts.size(); ++i) {
          if (view.slots[i] >= n_slots && view.waves[i] == wave) {
            look(i, cache_->scratch_generation());
          }
        }
      }
    }
    if (view.kind == plan_kind::step && !all_of(is_done)) {
      std::vector<u32> const before(view.slots.begin(), view.slots.end());
      (void)cache_->serve_failed();
      for (std::size_t i = 0; i < view.experts.size(); ++i) {
        if (before[i] != view.slots[i]) {
          look(i, cache_->scratch_generation());
        }
      }
    }
    bool const all = all_of(is_done);
    if (holds && all) {
      hold(std::move(lease), pool, layer, generations, is_done);
    }
    return all;
  }

  static bool all_of(std::vector<bool> const& is_done) {
    for (bool d : is_done) {
      if (!d) {
        return false;
      }
    }
    return true;
  }

  static bool in_wave(step_view const& view, u32 n_slots, u32 wave,
                      std::vector<bool> const& is_done) {
    for (std::size_t i = 0; i < view.experts.size(); ++i) {
      if (view.slots[i] >= n_slots && view.waves[i] == wave && !is_done[i]) {
        return true;
      }
    }
    return false;
  }

  /// Runs the clock until the transfer has ended.
  void await(u32 pool, u32 slot, u32 generation) {
    for (int i = 0; i < 1000 && word_state(pool, slot, generation) == transfer::loading; ++i) {
      host().advance(3);
      host().poll();
    }
  }
  transfer word_state(u32 pool, u32 slot, u32 generation) {
    u32 const word = host().arrivals(pool)[slot];
    return arrival::is_of(word, generation) ? arrival::state(word) : transfer::none;
  }

  /// Whether the expert was delivered; counts what must not be.
  bool judge(u32 pool, u32 layer, u32 expert, u32 slot, u32 generation) {
    transfer const t = word_state(pool, slot, generation);
    note(static_cast<u64>(t) + host().now());
    if (t == transfer::arrived) {
      for (u32 bank = 0; bank < (layer == 2 ? 1u : 3u); ++bank) {
        tally_.wrong_reads += !host().read(pool, slot_id{slot},
                                           {layer_of(layer), expert_id{expert}}, generation, bank);
      }
      ++tally_.delivered;
      return true;
    }
    tally_.lost += t != transfer::failed;
    return false;
  }

  /// Keeps the lease while readers run in the compute stream.
  void hold(cache_type::lease lease, u32 pool, u32 layer, std::vector<u32> const& generations,
            std::vector<bool> const& is_done) {
    held h{std::move(lease), {}};
    step_view const& view = h.lease.view();
    for (std::size_t i = 0; i < view.experts.size(); ++i) {
      if (is_done[i] && view.slots[i] < cache_->sites()[pool].n_slots) {
        h.tickets.push_back(host().enqueue_read({pool,
                                                 slot_id{view.slots[i]},
                                                 {layer_of(layer), expert_id{view.experts[i]}},
                                                 generations[i],
                                                 layer == 2 ? 0u : view.experts[i] % 3},
                                                7));
      }
    }
    held_.push_back(std::move(h));
  }

  /// Waits for the oldest lease's readers and ends it.
  void let_go() {
    held& h = held_.front();
    for (u32 ticket : h.tickets) {
      move::read_report const* report = nullptr;
      for (int i = 0; i < 1000 && report == nullptr; ++i) {
        for (move::read_report const& r : host().reports()) {
          report = r.ticket == ticket ? &r : report;
        }
        if (report == nullptr) {
          host().advance(5);
        }
      }
      if (report == nullptr) {
        ++tally_.lost;
      } else if (report->fault == move::read_fault::not_launched) {
        ++tally_.not_launched;
      } else {
        tally_.wrong_reads += report->fault != move::read_fault::none;
        ++tally_.late_reads;
      }
    }
    held_.erase(held_.begin());
  }

  /// An event behind the readers, asked for until it has passed or a call is refused.
  void fence() {
    if (event_ == move::no_event) {
      event_ = driver_->make_event();
    }
    if (status const s = driver_->record(event_, host().compute_stream()); !s) {
      tally_.refused_calls += s.why == reason::device_error;
      tally_.broken += s.why != reason::device_error;
      return;
    }
    for (int i = 0; i < 1000; ++i) {
      status const s = driver_->query(event_);
      if (s.why != reason::busy) {
        tally_.refused_calls += s.why == reason::device_error;
        tally_.broken += s && !driver_->streams().idle(host().compute_stream());
        return;
      }
      host().advance(4);
    }
    ++tally_.lost;
  }

  /// Memory beside the cache, given back at once.
  void lane(u64 bytes) {
    u64 const before = driver_->memory().ledger(0).held();
    move::allocation const a = driver_->allocate(0, bytes);
    if (!a) {
      ++tally_.refused_calls;
      tally_.broken += a.why != reason::no_memory || driver_->memory().ledger(0).held() != before;
      return;
    }
    status s = driver_->release(a.block);
    if (!s) {
      ++tally_.refused_calls;
      s = driver_->release(a.block);
    }
    leaked_ += s ? 0 : bytes;
    tally_.broken += driver_->memory().ledger(0).held() != before + (s ? 0 : bytes);
  }

  void check() {
    cache_->settle();
    tally_.broken += !cache_->audit();
    tally_.broken += !check_laws(cache_->observer().total(), cache_->slot_counts());
    tally_.broken += !host().ledger().balances();
    note(host().ledger().bytes.completed);
  }

  void finish() {
    while (!held_.empty()) {
      let_go();
    }
    host().advance_to_idle();
    cache_->settle();
    // whole again: every pool at its full size, and every layer serves
    for (u32 layer = 0; layer < n_layers; ++layer) {
      tally_.broken += !cache_->resize(layer_of(layer), 7);
      serve(layer, ids_of(layer, layer, 0, 2), false);
    }
    host().advance_to_idle();
    check();
    for (table<small> const& pool : cache_->pools()) {
      block_header const& h = pool.view().header();
      tally_.capacity += h.free() + h.resident;
      tally_.broken += h.reserved + h.draining + h.retired + h.in_flight + h.leases != 0;
    }
    tally_.broken += host().ledger().transfers.in_flight + host().ledger().copies.in_flight != 0;
    total_counters const c = cache_->observer().total();
    tally_.overflow_steps = c.overflow_steps.value;
    tally_.speculated = c.issued[static_cast<u32>(intent::speculative)].value;
    tally_.first_uses = c.used().value;
    tally_.declined = c[access_kind::declined].value;
    tally_.dropped = c.dropped.value;
    tally_.retired = c.retired.value;
    u64 const struck = driver_->faults().struck(move::fault_point::release);
    cache_.reset();
    tally_.broken += driver_->memory().ledger(0).held() != leaked_ &&
                     driver_->faults().struck(move::fault_point::release) == struck;
    note(driver_->now());
  }

  std::mt19937 random_;
  move::host_options options_;
  move::shared_driver driver_;
  std::unique_ptr<cache_type> cache_;
  std::vector<held> held_;
  u32 event_ = move::no_event;
  u64 leaked_ = 0;  ///< by releases that failed twice
  tally tally_;
};

}  // namespace warmset_test
