// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "load.hpp"
#include "play_hints.hpp"
#include "policy.hpp"
#include "warmset/trace/oracle.hpp"
#include "warmset/trace/working_set.hpp"

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
  u64 hints_offered = 0;
  u64 hints_issued = 0;
  u64 hints_used = 0;  ///< those joined in flight included
  u64 bytes_speculated = 0;

  u64 misses() const noexcept { return installs + declined + overflow_misses; }
  /// Nothing where none was issued: prefill uses what decode had issued.
  std::optional<double> hint_precision() const noexcept {
    return hints_issued == 0
               ? std::nullopt
               : std::optional(static_cast<double>(hints_used) / static_cast<double>(hints_issued));
  }
  /// Share of what demand did not find by itself that hints brought.
  double miss_coverage() const noexcept {
    u64 const all = hints_used + misses();
    return all == 0 ? 0.0 : static_cast<double>(hints_used) / static_cast<double>(all);
  }
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
  double latency_us = 0.0;  ///< of a transfer after its end on the link; on the virtual clock alone

  double stall_ms(counts const& c) const noexcept {
    return static_cast<double>(c.bytes_loaded) / (link_gbps * 1e6) +
           static_cast<double>(c.copies) * copy_us * 1e-3;
  }
  warmset::trace::link_numbers link() const noexcept {
    return {static_cast<u64>(link_gbps * 1e9), static_cast<u64>(latency_us * 1e3),
            static_cast<u64>(copy_us * 1e3), static_cast<u64>(compute_us * 1e3)};
  }
  double compute_ms(counts const& c) const noexcept {
    return static_cast<double>(c.layer_tokens) * compute_us * 1e-3;
  }
};

/// How hints were played, and what the virtual clock says.
struct hint_figures {
  std::string predictor;
  warmset::trace::speculation how;
  std::array<u64, warmset::n_phases> stall_ns{};
  warmset::gate::verdict judged;
  warmset::gate::governor governor;
};

/// One policy at one capacity, with or without hints.
struct outcome_row {
  chosen_policy policy;
  pool_size size;
  std::vector<std::array<counts, warmset::n_phases>> by_layer;
  stretches by_stretch{};            ///< all 0 for oracles
  std::vector<double> seconds = {};  ///< of each play's decisions; empty where they were not timed
  std::optional<hint_figures> hints = {};

  counts total(std::optional<warmset::phase> which) const;
  counts of_layer(std::size_t row, std::optional<warmset::phase> which) const;
  /// By the virtual clock where there were hints, else by the sums of the model.
  double stall_ms(time_model const& time, std::optional<warmset::phase> which) const;
};

/// The working set that capacities are compared with is of this many tokens.
inline constexpr u32 demand_tokens = 64;

/// Everything that one command found out.
struct report {
  loaded_trace const& trace;
  warmset::trace::selection played;
  std::string sequences;  ///< as the command line named them
  bool ascending = false;
  bool flat = false;  ///< one id per step
  time_model time;
  std::vector<std::optional<warmset::phase>> phases = {};  ///< reported; nothing = the sum
  std::array<u64, warmset::n_phases> tokens{};             ///< played
  json facts = {};                                         ///< of the whole trace
  warmset::trace::working_set demand = {};                 ///< of demand_tokens tokens
  std::vector<outcome_row> rows = {};
  std::vector<outcome_row> oracles = {};  ///< both at each capacity, where they were asked for
  std::vector<outcome_row> baselines =
      {};                      ///< lru at each capacity, where it is not among the rows
  json recommendation = {};    ///< null where none was asked for
  json cross_validation = {};  ///< how the trace was parted; null where it was not
  std::vector<std::string> warnings = {};

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
                   warmset::trace::selection const& which, chosen_predictor const& predictor,
                   warmset::trace::speculation const& how,
                   warmset::trace::speculative_report const& found);
outcome_row row_of(chosen_policy policy, pool_size size, loaded_trace const& trace,
                   warmset::trace::selection const& which,
                   warmset::trace::oracle_report const& found);

/// The numbers of the sequences that a recording has, ascending.
std::vector<u32> sequence_numbers(warmset::trace::recording const& recording);
/// Ascending numbers as `4-9` or `0, 2, 4-6`; of many parts the first ones and the last.
std::string list_numbers(std::vector<u32> const& numbers);

/// Facts of a trace as every report and `info` give them.
json describe_trace(loaded_trace const& trace);

/// For each capacity and phase the policy to take, by what `chosen_on` tells, with the figures of `figures`: the same
/// report, or one of other events. Each has a row of lru, or a baseline.
json recommend(report const& chosen_on, report const& figures);
/// One recommendation as a line of text.
std::string recommendation_text(json const& one);

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
