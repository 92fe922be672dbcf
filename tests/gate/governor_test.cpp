// SPDX-License-Identifier: Apache-2.0
// The governor against a plain model of its rule in wide integers, and the ledger against a plain model of a step.

#include <warmset/gate/governor.hpp>
#include <warmset/gate/hint_ledger.hpp>
#include <warmset/gate/residence.hpp>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

using namespace warmset;
using gate::governor;
using gate::governor_event;
using gate::governor_numbers;
using gate::governor_state;

namespace {

#if defined(__SIZEOF_INT128__)
__extension__ using wide = unsigned __int128;
#else
using wide = u64;
#endif

/// 64-bit numbers of all sizes, ends included.
u64 any_number(std::mt19937_64& random) {
  switch (random() % 8) {
  case 0:
    return 0;
  case 1:
    return u64_max;
  case 2:
    return u64_max - random() % 3;
  default:
    return random() >> random() % 64;
  }
}

/// The rule in wide integers, with everything remembered: no shortcut of the governor's own.
class naive_governor {
 public:
  explicit naive_governor(governor_numbers n) : n_(n), rest_(n.rest_windows) {}

  gate::permission ask(phase p, u64 slack, u64 expert) {
    if (p == phase::prefill && !n_.in_prefill) {
      return {0, reason::in_prefill};
    }
    if (steps_ >= n_.window_steps || judged_in_window_ >= n_.min_samples) {
      end_window();
    }
    ++steps_;
    slack_ = std::min(slack_ + slack, wide{u64_max});  // sums saturate
    // the most whole bytes B with B (65536 - p) <= slack 65536
    wide const q = 65536 - precision();
    wide const most = q == 0 ? wide{u64_max} : std::min(wide{u64_max}, wide{slack} * 65536 / q);
    bool const one = most >= expert;
    if (state == governor_state::starved && one) {
      state = governor_state::open;
      rested_ = bad_ = 0;
    }
    if (state == governor_state::sampling || state == governor_state::probing) {
      return {expert, reason::none};
    }
    if (state == governor_state::open) {
      paid_ += one;
      return one ? gate::permission{static_cast<u64>(most), reason::none}
                 : gate::permission{0, reason::governed};
    }
    return {0, state == governor_state::starved ? reason::governed : reason::not_paying};
  }

  void issued(u64 bytes) { issued_ = std::min(issued_ + bytes, wide{u64_max}); }

  void judge(u32 used, u32 wasted, u32 regretted) {
    used_ += used;
    regretted_ += regretted;
    judged_ += wide{used} + wasted;
    judged_in_window_ += wide{used} + wasted;
    bool const probing = state == governor_state::probing;
    if ((probing && judged_ >= n_.probe_samples) ||
        (state == governor_state::sampling && judged_ >= n_.min_samples)) {
      if (precision() >= n_.least_precision) {
        go(governor_state::open);
      } else {
        close(governor_state::stopped);
      }
    }
    while (judged_ > n_.memory) {
      judged_ /= 2;
      used_ /= 2;
      regretted_ /= 2;
    }
  }

  u32 precision() const {
    wide const net = used_ > regretted_ ? used_ - regretted_ : 0;
    return static_cast<u32>(std::min(net * 65536 / (judged_ + 2), wide{65536}));
  }

  governor_state state = governor_state::sampling;

 private:
  void go(governor_state to) {
    state = to;
    rested_ = bad_ = 0;
  }
  void close(governor_state to) {
    go(to);
    bool const counts = to == governor_state::stopped || !has_starved_;
    has_starved_ = has_starved_ || to == governor_state::starved;
    if (!counts) {
      return;
    }
    rest_ = probes_ == 0 || open_windows_ > rest_ ? n_.rest_windows
                                                  : std::min(rest_, n_.most_rest_windows / 2) * 2;
  }
  void end_window() {
    if (state == governor_state::open) {
      ++open_windows_;
      wide const loss = issued_ * (65536 - precision());
      bool const bad = loss > slack_ * 65536 || precision() < n_.least_precision;
      bad_ = bad ? bad_ + 1 : 0;
      if (bad_ >= n_.bad_windows) {
        close(governor_state::stopped);
      } else if (paid_ == 0) {
        close(governor_state::starved);
      }
    } else if (state == governor_state::stopped || state == governor_state::starved) {
      if (++rested_ >= rest_) {
        go(governor_state::probing);
        ++probes_;
        has_starved_ = false;
        used_ = regretted_ = judged_ = 0;
        open_windows_ = 0;
      }
    }
    steps_ = paid_ = 0;
    judged_in_window_ = 0;
    slack_ = issued_ = 0;
  }

  governor_numbers n_;
  wide used_ = 0, regretted_ = 0, judged_ = 0, judged_in_window_ = 0;
  wide slack_ = 0, issued_ = 0;
  u32 steps_ = 0, paid_ = 0, bad_ = 0, rested_ = 0, open_windows_ = 0, probes_ = 0;
  u32 rest_;
  bool has_starved_ = false;
};

}  // namespace

TEST_CASE("waste and permission are exact at every size") {
  std::mt19937_64 random{7};
  for (int i = 0; i < 200'000; ++i) {
    u64 const x = any_number(random);
    u32 const p =
        i % 5 == 0 ? static_cast<u32>(random() % 3 * 32768) : static_cast<u32>(random() % 65537);
    wide const q = 65536 - p;
    REQUIRE(gate::expected_waste(x, p) == static_cast<u64>((wide{x} * q + 65535) / 65536));
    wide const most = q == 0 ? wide{u64_max} : wide{x} * 65536 / q;
    u64 const permitted = gate::permitted_bytes(x, p);
    REQUIRE(permitted == static_cast<u64>(most < u64_max ? most : wide{u64_max}));
    REQUIRE(gate::expected_waste(permitted, p) <= x);
    if (most < u64_max) {
      REQUIRE(gate::expected_waste(permitted + 1, p) > x);
    }
  }
  for (u64 x = u64_max - 70'000; x != 0; ++x) {
    REQUIRE(gate::permitted_bytes(x, 0) == x);
  }
  CHECK(gate::permitted_bytes(5, 70'000) == u64_max);  // more than all is all
}

TEST_CASE("every state and event has one successor, as the table says") {
  using s = governor_state;
  using e = governor_event;
  struct edge {
    s from;
    e on;
    s to;
  };
  // all that is no self-loop
  static constexpr edge edges[] = {
      {s::sampling, e::pays, s::open},        {s::sampling, e::does_not_pay, s::stopped},
      {s::open, e::does_not_pay, s::stopped}, {s::open, e::slack_gone, s::starved},
      {s::open, e::reset, s::sampling},       {s::starved, e::slack_back, s::open},
      {s::starved, e::rested, s::probing},    {s::starved, e::reset, s::sampling},
      {s::stopped, e::rested, s::probing},    {s::stopped, e::reset, s::sampling},
      {s::probing, e::pays, s::open},         {s::probing, e::does_not_pay, s::stopped},
      {s::probing, e::reset, s::sampling}};
  constexpr bool walked = [] {
    for (u32 from = 0; from < gate::n_governor_states; ++from) {
      for (u32 on = 0; on < gate::n_governor_events; ++on) {
        s expected = static_cast<s>(from);
        for (edge const& each : edges) {
          if (each.from == static_cast<s>(from) && each.on == static_cast<e>(on)) {
            expected = each.to;
          }
        }
        if (gate::after(static_cast<s>(from), static_cast<e>(on)) != expected) {
          return false;
        }
      }
    }
    return true;
  }();
  STATIC_REQUIRE(walked);
  for (u32 i = 0; i < gate::n_governor_states; ++i) {
    CHECK(std::string(name_of(static_cast<s>(i))) != "unknown");
  }
}

TEST_CASE("random histories: the governor and the plain rule say the same") {
  bool seen[gate::n_governor_states] = {};
  for (u64 seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random{seed};
    governor_numbers n;
    n.min_samples = 1 + static_cast<u32>(random() % 20);
    n.window_steps = 1 + static_cast<u32>(random() % 12);
    n.bad_windows = 1 + static_cast<u32>(random() % 3);
    n.rest_windows = 1 + static_cast<u32>(random() % 4);
    n.most_rest_windows = n.rest_windows + static_cast<u32>(random() % 30);
    n.probe_samples = 1 + static_cast<u32>(random() % 8);
    n.least_precision = static_cast<u32>(random() % 30'000);
    n.memory = 20 + static_cast<u32>(random() % 100);
    n.in_prefill = random() % 2 == 0;
    governor g(n);
    naive_governor naive(n);
    bool const extreme = seed % 3 == 0;
    u32 truth = static_cast<u32>(random() % 101);
    for (u32 step = 0; step < 1500; ++step) {
      truth = random() % 200 == 0 ? static_cast<u32>(random() % 101) : truth;
      phase const p = random() % 10 == 0 ? phase::prefill : phase::decode;
      u64 const expert = extreme ? any_number(random) : 100;
      u64 const slack = extreme ? any_number(random) : random() % 4 * 60 * (step / 500 % 2);
      gate::permission const may = g.ask(p, slack, expert);
      gate::permission const should = naive.ask(p, slack, expert);
      INFO("seed " << seed << ", step " << step << ", " << name_of(g.state()));
      bool const unlimited = may.bytes > u64_max / 2 && should.bytes > u64_max / 2;
      REQUIRE((unlimited || may.bytes == should.bytes));
      REQUIRE(may.why == should.why);
      REQUIRE(g.state() == naive.state);
      REQUIRE((may.bytes == 0 || may.why == reason::none));
      seen[static_cast<u32>(g.state())] = true;
      u64 const loads =
          extreme ? random() % 9 : std::min<u64>(may.bytes / std::max<u64>(expert, 1), 6);
      if (may.bytes != 0) {
        u64 const bytes = extreme ? any_number(random) : loads * expert;
        g.issued(bytes);
        naive.issued(bytes);
        u32 used = 0;
        for (u64 i = 0; i < loads; ++i) {
          used += random() % 100 < truth ? 1 : 0;
        }
        u32 const regretted = random() % 5 == 0 ? static_cast<u32>(random() % 2) : 0;
        g.judge(used, static_cast<u32>(loads) - used, regretted);
        naive.judge(used, static_cast<u32>(loads) - used, regretted);
      }
      REQUIRE(g.precision() == naive.precision());
      REQUIRE(g.state() == naive.state);
    }
  }
  for (bool each : seen) {
    CHECK(each);  // the histories reach every state
  }
}

TEST_CASE("counts of 2^32 - 1 saturate and never wrap") {
  governor g;
  for (int i = 0; i < 5; ++i) {
    (void)g.ask(phase::decode, u64_max, u64_max);
    g.issued(u64_max);
    g.judge(u32_max, u32_max, u32_max);
    CHECK(g.precision() <= gate::q16_one);
  }
  CHECK(g.precision() == 0);  // all that was used was regretted
  CHECK(g.is_stopped());
  CHECK(g.why() == reason::not_paying);
}

TEST_CASE("one expert per step until min_samples hints are judged, whatever the slack") {
  for (u64 slack : {u64{0}, u64{50}, u64{1'000'000}}) {
    governor g;
    for (u32 i = 0; i < g.numbers().min_samples; ++i) {
      CHECK(g.state() == governor_state::sampling);
      CHECK(g.ask(phase::decode, slack, 100).bytes == 100);
      g.judge(1, 0, 0);
    }
    CHECK(g.state() == governor_state::open);
    u64 const bytes = g.ask(phase::decode, slack, 100).bytes;
    CHECK(bytes <= slack * 17);  // 32 of 34: the waste of 17 bytes is paid by one
    CHECK(bytes >= slack * 16);
  }
}

TEST_CASE("slack that goes starves it, slack that returns frees it at once") {
  governor_numbers n;
  governor g(n);
  for (u32 i = 0; i < n.min_samples; ++i) {
    (void)g.ask(phase::decode, 100, 100);
    g.judge(i % 2, 1 - i % 2, 0);
  }
  CHECK(g.ask(phase::decode, 100, 100).bytes >= 100);
  for (u32 i = 0; i < 3 * n.window_steps; ++i) {
    CHECK(g.ask(phase::decode, 10, 100).why == reason::governed);
  }
  CHECK(g.state() == governor_state::starved);
  CHECK(g.is_stopped());
  CHECK(g.why() == reason::governed);
  CHECK(g.ask(phase::decode, 100, 100).why == reason::none);
  CHECK(g.state() == governor_state::open);
}

TEST_CASE("slack that never pays for an expert is probed more and more seldom") {
  // a link without idle time and hints that are good: each probe opens it for a window in which nothing may move
  governor_numbers n;
  governor g(n);
  u32 probes = 0;
  std::vector<u32> begun;
  for (u32 step = 0; step < 60'000; ++step) {
    if (g.ask(phase::decode, 10, 100).bytes != 0) {
      g.judge(9, 1, 0);
    }
    if (g.probes() != probes) {
      probes = g.probes();
      begun.push_back(step);
    }
  }
  REQUIRE(begun.size() >= 6);
  for (std::size_t i = 2; i < begun.size(); ++i) {
    CHECK(begun[i] - begun[i - 1] > 3 * (begun[i - 1] - begun[i - 2]) / 2);
  }
  CHECK(g.stops() == 0);
}

TEST_CASE("slack that comes and goes makes no rest longer") {
  governor_numbers n;
  governor g(n);
  auto const play = [&](u64 slack) {
    if (g.ask(phase::decode, slack, 100).bytes != 0) {
      g.judge(9, 1, 0);
    }
  };
  while (g.probes() < 2 || g.state() != governor_state::starved) {
    play(10);
  }
  u32 const rest = 4 * n.rest_windows * n.window_steps;  // doubled by both probes
  for (u32 i = 0; i < 8; ++i) {
    for (u32 step = 0; step < 240; ++step) {
      play(step < 40 ? 1'000 : 10);
    }
    CHECK(g.probes() == 2);
  }
  u32 steps = 0;
  for (; g.probes() == 2 && steps < 100'000; ++steps) {
    play(10);
  }
  CHECK(steps <= rest + n.window_steps);
  CHECK(steps > rest / 2);
}

TEST_CASE("it probes after a rest, twice as long after each that fails, and restarts when hints "
          "are good again") {
  governor_numbers n;
  n.window_steps = 10;
  n.rest_windows = 2;
  n.most_rest_windows = 16;
  governor g(n);
  auto const run_until = [&](governor_state wanted, u32 used, u32 wasted) {
    u32 steps = 0;
    while (g.state() != wanted && steps < 10'000) {
      ++steps;
      if (g.ask(phase::decode, 1000, 100).bytes != 0) {
        g.judge(used, wasted, 0);
      }
    }
    return steps;
  };
  CHECK(run_until(governor_state::stopped, 0, 1) == n.min_samples);
  u32 last = 0;
  for (int i = 0; i < 6; ++i) {
    u32 const rest = run_until(governor_state::probing, 0, 1);
    CHECK(rest >= last);
    CHECK(rest <= 16 * n.window_steps + 1);
    last = rest;
    if (i < 5) {
      CHECK(run_until(governor_state::stopped, 0, 1) <= n.probe_samples);
    }
  }
  CHECK(last > 7 * 2 * n.window_steps);
  CHECK(run_until(governor_state::open, 1, 0) == n.probe_samples - 1);
  CHECK(g.probes() == 6);
  g.reset();
  CHECK(g.state() == governor_state::sampling);
  CHECK(g.precision() == 0);
}

TEST_CASE("a governor that is reset is as good as new") {
  auto const fail_once = [](governor& g) {  // asks until it is sampling or probing, and then fails
    u32 asks = 0;
    for (; g.is_stopped() && asks < 100'000; ++asks) {
      (void)g.ask(phase::decode, 0, 1);
    }
    g.judge(0, g.numbers().min_samples, 0);
    return asks;
  };
  governor used;
  for (int i = 0; i < 5; ++i) {
    (void)fail_once(used);
  }
  used.issued(u64_max);
  used.reset();
  CHECK(used.probes() == 0);
  CHECK(used.stops() == 0);
  governor fresh;
  for (int i = 0; i < 5; ++i) {
    CHECK(fail_once(used) == fail_once(fresh));
  }
  // the window is forgotten too: one that issued nothing pays, whatever was issued before
  governor strict({.bad_windows = 1});
  (void)strict.ask(phase::decode, 0, 1);
  strict.issued(u64_max);
  strict.reset();
  for (u32 i = 0; i < 3; ++i) {
    strict.judge(strict.numbers().min_samples, 0, 0);
    (void)strict.ask(phase::decode, 100, 10);
    CHECK(strict.state() == governor_state::open);
  }
}

TEST_CASE("numbers that cannot work are refused with their values") {
  auto const message = [](auto&& change) {
    governor_numbers n;
    change(n);
    try {
      (void)governor(n);
    } catch (config_error const& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(message([](governor_numbers&) {}).empty());
  CHECK(message([](governor_numbers& n) { n.min_samples = 0; }).find("0, 64 and 2") !=
        std::string::npos);
  CHECK(message([](governor_numbers& n) { n.most_rest_windows = 3; }).find("8, 3 and 8") !=
        std::string::npos);
  CHECK(message([](governor_numbers& n) { n.least_precision = 65'537; }).find("65537") !=
        std::string::npos);
  CHECK(message([](governor_numbers& n) { n.memory = 5; }).find("5 and 32") != std::string::npos);
}

namespace {

/// One pool of one layer of 8 experts, as decisions.
struct told {
  gate::hint_ledger ledger;
  u32 step = 0;
  struct load {
    u32 expert;
    u32 slot;
  };

  told() { ledger.open(geometry::uniform(2, 8, 2, 100), std::vector<u32>{4, 4}); }
  gate::verdict hint(std::vector<load> loads, u32 ahead = 1) {
    return ledger.issue(0, 0, step + ahead, loads);
  }
  gate::verdict demand(std::vector<u32> experts, std::vector<access_kind> how,
                       std::vector<u32> slots, std::vector<load> loads) {
    return ledger.plan(0, 0, ++step, experts, how, slots, loads);
  }
};

constexpr access_kind hit = access_kind::hit;
constexpr access_kind first = access_kind::first_use;
constexpr access_kind load = access_kind::load;

}  // namespace

TEST_CASE("a hint is judged when the step that it is for was planned, not before and not twice") {
  told t;
  (void)t.demand({0, 1}, {load, load}, {0, 1}, {{0, 0}, {1, 1}});
  (void)t.hint({{2, 2}});
  (void)t.hint({{3, 3}}, 2);
  CHECK(t.ledger.outstanding() == 2);
  gate::verdict v = t.demand({0, 1}, {hit, hit}, {0, 1}, {});
  CHECK((v.used == 0 && v.wasted == 1));  // expert 2; expert 3 has one step more
  CHECK(t.ledger.outstanding() == 1);
  v = t.demand({2, 3}, {first, first}, {2, 3}, {});
  CHECK((v.used == 1 && v.wasted == 0));  // the late use of expert 2 changes no verdict
  CHECK(t.ledger.outstanding() == 0);
}

TEST_CASE("a step before the target that uses the hint counts; another row's does not judge it") {
  told t;
  (void)t.hint({{5, 0}}, 3);
  gate::verdict v = t.ledger.plan(1, 1, 9, std::vector<u32>{5}, std::vector<access_kind>{load},
                                  std::vector<u32>{0}, std::vector<told::load>{{5, 0}});
  CHECK((v.used == 0 && v.wasted == 0));
  v = t.demand({5}, {access_kind::late}, {0}, {});
  CHECK((v.used == 1 && v.wasted == 0));
}

TEST_CASE("a victim is regretted while its eviction would not have happened without hints") {
  told t;
  (void)t.demand({0, 1}, {load, load}, {0, 1}, {{0, 0}, {1, 1}});
  (void)t.demand({2, 3}, {load, load}, {2, 3}, {{2, 2}, {3, 3}});
  (void)t.hint({{6, 0}, {7, 1}});  // takes 0 and 1
  // no load in between: both would still be there
  gate::verdict v = t.demand({0}, {load}, {0}, {{0, 0}});
  CHECK(v.regretted == 1);
  CHECK(v.wasted == 2);
  // two demand loads later 1 would have been evicted all the same
  (void)t.demand({4, 5}, {load, load}, {1, 2}, {{4, 1}, {5, 2}});
  v = t.demand({1}, {load}, {3}, {{1, 3}});
  CHECK(v.regretted == 0);
}

TEST_CASE("R45: a hint whose use is beyond the expected residence is refused") {
  gate::residence r(32);
  CHECK(r.outlasts(1'000'000));  // nothing is known yet
  for (u32 i = 0; i < 5000; ++i) {
    r.step();
    r.load(2);
  }
  CHECK(r.outlasts(15));
  CHECK_FALSE(r.outlasts(17));
  for (u32 i = 0; i < 5000; ++i) {
    r.step();
    r.load(i % 2);
  }
  CHECK(r.outlasts(60));
  CHECK_FALSE(r.outlasts(70));
  CHECK_FALSE(r.outlasts(u32_max));
}
