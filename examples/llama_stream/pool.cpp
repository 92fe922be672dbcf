// SPDX-License-Identifier: Apache-2.0
#include "pool.hpp"

#include <fmt/format.h>

#include <warmset/table/bundles.hpp>

#include "../common/usage_error.hpp"

namespace warmset_llama {

namespace {

template <class Bundle>
class pool_of final : public expert_pool {
 public:
  pool_of(warmset::geometry const& model, u32 slots)
      : cache_(model, warmset::budget::of_slots(slots)) {}

  warmset::step_view step(warmset::layer_id layer, std::span<warmset::routed_id const> ids,
                          warmset::step_facts const& facts) noexcept override {
    return cache_.step(layer, ids, facts);
  }
  void arrived(warmset::layer_id layer, u32 slot) noexcept override {
    u32 pool = 0;
    u32 row = 0;
    (void)cache_.find(layer, pool, row);
    (void)cache_.backend().arrived(pool, {slot});
  }
  warmset::total_counters total(warmset::phase p) noexcept override {
    cache_.settle();
    return cache_.observer().total(p);
  }
  bool is_sound() const override { return static_cast<bool>(cache_.audit()); }

 private:
  warmset::cache<Bundle, warmset::move::external> cache_;
};

/// No trace and no engine here tells a score what it wants to be supplied with.
template <class Bundle>
consteval bool is_playable() {
  if constexpr (warmset::contextual_score<typename Bundle::score>) {
    return !Bundle::score::uses_supplied;
  } else {
    return true;
  }
}

template <class F>
void for_each_policy(F&& f) {
  warmset::bundles::for_each(warmset::bundles::all{}, [&]<class Bundle>() {
    if constexpr (is_playable<Bundle>()) {
      f.template operator()<Bundle>();
    }
  });
}

}  // namespace

std::vector<std::string> pool_policies() {
  std::vector<std::string> names;
  for_each_policy([&]<class Bundle>() { names.emplace_back(Bundle::name); });
  return names;
}

std::unique_ptr<expert_pool> make_pool(std::string const& policy, warmset::geometry const& model,
                                       u32 slots) {
  std::unique_ptr<expert_pool> made;
  for_each_policy([&]<class Bundle>() {
    if (policy == Bundle::name) {
      made = std::make_unique<pool_of<Bundle>>(model, slots);
    }
  });
  if (!made) {
    throw warmset_tools::usage_error(fmt::format("--policy: there is no '{}'; there are {}", policy,
                                                 fmt::join(pool_policies(), ", ")));
  }
  return made;
}

}  // namespace warmset_llama
