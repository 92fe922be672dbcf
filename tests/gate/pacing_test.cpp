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

TEST_CASE("pacing: samples are taken eight times in a row, and then at each eighth step that wants one", "[gate][pacing]") {
  pacing p;
  u32 taken = 0;
  for (u32 i = 1; i <= 80; ++i) {
    CHECK_FALSE(p.ask(false));  // does not count
    bool const ahead = p.ask(true);
    CHECK(ahead == (i <= 8 || i % 8 == 0));
    taken += ahead ? 1 : 0;
    p.took(1000);
  }
  CHECK(taken == 17);
  CHECK(p.clock().trials() == 0);
  CHECK_FALSE(p.is_lost());
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
