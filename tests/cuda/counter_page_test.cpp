// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <kit/thread_lanes.hpp>

#include "cuda/host_pool.hpp"
#include "support/dice.hpp"
#include "support/rounds.hpp"
#include "support/whole_cache.hpp"
#include "warmset/cuda/counter_page.hpp"
#include "warmset/observe/health.hpp"
#include "warmset/observe/record_totals.hpp"
#include "warmset/observe/registry.hpp"

using namespace warmset;

namespace {

constexpr u32 n_words = outcome_words::n;

/// Words of a page, aligned to lines.
struct page_memory {
  explicit page_memory(u32 n_pools) : lines(cuda::counter_page::words_of(n_pools) / signal::words_per_line + 1), n(n_pools) {}
  cuda::counter_page view() { return {lines[0].word, n}; }

  struct alignas(64) line {
    u32 word[signal::words_per_line];
  };
  std::vector<line> lines;
  u32 n;
};

/// Records whose words all have one value.
std::vector<outcome> all_of(u32 n_pools, u32 value) {
  outcome_words w{};
  for (u32& word : w.word) {
    word = value;
  }
  return std::vector<outcome>(n_pools * n_phases, std::bit_cast<outcome>(w));
}

/// The value of all words of some records; u32_max where they differ.
u32 value_in(std::vector<outcome> const& records) {
  u32 const first = std::bit_cast<outcome_words>(records[0]).word[0];
  for (outcome const& record : records) {
    for (u32 const word : std::bit_cast<outcome_words>(record).word) {
      if (word != first) {
        return u32_max;
      }
    }
  }
  return first;
}

template <class Group>
void publish(Group const& g, cuda::counter_page page, std::vector<outcome> const& records) {
  cuda::publish_counters<signal::host_words>(g, page, records.data());
}

/// A reader into whose n-th look at a word the publisher comes.
struct interrupted_words : signal::host_words {
  static inline u32 looks_left = 0;
  static inline cuda::counter_page page{};
  static inline u32 value = 0;

  static u32 load_acquire(u32 const* word) noexcept {
    u32 const seen = signal::host_words::load_acquire(word);
    if (looks_left != 0 && --looks_left == 0) {
      publish(one_lane{}, page, all_of(page.n_pools, ++value));
    }
    return seen;
  }
};

/// A publisher in whom somebody reads before every store but the first.
struct watched_words : signal::host_words {
  static inline cuda::counter_page page{};
  static inline u32 looks = 0;
  static inline u32 busy = 0;

  static void store_release(u32* word, u32 value) noexcept {
    std::vector<outcome> seen(page.n_records());
    ++looks;
    busy += page.read(seen.data(), 1).why == reason::busy ? 1 : 0;
    signal::host_words::store_release(word, value);
  }
};

}  // namespace

TEST_CASE("a page refuses before its first publication and during one, and has all of the last", "[cuda]") {
  page_memory memory{3};
  cuda::counter_page const page = memory.view();
  std::vector<outcome> seen(page.n_records());
  CHECK(page.read(seen.data()).why == reason::unsupported);
  publish(one_lane{}, page, all_of(3, 5));
  REQUIRE(page.read(seen.data(), 1));
  CHECK(value_in(seen) == 5);
  ++*page.sequence();  // somebody is at it
  CHECK(page.read(seen.data()).why == reason::busy);
  publish(one_lane{}, page, all_of(3, 6));  // and was cut short
  REQUIRE(page.read(seen.data(), 1));
  CHECK(value_in(seen) == 6);
  CHECK(page.read(seen.data(), 0).why == reason::busy);

  *page.sequence() = u32_max - 1;  // numbers wrap, and 0 stays the one that says nothing
  publish(one_lane{}, page, all_of(3, 7));
  CHECK(*page.sequence() == 2);
  REQUIRE(page.read(seen.data(), 1));
  CHECK(value_in(seen) == 7);
}

TEST_CASE("the records lie behind the sequence word's line, pool after pool and phase after phase", "[cuda]") {
  page_memory memory{2};
  cuda::counter_page const page = memory.view();
  std::vector<outcome> records(4);
  for (u32 i = 0; i < 4; ++i) {
    records[i].steps = i + 1;
  }
  publish(one_lane{}, page, records);
  CHECK(cuda::counter_page::words_of(2) == signal::words_per_line + 4 * n_words);
  for (u32 i = 0; i < 4; ++i) {
    outcome there{};
    std::memcpy(static_cast<void*>(&there), page.words + signal::words_per_line + i * n_words, sizeof there);
    CHECK(there.steps == i + 1);
  }
}

TEST_CASE("a publication in the middle of a read is never half of what is read", "[cuda]") {
  page_memory memory{2};
  cuda::counter_page const page = memory.view();
  publish(one_lane{}, page, all_of(2, 1));
  std::vector<outcome> seen(page.n_records());
  u32 const looks = 1 + page.n_records() * n_words;  // each word, and the sequence before them
  for (u32 at = 1; at <= looks; ++at) {
    CAPTURE(at);
    interrupted_words::page = page;
    interrupted_words::value = 10 * at;
    interrupted_words::looks_left = at;
    REQUIRE(page.read<interrupted_words>(seen.data(), 1).why == reason::busy);
    interrupted_words::looks_left = at;
    REQUIRE(page.read<interrupted_words>(seen.data(), 2));
    REQUIRE(value_in(seen) == 10 * at + 2);
  }
}

TEST_CASE("a read in the middle of a publication is refused, whatever has been stored", "[cuda]") {
  page_memory memory{2};
  watched_words::page = memory.view();
  for (u32 i = 1; i <= 3; ++i) {
    watched_words::looks = 0;
    watched_words::busy = 0;
    cuda::publish_counters<watched_words>(one_lane{}, memory.view(), all_of(2, i).data());
    CHECK(watched_words::looks == memory.view().n_records() * n_words + 1);
    CHECK(watched_words::busy == watched_words::looks);
    std::vector<outcome> seen(memory.view().n_records());
    REQUIRE(memory.view().read(seen.data(), 1));
    CHECK(value_in(seen) == i);
  }
}

TEST_CASE("threads read whole publications, and later ones later, while lanes publish", "[cuda][stress]") {
  auto const check = [](auto&& publish_all) {
    page_memory memory{3};
    cuda::counter_page const page = memory.view();
    constexpr u32 n = slow_build ? 600 : 3000;
    std::atomic<u32> torn{0};
    std::atomic<u32> backwards{0};
    std::atomic<u32> whole{0};
    std::vector<std::thread> readers;
    for (u32 r = 0; r < 2; ++r) {
      readers.emplace_back([&] {
        std::vector<outcome> seen(page.n_records());
        u32 last = 0;
        while (last != n) {
          if (!page.read(seen.data())) {
            std::this_thread::yield();
            continue;
          }
          u32 const value = value_in(seen);
          torn += value == u32_max ? 1 : 0;
          backwards += value < last ? 1 : 0;
          ++whole;
          last = value == u32_max ? last : value;
        }
      });
    }
    publish_all(page, n);
    for (std::thread& reader : readers) {
      reader.join();
    }
    CHECK(torn == 0);
    CHECK(backwards == 0);
    CHECK(whole >= 2);
  };
  SECTION("one lane") {
    check([](cuda::counter_page page, u32 n) {
      for (u32 i = 1; i <= n; ++i) {
        publish(one_lane{}, page, all_of(3, i));
      }
    });
  }
  SECTION("several lanes") {
    check([](cuda::counter_page page, u32 n) {
      kit::lane_team team{2};
      team.run([&](kit::thread_lanes lanes) {
        for (u32 i = 1; i <= n; ++i) {
          publish(lanes, page, all_of(3, i));
        }
      });
    });
  }
}

namespace {

/// What somebody published, without a page.
struct given_records {
  u32 n_pools;
  std::vector<outcome> records;
  status why = done;

  status read(outcome* into, u32) const noexcept {
    std::copy(records.begin(), records.end(), into);
    return why;
  }
};

template <class A, class B>
bool equal(A const& a, B const& b) {
  bool same = true;
  for (u32 i = 0; i < n_counters; ++i) {
    same = same && value_of(a, i) == value_of(b, i);
  }
  return same;
}

}  // namespace

TEST_CASE("totals of records that wrap do not", "[cuda][observe]") {
  geometry const model = geometry::uniform(2, 16, 2, 1000);
  pool_site const sites[] = {{0, 0, 0, 4, 8, 2, {layer_id{0}}}, {1, 0, 4, 4, 8, 2, {layer_id{1}}}};
  record_totals totals{model, sites};
  snapshot now{model};
  given_records page{2, all_of(2, 0)};
  warmset_test::dice random{5};
  u64 expected = 0;
  for (u32 i = 0; i < 200; ++i) {
    u32 const more = random.below(5) == 0 ? u32_max : u32_max / 3 + random.below(1000);
    expected += more;
    page.records = all_of(2, static_cast<u32>(expected));
    REQUIRE(totals.read(page, now));
    for (u32 l = 0; l < 2; ++l) {
      for (phase const p : {phase::prefill, phase::decode}) {
        total_counters const& c = now.at(l, p);
        REQUIRE(c.steps.value == expected);
        REQUIRE(c.demanded.value == expected);
        REQUIRE(c.hints_dropped[n_drop_reasons - 1].value == expected);
        REQUIRE(c.bytes[1].value == expected * 1000);
      }
    }
  }
  CHECK(expected > u64{20} << 32);
}

TEST_CASE("a page that refuses loses nothing, and what is of another shape is refused", "[cuda][observe]") {
  geometry const model = geometry::uniform(2, 16, 2, 1000);
  pool_site const sites[] = {{0, 0, 0, 4, 8, 2, {layer_id{0}}}, {1, 0, 4, 4, 8, 2, {layer_id{1}}}};
  record_totals totals{model, sites};
  snapshot now{model};
  page_memory memory{2};
  CHECK(totals.read(memory.view(), now).why == reason::unsupported);
  publish(one_lane{}, memory.view(), all_of(2, 3));
  REQUIRE(totals.read(memory.view(), now));
  ++*memory.view().sequence();
  snapshot const before = now;
  CHECK(totals.read(memory.view(), now).why == reason::busy);
  CHECK(equal(now.sum(), before.sum()));
  publish(one_lane{}, memory.view(), all_of(2, 10));
  REQUIRE(totals.read(memory.view(), now));
  CHECK(now.sum().steps.value == 40);

  page_memory other{3};
  CHECK(totals.read(other.view(), now).why == reason::wrong_geometry);
  snapshot small{geometry::uniform(1, 16, 2, 1000)};
  CHECK(totals.read(memory.view(), small).why == reason::wrong_geometry);
  pool_site const unknown[] = {{0, 0, 0, 4, 4, 2, {layer_id{7}}}};
  CHECK_THROWS_AS((record_totals{model, unknown}), config_error);
  pool_site const empty[] = {{0, 0, 0, 4, 4, 2, {}}};
  CHECK_THROWS_AS((record_totals{model, empty}), config_error);
}

namespace {

/// Pools of a device that play what a cache of the host plays: their page comes to the cache's snapshot, and the
/// health of both is one.
template <class Policy>
void check_against_cache() {
  constexpr bool is_shared = Policy::pool::spans_layers;
  constexpr u32 n_layers = 3, n_slots = 6, n_steps = slow_build ? 900 : 3000;
  std::vector<layer_geometry> layers;
  for (u32 l = 0; l < n_layers; ++l) {
    layers.push_back({layer_id{2 * l + 1}, 16, 4, steps::odd_banks()});
  }
  geometry const model{layers};
  cache<Policy, move::immediate> there{model, budget::of_slots(n_slots)};
  std::vector<std::unique_ptr<steps::host_pool<Policy>>> here;
  std::vector<pool_site> sites;
  tuning numbers = Policy::numbers;
  numbers.scratch_slots = 4;
  for (u32 pool = 0; pool < (is_shared ? 1 : n_layers); ++pool) {
    u32 const n = is_shared ? n_layers * n_slots : n_slots;
    std::vector<layer_geometry> const rows = is_shared ? layers : std::vector<layer_geometry>{layers[pool]};
    here.push_back(std::make_unique<steps::host_pool<Policy>>(rows, pool_size{n, n}, numbers));
    pool_site site{pool, 0, pool * n, n, n_layers * n_slots, 4, {}};
    for (layer_geometry const& row : rows) {
      site.layers.push_back(row.layer);
    }
    sites.push_back(site);
  }
  page_memory memory{static_cast<u32>(here.size())};
  record_totals totals{model, {sites.data(), sites.size()}};
  snapshot now{model};
  snapshot host{model};
  health_setup const setup{.wanted = true, .layers = n_layers, .layers_covered = n_layers, .expert_bytes = 155};
  health_monitor mine{setup};
  health_monitor hosts{setup};
  warmset_test::dice random{19};
  for (u32 i = 0; i < n_steps; ++i) {
    u32 const l = random.below(n_layers);
    phase const p = random.below(3) == 0 ? phase::prefill : phase::decode;
    std::vector<i32> ids(1 + random.below(random.below(50) == 0 && !is_shared ? 12 : 4));
    for (i32& id : ids) {
      id = static_cast<i32>(random.below(1 + random.below(18))) - (random.below(12) == 0 ? 1 : 0);
    }
    (void)there.step(layers[l].layer, ids, step_facts{.in_phase = p});
    warmset_test::require_sound(there);
    steps::host_pool<Policy>& pool = *here[is_shared ? 0 : l];
    std::vector<i32> slots(ids.size());
    pool.step(one_lane{}, {is_shared ? l : 0, 0, p}, ids, slots);
    pool.fetch(2);
    REQUIRE(audit(pool.owner().view()));
    if (random.below(3) != 0) {
      continue;  // not every step is looked at
    }
    std::vector<outcome> records;
    for (auto const& each : here) {
      records.insert(records.end(), each->out, each->out + n_phases);
    }
    publish(one_lane{}, memory.view(), records);
    REQUIRE(totals.read(memory.view(), now));
    REQUIRE(host.take(there.observer()));
    for (phase const each : {phase::prefill, phase::decode}) {
      REQUIRE(equal(now.sum(each), host.sum(each)));
      for (u32 at = 0; at < n_layers; ++at) {
        REQUIRE(equal(now.at(at, each), !is_shared ? host.at(at, each) : at == 0 ? host.sum(each) : total_counters{}));
      }
    }
    mine.update(now.sum());
    hosts.update(host.sum());
    REQUIRE(mine.report().step == hosts.report().step);
    REQUIRE(mine.report().state == hosts.report().state);
  }
  CHECK(now.sum(phase::prefill).arrived[0].value > n_steps / 30);
  CHECK(now.sum(phase::decode).arrived[0].value > n_steps / 15);
  CHECK((now.sum().overflow_steps.value != 0) == !is_shared);
}

}  // namespace

TEMPLATE_TEST_CASE("a page's snapshot is that of a cache on the host that plays the same steps", "[cuda][observe]",
                   bundles::of<score::lru>, bundles::of<score::decayed_count>, (bundles::of<score::lru, select::clock<1>>),
                   (bundles::admitted<bundles::of<score::lru>, admit::second_touch<8>>),
                   bundles::shared<bundles::of<score::lru>>) {
  check_against_cache<TestType>();
}
