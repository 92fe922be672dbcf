// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>

#include <catch2/catch_test_macros.hpp>

#include <kit/mutant_guards.hpp>
#include <kit/under_test.hpp>
#include <warmset/table/bundles.hpp>

/// The invariants of speculation as properties of any bundle: what must hold of plans, blocks and consultations
/// whatever the order of eviction is. There is no model of the table here; a rule, said in 128 bits, stands for the
/// guard. The drivers are compiled once, in guard_invariants_test.cpp.
namespace warmset::model_test {

using make_table = std::function<std::unique_ptr<kit::table_under_test>(kit::table_config const&)>;
using guard_rule = bool (*)(duel const&);

/// What the runs of one bundle and guard have seen, so that a test can refuse to be vacuous.
struct guard_exercise {
  u64 evictions = 0;   ///< by speculation
  u64 refusals = 0;    ///< by the guard
  u64 free_slots = 0;  ///< taken by speculation, the guard not asked
  u64 dropped = 0;     ///< batches of hints that changed nothing
  u64 leased = 0;      ///< slots that were leased while others had to make way
  u64 defended = 0;    ///< residents that the rule protects from all challengers of a storm of hints
};

/// Random demands, leases, pins, hints, failures and storms of hints. Empty where all holds, else the name of the
/// invariant that is broken, and where. Deterministic.
std::string check_guard_invariants(make_table const& make, kit::table_config const& config, guard_rule rule,
                                   u32 operations, u64 seed, guard_exercise& seen);

/// Random demands of a bundle that takes hints, and gets none or is permitted none, beside the same bundle without
/// a predictor: decisions and histories are the same. A bundle that keeps a reserve has one slot more than the
/// other for each slot of it, and steps that leave it alone.
std::string check_width_0(make_table const& hinted, make_table const& plain, kit::table_config const& config,
                          bool reserve, u32 operations, u64 seed);

/// Whether a pool full of residents that were demanded 40 times, and then idle for 400 steps, gives way to a
/// challenger that was demanded ten times. Throws std::logic_error where it gave way before.
bool gives_way_in_the_end(make_table const& make, u32 capacity);

template <class Bundle>
make_table table_maker() {
  return [](kit::table_config const& c) -> std::unique_ptr<kit::table_under_test> {
    return std::make_unique<kit::table_under_test_of<kit::with_probe<Bundle>, false>>(c);
  };
}

/// The configuration for a pool of `capacity` slots.
inline kit::table_config sized(u32 capacity, bool shared, bool reserve) {
  tuning numbers{};
  numbers.speculative_slots = 1 + capacity / 12;
  if (reserve && numbers.speculative_slots >= capacity) {
    numbers.speculative_slots = 1;
  }
  numbers.floor = shared ? 1 : 0;
  u32 const experts = shared ? capacity / 2 + 6 : capacity + 8;
  return {shared ? 2u : 1u, experts, 4, capacity, capacity, numbers, 0};
}

/// Blocks are copied and compared at every operation: of large ones, and in builds with assertions or sanitizers,
/// only some capacities are tried.
inline u32 capacity_step(make_table const& make, bool shared, bool reserve) {
#if defined(NDEBUG)
  constexpr u32 usual = 1;
#else
  constexpr u32 usual = 18;
#endif
  return make(sized(64, shared, reserve))->block().size() > (1u << 18) ? usual + 6 : usual;
}

/// The capacities from 1 to 64 under one guard.
template <class Bundle, class Guard>
void check_invariants_of(std::string const& name, guard_rule rule) {
  constexpr bool counts = counting_score<typename Bundle::score>;
  if constexpr (!Guard::needs_heat || counts) {
    using guard = kit::switched<Guard::keeps_reserve, counts>;
    guard::template choose<Guard>();
    constexpr bool shared = Bundle::pool::spans_layers;
    auto const make = table_maker<bundles::guarded<Bundle, guard>>();
    guard_exercise seen;
    u64 seed = 0;
    u32 const stride = capacity_step(make, shared, Guard::keeps_reserve);
    bool const guarded = rule != guard_rule{kit::rule::none};
    // forgotten on eviction, a challenger is worth nothing, and a guard may want more than that
    bool const hopeless = std::same_as<typename Bundle::score, score::lfu_forget> && !rule({0, 0, 1, 0, true});
    auto const all_seen = [&] {
      return (seen.evictions != 0 || hopeless) && seen.free_slots != 0 && seen.dropped != 0 &&
             seen.leased != 0 && (!guarded || (seen.refusals != 0 && seen.defended != 0));
    };
    // the capacities that a stride leaves out come in where the others have not met every case
    for (u32 offset = 0; offset < stride && !all_seen(); ++offset) {
      u32 const first = (Guard::keeps_reserve || shared ? 2 : 1) + offset;
      for (u32 capacity = first; capacity <= 64; capacity += stride) {
        std::string const wrong = check_guard_invariants(
            make, sized(capacity, shared, Guard::keeps_reserve), rule, 80, ++seed, seen);
        if (!wrong.empty()) {
          FAIL(name << " guarded by " << Guard::name << ", capacity " << capacity << ": " << wrong);
        }
      }
    }
    INFO(name << " guarded by " << Guard::name);
    CHECK((seen.evictions != 0) == !hopeless);
    CHECK(seen.free_slots != 0);
    CHECK(seen.dropped != 0);
    CHECK(seen.leased != 0);
    CHECK((seen.refusals != 0) == guarded);
    CHECK((seen.defended != 0) == guarded);
  }
}

/// Selectors that divide the capacity into segments see the reserve in it, and divide otherwise than without.
template <class Selector>
inline constexpr bool divides_capacity = false;
template <>
inline constexpr bool divides_capacity<select::s3_fifo> = true;
template <u32 Percent>
inline constexpr bool divides_capacity<select::slru<Percent>> = true;

template <class Bundle, class Guard>
void check_width_0_of(std::string const& name) {
  using guard = kit::switched<Guard::keeps_reserve, counting_score<typename Bundle::score>>;
  if constexpr (!Bundle::pool::spans_layers && !(Guard::keeps_reserve && divides_capacity<typename Bundle::selector>)) {
    guard::template choose<Guard>();
    auto const hinted = table_maker<bundles::guarded<Bundle, guard>>();
    auto const plain = table_maker<Bundle>();
    u32 const stride = capacity_step(hinted, false, Guard::keeps_reserve);
    for (u32 capacity = Guard::keeps_reserve ? 2 : 1; capacity <= 64; capacity += stride) {
      auto const config = sized(capacity, false, Guard::keeps_reserve);
      std::string const wrong = check_width_0(hinted, plain, config, Guard::keeps_reserve, 60, capacity);
      INFO(name << " guarded by " << Guard::name << ", capacity " << capacity << ": " << wrong);
      REQUIRE(wrong.empty());
    }
  }
}

template <class Bundle>
void check_protection_ends(std::string const& name) {
  if constexpr (counting_score<typename Bundle::score> && !Bundle::pool::spans_layers) {
    using guard = kit::switched<false, true>;
    auto const make = table_maker<bundles::guarded<Bundle, guard>>();
    auto const one = [&]<class Guard>(Guard const&) {
      guard::choose<Guard>();
      for (u32 const capacity : {1u, 2u, 3u, 4u, 8u, 42u, 64u}) {
        INFO(name << " guarded by " << Guard::name << ", capacity " << capacity);
        CHECK(gives_way_in_the_end(make, capacity) == Bundle::score::decays);
      }
    };
    one(warmset::guard::challenger_must_win{});
    one(warmset::guard::warm_then_challenger_must_win{});
    one(warmset::guard::victim_must_be_hotter{});
    one(warmset::guard::all_of<warmset::guard::victim_must_be_hotter, warmset::guard::challenger_must_win>{});
  }
}

/// The properties of one bundle under the guards that compare heat, where its score has it.
template <class Bundle>
void check_heat_guards_of(std::string const& name) {
  using namespace warmset::guard;
  check_invariants_of<Bundle, challenger_must_win>(name, kit::rule::challenger_must_win);
  check_invariants_of<Bundle, warm_then_challenger_must_win>(name, kit::rule::warm_then_challenger_must_win);
  check_invariants_of<Bundle, victim_must_be_hotter>(name, kit::rule::victim_must_be_hotter);
  check_invariants_of<Bundle, all_of<victim_must_be_hotter, challenger_must_win>>(name, [](duel const& d) {
    return kit::rule::victim_must_be_hotter(d) && kit::rule::challenger_must_win(d);
  });
  check_protection_ends<Bundle>(name);
}

/// All properties of one bundle under every guard that its score admits.
template <class Bundle>
void check_speculation_of(std::string const& name) {
  check_invariants_of<Bundle, guard::none>(name, kit::rule::none);
  check_invariants_of<Bundle, guard::spare_only>(name, kit::rule::spare_only);
  check_width_0_of<Bundle, guard::none>(name);
  check_width_0_of<Bundle, guard::spare_only>(name);
  check_heat_guards_of<Bundle>(name);
}

}  // namespace warmset::model_test
