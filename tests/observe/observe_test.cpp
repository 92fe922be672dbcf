// SPDX-License-Identifier: Apache-2.0

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/observe/laws.hpp>
#include <warmset/observe/observer.hpp>


namespace warmset {
namespace {

template <class A, class B>
concept adds = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept takes_in = requires(A& a, B b) {
  a += b;
};
template <class A, class B>
concept compares = requires(A a, B b) {
  a == b;
};
template <class A, class B>
concept subtracts = requires(A a, B b) {
  a - b;
};

using bytes_t = amount<unit::bytes>;
using experts_t = amount<unit::experts>;
using slabs_t = amount<unit::bank_slabs>;

/// Counters as numbers, in the order of zip.
template <class Span>
std::vector<u64> numbers_of(basic_counters<Span> c) {
  std::vector<u64> all;
  c.zip(c, [&](auto& mine, auto) { all.push_back(mine.value); });
  return all;
}

constexpr u32 d = static_cast<u32>(intent::demand);
constexpr u32 s = static_cast<u32>(intent::speculative);

/// Counters of a life in which all laws hold.
total_counters sound() {
  total_counters c{};
  c.demanded.value = 28;
  for (u32 i = 0; i < n_access_kinds; ++i)
    c.accesses[i].value = 1 + i;  // 1 … 7
  c.issued[d].value = 4;
  c.arrived[d].value = 3;
  c.failed[d].value = 1;
  c.late_of_hint.value = 1;
  c.issued[s].value = 5;  // first uses 2 + late 1 + evicted 1 + failed 1
  c.arrived[s].value = 4;
  c.failed[s].value = 1;
  c.evicted_unused.value = 1;
  c.hints_offered.value = 9;
  c.hints_dropped[static_cast<u32>(reason::guard)].value = 4;
  return c;
}

}  // namespace

TEST_CASE("amounts of different units do not mix") {
  STATIC_CHECK(adds<bytes_t, bytes_t>);
  STATIC_CHECK(!adds<bytes_t, experts_t>);
  STATIC_CHECK(!adds<experts_t, slabs_t>);
  STATIC_CHECK(!takes_in<experts_t, bytes_t>);
  STATIC_CHECK(!compares<slabs_t, experts_t>);
  STATIC_CHECK(!subtracts<bytes_t, slabs_t>);
  STATIC_CHECK(!std::is_convertible_v<u64, bytes_t>);
  STATIC_CHECK(!std::is_convertible_v<bytes_t, experts_t>);
  CHECK((bytes_t{3} + bytes_t{4}).value == 7);
  CHECK((bytes_t{7} - bytes_t{4}).value == 3);
  for (char const* const name :
       {unit::experts::name, unit::bank_slabs::name, unit::bytes::name, unit::steps::name,
        unit::ids::name, unit::questions::name, unit::slots::name}) {
    CHECK(std::strlen(name) != 0);
  }
}

TEST_CASE("totals and deltas are different types") {
  STATIC_CHECK(!std::is_same_v<total_counters, delta_counters>);
  STATIC_CHECK(subtracts<total_counters, total_counters>);
  STATIC_CHECK(std::is_same_v<decltype(total_counters{} - total_counters{}), delta_counters>);
  STATIC_CHECK(takes_in<total_counters, delta_counters>);
  STATIC_CHECK(!takes_in<total_counters, total_counters>);
  STATIC_CHECK(!subtracts<delta_counters, total_counters>);
  STATIC_CHECK(!std::is_convertible_v<total_counters, delta_counters>);

  total_counters const later = sound();
  total_counters earlier{};
  earlier.demanded.value = 8;
  earlier.issued[d].value = 1;
  delta_counters const between = later - earlier;
  CHECK(between.demanded.value == 20);
  CHECK(between.issued[d].value == 3);
  total_counters again = earlier;
  again += between;
  CHECK(numbers_of(again) == numbers_of(later));
  CHECK(numbers_of(later - later) == numbers_of(delta_counters{}));
  CHECK(numbers_of(later + total_counters{}) == numbers_of(later));
  CHECK((later + later).demanded.value == 56);
}

TEST_CASE("fold takes every number of an outcome") {
  // each word of an outcome lands in at least one counter, and only there
  constexpr std::size_t n = sizeof(outcome) / sizeof(u32);
  total_counters all{};
  for (std::size_t i = 0; i < n; ++i) {
    outcome o{};
    u32 const one = 1;
    std::memcpy(reinterpret_cast<unsigned char*>(&o) + i * sizeof(u32), &one, sizeof one);
    total_counters c{};
    fold(o, 1000, 3, c);
    u64 touched = 0;
    for (u64 const number : numbers_of(c))
      touched += number != 0 ? 1 : 0;
    INFO("word " << i);
    u64 const moved = c.slabs[d].value + c.slabs[s].value + c.scratch_slabs.value;
    CHECK(touched == (moved != 0 ? 3 : 1));
    fold(o, 1000, 3, all);
  }
  for (u64 const number : numbers_of(all))
    CHECK(number != 0);
  CHECK(all.bytes[d].value == 1000);
  CHECK(all.slabs[s].value == 3);
  CHECK(all.scratch_slabs.value == 3);
  CHECK(all.scratch_bytes.value == 1000);
  CHECK(all.link_bytes().value == 3000);
}

TEST_CASE("each law is violated by a planted error") {
  REQUIRE(check_laws(sound(), {}));
  auto const broken = [](auto&& plant) {
    total_counters c = sound();
    table_counts now{};
    plant(c, now);
    return check_laws(c, now).broken;
  };
  auto const any = [](total_counters&, table_counts&) {};
  CHECK(broken(any) == law::none);
  CHECK(broken([](auto& c, auto&) { ++c.demanded.value; }) == law::L1_demand);
  CHECK(broken([](auto& c, auto&) { --c.accesses[5].value; }) == law::L1_demand);
  CHECK(broken([](auto& c, auto&) { ++c.arrived[d].value; }) == law::L2_installs);
  CHECK(broken([](auto&, auto& now) { ++now.in_flight[d]; }) == law::L2_installs);
  CHECK(broken([](auto& c, auto&) { ++c.evicted_unused.value; }) == law::L3_speculation);
  CHECK(broken([](auto& c, auto&) { ++c.late_of_hint.value; }) == law::L3_speculation);
  CHECK(broken([](auto&, auto& now) { ++now.resident_unused; }) == law::L3_speculation);
  CHECK(broken([](auto& c, auto&) { ++c.hints_offered.value; }) == law::L4_hints);
  CHECK(broken([](auto& c, auto&) { ++c.hints_dropped[7].value; }) == law::L4_hints);
  CHECK(broken([](auto& c, auto&) { ++c.late_failed.value; }) == law::L5_copies);
  CHECK(broken([](auto&, auto& now) { ++now.late_in_flight; }) == law::L5_copies);
  CHECK(broken([](auto& c, auto&) { ++c.issued[d].value; }) == law::L5_copies);
  CHECK(broken([](auto& c, auto&) { ++c.scratch_issued.value; }) == law::L6_scratch);
  CHECK(broken([](auto& c, auto&) { ++c.scratch_arrived.value; }) == law::L6_scratch);
  CHECK(broken([](auto& c, auto&) { ++c.scratch_failed.value; }) == law::L6_scratch);
  CHECK(broken([](auto&, auto& now) { ++now.scratch_in_flight; }) == law::L6_scratch);
  law_result const r = check_laws(
      [] {
        auto c = sound();
        ++c.demanded.value;
        return c;
      }(),
      {});
  CHECK(r.left == 29);
  CHECK(r.right == 28);
  for (u32 i = 0; i < 7; ++i)
    CHECK(std::strlen(name_of(static_cast<law>(i))) != 0);
}

TEST_CASE("the counting observer keeps layers and phases apart") {
  observe::counting o;
  o.open(geometry{{{layer_id{2}, 8, 2, {100, 20}}, {layer_id{5}, 8, 2, {300}}}});
  for (int i = 0; i < 10'000; ++i) {  // past the period of folding
    ++o.record(0, phase::prefill).arrived[d];
    o.close(0, phase::prefill);
  }
  o.record(1, phase::decode).arrived[s] = 2;
  o.close(1, phase::decode);
  CHECK(o.total(0, phase::prefill).arrived[d].value == 10'000);
  CHECK(o.total(0, phase::prefill).bytes[d].value == 1'200'000);
  CHECK(o.total(0, phase::prefill).slabs[d].value == 20'000);
  CHECK(numbers_of(o.total(0, phase::decode)) == numbers_of(total_counters{}));
  CHECK(o.total(1, phase::decode).bytes[s].value == 600);
  CHECK(o.total(phase::decode).arrived[d].value == 0);
  CHECK(o.total().bytes[d].value == 1'200'000);
  CHECK(o.total().bytes[s].value == 600);
  CHECK(o.total().slabs[s].value == 2);
}

TEST_CASE("rates are of demand alone") {
  CHECK(total_counters{}.hit_rate() == 0.0);
  total_counters const c = sound();
  CHECK(c.hits().value == 1 + 2 + 6);
  CHECK(c.hit_rate() == 9.0 / 28.0);
  CHECK(c.used().value == 3);
}

}  // namespace warmset
