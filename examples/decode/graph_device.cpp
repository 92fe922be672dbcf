// SPDX-License-Identifier: Apache-2.0
#include "graph_device.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include <warmset/core/outcome_words.hpp>
#include <warmset/gate/hint_ledger.hpp>
#include <warmset/gate/pacing.hpp>
#include <warmset/observe/health.hpp>
#include <warmset/observe/snapshot.hpp>

#include "instruments.hpp"
#include "predictor.hpp"

namespace warmset_decode {

using namespace warmset;

namespace {

device_options checked(device_options const& options) {
  if (options.retention != nullptr) {
    throw config_error("a retention head needs the CPU: no graph computes its keys");
  }
  return options;
}

health_setup setup_of(model const& m) {
  health_setup s = health_setup::of(m.geometry());
  s.n_groups = m.numbers.layers;
  return s;
}

class graph_device final : public device {
 public:
  graph_device(model const& m, device_options const& options, instruments* tools, make_engine* make)
      : a_(m.numbers), options_(checked(options)), tools_(tools),
        shape_(shape_of(options, tools == nullptr ? 0 : tools->wanted_width(), m.numbers)),
        model_(m.geometry()), engine_(make(m, options, shape_)), last_(a_.layers),
        health_(setup_of(m)), groups_(a_.layers), slot_of_(u64{a_.layers} * a_.experts),
        speculated_(u64{a_.layers} * a_.experts) {
    counted_.open(model_);
    std::vector<u32> const n_slots(a_.layers, a_.experts + a_.k);  // with scratch, at most
    ledger_.open(model_, n_slots);
    if (shape_.said_by_host) {
      predictor_ = make_predictor(options.predictor);
      predictor_->open(model_);
    }
    std::fill_n(engine_->page().hints, u64{a_.layers} * shape_.n_hints, -1);
    if (tools != nullptr) {
      engine_->measure(tools->device_times());
    }
    for (layer_geometry const& layer : model_.layers()) {
      expert_bytes_ = std::max(expert_bytes_, layer.expert_bytes());
    }
  }

  void forget() override { position_ = 0; }

  std::span<float const> forward(batch const& b) override {
    if (position_ + b.tokens.size() > a_.context) {
      throw std::length_error("the context of " + std::to_string(a_.context) + " tokens is full");
    }
    for (u32 token : b.tokens) {
      if (token >= a_.vocabulary) {
        throw std::out_of_range("token " + std::to_string(token) + " of a vocabulary of " +
                                std::to_string(a_.vocabulary));
      }
    }
    if (tools_ != nullptr && tools_->samples() != nullptr) {
      throw config_error("samples of the routers' inputs are taken on the CPU");
    }
    for (u32 token : b.tokens) {
      step(token, b.in_phase);
    }
    return b.wants_logits ? engine_->logits() : std::span<float const>();
  }

  device_report report() override {
    device_report r = counts_;
    r.counters = snapshot(model_);
    (void)r.counters.take(counted_);
    r.health = health_.report();
    r.governor = pacing_.bytes().state();
    r.governor_stops = pacing_.bytes().stops();
    total_counters const sum = r.counters.sum();
    r.hints = sum.hints_offered.value -
              sum.hints_dropped[static_cast<u32>(reason::sentinel)].value;  // padding
    r.loads = sum.issued[static_cast<u32>(intent::speculative)].value;
    r.copies_failed = sum.failed[0].value + sum.failed[1].value;
    r.reads = reads_;
    return r;
  }

 private:
  void step(u32 token, phase p) {
    *engine_->page().now = {token, position_};
    bool const ahead = looks_ahead(p);
    u64 const step_ns = engine_->run(ahead);
    pacing_.took(step_ns);  // the host's share is the same with and without
    count(p, ahead);
    if (!ahead) {
      time_compute(step_ns);
    }
    if (tools_ != nullptr) {
      show(token, p, ahead);
    }
    if (predictor_ != nullptr) {
      predict(token, p);
    }
    ++position_;
  }

  // ---- before a step

  /// Whether the next step looks ahead. Asks whether that pays, and tells the graph how much it may move.
  bool looks_ahead(phase p) {
    u32 const n_targets = a_.layers - 1;  // layer 0 has no layer before it in its step
    gate::permission may{0, reason::none};
    if (shape_.width != 0) {
      counts_.possible += n_targets;
      may = permitted(p, n_targets);
    }
    why_ = may.why;
    u64 const most = std::min(options_.hint_bytes / expert_bytes_, u64{shape_.width});
    u64 const n = pacing_.budget(may.bytes / expert_bytes_, most);
    condition_report const& in_vain = health_.report()[health_condition::nothing_issued];
    bool const wanted = n != 0 && n_targets != 0 && (!in_vain.raised || health_.report().probe_due);
    bool const ahead = options_.governed ? pacing_.ask(wanted) : wanted;
    if (options_.governed && wanted && !ahead && pacing_.is_lost()) {
      why_ = reason::not_paying;
    }
    counts_.produced += ahead ? n_targets : 0;
    if (p != phase_ || (ahead && n * expert_bytes_ != hint_bytes_)) {
      phase_ = p;
      hint_bytes_ = ahead ? n * expert_bytes_ : hint_bytes_;
      engine_->set(phase_, hint_bytes_);
    }
    return ahead;
  }

  gate::permission permitted(phase p, u32 n_targets) {
    if (options_.hint_bytes < expert_bytes_) {
      return {0, reason::governed};
    }
    if (p == phase::prefill) {
      return {0, reason::in_prefill};
    }
    gate::permission may{u64_max, reason::none};
    for (u32 i = 0; options_.governed && i < n_targets; ++i) {
      may = pacing_.bytes().ask(p, slack_bytes(), expert_bytes_);
    }
    return may;
  }

  /// What the link carries while a layer computes: a layer waits for what it demands, so that its transfers and those of
  /// hints do not share that time.
  u64 slack_bytes() const noexcept {
    u64 const rate = engine_->link_bytes_per_us();
    return rate == 0 ? u64_max : compute_ns_ * rate / (1000 * u64{a_.layers});
  }

  /// Learns from a step without hints how long its layers compute: the least of the last ones, which a disturbed step
  /// does not move and a longer context slowly does.
  void time_compute(u64 step_ns) noexcept {
    u64 const rate = engine_->link_bytes_per_us();
    u64 const ns = saturating_sub(step_ns, rate == 0 ? 0 : demand_bytes_ * 1000 / rate);
    compute_ns_ = compute_ns_ == 0 ? ns : std::min(ns, compute_ns_ + compute_ns_ / 16 + 1);
  }

  // ---- after a step

  /// Takes in what the counters have become, layer by layer, under the step's phase.
  void count(phase p, bool ahead) {
    ops::told_page const& told = engine_->page().told;
    ++n_steps_;
    demand_bytes_ = 0;
    for (u32 l = 0; l < a_.layers; ++l) {
      if (told.faults[l] != 0) {
        throw std::runtime_error("layer " + std::to_string(l) +
                                 ": a step could not be decided as planned, fault " +
                                 std::to_string(told.faults[l]));
      }
      outcome const since = told.counters[l] - last_[l];
      counted_.record(l, p) = counted_.record(l, p) + since;
      counted_.close(l, p);
      last_[l] = told.counters[l];
      reads_ += distinct_ids(l);
      pacing_.bytes().issued(since.issued[static_cast<u32>(intent::speculative)] * expert_bytes_);
      judge(l, ahead);
      demand_bytes_ += since.issued[static_cast<u32>(intent::demand)] * expert_bytes_;
    }
    bool const is_stopped = pacing_.bytes().is_stopped() || options_.hint_bytes < expert_bytes_;
    for (group_health& g : groups_) {
      g = {shape_.width != 0 ? why_ : reason::none, n_steps_, 0, reason::none, is_stopped};
    }
    health_.update(counted_.total(), groups_);
  }

  std::span<cuda::fetch_order const> copies_of(u32 l, bool ahead) const {
    ops::told_page const& told = engine_->page().told;
    return {told.copies + u64{l} * shape_.n_hints, ahead && l != 0 ? told.n_copies[l] : 0};
  }
  std::span<cuda::fetch_order const> loads_of(u32 l) const {
    ops::told_page const& told = engine_->page().told;
    return {told.loads + u64{l} * a_.k, told.n_loads[l]};
  }
  static bool names(std::span<cuda::fetch_order const> of, u32 expert) noexcept {
    return std::any_of(of.begin(), of.end(), [&](auto const& o) { return o.expert == expert; });
  }

  /// Experts that the layer's router chose in the step.
  u64 distinct_ids(u32 l) {
    i32 const* const ids = engine_->page().told.ids + u64{l} * a_.k;
    experts_.assign(ids, ids + a_.k);
    std::sort(experts_.begin(), experts_.end());
    return static_cast<u64>(std::unique(experts_.begin(), experts_.end()) - experts_.begin());
  }

  /// Judges the hints of a layer's step, which has been planned: those that went out in it.
  void judge(u32 l, bool ahead) {
    auto const place = [&](cuda::fetch_order const& o) {
      slot_of_[u64{l} * a_.experts + o.expert] = o.slot;
    };
    u32 const step = static_cast<u32>(n_steps_);
    std::span<cuda::fetch_order const> const copies = copies_of(l, ahead);
    std::span<cuda::fetch_order const> const loads = loads_of(l);
    std::for_each(copies.begin(), copies.end(), place);
    gate::verdict v = ledger_.issue(l, l, step, copies);
    std::for_each(loads.begin(), loads.end(), place);
    i32 const* const ids = engine_->page().told.ids + u64{l} * a_.k;
    experts_.assign(ids, ids + a_.k);
    how_.clear();
    slots_.clear();
    for (u32 e : experts_) {
      // of what is resident the ledger knows itself whether a hint has brought it
      how_.push_back(names(loads, e) ? access_kind::load : access_kind::first_use);
      slots_.push_back(slot_of_[u64{l} * a_.experts + e]);
    }
    gate::verdict const planned = ledger_.plan(l, l, step, experts_, how_, slots_, loads);
    v = {v.used + planned.used, v.wasted + planned.wasted, v.regretted + planned.regretted};
    counts_.judged.used += v.used;
    counts_.judged.wasted += v.wasted;
    counts_.judged.regretted += v.regretted;
    pacing_.judge(v.used, v.wasted, v.regretted);
  }

  /// Shows the instruments what the step told.
  void show(u32 token, phase p, bool ahead) {
    ops::told_page const& told = engine_->page().told;
    for (u32 l = 0; l < a_.layers; ++l) {
      char* const speculated = speculated_.data() + u64{l} * a_.experts;
      if (ahead && l != 0) {
        i32 const* const hints = told.hints + u64{l} * shape_.n_hints;
        u32 const n = static_cast<u32>(std::find(hints, hints + shape_.n_hints, -1) - hints);
        tools_->predicted(l, {hints, n});
        for (cuda::fetch_order const& each : copies_of(l, ahead)) {
          tools_->copied(l, each.expert);
          speculated[each.expert] = 1;
        }
      }
      std::span<i32 const> const ids(told.ids + u64{l} * a_.k, a_.k);
      tools_->routed(l, position_, p, {&token, 1}, ids, {told.weights + u64{l} * a_.k, a_.k});
      std::span<cuda::fetch_order const> const loads = loads_of(l);
      experts_.assign(ids.begin(), ids.end());
      how_.clear();
      for (u32 e : experts_) {
        how_.push_back(names(loads, e)      ? access_kind::load
                       : speculated[e] != 0 ? access_kind::first_use
                                            : access_kind::hit);
        speculated[e] = 0;
      }
      tools_->served(l, p, experts_, how_);
    }
  }

  /// Lets the predictor learn from the step, and says its hints for the next one: of the layers of that step it knows
  /// those of this one.
  void predict(u32 token, phase p) {
    step_page const& page = engine_->page();
    for (u32 l = 0; l < a_.layers; ++l) {
      i32 const* const ids = page.told.ids + u64{l} * a_.k;
      experts_.assign(ids, ids + a_.k);
      routing_snapshot seen;
      seen.layer = layer_id{l};
      seen.row = l;
      seen.in_phase = p;
      seen.token = token;
      seen.experts = experts_;
      predictor_->learn(seen);
      u32 const target = l + predictor_->horizon;
      if (target < a_.layers) {
        hints_.resize(shape_.n_hints);
        u32 const n = predictor_->predict(seen, shape_.n_hints, hints_);
        i32* const to = page.hints + u64{target} * shape_.n_hints;
        for (u32 i = 0; i < shape_.n_hints; ++i) {
          to[i] = i < n ? hints_[i].expert : -1;
        }
      }
    }
  }

  architecture const a_;
  device_options options_;
  instruments* tools_;
  step_shape shape_;
  geometry model_;
  std::unique_ptr<step_engine> engine_;
  std::unique_ptr<any_predictor> predictor_;  // where the hints are the host's
  observe::counting counted_;
  std::vector<outcome> last_;  // by layer: the counters as they were told last
  gate::pacing pacing_;  // of the graph with branches against the one without
  gate::hint_ledger ledger_;
  health_monitor health_;
  std::vector<group_health> groups_;
  std::vector<u32> slot_of_;      // [layer][expert]: where it has been brought last
  std::vector<char> speculated_;  // [layer][expert]: copied for a hint, and not demanded since
  std::vector<u32> experts_;
  std::vector<access_kind> how_;
  std::vector<u32> slots_;
  std::vector<hint> hints_;
  device_report counts_;
  reason why_ = reason::none;
  phase phase_ = phase::decode;
  u64 hint_bytes_ = u64_max;
  u64 expert_bytes_ = 1;
  u64 demand_bytes_ = 0;  // of the last step
  u64 compute_ns_ = 0;    // of a step, all its layers together; 0 = not known
  u64 reads_ = 0;
  u64 n_steps_ = 0;
  u32 position_ = 0;
};

}  // namespace

std::unique_ptr<device> make_graph_device(model const& m, device_options const& options,
                                          instruments* tools, make_engine* make) {
  return std::make_unique<graph_device>(m, options, tools, make);
}

}  // namespace warmset_decode
