// SPDX-License-Identifier: Apache-2.0
// Who may: budgets, authority, certificates, contexts.

#include <string>
#include <vector>

#include <warmset/gate/reservation.hpp>
#include <warmset/observe/health_facts.hpp>

#include "gate/gated_cache.hpp"
#include "support/errors.hpp"

namespace warmset::scenario {
namespace {

using namespace warmset::gate;

constexpr u64 mib = u64{1} << 20;

using warmset_test::error_of;
using warmset_test::mentions;

template <class Cache>
u64 dropped(Cache& c, reason why) {
  return c.observer().total().hints_dropped[static_cast<u32>(why)].value;
}

/// A model's cache, its memory and its groups.
struct served {
  geometry model;
  references memory;
  authority groups;
  fallback_counts fallbacks;
  gated_cache c;
  other_side device;
  virtual_clock clock;

  served(u32 n_layers, u32 slots, geometry const& g)
      : model(g), groups(n_layers), fallbacks(n_layers),
        c(make_cache(model, budget::of_slots(slots), host_gate{groups, 0, &fallbacks})), device(c) {
  }
  explicit served(u32 n_layers, u32 slots = 4)
      : served(n_layers, slots, geometry::uniform(n_layers, 16, 2, 100)) {}
  void publish(holder who) {
    for (u32 g = 0; g < groups.size(); ++g) {
      REQUIRE(groups.publish(g, who, memory));
    }
  }
  /// A step of each layer, counted as its group answered.
  tally step_all() {
    tally t;
    for (u32 layer = 0; layer < groups.size(); ++layer) {
      step_view const v = c.step(layer_id{layer}, id_list{1, 2});
      if (v.kind == plan_kind::refused) {
        t.add(refused{v.why, layer, groups.look(layer).epoch, is_retryable(v.why)});
      } else {
        t.add_ok();
      }
    }
    return t;
  }
};

/// The groups as health wants to know them.
std::vector<group_health> groups_of(served const& s) {
  std::vector<group_health> all(s.groups.size());
  REQUIRE(group_health_of(s.c, all).size() == all.size());
  return all;
}

/// What health says of a cache over the layers that a reservation covers, with as many slots as it came to; of the
/// reservation alone where it came to none.
health_monitor monitor_of(geometry const& model, device_report const& report,
                          u64 min_expert_bytes = 0) {
  if (report.slots == 0) {
    return health_monitor{health_setup_of(report, model)};
  }
  cache<> c{covered_by(model, min_expert_bytes), budget::of_slots(report.slots)};
  require_sound(c);
  return health_monitor{health_setup_of(c, report)};
}

/// The first event of a condition; fails where there is none.
health_event first_event(health_monitor& m, health_condition c) {
  for (health_event e; m.next_event(e);) {
    if (e.condition == c) {
      return e;
    }
  }
  FAIL("no event " << name_of(c));
  return {};
}

}  // namespace

TEST_CASE("B48 a draft context never touches the target's pools") {
  geometry const target = geometry::uniform(4, 16, 2, 1000),
                 draft = geometry::uniform(1, 8, 2, 300);
  device_budget const devices[] = {{mib, 0}};
  ledger l{devices};
  device_share const main_share[] = {{0, &target, size_request::of_slots(6)}};
  reservation main_memory{l, 0, main_share};
  REQUIRE(main_memory.holds());
  authority groups{5};
  for (u32 g = 0; g < 4; ++g) {
    REQUIRE(groups.publish(g, holder::host, main_memory.users()));
  }
  gated_cache main_cache =
      make_cache(target, budget::of_slots(main_memory.reports()[0].slots), host_gate{groups});
  for (u32 layer = 0; layer < 4; ++layer) {
    warm(main_cache, layer, {1, 2, 3});
  }
  auto const blocks = bytes_of(main_cache);
  auto const counted = main_cache.observer().total();
  u64 const reserved = l.reserved(0);

  SECTION("its own cache, of other geometry") {
    device_share const draft_share[] = {{0, &draft, size_request::of_slots(3)}};
    {
      reservation draft_memory{l, 1, draft_share};
      REQUIRE(draft_memory.holds());
      REQUIRE(groups.publish(4, holder::host, draft_memory.users()));
      gated_cache draft_cache = make_cache(draft, budget::of_slots(3), host_gate{groups, 4});
      for (routed_id e = 0; e < 8; ++e) {
        warm(draft_cache, 0, {e});
      }
      require_sound(draft_cache);
      CHECK(l.reserved(0) == reserved + draft_memory.reports()[0].effective);
      REQUIRE(groups.withdraw(4));
    }
    CHECK(l.reserved(0) == reserved);
  }
  SECTION("the same owner a second time is refused") {
    device_share const again[] = {{0, &draft, size_request::of_slots(3)}};
    reservation second{l, 0, again};
    CHECK(!second.holds());
    CHECK(second.short_of()->why == reason::in_use);
    CHECK(l.reserved(0) == reserved);
  }
  CHECK((bytes_of(main_cache) == blocks));
  CHECK(main_cache.observer().total().demanded == counted.demanded);
  for (u32 layer = 0; layer < 4; ++layer) {
    CHECK(main_cache.step(layer_id{layer}, id_list{1, 2, 3}).how[2] == access_kind::hit);
    REQUIRE(groups.withdraw(layer));
  }
  require_sound(main_cache);
}

TEST_CASE("B49 a draft context inherits no size") {
  geometry const draft = geometry::uniform(1, 8, 2, 300);
  device_budget const devices[] = {{mib, 0}};
  ledger l{devices};
  size_request const of_main = size_request::of_slots(4);
  device_share const nobody_sized[] = {{0, &draft, {}}};
  reservation draft_memory{l, 1, nobody_sized};
  CHECK(!draft_memory.holds());
  CHECK(draft_memory.reports()[0].why == reason::unsupported);
  CHECK(draft_memory.reports()[0].slots == 0);
  CHECK(l.reserved(0) == 0);
  device_share const inherited[] = {{0, &draft, of_main}};  // said by the caller
  reservation explicit_memory{l, 2, inherited};
  CHECK(explicit_memory.holds());
  CHECK(explicit_memory.reports()[0].slots == 4);
}

TEST_CASE("B55 authority elsewhere for all groups is 144 refusals of one reason") {
  served s{144};
  s.publish(holder::device);
  auto const before = bytes_of(s.c);
  health_monitor health{health_setup_of(s.c)};
  tally const t = s.step_all();
  health.update(s.c.observer().total(), groups_of(s));
  CHECK(health.report().state == health_state::inert);  // within one step
  CHECK(health.report().why == reason::no_authority);
  CHECK(t.failed() == 144);
  CHECK(t.total() == result{refused{reason::no_authority, 0, 0, false}});
  u32 produced = 0, skipped = 0;
  for (u32 layer = 0; layer < 144; ++layer) {  // a producer asks before it spends
    s.c.may_advise(layer_id{layer}) ? ++produced : ++skipped;
  }
  CHECK(produced == 0);
  CHECK(skipped == 144);
  for (u32 layer = 0; layer < 144; ++layer) {  // and one that does not is counted, hint for hint
    CHECK(s.c.advise(layer_id{layer}, id_list{1, 2, 3}) == 0);
  }
  CHECK(dropped(s.c, reason::no_authority) == 432);
  CHECK(s.c.observer().total().hints_offered.value == 432);
  CHECK(s.c.observer().total().issued[static_cast<u32>(intent::speculative)].value == 0);
  CHECK(s.fallbacks.total(reason::no_authority) == 144);
  CHECK((bytes_of(s.c) == before));
  require_sound(s.c);
}

TEST_CASE("B56 nothing published is not nothing to do") {
  served s{3};
  virtual_clock clock;
  auto const copy = [](u32) { return done; };
  result const before = hand_over(s.groups, 0, holder::device, copy, clock);
  CHECK(before == result{not_published{}});
  CHECK(s.groups.refusal(1, reason::no_authority) == result{not_published{}});
  certificate const of_nothing{array_view<group_evidence const>{}, device_authority::preferred};
  result const nothing_to_do = of_nothing.publish(s.groups, s.memory);
  CHECK(nothing_to_do == result{ready{0}});
  CHECK(before != nothing_to_do);
  CHECK(!before.is_ready());
  CHECK(nothing_to_do.is_ready());
}

TEST_CASE("B57 144 failures of 144 are not ready") {
  tally t;
  for (u32 g = 0; g < 144; ++g) {
    t.add(refused{g % 2 == 0 ? reason::no_memory : reason::over_budget, g, 0, false});
  }
  CHECK(t.total() == partial{0, 144});
  CHECK(!t.total().is_ready());
  CHECK(t.total() != result{ready{0}});
  tally one;
  for (u32 g = 0; g < 143; ++g) {
    one.add_ok();
  }
  one.add(refused{reason::no_memory, 143, 0, false});
  CHECK(one.total() == partial{143, 1});
  CHECK(!one.total().is_ready());
  std::vector<group_evidence> const evidence(144, group_evidence{reason::no_memory});
  authority groups{144};
  references memory;
  CHECK(certificate{evidence, device_authority::preferred}.publish(groups, memory) ==
        partial{0, 144});
}

TEST_CASE("B60 a transition waits for what is inside and shuts the others out") {
  served s{2};
  s.publish(holder::host);
  warm(s.c, 0, {1, 2});
  auto inside = s.c.demand(layer_id{0}, id_list{1});
  REQUIRE(inside);
  bool asked = false;
  s.clock.at(350, [&] {  // while it waits
    step_view const v = s.c.step(layer_id{0}, id_list{2});
    CHECK(v.kind == plan_kind::refused);
    CHECK(v.why == reason::gate_closed);
    CHECK(is_retryable(v.why));
    CHECK(s.groups.refusal(0, v.why) == result{refused{reason::gate_closed, 0, 0, true}});
    CHECK(s.groups.look(0).active == 1);
    asked = true;
  });
  s.clock.at(700, [&] { inside.release(); });
  CHECK(give(s.c, s.device, 0, s.clock).is_ready());
  CHECK(asked);
  CHECK(s.clock.time == 800);
  CHECK(s.groups.look(0) == group_state{1, 0, gate_state::open, holder::device, holder::nobody});
  CHECK(s.groups.look(1).epoch == 0);
  require_sound(s.c);
}

TEST_CASE("B61 a transition that fails changes nothing") {
  served s{1};
  s.publish(holder::host);
  warm(s.c, 0, {1, 2});
  auto const block = bytes_of(s.c, 0);
  group_state const before = s.groups.look(0);
  SECTION("while somebody is inside") {
    auto const inside = s.c.demand(layer_id{0}, id_list{1});
    group_state const active = s.groups.look(0);
    CHECK(give(s.c, s.device, 0, s.clock) == result{refused{reason::busy, 0, 0, true}});
    CHECK(s.groups.look(0) == active);
    CHECK(s.groups.look(0).active == 1);
  }
  SECTION("at each byte copy, to the device and back") {
    for (u32 at = 0; at < 2; ++at) {
      u32 n = 0;
      auto const fails = [&](void const* from, void* to, u64 bytes) {
        return n++ == at ? status{reason::no_memory} : host_copy{}(from, to, bytes);
      };
      auto const there = s.device.bytes(s.c, 0);
      CHECK(give(s.c, s.device, 0, s.clock, fails) ==
            result{refused{reason::no_memory, 0, 2 * at, false}});
      CHECK(s.groups.look(0).epoch == 2 * at);
      CHECK(s.groups.look(0).who == holder::host);
      CHECK(s.groups.look(0).state == gate_state::open);
      CHECK(s.groups.look(0).next == holder::nobody);
      CHECK((without_epoch(bytes_of(s.c, 0)) == without_epoch(block)));
      if (at == 0) {
        CHECK((s.device.bytes(s.c, 0) == there));
      }
      CHECK(s.c.plan(layer_id{0}, id_list{1}).how[0] == access_kind::hit);  // the holder goes on
      REQUIRE(give(s.c, s.device, 0, s.clock).is_ready());  // and can be tried again
      n = 0;
      CHECK(!take_back(s.c, s.device, 0, s.clock, fails).is_ready());
      CHECK(s.groups.look(0).who == holder::device);
      CHECK(s.c.plan(layer_id{0}, id_list{1}).why == reason::no_authority);
      REQUIRE(take_back(s.c, s.device, 0, s.clock).is_ready());
    }
  }
  SECTION("abandoned at any point") {
    for (bool const prepared : {false, true}) {
      {
        auto moving = s.groups.begin(0, holder::device);
        if (prepared) {
          REQUIRE(moving.prepare());
        }
      }
      CHECK(s.groups.look(0) == before);
      CHECK((bytes_of(s.c, 0) == block));
    }
  }
  CHECK(s.c.plan(layer_id{0}, id_list{1}).how[0] == access_kind::hit);
  require_sound(s.c);
}

TEST_CASE("B62 an epoch of before is refused without a look at memory") {
  served s{1};
  s.publish(holder::host);
  warm(s.c, 0, {1, 2});
  for (u32 i = 0; i < 2; ++i) {  // to epoch 4
    REQUIRE(give(s.c, s.device, 0, s.clock).is_ready());
    REQUIRE(take_back(s.c, s.device, 0, s.clock).is_ready());
  }
  CHECK(s.groups.look(0).epoch == 4);
  CHECK(s.groups.enter(0, holder::host, 3).why == reason::stale_epoch);
  CHECK(s.groups.look(0).active == 0);
  s.c.pools()[0].view().header().epoch = 3;  // a table that somebody kept from before
  auto const before = bytes_of(s.c);
  step_view const v = s.c.step(layer_id{0}, id_list{1});
  CHECK(v.kind == plan_kind::refused);
  CHECK(v.why == reason::stale_epoch);
  CHECK(v.slots.empty());
  CHECK(s.c.advise(layer_id{0}, id_list{7}) == 0);
  CHECK(dropped(s.c, reason::stale_epoch) == 1);
  CHECK((bytes_of(s.c) == before));
  CHECK(s.groups.refusal(0, v.why) == result{refused{reason::stale_epoch, 0, 4, false}});
}

TEST_CASE("B65 a route over another device is the host's to serve and no error") {
  served s{4};
  std::vector<group_evidence> evidence(4);
  evidence[1].route = reason::route;
  evidence[3].route = reason::route;
  certificate const c{evidence, device_authority::preferred};
  CHECK(c.of(1) == group_verdict{holder::host, reason::route});
  CHECK(c.publish(s.groups, s.memory, 0, &s.fallbacks) == partial{2, 2});
  for (u32 i = 0; i < 10; ++i) {
    CHECK(s.c.step(layer_id{1}, id_list{1, 2}).kind == plan_kind::step);
    CHECK(s.c.step(layer_id{3}, id_list{1, 2}).kind == plan_kind::step);
    land(s.c);
  }
  CHECK(s.fallbacks.total(reason::route) == 20);
  CHECK(s.fallbacks.of(1, reason::route) == 10);
  CHECK(s.c.observer().total().demanded.value == 40);
  require_sound(s.c);
}

TEST_CASE("B66 a silent fallback shows by group and reason") {
  served s{4};
  std::vector<group_evidence> evidence(4);
  evidence[2].route = reason::route;
  (void)certificate{evidence, device_authority::preferred}.publish(s.groups, s.memory, 0,
                                                                   &s.fallbacks);
  for (u32 i = 0; i < 8; ++i) {
    s.fallbacks.served(0);  // the device holds these and serves them
    s.fallbacks.served(1);
    (void)s.c.step(layer_id{2}, id_list{1});
    s.fallbacks.served(3);
  }
  s.fallbacks.fell_back(3, reason::gate_closed);  // once, during a transition
  health_monitor health{health_setup_of(s.c), {.window_steps = 32, .stock_percent = 25}};
  health.update(s.c.observer().total(), groups_of(s));
  REQUIRE(health.stock_groups().size() == 1);
  CHECK(health.stock_groups()[0] == 2);
  auto const& stock = health.report().conditions[static_cast<u32>(health_condition::stock_path)];
  CHECK(stock.why == reason::fallback);
  CHECK(stock.cause == reason::route);
  std::vector<std::pair<u32, reason>> named;
  u32 const quarter = 1u << 14;
  CHECK(s.fallbacks.over(quarter, 8,
                         [&](u32 group, reason why) { named.emplace_back(group, why); }) == 1);
  REQUIRE(named.size() == 1);
  CHECK(named[0].first == 2);
  CHECK(named[0].second == reason::route);
  CHECK(s.fallbacks.of(3, reason::gate_closed) == 1);  // counted, and below the threshold
  CHECK(s.fallbacks.over(0, 8, [](u32, reason) {}) == 2);
}

TEST_CASE("B67 a required authority that is not to be had is one error and then silence") {
  constexpr u32 steps = 100;
  for (u32 const n : {63u, 95u}) {
    served s{n};
    std::vector<group_evidence> const evidence(
        n, group_evidence{reason::none, reason::none, reason::unproven});
    certificate const c{evidence, device_authority::required};
    result const at_certification = c.publish(s.groups, s.memory, 0, &s.fallbacks);
    CHECK(at_certification == result{refused{reason::unproven, 0, 0, false}});
    health_setup setup = health_setup_of(s.c);
    setup.cannot_be_active = at_certification.match(
        [](not_published) { return reason::none; }, [](refused r) { return r.why; },
        [](partial) { return reason::none; }, [](ready) { return reason::none; });
    health_monitor health{setup, {.window_steps = n}};
    for (u32 step = 1; step <= steps;
         ++step) {  // the engine goes its stock way: nothing fails again
      for (u32 layer = 0; layer < n; ++layer) {
        step_view const v = s.c.step(layer_id{layer}, id_list{1, 2});
        REQUIRE(v.kind == plan_kind::refused);
        REQUIRE(v.why == reason::no_authority);
        REQUIRE(s.fallbacks.of(layer, reason::no_authority) == step);  // served there, each of them
        REQUIRE(s.fallbacks.steps(layer) == step);
      }
      health.update(s.c.observer().total(), groups_of(s));
      REQUIRE(health.report().state == health_state::inactive);
      REQUIRE(health.report().why == reason::unproven);
      REQUIRE(c.outcome() == at_certification);
    }
    u32 raised[n_health_conditions] = {};
    for (health_event e; health.next_event(e);) {
      CHECK(e.raised);
      ++raised[static_cast<u32>(e.condition)];
    }
    CHECK(health.events_lost() == 0);
    CHECK(raised[static_cast<u32>(health_condition::cannot_be_active)] == 1);
    for (u32 const times : raised) {
      CHECK(times <= 1);  // what follows from it is told once as well
    }
    for (u32 g = 0; g < n; ++g) {
      REQUIRE(s.groups.look(g) == group_state{});
    }
    CHECK(s.c.observer().total().demanded.value == 0);
    // preferred: the host serves all of it
    CHECK(certificate{evidence, device_authority::preferred}.publish(s.groups, s.memory) ==
          partial{0, n});
    CHECK(s.step_all().ok() == n);
    require_sound(s.c);
  }
}

TEST_CASE("B68 each device has its own budget and the one that is short is named") {
  geometry const model = geometry::uniform(8, 16, 2, 1000);
  u64 const four = pool_bytes(model, {}).of(4);
  device_budget const devices[] = {{four, 0}, {four / 2, 0}};
  ledger l{devices};
  device_share const one_device[] = {
      {0, &model, size_request::of_bytes(four + four / 2)}};  // the sum of both
  reservation sum{l, 0, one_device};
  CHECK(!sum.holds());
  CHECK(sum.short_of()->device == 0);
  CHECK(sum.short_of()->why == reason::over_budget);
  device_share const both[] = {{0, &model, size_request::of_slots(4)},
                               {1, &model, size_request::of_slots(4)}};
  reservation split{l, 0, both};
  CHECK(!split.holds());
  CHECK(split.short_of()->device == 1);
  CHECK(mentions(describe(*split.short_of()).c_str(), "device 1"));
  CHECK(mentions(describe(*split.short_of()).c_str(), "over_budget"));
  CHECK(l.reserved(0) == 0);
  CHECK(l.reserved(1) == 0);
}

TEST_CASE("B69 an automatic size without anybody who resolves it is an error") {
  geometry const model = geometry::uniform(8, 16, 2, 1000);
  device_budget const devices[] = {{}};
  ledger l{devices};
  device_share const share[] = {{0, &model, size_request::automatic()}};
  CHECK(mentions(error_of([&] {
                   reservation r{l, 0, share};
                 }),
                 "automatic size needs the bytes of device 0"));
  CHECK(l.reserved(0) == 0);
  // and a cache of what would have come out is an error as well, not an off
  CHECK(mentions(error_of([&] { cache<> c{model, budget{}}; }), "0 slots and 0 bytes"));
}

TEST_CASE("B71 one layer of 48 is seen at construction") {
  std::vector<layer_geometry> layers;
  for (u32 i = 0; i < 48; ++i) {
    layers.push_back({layer_id{i}, 16, 2, {u64{100} + i}});
  }
  geometry const model{layers};
  device_budget const devices[] = {{mib, 0}};
  device_share const share[] = {{0, &model, size_request::of_slots(4)}};
  for (u32 covered = 1; covered <= 48; ++covered) {
    INFO(covered << " covered");
    u64 const minimum = 100 + 48 - covered;
    ledger l{devices};
    reservation all{l, 0, share};
    reservation r{l, 1, share, reservation_terms{.min_expert_bytes = minimum}};
    REQUIRE(r.holds());
    CHECK(r.reports()[0].layers_covered == covered);
    CHECK(r.reports()[0].layers_total == 48);
    CHECK(r.reports()[0].coverage() == (covered == 48 ? reason::none : reason::uncovered));
    CHECK(mentions(describe(r.reports()[0]).c_str(), std::to_string(covered) + " of 48 layers"));
    CHECK(all.reports()[0].coverage() == reason::none);
    SECTION("by a size that somebody chose: visible") {
      health_monitor monitor = monitor_of(model, r.reports()[0], minimum);
      CHECK(monitor.report().state == health_state::active);
      CHECK(monitor.report().layers_covered == covered);
      CHECK(monitor.report().layers == 48);
      CHECK(monitor.report()[health_condition::excluded].raised == (covered != 48));
      if (covered != 48) {
        health_event const e = first_event(monitor, health_condition::excluded);
        CHECK(e.step == 0);
        CHECK(e.why == reason::below_minimum);
        CHECK(e.count == 48 - covered);
        CHECK(e.of == 48);
      }
    }
    SECTION("by nobody's choice: a warning") {  // all are paid for, and the cache has some
      health_monitor monitor = monitor_of(model, all.reports()[0], minimum);
      CHECK(monitor.report().state ==
            (covered == 48 ? health_state::active : health_state::degraded));
      CHECK(monitor.report().why == (covered == 48 ? reason::none : reason::uncovered));
      if (covered != 48) {
        health_event const e = first_event(monitor, health_condition::uncovered);
        CHECK(e.level == health_level::warning);
        CHECK(e.step == 0);
        CHECK(e.count == covered);
        CHECK(e.of == 48);
      }
    }
  }
}

TEST_CASE("B84 headroom is kept and what would reach into it is refused") {
  geometry const model = geometry::uniform(8, 64, 2, 10'000);
  pool_bytes const bytes{model, {}};
  u64 const headroom = 600'000;
  for (u32 const fit : {1u, 62u, 63u}) {
    device_budget const devices[] = {{bytes.of(fit) + headroom, headroom}};
    ledger l{devices};
    auto const attempt = [&](u32 slots, shortage when) {
      device_share const share[] = {{0, &model, size_request::of_slots(slots)}};
      reservation r{l, 0, share, reservation_terms{.when_short = when}};
      CHECK(l.reserved(0) + headroom <= devices[0].bytes);
      return r.reports()[0];
    };
    CHECK(attempt(fit, shortage::refuse).why == reason::none);
    CHECK(attempt(fit + 1, shortage::refuse).why == reason::over_budget);
    CHECK(attempt(fit + 1, shortage::refuse).effective == 0);
    CHECK(attempt(64, shortage::largest).slots == fit);
  }
}

TEST_CASE("B86 a budget report says requested effective and why, and health says the same") {
  geometry const model = geometry::uniform(8, 16, 2, 1000);
  pool_bytes const bytes{model, {}};
  u64 const five = bytes.of(5), nine = bytes.of(9);
  SECTION("cut to what the device has") {
    device_budget const devices[] = {{five, 0}};
    for (size_request const size : {size_request::of_slots(9), size_request::of_bytes(nine)}) {
      ledger l{devices};
      device_share const share[] = {{0, &model, size}};
      reservation r{l, 0, share, reservation_terms{.when_short = shortage::largest}};
      device_report const& report = r.reports()[0];
      CHECK(report.requested == nine);
      CHECK(report.effective == five);
      CHECK(report.why == reason::over_budget);
      CHECK(!report.is_as_requested());
      CHECK(r.short_of() == &report);
      // what the cache takes is what was reserved
      cache<> c{model, budget::of_slots(report.slots)};
      CHECK(c.effective_budget().effective_bytes == report.effective);
      CHECK(l.reserved(0) == report.effective);
      health_monitor monitor = monitor_of(model, report);
      CHECK(monitor.report().state == health_state::degraded);
      CHECK(monitor.report().why == reason::over_budget);
      CHECK(monitor.report().requested_bytes == nine);
      CHECK(monitor.report().effective_bytes == five);
      health_event const e = first_event(monitor, health_condition::budget_differs);
      CHECK(e.level == health_level::warning);
      CHECK(e.step == 0);
      CHECK(e.count == five);
      CHECK(e.of == nine);
    }
  }
  SECTION("as asked, by rounding, all that there is") {
    device_budget const devices[] = {{mib, 0}};
    struct {
      size_request size;
      bool differs;
      reason why;
    } const cases[] = {
        {size_request::of_slots(9), false, reason::none},
        {size_request::of_bytes(nine), false, reason::none},
        {size_request::of_bytes(nine + 1), true, reason::over_budget},
        {size_request::of_slots(17), false, reason::limited},
        {size_request::of_bytes(bytes.of(16) + 1), true, reason::limited},
        {size_request::automatic(), true, reason::over_budget},
    };
    for (auto const& [size, differs, why] : cases) {
      ledger l{devices};
      device_share const share[] = {{0, &model, size}};
      reservation r{l, 0, share};
      health_monitor monitor = monitor_of(model, r.reports()[0]);
      CHECK(monitor.report().state == health_state::active);
      CHECK(monitor.report()[health_condition::budget_differs].raised == differs);
      if (differs) {
        health_event const e = first_event(monitor, health_condition::budget_differs);
        CHECK(e.level == health_level::notice);
        CHECK(e.why == why);
        CHECK(e.count == r.reports()[0].effective);
        CHECK(e.of == r.reports()[0].requested);
      }
    }
  }
}

TEST_CASE("R14 bytes are exact with three tensors per expert") {
  geometry const model{{{layer_id{0}, 128, 8, {3'145'728, 3'145'728, 3'244'032}},
                        {layer_id{1}, 128, 8, {3'145'728, 3'145'728, 3'244'032}}}};
  u64 const tail = 512;
  for (u32 const slots : {1u, 2u, 3u, 8u, 42u, 128u}) {
    u64 exact = 0;
    for (u64 const bank : model.layers()[0].bank_bytes) {
      exact += ((2 * u64{slots} + 8) * bank + tail + 255) / 256 * 256;
    }
    u64 const kept = 7'000'000;
    device_budget const devices[] = {{exact + kept, kept}};
    ledger l{devices};
    device_share const share[] = {{0, &model, size_request::automatic()}};
    reservation r{l, 0, share, reservation_terms{.extras = {.tail_bytes = tail}}};
    CHECK(r.reports()[0].slots == slots);
    CHECK(r.reports()[0].effective == exact);
    device_budget const one_less[] = {{exact + kept - 1, kept}};
    ledger tight{one_less};
    if (slots > 1) {
      reservation less{tight, 0, share, reservation_terms{.extras = {.tail_bytes = tail}}};
      CHECK(less.reports()[0].slots == slots - 1);
    }
    cache<> c{model, budget::of_slots(slots), tuning{}, move::external{tail}};
    CHECK(c.effective_budget().effective_bytes == exact);
  }
}

TEST_CASE("R23 an automatic size leaves the declared headroom and is never silently nothing") {
  geometry const model = geometry::uniform(8, 64, 2, 10'000);
  u64 const one = pool_bytes(model, {}).of(1);
  for (u64 const prefill : {u64{0}, u64{123'457}, u64{3'000'000}}) {
    device_budget const devices[] = {{4'000'000, prefill}};
    ledger l{devices};
    device_share const share[] = {{0, &model, size_request::automatic()}};
    reservation r{l, 0, share};
    CHECK(r.reports()[0].slots > 0);
    CHECK(l.reserved(0) + prefill <= 4'000'000);
    CHECK(l.left(0) <
          pool_bytes(model, {}).of(2) - one);  // and not one slot per layer more would fit
  }
  device_budget const devices[] = {{one + 999, 1000}};
  ledger l{devices};
  device_share const share[] = {{0, &model, size_request::automatic()}};
  std::string const why = error_of([&] { reservation r{l, 0, share}; });
  CHECK(mentions(why, "0 slots per layer"));
  CHECK(mentions(why, std::to_string(one)));
}

TEST_CASE("R26 a second owner of other geometry gets its own pools or a refusal") {
  geometry const target = geometry::uniform(4, 16, 2, 1000);
  for (geometry const& other :
       {geometry::uniform(1, 64, 8, 50), geometry::uniform(9, 16, 2, 1000)}) {
    u64 const room = pool_bytes(target, {}).of(6) + pool_bytes(other, {}).of(2);
    for (bool const fits : {true, false}) {
      device_budget const devices[] = {{fits ? room : room - 1, 0}};
      ledger l{devices};
      device_share const first[] = {{0, &target, size_request::of_slots(6)}};
      device_share const second[] = {{0, &other, size_request::of_slots(2)}};
      reservation main_memory{l, 0, first};
      u64 const before = l.reserved(0);
      {
        reservation draft_memory{l, 1, second};
        CHECK(draft_memory.holds() == fits);
        if (!fits) {
          CHECK(draft_memory.short_of()->why == reason::over_budget);
          CHECK(l.reserved(0) == before);
        }
      }
      CHECK(main_memory.holds());
      CHECK(l.reserved(0) == before);
    }
  }
}

TEST_CASE("R28 what cannot be active says so and why") {
  geometry const model = geometry::uniform(2, 16, 2, 1000);
  SECTION("the router is on the host") {
    CHECK(verdict_of({reason::none, reason::route, reason::none}).why == reason::route);
    std::vector<group_evidence> const evidence(2, group_evidence{reason::none, reason::route});
    served s{2};
    certificate const c{evidence, device_authority::preferred};
    CHECK(!c.outcome().is_ready());
    (void)c.publish(s.groups, s.memory, 0, &s.fallbacks);
    health_monitor health{health_setup_of(s.c), {.window_steps = 8}};
    for (u32 i = 0; i < 8; ++i) {
      CHECK(s.step_all().ok() == 2);
      land(s.c);
    }
    health.update(s.c.observer().total(), groups_of(s));
    CHECK(health.report().state == health_state::degraded);  // the host serves, and that is said
    CHECK(health.report()[health_condition::stock_path].cause == reason::route);
    CHECK(health.stock_groups().size() == 2);
    require_sound(s.c);
  }
  SECTION("the fitter is off") {
    device_budget const devices[] = {{}};
    ledger l{devices};
    device_share const share[] = {{0, &model, size_request::automatic()}};
    CHECK(!error_of([&] { reservation r{l, 0, share}; }).empty());
  }
  SECTION("a reservation that comes to nothing") {
    device_budget const devices[] = {{1'000, 0}, {mib, 0}};
    struct {
      device_share share;
      u64 minimum;
      reason why;
    } const cases[] = {
        {{2, &model, size_request::of_slots(2)}, 0, reason::wrong_device},  // nobody has it
        {{0, &model, size_request::of_slots(2)}, 0, reason::over_budget},
        {{1, &model, size_request::of_slots(2)}, 1'001, reason::below_minimum},
        {{1, &model, size_request::of_slots(2)}, 0, reason::in_use},
        {{1, &model, {}}, 0, reason::unsupported},
    };
    for (auto const& [share, minimum, why] : cases) {
      ledger l{devices};
      device_share const one[] = {share}, other[] = {{1, &model, size_request::of_slots(2)}};
      reservation before{l, why == reason::in_use ? 0u : 1u, other};
      reservation r{
          l, 0, one,
          reservation_terms{.when_short = shortage::baseline, .min_expert_bytes = minimum}};
      CHECK(!r.holds());
      REQUIRE(r.short_of() != nullptr);
      CHECK(r.short_of()->why == why);
      CHECK(r.short_of()->device == share.device);
      bool const is_off = why == reason::unsupported;
      health_monitor monitor = monitor_of(model, r.reports()[0]);
      CHECK(monitor.report().state == (is_off ? health_state::off : health_state::inactive));
      CHECK(monitor.report().why == (is_off ? reason::none : why));
      CHECK(monitor.report().producers_may_stop());
      if (!is_off) {
        CHECK(first_event(monitor, health_condition::cannot_be_active).level ==
              health_level::warning);
      }
    }
  }
  SECTION("and a group without memory is nobody's") {
    served s{1};
    std::vector<group_evidence> const evidence{{reason::over_budget}};
    CHECK(certificate{evidence, device_authority::preferred}.publish(s.groups, s.memory) ==
          partial{0, 1});
    CHECK(s.c.step(layer_id{0}, id_list{1}).why == reason::no_authority);
    health_monitor health{health_setup_of(s.c)};
    health.update(s.c.observer().total(), groups_of(s));
    CHECK(health.report().state == health_state::inert);
    CHECK(health.report().why == reason::no_authority);
  }
}

TEST_CASE("R35 the memory of four devices is never one pool's") {
  geometry const model = geometry::uniform(8, 64, 2, 10'000);
  u64 const ten = pool_bytes(model, {}).of(10);
  device_budget const devices[] = {{ten, 0}, {ten, 0}, {ten, 0}, {ten, 0}};
  ledger l{devices};
  for (size_request const size :
       {size_request::of_slots(11), size_request::of_slots(40), size_request::of_bytes(4 * ten)}) {
    device_share const share[] = {{2, &model, size}};
    reservation r{l, 0, share};
    CHECK(!r.holds());
    CHECK(r.short_of()->device == 2);
    CHECK(r.short_of()->available == ten);
  }
  device_share const share[] = {{2, &model, size_request::automatic()}};
  reservation r{l, 0, share};
  CHECK(r.reports()[0].slots == 10);
  for (u32 const d : {0u, 1u, 3u}) {
    CHECK(l.reserved(d) == 0);
  }
}

namespace {

/// What an engine's layer got from its calls.
struct answers {
  plan_kind kind;
  std::size_t experts, loads;
  u32 waves, hints;
  bool operator==(answers const&) const = default;
};

/// An engine's layer: the same calls in every state, and nothing but their answers to go by.
template <class Cache>
answers engine_step(Cache& c, u32 layer) {
  c.settle();
  status const may_hint = c.may_advise(layer_id{layer});
  step_view const v = c.step(layer_id{layer}, id_list{1, 2});
  answers got{v.kind, v.experts.size(), v.loads.size(), v.n_waves, 0};
  for (u32 const expert : v.experts) {
    CHECK(v.slot_of(expert_id{expert}) != no_slot);
  }
  got.hints = c.advise(layer_id{layer}, id_list{3});
  CHECK((got.hints == 0 || may_hint));
  return got;
}

}  // namespace

TEST_CASE("R37 the calls are the same whether the cache is on off or refused") {
  served s{2};
  answers const refusal{plan_kind::refused, 0, 0, 0, 0};
  cache<off> none{s.model, budget::of_slots(4)};
  CHECK(engine_step(none, 0) == answers{plan_kind::empty, 0, 0, 0, 0});
  CHECK(engine_step(s.c, 0) == refusal);  // between reserve and publish
  s.publish(holder::host);
  CHECK(engine_step(s.c, 0) == answers{plan_kind::step, 2, 2, 0, 1});
  land(s.c);
  CHECK(engine_step(s.c, 0) == answers{plan_kind::step, 2, 0, 0, 0});
  REQUIRE(s.groups.withdraw(0));  // off in the middle of decoding
  CHECK(engine_step(s.c, 0) == refusal);
  CHECK(s.c.resize(layer_id{1}, 0));  // on, and without a slot
  CHECK(engine_step(s.c, 1) == answers{plan_kind::overflow, 2, 0, 1, 0});
  require_sound(s.c);
}

TEST_CASE("R38 a minimum expert size excludes in the open") {
  std::vector<layer_geometry> layers;
  for (u32 i = 0; i < 6; ++i) {
    layers.push_back({layer_id{i}, 16, 2, {i < 4 ? u64{296} << 10 : u64{700} << 10}});
  }
  geometry const model{layers};
  device_budget const devices[] = {{u64{1} << 30, 0}};
  for (auto const& [minimum, covered] :
       {std::pair{u64{512} << 10, 2u}, {u64{296} << 10, 6u}, {u64{0}, 6u}, {mib, 0u}}) {
    ledger l{devices};
    device_share const share[] = {{0, &model, size_request::of_slots(2)}};
    reservation r{l, 0, share, reservation_terms{.min_expert_bytes = minimum}};
    CHECK(r.reports()[0].layers_covered == covered);
    CHECK(r.reports()[0].coverage() == (covered == 6 ? reason::none : reason::uncovered));
    CHECK(r.reports()[0].why == (covered == 0 ? reason::below_minimum : reason::none));
    CHECK(r.holds() == (covered != 0));
    coverage_report const c = model.coverage(minimum);
    CHECK(c.layers_covered == covered);
    CHECK(c.excluded.size() == 6 - covered);
    CHECK(covered_by(model, minimum).layers().size() == covered);
    health_monitor monitor = monitor_of(model, r.reports()[0], minimum);
    CHECK(monitor.report().state == (covered == 0 ? health_state::inactive : health_state::active));
    CHECK(monitor.report()[health_condition::excluded].raised == (covered != 6));
    CHECK(monitor.report()[health_condition::excluded].count == (covered == 6 ? 0 : 6 - covered));
    if (!c.excluded.empty()) {
      CHECK(mentions(c.excluded[0].why, "smaller than the minimum"));
    }
  }
}

TEST_CASE("R56 a request beyond the memory becomes the largest that fits or the baseline") {
  geometry const model = geometry::uniform(8, 64, 2, 10'000);
  u64 const seven = pool_bytes(model, {}).of(7);
  device_budget const devices[] = {{seven + 9'999, 0}};
  device_share const share[] = {{0, &model, size_request::of_slots(48)}};
  {
    ledger l{devices};
    reservation r{l, 0, share, reservation_terms{.when_short = shortage::largest}};
    CHECK(r.holds());
    CHECK(r.reports()[0].slots == 7);
    CHECK(r.reports()[0].effective == seven);
    CHECK(mentions(describe(r.reports()[0]).c_str(), "over_budget"));
  }
  {
    ledger l{devices};
    reservation r{l, 0, share, reservation_terms{.when_short = shortage::baseline}};
    CHECK(!r.holds());
    CHECK(r.reports()[0].slots == 0);
    CHECK(r.reports()[0].why == reason::over_budget);
    CHECK(mentions(describe(r.reports()[0]).c_str(), "0 slots per layer"));
    CHECK(l.reserved(0) == 0);
  }
}

TEST_CASE("R59 a caller never takes not published for done") {
  served s{3};
  u32 copies = 0;
  auto const copy = [&](u32) {
    ++copies;
    return done;
  };
  group_evidence const clear[] = {{}}, nowhere[] = {{reason::no_memory}},
                       unproven[] = {{reason::none, reason::none, reason::unproven}};
  for (u32 g = 0; g < 3; ++g) {
    auto const attempt = [&] { return hand_over(s.groups, g, holder::host, copy, s.clock); };
    bool latched = false;  // a caller that does something once, and never again
    u32 attempts = 0;
    for (; attempts < 5 && !latched; ++attempts) {
      if (attempts == 1) {  // certificates that give the group to nobody
        CHECK(certificate{nowhere, device_authority::preferred}.publish(s.groups, s.memory, g) ==
              partial{0, 1});
        CHECK(certificate{unproven, device_authority::required}.publish(s.groups, s.memory, g) ==
              result{refused{reason::unproven, 0, 0, false}});
      }
      if (attempts == 3) {
        CHECK(certificate{clear, device_authority::required}.publish(s.groups, s.memory, g) ==
              result{ready{1}});
      }
      result const r = attempt();
      latched = r.is_ready();
      CHECK(r == (attempts < 3 ? result{not_published{}} : result{ready{1}}));
      CHECK(r != result{ready{0}});
      CHECK((s.groups.refusal(g, reason::gate_closed) == result{not_published{}}) ==
            (attempts < 3));
      CHECK(copies == g + (attempts < 3 ? 0 : 1));
    }
    CHECK(attempts == 4);
    REQUIRE(s.groups.withdraw(g));
    CHECK(attempt() == result{not_published{}});  // again, and not what it was before
    CHECK(s.groups.refusal(g, reason::no_authority) == result{not_published{}});
    CHECK(s.clock.sleeps.empty());  // it is nothing to wait for
  }
}

TEST_CASE("R60 every hint of a refused batch has its reason") {
  served s{3};
  u64 offered = 0;
  u64 expected[n_drop_reasons] = {};
  auto const offer = [&](u32 layer, id_list const& ids, reason why) {
    CHECK(s.c.advise(layer_id{layer}, ids) == 0);
    offered += ids.size();
    expected[static_cast<u32>(why)] += ids.size();
    require_sound(s.c);  // L4 among the laws
  };
  id_list const many{1, 1, -1, 99, 3, 4, 5, 6};  // whatever they are, they were not looked at
  offer(0, many, reason::no_authority);          // nobody's
  s.publish(holder::host);
  auto moving = s.groups.begin(0, holder::device);
  offer(0, many, reason::gate_closed);
  REQUIRE(moving.prepare());
  offer(0, {7}, reason::gate_closed);
  REQUIRE(moving.complete());
  offer(0, many, reason::no_authority);
  offer(0, {}, reason::no_authority);
  moving = s.groups.begin(0, holder::host);
  REQUIRE(moving.prepare());
  REQUIRE(moving.complete());
  offer(0, {2, 3}, reason::stale_epoch);
  // hints of several layers at once: each by its own group
  auto closing = s.groups.begin(1, holder::device);
  hint const mixed[] = {{layer_id{0}, 1, 0, 9},
                        {layer_id{1}, 1, 1, 9},
                        {layer_id{1}, 2, 2, 9},
                        {layer_id{2}, 1, 3, 9}};
  s.c.advise(array_view<hint const>{mixed});
  offered += 4;
  expected[static_cast<u32>(reason::stale_epoch)] += 1;
  expected[static_cast<u32>(reason::gate_closed)] += 2;
  auto const counted = s.c.observer().total();
  CHECK(counted.hints_offered.value == offered);
  CHECK(counted.issued[static_cast<u32>(intent::speculative)].value == 1);
  for (u32 r = 0; r < n_drop_reasons; ++r) {
    CHECK(counted.hints_dropped[r].value == expected[r]);
  }
  require_sound(s.c);
}

TEST_CASE("R60 a permit that says no counts each hint under its reason") {
  using gate_type = held_by<holder::host, told_permit>;
  references memory;
  authority groups{1};
  REQUIRE(groups.publish(0, holder::host, memory));
  cache<hinted, move::external, observe::counting, gate_type> c{
      geometry::uniform(1, 16, 2, 100),
      budget::of_slots(6),
      tuning{.speculative_slots = 4, .prefill_hints = 3},
      move::external{},
      observe::counting{},
      gate_type{groups}};
  CHECK(c.may_advise(layer_id{0}));
  for (reason const why : {reason::governed, reason::in_prefill, reason::worker_down}) {
    c.gate().permit().deny(why);
    CHECK(c.may_advise(layer_id{0}).why == why);
    for (phase const p : {phase::prefill, phase::decode}) {
      auto const count = [&] {
        return c.observer().total(p).hints_dropped[static_cast<u32>(why)].value;
      };
      u64 const before = count();
      CHECK(c.may_advise(layer_id{0}, p).why == why);
      CHECK(c.advise(layer_id{0}, id_list{1, 2, 3}, u32_max, 1, p) == 0);
      CHECK(count() == before + 3);
      require_sound(c);
    }
  }
  c.gate().permit().deny(reason::not_paying);  // no reason of a single hint
  CHECK(c.advise(layer_id{0}, id_list{1, 2}) == 0);
  CHECK(dropped(c, reason::governed) == 8);
  c.gate().permit().allow(2);
  CHECK(c.may_advise(layer_id{0}));
  CHECK(c.advise(layer_id{0}, id_list{1, 2, 3}) == 2);
  CHECK(dropped(c, reason::limited) == 1);
  CHECK(groups.look(0).active == 0);
  require_sound(c);
}

TEST_CASE("health sees a governor that has stopped, whether the permit was told or not") {
  using gate_type = held_by<holder::host, told_permit>;
  references memory;
  authority groups{4};
  fallback_counts fallbacks{4};
  geometry const model = geometry::uniform(2, 16, 2, 100);
  cache<hinted, move::external, observe::counting, gate_type> c{model,
                                                                budget::of_slots(6),
                                                                hinted::numbers,
                                                                move::external{},
                                                                observe::counting{},
                                                                gate_type{groups, 2, &fallbacks}};
  health_monitor monitor{health_setup_of(c)};
  governor permits;
  group_health told[3];
  auto const health = [&] {
    array_view<group_health const> const known = group_health_of(c, told, &permits);
    REQUIRE(known.size() == 2);  // as many as the cache has pools
    monitor.update(c.observer().total(), known);
    require_sound(c);
    return monitor.report();
  };
  CHECK(health().why == reason::no_authority);  // nobody's
  REQUIRE(groups.publish(2, holder::host, memory));
  CHECK(health().state == health_state::degraded);
  REQUIRE(groups.publish(3, holder::host, memory));
  CHECK(health().state == health_state::active);
  CHECK(c.step(layer_id{1}, id_list{1, 2}).kind == plan_kind::step);
  (void)health();
  CHECK(told[1].steps == 1);  // of its own group, not of the authority's first
  CHECK(told[0].steps == 0);

  permits.judge(0, permits.numbers().min_samples, 0);  // hints of which none is used
  REQUIRE(permits.why() == reason::not_paying);
  CHECK(health().state == health_state::inert);
  CHECK(monitor.report().why == reason::not_paying);
  c.gate().permit().deny(reason::governed);
  CHECK(health().why == reason::governed);
  CHECK(told[0].is_stopped);
  permits.reset();
  c.gate().permit().allow(4);
  CHECK(health().state == health_state::active);
  c.gate().permit().deny(reason::worker_down);
  CHECK(health().why == reason::worker_down);
  REQUIRE(groups.withdraw(2));
  REQUIRE(groups.withdraw(3));
}

}  // namespace warmset::scenario
