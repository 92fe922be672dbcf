// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "warmset/core/tuning.hpp"
#include "warmset/trace/capacity_advice.hpp"
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

/// The same as the library says it.
warmset::trace::capacity capacity_of(pool_size const& size, std::size_t n_layers);

/// What one of the consecutive parts of a replay came to: one phase is cut into this many, of equally many steps.
inline constexpr std::size_t n_stretches = 16;
struct stretch {
  warmset::u64 hits = 0;
  warmset::u64 lookups = 0;
  bool operator==(stretch const&) const = default;
};
using stretches = std::array<std::array<stretch, n_stretches>, warmset::n_phases>;

/// One replay of one policy.
struct play_request {
  warmset::trace::recording const& recording;
  warmset::trace::selection which;
  pool_size size;
  warmset::tuning numbers;
  std::vector<warmset::u32>* log = nullptr;             ///< gets the words of a decision log
  std::string log_name = {};                            ///< the policy's name in it
  std::array<warmset::u64, warmset::n_phases> steps{};  ///< that will be played, by phase
  stretches* by_stretch = nullptr;                      ///< gets the hits of each stretch
  unsigned repeat = 1;                                  ///< plays, each from a cold cache
  std::vector<double>* seconds = nullptr;               ///< gets the time of each play's decisions
};

/// A named bundle as the command line knows it.
struct policy {
  std::string name;
  std::vector<std::string> parameters;  ///< those that its decisions depend on
  warmset::tuning numbers;              ///< the bundle's own
  warmset::trace::policy_traits traits;
  std::size_t state_bytes;  ///< what score and selector keep per expert and slot
  bool admits_some = false;   ///< its admission may decline: not among `all`
  bool needs_slots = false;   ///< and depends on slots being taken, which a pool of bytes knows nothing of
  warmset::trace::replay_report (*play)(play_request const&);
};

/// Every bundle of the library's tables, in their order: those of `all`, then those with an admission.
std::vector<policy> const& policies();

/// A number of tuning by the name that the command line uses.
struct parameter {
  char const* name;
  warmset::u32 warmset::tuning::*word;
  warmset::u64 warmset::tuning::*bytes = nullptr;  ///< where it is not null, it stands for `word`

  warmset::u64 of(warmset::tuning const& numbers) const {
    return bytes != nullptr ? numbers.*bytes : numbers.*word;
  }
  warmset::u64 largest() const { return bytes != nullptr ? warmset::u64_max : warmset::u32_max; }
  /// `value` is at most `largest()`.
  void set(warmset::tuning& numbers, warmset::u64 value) const {
    if (bytes != nullptr) {
      numbers.*bytes = value;
    } else {
      numbers.*word = static_cast<warmset::u32>(value);
    }
  }
};
inline constexpr parameter parameters[] = {{"half_life", &warmset::tuning::half_life},
                                           {"epoch", &warmset::tuning::epoch},
                                           {"sequences", &warmset::tuning::sequences},
                                           {"insert_bytes", nullptr, &warmset::tuning::insert_bytes},
                                           {"fetch_share", &warmset::tuning::fetch_share}};

/// What `--policy` names: a bundle with numbers, or an oracle.
struct chosen_policy {
  enum class kind { bundle, belady, belady_bypass };
  std::string name;  ///< as reports spell it, parameters included where they were given
  kind what = kind::bundle;
  policy const* bundle = nullptr;
  warmset::tuning numbers{};

  bool is_oracle() const noexcept { return what != kind::bundle; }
};

/// Throws usage_error where a chosen policy cannot be played in a pool of this kind.
void check_pool(std::vector<chosen_policy> const& chosen, pool_size const& size);

/// Policies by name: `all`, or names separated by commas, each with `:parameter=number`. Throws usage_error where
/// a name, a parameter or a number is not known or possible.
std::vector<chosen_policy> choose_policies(std::string_view text);

}  // namespace warmset_tools
