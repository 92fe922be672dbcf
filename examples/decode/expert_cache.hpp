// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <warmset/cache.hpp>
#include <warmset/gate/governor.hpp>
#include <warmset/gate/held_by.hpp>
#include <warmset/gate/hint_ledger.hpp>
#include <warmset/move/host.hpp>
#include <warmset/observe/health_facts.hpp>

#include "device.hpp"
#include "instruments.hpp"
#include "model.hpp"
#include "policy.hpp"

namespace warmset_decode {

/// The experts of a model, served out of a Warmset cache: N slots per layer, filled from the file by the host backend,
/// whose copies take time on a virtual clock and fail where they are told to. Every read says which expert it
/// expects, and throws where the slot holds anything else.
///
/// Throws warmset::config_error where the cache cannot work with these numbers.
class expert_cache {
 public:
  using backend_type = warmset::move::basic_host<warmset::move::span_source>;
  using gate_type = warmset::gate::held_by<warmset::gate::holder::host, warmset::gate::told_permit>;
  using cache_type =
      warmset::cache<decode_policy, backend_type, warmset::observe::counting, gate_type>;

  /// An expert's weights in its slot.
  struct weights {
    std::span<std::byte const> banks[n_banks];
  };

  expert_cache(model const& m, device_options const& options, instruments* tools);
  ~expert_cache();

  /// Serves one step of a layer: calls compute(expert, weights) once for each distinct expert, in whatever order its
  /// weights are to be had, and between() once, when what the step demands is there and before the bulk of the work:
  /// the moment for hints.
  ///
  /// @param n_tokens  of the step, for the model of time
  template <class Compute, class Between>
  void serve(u32 row, std::span<warmset::routed_id const> ids, warmset::step_facts const& facts,
             u32 n_tokens, Compute&& compute, Between&& between) {
    auto lease = begin(row, ids, facts);
    for (u32 wave = 0; wave < n_waves_; ++wave) {
      run_wave(wave, true);
      serve_scratch(wave, compute);
    }
    while (has_failed_ &&
           cache_.serve_failed() != 0) {  // a wave of its own, in place of the slots that failed
      u32 const wave = cache_.last_plan().n_waves - 1;
      run_wave(wave, false);
      serve_scratch(wave, compute);
    }
    settle_demand();
    between();
    for (served& s : step_) {
      if (!s.done) {
        compute(s.expert, read(s.expert, s.slot, s.generation));
      }
    }
    lease.release();
    work(n_tokens);
  }

  /// Whether hints for this layer's next step may be issued now. Asks the governor, tells the permit.
  bool may_hint(u32 row, warmset::phase p);
  /// Offers predicted experts of a layer, surest first. Returns how many transfers were started.
  u32 hint(u32 row, std::span<warmset::routed_id const> experts, warmset::phase p);

  /// A micro-batch is through: health is judged.
  void end_batch();

  void report(device_report& r);
  cache_type& cache() noexcept { return cache_; }

 private:
  struct served {
    u32 expert;
    u32 slot;
    u32 generation;
    bool done;
  };

  cache_type::lease begin(u32 row, std::span<warmset::routed_id const> ids,
                          warmset::step_facts const& facts);
  void wait_for_slots(warmset::step_view const& view);
  void run_wave(u32 wave, bool starts);
  void settle_demand();
  void work(u32 n_tokens);
  void run_copy();
  u64 backlog_ns() noexcept;
  u64 slack_bytes() noexcept;
  void judge(warmset::gate::verdict v);
  weights read(u32 expert, u32 slot, u32 generation);
  [[noreturn]] void fail(char const* what) const;

  template <class Compute>
  void serve_scratch(u32 wave, Compute&& compute) {
    auto const& plan = cache_.last_plan();
    for (std::size_t i = 0; i < step_.size(); ++i) {
      if (!step_[i].done && plan.slot[i] >= site().n_slots && plan.wave[i] == wave) {
        compute(step_[i].expert, read(step_[i].expert, plan.slot[i], cache_.scratch_generation()));
        step_[i].done = true;
      }
    }
  }

  warmset::pool_site const& site() const noexcept { return cache_.sites()[pool_]; }
  warmset::layer_geometry const& layer(u32 row) const noexcept {
    return cache_.model().layers()[row];
  }

  device_options options_;
  instruments* tools_;
  warmset::move::link_model link_;
  warmset::gate::references memory_;
  warmset::gate::authority authority_;
  cache_type cache_;
  warmset::gate::governor governor_;
  warmset::gate::hint_ledger ledger_;
  warmset::health_monitor health_;
  std::vector<warmset::group_health> groups_;
  std::vector<served> step_;
  warmset::layer_id layer_{};
  u32 pool_ = 0;
  u32 n_waves_ = 0;
  bool has_failed_ = false;
  u64 waits_since_ = 0;
  u64 batches_ = 0;
  device_report counts_;
};

}  // namespace warmset_decode
