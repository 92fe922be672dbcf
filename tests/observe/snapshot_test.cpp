// SPDX-License-Identifier: Apache-2.0

#include <thread>
#include <type_traits>
#include <utility>

#include <catch2/catch_test_macros.hpp>

#include <warmset/cache.hpp>
#include <warmset/observe/registry.hpp>
#include <warmset/observe/snapshot_page.hpp>

namespace warmset {
namespace {

template <class A, class B>
concept subtracts = requires(A const& a, B const& b) {
  a - b;
};

constexpr u32 d = static_cast<u32>(intent::demand);

geometry const model{{{layer_id{1}, 16, 2, {600, 400}}, {layer_id{3}, 16, 2, {600, 400}}}};

template <class A, class B>
bool equal(A const& a, B const& b) {
  bool same = true;
  for (u32 i = 0; i < n_counters; ++i)
    same = same && value_of(a, i) == value_of(b, i);
  return same;
}

struct my_policy : default_policy {};

/// A cache of eight slots per layer whose transfers are in flight until told otherwise.
struct played {
  cache<my_policy> subject{model, budget::of_slots(8)};

  void step(u32 layer, std::initializer_list<i32> ids, phase p = phase::decode) {
    (void)subject.step(layer_id{layer}, std::vector<i32>(ids), p);
  }
  snapshot taken() {
    snapshot s{model};
    REQUIRE(s.take(subject.observer()));
    return s;
  }
};

}  // namespace

TEST_CASE("a snapshot has every layer and phase, and is taken while transfers run") {
  played play;
  play.step(1, {1, 2, 3});
  play.step(3, {4}, phase::prefill);
  REQUIRE(play.subject.slot_counts().in_flight[d] == 4);
  snapshot const now = play.taken();
  REQUIRE(play.subject.slot_counts().in_flight[d] == 4);  // nothing was waited for
  REQUIRE(now.n_layers() == 2);
  CHECK(now.layer(0) == layer_id{1});
  CHECK(now.layer(1) == layer_id{3});
  CHECK(now.at(0, phase::decode).demanded.value == 3);
  CHECK(now.at(0, phase::prefill).demanded.value == 0);
  CHECK(now.at(1, phase::prefill).demanded.value == 1);
  CHECK(now.sum(phase::decode).demanded.value == 3);
  CHECK(now.sum().demanded.value == 4);
  CHECK(equal(now.sum(), play.subject.observer().total()));
}

TEST_CASE("snapshots subtract to what happened between them, layer by layer") {
  STATIC_CHECK(std::is_same_v<decltype(snapshot{} - snapshot{}), snapshot_delta>);
  STATIC_CHECK(!subtracts<snapshot_delta, snapshot>);
  STATIC_CHECK(!subtracts<snapshot, snapshot_delta>);
  STATIC_CHECK(!subtracts<snapshot_delta, snapshot_delta>);
  STATIC_CHECK(!std::is_convertible_v<snapshot, snapshot_delta>);

  played play;
  play.step(1, {1, 2, 3});
  snapshot const before = play.taken();
  play.step(1, {1, 9});
  play.step(3, {4, 5}, phase::prefill);
  snapshot const after = play.taken();
  snapshot_delta const between = after - before;
  CHECK(between.layer(1) == layer_id{3});
  CHECK(between.at(0, phase::decode).demanded.value == 2);
  CHECK(between.at(0, phase::decode)[access_kind::late].value == 1);
  CHECK(between.at(1, phase::prefill).demanded.value == 2);
  CHECK(between.sum().steps.value == 2);
  CHECK(equal((after - after).sum(), delta_counters{}));

  snapshot copy = before;  // a copy is its own
  copy.at(0, phase::decode).demanded.value = 77;
  CHECK(before.at(0, phase::decode).demanded.value == 3);
  copy = after;
  CHECK(equal(copy.sum(), after.sum()));
}

TEST_CASE("snapshots of other layers are refused") {
  played play;
  snapshot other{geometry::uniform(2, 16, 2, 1000)};
  snapshot one{geometry::uniform(1, 16, 2, 1000)};
  CHECK_THROWS_AS(play.taken() - other, config_error);  // layers 0 and 1 are not 1 and 3
  CHECK_THROWS_AS(play.taken() - one, config_error);
  CHECK(one.take(play.subject.observer()).why == reason::wrong_geometry);
}

TEST_CASE("a page hands whole snapshots to other threads") {
  snapshot into{model};
  snapshot_page page{model};
  CHECK(page.read(into).why == reason::unsupported);
  snapshot one{geometry::uniform(1, 16, 2, 1000)};
  CHECK(page.publish(one).why == reason::wrong_geometry);
  CHECK(page.read(one).why == reason::wrong_geometry);

  // every number of a publication is the same: a mixture shows
  std::atomic<bool> stop{false};
  u64 published = 0;
  std::thread writer{[&] {
    snapshot from{model};
    while (!stop.load()) {
      ++published;
      for (u32 i = 0; i < 2; ++i) {
        for (phase const p : {phase::prefill, phase::decode}) {
          total_counters& c = from.at(i, p);
          c.zip(c, [&](auto& mine, auto) { mine.value = published; });
        }
      }
      (void)page.publish(from);
    }
  }};
  u64 last = 0;
  u64 seen = 0;
  u64 torn = 0;
  u64 backwards = 0;
  for (u32 i = 0; seen < 2'000 && i < 100'000'000; ++i) {
    if (!page.read(into))
      continue;
    ++seen;
    u64 const value = into.at(0, phase::prefill).steps.value;
    for (u32 layer = 0; layer < 2; ++layer) {
      for (phase const p : {phase::prefill, phase::decode}) {
        total_counters& c = into.at(layer, p);
        c.zip(c, [&](auto& mine, auto) { torn += mine.value != value ? 1 : 0; });
      }
    }
    backwards += value < last ? 1 : 0;
    last = value;
  }
  stop = true;
  writer.join();
  CHECK(seen == 2'000);
  CHECK(torn == 0);
  CHECK(backwards == 0);
  CHECK(last <= published);
}

}  // namespace warmset
