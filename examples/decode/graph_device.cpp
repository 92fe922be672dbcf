// SPDX-License-Identifier: Apache-2.0
#include "graph_device.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include <warmset/core/outcome_words.hpp>
#include <warmset/gate/governor.hpp>
#include <warmset/observe/health.hpp>
#include <warmset/observe/snapshot.hpp>

#include "instruments.hpp"
#include "predictor.hpp"

namespace warmset_decode {

using namespace warmset;

namespace {

/// The counters as words, all of which count up.

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
        health_(setup_of(m)), groups_(a_.layers), speculated_(u64{a_.layers} * a_.experts) {
    counted_.open(model_);
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
    r.governor = governor_.state();
    r.governor_stops = governor_.stops();
    total_counters const sum = r.counters.sum();
    r.hints = sum.hints_offered.value;
    r.loads = sum.issued[static_cast<u32>(intent::speculative)].value;
    r.copies_failed = sum.failed[0].value + sum.failed[1].value;
    r.reads = sum.demanded.value;
    return r;
  }

 private:
  void step(u32 token, phase p) {
    *engine_->page().now = {token, position_};
    bool const ahead = looks_ahead(p);
    auto const begin = std::chrono::steady_clock::now();
    engine_->run(ahead);
    auto const took = std::chrono::steady_clock::now() - begin;
    step_ns_ = static_cast<u64>(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
    count(p);
    if (tools_ != nullptr) {
      show(token, p, ahead);
    }
    if (predictor_ != nullptr) {
      predict(token, p);
    }
    ++position_;
  }

  // ---- before a step

  /// Whether the next step looks ahead. Asks the governor, and tells the graph how much it may move.
  bool looks_ahead(phase p) {
    u32 const n_targets = a_.layers - 1;  // layer 0 has no layer before it in its step
    gate::permission may{0, reason::none};
    if (shape_.width != 0) {
      counts_.possible += n_targets;
      may = permitted(p, n_targets);
    }
    why_ = may.why;
    u64 const n =
        std::min({may.bytes, options_.hint_bytes, shape_.width * expert_bytes_}) / expert_bytes_;
    condition_report const& in_vain = health_.report()[health_condition::nothing_issued];
    bool const ahead = n != 0 && n_targets != 0 && (!in_vain.raised || health_.report().probe_due);
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
      may = governor_.ask(p, slack_bytes(), expert_bytes_);
    }
    return may;
  }

  /// What the link carries during a layer beyond what demand moved there, after the last step.
  u64 slack_bytes() const noexcept {
    if (options_.link_bytes_per_us == 0) {
      return u64_max;
    }
    u64 const carries = step_ns_ * options_.link_bytes_per_us / 1000;
    return saturating_sub(carries, demand_bytes_) / a_.layers;
  }

  // ---- after a step

  /// Takes in what the counters have become, layer by layer, under the step's phase.
  void count(phase p) {
    ops::told_page const& told = engine_->page().told;
    u32 issued = 0;
    u32 used = 0;
    u32 wasted = 0;
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
      issued += since.issued[static_cast<u32>(intent::speculative)];
      used += since[access_kind::first_use] + since.late_of_hint;
      wasted += since.evicted_unused;
      demand_bytes_ += since.issued[static_cast<u32>(intent::demand)] * expert_bytes_;
    }
    counts_.judged.used += used;
    counts_.judged.wasted += wasted;
    governor_.issued(issued * expert_bytes_);
    if ((used | wasted) != 0) {
      governor_.judge(used, wasted, 0);
    }
    ++n_steps_;
    bool const is_stopped = governor_.is_stopped() || options_.hint_bytes < expert_bytes_;
    for (group_health& g : groups_) {
      g = {shape_.width != 0 ? why_ : reason::none, n_steps_, 0, reason::none, is_stopped};
    }
    health_.update(counted_.total(), groups_);
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
        u32 const* const copies = told.copies + u64{l} * (1 + shape_.n_hints);
        for (u32 i = 0; i < copies[0]; ++i) {
          tools_->copied(l, copies[1 + i]);
          speculated[copies[1 + i]] = 1;
        }
      }
      std::span<i32 const> const ids(told.ids + u64{l} * a_.k, a_.k);
      tools_->routed(l, position_, p, {&token, 1}, ids, {told.weights + u64{l} * a_.k, a_.k});
      u32 const* const loads = told.loads + u64{l} * (1 + a_.k);
      experts_.assign(ids.begin(), ids.end());
      how_.clear();
      for (u32 e : experts_) {
        bool const is_load = std::find(loads + 1, loads + 1 + loads[0], e) != loads + 1 + loads[0];
        how_.push_back(is_load              ? access_kind::load
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
  gate::governor governor_;
  health_monitor health_;
  std::vector<group_health> groups_;
  std::vector<char> speculated_;  // [layer][expert]: copied for a hint, and not demanded since
  std::vector<u32> experts_;
  std::vector<access_kind> how_;
  std::vector<hint> hints_;
  device_report counts_;
  reason why_ = reason::none;
  phase phase_ = phase::decode;
  u64 hint_bytes_ = u64_max;
  u64 expert_bytes_ = 1;
  u64 demand_bytes_ = 0;  // of the last step
  u64 step_ns_ = 0;       // the same
  u64 n_steps_ = 0;
  u32 position_ = 0;
};

}  // namespace

std::unique_ptr<device> make_graph_device(model const& m, device_options const& options,
                                          instruments* tools, make_engine* make) {
  return std::make_unique<graph_device>(m, options, tools, make);
}

}  // namespace warmset_decode
