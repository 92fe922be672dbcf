// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cstring>

#include <fmt/format.h>

#include "report.hpp"
#include "warmset/core/presets.hpp"
#include "warmset/trace/capacity_advice.hpp"

namespace warmset_tools {

using warmset::layer_geometry;

namespace {

std::string lower(std::string text) {
  for (char& c : text) {
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

/// The published model whose name is part of a recording's, the longest of several; or null.
warmset::presets::model const* published(std::string const& name) {
  warmset::presets::model const* found = nullptr;
  for (warmset::presets::model const& m : warmset::presets::models) {
    if (name.find(m.name) != std::string::npos &&
        (found == nullptr || std::strlen(m.name) > std::strlen(found->name))) {
      found = &m;
    }
  }
  return found;
}

void add_once(std::vector<std::string>& to, std::string text) {
  if (std::find(to.begin(), to.end(), text) == to.end()) {
    to.push_back(std::move(text));
  }
}

/// Pools that evicted nothing, where that is not because they hold everything.
std::optional<std::string> never_full(report const& r, outcome_row const& row) {
  warmset::geometry const& model = r.trace.recording.geometry();
  u32 least_experts = warmset::u32_max;
  for (layer_geometry const& layer : model.layers()) {
    least_experts = std::min(least_experts, layer.n_experts);
  }
  bool const holds_all = row.size.slots != 0 ? row.size.slots >= least_experts
                                             : row.size.budget_bytes >= model.total_bytes();
  if (holds_all) {
    return std::nullopt;
  }
  u64 unfilled = 0;
  std::vector<counts> of_pool;  // a shared pool is full or not as a whole
  for (std::size_t i = 0; i < row.by_layer.size(); ++i) {
    counts const c = row.of_layer(i, std::nullopt);
    if (row.size.pool == pool_kind::per_layer || of_pool.empty()) {
      of_pool.push_back(c);
    } else {
      of_pool.front() += c;
    }
  }
  for (counts const& c : of_pool) {
    unfilled += c.evictions == 0 && c.demand_accesses != 0 ? 1 : 0;
  }
  if (unfilled == 0) {
    return std::nullopt;
  }
  return fmt::format(
      "never-full: at {} {} of {} pools evict nothing in this trace; it is too short to "
      "tell policies apart",
      row.size.slots != 0 ? size_name(row.size) + " slots per layer" : size_name(row.size),
      unfilled, of_pool.size());
}

}  // namespace

std::vector<std::string> find_warnings(report const& r) {
  std::vector<std::string> found;
  warmset::trace::recording const& recording = r.trace.recording;
  std::vector<layer_geometry> const& layers = recording.geometry().layers();
  u32 k = 0;
  for (layer_geometry const& layer : layers) {
    k = std::max(k, layer.k);
  }
  if (auto const* const m = published(lower(recording.model())); m != nullptr && m->k != k) {
    found.push_back(fmt::format("top-k-overridden: the trace was recorded with k = {}, {} "
                                "routes to {}; figures are of the former",
                                k, recording.model(), m->k));
  }
  if (recording.expert_bytes_assumed()) {
    found.push_back(fmt::format("bytes-assumed: the trace has no bytes per expert; {} are assumed",
                                layers.front().expert_bytes()));
  }
  for (outcome_row const& row : r.rows) {
    warmset::trace::policy_traits const traits =
        row.policy.bundle != nullptr ? row.policy.bundle->traits : warmset::trace::policy_traits{};
    for (warmset::trace::advice const& a : warmset::trace::capacity_advice(
             recording.geometry(), capacity_of(row.size, layers.size()), traits, {}, r.demand)) {
      add_once(found, fmt::format("{}: {}", name_of(a.kind), a.text.c_str()));
    }
  }
  std::vector<pool_size> seen;
  for (outcome_row const& row : r.rows) {
    if (std::none_of(seen.begin(), seen.end(),
                     [&](pool_size const& s) { return same_size(s, row.size); })) {
      seen.push_back(row.size);
      if (std::optional<std::string> text = never_full(r, row)) {
        found.push_back(std::move(*text));
      }
    }
  }
  return found;
}

}  // namespace warmset_tools
