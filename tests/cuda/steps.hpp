// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "warmset/table/bundles.hpp"
#include "warmset/table/quick_step.hpp"
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
inline constexpr u32 most_experts = 128;
inline constexpr u32 n_parts = 32;

/// Recorded steps of one layer, in the memory of whoever plays them; none: steps are made up.
struct script {
  u16 const* ids;         ///< [n_steps][k], padding where a step has fewer
  u32 const* sequences;   ///< [n_steps]
  u32 k;
};

/// Everything but the block that a run reads and writes; plain data, so that it can be copied and compared.
template <class Policy>
struct run_state {
  u32 arrivals[most_experts];
  i32 ids[most_ids];
  u32 answers[most_ids];  // the slot of each id
  u32 previous[4];        // for scores that read what the layer before demanded
  i32 supplied[most_experts];  // and those that take keys, one for each expert of a row
  u64 part[n_parts];      // of a digest
  workspace_of<Policy> workspace;
  quick_memory quick;
  plan_of<Policy> plan;
  outcome out;
  u32 refused;
  u32 step;      // how many have been played
  u32 flips_at;  // before the digest of this step one bit of the block is turned; no step: u32_max
  generator random;   // the leader draws, all lanes read what came of it
  step_input in;
  u32 n_ids;
  u32 max_loads;
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

/// What a step is told besides its ids: read by contextual scores alone.
template <class Policy>
WARMSET_HD step_input say(table_reader<Policy> const& t, u32 row, run_state<Policy>& s) {
  step_input in{row, phase::decode, t.header().model_tick};
  if constexpr (contextual_score<typename Policy::score>) {
    generator& random = s.random;
    in.sequence = random(3);
    in.token = random(50);
    in.n_previous = random(5);
    for (u32 i = 0; i < in.n_previous; ++i) {
      s.previous[i] = 4 * i + random(4);
    }
    in.previous = s.previous;
    for (i32& key : s.supplied) {
      key = static_cast<i32>(random(2001)) - 1000;
    }
    in.supplied = random(4) == 0 ? nullptr : s.supplied;
  }
  return in;
}

/// Makes up the next step. One lane.
template <class Policy>
WARMSET_HD void make_step(table_reader<Policy> const& t, run_state<Policy>& s, script const& recorded) {
  generator& random = s.random;
  if (recorded.ids != nullptr) {
    s.n_ids = recorded.k;
    for (u32 i = 0; i < s.n_ids; ++i) {
      u16 const id = recorded.ids[u64{s.step} * recorded.k + i];
      s.ids[i] = id == 0xFFFF ? -1 : id;
    }
    s.in = say<Policy>(t, 0, s);
    s.in.sequence = recorded.sequences[s.step] % 2;
    return;
  }
  u32 const row = random(t.header().n_layers);
  u32 const n_experts = t.layer(row).n_experts;
  s.n_ids = random(24) == 0 ? 1 + random(most_ids) : 1 + random(6);
  for (u32 i = 0; i < s.n_ids; ++i) {
    // skewed; now and then padding and ids of no expert
    s.ids[i] = static_cast<i32>(random(1 + random(n_experts + 1))) - (random(16) == 0 ? 1 : 0);
  }
  s.in = say<Policy>(t, row, s);
}

/// Makes up hints for the row of the last step. One lane.
template <class Policy>
WARMSET_HD void make_hints(table_reader<Policy> const& t, run_state<Policy>& s) {
  generator& random = s.random;
  s.n_ids = 4;
  for (u32 i = 0; i < s.n_ids; ++i) {
    s.ids[i] = static_cast<i32>(random(t.layer(s.in.row).n_experts + 1)) - (random(16) == 0 ? 1 : 0);
  }
  s.max_loads = 1 + random(4);
}

WARMSET_HD u64 mixed(u64 x) noexcept {
  x = (x ^ (x >> 31)) * 0x9E37'79B9'7F4A'7C15ull;
  return x ^ (x >> 29);
}

/// Digest of every n_parts-th of n words, from `part` on. A bit of any of them changes it. Several words are on the way at once:
/// a device waits for each as long as for all.
WARMSET_HD u64 digest_of(u32 const* words, u32 n, u32 part) noexcept {
  constexpr u32 at_once = 8;
  u64 sum = 0;
  for (u32 first = part; first < n; first += at_once * n_parts) {
    u32 word[at_once];
    for (u32 c = 0; c < at_once; ++c) {
      u32 const i = first + c * n_parts;
      word[c] = words[i < n ? i : part];
    }
    for (u32 c = 0; c < at_once; ++c) {
      u32 const i = first + c * n_parts;
      sum += i < n ? mixed(u64{i} << 32 | word[c]) : 0;
    }
  }
  return sum;
}

/// Digest of what a step came to: its answers, its loads, the block and every counter.
template <class Policy, lane_group Group>
WARMSET_HD u64 digest(Group const& group, table_writer<Policy> const& t, u64 block_bytes, run_state<Policy>& s) {
  auto const* const block = static_cast<u32 const*>(t.block());
  auto const* const counters = reinterpret_cast<u32 const*>(&s.out);
  u32 const n_block = static_cast<u32>(block_bytes / sizeof(u32));
  constexpr u32 n_counters = sizeof s.out / sizeof(u32);
  group.for_each(n_parts, [&](u32 part) {
    u64 sum = mixed(part + digest_of(block, n_block, part));
    sum = mixed(sum + digest_of(counters, n_counters, part));
    for (u32 i = part; i < s.n_ids; i += n_parts) {
      sum = mixed(sum + s.answers[i]);
    }
    for (u32 i = part; i < s.plan.n_loads; i += n_parts) {
      sum = mixed(sum + (u64{s.plan.loads[i].expert} << 32 | s.plan.loads[i].slot));
    }
    s.part[part] = sum;
  });
  u64 all = static_cast<u64>(s.plan.kind);
  for (u64 part : s.part) {
    all = mixed(all + part);
  }
  return all;
}

/// Plays n steps on, from where the state stands. Several lanes try the quick step first, as kernels do; one lane
/// plans every step. `digests`, where not null, takes one word for each step.
template <class Policy, lane_group Group>
WARMSET_HD void run(Group const& group, table_writer<Policy> const& t, u64 block_bytes, u32 n_steps,
                    run_state<Policy>& s, script const& recorded = {}, u64* digests = nullptr) {
  table_reader<Policy> const reader = t;
  for (u32 step = 0; step < n_steps; ++step) {
    settle<Policy>(group, t, s.arrivals, s.out);
    group.leader([&] {
      make_step<Policy>(reader, s, recorded);
      s.plan.kind = plan_kind::step;
      s.plan.n_loads = 0;
    });
    bool carried_out = false;
    if constexpr (!Group::is_single) {
      quick_result const r = quick_step<Policy, quick::hits_and_misses>(
          group, t, s.in, s.ids, s.n_ids, [&]() -> outcome& { return s.out; }, true, s.quick,
          [&](u32 i, u32 slot) { s.answers[i] = slot; },
          [&]() -> i32 const* {
            if constexpr (contextual_score<typename Policy::score>) {
              return detail::keys_of_step<Policy>(group, reader, s.in, s.ids, s.n_ids, s.workspace, s.plan);
            }
            return nullptr;
          },
          [&] { return reader; },
          [&](u32 j, planned_load load, u32) { s.plan.loads[j] = load; });
      carried_out = r.is_done;
      group.leader([&] { s.plan.n_loads = r.n_loads; });
      if constexpr (contextual_score<typename Policy::score>) {
        if (r.is_done) {
          detail::learn<Policy>(group, t, s.plan, detail::clocks_before<Policy>(t, s.plan));
        }
      }
    }
    if (!carried_out) {
      plan_demand<Policy>(group, reader, s.in, s.ids, s.n_ids, s.workspace, s.plan);
      if (s.plan.kind == plan_kind::step) {
        status const committed = commit<Policy>(group, t, s.plan, s.out);
        group.leader([&] { s.refused += committed ? 0 : 1; });
      } else {
        group.leader([&] { record_uncommitted<Policy>(s.plan, s.out); });
      }
      group.for_each(s.n_ids, [&](u32 j) {
        u32 answer = u32_max;
        for (u32 i = 0; i < s.plan.n; ++i) {
          answer = s.plan.expert[i] == static_cast<u32>(s.ids[j]) ? s.plan.slot[i] : answer;
        }
        s.answers[j] = s.plan.kind == plan_kind::step ? answer : u32_max;
      });
    }
    if (digests != nullptr) {
      group.leader([&] {
        if (s.step == s.flips_at) {
          t.expert(0).last ^= 1;
        }
      });
      u64 const sum = digest<Policy>(group, t, block_bytes, s);
      group.leader([&] { digests[step] = sum; });
    }
    if constexpr (speculates<Policy>) {
      group.leader([&] { make_hints<Policy>(reader, s); });
      speculation_input const in{s.in.row, t.layer(s.in.row).step + 1, s.max_loads, t.header().model_tick};
      plan_speculative<Policy>(group, reader, in, s.ids, s.n_ids, s.workspace, s.plan);
      status const committed = commit<Policy>(group, t, s.plan, s.out);
      group.leader([&] { s.refused += committed ? 0 : 1; });
    }
    group.leader([&] {
      publish<Policy>(t, s.random, s.arrivals);
      ++s.step;
    });
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

/// What the named ones leave out: other guards, a selector that asks again, one pool of all layers, token rows,
/// admissions.
template <class Selector, class Guard>
using of = bundles::guarded<bundles::of<score::decayed_count, Selector>, Guard>;
using others =
    list<of<select::coldest, guard::none>, of<select::first_permitted, guard::challenger_must_win>,
         of<select::first_permitted, guard::all_of<guard::victim_must_be_hotter, guard::none>>,
         bundles::shared<bundles::of<score::lru>>,
         bundles::shared<of<select::coldest, guard::spare_only>>,
         bundles::shared<bundles::of<score::successor<3, i8, 8>>>,
         bundles::admitted<bundles::of<score::lru>, admit::second_touch<8>>,
         bundles::admitted<bundles::of<score::lru>, admit::insert_budget>,
         bundles::admitted<of<select::coldest, guard::spare_only>, admit::fetch_share>,
         bundles::admitted<of<select::coldest, guard::spare_only>, admit::frequency_gate>,
         bundles::shared<bundles::admitted<bundles::of<score::decayed_count>, admit::colder_than_victim<20>>>,
         bundles::admitted<bundles::of<score::successor<>>, admit::colder_than_victim<20>>>;

template <class... A, class... B>
list<A..., B...> join(list<A...>, list<B...>);
using all = decltype(join(named{}, others{}));

/// Every N-th of a list: for a build that nobody can run, since each costs nvcc seconds.
template <std::size_t N, std::size_t At = 0>
list<> every(list<>);
template <std::size_t N, std::size_t At = 0, class First, class... Rest>
auto every(list<First, Rest...>) {
  using rest = decltype(every<N, (At + 1) % N>(list<Rest...>{}));
  if constexpr (At == 0) {
    return decltype(join(list<First>{}, rest{})){};
  } else {
    return rest{};
  }
}

}  // namespace steps
