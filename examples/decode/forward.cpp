// SPDX-License-Identifier: Apache-2.0
#include "forward.hpp"

#include <algorithm>
#include <cmath>

#include "predictor.hpp"

namespace warmset_decode {

using namespace warmset;

step_page lay_out_page(architecture const& a, u32 n_hints, arena& to) {
  step_page p;
  p.now = to.take<step_now>(1);
  p.hints = to.take<i32>(u64{a.layers} * n_hints);
  p.told.counters = to.take<outcome>(a.layers);
  p.told.ids = to.take<i32>(u64{a.layers} * a.k);
  p.told.weights = to.take<float>(u64{a.layers} * a.k);
  p.told.hints = to.take<i32>(u64{a.layers} * n_hints);
  p.told.n_loads = to.take<u32>(a.layers);
  p.told.n_copies = to.take<u32>(a.layers);
  p.told.loads = to.take<cuda::fetch_order>(u64{a.layers} * a.k);
  p.told.copies = to.take<cuda::fetch_order>(u64{a.layers} * n_hints);
  p.told.faults = to.take<u32>(a.layers);
  return p;
}

step_shape shape_of(device_options const& options, u32 wanted_hints, architecture const& a) {
  step_shape s;
  if (options.width == 0 || options.predictor == "none") {
    return s;
  }
  std::unique_ptr<any_predictor> const by = make_predictor(options.predictor);
  if (!by) {
    throw config_error("there is no predictor '", options.predictor.c_str(), "'");
  }
  s.width = std::min(options.width, a.experts);
  s.n_hints = std::min(std::max(options.width, wanted_hints), a.experts);
  s.said_by_host = !by->reads_logits;
  return s;
}

dense_part::dense_part(model const& m) : model_(m) {
  architecture const& a = m.numbers;
  u32 const half = a.head_size / 2;
  cosines_.resize(u64{a.context} * half);
  sines_.resize(cosines_.size());
  for (u32 t = 0; t < a.context; ++t) {
    for (u32 i = 0; i < half; ++i) {
      double const angle =
          static_cast<double>(t) * std::pow(double{a.rope_base}, -2.0 * i / a.head_size);
      cosines_[u64{t} * half + i] = static_cast<float>(std::cos(angle));
      sines_[u64{t} * half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

step_memory dense_part::lay_out(step_shape const& shape, arena& to,
                                std::vector<weights_to_copy>& copies) const {
  architecture const& a = model_.numbers;
  u64 const queries = u64{a.heads} * a.head_size;
  u64 const keys = u64{a.kv_heads} * a.head_size;
  auto const floats = [&](float const* from, u64 n) {
    float const* const at = to.take<float>(n);
    copies.push_back({from, at, n});
    return at;
  };
  auto const weights = [&](std::vector<float> const& from) {
    return floats(from.data(), from.size());
  };
  step_memory s;
  s.embedding = weights(model_.embedding);
  s.output_norm = weights(model_.output_norm);
  s.output = model_.output.empty() ? s.embedding : weights(model_.output);
  s.cosines = weights(cosines_);
  s.sines = weights(sines_);
  s.now = to.take<step_now>(1);
  s.state = to.take<float>(a.hidden);
  s.normed = to.take<float>(a.hidden);
  s.queries = to.take<float>(queries);
  s.scores = to.take<float>(u64{a.heads} * a.context);
  s.mixed = to.take<float>(queries);
  s.router_logits = to.take<float>(a.experts);
  s.gated = to.take<float>(u64{a.k} * a.expert_ff);
  s.outputs = to.take<float>(u64{a.k} * a.hidden);
  s.logits = to.take<float>(a.vocabulary);
  s.facts = to.take<ops::layer_facts>(a.layers);
  i32* const hints = to.take<i32>(u64{a.layers} * shape.n_hints);
  for (u32 l = 0; l < a.layers; ++l) {
    model::layer const& from = model_.layers[l];
    layer_memory w;
    w.attention_norm = weights(from.attention_norm);
    w.query = weights(from.query);
    w.key = weights(from.key);
    w.value = weights(from.value);
    w.query_norm = weights(from.query_norm);
    w.key_norm = weights(from.key_norm);
    w.output = weights(from.output);
    w.expert_norm = weights(from.expert_norm);
    w.router = weights(from.router);
    w.ahead_norm = weights(from.expert_norm);
    w.ahead_router = weights(from.router);
    w.keys = to.take<float>(a.context * keys);
    w.values = to.take<float>(a.context * keys);
    w.attended = to.take<float>(a.hidden);
    w.ahead_state = to.take<float>(a.hidden);
    w.ahead_logits = to.take<float>(a.experts);
    w.ids = to.take<i32>(a.k);
    w.weights = to.take<float>(a.k);
    w.answers = to.take<i32>(a.k);
    w.hints = hints == nullptr ? nullptr : hints + u64{l} * shape.n_hints;
    s.layers.push_back(w);
  }
  return s;
}

step_pools::step_pools(model const& m, device_options const& options) : geometry(m.geometry()) {
  u32 const n = options.slots == 0 ? m.numbers.experts : std::min(options.slots, m.numbers.experts);
  u32 const k = m.numbers.k;
  if (n < k) {
    throw config_error("a graph serves a token's ", k, " experts at once: ", n,
                       " slots per layer are too few");
  }
  tuning numbers = decode_policy::numbers;
  numbers.speculative_slots = std::clamp(options.width, 1u, n);
  numbers.scratch_slots = k;
  auto const groups = geometry.groups();
  for (u32 l = 0; l < m.numbers.layers; ++l) {
    layer_geometry const& layer = geometry.layers()[l];
    u32 group = 0;
    while (std::find(groups[group].layers.begin(), groups[group].layers.end(), layer.layer) ==
           groups[group].layers.end()) {
      ++group;
    }
    sites.push_back({l, group, 0, n, 0, k, {layer.layer}});
    tables.emplace_back(std::vector<layer_geometry>{layer}, pool_size{n, n}, numbers);
  }
  std::vector<u32> used(groups.size(), 0);
  for (pool_site& site : sites) {
    site.first_slot = used[site.group];
    used[site.group] += n;
  }
  for (pool_site& site : sites) {
    site.first_scratch = used[site.group];
  }
}

}  // namespace warmset_decode
