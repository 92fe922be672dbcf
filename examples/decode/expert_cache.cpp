// SPDX-License-Identifier: Apache-2.0
#include "expert_cache.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace warmset_decode {

using namespace warmset;

namespace {

constexpr u32 most_attempts =
    1000;  // at bringing an expert into scratch: beyond, nothing ever arrives

/// Bytes per 1000 ticks of a nanosecond.
move::link_model link_of(device_options const& o) {
  move::link_model link;
  if (o.link_bytes_per_us != 0) {
    link.bytes = o.link_bytes_per_us;
    link.ticks = 1000;
  }
  return link;
}

move::span_source source_of(model const& m) {
  move::span_source source;
  for (u32 row = 0; row < m.numbers.layers; ++row) {
    for (u32 b = 0; b < n_banks; ++b) {
      source.add(layer_id{row}, b, m.layers[row].experts[b]->bytes);
    }
  }
  return source;
}

expert_cache::backend_type backend_of(model const& m, device_options const& o) {
  auto driver = move::shared_driver::make(std::vector<move::link_model>(1, link_of(o)));
  driver->faults().schedule(move::fault_point::copy,
                            move::failure_schedule::random(o.seed, o.copy_failures_q16));
  move::host_options host;
  host.ticks_per_poll = 0;  // time passes where this program says so
  host.compare_bytes =
      false;  // whose bytes they are is checked; what they are is what the logits show
  return expert_cache::backend_type(host, source_of(m), driver);
}

gate::authority& published(gate::authority& groups, gate::references& memory) {
  for (u32 g = 0; g < groups.size(); ++g) {
    if (!groups.publish(g, gate::holder::host, memory)) {
      throw config_error("group ", g, " has a holder already");
    }
  }
  return groups;
}

u32 slots_of(model const& m, device_options const& o) {
  return o.slots == 0 ? m.numbers.experts : std::min(o.slots, m.numbers.experts);
}

tuning numbers_of(model const& m, device_options const& o) {
  tuning numbers = decode_policy::numbers;
  numbers.speculative_slots = std::clamp(o.width, 1u, slots_of(m, o));
  return numbers;
}

health_setup setup_of(expert_cache::cache_type const& c) {
  health_setup s = health_setup_of(c);
  s.n_groups = static_cast<u32>(c.pools().size());
  return s;
}

}  // namespace

expert_cache::expert_cache(model const& m, device_options const& options, instruments* tools)
    : options_(options), tools_(tools), link_(link_of(options)), authority_(m.numbers.layers),
      cache_(m.geometry(), budget::of_slots(slots_of(m, options)), numbers_of(m, options),
             backend_of(m, options), observe::counting{},
             gate_type(published(authority_, memory_))),
      health_(setup_of(cache_)), groups_(cache_.pools().size()) {
  std::vector<u32> n_slots;
  for (pool_site const& s : cache_.sites()) {
    n_slots.push_back(s.n_words());
  }
  ledger_.open(cache_.model(), n_slots);
}

expert_cache::~expert_cache() {
  for (u32 g = 0; g < authority_.size(); ++g) {
    (void)authority_.withdraw(g);
  }
}

void expert_cache::fail(char const* what) const {
  throw std::runtime_error("layer " + std::to_string(layer_.value) + ": " + what);
}

// ---- time ---------------------------------------------------------------------------------------------------

/// Lets the clock run to the end of the copy that is on the link.
void expert_cache::run_copy() {
  backend_type& host = cache_.backend();
  if (host.idle()) {
    fail("a transfer has neither arrived nor failed, and nothing is under way");
  }
  u64 const end = host.driver().streams().link(host.driver().link_of(0)).free_at;
  host.advance(end > host.now() ? end - host.now() : 0);
}

/// The layer's arithmetic takes its time, and what is on the link goes on.
void expert_cache::work(u32 n_tokens) {
  u64 const ns = options_.compute_ns * n_tokens;
  cache_.backend().advance(ns);
  counts_.compute_ns += ns;
}

u64 expert_cache::backlog_ns() noexcept {
  return link_.byte_ticks(cache_.backend().ledger().bytes.in_flight);
}

/// What the link carries while this layer computes, beyond what it has to do.
u64 expert_cache::slack_bytes() noexcept {
  if (options_.link_bytes_per_us == 0) {
    return u64_max;
  }
  u64 const idle = saturating_sub(options_.compute_ns, backlog_ns());
  return idle * options_.link_bytes_per_us / 1000;
}

// ---- demand -------------------------------------------------------------------------------------------------

expert_cache::cache_type::lease expert_cache::begin(u32 row, std::span<routed_id const> ids,
                                                    step_facts const& facts) {
  layer_ = layer(row).layer;
  u32 row_in_pool = 0;
  (void)cache_.find(layer_, pool_, row_in_pool);
  waits_since_ = cache_.backend().now();
  auto lease = cache_.demand(layer_, ids, facts);
  if (!lease) {
    fail("the cache refused a step");
  }
  step_view const& view = lease.view();
  step_.clear();
  for (std::size_t i = 0; i < view.experts.size(); ++i) {
    u32 const slot = view.slots[i];
    bool const in_scratch = slot >= site().n_slots;
    step_.push_back({view.experts[i], slot,
                     in_scratch ? 0 : cache_.pools()[pool_].view().generation(slot), false});
  }
  if (tools_ != nullptr) {
    tools_->served(row, facts.in_phase, view.experts, view.how);
  }
  u32 const steps = cache_.pools()[pool_].view().layer(row_in_pool).step;
  judge(ledger_.plan(pool_, row, steps, view.experts, view.how, view.slots, view.loads));
  n_waves_ = view.n_waves;
  wait_for_slots(view);
  return lease;
}

/// Until every transfer into a slot of the step has ended, its own or one that it joined.
void expert_cache::wait_for_slots(step_view const& view) {
  has_failed_ = false;
  for (std::size_t i = 0; i < view.experts.size(); ++i) {
    if (view.slots[i] >= site().n_slots) {
      continue;
    }
    if (view.how[i] != access_kind::load && view.how[i] != access_kind::late) {
      continue;
    }
    u32 const& word = cache_.backend().arrivals(pool_)[view.slots[i]];
    while (!arrival::is_of(word, step_[i].generation) ||
           arrival::state(word) == transfer::loading) {
      run_copy();
    }
    has_failed_ = has_failed_ || arrival::state(word) == transfer::failed;
  }
}

/// Brings one wave into scratch, what fails again and again until it is there.
void expert_cache::run_wave(u32 wave, bool starts) {
  wave_report r = starts ? cache_.start_wave(wave) : cache_.wave(wave);
  for (u32 attempts = 0; !r.ready();) {
    if (r.in_flight != 0) {
      run_copy();
      r = cache_.wave(wave);
    } else if (r.why == reason::in_flight) {
      run_copy();
      r = cache_.start_wave(wave);
    } else if (r.failed != 0 && ++attempts < most_attempts) {
      r = cache_.start_wave(wave);
    } else {
      fail("an expert does not arrive in scratch");
    }
  }
}

/// What is to be read from slots is there; the wait is over.
void expert_cache::settle_demand() {
  for (served const& s : step_) {
    u32 const word = s.done ? 0 : cache_.backend().arrivals(pool_)[s.slot];
    if (!s.done && arrival::is_of(word, s.generation) && arrival::state(word) == transfer::failed) {
      fail("a failed transfer was not served again");
    }
  }
  counts_.stall_ns += cache_.backend().now() - waits_since_;
}

expert_cache::weights expert_cache::read(u32 expert, u32 slot, u32 generation) {
  weights w;
  for (u32 b = 0; b < n_banks; ++b) {
    move::read_result const r =
        cache_.backend().read(pool_, slot_id{slot}, {layer_, expert_id{expert}}, generation, b);
    if (!r) {
      fail(move::name_of(r.fault));
    }
    w.banks[b] = r.bytes;
  }
  ++counts_.reads;
  return w;
}

// ---- hints --------------------------------------------------------------------------------------------------

bool expert_cache::may_hint(u32 row, phase p) {
  ++counts_.possible;
  u64 const expert_bytes = layer(row).expert_bytes();
  gate::permission may{u64_max, reason::none};
  if (options_.hint_bytes < expert_bytes) {
    may = {0, reason::governed};
  } else if (options_.governed) {
    may = governor_.ask(p, slack_bytes(), expert_bytes);
  }
  u64 const loads = min_of(may.bytes, options_.hint_bytes) / expert_bytes;
  if (loads == 0) {
    cache_.gate().permit().deny(may.why);
  } else {
    cache_.gate().permit().allow(static_cast<u32>(min_of(loads, u64{u32_max})));
  }
  health_report const& health = health_.report();
  bool const in_vain = health[health_condition::nothing_issued].raised && !health.probe_due;
  return !in_vain && static_cast<bool>(cache_.may_advise(layer(row).layer, p));
}

u32 expert_cache::hint(u32 row, std::span<routed_id const> experts, phase p) {
  u32 pool = 0;
  u32 row_in_pool = 0;
  (void)cache_.find(layer(row).layer, pool, row_in_pool);
  u32 const loads = cache_.advise(layer(row).layer, experts, u32_max, 1, p);
  counts_.hints += experts.size();
  counts_.loads += loads;
  if (loads != 0) {
    auto const& plan = cache_.last_plan();
    array_view<planned_load const> const started(plan.loads, loads);
    judge(ledger_.issue(pool, row, plan.target, started));
    governor_.issued(loads * layer(row).expert_bytes());
    for (planned_load const& load : started) {
      if (tools_ != nullptr) {
        tools_->copied(row, load.expert);
      }
    }
  }
  return loads;
}

void expert_cache::judge(gate::verdict v) {
  counts_.judged.used += v.used;
  counts_.judged.wasted += v.wasted;
  counts_.judged.regretted += v.regretted;
  if ((v.used | v.wasted | v.regretted) != 0) {
    governor_.judge(v.used, v.wasted, v.regretted);
  }
}

// ---- health -------------------------------------------------------------------------------------------------

void expert_cache::end_batch() {
  ++batches_;
  bool const hints_wanted = options_.width != 0;
  bool const is_stopped = governor_.is_stopped() || options_.hint_bytes < layer(0).expert_bytes();
  for (u32 pool = 0; pool < groups_.size(); ++pool) {
    reason const why = cache_.gate().look(pool, gate::purpose::speculation).why;
    groups_[pool] = {hints_wanted ? why : reason::none, batches_, 0, reason::none, is_stopped};
  }
  health_.update(cache_.observer().total(), groups_);
}

void expert_cache::report(device_report& r) {
  cache_.settle();
  r = counts_;
  r.counters = snapshot(cache_.model());
  (void)r.counters.take(cache_.observer());
  r.health = health_.report();
  r.governor = governor_.state();
  r.governor_stops = governor_.stops();
  r.copies_failed = cache_.backend().ledger().copies.failed;
}

}  // namespace warmset_decode
