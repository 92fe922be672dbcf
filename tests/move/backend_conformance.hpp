// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <warmset/move/adaptor.hpp>
#include <warmset/move/backend.hpp>
#include <warmset/move/external.hpp>

#include "allocations.hpp"
#include "sites.hpp"

#include <catch2/catch_test_macros.hpp>

#include <span>
#include <utility>
#include <vector>

namespace warmset_test {

/// Makes the innermost backend do its work once.
template <class B>
void work_once(B& backend, std::span<warmset::pool_site const> sites) {
  auto& inside = warmset::move::innermost(backend);
  if constexpr (requires { inside.arrived(0u, warmset::slot_id{0}); }) {
    for (warmset::pool_site const& site : sites) {
      for (warmset::u32 s = 0; s < site.n_words(); ++s) {
        inside.arrived(site.pool, warmset::slot_id{s});
      }
    }
  } else if constexpr (requires { inside.advance(1u); }) {
    inside.advance(1);
  }
  backend.poll();
}

template <class B>
warmset::u32 n_loading(B const& backend, std::span<warmset::pool_site const> sites) {
  warmset::u32 n = 0;
  for (warmset::pool_site const& site : sites) {
    for (warmset::u32 s = 0; s < site.n_words(); ++s) {
      n += warmset::arrival::state(backend.arrivals(site.pool)[s]) == warmset::transfer::loading;
    }
  }
  return n;
}

/// Works until no word says loading; false where that never comes.
template <class B>
bool finish(B& backend, std::span<warmset::pool_site const> sites) {
  for (int i = 0; i < 20'000; ++i) {
    if (n_loading(backend, sites) == 0) {
      return true;
    }
    work_once(backend, sites);
  }
  return false;
}

/// Checks everything that move_backend says of a backend, on one model and one number of slots.
///
/// @param make        makes a backend that is not open
/// @param may_fail    transfers may fail; else all must arrive
template <class Make>
void backend_conforms_at(Make&& make, warmset::u32 slots, bool shared, bool may_fail) {
  using namespace warmset;
  CAPTURE(slots, shared, may_fail);
  geometry const model = two_groups();
  std::vector<pool_site> const sites = make_sites(model, slots, 3, shared);
  auto unopened = make();
  u64 const tail = unopened.tail_bytes();
  unopened.open(model, sites);
  std::vector<u32 const*> addresses;
  for (pool_site const& site : sites) {
    addresses.push_back(unopened.arrivals(site.pool));
  }
  auto backend = std::move(unopened);  // words keep their addresses when the backend is moved
  CHECK(backend.tail_bytes() == tail);
  for (pool_site const& site : sites) {
    REQUIRE(backend.arrivals(site.pool) == addresses[site.pool]);
    for (u32 s = 0; s < site.n_words(); ++s) {
      REQUIRE(backend.arrivals(site.pool)[s] == 0);
    }
  }

  // orders and what their words must say; allocated here, because nothing below may allocate
  std::vector<std::vector<transfer_order>> orders(sites.size());
  std::vector<std::vector<u32>> before(sites.size());
  for (pool_site const& site : sites) {
    orders[site.pool].reserve(site.n_words());
    before[site.pool].resize(site.n_words());
  }
  u64 const allocations = n_allocations();
  u64 wrong_start = 0;
  u64 wrong_others = 0;
  u64 wrong_end = 0;
  u64 n_failed = 0;
  bool finished = true;
  u32 generation = 0x3FFF'FFFE;  // so that the words' 30 bits wrap
  for (u32 round = 0; round < 6; ++round, ++generation) {
    for (pool_site const& site : sites) {
      u32 const* const words = backend.arrivals(site.pool);
      // what a pool may have under way: some slots, some or all scratch of its group
      bool const takes_scratch = site.pool % sites.size() == round % sites.size();
      auto& list = orders[site.pool];
      list.clear();
      u32 expert = 0;
      for (u32 s = 0; s < site.n_words(); ++s) {
        bool const wanted = s < site.n_slots ? (round < 2 || (s + round) % 3 != 0) : takes_scratch;
        u32 const n_experts = model.find(site.layers[0])->n_experts;
        if (wanted && expert < n_experts) {
          list.push_back({slot_id{s},
                          {site.layers[round % site.layers.size()], expert_id{expert}},
                          generation});
          expert += 1 + (s + round) % 2;
        }
      }
      for (pool_site const& other : sites) {
        for (u32 s = 0; s < other.n_words(); ++s) {
          before[other.pool][s] = backend.arrivals(other.pool)[s];
        }
      }
      backend.start(site.pool, list);
      for (transfer_order const& order : list) {
        u32 const word = words[order.slot.value];
        wrong_start += !arrival::is_of(word, generation) || arrival::state(word) == transfer::none;
        before[site.pool][order.slot.value] = word;
      }
      for (pool_site const& other : sites) {
        for (u32 s = 0; s < other.n_words(); ++s) {
          u32 const is = backend.arrivals(other.pool)[s];
          u32 const was = before[other.pool][s];
          // another transfer that was under way may have ended; nothing else may change
          wrong_others +=
              is != was && !(is >> 2 == was >> 2 && arrival::state(was) == transfer::loading);
        }
      }
      backend.start(site.pool, {});  // nothing to do
      if (round % 2 == 0) {
        backend.poll();
      }
    }
    finished = finished && finish(backend, sites);
    for (pool_site const& site : sites) {
      for (transfer_order const& order : orders[site.pool]) {
        u32 const word = backend.arrivals(site.pool)[order.slot.value];
        transfer const end = arrival::state(word);
        wrong_end += !arrival::is_of(word, generation) ||
                     (end != transfer::arrived && end != transfer::failed);
        n_failed += end == transfer::failed;
      }
    }
  }
  u64 const allocated = n_allocations() - allocations;
  CHECK(allocated == 0);
  CHECK(wrong_start == 0);
  CHECK(wrong_others == 0);
  CHECK(finished);
  CHECK(wrong_end == 0);
  if (!may_fail) {
    CHECK(n_failed == 0);
  }

  // close with everything under way: no word says loading, and a second close changes nothing
  for (pool_site const& site : sites) {
    std::vector<transfer_order> list;
    for (u32 s = 0; s < min_of(site.n_slots, 3u); ++s) {
      list.push_back({slot_id{s}, {site.layers[0], expert_id{s}}, generation});
    }
    backend.start(site.pool, list);
  }
  backend.close();
  CHECK(n_loading(backend, sites) == 0);
  std::vector<u32> const closed(backend.arrivals(0), backend.arrivals(0) + sites[0].n_words());
  backend.close();
  backend.poll();
  CHECK(closed == std::vector<u32>(backend.arrivals(0), backend.arrivals(0) + sites[0].n_words()));
  for (pool_site const& site : sites) {
    CHECK(backend.arrivals(site.pool) == addresses[site.pool]);
  }
}

/// The suite: all sizes, pools of one layer and of several.
template <class Make>
void backend_conforms(Make&& make, bool may_fail = false) {
  static_assert(warmset::move_backend<decltype(make())>);
  constexpr warmset::u32 k = 4;
  constexpr warmset::u32 n_experts = 42;
  for (warmset::u32 slots : {1u, 2u, 3u, k, 8u, 42u, n_experts + 1}) {
    backend_conforms_at(make, slots, false, may_fail);
    backend_conforms_at(make, warmset::min_of(slots, n_experts / 2), true, may_fail);
  }
  // closed without ever being open, and opened without a pool
  auto never = make();
  never.close();
  auto empty = make();
  empty.open(warmset::geometry{}, std::span<warmset::pool_site const>{});
  empty.poll();
  empty.close();
}

}  // namespace warmset_test
