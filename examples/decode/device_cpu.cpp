// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "device.hpp"
#include "expert_cache.hpp"
#include "instruments.hpp"
#include "kernels.hpp"
#include "predictor.hpp"
#include "retention.hpp"

namespace warmset_decode {

using namespace warmset;

namespace {

/// The forward pass in single precision. Of the experts it has no weights but those that the cache serves.
class cpu_device final : public device {
 public:
  cpu_device(model const& m, device_options const& options, instruments* tools)
      : model_(m), a_(m.numbers), options_(options), tools_(tools), experts_(m, options, tools),
        cache_keys_(a_.layers), cache_values_(a_.layers), router_logits_(a_.experts),
        ahead_state_(a_.hidden), ahead_logits_(a_.experts), gate_(a_.expert_ff), up_(a_.expert_ff),
        logits_(a_.vocabulary), scores_(a_.context), fixed_(a_.hidden) {
    for (u32 l = 0; l < a_.layers; ++l) {
      input_scales_.push_back(input_scale(m, l));
    }
    if (options.predictor != "none") {
      predictor_ = make_predictor(options.predictor);
      if (!predictor_) {
        throw config_error("there is no predictor '", options.predictor.c_str(), "'");
      }
      predictor_->open(m.geometry());
      for (u32 l = 0; predictor_->reads_logits && l < a_.layers; ++l) {
        ahead_.push_back({m.layers[l].expert_norm, m.layers[l].router});
      }
    }
    u32 const width = std::max(options.width, tools == nullptr ? 0 : tools->wanted_width());
    hints_.resize(std::min(width, a_.experts));
  }

  void forget() override {
    position_ = 0;
    for (u32 l = 0; l < a_.layers; ++l) {
      cache_keys_[l].clear();
      cache_values_[l].clear();
    }
  }

  std::span<float const> forward(batch const& b) override {
    std::size_t const n = b.tokens.size();
    if (position_ + n > a_.context) {
      throw std::length_error("the context of " + std::to_string(a_.context) + " tokens is full");
    }
    if (tools_ != nullptr) {
      tools_->begin_batch();
      if (tools_->samples() != nullptr) {
        tools_->samples()->expect(n);
      }
    }
    take_in(b.tokens);
    for (u32 l = 0; l < a_.layers; ++l) {
      attend(l, n);
      route(l, n);
      if (tools_ != nullptr) {
        tools_->routed(l, position_, b.in_phase, b.tokens, ids_, weights_);
        take_samples(l, n);
      }
      retain(l, n);
      apply_experts(l, b);
    }
    position_ += static_cast<u32>(n);
    if (b.wants_logits) {
      instruments::timer const time(tools_, time_row::dense);
      float* const last = state_.data() + (n - 1) * a_.hidden;
      kernels::rms_norm(last, model_.output_norm.data(), last, a_.hidden, a_.epsilon);
      kernels::multiply(model_.output_weights(), last, logits_.data(), a_.vocabulary, a_.hidden);
    }
    experts_.end_batch();
    if (tools_ != nullptr) {
      tools_->end_batch();
    }
    return b.wants_logits ? std::span<float const>(logits_) : std::span<float const>();
  }

  device_report report() override {
    device_report r;
    experts_.report(r);
    r.produced = produced_;
    return r;
  }

 private:
  /// What a router that is run ahead reads: copies, so that the engine's own weights have no second reader.
  struct ahead_weights {
    std::vector<float> norm, router;
  };

  void take_in(std::span<u32 const> tokens) {
    instruments::timer const time(tools_, time_row::dense);
    u32 const half = a_.head_size / 2;
    state_.resize(tokens.size() * a_.hidden);
    normed_.resize(state_.size());
    cosines_.resize(tokens.size() * half);
    sines_.resize(tokens.size() * half);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      if (tokens[t] >= a_.vocabulary) {
        throw std::out_of_range("token " + std::to_string(tokens[t]) + " of a vocabulary of " +
                                std::to_string(a_.vocabulary));
      }
      std::copy_n(model_.embedding.data() + u64{tokens[t]} * a_.hidden, a_.hidden,
                  state_.data() + t * a_.hidden);
      for (u32 i = 0; i < half; ++i) {
        double const angle = static_cast<double>(position_ + t) *
                             std::pow(double{a_.rope_base}, -2.0 * i / a_.head_size);
        cosines_[t * half + i] = static_cast<float>(std::cos(angle));
        sines_[t * half + i] = static_cast<float>(std::sin(angle));
      }
    }
  }

  void attend(u32 l, std::size_t n) {
    instruments::timer const time(tools_, time_row::attention);
    model::layer const& w = model_.layers[l];
    u32 const size = a_.head_size;
    std::size_t const queries = std::size_t{a_.heads} * size;
    std::size_t const keys = std::size_t{a_.kv_heads} * size;
    std::vector<float>& all_keys = cache_keys_[l];
    std::vector<float>& all_values = cache_values_[l];
    query_.resize(queries);
    mixed_.resize(queries);
    projected_.resize(a_.hidden);
    for (std::size_t t = 0; t < n; ++t) {
      float* const x = state_.data() + t * a_.hidden;
      float* const normed = normed_.data() + t * a_.hidden;
      float const* const cosines = cosines_.data() + t * size / 2;
      float const* const sines = sines_.data() + t * size / 2;
      kernels::rms_norm(x, w.attention_norm.data(), normed, a_.hidden, a_.epsilon);
      std::size_t const at = all_keys.size();
      all_keys.resize(at + keys);
      all_values.resize(at + keys);
      float* const key = all_keys.data() + at;
      kernels::multiply(w.query.data(), normed, query_.data(), queries, a_.hidden);
      kernels::multiply(w.key.data(), normed, key, keys, a_.hidden);
      kernels::multiply(w.value.data(), normed, all_values.data() + at, keys, a_.hidden);
      for (u32 h = 0; h < a_.kv_heads; ++h) {
        kernels::rms_norm(key + h * size, w.key_norm.data(), key + h * size, size, a_.epsilon);
        kernels::rotate(key + h * size, cosines, sines, size);
      }
      for (u32 h = 0; h < a_.heads; ++h) {
        float* const q = query_.data() + h * size;
        std::size_t const kv = h / (a_.heads / a_.kv_heads) * std::size_t{size};
        kernels::rms_norm(q, w.query_norm.data(), q, size, a_.epsilon);
        kernels::rotate(q, cosines, sines, size);
        kernels::attend(q, all_keys.data() + kv, all_values.data() + kv, position_ + t + 1, keys,
                        size, scores_.data(), mixed_.data() + h * size);
      }
      kernels::multiply(w.output.data(), mixed_.data(), projected_.data(), a_.hidden, queries);
      kernels::add_scaled(x, projected_.data(), 1, a_.hidden);
    }
  }

  /// ids_ and weights_ of [tokens][k], the largest first; ties go to the lower expert.
  void route(u32 l, std::size_t n) {
    instruments::timer const time(tools_, time_row::dense);
    model::layer const& w = model_.layers[l];
    ids_.resize(n * a_.k);
    weights_.resize(n * a_.k);
    order_.resize(a_.experts);
    for (std::size_t t = 0; t < n; ++t) {
      float* const normed = normed_.data() + t * a_.hidden;
      kernels::rms_norm(state_.data() + t * a_.hidden, w.expert_norm.data(), normed, a_.hidden,
                        a_.epsilon);
      kernels::multiply(w.router.data(), normed, router_logits_.data(), a_.experts, a_.hidden);
      kernels::softmax(router_logits_.data(), a_.experts);
      for (float& share : router_logits_) {
        share = share >= 0 ? share : 0;  // no number: of damaged weights
      }
      std::iota(order_.begin(), order_.end(), 0u);
      std::partial_sort(order_.begin(), order_.begin() + a_.k, order_.end(), [&](u32 x, u32 y) {
        return router_logits_[x] != router_logits_[y] ? router_logits_[x] > router_logits_[y]
                                                      : x < y;
      });
      float sum = 0;
      for (u32 r = 0; r < a_.k; ++r) {
        sum += router_logits_[order_[r]];
      }
      for (u32 r = 0; r < a_.k; ++r) {
        ids_[t * a_.k + r] = static_cast<routed_id>(order_[r]);
        weights_[t * a_.k + r] = router_logits_[order_[r]] / sum;
      }
    }
  }

  void take_samples(u32 l, std::size_t n) {
    retention_samples* const to = tools_->samples();
    for (std::size_t t = 0; to != nullptr && t < n; ++t) {
      kernels::to_fixed_point(normed_.data() + t * a_.hidden, input_scales_[l], input_bound,
                              fixed_.data(), a_.hidden);
      to->set(l, t, fixed_, std::span<routed_id const>(ids_).subspan(t * a_.k, a_.k));
    }
  }

  /// keys_ of the layer's experts, from the router's input of the last token. None without a head.
  void retain(u32 l, std::size_t n) {
    if (options_.retention == nullptr) {
      return;
    }
    instruments::timer const time(tools_, time_row::dense);
    kernels::to_fixed_point(normed_.data() + (n - 1) * a_.hidden, input_scales_[l], input_bound,
                            fixed_.data(), a_.hidden);
    keys_.resize(a_.experts);
    options_.retention->keys(l, fixed_, keys_);
    if (tools_ != nullptr) {
      tools_->keyed(l, keys_);
    }
  }

  void apply_experts(u32 l, batch const& b) {
    std::size_t const n = b.tokens.size();
    outputs_.resize(ids_.size() * a_.hidden);
    u32 const token = n == 1 ? b.tokens[0] : routing_snapshot::no_token;
    {
      instruments::timer const time(tools_, time_row::copies);
      experts_.serve(
          l, ids_, step_facts{b.in_phase, 0, token, keys_}, static_cast<u32>(n),
          [&](u32 expert, expert_cache::weights const& w) { apply_expert(expert, w); },
          [&] { look_ahead(l, b); });
    }
    instruments::timer const time(tools_, time_row::dense);
    for (std::size_t t = 0; t < n; ++t) {
      for (u32 r = 0; r < a_.k; ++r) {  // in rank order, whatever order they were computed in
        std::size_t const i = t * a_.k + r;
        kernels::add_scaled(state_.data() + t * a_.hidden, outputs_.data() + i * a_.hidden,
                            weights_[i], a_.hidden);
      }
    }
  }

  void apply_expert(u32 expert, expert_cache::weights const& w) {
    instruments::timer const time(tools_, time_row::experts);
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (static_cast<u32>(ids_[i]) != expert) {
        continue;
      }
      float const* const x = normed_.data() + i / a_.k * a_.hidden;
      kernels::multiply_q8(w.banks[bank_gate].data(), x, gate_.data(), a_.expert_ff, a_.hidden);
      kernels::multiply_q8(w.banks[bank_up].data(), x, up_.data(), a_.expert_ff, a_.hidden);
      kernels::silu_times(gate_.data(), up_.data(), a_.expert_ff);
      kernels::multiply_q8(w.banks[bank_down].data(), gate_.data(), outputs_.data() + i * a_.hidden,
                           a_.hidden, a_.expert_ff);
    }
  }

  /// Predicts a later layer's experts while this one's are still to be computed. It reads the state after attention and
  /// writes to memory of its own: nothing that the forward pass reads depends on it.
  void look_ahead(u32 l, batch const& b) {
    if (!predictor_ || hints_.empty()) {
      return;
    }
    u32 const target = (l + predictor_->horizon) % a_.layers;
    bool const next_token = l + predictor_->horizon >= a_.layers;
    bool const is_possible = b.tokens.size() == 1 && !(next_token && predictor_->reads_logits);
    u32 row = 0;
    u32 pool = 0;
    (void)experts_.cache().find(layer_id{l}, pool, row);
    distinct_.assign(ids_.begin(), ids_.end());
    if (b.tokens.size() != 1) {
      std::sort(distinct_.begin(), distinct_.end());
      distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
    }
    routing_snapshot seen;
    seen.layer = layer_id{l};
    seen.row = l;
    seen.in_phase = b.in_phase;
    seen.token = b.tokens.size() == 1 ? b.tokens[0] : routing_snapshot::no_token;
    seen.experts = distinct_;
    seen.activation = {state_.data() + (b.tokens.size() - 1) * a_.hidden, a_.hidden};
    bool const may = is_possible && options_.width != 0 && experts_.may_hint(target, b.in_phase);
    bool const asks = may || (is_possible && tools_ != nullptr && tools_->wanted_width() != 0);
    if (asks && predictor_->reads_logits) {
      instruments::timer const time(tools_, time_row::dense);
      ahead_weights const& ahead = ahead_[target];
      kernels::rms_norm(state_.data(), ahead.norm.data(), ahead_state_.data(), a_.hidden,
                        a_.epsilon);
      kernels::multiply(ahead.router.data(), ahead_state_.data(), ahead_logits_.data(), a_.experts,
                        a_.hidden);
      seen.logits = ahead_logits_;
    }
    predictor_->learn(seen);
    if (!asks) {
      return;
    }
    ++produced_;
    u32 const n = predictor_->predict(seen, static_cast<u32>(hints_.size()), hints_);
    named_.clear();
    for (u32 i = 0; i < n; ++i) {
      named_.push_back(hints_[i].expert);
    }
    if (tools_ != nullptr) {
      tools_->predicted(target, named_);
    }
    if (may) {
      named_.resize(std::min<std::size_t>(named_.size(), options_.width));
      (void)experts_.hint(target, named_, b.in_phase);
    }
  }

  model const& model_;
  architecture const& a_;
  device_options options_;
  instruments* tools_;
  expert_cache experts_;
  std::unique_ptr<any_predictor> predictor_;
  u32 position_ = 0;
  u64 produced_ = 0;
  std::vector<std::vector<float>> cache_keys_, cache_values_;  // by layer: [position][head][size]
  std::vector<float> state_, normed_;                          // [token][hidden]
  std::vector<float> cosines_, sines_;                         // [token][size / 2]
  std::vector<float> query_, mixed_, projected_;
  std::vector<float> router_logits_, ahead_state_, ahead_logits_;
  std::vector<ahead_weights> ahead_;  // by layer; empty where nobody reads logits ahead
  std::vector<u32> order_;
  std::vector<routed_id> ids_;  // [token][k]
  std::vector<float> weights_;  // [token][k]
  std::vector<float> outputs_;  // [token][k][hidden]
  std::vector<float> gate_, up_;
  std::vector<float> logits_, scores_;
  std::vector<float> input_scales_;  // by layer
  std::vector<i16> fixed_;           // the router's input of a token
  std::vector<i32> keys_;            // [experts]; empty without a head
  std::vector<u32> distinct_;
  std::vector<hint> hints_;
  std::vector<routed_id> named_;
};

}  // namespace

std::unique_ptr<device> make_cpu_device(model const& m, device_options const& options,
                                        instruments* tools) {
  return std::make_unique<cpu_device>(m, options, tools);
}

}  // namespace warmset_decode
