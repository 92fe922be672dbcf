// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <warmset/gate/pacing.hpp>

using namespace warmset;
using gate::governor_state;
using gate::pacing;
using gate::race_verdict;

namespace {

/// Judges enough used hints that the governor opens.
void open(pacing& p) {
  for (u32 i = 0; i < 40 && p.bytes().state() != governor_state::open; ++i) {
    (void)p.bytes().ask(phase::decode, u64_max, 1);
    p.judge(1, 0, 0);
  }
  REQUIRE(p.bytes().state() == governor_state::open);
}

}  // namespace

TEST_CASE("pacing: samples are taken eight times in a row, and then in each eighth step where they cost nothing", "[gate][pacing]") {
  pacing p;
  u32 taken = 0;
  for (u32 i = 1; i <= 80; ++i) {
    bool const ahead = p.ask(true);
    CHECK(ahead == (i <= 8 || i % 8 == 0));
    taken += ahead ? 1 : 0;
    p.took(1000);
  }
  CHECK(taken == 17);
  CHECK(p.clock().trials() == 0);
  CHECK_FALSE(p.is_lost());
  for (u32 i = 0; i < 20; ++i) {
    CHECK_FALSE(p.ask(false));
    p.took(1000);
  }
  CHECK(p.ask(true));  // the last one is long ago
}

TEST_CASE("pacing: samples cost 1/200 of the time at most, whatever one costs", "[gate][pacing]") {
  for (u64 const with_ns : {1010u, 1100u, 1250u, 2000u, 3900u, 100'000u}) {
    CAPTURE(with_ns);
    pacing p;
    u64 extra = 0;
    u64 all = 0;
    u32 taken = 0;
    constexpr u32 first = 100;
    constexpr u32 steps = 100'000;
    for (u32 i = 0; i < steps; ++i) {
      bool const ahead = p.ask(i % 3 != 0);
      u64 const noise = i * 7919 % 50;  // 5 %
      u64 const ns = (ahead ? with_ns : 1000) + noise;
      p.took(ns);
      if (i >= first) {
        all += ns;
        extra += ahead ? with_ns - 1000 : 0;
        taken += ahead ? 1 : 0;
      }
    }
    CHECK(taken >= steps / 1100);  // it goes on, since what hints are worth changes
    if (with_ns <= 4000) {
      CHECK(extra * 200 <= all);
    }
  }
}

TEST_CASE("pacing: a budget goes down at once, up after eight steps that permit it, and by powers of two", "[gate][pacing]") {
  pacing p;
  CHECK(p.budget(6, 16) == 4);  // the first one at once
  for (u32 i = 0; i < 7; ++i) {
    CHECK(p.budget(u64_max, 16) == 4);
  }
  CHECK(p.budget(4, 16) == 4);  // not in a row
  for (u32 i = 0; i < 7; ++i) {
    CHECK(p.budget(20, 16) == 4);
  }
  CHECK(p.budget(20, 16) == 16);
  CHECK(p.budget(3, 16) == 2);
  CHECK(p.budget(0, 16) == 0);
  CHECK(p.budget(11, 11) == 11);  // all that there can be, whatever the number
  p.interrupt();
  CHECK(p.budget(8, 11) == 8);
}

TEST_CASE("pacing: one slow sample does not keep the others away", "[gate][pacing]") {
  pacing p;
  for (u32 i = 0; i < 2; ++i) {
    p.took(p.ask(true) ? 50'000'000 : 1000);  // the first one captures a graph
  }
  u32 taken = 0;
  for (u32 i = 0; i < 200; ++i) {
    taken += p.ask(true) ? 1 : 0;
    p.took(1000);
  }
  CHECK(taken >= 20);
}

TEST_CASE("pacing: an open governor's steps are raced, and what is slower is lost", "[gate][pacing]") {
  for (u64 const with_ns : {900u, 1100u}) {
    pacing p;
    open(p);
    for (u32 i = 0; i < 9 * 12; ++i) {
      bool const ahead = p.ask(true);
      CHECK_FALSE(p.is_lost());  // a trial
      p.took(ahead ? with_ns : 1000);
    }
    CHECK(p.clock().verdict() == (with_ns < 1000 ? race_verdict::faster : race_verdict::slower));
    bool const ahead = p.ask(true);
    CHECK(ahead == (with_ns < 1000));
    CHECK(p.is_lost());  // no trial any more: what does not look ahead now would be slower with
  }
}

TEST_CASE("pacing: a trial tells the governor of no regrets", "[gate][pacing]") {
  pacing trying;
  open(trying);
  (void)trying.ask(true);
  u32 const before = trying.bytes().precision();
  trying.judge(0, 0, 20);
  CHECK(trying.bytes().precision() == before);
  trying.judge(0, 4, 20);
  CHECK(trying.bytes().precision() < before);  // waste it is told of

  pacing settled;
  open(settled);
  for (u32 i = 0; i < 9 * 12; ++i) {
    settled.took(settled.ask(true) ? 900 : 1000);
  }
  (void)settled.ask(true);
  u32 const after = settled.bytes().precision();
  settled.judge(0, 0, 20);
  CHECK(settled.bytes().precision() < after);
}
