// SPDX-License-Identifier: Apache-2.0
#include "streamer.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include <warmset/trace/replay.hpp>

namespace warmset_llama {

namespace {

/// Bytes behind the last slot: kernels may read a little beyond an expert.
constexpr u64 tail_bytes = 512;

}  // namespace

gate_finder::gate_finder(std::vector<expert_layer> const& layers)
    : layers_(layers), ids_(layers.size()) {
  for (u32 row = 0; row < layers.size(); ++row) {
    expert_layer const& l = layers[row];
    if (!l.obstacle.empty()) {
      throw engine_error(fmt::format("layer {} cannot be served from slots: {}", l.layer, l.obstacle));
    }
    roles_.emplace(l.gate, role{row, true});
    roles_.emplace(l.ids, role{row, false});
    for (bank const& b : l.banks) {
      row_of_weights_.emplace(b.weights, row);
    }
  }
  if (roles_.size() != 2 * layers.size()) {
    throw engine_error("two layers have nodes of the same name");
  }
  name_.reserve(GGML_MAX_NAME);
}

bool gate_finder::wants(ggml_tensor* node) noexcept {
  if (node->op == GGML_OP_MUL_MAT_ID) {
    auto const at = row_of_weights_.find(node->src[0]);
    if (at != row_of_weights_.end()) {
      on_product(at->second);
    }
    return false;
  }
  name_ = ggml_get_name(node);
  auto const at = roles_.find(name_);
  if (at == roles_.end()) {
    return false;
  }
  if (!at->second.is_gate) {
    ids_[at->second.row] = node;
  }
  return at->second.is_gate;
}

u32 gate_finder::row_of_gate(ggml_tensor const* node) const noexcept {
  auto const at = roles_.find(ggml_get_name(node));
  return at == roles_.end() || !at->second.is_gate ? none : at->second.row;
}

streamer::streamer(std::vector<expert_layer> const& layers, std::string const& policy, u32 slots)
    : gate_finder(layers), slots_(slots),
      pool_(make_pool(policy, geometry_of(layers), slots)), memory_(layers.size()),
      is_served_(layers.size()) {
  u32 most_experts = 0;
  for (u32 row = 0; row < layers.size(); ++row) {
    most_experts = std::max(most_experts, layers[row].n_experts);
    for (bank const& b : layers[row].banks) {
      u64 const bytes = std::min(slots, layers[row].n_experts) * b.stride;
      memory_[row].emplace_back(
          static_cast<std::byte*>(::operator new(bytes + tail_bytes, std::align_val_t{64})));
      std::memset(memory_[row].back().get() + bytes, 0, tail_bytes);
      pool_bytes_ += bytes;
    }
  }
  slot_of_.resize(most_experts);
}

streamer::~streamer() {
  for (u32 row = 0; row < layers_.size(); ++row) {
    point_at_source(row);
  }
}

void streamer::point_at_source(u32 row) noexcept {
  for (bank const& b : layers_[row].banks) {
    b.weights->data = b.source;
  }
}

void streamer::begin(pass const& p) {
  pass_ = p;
  unserved_ = none;
  is_served_.assign(layers_.size(), false);
  ids_.assign(layers_.size(), nullptr);
}

void streamer::on_product(u32 row) noexcept {
  if (!is_served_[row]) {
    // a graph of another shape: its ids are experts, not slots
    point_at_source(row);
    unserved_ = row;
  }
}

void streamer::end() const {
  if (unserved_ != none) {
    throw engine_error(fmt::format(
        "layer {} at position {}: its products ran without the node '{}' before them",
        layers_[unserved_].layer, pass_.position, layers_[unserved_].gate));
  }
}

void streamer::reached(ggml_tensor* gate) {
  u32 const row = row_of_gate(gate);
  ggml_tensor* const ids = row == none ? nullptr : ids_[row];
  if (ids == nullptr) {
    return;  // on_product finds that nothing was served
  }
  expert_layer const& l = layers_[row];
  if (ids->type != GGML_TYPE_I32 || ids->ne[0] != l.k || ids->data == nullptr) {
    throw engine_error(fmt::format("layer {}: '{}' does not hold the ids of {} experts", l.layer,
                                   l.ids, l.k));
  }
  auto const id_at = [&](std::int64_t token, std::int64_t rank) -> std::int32_t& {
    return *reinterpret_cast<std::int32_t*>(static_cast<std::byte*>(ids->data) +
                                            static_cast<u64>(token) * ids->nb[1] +
                                            static_cast<u64>(rank) * ids->nb[0]);
  };
  routed_.clear();
  for (std::int64_t token = 0; token < ids->ne[1]; ++token) {
    for (std::int64_t rank = 0; rank < ids->ne[0]; ++rank) {
      std::int32_t const id = id_at(token, rank);
      if (id < 0 || static_cast<u32>(id) >= l.n_experts) {
        throw engine_error(fmt::format("layer {}: expert {} of {}", l.layer, id, l.n_experts));
      }
      routed_.push_back(id);
    }
  }
  is_served_[row] = true;
  if (routed_.empty()) {
    return;  // products over no token
  }
  warmset::trace::event at{};
  at.tokens = pass_.tokens.last(static_cast<std::size_t>(ids->ne[1]));
  warmset::step_view const step =
      pool_->step(warmset::layer_id{l.layer}, routed_,
                  {pass_.phase, pass_.sequence, warmset::trace::detail::token_of(at), {}});
  if (step.kind != warmset::plan_kind::step) {
    point_at_source(row);
    ++overflowed_;
    return;
  }
  for (warmset::planned_load const& load : step.loads) {
    for (std::size_t i = 0; i < l.banks.size(); ++i) {
      bank const& b = l.banks[i];
      std::memcpy(memory_[row][i].get() + load.slot * b.stride,
                  static_cast<std::byte const*>(b.source) + load.expert * b.stride, b.stride);
      bytes_copied_ += b.stride;
    }
    pool_->arrived(warmset::layer_id{l.layer}, load.slot);
  }
  for (std::size_t i = 0; i < step.experts.size(); ++i) {
    slot_of_[step.experts[i]] = step.slots[i];
  }
  for (std::int64_t token = 0; token < ids->ne[1]; ++token) {
    for (std::int64_t rank = 0; rank < ids->ne[0]; ++rank) {
      std::int32_t& id = id_at(token, rank);
      id = static_cast<std::int32_t>(slot_of_[static_cast<u32>(id)]);
    }
  }
  for (std::size_t i = 0; i < l.banks.size(); ++i) {
    l.banks[i].weights->data = memory_[row][i].get();
  }
  ++served_;
}

}  // namespace warmset_llama
