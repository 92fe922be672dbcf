// SPDX-License-Identifier: Apache-2.0
// Bytes against budgets: exact, once, per device.

#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/cache.hpp>
#include <warmset/gate/authority.hpp>
#include <warmset/gate/reservation.hpp>
#include <warmset/table/bundles.hpp>

#include "support/errors.hpp"

namespace warmset::gate {
namespace {

/// Two geometries, three banks, and layers of different numbers of experts.
geometry mixed() {
  return geometry{{{layer_id{3}, 16, 2, {100, 50}},
                   {layer_id{4}, 8, 4, {400}},
                   {layer_id{5}, 12, 2, {100, 50}}}};
}

using warmset_test::error_of;
using warmset_test::mentions;

}  // namespace

TEST_CASE("pool bytes are those of the banks of a cache") {
  for (u32 slots = 1; slots <= 20; ++slots) {
    for (u64 const tail : {u64{0}, u64{1}, u64{64}, u64{4096}}) {
      for (u32 const scratch : {0u, 7u}) {
        tuning numbers{};
        numbers.scratch_slots = scratch;
        cache<> own{mixed(), budget::of_slots(slots), numbers, move::external{tail}};
        CHECK(pool_bytes(mixed(), {.scratch_slots = scratch, .tail_bytes = tail}).of(slots) ==
              own.effective_budget().effective_bytes);
        if (slots >= 4) {  // floors
          cache<bundles::shared<default_policy>> shared{mixed(), budget::of_slots(slots), numbers,
                                                        move::external{tail}};
          CHECK(pool_bytes(mixed(), {.scratch_slots = scratch, .tail_bytes = tail, .shared = true})
                    .of(slots) == shared.effective_budget().effective_bytes);
        }
      }
    }
  }
  CHECK(pool_bytes(mixed(), {}).most_slots() == 16);
  CHECK(pool_bytes(geometry::uniform(2, 8, 2, 64), {.tail_bytes = u64_max}).of(8) == u64_max);  // saturates
  CHECK(pool_bytes(geometry::uniform(2, 8, 2, 63), {.alignment = 0}).of(8) ==
        pool_bytes(geometry::uniform(2, 8, 2, 63), {.alignment = 1}).of(8));
}

TEST_CASE("the largest number of slots is exact") {
  pool_bytes const bytes{mixed(), {.tail_bytes = 10}};
  for (u32 slots = 1; slots <= 16; ++slots) {
    CHECK(bytes.largest(bytes.of(slots)) >= slots);
    if (bytes.of(slots) != bytes.of(slots - 1)) {
      CHECK(bytes.largest(bytes.of(slots) - 1) < slots);
    }
  }
  CHECK(bytes.largest(bytes.of(1) - 1) == 0);
  CHECK(bytes.largest(u64_max) == 16);
}

TEST_CASE("a ledger keeps devices and owners apart") {
  device_budget const devices[] = {{1000, 100}, {500, 0}, {}};
  ledger l{devices, 3};
  CHECK(l.left(0) == 900);
  CHECK(l.left(1) == 500);
  CHECK(!l.is_known(2));
  CHECK(l.take({0, 0}, 901).why == reason::over_budget);
  REQUIRE(l.take({0, 0}, 900));
  CHECK(l.take({0, 0}, 0).why == reason::in_use);
  CHECK(l.take({1, 0}, 1).why == reason::over_budget);
  REQUIRE(l.take({1, 1}, 500));
  CHECK(l.take({0, 3}, 1).why == reason::wrong_device);
  REQUIRE(l.take({0, 2}, u64{1} << 60));  // nobody knows its bytes, so nobody refuses
  CHECK(l.take({1, 2}, 1).why == reason::limited);
  l.give_back({0, 0});
  CHECK(!l.has({0, 0}));
  CHECK(l.has({1, 1}));
  CHECK(l.left(0) == 900);
  CHECK(l.left(1) == 0);
  device_budget const small[] = {{10, 20}};
  CHECK(ledger{small}.left(0) == 0);
  CHECK_THROWS_AS((ledger{array_view<device_budget const>{}}), config_error);
}

TEST_CASE("a reservation takes every device or none") {
  geometry const model = geometry::uniform(4, 16, 2, 1000);
  u64 const six = pool_bytes(model, {}).of(6);
  device_budget const devices[] = {{six, 0}, {six - 1, 0}};
  ledger l{devices};
  device_share const shares[] = {{0, &model, size_request::of_slots(6)},
                                 {1, &model, size_request::of_slots(6)}};
  {
    reservation r{l, 0, shares};
    CHECK(!r.holds());
    REQUIRE(r.short_of() != nullptr);
    CHECK(r.short_of()->device == 1);
    CHECK(r.short_of()->why == reason::over_budget);
    CHECK(r.short_of()->requested == six);
    CHECK(r.short_of()->available == six - 1);
    CHECK(r.short_of()->effective == 0);
    CHECK(l.reserved(0) == 0);
  }
  {
    reservation r{l, 0, shares, reservation_terms{.when_short = shortage::largest}};
    CHECK(r.holds());
    CHECK(r.reports()[0].slots == 6);
    CHECK(r.reports()[0].is_as_requested());
    CHECK(r.reports()[1].slots == 5);
    CHECK(r.reports()[1].why == reason::over_budget);
    CHECK(l.reserved(1) == pool_bytes(model, {}).of(5));
    reservation second{l, 0, shares,
                       reservation_terms{.when_short = shortage::largest}};  // the same owner again
    CHECK(!second.holds());
    CHECK(second.short_of()->why == reason::in_use);
    CHECK(l.has({0, 0}));
  }
  CHECK(l.reserved(0) == 0);
  {
    reservation r{l, 0, shares, reservation_terms{.when_short = shortage::baseline}};
    CHECK(r.holds());
    CHECK(r.reports()[1].slots == 0);
    CHECK(!l.has({0, 1}));
  }
}

TEST_CASE("sizes that come to nothing do not pass in silence") {
  geometry const model = geometry::uniform(4, 16, 2, 1000);
  u64 const one = pool_bytes(model, {}).of(1);
  device_budget const devices[] = {{one - 1, 0}, {}, {u64{1} << 30, 0}};
  ledger l{devices};
  auto const attempt = [&](u32 device, size_request size, shortage when = shortage::refuse) {
    device_share const share[] = {{device, &model, size}};
    return error_of([&] { reservation r{l, 0, share, reservation_terms{.when_short = when}}; });
  };
  CHECK(mentions(attempt(1, size_request::automatic()), "device 1"));
  CHECK(mentions(attempt(0, size_request::automatic()), "0 slots per layer"));
  CHECK(mentions(attempt(0, size_request::automatic()), std::to_string(one)));
  CHECK(mentions(attempt(2, size_request::of_bytes(one - 1)), "0 slots per layer"));
  CHECK(mentions(attempt(2, size_request::of_slots(0)), "0 slots per layer"));
  CHECK(mentions(attempt(0, size_request::of_slots(1), shortage::largest), "bytes left"));
  CHECK(attempt(0, size_request::of_slots(1)).empty());  // a typed refusal
  CHECK(attempt(2, size_request::automatic()).empty());
}

TEST_CASE("what a request is cut to is named") {
  geometry const model = geometry::uniform(4, 16, 2, 1000);
  device_budget const devices[] = {{u64{1} << 30, 0}};
  ledger l{devices};
  auto const report_of = [&](size_request size, u64 min_expert = 0, u32 device = 0) {
    device_share const share[] = {{device, &model, size}};
    reservation r{l, 0, share, reservation_terms{.min_expert_bytes = min_expert}};
    return r.reports()[0];
  };
  CHECK(report_of(size_request::of_slots(17)).why == reason::limited);  // there are 16 experts
  CHECK(report_of(size_request::of_slots(16)).why == reason::none);
  CHECK(report_of(size_request::of_bytes(u64{1} << 29)).why == reason::limited);
  CHECK(report_of(size_request::automatic()).why == reason::none);
  CHECK(report_of(size_request::automatic()).slots == 16);
  CHECK(report_of(size_request{}).why == reason::unsupported);
  CHECK(report_of(size_request::of_slots(1), 1001).why == reason::below_minimum);
  CHECK(report_of(size_request::of_slots(1), 0, 1).why == reason::wrong_device);
  u64 const three = pool_bytes(model, {}).of(3);
  device_report const r = report_of(size_request::of_bytes(three + 3999));
  CHECK(r.slots == 3);
  CHECK(r.effective == three);
  CHECK(r.is_as_requested());
  std::string const text = describe(r).c_str();
  CHECK(mentions(text, "device 0"));
  CHECK(mentions(text, std::to_string(three)));
  CHECK(mentions(text, "3 slots"));
}

TEST_CASE("a reservation in use is not released") {
  geometry const model = geometry::uniform(4, 16, 2, 1000);
  device_budget const devices[] = {{u64{1} << 30, 0}};
  ledger l{devices};
  device_share const share[] = {{0, &model, size_request::of_slots(2)}};
  reservation r{l, 0, share};
  REQUIRE(r.users().hold());
  CHECK(r.release().why == reason::in_use);
  CHECK(l.has({0, 0}));
  r.users().let_go();
  CHECK(r.release());
  CHECK(!l.has({0, 0}));
  CHECK(!r.holds());
  CHECK(r.users().hold().why == reason::no_memory);
}

TEST_CASE("a reservation that ends before its users keeps its bytes") {
  static references* users = nullptr;  // what stays for good is not lost
  geometry const model = geometry::uniform(4, 16, 2, 1000);
  device_budget const devices[] = {{u64{1} << 30, 0}};
  ledger l{devices};
  device_share const share[] = {{0, &model, size_request::of_slots(2)}};
  authority groups{1};
  {
    reservation r{l, 0, share};
    users = &r.users();
    REQUIRE(groups.publish(0, holder::host, *users));
  }
  CHECK(l.has({0, 0}));
  CHECK(l.reserved(0) == pool_bytes(model, {}).of(2));
  reservation again{l, 0, share};  // nobody gets what is in use
  CHECK(again.short_of()->why == reason::in_use);
  CHECK(users->count() == 1);
  REQUIRE(groups.withdraw(0));  // and the user still has what it refers to
  CHECK(users->count() == 0);
  {
    reservation r{l, 1, share};
    CHECK(l.has({1, 0}));
  }
  CHECK(!l.has({1, 0}));
}

}  // namespace warmset::gate
