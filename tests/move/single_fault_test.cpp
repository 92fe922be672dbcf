// SPDX-License-Identifier: Apache-2.0
#include "fault_scenario.hpp"
#include "worker_scenario.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdio>

#include "support/sanitizers.hpp"

using namespace warmset;
using namespace warmset_test;
using move::failure_schedule;
using move::fault_point;

namespace {

constexpr u32 n_operations = 200;
/// One fault point in so many is struck: each of them, or fewer where a sanitizer watches and a run takes thirty times as
/// long. The parts of the scripts differ; allocations are few and come first.
constexpr u64 stride = WARMSET_TEST_ASAN || WARMSET_TEST_TSAN ? 13 : 1;
constexpr bool is_struck(u64 n, u64 script) { return n < 16 || n % stride == script % stride; }
constexpr failure_schedule no_fault{};
constexpr move::host_options slow_link{
    .bytes_per_tick = 4, .latency = 2, .ticks_per_poll = 1, .large_copy = 20, .batches = true};

/// What all runs with one fault each came to.
struct sum {
  u32 injected = 0, wrong = 0, broken = 0, lost = 0, failed = 0, capacity = 0, refused = 0,
      again = 0, put_off = 0;
  u64 struck[move::n_fault_points] = {};
  u64 seen[6] = {};  ///< what the scripts came by
  u64 first_bad = u64_max;
  bool degraded = false, opened_twice = false;
};

void play_every_fault(u64 script, move::host_options const& options, sum& s) {
  fault_scenario whole{script, no_fault, options};
  fault_scenario::tally const clean = whole.play(n_operations);
  u64 const n_points = whole.driver().faults().passed();
  CHECK(clean.wrong_reads + clean.broken + clean.lost + clean.demanded_again == 0);
  CHECK(clean.refused_calls + clean.not_launched == 0);
  CHECK(clean.delivered > 200);
  CHECK(clean.late_reads > 20);
  CHECK(clean.capacity == 21);
  u64 const seen[] = {clean.overflow_steps, clean.speculated, clean.first_uses,
                      clean.declined,       clean.dropped,    clean.retired};
  for (u32 i = 0; i < 6; ++i) {
    s.seen[i] += seen[i];
  }
  u32 injected = 0, struck = 0;
  for (u64 n = 0; n < n_points; ++n) {
    if (!is_struck(n, script)) {
      continue;
    }
    ++struck;
    fault_scenario one{script, failure_schedule::nth(n), options};
    fault_scenario::tally const t = one.play(n_operations);
    injected += one.driver().faults().struck() == 1;
    for (u32 p = 0; p < move::n_fault_points; ++p) {
      s.struck[p] += one.driver().faults().struck(static_cast<fault_point>(p));
    }
    s.wrong += t.wrong_reads;
    s.broken += t.broken;
    s.lost += t.lost;
    s.failed += t.failed_demands;
    s.again += t.demanded_again;
    s.put_off += t.put_off;
    s.capacity += t.capacity != clean.capacity;
    s.refused += t.refused_calls + t.not_launched;
    s.degraded = s.degraded || t.degraded;
    s.opened_twice = s.opened_twice || t.opened_twice;
    if (t.wrong_reads + t.broken + t.lost + t.failed_demands != 0 && s.first_bad == u64_max) {
      s.first_bad = n;
    }
  }
  CHECK(injected == struck);
  s.injected += injected;
}

}  // namespace

TEST_CASE("one fault at every fault point of a scenario harms nobody", "[move]") {
  sum s;
  for (u64 script : {1u, 2u}) {
    play_every_fault(script, slow_link, s);
  }
  move::host_options staged = slow_link;
  staged.pageable_source = true;
  staged.staging_slots = 2;
  staged.staging_rate = 8;
  play_every_fault(3, staged, s);

  std::printf("single faults injected: %u", s.injected);
  for (u32 p = 0; p < move::n_fault_points; ++p) {
    std::printf("%s %s %llu", p == 0 ? ":" : ",", name_of(static_cast<fault_point>(p)),
                static_cast<unsigned long long>(s.struck[p]));
  }
  std::printf("; steps demanded a second time: %u\n", s.again);
  CAPTURE(s.first_bad);
  CHECK(s.injected > 4000 / stride);
  for (u64 n : s.struck) {
    CHECK(n != 0);
  }
  for (u64 n : s.seen) {
    CHECK(n != 0);
  }
  CHECK(s.wrong == 0);
  CHECK(s.broken == 0);
  CHECK(s.lost == 0);
  CHECK(s.put_off == 0);   // every demand got a lease
  CHECK(s.failed == 0);    // every demand is delivered, at most from scratch
  CHECK(s.capacity == 0);  // no slot is lost
  CHECK(s.refused != 0);
  CHECK(s.degraded);
  CHECK(s.opened_twice);
}

TEST_CASE("one fault at every fault point of a worker's scenario harms nobody", "[move]") {
  u32 injected = 0, renumbered = 0;
  u64 retried = 0;
  u64 struck[move::n_fault_points] = {};
  for (u64 const script : {4u, 5u}) {
    worker_scenario whole{script, no_fault, slow_link};
    worker_scenario::tally const clean = whole.play(n_operations);
    u64 const n_points = whole.driver().faults().passed();
    CAPTURE(script, n_points);
    CHECK(clean.wrong_reads + clean.broken + clean.lost + clean.renumbered == 0);
    CHECK(clean.retried == 0);
    CHECK(clean.capacity == 21);
    CHECK(clean.delivered > 200);
    CHECK(clean.reread > 50);
    for (u64 const n : {u64{clean.refused}, u64{clean.abandoned}, u64{clean.waves},
                        u64{clean.handed_over}, clean.speculated, clean.dropped}) {
      CHECK(n != 0);
    }
    for (u64 n = 0; n < n_points; ++n) {
      if (!is_struck(n, script)) {
        continue;
      }
      CAPTURE(n);
      worker_scenario one{script, failure_schedule::nth(n), slow_link};
      worker_scenario::tally const t = one.play(n_operations);
      injected += one.driver().faults().struck() == 1;
      for (u32 p = 0; p < move::n_fault_points; ++p) {
        struck[p] += one.driver().faults().struck(static_cast<fault_point>(p));
      }
      CHECK(t.wrong_reads == 0);
      CHECK(t.broken == 0);
      CHECK(t.lost == 0);  // every demand that nobody gave up is answered
      CHECK(t.capacity == 21);
      renumbered += t.renumbered;
      retried += t.retried;
    }
  }
  std::printf("single faults injected through a worker: %u", injected);
  for (u32 p = 0; p < move::n_fault_points; ++p) {
    std::printf("%s %s %llu", p == 0 ? ":" : ",", name_of(static_cast<fault_point>(p)),
                static_cast<unsigned long long>(struck[p]));
  }
  std::printf("; transfers started again: %llu\n", static_cast<unsigned long long>(retried));
  CHECK(injected > 1000 / stride);
  for (fault_point const p : {fault_point::allocate, fault_point::launch, fault_point::copy,
                              fault_point::event, fault_point::publish, fault_point::release}) {
    CAPTURE(name_of(p));
    CHECK(struck[static_cast<u32>(p)] != 0);
  }
  CHECK(retried > 1300 / stride);
  CHECK(renumbered > 100 / stride);  // what the worker has brought again is read under a number of its own
}

TEST_CASE("a worker under faults by seed: no wrong byte, nothing lost, no slot less", "[move]") {
  u64 struck = 0, retried = 0;
  for (u64 seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    u32 const chance = seed % 3 == 0 ? 300 : seed % 3 == 1 ? 3000 : 12000;
    worker_scenario s{seed, failure_schedule::random(seed, chance), slow_link};
    worker_scenario::tally const t = s.play(300);
    CHECK(t.wrong_reads == 0);
    CHECK(t.broken == 0);
    CHECK(t.lost == 0);
    CHECK(t.capacity == 21);
    struck += s.driver().faults().struck();
    retried += t.retried;
  }
  CHECK(struck > 1000);
  CHECK(retried > 1000);
}

TEST_CASE("faults by seed: no wrong byte, nothing lost, no slot less", "[move]") {
  u32 failed = 0;
  u64 struck = 0;
  for (u64 seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    u32 const chance = seed % 3 == 0 ? 300 : seed % 3 == 1 ? 3000 : 20000;
    fault_scenario s{seed, failure_schedule::random(seed, chance), slow_link};
    fault_scenario::tally const t = s.play(n_operations);
    CHECK(t.wrong_reads == 0);
    CHECK(t.broken == 0);
    CHECK(t.lost == 0);
    CHECK(t.capacity == 21);
    failed += t.failed_demands;
    struck += s.driver().faults().struck();
  }
  CHECK(failed != 0);  // typed: their words say failed
  CHECK(struck > 1000);
}

TEST_CASE("the same seed gives the same run", "[move]") {
  std::vector<u64> fingerprints;
  for (u64 seed : {7u, 8u, 9u}) {
    auto const play = [&] {
      fault_scenario s{seed, failure_schedule::random(seed, 2000), slow_link};
      return s.play(n_operations);
    };
    fault_scenario::tally const first = play();
    CHECK(first == play());
    for (u64 f : fingerprints) {
      CHECK(f != first.fingerprint);
    }
    fingerprints.push_back(first.fingerprint);
  }
}
