// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "report.hpp"

namespace warmset_tools {

/// Capacities as the command line gives them.
struct size_options {
  std::string slots;       ///< `N` or `P%`, or several with commas between
  std::string budget_mib;  ///< a number, or several with commas between
  std::string pool = "per-layer";
};

/// The capacities that the options mean for this model. Throws usage_error where one cannot work.
std::vector<pool_size> choose_sizes(size_options const& options, warmset::geometry const& model);

/// The bytes of `--hint-budget-mib`, each once; u64_max alone where it is empty. Throws usage_error.
std::vector<u64> choose_hint_budgets(std::string const& mib);

/// A selection by `--sequences` and `--play`. Throws usage_error, also where it has nothing of the recording.
warmset::trace::selection choose_played(warmset::trace::recording const& recording,
                                        std::string const& sequences, std::string const& play);

/// The phases to report: both that are present where `wanted` is empty. Throws usage_error where the selection has
/// none of the wanted.
std::vector<std::optional<warmset::phase>> choose_phases(std::string const& wanted,
                                                         std::array<u64, warmset::n_phases> tokens);

/// How much there is to do and how it is done.
struct run_options {
  unsigned jobs = 0;       ///< threads; 0 = one per processor
  bool oracles = true;     ///< whether distances to the oracles are computed
  bool progress = false;   ///< a bar on stderr
  bool recommend = false;  ///< whether rows are prepared for `recommend`
  unsigned repeat = 0;     ///< plays that are timed, one policy at a time; 0 = one, not timed
};

/// Plays every policy with every predictor in each way, in the link model, and adds a row for each to the report.
void run_hints(report& r, std::vector<chosen_policy> const& chosen, pool_size const& size,
               std::vector<chosen_predictor> const& predictors,
               std::vector<warmset::trace::speculation> const& ways, unsigned jobs);

/// Plays every policy at every capacity and fills in the report's rows, oracles, baselines and warnings. `log` gets the decision
/// log of the only policy where it is not null.
void run(report& r, std::vector<chosen_policy> const& chosen, std::vector<pool_size> const& sizes,
         run_options const& options, std::vector<u32>* log = nullptr);

}  // namespace warmset_tools
