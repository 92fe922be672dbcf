// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <random>

#include <warmset/gate/race.hpp>

using namespace warmset;
using gate::race;
using gate::race_verdict;

namespace {

/// Steps taken the way with, of `n` that all want it.
u32 taken_with(race& r, u32 n, u64 without_ns, u64 with_ns) {
  u32 with = 0;
  for (u32 i = 0; i < n; ++i) {
    bool const is_with = r.ask(true);
    with += is_with ? 1 : 0;
    r.took(is_with ? with_ns : without_ns);
  }
  return with;
}

}  // namespace

constexpr u32 shortest_trial = 9 * 12;  // four laps with, five without
constexpr u32 longest_trial = 21 * 12;

TEST_CASE("race: the way with is taken where it is faster", "[gate][race]") {
  race r;
  CHECK(taken_with(r, shortest_trial, 1000, 990) == 48);
  CHECK(r.trials() == 1);
  CHECK(r.verdict() == race_verdict::faster);
  CHECK(taken_with(r, 1024, 1000, 990) == 1024);
  CHECK(r.is_trying());  // and is tried again now and then
  CHECK(taken_with(r, shortest_trial, 1000, 1010) == 48);
  CHECK(r.verdict() == race_verdict::slower);
}

TEST_CASE("race: what is slower costs 48 steps in a thousand, and ever fewer", "[gate][race]") {
  race r;
  u32 const with = taken_with(r, 100'000, 1000, 1020);
  CHECK(with <= 48 * 12);
  CHECK(r.trials() >= 8);
  CHECK(r.verdict() == race_verdict::slower);
  CHECK(taken_with(r, 2 * 16'384 + 100, 1000, 700) > 15'000);  // it is found out in the end
  CHECK(r.verdict() == race_verdict::faster);
}

TEST_CASE("race: what makes no difference is left to who wants it", "[gate][race]") {
  race r;
  CHECK(taken_with(r, longest_trial, 1000, 1000) == 120);
  CHECK(r.verdict() == race_verdict::faster);
  CHECK(taken_with(r, 512, 1000, 1000) == 512);
}

TEST_CASE("race: what a way leaves to the next steps of the other one is no merit", "[gate][race]") {
  for (bool const with_is_better : {false, true}) {
    race r;
    u32 since = 100;  // steps since one with
    while (r.is_trying()) {
      bool const is_with = r.ask(true);
      // a step with is cheaper by itself, and the four after it pay for what it has evicted, whoever takes them
      u64 const debt = since < 4 ? (with_is_better ? 20u : 400u) : 0u;
      r.took(10'000 - (is_with ? 100u : 0u) + debt);
      since = is_with ? 0 : since + 1;
    }
    CHECK(r.verdict() == (with_is_better ? race_verdict::faster : race_verdict::slower));
  }
}

TEST_CASE("race: a drift decides nothing, and disturbed steps only delay", "[gate][race]") {
  for (i64 const gain : {-600, 600}) {
    race r;
    std::mt19937 random(7);
    for (i64 i = 0; r.is_trying(); ++i) {
      bool const is_with = r.ask(true);
      i64 const disturbed = random() % 20 == 0 ? 3'000 : static_cast<i64>(random() % 100);
      r.took(static_cast<u64>(50'000 - 100 * i - (is_with ? gain : 0) + disturbed));
    }
    CHECK(r.verdict() == (gain > 0 ? race_verdict::faster : race_verdict::slower));
  }
}

TEST_CASE("race: one step that takes a second decides nothing", "[gate][race]") {
  for (u32 disturbed = 0; disturbed < shortest_trial; ++disturbed) {
    race r;
    for (u32 i = 0; r.is_trying(); ++i) {
      bool const is_with = r.ask(true);
      r.took(i == disturbed ? 1'000'000'000 : is_with ? 1'050'000 : 1'000'000);
    }
    CHECK(r.verdict() == race_verdict::slower);
  }
}

TEST_CASE("race: steps of which one in fifty takes ten times as long", "[gate][race]") {
  std::mt19937 random(5);
  u32 wrong = 0;
  for (u32 i = 0; i < 500; ++i) {
    race r;
    bool const is_slower = i % 2 == 0;
    while (r.is_trying()) {
      bool const is_with = r.ask(true);
      r.took((is_with ? (is_slower ? 10'500u : 9'500u) : 10'000u) * (random() % 50 == 0 ? 10u : 1u));
    }
    wrong += (r.verdict() == race_verdict::slower) != is_slower ? 1 : 0;
  }
  CHECK(wrong <= 10);
}

TEST_CASE("race: an interrupted lap begins again", "[gate][race]") {
  race r;
  for (u32 i = 0; i < 100; ++i) {
    CHECK(taken_with(r, 11, 1000, 900) == 0);  // a step less than a lap
    r.interrupt();
  }
  CHECK(r.is_trying());
  CHECK(taken_with(r, shortest_trial, 1000, 900) == 48);
  CHECK(r.verdict() == race_verdict::faster);
}

TEST_CASE("race: noise of a tenth hides a difference of a twentieth twice in a hundred times at most", "[gate][race]") {
  std::mt19937 random(11);
  std::normal_distribution<double> noise(0, 1000);
  u32 wrong = 0;
  for (u32 i = 0; i < 1000; ++i) {
    race r;
    while (r.is_trying()) {
      bool const is_with = r.ask(true);
      r.took(static_cast<u64>(std::max(1.0, (is_with ? 10'500 : 10'000) + noise(random))));
    }
    wrong += r.verdict() == race_verdict::faster ? 1 : 0;
  }
  CHECK(wrong <= 20);
}

TEST_CASE("race: steps at which nobody wants the way with do not count", "[gate][race]") {
  race r;
  std::mt19937 random(3);
  u32 wanted = 0;
  while (r.is_trying()) {
    bool const wants = random() % 2 == 0;
    wanted += wants ? 1 : 0;
    bool const is_with = r.ask(wants);
    CHECK((wants || !is_with));
    r.took(is_with ? 5 : wants ? 10 : 1);  // what is not wanted is faster still
    r.took(1'000'000);  // told twice: the second is of no step
  }
  CHECK(wanted == shortest_trial);
  CHECK(r.verdict() == race_verdict::faster);
}

TEST_CASE("race: the longest and shortest times there are", "[gate][race]") {
  race r;
  CHECK(taken_with(r, shortest_trial, u64_max, 1) == 48);
  CHECK(r.verdict() == race_verdict::faster);
  r.reset();
  CHECK(r.trials() == 0);
  CHECK(r.verdict() == race_verdict::none);
  CHECK(taken_with(r, shortest_trial, 0, u64_max) == 48);
  CHECK(r.verdict() == race_verdict::slower);
  race longest({.lap_steps = 32, .settling_steps = 0, .least_pairs = 256, .most_pairs = 256});
  CHECK(taken_with(longest, 513 * 32, 0, u64_max) == 256 * 32);
  CHECK(longest.verdict() == race_verdict::slower);
}

TEST_CASE("race: numbers that cannot work are refused", "[gate][race]") {
  CHECK_THROWS_AS(race({.lap_steps = 37}), config_error);  // 33 that are timed
  CHECK_THROWS_AS(race({.lap_steps = 4}), config_error);   // none
  CHECK_THROWS_AS(race({.lap_steps = 0, .settling_steps = 0}), config_error);
  CHECK_THROWS_AS(race({.least_pairs = 1}), config_error);
  CHECK_THROWS_AS(race({.least_pairs = 5, .most_pairs = 4}), config_error);
  CHECK_THROWS_AS(race({.most_pairs = 257}), config_error);
  CHECK_THROWS_AS(race({.rest_steps = 0}), config_error);
  CHECK_THROWS_AS(race({.rest_steps = 9, .most_rest_steps = 8}), config_error);
}
