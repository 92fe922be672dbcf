// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <warmset/observe/counters.hpp>
#include <warmset/cache.hpp>

namespace warmset_llama {

using warmset::u32;
using warmset::u64;

/// The decisions of a Warmset cache with N slots for every layer, whatever its policy. It moves nothing.
class expert_pool {
 public:
  virtual ~expert_pool() = default;

  /// Decides and commits one step; the spans of the view live until the next one. An overflow commits nothing.
  virtual warmset::step_view step(warmset::layer_id layer, std::span<warmset::routed_id const> ids,
                                  warmset::step_facts const& facts) noexcept = 0;
  /// All banks of the expert that a step loads into this slot are in place.
  virtual void arrived(warmset::layer_id layer, u32 slot) noexcept = 0;
  virtual warmset::total_counters total(warmset::phase p) noexcept = 0;
  /// Whether every invariant of the tables holds.
  virtual bool is_sound() const = 0;
};

/// The names that `make_pool` knows: the library's bundles that need nothing but routed ids.
std::vector<std::string> pool_policies();

/// A pool with this policy. Throws usage_error where there is none of the name, and config_error where it cannot work.
std::unique_ptr<expert_pool> make_pool(std::string const& policy, warmset::geometry const& model,
                                       u32 slots);

}  // namespace warmset_llama
