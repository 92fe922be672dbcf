// SPDX-License-Identifier: Apache-2.0
//
// However the experts are served, the logits are the same bits.

#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "decode/support.hpp"
#include "support/rounds.hpp"

using namespace decode_test;
using namespace warmset;

namespace {

/// Arms of a few tokens to plant faults into.
std::vector<arm> sound_arms(loaded const& m) {
  std::vector<arm_options> ways = ways_to_serve(m.model);
  std::vector<arm_options> const some = {ways[0], ways[1], ways[4]};
  REQUIRE(some[2].expects_hints);
  return run_arms(m.model, m.words, some, request_for(m, 8));
}

bool mentions(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

namespace {

/// What several ways to serve have in common, and what they went through.
struct trials {
  bool has_failed = false;
  bool has_overflowed = false;
  bool has_served_again = false;
};

trials require_equal(loaded const& m, std::vector<arm_options> const& ways, u32 steps) {
  std::vector<arm> const arms = run_arms(m.model, m.words, ways, request_for(m, steps));
  CHECK(compare(arms) == "");
  trials t;
  for (arm const& a : arms) {
    INFO(a.name);
    CHECK(a.made.decode_steps == steps);
    CHECK(a.made.logits_hash == arms[0].made.logits_hash);
    CHECK(a.report.reads >= u64{steps} * 8 * 4);
    total_counters const sum = a.report.counters.sum();
    bool const is_wide = a.report.counters.sum(phase::prefill).overflow_steps.value != 0;
    t.has_failed = t.has_failed || a.report.copies_failed != 0;
    t.has_overflowed = t.has_overflowed || is_wide;
    t.has_served_again =
        t.has_served_again || (sum.failed[0].value != 0 && sum.scratch_arrived.value != 0);
  }
  return t;
}

}  // namespace

TEST_CASE("512 steps have one hash of all logits, however the experts are served") {
  loaded const m(small_model_file());
  std::vector<arm_options> long_ones, others;
  for (arm_options const& way : ways_to_serve(m.model)) {
    bool const is_plain = way.device.link_bytes_per_us == 0 && way.batch == 1;
    (is_plain ? long_ones : others).push_back(way);
  }
  REQUIRE(long_ones.size() >= 11);
  REQUIRE(others.size() >= 5);
  trials const plain = require_equal(m, long_ones, rounds(512));
  CHECK(plain.has_failed);
  CHECK(plain.has_served_again);
  others.insert(others.begin(), long_ones.front());  // all resident
  trials const slow_or_wide = require_equal(m, others, rounds(128));
  CHECK(slow_or_wide.has_failed);
  CHECK(slow_or_wide.has_overflowed);
}

TEST_CASE("equal hashes that prove nothing are failures") {
  loaded const m(small_model_file());
  std::vector<arm> const sound = sound_arms(m);
  REQUIRE(compare(sound) == "");
  auto const planted = [&](auto&& change) {
    std::vector<arm> arms = sound;
    change(arms);
    return compare(arms);
  };
  CHECK(mentions(planted([](auto& arms) { arms.resize(1); }), "nothing was compared"));
  CHECK(mentions(planted([](auto& arms) { arms.clear(); }), "nothing was compared"));
  CHECK(mentions(planted([](auto& arms) { arms[1].made.logits_hash ^= 1; }), "other logits"));
  CHECK(mentions(planted([](auto& arms) { --arms[1].made.decode_steps; }), "other logits"));
  CHECK(mentions(planted([](auto& arms) { arms[1].text += "x"; }), "another text"));
  CHECK(mentions(planted([](auto& arms) { arms[0].text.clear(); }), "the text is empty"));
  CHECK(mentions(planted([](auto& arms) { arms[1].made.tokens.clear(); }), "the text is empty"));
  CHECK(mentions(planted([](auto& arms) { arms[1].report.counters = warmset::snapshot(); }),
                 "no expert was loaded"));
  CHECK(mentions(planted([](auto& arms) { arms[2].report.produced = 0; }),
                 "the predictor never ran"));
  CHECK(mentions(planted([](auto& arms) { arms[2].report.hints = 0; }), "the predictor never ran"));
  CHECK(mentions(planted([](auto& arms) { arms[2].report.loads = 0; }), "no hint was installed"));
  CHECK(mentions(planted([](auto& arms) { arms[1].expects_failures = true; }), "no copy failed"));
  // failures of demanded transfers alone are none of a hint's
  CHECK(mentions(planted([](auto& arms) {
                   arms[2].expects_failures = true;
                   arms[2].report.copies_failed = 1;
                 }),
                 "no copy failed"));
  auto const without = [&](auto&& change) {
    observe::counting counted;
    geometry const numbers = m.model.geometry();
    counted.open(numbers);
    outcome& o = counted.record(0, phase::decode);
    o[access_kind::load] = o.demanded = o.issued[0] = 9;
    o[access_kind::hit] = 4;
    o.arrived[0] = 9;
    change(o);
    counted.close(0, phase::decode);
    return planted([&](auto& arms) {
      arms[1].report.counters = warmset::snapshot(numbers);
      (void)arms[1].report.counters.take(counted);
    });
  };
  CHECK(without([](outcome&) {}) == "");
  CHECK(mentions(without([](outcome& o) { o.arrived[0] = 0; }), "no load arrived"));
  CHECK(mentions(without([](outcome& o) { o[access_kind::hit] = 0; }), "was read again"));
}

TEST_CASE("an arm whose predictor says nothing, or whose hints have no budget, does not pass for "
          "one with hints") {
  loaded const m(small_model_file());
  std::vector<arm_options> ways = ways_to_serve(m.model);
  std::vector<arm_options> some = {ways[0], ways[4]};
  some[1].device.predictor = "none";
  CHECK(mentions(compare(run_arms(m.model, m.words, some, request_for(m, 4))),
                 "the predictor never ran"));
  some[1] = ways[4];
  some[1].device.hint_bytes = 0;
  CHECK(mentions(compare(run_arms(m.model, m.words, some, request_for(m, 4))),
                 "the predictor never ran"));
  some[1] = ways[4];
  some[1].device.slots =
      0;  // all are resident but those not yet seen: hints are for what is there already
  std::vector<arm> const arms = run_arms(m.model, m.words, some, request_for(m, 4));
  CHECK(arms[1].report.produced != 0);
}

TEST_CASE(
    "a prompt wider than a pool is served right while hints of the text before it are in flight") {
  loaded const m(small_model_file());
  device_options slow;
  slow.slots = 6;
  slow.width = 8;
  slow.governed = false;
  slow.link_bytes_per_us = 20;  // an expert takes as long as a token
  slow.copy_failures_q16 = 3000;
  auto const busy = make_cpu_device(m.model, slow);
  auto const idle = make_cpu_device(m.model, {});
  generation_request request = request_for(m, 6);
  for (int text = 0; text < 4; ++text) {
    request.batch = 1;
    u64 const expected = generate(*idle, m.words, request).logits_hash;
    request.batch = 9;
    CHECK(generate(*busy, m.words, request).logits_hash == expected);
  }
  device_report const r = busy->report();
  CHECK(r.counters.sum(phase::prefill).overflow_steps.value != 0);
  CHECK(r.counters.sum().late_of_hint.value != 0);
  CHECK(r.copies_failed != 0);
}

TEST_CASE("another model's weights have another hash") {
  loaded const m(small_model_file());
  generation_request a = request_for(m, 4);
  generation_request b = a;
  b.prompt.back() = b.prompt.front();
  std::vector<arm_options> const ways = ways_to_serve(m.model);
  CHECK(run_arm(m.model, m.words, ways[0], a).made.logits_hash !=
        run_arm(m.model, m.words, ways[0], b).made.logits_hash);
}

TEST_CASE(
    "health is active with look-ahead on, and inert with its reason where hints have no budget") {
  loaded const m(small_model_file());
  arm_options way{"", {.slots = 8, .width = 4}, 1, true};
  arm const on = run_arm(m.model, m.words, way, request_for(m, 32));
  CHECK(on.report.health.state == health_state::active);
  CHECK(on.report.produced != 0);
  CHECK(on.report.loads != 0);
  CHECK(on.report.judged.used > on.report.judged.wasted);

  way.device.hint_bytes = 26'111;  // a byte less than an expert
  arm const off = run_arm(m.model, m.words, way, request_for(m, 32));
  CHECK(off.report.health.state == health_state::inert);
  CHECK(off.report.health.why == reason::governed);
  CHECK(off.report.health[health_condition::no_permit].raised);
  CHECK(off.report.possible != 0);
  CHECK(off.report.produced == 0);  // the router is not run ahead at all
  CHECK(off.report.counters.sum().hints_offered.value == 0);
  CHECK(off.made.logits_hash == on.made.logits_hash);

  way.device.width = 0;
  CHECK(run_arm(m.model, m.words, way, request_for(m, 8)).report.health.state ==
        health_state::active);
}

TEST_CASE("hints that hurt are stopped by the governor, and the producer with them") {
  loaded const m(small_model_file());
  arm_options way{"", {.slots = 8, .width = 8, .predictor = "adversarial"}, 1, true};
  way.device.link_bytes_per_us = 250;
  u32 const steps = slow_build ? 48 : 128;
  arm const stopped = run_arm(m.model, m.words, way, request_for(m, steps));
  CHECK(stopped.report.governor_stops != 0);
  CHECK(stopped.report.produced * 4 < stopped.report.possible);
  way.device.width = 0;
  arm const off = run_arm(m.model, m.words, way, request_for(m, steps));
  CHECK(static_cast<double>(stopped.report.stall_ns) <=
        1.02 * static_cast<double>(off.report.stall_ns) + 32 * 105'000.0);
}

TEST_CASE("numbers that cannot work are refused when the device is made") {
  loaded const m(small_model_file());
  CHECK_THROWS_AS(make_cpu_device(m.model, {.predictor = "oracle"}), config_error);
  CHECK_NOTHROW(make_cpu_device(m.model, {.slots = 1, .width = 32}));
  CHECK_NOTHROW(make_cpu_device(m.model, {.slots = 1000}));
}

TEST_CASE("copies that never succeed end in an error and not in a wait") {
  loaded const m(small_model_file());
  arm_options const way{"", {.slots = 8, .copy_failures_q16 = 65536}, 1, false};
  CHECK_THROWS_AS(run_arm(m.model, m.words, way, request_for(m, 1)), std::runtime_error);
}
