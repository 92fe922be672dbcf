// SPDX-License-Identifier: Apache-2.0

#include <cstring>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/observe/phase_table.hpp>

#include "scenario/play.hpp"

namespace warmset {
namespace {

u64 sum_of(phase_times const& t) {
  u64 sum = 0;
  for (amount<unit::nanoseconds> const row : t.rows)
    sum += row.value;
  return sum;
}

/// Nanosecond by nanosecond.
phase_times recount(u64 begin, u64 end, std::vector<time_span> const& spans) {
  phase_times t{};
  for (u64 now = begin; now < end; ++now) {
    u32 row = static_cast<u32>(time_row::rest);
    for (time_span const& s : spans) {
      if (s.begin <= now && now < s.end)
        row = min_of(row, static_cast<u32>(s.row));
    }
    ++t.rows[row].value;
    ++t.step.value;
  }
  return t;
}

bool equal(phase_times const& a, phase_times const& b) {
  for (u32 r = 0; r < n_time_rows; ++r) {
    if (!(a.rows[r] == b.rows[r]))
      return false;
  }
  return a.step == b.step;
}

}  // namespace

TEST_CASE("rows of the phase table sum to the step") {
  phase_table table{8};
  std::vector<time_span> const spans{{time_row::attention, 10, 30},
                                     {time_row::dense, 30, 40},
                                     {time_row::copies, 20, 60},
                                     {time_row::experts, 55, 80}};
  REQUIRE(table.add_step(0, 100, spans));
  phase_times const& t = table.last();
  CHECK(t[time_row::attention].value == 20);
  CHECK(t[time_row::dense].value == 10);
  CHECK(t[time_row::copies].value == 15);  // 40 … 55: the rest is hidden
  CHECK(t[time_row::experts].value == 25);
  CHECK(t[time_row::rest].value == 30);
  CHECK(sum_of(t) == 100);
  REQUIRE(table.add_step(1000, 1010, {}));
  CHECK(table.last()[time_row::rest].value == 10);
  CHECK(table.steps().value == 2);
  CHECK(table.sum().step.value == 110);
  CHECK(sum_of(table.sum()) == 110);
}

TEST_CASE("the phase table agrees with a recount of every nanosecond") {
  scenario::dice dice{7};
  phase_table table{12};
  u64 steps = 0;
  for (u32 round = 0; round < 2'000; ++round) {
    u64 const begin = dice.below(50);
    u64 const end = begin + dice.below(120);
    std::vector<time_span> spans(dice.below(13));
    for (time_span& s : spans) {
      s.row = static_cast<time_row>(dice.below(n_time_rows - 1));
      s.begin = dice.below(150);
      s.end = s.begin + dice.below(60);
    }
    REQUIRE(table.add_step(begin, end, spans));
    REQUIRE(equal(table.last(), recount(begin, end, spans)));
    REQUIRE(sum_of(table.last()) == end - begin);
    steps += end - begin;
  }
  CHECK(table.sum().step.value == steps);
  CHECK(sum_of(table.sum()) == steps);
}

TEST_CASE("what the phase table cannot attribute is refused and not added") {
  CHECK_THROWS_AS(phase_table{0}, config_error);
  phase_table table{1};
  std::vector<time_span> const two(2, time_span{time_row::dense, 0, 1});
  CHECK(table.add_step(0, 10, two).why == reason::limited);
  CHECK(table.add_step(10, 0, {}).why == reason::out_of_range);
  std::vector<time_span> const backwards{{time_row::dense, 5, 4}};
  CHECK(table.add_step(0, 10, backwards).why == reason::out_of_range);
  std::vector<time_span> const rest{{time_row::rest, 0, 4}};
  CHECK(table.add_step(0, 10, rest).why == reason::out_of_range);
  CHECK(table.steps().value == 0);
  CHECK(table.sum().step.value == 0);
}

TEST_CASE("where events cannot be recorded the phase table switches itself off with one note") {
  phase_table table{4};
  REQUIRE(table.add_step(0, 10, {}));
  CHECK(table.on());
  CHECK(table.note() == nullptr);
  table.switch_off("the stream is captured");
  table.switch_off("another note");
  CHECK(!table.on());
  CHECK(std::strcmp(table.note(), "the stream is captured") == 0);
  CHECK(table.add_step(0, 10, {}).why == reason::unsupported);
  CHECK(table.steps().value == 1);
}

}  // namespace warmset
