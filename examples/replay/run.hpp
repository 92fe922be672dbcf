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

/// A selection by `--sequences` and `--play`. Throws usage_error.
warmset::trace::selection choose_played(std::string const& sequences, std::string const& play);

/// The phases to report: both that are present where `wanted` is empty. Throws usage_error where the selection has
/// none of the wanted.
std::vector<std::optional<warmset::phase>> choose_phases(std::string const& wanted,
                                                         std::array<u64, warmset::n_phases> tokens);

/// How much there is to do and how it is done.
struct run_options {
  unsigned jobs = 0;      ///< threads; 0 = one per processor
  bool oracles = true;    ///< whether distances to the oracles are computed
  bool progress = false;  ///< a bar on stderr
};

/// Plays every policy at every capacity and fills in the report's rows, oracles and warnings. `log` gets the decision
/// log of the only policy where it is not null.
void run(report& r, std::vector<chosen_policy> const& chosen, std::vector<pool_size> const& sizes,
         run_options const& options, std::vector<u32>* log = nullptr);

}  // namespace warmset_tools
