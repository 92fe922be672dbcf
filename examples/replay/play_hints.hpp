// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "policy.hpp"
#include "predictor.hpp"
#include "warmset/trace/speculative_replay.hpp"

namespace warmset_tools {

/// How the predictors of a command speculate.
struct hint_options {
  std::optional<std::string> predictors;  ///< names, as the command line gives them; none = no hints
  std::optional<std::string> width;       ///< hints per step; none = the largest k
  std::string governor = "on";
  std::string budgets_mib;  ///< most MiB that the hints of one step start to move, or several with
                            ///< commas between; empty = no bound
};

/// Throws usage_error where hints cannot be played with a policy, or with this pool.
void check_hints(std::vector<chosen_policy> const& chosen, pool_size const& size);

/// Plays one policy with one predictor in the link model. `numbers` of the request are the policy's own.
warmset::trace::speculative_report play_hints(chosen_policy const& policy,
                                              play_request const& request,
                                              chosen_predictor const& predictor,
                                              warmset::trace::speculation const& how,
                                              warmset::trace::link_numbers const& link);

}  // namespace warmset_tools
