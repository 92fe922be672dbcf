// SPDX-License-Identifier: Apache-2.0
// What instruments must show: faults that were there and that nobody could see.

#include <set>
#include <string>

#include <warmset/observe/census.hpp>
#include <warmset/observe/export_json.hpp>
#include <warmset/observe/export_log.hpp>
#include <warmset/observe/health_facts.hpp>

#include "gate/gated_cache.hpp"
#include "play.hpp"

namespace warmset::scenario {
namespace {

constexpr u32 demanded = static_cast<u32>(intent::demand);
constexpr u32 speculated = static_cast<u32>(intent::speculative);

template <class Source>
std::string log_of(Source const& from) {
  std::string text;
  write_log_line(from, [&](char const* data, std::size_t n) { text.append(data, n); });
  return text;
}

/// The first event of a condition; fails where there is none.
health_event first_event(health_monitor& m, health_condition c) {
  for (health_event e; m.next_event(e);) {
    if (e.condition == c)
      return e;
  }
  FAIL("no event " << name_of(c));
  return {};
}

using gate::land;

template <class Cache>
void check_sound(Cache& c) {
  REQUIRE(c.audit());
  require_laws(c.observer().total(), c.slot_counts());
}

struct hinted : default_policy {
  using predictor = predict::supplied;
};

/// Installs nothing in prefill; decode installs what it misses.
struct decode_alone {
  static constexpr bool may_decline = true;
  static constexpr char const* name = "decode_alone";
  WARMSET_HD constexpr bool admits(admission_question const& q) const noexcept {
    return q.in_phase == phase::decode;
  }
};
struct prefill_apart : default_policy {
  using admission = decode_alone;
};

struct budgeted : default_policy {
  using admission = admit::insert_budget;
};

/// Who has a group that goes this way.
constexpr gate::holder holder_of(serving_path path) {
  return path == serving_path::device ? gate::holder::device
         : path == serving_path::host ? gate::holder::host
                                      : gate::holder::nobody;
}

/// Groups over which a certificate was published.
struct certified {
  gate::references memory;
  gate::authority groups;
  gate::fallback_counts fallbacks;

  explicit certified(array_view<gate::group_evidence const> evidence)
      : groups(static_cast<u32>(evidence.size())), fallbacks(groups.size()) {
    (void)gate::certificate{evidence, gate::device_authority::preferred}.publish(groups, memory, 0,
                                                                                 &fallbacks);
  }
};

}  // namespace

TEST_CASE("B02 an inverted guard that drops everything once full is seen as inert speculation") {
  static constexpr u32 window = 20;
  auto const watch = []<class Guard>(u32 capacity) {
    on_cache<watched<score::lfru, Guard>> play{{.capacity = capacity}};
    health_monitor monitor{health_setup_of(play.subject()),
                           {.window_steps = window, .min_hints = 4}};
    play.d(range(0, capacity));  // full, every heat 1
    for (u32 i = 0; i < 3 * window; ++i) {
      play.p({static_cast<routed_id>(n_experts - 1)});  // never demanded
      monitor.update(play.counters());
      play.d({static_cast<routed_id>(i % capacity)});
      monitor.update(play.counters());
    }
    return monitor.report();
  };
  for (u32 const capacity : {2u, 3u, 8u, 42u}) {
    INFO("capacity " << capacity);
    health_report const bad = watch.template operator()<guard::challenger_must_win>(capacity);
    CHECK(bad.state == health_state::inert);
    CHECK(bad.why == reason::inert);
    CHECK(bad[health_condition::nothing_issued].cause == reason::guard);
    CHECK(bad.drop_rate_q16 == 65536);
    CHECK(bad.producers_may_stop());
    health_report const good = watch.template operator()<guard::none>(capacity);
    CHECK(!good.producers_may_stop());  // it copies, and what it copies is never used
    CHECK(good.state == health_state::degraded);
    CHECK(good.why == reason::not_paying);
    CHECK(good.drop_rate_q16 < 65536);
  }
}

TEST_CASE("B55 health: authority elsewhere for all of 144 groups is inert within one step") {
  cache<hinted> c{geometry::uniform(144, 8, 2, 1000), budget::of_slots(4)};
  health_monitor monitor{health_setup_of(c)};
  std::vector<group_health> groups(144);
  (void)c.step(layer_id{0}, range(0, 2));
  monitor.update(c.observer().total(), groups);
  REQUIRE(monitor.report().state == health_state::active);
  for (group_health& g : groups)
    g.refuses = reason::no_authority;
  (void)c.step(layer_id{1}, range(0, 2));
  monitor.update(c.observer().total(), groups);
  health_report const& r = monitor.report();
  CHECK(r.state == health_state::inert);
  CHECK(r.why == reason::no_authority);
  CHECK(r.since_step == 2);
  CHECK(r[health_condition::no_permit].count == 144);
  CHECK(r.producers_may_stop());
  CHECK(first_event(monitor, health_condition::no_permit).level == health_level::warning);
  groups[77].refuses = reason::none;  // one has it back: worth predicting again
  (void)c.step(layer_id{1}, range(0, 2));
  monitor.update(c.observer().total(), groups);
  CHECK(r.state == health_state::degraded);
  CHECK(!r.producers_may_stop());
}

TEST_CASE("B64 an extra reader of the router weights") {
  for (routed_value const value : {routed_value::ids, routed_value::weights}) {
    census c{144};
    for (u32 g = 0; g < 144; ++g)
      REQUIRE(c.add(routed_consumer{g, routed_value::ids, true}));
    REQUIRE(c.summary().device == 144);
    SECTION(value == routed_value::ids ? "that looks at ids changes no verdict"
                                       : "that looks at weights changes no verdict") {
      for (u32 g = 0; g < 14; ++g) {
        for (u32 n = 0; n <= g; ++n)
          REQUIRE(c.add(routed_observer{g, value}));
      }
      CHECK(c.summary().device == 144);
      CHECK(c.summary().observers == 105);
      CHECK(c.summary().unproven == 0);
    }
    SECTION(value == routed_value::ids ? "that computes with ids is unproven"
                                       : "that computes with weights is unproven") {
      for (u32 g = 0; g < 14; ++g)
        REQUIRE(c.add(routed_consumer{g, value, false}));
      CHECK(c.summary().device == 130);
      CHECK(c.summary().refused[static_cast<u32>(reason::unproven)] == 14);
      for (u32 g = 0; g < 144; ++g) {
        CHECK(c.verdict(g).why == (g < 14 ? reason::unproven : reason::none));
        // the graph computes all the same: on the host's path
        CHECK(path_of(c.groups()[g]) == (g < 14 ? serving_path::host : serving_path::device));
      }
    }
    // what the census says is what runs
    certified of{c.evidence()};
    gate::gated_cache host =
        gate::make_cache(geometry::uniform(144, 8, 2, 1000), budget::of_slots(2),
                         gate::host_gate{of.groups, 0, &of.fallbacks});
    for (u32 g = 0; g < 144; ++g) {
      CHECK(of.groups.look(g).who == holder_of(path_of(c.groups()[g])));
      bool const is_hosts = path_of(c.groups()[g]) == serving_path::host;
      step_view const v = host.step(layer_id{g}, range(0, 2));
      CHECK(v.kind == (is_hosts ? plan_kind::step : plan_kind::refused));
      CHECK(of.fallbacks.of(g, is_hosts ? reason::unproven : reason::no_authority) == 1);
    }
    check_sound(host);
  }
}

TEST_CASE("B66 health: a silent way back to the stock path under a layer split is named") {
  health_setup setup = health_setup::of(geometry::uniform(48, 128, 8, 1000));
  setup.n_groups = 48;
  health_monitor monitor{setup, {.window_steps = 4800}};
  std::vector<group_health> groups(48);
  for (u32 token = 0; token < 100; ++token) {
    for (u32 g = 0; g < 48; ++g) {
      ++groups[g].steps;
      // the upper half lies on the other device; one group below has a hiccup now and then
      if (g >= 24 || (g == 3 && token % 25 == 0)) {
        ++groups[g].stock_steps;
        groups[g].stock_why = g >= 24 ? reason::route : reason::gate_closed;
      }
    }
    monitor.update({}, groups);
  }
  health_report const& r = monitor.report();
  CHECK(r.state == health_state::degraded);
  CHECK(r.why == reason::fallback);
  CHECK(r[health_condition::stock_path].cause == reason::route);
  CHECK(r[health_condition::stock_path].count == 24);
  REQUIRE(monitor.stock_groups().size() == 24);
  for (u32 i = 0; i < 24; ++i)
    CHECK(monitor.stock_groups()[i] == 24 + i);
  health_event const e = first_event(monitor, health_condition::stock_path);
  CHECK(e.raised);
  CHECK(e.level == health_level::warning);
  CHECK(e.cause == reason::route);
  CHECK(e.count == 24);
  CHECK(e.of == 48);
}

TEST_CASE("B72 steps of several tokens take the same path, and what is declined is seen") {
  for (u32 const n_tokens : {1u, 2u, 3u, 4u}) {
    INFO(n_tokens << " tokens");
    cache<budgeted> c{
        geometry::uniform(1, n_experts, k, 1000), budget::of_slots(24), {.insert_bytes = 2000}};
    REQUIRE(c.fits(layer_id{0}, n_tokens));
    u32 const n = n_tokens * k;
    step_view const first = c.step(layer_id{0}, range(0, n));
    CHECK(first.kind == plan_kind::step);
    CHECK(first.experts.size() == n);
    land(c);
    check_sound(c);
    total_counters now = c.observer().total();
    CHECK(now.steps.value == 1);
    CHECK(now.overflow_steps.value == 0);
    CHECK(now.demanded.value == n);
    CHECK(now[access_kind::load].value == 2);
    CHECK(now[access_kind::declined].value == n - 2);
    // the same tokens again: the residents hit, whatever the width
    CHECK(c.step(layer_id{0}, range(0, n)).kind == plan_kind::step);
    land(c);
    check_sound(c);
    now = c.observer().total();
    CHECK(now.hits().value == 2);
    CHECK(now[access_kind::declined].value == (n - 2) + (n - 4));

    snapshot shot{c.model()};
    REQUIRE(shot.take(c.observer()));
    CHECK(log_of(export_source{shot})
              .find(" decode.declined.experts=" + std::to_string(n - 2 + n - 4)) !=
          std::string::npos);
  }
}

TEST_CASE("B73 what a capability query answers is what is carried out") {
  // an engine that leaves out the synchronisation where the query allows it, and executes as the group's holder
  std::vector<group_census> all;
  for (bool const cached : {false, true}) {
    for (bool const here : {false, true}) {
      for (u32 const consumers : {0u, 1u, 3u}) {
        for (u32 unproven = 0; unproven <= consumers; ++unproven) {
          for (u32 const observers : {0u, 5u})
            all.push_back({cached, here, consumers, unproven, observers});
        }
      }
    }
  }
  census c{static_cast<u32>(all.size())};
  for (u32 g = 0; g < all.size(); ++g) {
    for (u32 n = 0; n < all[g].consumers; ++n)
      REQUIRE(c.add(routed_consumer{g, routed_value::ids, n >= all[g].unproven}));
    for (u32 n = 0; n < all[g].observers; ++n)
      REQUIRE(c.add(routed_observer{g, routed_value::weights}));
    REQUIRE((all[g].cached || c.uncached(g)));
    REQUIRE((all[g].routed_here || c.routed_elsewhere(g)));
    REQUIRE(c.groups()[g] == all[g]);
  }
  certified of{c.evidence()};
  u32 seen[gate::n_holders] = {};
  for (u32 g = 0; g < all.size(); ++g) {
    bool const leaves_out_sync = allows_device_path(all[g]);
    gate::holder const who = of.groups.look(g).who;
    ++seen[static_cast<u32>(who)];
    CHECK(leaves_out_sync == (who == gate::holder::device));
    CHECK(who == holder_of(path_of(all[g])));
    CHECK(gate::verdict_of(evidence_of(all[g])).why == c.verdict(g).why);
    if (!all[g].cached)  // the flag that upstream's predicate forgot
      CHECK(who == gate::holder::nobody);
    // without memory it is nobody's, whatever the census says
    CHECK(gate::verdict_of(evidence_of(all[g], reason::over_budget)) ==
          gate::group_verdict{gate::holder::nobody, reason::over_budget});
    // and evidence by hand, where one word takes all that the census says
    CHECK(gate::verdict_of({reason::none, reason::none, c.verdict(g).why}).who == who);
  }
  CHECK(seen[static_cast<u32>(gate::holder::nobody)] == all.size() / 2);
  CHECK(seen[static_cast<u32>(gate::holder::host)] != 0);
  CHECK(seen[static_cast<u32>(gate::holder::device)] != 0);
}

TEST_CASE("B86 health: a budget that comes to something else than was asked for is an event") {
  SECTION("by rounding: visible, and no fault") {
    cache<> c{geometry::uniform(2, 64, 4, 1000), budget::of_bytes(100'000)};
    health_monitor monitor{health_setup_of(c)};
    u64 const effective = c.effective_budget().effective_bytes;
    REQUIRE(effective < 100'000);
    health_event const e = first_event(monitor, health_condition::budget_differs);
    CHECK(e.step == 0);
    CHECK(e.count == effective);
    CHECK(e.of == 100'000);
    CHECK(e.level == health_level::notice);
    CHECK(monitor.report().state == health_state::active);
    CHECK(monitor.report().requested_bytes == 100'000);
    CHECK(monitor.report().effective_bytes == effective);
  }
  SECTION("clamped to what the model has") {
    cache<> c{geometry::uniform(2, 8, 4, 1000), budget::of_bytes(1'000'000)};
    health_monitor monitor{health_setup_of(c)};
    CHECK(first_event(monitor, health_condition::budget_differs).count ==
          c.effective_budget().effective_bytes);
    CHECK(c.effective_budget().effective_bytes < 100'000);
  }
  SECTION("more than was asked for: degraded, there is no excuse") {
    health_setup setup = health_setup::of(geometry::uniform(2, 64, 4, 1000));
    setup.requested_bytes = 10'000;
    setup.effective_bytes = 10'001;
    health_monitor monitor{setup};
    CHECK(monitor.report().state == health_state::degraded);
    CHECK(first_event(monitor, health_condition::budget_differs).why == reason::over_budget);
  }
  SECTION("as asked for, or asked for in slots: none") {
    health_setup setup = health_setup::of(geometry::uniform(2, 64, 4, 1000));
    setup.effective_bytes = 77'000;
    CHECK(!health_monitor{setup}.report()[health_condition::budget_differs].raised);
    setup.requested_bytes = 77'000;
    CHECK(!health_monitor{setup}.report()[health_condition::budget_differs].raised);
  }
}

TEST_CASE("B87 above a warm tier, one fed by its own demand fills and one fed by misses starves") {
  // The library has one tier and connects no two: two tiers are two caches, and what feeds the upper one is its
  // owner's choice. This is the rule of docs/observe.md, and what comes of the other choice.
  geometry const model = geometry::uniform(1, n_experts, k, 1000);
  cache<> lower{model, budget::of_slots(n_experts)};
  (void)lower.step(layer_id{0}, range(0, n_experts));
  land(lower);
  u64 const loads_of_lower = lower.observer().total().issued[demanded].value;
  cache<> upper{model, budget::of_slots(8)};
  cache<> fed_by_misses{model, budget::of_slots(8)};
  for (u32 i = 0; i < 4; ++i) {
    id_list const ids = range(2 * i, 4);
    step_view const below = lower.step(layer_id{0}, ids);
    CHECK(below.loads.empty());  // warm: every expert is there
    step_view const above = upper.step(layer_id{0}, ids);
    for (routed_id const id : ids)
      CHECK(above.slot_of(expert_id{static_cast<u32>(id)}) != no_slot);
    land(upper);
    id_list misses_below;
    for (planned_load const& load : below.loads)
      misses_below.push_back(static_cast<routed_id>(load.expert));
    (void)fed_by_misses.step(layer_id{0}, misses_below);
    land(fed_by_misses);
    check_sound(lower);
    check_sound(upper);
    check_sound(fed_by_misses);
  }
  CHECK(lower.observer().total().issued[demanded].value == loads_of_lower);
  // all ten that were demanded went up, and the upper tier is full
  CHECK(upper.observer().total()[access_kind::load].value == 10);
  u32 resident = 0;
  for (u32 e = 0; e < n_experts; ++e)
    resident += upper.is_resident({layer_id{0}, expert_id{e}}) ? 1 : 0;
  CHECK(resident == 8);
  CHECK(fed_by_misses.observer().total().issued[demanded].value == 0);
}

TEST_CASE("B88 hits of pinned experts are not mixed with the others") {
  for (u32 const capacity : capacities) {
    if (capacity <= k + 1)
      continue;  // no room for a pin besides k slots
    INFO("capacity " << capacity);
    cache<hinted> c{geometry::uniform(1, n_experts, k, 1000), budget::of_slots(capacity)};
    std::set<u32> const pinned{1, 3};
    for (u32 const e : pinned)
      REQUIRE(c.pin({layer_id{0}, expert_id{e}}));
    dice roll{capacity};
    u64 of_pinned = 0, of_others = 0, first_uses = 0, in_place = 0;
    for (u32 i = 0; i < 1'000; ++i) {
      (void)c.advise(layer_id{0}, id_list{static_cast<routed_id>(roll.below(n_experts))});
      if (roll.below(2) == 0)
        land(c);
      id_list ids = range(0, n_experts);  // now and then all
      if (roll.below(60) != 0) {
        ids.resize(1 + roll.below(k));
        for (routed_id& id : ids)
          id = static_cast<routed_id>(roll.below(roll.below(2) == 0 ? 8 : n_experts));
      }
      step_view const view = c.step(layer_id{0}, ids);
      for (u32 j = 0; j < view.experts.size(); ++j) {
        bool const is_pinned = pinned.count(view.experts[j]) != 0;
        of_pinned += view.how[j] == access_kind::hit && is_pinned ? 1 : 0;
        of_others += view.how[j] == access_kind::hit && !is_pinned ? 1 : 0;
        first_uses += view.how[j] == access_kind::first_use ? 1 : 0;
        in_place += view.how[j] == access_kind::overflow_hit ? 1 : 0;
      }
      land(c);
      check_sound(c);
    }
    total_counters const now = c.observer().total();
    u64 by_source = 0;
    u32 sources = 0;
    for_each_counter(now, [&](counter_info const& info, auto value) {
      if (std::string_view{info.name} != "hits")
        return;
      by_source += value.value;
      ++sources;
      std::string_view const source = info.label_value;
      CHECK(value.value == (source == "pinned"       ? of_pinned
                            : source == "demanded"   ? of_others
                            : source == "speculated" ? first_uses
                                                     : in_place));
    });
    CHECK(sources == 4);
    CHECK(by_source == now.hits().value);
    CHECK(of_pinned > 100);
    CHECK(of_others > 0);
    CHECK(first_uses > 0);
    CHECK(in_place > 0);
  }
}

TEST_CASE("B91 speculation that doubles the bytes at a flat hit rate does not pay") {
  auto const play = [](bool hints, bool right, health_report& report) {
    cache<hinted> c{
        geometry::uniform(1, n_experts, k, 1000), budget::of_slots(16), {.speculative_slots = 4}};
    health_monitor monitor{health_setup_of(c), {.window_steps = 200}};
    dice roll{5};
    for (u32 i = 0; i < 2'000; ++i) {
      u32 const next = roll.below(32);
      if (hints) {  // 32 … 63 are never demanded
        u32 const guess = right ? next : 32 + i % 32;
        (void)c.advise(layer_id{0}, id_list{static_cast<routed_id>(guess)});
        land(c);
      }
      (void)c.step(layer_id{0}, id_list{static_cast<routed_id>(next)});
      land(c);
      check_sound(c);
      monitor.update(c.observer().total());
    }
    report = monitor.report();
    return c.observer().total();
  };
  health_report without, wrong, right;
  total_counters const alone = play(false, false, without);
  total_counters const vain = play(true, false, wrong);
  total_counters const good = play(true, true, right);
  auto const bytes = [](total_counters const& c) {
    return c.bytes[demanded].value + c.bytes[speculated].value;
  };
  CHECK(bytes(vain) > 2 * bytes(alone));
  CHECK(vain.hit_rate() <= alone.hit_rate());
  CHECK(vain.bytes_per_useful_hit() == u64_max);
  CHECK(wrong.state == health_state::degraded);
  CHECK(wrong.why == reason::not_paying);
  CHECK(wrong.bytes_per_useful_hit == u64_max);
  CHECK(without.state == health_state::active);
  CHECK(alone.bytes_per_useful_hit() == 0);
  CHECK(right.state == health_state::active);
  CHECK(good.hit_rate() > 0.99);
  CHECK(good.bytes_per_useful_hit() == 1000);
}

TEST_CASE("R28 health: a configuration that cannot be active says inactive and why") {
  geometry const model = geometry::uniform(48, 128, 8, 1000);
  for (reason const why : {reason::route, reason::unsupported, reason::wrong_device}) {
    health_setup setup = health_setup::of(model);
    setup.cannot_be_active = why;
    health_monitor monitor{setup};
    total_counters busy{};  // it may look as busy as it likes
    busy.steps.value = 100'000;
    busy.demanded.value = 800'000;
    monitor.update(busy);
    CHECK(monitor.report().state == health_state::inactive);
    CHECK(monitor.report().why == why);
    CHECK(monitor.report().producers_may_stop());
    snapshot const none{model};
    std::string const line = log_of(export_source{none, &monitor.report()});
    CHECK(line.find(std::string(" health=inactive reason=") + name_of(why)) != std::string::npos);
    CHECK(first_event(monitor, health_condition::cannot_be_active).level == health_level::warning);
  }
  // what says nothing of itself is not taken for active
  CHECK(health_monitor{health_setup{}}.report().state == health_state::inactive);
  cache<off> const nothing{};
  CHECK(health_monitor{health_setup_of(nothing)}.report().state == health_state::off);
}

TEST_CASE("R38 health: experts below the minimum are excluded visibly, and the minimum is the "
          "model's own") {
  std::vector<layer_geometry> layers;
  for (u32 i = 0; i < 48; ++i)
    layers.push_back({layer_id{i}, 128, 8, {i < 40 ? 296u * 1024 : 600u * 1024}});
  geometry const model{layers};
  health_monitor monitor{health_setup::of(model, 512 * 1024)};
  health_report const& r = monitor.report();
  CHECK(r[health_condition::excluded].raised);
  CHECK(r[health_condition::excluded].count == 40);
  CHECK(r[health_condition::excluded].of == 48);
  CHECK(r[health_condition::excluded].why == reason::below_minimum);
  CHECK(r.layers == 48);
  CHECK(r.layers_covered == 8);
  CHECK(r.state == health_state::active);  // as it was told to
  CHECK(model.coverage(512 * 1024).excluded.size() == 40);
  health_event const e = first_event(monitor, health_condition::excluded);
  CHECK(e.why == reason::below_minimum);
  CHECK(e.count == 40);
  snapshot const none{model};
  CHECK(log_of(export_source{none, &r}).find(" excluded=below_minimum,40/48") != std::string::npos);

  CHECK(!health_monitor{health_setup::of(model, 256 * 1024)}
             .report()[health_condition::excluded]
             .raised);
  health_monitor const all{health_setup::of(model, 1024 * 1024)};
  CHECK(all.report().state == health_state::inactive);
  CHECK(all.report().why == reason::below_minimum);
}

TEST_CASE("R48 what prefill costs shows by phase, and prefill can have a policy of its own") {
  auto const play = [](auto& c) {
    id_list const working_set = range(0, 12);
    dice roll{3};
    for (u32 round = 0; round < 40; ++round) {
      for (u32 i = 0; i < 12; ++i) {
        (void)c.step(layer_id{0}, id_list{working_set[i], working_set[(i + 5) % 12]});
        land(c);
      }
      for (u32 i = 0; i < 20; ++i) {
        id_list wide(8);
        for (routed_id& id : wide)
          id = static_cast<routed_id>(12 + roll.below(n_experts - 12));
        (void)c.step(layer_id{0}, wide, phase::prefill);
        land(c);
      }
      check_sound(c);
    }
    snapshot shot{c.model()};
    REQUIRE(shot.take(c.observer()));
    return shot;
  };
  geometry const model = geometry::uniform(1, n_experts, k, 1000);
  cache<> together{model, budget::of_slots(16)};
  cache<prefill_apart> apart{model, budget::of_slots(16)};
  snapshot const one = play(together);
  snapshot const two = play(apart);
  // together: prefill moves most experts, hits little, and decode pays for it
  CHECK(one.sum(phase::prefill).issued[demanded].value >
        4 * one.sum(phase::decode).issued[demanded].value);
  CHECK(one.sum(phase::prefill).hit_rate() < 0.3);
  CHECK(one.sum(phase::decode).hit_rate() < 0.6);
  // apart: the decode set stays
  CHECK(two.sum(phase::prefill).issued[demanded].value == 0);
  CHECK(two.sum(phase::prefill)[access_kind::declined] == two.sum(phase::prefill).demanded);
  CHECK(two.sum(phase::decode).hit_rate() > 0.97);
  std::string const line = log_of(export_source{two});
  CHECK(line.find(" prefill.declined.experts=") != std::string::npos);
  CHECK(line.find(" decode.declined.experts=") == std::string::npos);
}

}  // namespace warmset::scenario
