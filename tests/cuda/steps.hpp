// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "warmset/table/bundles.hpp"
#include "warmset/table/plan_demand.hpp"
#include "warmset/table/plan_speculative.hpp"
#include "warmset/table/settle.hpp"

/// The body that the host and a kernel run alike: random operations on one block, from a seed.
namespace steps {

using namespace warmset;

struct generator {
  u64 state;
  WARMSET_HD u32 operator()(u32 bound) {
    state = state * 0x5851'F42D'4C95'7F2Dull + 0x1405'7B7E'F767'814Full;
    return static_cast<u32>((state >> 33) % bound);
  }
};

inline constexpr u32 most_ids = 40;  // beyond plan's quadratic search

/// Everything but the block that a run reads and writes; plain data, so that it can be copied and compared.
template <class Policy>
struct run_state {
  u32 arrivals[64];
  i32 ids[most_ids];
  workspace_of<Policy> workspace;
  plan_of<Policy> plan;
  outcome out;
  u32 refused;
};

/// The mover's part: some transfers arrive, a few fail.
template <class Policy>
WARMSET_HD void publish(table_writer<Policy> const& t, generator& random, u32* arrivals) {
  for (u32 j = 0; j < t.header().in_flight; ++j) {
    u32 const slot = t.in_flight(j);
    u32 const fate = random(16);
    transfer const news = fate < 11    ? transfer::arrived
                          : fate == 11 ? transfer::failed
                                       : transfer::loading;
    arrivals[slot] = arrival::word(t.generation(slot), news);
  }
}

template <class Policy, lane_group Group>
WARMSET_HD void run(Group const& group, table_writer<Policy> const& t, u64 seed, u32 n_steps,
                    run_state<Policy>& s) {
  generator random{seed};
  for (u32 step = 0; step < n_steps; ++step) {
    settle<Policy>(group, t, s.arrivals, s.out);
    u32 const row = random(t.header().n_layers);
    u32 const n_experts = t.layer(row).n_experts;
    u32 const n_ids = random(24) == 0 ? 1 + random(most_ids) : 1 + random(6);
    for (u32 i = 0; i < n_ids; ++i) {
      // skewed; now and then padding and ids of no expert
      s.ids[i] = static_cast<i32>(random(1 + random(n_experts + 1))) - (random(16) == 0 ? 1 : 0);
    }
    table_reader<Policy> const reader = t;
    plan_demand<Policy>(group, reader, step_input{row, phase::decode, t.header().model_tick}, s.ids,
                        n_ids, s.workspace, s.plan);
    if (s.plan.kind == plan_kind::step) {
      s.refused += commit<Policy>(group, t, s.plan, s.out) ? 0 : 1;
    } else {
      record_uncommitted<Policy>(s.plan, s.out);
    }
    if constexpr (speculates<Policy>) {
      for (u32 i = 0; i < 4; ++i) {
        s.ids[i] = static_cast<i32>(random(n_experts + 1)) - (random(16) == 0 ? 1 : 0);
      }
      speculation_input const in{row, t.layer(row).step + 1, 1 + random(4), t.header().model_tick};
      plan_speculative<Policy>(group, reader, in, s.ids, 4, s.workspace, s.plan);
      s.refused += commit<Policy>(group, t, s.plan, s.out) ? 0 : 1;
    }
    publish<Policy>(t, random, s.arrivals);
  }
}

/// The guard that a score can be asked about.
template <class Bundle>
using fitting_guard = std::conditional_t<counting_score<typename Bundle::score>,
                                         guard::warm_then_challenger_must_win, guard::spare_only>;

template <class... Bundles>
struct list {};

template <class Found, class Rest>
struct device_bundles;
template <class... Found>
struct device_bundles<list<Found...>, bundles::list<>> {
  using type = list<Found...>;
};
template <class... Found, class First, class... Rest>
struct device_bundles<list<Found...>, bundles::list<First, Rest...>>
    : device_bundles<std::conditional_t<First::selector::host_only, list<Found...>,
                                        list<Found..., First, bundles::guarded<First, fitting_guard<First>>>>,
                     bundles::list<Rest...>> {};

/// Every named bundle that a kernel can run, without hints and with.
using named = device_bundles<list<>, bundles::all>::type;

/// What the named ones leave out: other guards, a selector that asks again, one pool of all layers.
template <class Selector, class Guard>
using of = bundles::guarded<bundles::of<score::decayed_count, Selector>, Guard>;
using others =
    list<of<select::coldest, guard::none>, of<select::first_permitted, guard::challenger_must_win>,
         of<select::first_permitted, guard::all_of<guard::victim_must_be_hotter, guard::none>>,
         bundles::shared<bundles::of<score::lru>>,
         bundles::shared<of<select::coldest, guard::spare_only>>>;

template <class... A, class... B>
list<A..., B...> join(list<A...>, list<B...>);
using all = decltype(join(named{}, others{}));

}  // namespace steps
