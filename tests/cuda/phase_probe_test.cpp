// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <vector>

#include <warmset/cuda/phase_probe.hpp>
#include <warmset/observe/phase_table.hpp>

using namespace warmset;

namespace {

/// Streams without a device: events have the time of a clock that the test sets, and come when it says so.
struct stage {
  u64 now = 1000;
  bool come = true;
  bool captured = false;
  u64 calls = 0;
  u64 fails = u64_max;  ///< the call that does
  std::vector<u64> recorded;
  u32 live = 0;
};

struct stage_runtime {
  using event = u32;
  using stream = u32;
  stage* of;

  bool fails() noexcept { return of->calls++ >= of->fails; }
  cuda::call_result told() noexcept { return fails() ? cuda::call_result{reason::device_error, 1} : cuda::call_result{}; }
  cuda::call_result make_timed_event(event& e) noexcept {
    if (fails()) {
      return {reason::device_error, 1};
    }
    e = static_cast<u32>(of->recorded.size());
    of->recorded.push_back(0);
    ++of->live;
    return {};
  }
  cuda::call_result destroy_event(event) noexcept { return --of->live, cuda::call_result{}; }
  cuda::call_result record_timed(event e, stream) noexcept { return of->recorded[e] = of->now, told(); }
  cuda::call_result is_captured(stream, bool& captured) noexcept { return captured = of->captured, told(); }
  cuda::call_result query(event) noexcept {
    cuda::call_result const r = told();
    return r && !of->come ? cuda::call_result{reason::busy, 600} : r;
  }
  cuda::call_result elapsed(u64& ns, event from, event to) noexcept {
    return ns = of->recorded[to] - of->recorded[from], told();
  }
};

using probe = cuda::basic_phase_probe<stage_runtime, time_span>;

/// 100 ns: attention 20, experts 50 with a copy of 40 of which 10 stick out, rest 20.
cuda::call_result play(probe& p, stage& s) {
  cuda::call_result r = p.begin_step(0);
  u64 const t = s.now;
  auto const at = [&](u64 ns, auto&& f) {
    s.now = t + ns;
    cuda::call_result const now = f();
    r = r ? now : r;
  };
  at(0, [&] { return p.begin(0, time_row::attention); });
  at(20, [&] { return p.end(0, time_row::attention); });
  at(20, [&] { return p.begin(0, time_row::experts); });
  at(40, [&] { return p.begin(1, time_row::copies); });
  at(70, [&] { return p.end(0, time_row::experts); });
  at(80, [&] { return p.end(1, time_row::copies); });
  at(90, [&] { return p.begin(0, time_row::dense); });  // never ends
  at(100, [&] { return p.end_step(0); });
  return r;
}

}  // namespace

TEST_CASE("the phase probe hands what events say to the table", "[cuda]") {
  stage s;
  phase_table table{4};
  {
    probe p{4, 2, stage_runtime{&s}};
    CHECK(s.live == 2 * (2 * 4 + 2));
    REQUIRE(play(p, s));
    CHECK(p.collect(table) == 1);
    CHECK(table.last()[time_row::attention].value == 20);
    CHECK(table.last()[time_row::experts].value == 50);
    CHECK(table.last()[time_row::copies].value == 10);
    CHECK(table.last()[time_row::dense].value == 0);
    CHECK(table.last()[time_row::rest].value == 20);
    CHECK(table.last().step.value == 100);

    s.come = false;
    REQUIRE(play(p, s));
    CHECK(p.collect(table) == 0);
    REQUIRE(play(p, s));
    CHECK(p.begin_step(0).why == reason::busy);  // two are under way
    s.come = true;
    CHECK(p.collect(table) == 2);
    CHECK(table.steps().value == 3);
    CHECK(table.sum().step.value == 300);

    REQUIRE(p.begin_step(0));
    for (u32 i = 0; i < 4; ++i) {
      REQUIRE(p.begin(0, time_row::dense));
    }
    CHECK(p.begin(0, time_row::dense).why == reason::limited);
    CHECK(p.end(0, time_row::experts).why == reason::busy);  // none has begun
    REQUIRE(p.end_step(0));
    CHECK(p.end_step(0).why == reason::busy);
    CHECK(table.on());
  }
  CHECK(s.live == 0);
}

TEST_CASE("a captured step is taken in once for every launch", "[cuda]") {
  stage s;
  phase_table table{4};
  probe p{4, 2, stage_runtime{&s}};
  s.captured = true;
  REQUIRE(play(p, s));
  CHECK(p.collect(table) == 0);
  for (u32 i = 1; i < 4; ++i) {
    p.launched();
    CHECK(p.collect(table) == 1);
    CHECK(p.collect(table) == 0);
    CHECK(table.steps().value == i);
  }
  CHECK(p.begin_step(0).why == reason::busy);
}

TEST_CASE("the phase probe switches the table off at the first call that fails", "[cuda]") {
  u64 n = 0;
  u32 notes = 0;
  for (bool over = false; !over; ++n) {
    REQUIRE(n < 200);
    CAPTURE(n);
    stage s;
    s.fails = n;
    phase_table table{4};
    {
      probe p{4, 1, stage_runtime{&s}};
      (void)play(p, s);
      (void)p.collect(table);
      over = s.calls <= n;
      CHECK(table.on() == over);
      CHECK((table.note() == nullptr) == over);
      CHECK(table.steps().value == (over ? 1 : 0));
      notes += table.note() != nullptr ? 1 : 0;
      if (!over) {
        u64 const before = s.calls;
        CHECK(p.begin_step(0).why == reason::unsupported);
        CHECK(p.begin(0, time_row::dense).why == reason::unsupported);
        CHECK(p.end(0, time_row::dense).why == reason::unsupported);
        CHECK(p.end_step(0).why == reason::unsupported);
        CHECK(p.collect(table) == 0);
        CHECK(s.calls == before);
      }
    }
    CHECK(s.live == 0);
  }
  CHECK(notes > 25);
  CHECK_THROWS_AS((probe{0, 1, stage_runtime{nullptr}}), config_error);
}
