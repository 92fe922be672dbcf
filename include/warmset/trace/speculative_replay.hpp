// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../gate/governor.hpp"
#include "../gate/hint_ledger.hpp"
#include "../gate/residence.hpp"
#include "../predict/concept.hpp"
#include "link_model.hpp"
#include "replay.hpp"
#include "routed.hpp"

namespace warmset::inline v0::trace {

/// How a replay speculates.
struct speculation {
  u32 width = 4;                 ///< hints that the predictor is asked for after each step
  u64 bytes_per_step = u64_max;  ///< most bytes that the hints of one step may start to move
  bool governed = true;          ///< whether a governor says how many of them
  gate::governor_numbers numbers{};
};

/// What a speculative replay found out. Counts are the cache's own, times the virtual clock's.
struct speculative_report {
  replay_report counts;
  std::array<u64, n_phases> stall_ns{};  ///< the compute waited for demanded experts
  std::array<u64, n_phases> compute_ns{};
  link_traffic traffic[n_intents];  ///< by the intent that started the transfer
  gate::verdict judged;             ///< hints by their own step
  u64 asked = 0;                    ///< steps after which hints were possible
  u64 permitted = 0;                ///< of those, with a permission of one expert at least
  u64 predicted = 0;                ///< calls of the predictor
  u64 beyond_residence = 0;         ///< hints that were dropped because their step is too far off
  gate::governor governor;          ///< as it ended

  u64 total_stall_ns() const noexcept { return stall_ns[0] + stall_ns[1]; }
};

/// Hints that a demand used, as a share of those issued.
inline double precision_of(total_counters const& c) noexcept {
  u64 const issued = c.issued[static_cast<u32>(intent::speculative)].value;
  return issued == 0 ? 0.0 : static_cast<double>(c.used().value) / static_cast<double>(issued);
}

/// Experts that hints brought, as a share of those that demand did not find resident by itself.
inline double coverage_of(total_counters const& c) noexcept {
  u64 const covered = c.used().value;
  u64 const missed = c[access_kind::load].value + c[access_kind::declined].value +
                     c[access_kind::overflow_miss].value;
  return covered + missed == 0
             ? 0.0
             : static_cast<double>(covered) / static_cast<double>(covered + missed);
}

namespace detail {

/// The layers of a model in the order in which tokens come to them, and what the link takes for their experts.
template <class Cache, class Predictor>
class speculating_player {
 public:
  speculating_player(recording const& r, Cache& cache, Predictor& predictor, speculation const& how)
      : recording_(r), cache_(cache), predictor_(predictor), how_(how), governor_(how.numbers) {
    std::vector<u32> n_slots;
    for (pool_site const& site : cache.sites()) {
      n_slots.push_back(site.n_words());
      residences_.emplace_back(site.n_slots);
      site_rows_.push_back(static_cast<u32>(site.layers.size()));
    }
    ledger_.open(r.geometry(), n_slots);
    predictor_.open(r.geometry());
    hints_.resize(how.width);
    batch_.resize(how.width);
  }

  speculative_report play(selection const& which) {
    routed_steps(recording_, which)
        .for_each(horizon(),
                  [this](event const& e, routing_snapshot const& seen, array_view<u32 const> next) {
                    play_step(e, seen, next);
                  });
    return finish();
  }

 private:
  /// Of a predictor that is chosen at run time, what it says itself.
  u32 horizon() const noexcept {
    if constexpr (requires { predictor_.layers_ahead(); }) {
      return predictor_.layers_ahead();
    } else {
      return Predictor::horizon;
    }
  }

  link_backend& link() noexcept { return cache_.backend(); }

  void play_step(event const& e, routing_snapshot const& seen, array_view<u32 const> next) {
    u32 pool = 0;
    u32 row = 0;
    (void)cache_.find(e.layer, pool, row);
    ids_.clear();
    for (u16 id : e.ids) {
      ids_.push_back(routed(id));
    }
    step_facts const facts{e.phase, e.sequence, token_of(e), {}};
    auto const p = static_cast<std::size_t>(e.phase);

    link().start_for(intent::demand);
    auto lease = cache_.demand(e.layer, std::span<routed_id const>(ids_), facts);
    auto const& decided = lease.view();
    u64 const waited = wait_for(pool, decided);
    report_.stall_ns[p] += waited;
    residences_[pool].step();
    residences_[pool].load(static_cast<u32>(decided.loads.size()));
    u32 const steps = cache_.pools()[pool].view().layer(row).step;
    judge(ledger_.plan(pool, e.row, steps, decided.experts, decided.how, decided.slots,
                       decided.loads));

    u64 const compute = scaled(link().numbers().compute_ns, e.n_tokens, 1);
    if constexpr (speculates<typename Cache::policy>) {
      speculate(e, seen, next, compute);
    }
    link().advance(compute);
    report_.compute_ns[p] = saturating_sum(report_.compute_ns[p], compute);
  }

  /// Lets the clock run until all that the step demands is there; what has no slot comes in waves.
  template <class Decision>
  u64 wait_for(u32 pool, Decision const& decided) {
    for (std::size_t i = 0; i < decided.experts.size(); ++i) {
      if (decided.how[i] == access_kind::late) {
        link().join(pool, slot_id{decided.slots[i]});
      }
    }
    u64 waited = link().wait_for_demand();
    for (u32 wave = 0; wave < decided.n_waves; ++wave) {
      cache_.start_wave(wave);
      waited += link().wait_for_demand();
    }
    return waited;
  }

  void speculate(event const& e, routing_snapshot const& seen, array_view<u32 const> next,
                 u64 compute) {
    std::vector<layer_geometry> const& layers = recording_.geometry().layers();
    u32 const row = (e.row + horizon()) % static_cast<u32>(layers.size());
    layer_id const target = layers[row].layer;
    u64 const expert_bytes = link().expert_bytes(target);
    u64 const idle = saturating_sub(compute, link().backlog_ns());
    u64 const slack = scaled(expert_bytes, idle, link().expert_ns(target));
    predictor_.learn(seen);
    if constexpr (requires { predictor_.tell(row, next); }) {
      predictor_.tell(row, next);
    }
    gate::permission const may =
        how_.governed ? governor_.ask(e.phase, slack, expert_bytes) : ungoverned(e.phase);
    ++report_.asked;
    u64 const most = min_of(may.bytes, how_.bytes_per_step) / expert_bytes;
    if (most == 0) {
      return;
    }
    ++report_.permitted;
    ++report_.predicted;
    u32 const n =
        predictor_.predict(seen, how_.width, array_view<hint>(hints_.data(), hints_.size()));
    issue(e, n, static_cast<u32>(min_of(most, u64{u32_max})));
  }

  gate::permission ungoverned(phase p) const noexcept {
    bool const off = p == phase::prefill && !how_.numbers.in_prefill;
    return off ? gate::permission{0, reason::in_prefill} : gate::permission{u64_max, reason::none};
  }

  /// Offers hints, runs of one layer as one batch, up to `most` loads in all.
  void issue(event const& e, u32 n, u32 most) {
    link().start_for(intent::speculative);
    for (u32 i = 0; i < n;) {
      layer_id const layer = hints_[i].layer;
      u32 in_batch = 0;
      for (; i < n && hints_[i].layer == layer; ++i) {
        batch_[in_batch++] = hints_[i].expert;
      }
      u32 pool = 0;
      u32 row = 0;
      if (!cache_.find(layer, pool, row)) {
        continue;
      }
      u32 const to = row_of(layer);
      if (!residences_[pool].outlasts(steps_until(e.row, to, pool))) {
        drop(to, e.phase, in_batch, reason::admission);
        continue;
      }
      u32 const loads =
          cache_.advise(layer, array_view<routed_id const>(batch_.data(), in_batch), most);
      most -= loads;
      if (loads != 0) {
        residences_[pool].load(loads);
        auto const& plan = cache_.last_plan();
        judge(ledger_.issue(pool, to, plan.target,
                            array_view<planned_load const>(plan.loads, loads)));
        governor_.issued(loads * link().expert_bytes(layer));
      }
    }
  }

  /// Steps of the pool from a step of row `from` to the next one of row `to`, where every layer of it is passed.
  u32 steps_until(u32 from, u32 to, u32 pool) const noexcept {
    u32 const n_rows = static_cast<u32>(recording_.geometry().layers().size());
    u32 const layers = to > from ? to - from : to + n_rows - from;
    return min_of(layers, site_rows_[pool]);  // a pool of one layer has one step per token
  }

  /// Counts hints that have not come to the table.
  void drop(u32 row, phase p, u32 n, reason why) {
    outcome& o = cache_.observer().record(row, p);
    o.hints_offered += n;
    o.hints_dropped[static_cast<u32>(why)] += n;
    cache_.observer().close(row, p);
    report_.beyond_residence += why == reason::admission ? n : 0;
  }

  void judge(gate::verdict v) {
    report_.judged.used += v.used;
    report_.judged.wasted += v.wasted;
    report_.judged.regretted += v.regretted;
    if ((v.used | v.wasted | v.regretted) != 0) {
      governor_.judge(v.used, v.wasted, v.regretted);
    }
  }

  u32 row_of(layer_id layer) const noexcept {
    return static_cast<u32>(recording_.geometry().find(layer) -
                            recording_.geometry().layers().data());
  }

  speculative_report finish() {
    link().finish();
    cache_.settle();
    report_.counts.by_layer.resize(recording_.geometry().layers().size());
    for (u32 row = 0; row < report_.counts.by_layer.size(); ++row) {
      for (u32 p = 0; p < n_phases; ++p) {
        report_.counts.by_layer[row][p].counted =
            cache_.observer().total(row, static_cast<phase>(p));
      }
    }
    for (u32 i = 0; i < n_intents; ++i) {
      report_.traffic[i] = link().traffic(static_cast<intent>(i));
    }
    report_.governor = governor_;
    return std::move(report_);
  }

  recording const& recording_;
  Cache& cache_;
  Predictor& predictor_;
  speculation how_;
  gate::governor governor_;
  gate::hint_ledger ledger_;
  speculative_report report_;
  std::vector<gate::residence> residences_;  // by pool
  std::vector<u32> site_rows_;               // by pool: its layers
  std::vector<routed_id> ids_;
  std::vector<hint> hints_;
  std::vector<routed_id> batch_;
};

}  // namespace detail

template <class Cache, checked_predictor Predictor>
speculative_report replay_speculatively(recording const& r, selection const& which, Cache& cache,
                                        Predictor& predictor, speculation const& how = {}) {
  return detail::speculating_player<Cache, Predictor>(r, cache, predictor, how).play(which);
}

}  // namespace warmset::inline v0::trace
