// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/observe/health.hpp>

namespace warmset {
namespace {

constexpr u32 spec = static_cast<u32>(intent::speculative);

health_setup sound() {
  return health_setup::of(geometry::uniform(48, 128, 8, 1000));
}

/// A monitor and the counters that it is told, moved by hand.
struct watched_cache {
  explicit watched_cache(health_limits limits = {.window_steps = 100,
                                                 .min_hints = 4,
                                                 .min_copies = 8},
                         health_setup setup = sound())
      : monitor(setup, limits) {}

  health_monitor monitor;
  total_counters now{};

  health_report const& steps(u32 n) {
    for (u32 i = 0; i < n; ++i) {
      ++now.steps.value;
      monitor.update(now);
    }
    return monitor.report();
  }
  /// Hints that lead to transfers which arrive, of which `used` are used.
  void issued(u32 n, u32 used) {
    now.hints_offered.value += n;
    now.issued[spec].value += n;
    now.arrived[spec].value += n;
    now.bytes[spec].value += u64{n} * 1000;
    now.accesses[static_cast<u32>(access_kind::first_use)].value += used;
  }
  void dropped(u32 n, reason why) {
    now.hints_offered.value += n;
    now.hints_dropped[static_cast<u32>(why)].value += n;
  }
  std::vector<health_event> events() {
    std::vector<health_event> all;
    for (health_event e; monitor.next_event(e);)
      all.push_back(e);
    return all;
  }
  condition_report const& operator[](health_condition c) const { return monitor.report()[c]; }
};

}  // namespace

TEST_CASE("a sound cache is active from the start, and nothing happens") {
  watched_cache c;
  CHECK(c.monitor.report().state == health_state::active);
  CHECK(c.monitor.report().why == reason::none);
  c.steps(500);
  CHECK(c.monitor.report().state == health_state::active);
  CHECK(c.monitor.report().since_step == 0);
  CHECK(c.monitor.report().step == 500);
  CHECK(!c.monitor.report().producers_may_stop());
  CHECK(c.events().empty());
}

TEST_CASE("B02 health: hints of which none is issued over a window make speculation inert") {
  for (u32 const window : {1u, 10u, 100u, 1000u}) {
    watched_cache c{{.window_steps = window, .min_hints = 1}};
    c.steps(7);
    for (u32 i = 0; i < window - 1; ++i) {
      c.dropped(2, reason::guard);
      REQUIRE(c.steps(1).state == health_state::active);
    }
    c.dropped(2, reason::guard);
    health_report const& r = c.steps(1);
    CHECK(r.state == health_state::inert);
    CHECK(r.why == reason::inert);
    CHECK(r.since_step == 7 + window);
    CHECK(r[health_condition::nothing_issued].cause == reason::guard);
    CHECK(r[health_condition::nothing_issued].count == 2 * window);
    CHECK(r.producers_may_stop());
    c.dropped(2 * window, reason::guard);
    c.steps(window);  // a whole window of them
    CHECK(r.drop_rate_q16 == 65536);
    CHECK(r.hints_issued == 0);
    // one that is issued ends it at once
    c.issued(1, 0);
    CHECK(c.steps(1).state == health_state::active);
    CHECK(!r.producers_may_stop());
    CHECK(r.since_step == r.step);
    std::vector<health_event> const events = c.events();
    REQUIRE(events.size() == 2);
    CHECK(events[0].raised);
    CHECK(events[0].level == health_level::warning);
    CHECK(events[0].step == 7 + window);
    CHECK(!events[1].raised);
    CHECK(events[1].condition == health_condition::nothing_issued);
    CHECK(events[1].why == reason::inert);
  }
}

TEST_CASE("hints that need no copy do not make speculation inert") {
  for (reason const why : {reason::sentinel, reason::out_of_range, reason::duplicate,
                           reason::unknown_layer, reason::resident, reason::in_flight}) {
    watched_cache c;
    for (u32 i = 0; i < 50; ++i) {
      c.dropped(10, why);
      REQUIRE(c.steps(10).state == health_state::active);
    }
    CHECK(c.monitor.report().drop_rate_q16 == 0);
    CHECK(c.monitor.report().hints_wanting == 0);
  }
}

TEST_CASE("every other reason can make it inert, and the most frequent one is named") {
  for (u32 r = static_cast<u32>(reason::guard); r < n_drop_reasons; ++r) {
    reason const why = static_cast<reason>(r);
    INFO(name_of(why));
    watched_cache c;
    for (u32 i = 0; i < 12; ++i) {
      c.dropped(2, why);
      c.dropped(1, why == reason::guard ? reason::limited : reason::guard);
      c.dropped(5, reason::resident);
      c.steps(10);
    }
    CHECK(c.monitor.report().state == health_state::inert);
    CHECK(c[health_condition::nothing_issued].cause == why);
  }
}

TEST_CASE("few hints say nothing, and neither does a window in which one was issued") {
  watched_cache c;
  c.dropped(3, reason::guard);
  CHECK(c.steps(1000).state == health_state::active);
  c.dropped(1, reason::guard);  // the fourth
  CHECK(c.steps(1).state == health_state::inert);

  watched_cache busy;
  for (u32 i = 0; i < 100; ++i) {
    busy.dropped(100, reason::guard);
    busy.steps(50);
    busy.issued(1, 1);
    REQUIRE(busy.steps(49).state == health_state::active);
  }
  CHECK(busy.monitor.report().drop_rate_q16 > 64000);
}

TEST_CASE("a producer that has stopped is told when to probe") {
  watched_cache c;
  CHECK(!c.steps(1000).probe_due);  // only where inert
  c.dropped(10, reason::guard);
  c.steps(100);
  health_report const& r = c.monitor.report();
  REQUIRE(r.state == health_state::inert);
  CHECK(c.steps(1).probe_due);
  c.dropped(1, reason::guard);  // it probed, in vain
  CHECK(!c.steps(1).probe_due);
  CHECK(r.state == health_state::inert);
  CHECK(!c.steps(99).probe_due);
  CHECK(c.steps(1).probe_due);
  c.issued(1, 1);
  CHECK(!c.steps(1).probe_due);
  CHECK(r.state == health_state::active);
}

TEST_CASE("speculation that costs more than it saves is not paying, with hysteresis") {
  watched_cache c;  // bound: four experts' bytes for each one used
  auto const window = [&](u32 copies, u32 used) {
    c.issued(copies, used);
    c.steps(100);
    return c[health_condition::not_paying].raised;
  };
  CHECK(!window(40, 10));  // at the bound
  CHECK(window(41, 10));
  CHECK(c.monitor.report().state == health_state::degraded);
  CHECK(c.monitor.report().why == reason::not_paying);
  CHECK(c[health_condition::not_paying].count == 41'000);
  CHECK(c[health_condition::not_paying].of == 10);
  CHECK(!c.monitor.report().producers_may_stop());
  CHECK(window(31, 10));  // still over three quarters
  CHECK(!window(30, 10));
  CHECK(c.monitor.report().state == health_state::active);
  CHECK(window(8, 0));  // none of use
  CHECK(c.monitor.report().bytes_per_useful_hit == u64_max);
  CHECK(window(7, 7));  // too few to judge: they wait for more
  CHECK(!window(1, 1));
}

TEST_CASE("a lost permit shows at once, of all groups as inert, of some as degraded") {
  watched_cache c;
  health_setup setup = sound();
  setup.n_groups = 4;
  health_monitor m{setup};
  std::vector<group_health> groups(4);
  total_counters now{};
  now.steps.value = 10;
  m.update(now, groups);
  CHECK(m.report().state == health_state::active);
  for (reason const why : {reason::no_authority, reason::gate_closed, reason::stale_epoch,
                           reason::not_paying, reason::worker_down}) {
    groups[1].refuses = why;
    ++now.steps.value;
    m.update(now, groups);
    CHECK(m.report().state == health_state::degraded);
    CHECK(m.report().why == why);
    CHECK(m.report()[health_condition::no_permit].count == 1);
    CHECK(m.report()[health_condition::no_permit].of == 4);
    CHECK(!m.report().producers_may_stop());
    groups[0].refuses = why;
    groups[2].refuses = why;
    m.update(now, groups);
    CHECK(m.report().state == health_state::degraded);
    for (group_health& g : groups)
      g.refuses = why;
    ++now.steps.value;
    m.update(now, groups);
    CHECK(m.report().state == health_state::inert);
    CHECK(m.report().since_step == now.steps.value);
    CHECK(m.report().producers_may_stop());
    CHECK(!m.report().probe_due);  // a probe would not help
    for (group_health& g : groups)
      g.refuses = reason::none;
    ++now.steps.value;
    m.update(now, groups);
    CHECK(m.report().state == health_state::active);
  }
}

namespace {

/// A monitor of four groups that are told what they are refused for.
struct governed_groups {
  health_monitor monitor;
  std::vector<group_health> groups = std::vector<group_health>(4);
  total_counters now{};

  explicit governed_groups(u32 window)
      : monitor(
            [] {
              health_setup s = sound();
              s.n_groups = 4;
              return s;
            }(),
            {.window_steps = window}) {
    now.steps.value = 1000;  // what passed before anybody looked is nobody's window
    monitor.update(now, groups);
  }
  /// So many steps, in each of which all groups from `first` on are refused.
  health_state steps(u32 n, reason why, u32 first = 0) {
    for (u32 i = 0; i < n; ++i) {
      for (u32 g = first; g < 4; ++g)
        groups[g].refuses = why;
      ++now.steps.value;
      monitor.update(now, groups);
    }
    return monitor.report().state;
  }
  u32 n_events() {
    u32 n = 0;
    for (health_event e; monitor.next_event(e);)
      ++n;
    return n;
  }
};

}  // namespace

TEST_CASE("prefill is no fault, whoever is in it and for how long") {
  governed_groups c{100};
  for (u32 prompt = 0; prompt < 5; ++prompt) {
    CHECK(c.steps(1000, reason::in_prefill, prompt % 2) == health_state::active);
    CHECK(c.steps(30, reason::none) == health_state::active);
  }
  CHECK(!c.monitor.report()[health_condition::no_permit].raised);
  CHECK(c.n_events() == 0);
}

TEST_CASE("no byte permitted now and then is a governor at work; for a window, a lost permit") {
  for (u32 const window : {1u, 2u, 100u}) {
    governed_groups c{window};
    for (u32 i = 0; i < 20; ++i) {
      // the first step begins the window
      REQUIRE(c.steps(window, reason::governed) == health_state::active);
      REQUIRE(c.steps(1, reason::none) == health_state::active);
    }
    CHECK(c.n_events() == 0);
    REQUIRE(c.steps(window, reason::governed) == health_state::active);
    CHECK(c.steps(1, reason::governed) == health_state::inert);
    CHECK(c.monitor.report().why == reason::governed);
    CHECK(c.monitor.report().since_step == c.now.steps.value);
    CHECK(c.monitor.report().producers_may_stop());
    CHECK(c.steps(10 * window, reason::governed) == health_state::inert);
    CHECK(c.n_events() == 1);
    CHECK(c.steps(1, reason::none, 3) == health_state::degraded);
    CHECK(c.steps(1, reason::none) == health_state::active);
  }
}

TEST_CASE("prompts neither lengthen nor end a window of a starved governor") {
  governed_groups c{100};
  CHECK(c.steps(51, reason::governed) == health_state::active);
  CHECK(c.steps(1000, reason::in_prefill) == health_state::active);
  CHECK(c.steps(50, reason::governed) == health_state::active);
  CHECK(c.steps(1, reason::governed) == health_state::inert);
  CHECK(c.steps(1000, reason::in_prefill) == health_state::inert);  // no news of it
  CHECK(c.steps(1, reason::governed) == health_state::inert);
  CHECK(c.n_events() == 1);
  CHECK(c.steps(1, reason::no_authority) == health_state::inert);  // another fault takes its place
  CHECK(c.monitor.report().why == reason::no_authority);
  CHECK(c.steps(100, reason::governed) == health_state::active);  // and its window begins anew
  CHECK(c.steps(1, reason::governed) == health_state::inert);
}

TEST_CASE("a governor that says that it has stopped is a lost permit at once") {
  governed_groups c{100};
  CHECK(c.steps(1, reason::governed) == health_state::active);
  for (group_health& g : c.groups)
    g.is_stopped = true;
  CHECK(c.steps(1, reason::governed) == health_state::inert);
  CHECK(c.monitor.report().why == reason::governed);
  for (group_health& g : c.groups)
    g.is_stopped = false;
  CHECK(c.steps(1, reason::none) == health_state::active);
}

TEST_CASE("groups on the stock path are judged one by one, with hysteresis") {
  health_setup setup = sound();
  setup.n_groups = 4;
  health_monitor m{setup, {.window_steps = 400, .stock_percent = 10}};  // 100 steps of a group
  std::vector<group_health> groups(4);
  auto const window = [&](std::vector<u32> const& stock) {
    for (u32 g = 0; g < 4; ++g) {
      groups[g].steps += 100;
      groups[g].stock_steps += stock[g];
      groups[g].stock_why = stock[g] != 0 ? reason::route : reason::none;
    }
    m.update({}, groups);
    return std::vector<u32>(m.stock_groups().begin(), m.stock_groups().end());
  };
  using list = std::vector<u32>;
  CHECK(window({0, 10, 10, 0}) == list{});  // at the threshold
  CHECK(m.report().state == health_state::active);
  CHECK(window({0, 11, 0, 100}) == list{1, 3});
  CHECK(m.report().state == health_state::degraded);
  CHECK(m.report().why == reason::fallback);
  CHECK(m.report()[health_condition::stock_path].cause == reason::route);
  CHECK(m.report()[health_condition::stock_path].count == 2);
  CHECK(m.report()[health_condition::stock_path].of == 4);
  CHECK(m.report().since_step == 800);     // the cache itself has taken no step
  CHECK(window({0, 8, 0, 0}) == list{1});  // still over three quarters
  CHECK(window({0, 7, 0, 0}) == list{});
  CHECK(m.report().state == health_state::active);
  CHECK(m.report()[health_condition::stock_path].since_step == 1600);
}

TEST_CASE("configurations that cannot be active are inactive with a reason") {
  auto const judged = [](auto&& change) {
    health_setup setup = sound();
    change(setup);
    health_monitor const m{setup};
    return m.report();
  };
  auto const inactive = [&](reason why, auto&& change) {
    health_report const r = judged(change);
    CHECK(r.state == health_state::inactive);
    CHECK(r.why == why);
    CHECK(r.producers_may_stop());
  };
  for (reason const why :
       {reason::route, reason::unsupported, reason::wrong_device, reason::unproven})
    inactive(why, [&](health_setup& s) { s.cannot_be_active = why; });
  inactive(reason::uncovered, [](health_setup& s) { s = {}; });  // nobody said what is covered
  inactive(reason::uncovered, [](health_setup& s) { s.layers_covered = 0; });
  inactive(reason::below_minimum, [](health_setup& s) {
    s = health_setup::of(geometry::uniform(48, 128, 8, 296 * 1024), 512 * 1024);
  });
  inactive(reason::over_budget, [](health_setup& s) { s.requested_bytes = 1000; });
  inactive(reason::no_memory, [](health_setup& s) {
    s.requested_bytes = 1000;
    s.budget_why = reason::no_memory;
  });
  // the worst decides
  inactive(reason::route, [](health_setup& s) {
    s.cannot_be_active = reason::route;
    s.pageable = true;
  });
  CHECK(judged([](health_setup& s) { s.pageable = true; }).why == reason::pageable);
}

TEST_CASE("a cache that nobody asked for is off, whatever it is told") {
  health_setup setup{};
  setup.wanted = false;
  health_monitor m{setup};
  total_counters now{};
  now.steps.value = 10'000;
  now.hints_offered.value = 1000;
  now.hints_dropped[static_cast<u32>(reason::guard)].value = 1000;
  m.update(now);
  CHECK(m.report().state == health_state::off);
  CHECK(m.report().why == reason::none);
  CHECK(m.report().producers_may_stop());
  health_event e;
  CHECK(!m.next_event(e));
}

TEST_CASE("a revised configuration raises and clears its own conditions") {
  watched_cache c;
  c.steps(40);
  health_setup setup = sound();
  setup.pageable = true;
  c.monitor.revise(setup);
  CHECK(c.monitor.report().state == health_state::degraded);
  CHECK(c.monitor.report().since_step == 40);
  c.monitor.revise(setup);  // told again: no event
  c.steps(2);
  c.monitor.revise(sound());
  CHECK(c.monitor.report().state == health_state::active);
  CHECK(c.monitor.report().since_step == 42);
  std::vector<health_event> const events = c.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].raised);
  CHECK(!events[1].raised);
  CHECK(events[1].step == 42);
  CHECK(events[1].why == reason::pageable);
}

TEST_CASE("what is raised and cleared in turn loses the oldest events, and counts them") {
  watched_cache c;
  health_setup pageable = sound();
  pageable.pageable = true;
  for (u32 i = 0; i < health_monitor::max_events; ++i) {
    c.steps(1);
    c.monitor.revise(i % 2 == 0 ? pageable : sound());
  }
  CHECK(c.monitor.events_lost() == 0);
  c.steps(1);
  c.monitor.revise(pageable);
  CHECK(c.monitor.events_lost() == 1);
  std::vector<health_event> const events = c.events();
  REQUIRE(events.size() == health_monitor::max_events);
  CHECK(events.front().step == 2);
  CHECK(events.back().step == health_monitor::max_events + 1);
}

TEST_CASE("limits that judge nothing are refused") {
  CHECK_THROWS_AS((health_monitor{sound(), {.window_steps = 0}}), config_error);
  CHECK_THROWS_AS((health_monitor{sound(), {.min_hints = 0}}), config_error);
  CHECK_THROWS_AS((health_monitor{sound(), {.min_copies = 0}}), config_error);
  CHECK_THROWS_AS((health_monitor{sound(), {.experts_per_useful_hit = 0}}), config_error);
  CHECK_THROWS_AS((health_monitor{sound(), {.stock_percent = 100}}), config_error);
  health_setup no_bytes = sound();
  no_bytes.expert_bytes = 0;
  CHECK_THROWS_AS(health_monitor{no_bytes}, config_error);
}

TEST_CASE("states and conditions have names of their own") {
  std::set<std::string> names;
  for (u32 i = 0; i < n_health_states; ++i)
    names.insert(name_of(static_cast<health_state>(i)));
  for (u32 i = 0; i < n_health_conditions; ++i)
    names.insert(name_of(static_cast<health_condition>(i)));
  CHECK(names.size() == n_health_states + n_health_conditions);
}

}  // namespace warmset
