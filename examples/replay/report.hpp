// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "load.hpp"
#include "policy.hpp"
#include "warmset/trace/oracle.hpp"

namespace warmset_tools {

using warmset::u32;
using warmset::u64;
using json = nlohmann::ordered_json;

/// What was counted of one layer, or of several, in one phase or in both. Unit: experts, one per distinct id of an
/// event, unless the name says otherwise.
struct counts {
  u64 demand_accesses = 0;
  u64 hits = 0;  ///< resident at the start of a step that fits its pool
  u64 late = 0;
  u64 installs = 0;
  u64 declined = 0;
  u64 overflow_hits = 0;
  u64 overflow_misses = 0;
  u64 steps = 0;  ///< overflow steps not included
  u64 overflow_steps = 0;
  u64 evictions = 0;
  u64 wasted = 0;
  u64 bytes_loaded = 0;
  u64 copies = 0;        ///< bank slabs
  u64 layer_tokens = 0;  ///< (layer, token) pairs

  u64 misses() const noexcept { return installs + declined + overflow_misses; }
  double hit_rate() const noexcept {
    return demand_accesses == 0
               ? 0.0
               : static_cast<double>(hits + overflow_hits) / static_cast<double>(demand_accesses);
  }
  counts& operator+=(counts const& o) noexcept;
};

/// Time of a transfer and of the work beside it.
struct time_model {
  double link_gbps = 25.0;    ///< 10^9 bytes per second
  double copy_us = 5.0;       ///< fixed cost of each copy of one bank of one expert
  double compute_us = 100.0;  ///< work of one layer for one token

  double stall_ms(counts const& c) const noexcept {
    return static_cast<double>(c.bytes_loaded) / (link_gbps * 1e6) +
           static_cast<double>(c.copies) * copy_us * 1e-3;
  }
  double compute_ms(counts const& c) const noexcept {
    return static_cast<double>(c.layer_tokens) * compute_us * 1e-3;
  }
};

/// One policy at one capacity.
struct outcome_row {
  chosen_policy policy;
  pool_size size;
  std::vector<std::array<counts, warmset::n_phases>> by_layer;

  counts total(std::optional<warmset::phase> which) const;
  counts of_layer(std::size_t row, std::optional<warmset::phase> which) const;
};

/// Everything that one command found out.
struct report {
  loaded_trace const& trace;
  warmset::trace::selection played;
  std::string sequences;  ///< as the command line named them
  bool ascending = false;
  time_model time;
  std::vector<std::optional<warmset::phase>> phases;  ///< reported; nothing = the sum
  std::array<u64, warmset::n_phases> tokens{};        ///< played
  std::vector<outcome_row> rows;
  std::vector<outcome_row>
      oracles;  ///< both, for each capacity; empty where they were not asked for
  std::vector<std::string> warnings;

  u64 tokens_of(std::optional<warmset::phase> which) const;
  /// The oracle at the same capacity, or null.
  outcome_row const* oracle(chosen_policy::kind what, pool_size const& size) const;
};

char const* phase_name(std::optional<warmset::phase> p);
/// `8`, or the budget in MiB.
std::string size_name(pool_size const& size);
bool same_size(pool_size const& a, pool_size const& b);

/// The rows as counts, from what the library found.
outcome_row row_of(chosen_policy policy, pool_size size, loaded_trace const& trace,
                   warmset::trace::selection const& which,
                   warmset::trace::replay_report const& found);
outcome_row row_of(chosen_policy policy, pool_size size, loaded_trace const& trace,
                   warmset::trace::selection const& which,
                   warmset::trace::oracle_report const& found);

/// Facts of a trace as every report and `info` give them.
json describe_trace(loaded_trace const& trace);

/// What a person should know before comparing figures, one line each, with a short name in front.
std::vector<std::string> find_warnings(report const& r);

json to_json(report const& r);
std::string to_csv(report const& r);
std::string to_table(report const& r);
/// Policies down, capacities across, and the best at each.
std::string to_matrix(report const& r);
/// The best policy at each capacity for a phase, with the runner-up; oracles do not compete.
json best_by_capacity(report const& r);

}  // namespace warmset_tools
