// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <catch2/catch_test_macros.hpp>

#include <functional>
#include <string>
#include <utility>

#include <kit/lockstep.hpp>
#include <warmset/table/bundles.hpp>

#include "support/sanitizers.hpp"

#include "guard_invariants.hpp"

/// The property test over one share of the named bundles: each bare, over a shared pool, and with hints
/// under every guard that its score admits. The shares together are `bundles::all`, whatever it holds.
namespace warmset::model_test {

inline constexpr std::size_t n_shares = 7;

/// Pools of 1, 2, 3, k, 8, 42 and n_experts slots; spare reservation, few scratch slots and clocks that are
/// about to wrap come with some of them.
inline std::vector<kit::table_config> configurations(bool shared, bool hints, bool reserve) {
  constexpr u32 near_wrap = u32_max - 300;
  constexpr u32 near_rebase = (1u << 30) - 100;
  std::vector<kit::table_config> list;
  auto const add = [&](u32 rows, u32 experts, u32 slots, u32 room, u32 speculative, u32 scratch, u32 first) {
    if (reserve && std::max(speculative, 1u) >= slots) {
      return;
    }
    tuning numbers{};
    numbers.speculative_slots = hints ? speculative : 0;
    numbers.scratch_slots = scratch;
    numbers.sequences = 1 + experts % 3;  // contextual scores are told whose turn it is
    numbers.floor = shared ? 1 + (slots > 20 ? 1 : 0) : 0;
    list.push_back({rows, experts, std::min(experts, 4u), slots + room, slots, numbers, first});
  };
  if (shared) {
    add(2, 9, 2, 0, 1, 2, 0);
    add(3, 7, 3, 1, 1, 0, near_wrap);
    add(3, 9, 4, 0, 2, 1, 0);
    add(2, 16, 8, 2, 3, 3, near_rebase);
    add(4, 20, 42, 2, 4, 0, 0);
    add(2, 21, 42, 0, 1, 2, 0);
  } else {
    add(1, 7, 1, 1, 0, 1, 0);
    add(1, 7, 2, 0, 1, 2, near_wrap);
    add(1, 9, 3, 1, 2, 0, 0);
    add(1, 12, 4, 0, 1, 3, near_rebase);
    add(1, 24, 8, 2, 3, 0, 0);
    add(1, 60, 42, 1, 5, 2, 0);
    add(1, 44, 44, 0, 2, 0, near_wrap);
  }
  return list;
}

/// What a bundle cannot show is not asked of it.
inline void require_exercised(kit::exercise const& e, kit::scalar_policy const& policy) {
  CHECK(e.demands != 0);
  CHECK(e.overflows != 0);
  CHECK(e.evictions != 0);
  CHECK(e.late != 0);
  CHECK(e.declined != 0);
  CHECK(e.failures != 0);
  CHECK(e.drained != 0);
  CHECK(e.stale != 0);
  CHECK(e.busy != 0);
  if (policy.speculates) {
    CHECK(e.hints != 0);
    CHECK(e.first_uses != 0);
    CHECK(e.consultations != 0);
    CHECK((e.trims != 0) == policy.keeps_reserve);
    CHECK((e.refusals != 0) == !policy.guard_is_none);
  }
}

/// A named bundle has all operations in its bare run over one layer; where a sanitizer watches, each variant of it has fewer again.
inline u64 operations_of_a_variant() {
  return kit::model_operations() / (WARMSET_TEST_ASAN || WARMSET_TEST_TSAN ? 8 : 1);
}

/// Runs `operations` over all configurations of one table type; `adapt` may change each.
template <class Bundle, bool EveryIdType = false>
void check_table(std::string const& name, bool guard_is_none = false,
                 std::function<void(kit::table_config&)> const& adapt = {},
                 u64 operations = kit::model_operations()) {
  using under_test = kit::with_probe<Bundle>;
  kit::exercise seen;
  auto list = configurations(Bundle::pool::spans_layers, speculates<Bundle>, keeps_reserve<Bundle>);
  for (kit::table_config& config : list) {
    if (adapt) {
      adapt(config);
    }
  }
  u64 const share = (operations + list.size() - 1) / list.size();
  std::shared_ptr<kit::scalar_policy> policy;
  u64 seed = 0;
  for (kit::table_config const& config : list) {
    auto const make = [&] {
      auto made = std::make_unique<kit::table_under_test_of<under_test, EveryIdType>>(config);
      made->shared_policy()->guard_is_none = guard_is_none;
      return made;
    };
    policy = make()->shared_policy();
    for (u64 so_far = 0; so_far < share;) {
      u32 const n = static_cast<u32>(std::min<u64>(share - so_far, 1500));
      kit::generator random(config, speculates<Bundle>, ++seed * 0x1'0000'0001ull + config.capacity);
      std::string const wrong = kit::run_and_shrink(make, config, random.sequence(n), &seen);
      if (!wrong.empty()) {
        FAIL(name << ": " << wrong);
      }
      so_far += n;
    }
  }
  INFO(name);
  if (operations >= 20'000) {
    require_exercised(seen, *policy);
  }
  CHECK(seen.operations >= operations);
}

template <class Bundle, class Guard>
void check_guard(std::string const& name) {
  constexpr bool counts = counting_score<typename Bundle::score>;
  if constexpr (!Guard::needs_heat || counts) {
    using guard = kit::switched<Guard::keeps_reserve, counts>;
    guard::template choose<Guard>();
    check_table<bundles::guarded<Bundle, guard>>(name + " guarded by " + Guard::name,
                                                 std::same_as<Guard, warmset::guard::none>, {},
                                                 operations_of_a_variant());
  }
}

template <class Bundle>
void check_pool(std::string const& name) {
  if constexpr (kit::has_naive_order<typename Bundle::selector>) {
    check_table<Bundle>(name, false, {},
                        Bundle::pool::spans_layers ? operations_of_a_variant() : kit::model_operations());
    check_guard<Bundle, guard::none>(name);
    check_guard<Bundle, guard::spare_only>(name);
    check_guard<Bundle, guard::challenger_must_win>(name);
    check_guard<Bundle, guard::warm_then_challenger_must_win>(name);
    check_guard<Bundle, guard::victim_must_be_hotter>(name);
    check_guard<Bundle, guard::all_of<guard::victim_must_be_hotter, guard::challenger_must_win>>(name);
  } else {
    WARN(name << ": the model has no eviction order for this selector");
  }
}

/// The named bundles number Share, Share + n_shares, … of the list; `Pool` wraps each.
template <std::size_t Share, template <class> class Pool, class... Bundles>
void check_share(std::string const& prefix, bundles::list<Bundles...>) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    auto const one = [&]<std::size_t At, class Bundle>(std::integral_constant<std::size_t, At>, Bundle*) {
      if constexpr (At % n_shares == Share) {
        check_pool<Pool<Bundle>>(prefix + Bundle::name);
      }
    };
    (one(std::integral_constant<std::size_t, I>{}, static_cast<Bundles*>(nullptr)), ...);
  }(std::index_sequence_for<Bundles...>{});
}

template <class Bundle>
struct per_layer : Bundle {};

/// The invariants of speculation for the named bundles of one share; tables that the model's runs have no type of
/// stand over one layer only.
template <std::size_t Share, class... Bundles>
void check_speculation_of_share(bundles::list<Bundles...>) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    auto const one = [&]<std::size_t At, class Bundle>(std::integral_constant<std::size_t, At>, Bundle*) {
      if constexpr (At % n_shares == Share) {
        check_speculation_of<per_layer<Bundle>>(Bundle::name);
        if constexpr (kit::has_naive_order<typename Bundle::selector>) {
          check_speculation_of<bundles::shared<Bundle>>(std::string("shared ") + Bundle::name);
        }
      }
    };
    (one(std::integral_constant<std::size_t, I>{}, static_cast<Bundles*>(nullptr)), ...);
  }(std::index_sequence_for<Bundles...>{});
}

}  // namespace warmset::model_test

// The model's runs have one thread: under the thread sanitizer those over one layer are enough, and half to compile.
#if WARMSET_TEST_TSAN
#define WARMSET_MODEL_SHARE(share)                                                                \
  TEST_CASE("model and table agree, per layer, share " #share, "[model]") {                       \
    warmset::model_test::check_share<share, warmset::model_test::per_layer>("",                   \
                                                                            warmset::bundles::all{}); \
  }
#else
#define WARMSET_MODEL_SHARE(share)                                                                \
  TEST_CASE("model and table agree, per layer, share " #share, "[model]") {                       \
    warmset::model_test::check_share<share, warmset::model_test::per_layer>("",                   \
                                                                            warmset::bundles::all{}); \
  }                                                                                               \
  TEST_CASE("model and table agree, shared pool, share " #share, "[model]") {                     \
    warmset::model_test::check_share<share, warmset::bundles::shared>("shared ",                  \
                                                                      warmset::bundles::all{});   \
  }                                                                                               \
  TEST_CASE("guard invariants hold under every guard, share " #share, "[model][guard]") {         \
    warmset::model_test::check_speculation_of_share<share>(warmset::bundles::all{});              \
  }
#endif
