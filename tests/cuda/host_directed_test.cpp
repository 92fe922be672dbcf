// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <memory>
#include <thread>
#include <vector>

#include <kit/thread_lanes.hpp>

#include <warmset/cache.hpp>
#include <warmset/cuda/host_directed.hpp>
#include <warmset/policy/score/lru.hpp>
#include <warmset/predict/supplied.hpp>
#include <warmset/signal/worker.hpp>

#include "cuda/copy_rig.hpp"
#include "support/dice.hpp"
#include "support/sanitizers.hpp"

using namespace warmset;
using namespace copies;

// The twin of host_directed.cu: the bodies of its kernels by threads, a worker over the copy engine on another.

namespace {

struct hinted : default_policy {
  using score = warmset::score::lru;
  using predictor = warmset::predict::supplied;
};
using worker = signal::worker<cache<hinted, engine>>;

struct test_clock {
  u64 now() const noexcept { return signal::steady_clock{}.now(); }
  void pause() const noexcept { std::this_thread::yield(); }
};

constexpr u32 n_layers = 3, n_experts = 24, k = 4, n_slots = 8;
constexpr u64 a_minute = 60'000'000'000;

geometry three_layers() {
  std::vector<layer_geometry> layers;
  for (u32 l = 0; l < n_layers; ++l) {
    layers.push_back({layer_id{l}, n_experts, k, {24, 13, 7}});
  }
  return geometry{layers};
}

/// A worker over the copy engine, a channel, and the memory of the device's side.
struct model {
  explicit model(bool is_mapped, u64 deadline = a_minute, signal::channel_shape shape = {8, 6}, u32 first = 1,
                 u32 slots = n_slots)
      : experts(three_layers(), way::batch), channel(shape, first) {
    experts.options.own_bytes = cuda::own_scratch_bytes(experts.model, k);
    signal::channel_view const views[] = {channel.view()};
    the_worker = std::make_unique<worker>(array_view<signal::channel_view const>{views}, worker::options_type{},
                                          experts.model, budget::of_slots(slots), hinted::numbers, experts.make());
    state = cuda::directed_state_of(channel.view(), {deadline, 1'000'000});
    engine const& e = backend();
    for (u32 bank = 0; bank < 3; ++bank) {
      for (u32 l = 0; l < n_layers; ++l) {
        sources.push_back(experts.tensors[l * 3 + bank]);
      }
    }
    for (u32 bank = 0; bank < 3; ++bank) {
      banks.push_back({sources.data() + bank * n_layers, e.bank(0, bank), nullptr, e.layout(0).stride(bank)});
    }
    for (u32 l = 0; l < n_layers; ++l) {
      pool_site const& site = e.sites()[l];
      places.push_back({banks.data(), 3, l, l, n_experts, site.n_slots, site.first_slot, site.first_scratch,
                        e.first_own(0), e.n_own(0), is_mapped ? 1u : 0u});
    }
  }

  engine& backend() { return the_worker->cache().backend(); }

  /// One step of a layer by these lanes.
  template <class Group>
  void step(Group const& g, u32 l, std::vector<routed_id> const& ids, std::vector<routed_id> const& hints, i32* slots,
            u64* wrong) {
    u32 const n = static_cast<u32>(ids.size());
    signal::channel_view const c = channel.view();
    cuda::publish_on_device<signal::host_words>(g, c, state, ticket, l, phase::decode, ids.data(), n, test_clock{});
    if (!hints.empty()) {
      cuda::hint_on_device<signal::host_words>(g, c, state, (l + 1) % n_layers, hints.data(),
                                               static_cast<u32>(hints.size()), 1);
    }
    cuda::await_on_device<signal::host_words>(
        g, c, state, ticket, places[l], ids.data(), n, slots, test_clock{},
        [&](unsigned char* to, unsigned char const* from, u64 bytes) {
          g.for_each(static_cast<u32>(bytes), [&](u32 i) { to[i] = from[i]; });
        });
    g.leader([&] { *wrong += wrong_bytes(l, ids, slots); });
    g.leader([&] { cuda::finish_on_device<signal::host_words>(c, ticket); });
  }

  u64 wrong_bytes(u32 l, std::vector<routed_id> const& ids, i32 const* slots) {
    u64 wrong = 0;
    for (std::size_t j = 0; j < ids.size(); ++j) {
      bool const valid = ids[j] >= 0 && static_cast<u32>(ids[j]) < n_experts;
      if (!valid || ticket.by == static_cast<u32>(cuda::step_served::nobody)) {
        wrong += slots[j] == -1 ? 0 : 1;
        continue;
      }
      bool const own = slots[j] >= static_cast<i32>(places[l].first_own);
      wrong += slots[j] < 0 || own != (ticket.by == static_cast<u32>(cuda::step_served::source)) ? 1 : 0;
      for (u32 bank = 0; bank < 3 && slots[j] >= 0; ++bank) {
        u64 const bytes = banks[bank].bytes;
        unsigned char const* const at = banks[bank].slots + static_cast<u64>(slots[j]) * bytes;
        wrong += experts.pattern.equals({layer_id{l}, {static_cast<u32>(ids[j])}}, bank, 0,
                                        {reinterpret_cast<std::byte const*>(at), bytes})
                     ? 0
                     : 1;
      }
    }
    return wrong;
  }
  u64 one(u32 l, std::vector<routed_id> const& ids) {
    u64 wrong = 0;
    std::vector<i32> slots(ids.size());
    step(one_lane{}, l, ids, {}, slots.data(), &wrong);
    return wrong;
  }

  rig experts;
  signal::channel channel;
  std::unique_ptr<worker> the_worker;
  cuda::directed_state state{};
  cuda::step_ticket ticket{};
  std::vector<unsigned char const*> sources;
  std::vector<cuda::bank_addresses> banks;
  std::vector<cuda::directed_place> places;
};

std::vector<routed_id> route(warmset_test::dice& random, bool odd) {
  std::vector<routed_id> ids(k);
  for (routed_id& id : ids) {
    id = static_cast<routed_id>(random.below(1 + random.below(n_experts)));
    if (odd && random.below(20) == 0) {
      id = random.below(2) == 0 ? -1 : static_cast<routed_id>(n_experts);
    }
  }
  return ids;
}

template <class Play>
void play_with_lanes(u32 n_lanes, Play&& play) {
  if (n_lanes == 1) {
    play(one_lane{});
  } else {
    kit::lane_team team{n_lanes};
    team.run([&](kit::thread_lanes lanes) { play(lanes); });
  }
}

}  // namespace

TEST_CASE("a worker serves the kernels of host-directed mode, every byte", "[cuda]") {
  u32 const n_lanes = GENERATE(1u, 3u);
  u32 const first = GENERATE(1u, 0xFFFF'FFF0u);  // so that numbers wrap
  model m{true, a_minute, {8, 6}, first};
  REQUIRE(m.the_worker->start());
  warmset_test::dice random{3};
  std::vector<std::vector<routed_id>> routes, hints;
  constexpr u32 n = WARMSET_TEST_TSAN ? 300 : 1500;
  for (u32 i = 0; i < n; ++i) {
    routes.push_back(route(random, true));
    hints.push_back(i % 3 == 0 ? route(random, false) : std::vector<routed_id>{});
  }
  std::vector<i32> slots(k);
  u64 wrong = 0;
  play_with_lanes(n_lanes, [&](auto const& lanes) {
    for (u32 i = 0; i < n; ++i) {
      m.step(lanes, i % n_layers, routes[i], hints[i], slots.data(), &wrong);
    }
  });
  m.the_worker->stop();
  CHECK(wrong == 0);
  CHECK(m.state.out.steps == n);
  CHECK(m.state.out.from_slots == n);
  CHECK(m.state.out.overdue == 0);
  CHECK(m.state.out.hints > 0);
  CHECK(m.state.out.hints + m.state.dropped == n / 3);
  signal::worker_counters const seen = m.the_worker->counters();
  CHECK(seen[signal::tally::demands] == n);
  CHECK(seen[signal::tally::torn] == 0);
  CHECK(m.backend().ledger().transfers.completed > n / 10);
  CHECK(m.backend().ledger().balances());
}

TEST_CASE("a step past its deadline is served from the source, and says so", "[cuda]") {
  u32 const n_lanes = GENERATE(1u, 2u);
  model m{true, 1'000'000};
  REQUIRE(m.the_worker->start_by_hand());  // and nobody steps it
  std::vector<routed_id> const ids{5, 7, 5, -1};
  std::vector<i32> slots(k);
  u64 wrong = 0;
  constexpr u32 n = 12;  // the ring takes eight
  play_with_lanes(n_lanes, [&](auto const& lanes) {
    for (u32 i = 0; i < n; ++i) {
      m.step(lanes, 0, ids, {}, slots.data(), &wrong);
    }
  });
  CHECK(wrong == 0);
  CHECK(slots == std::vector<i32>{static_cast<i32>(m.places[0].first_own), static_cast<i32>(m.places[0].first_own) + 1,
                                  static_cast<i32>(m.places[0].first_own), -1});
  CHECK(m.ticket.by == static_cast<u32>(cuda::step_served::source));
  CHECK(m.state.out.from_source == n);
  CHECK(m.state.out.overdue == 8);
  CHECK(m.state.out.not_published == n - 8);

  // the worker comes back: what the device has given up leaves no lease, and the next step is its own
  for (u32 i = 0; i < 100; ++i) {
    m.the_worker->step();
  }
  CHECK(m.the_worker->counters()[signal::tally::abandoned] == 8);
  m.the_worker->stop();
  REQUIRE(m.the_worker->start());
  m.state.limits.deadline = a_minute;
  CHECK(m.one(1, {3, 9}) == 0);
  CHECK(m.ticket.by == static_cast<u32>(cuda::step_served::slots));
}

TEST_CASE("a worker that has ended holds up nobody", "[cuda]") {
  bool const is_mapped = GENERATE(true, false);
  model m{is_mapped};
  REQUIRE(m.the_worker->start());
  CHECK(m.one(0, {1, 2}) == 0);
  m.the_worker->stop();
  for (u32 i = 0; i < 12; ++i) {  // into a full ring as well
    CHECK(m.one(0, {static_cast<routed_id>(i), 2}) == 0);
  }
  CHECK((is_mapped ? m.state.out.from_source : m.state.out.nobody) == 12);
  REQUIRE(m.the_worker->start());
  CHECK(m.one(0, {20, 21}) == 0);
  CHECK(m.state.out.from_slots == 2);
}

TEST_CASE("without a mapped source a step waits past its deadline", "[cuda]") {
  model m{false, 1000};
  REQUIRE(m.the_worker->start());
  m.the_worker->slow_down(3'000'000);
  CHECK(m.one(0, {1, 2, 3, 4}) == 0);
  CHECK(m.one(1, {1, 2, 3, 4}) == 0);
  CHECK(m.state.out.from_slots == 2);
  CHECK(m.state.out.overdue >= 1);
}

TEST_CASE("answers without slots and steps that are too wide come from the source", "[cuda]") {
  model m{true, a_minute, {8, 8}, 1, 4};
  REQUIRE(m.the_worker->start());
  CHECK(m.one(0, {1, 2, 3, 4, 1, 2}) == 0);
  CHECK(m.ticket.by == static_cast<u32>(cuda::step_served::slots));
  // a layer that the worker does not know, for the place of one that it knows
  m.places[1].layer = 99;
  std::vector<i32> slots(2);
  std::vector<routed_id> const ids{6, 7};
  signal::channel_view const c = m.channel.view();
  cuda::publish_on_device<signal::host_words>(one_lane{}, c, m.state, m.ticket, 99, phase::decode, ids.data(), 2,
                                              test_clock{});
  cuda::await_on_device<signal::host_words>(one_lane{}, c, m.state, m.ticket, m.places[1], ids.data(), 2, slots.data(),
                                            test_clock{}, [](unsigned char* to, unsigned char const* from, u64 bytes) {
                                              std::memcpy(to, from, bytes);
                                            });
  CHECK(m.wrong_bytes(1, ids, slots.data()) == 0);
  CHECK(m.ticket.by == static_cast<u32>(cuda::step_served::source));
  cuda::finish_on_device<signal::host_words>(c, m.ticket);
  CHECK(m.state.out.refused == 1);
  // six experts over four slots: two passes, and no room for six in the kernels' own scratch
  CHECK(m.one(0, {10, 11, 12, 13, 14, 15}) == 0);
  CHECK(m.ticket.by == static_cast<u32>(cuda::step_served::nobody));
  CHECK(m.state.out.refused == 2);
  // more ids than a message holds
  CHECK(m.one(0, {1, 1, 1, 1, 1, 1, 1, 1, 2}) == 0);
  CHECK(m.ticket.by == static_cast<u32>(cuda::step_served::source));
  CHECK(m.state.out.not_published == 1);
}

TEST_CASE("hints that the device does not publish are counted by the worker", "[cuda]") {
  model m{true};
  signal::channel_view const c = m.channel.view();
  std::vector<routed_id> const ids{1, 2, 3, 4, 5, 6, 7};
  auto const hint = [&](u32 n) {
    cuda::hint_on_device<signal::host_words>(one_lane{}, c, m.state, 1, ids.data(), n, 1);
  };
  hint(3);  // nobody runs
  REQUIRE(m.the_worker->start_by_hand());
  hint(7);  // six fit into a message
  hint(2);
  hint(2);
  hint(2);  // two wait
  cuda::await_hint_on_device<signal::host_words>(c, m.state, test_clock{});
  CHECK(m.state.out.hint_waits_expired == 1);
  for (u32 i = 0; i < 50; ++i) {
    m.the_worker->step();
  }
  cuda::await_hint_on_device<signal::host_words>(c, m.state, test_clock{});
  CHECK(m.state.out.hint_waits_expired == 1);
  CHECK(m.state.out.hints == 2);
  signal::worker_counters const seen = m.the_worker->counters();
  CHECK(seen[reason::worker_down] == 3);
  CHECK(seen[reason::limited] == 7);
  CHECK(seen[reason::ring_full] == 2);
  CHECK(seen[signal::tally::hints] == 2);
}
