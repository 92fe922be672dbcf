// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "warmset/core/tuning.hpp"
#include "warmset/trace/decision_log.hpp"
#include "warmset/trace/replay.hpp"

namespace warmset_tools {

/// How the slots of a replay are shared among the layers.
enum class pool_kind { per_layer, shared };

/// How large a replayed cache is: slots per layer, or bytes for one pool of all layers.
struct pool_size {
  pool_kind pool = pool_kind::per_layer;
  warmset::u32 slots = 0;         ///< per layer; a shared pool has this many for each of its layers
  warmset::u64 budget_bytes = 0;  ///< where `slots` is 0: one byte-budgeted shared pool
};

/// One replay of one policy.
struct play_request {
  warmset::trace::recording const& recording;
  warmset::trace::selection which;
  pool_size size;
  warmset::tuning numbers;
  std::vector<warmset::u32>* log = nullptr;  ///< gets the words of a decision log
  std::string log_name = {};                 ///< the policy's name in it
};

/// A named bundle as the command line knows it.
struct policy {
  std::string name;
  std::vector<std::string> parameters;  ///< those that its decisions depend on
  warmset::tuning numbers;              ///< the bundle's own
  warmset::trace::replay_report (*play)(play_request const&);
};

/// Every bundle of the library's table, in its order.
std::vector<policy> const& policies();

/// A number of tuning by the name that the command line uses.
struct parameter {
  char const* name;
  warmset::u32 warmset::tuning::*member;
};
inline constexpr parameter parameters[] = {{"half_life", &warmset::tuning::half_life},
                                           {"epoch", &warmset::tuning::epoch}};

/// What `--policy` names: a bundle with numbers, or an oracle.
struct chosen_policy {
  enum class kind { bundle, belady, belady_bypass };
  std::string name;  ///< as reports spell it, parameters included where they were given
  kind what = kind::bundle;
  policy const* bundle = nullptr;
  warmset::tuning numbers{};

  bool is_oracle() const noexcept { return what != kind::bundle; }
};

/// Policies by name: `all`, or names separated by commas, each with `:parameter=number`. Throws usage_error where
/// a name, a parameter or a number is not known or possible.
std::vector<chosen_policy> choose_policies(std::string_view text);

}  // namespace warmset_tools
