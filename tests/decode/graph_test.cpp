// SPDX-License-Identifier: Apache-2.0
//
// The operations of the graph that a GPU replays, and the whole device on them, run here beside the CPU's own.

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <warmset/predict/router_lookahead.hpp>

#include "decode/gguf_builder.hpp"
#include "decode/instruments.hpp"
#include "decode/kernels.hpp"
#include "decode/retention.hpp"
#include "decode/support.hpp"
#include "decode/twin_engine.hpp"
#include "support/dice.hpp"
#include "support/optimised.hpp"
#include "support/rounds.hpp"

using namespace decode_test;

namespace {

/// Runs an operation as a kernel of so many lanes a block does.
template <class Op>
void run(Op const& op, u32 blocks, u32 n_lanes) {
  auto const shared = std::make_unique<typename Op::shared>();
  for (u32 block = 0; block < blocks; ++block) {
    leave_garbage(*shared);
    if (n_lanes == 1) {
      op(one_lane{}, block, *shared);
    } else {
      kit::lane_team team(n_lanes);
      team.run([&](kit::thread_lanes lanes) { op(lanes, block, *shared); });
    }
  }
}

std::vector<float> numbers(warmset_test::dice& random, std::size_t n) {
  std::vector<float> v(n);
  for (float& x : v) {
    x = static_cast<float>(static_cast<int>(random.below(20001)) - 10000) / 5000.0f;
  }
  return v;
}

/// The same bits.
bool same(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<std::byte> q8_rows(warmset_test::dice& random, std::size_t rows, std::size_t n) {
  std::vector<std::byte> bytes(rows * n / 32 * 34);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(random.below(256));
    if (i % 34 == 1) {
      bytes[i] = static_cast<std::byte>(0x20 + random.below(8) +
                                        (random.below(2) << 7));  // a scale that is small
    }
  }
  return bytes;
}

constexpr u32 odd_sizes[] = {1, 7, 16, 17, 31, 64, 96, 130};

}  // namespace

TEST_CASE("a half is the same number in a graph as in a file") {
  for (u32 half = 0; half < 65536; ++half) {
    float const a = ops::half_to_float(static_cast<u16>(half));
    float const b = gguf::to_float(static_cast<u16>(half));
    REQUIRE(std::memcmp(&a, &b, sizeof a) == 0);
  }
}

TEST_CASE("products and norms of a graph are the CPU's") {
  u32 const n_lanes = GENERATE(1u, 3u);
  warmset_test::dice random{1};
  for (u32 const n : odd_sizes) {
    std::vector<float> const x = numbers(random, n);
    std::vector<float> const weight = numbers(random, n);
    std::vector<float> expected(n), out(n);
    kernels::rms_norm(x.data(), weight.data(), expected.data(), n, 1e-6f);
    run(ops::normalise{x.data(), weight.data(), out.data(), n, 1e-6f}, 1, n_lanes);
    CHECK(same(out, expected));

    // three matrices of different heights at once, the second where a position says
    u32 const rows[3] = {n, 5, 33};
    std::vector<float> w[3], made[3], wanted[3];
    step_now const now{0, 2};
    ops::multiply op{{}, x.data(), nullptr, &now, n};
    for (u32 i = 0; i < 3; ++i) {
      w[i] = numbers(random, std::size_t{rows[i]} * n);
      made[i].assign(std::size_t{rows[i]} * 3, -1);
      wanted[i].assign(std::size_t{rows[i]} * 3, -1);
      u32 const stride = i == 1 ? rows[i] : 0;
      op.m[i] = {w[i].data(), made[i].data(), rows[i], stride};
      kernels::multiply(w[i].data(), x.data(), wanted[i].data() + 2 * stride, rows[i], n);
    }
    run(op, op.blocks(), n_lanes);
    for (u32 i = 0; i < 3; ++i) {
      CHECK(same(made[i], wanted[i]));
    }

    std::vector<float> const before = numbers(random, n);
    std::vector<float> sum = before;
    std::vector<float> product(n), added(n);
    kernels::multiply(w[0].data(), x.data(), product.data(), n, n);
    kernels::add_scaled(sum.data(), product.data(), 1, n);
    ops::multiply const adds{{{w[0].data(), added.data(), n, 0}}, x.data(), before.data(), &now, n};
    run(adds, adds.blocks(), n_lanes);
    CHECK(same(added, sum));
  }
}

TEST_CASE("heads are turned and attended to in a graph as on the CPU") {
  u32 const n_lanes = GENERATE(1u, 3u);
  constexpr u32 heads = 4, kv_heads = 2, size = 32, context = 40, keys = kv_heads * size;
  warmset_test::dice random{2};
  for (u32 const position : {0u, 1u, 15u, 16u, 39u}) {
    step_now const now{0, position};
    std::vector<float> queries = numbers(random, heads * size);
    std::vector<float> all_keys = numbers(random, context * keys);
    std::vector<float> const values = numbers(random, context * keys);
    std::vector<float> const cosines = numbers(random, context * size / 2);
    std::vector<float> const sines = numbers(random, context * size / 2);
    std::vector<float> const query_norm = numbers(random, size);
    std::vector<float> const key_norm = numbers(random, size);
    std::vector<float> q = queries, k = all_keys, scores(context), expected(heads * size);
    for (u32 h = 0; h < kv_heads; ++h) {
      float* const key = k.data() + position * keys + h * size;
      kernels::rms_norm(key, key_norm.data(), key, size, 1e-6f);
      kernels::rotate(key, cosines.data() + position * size / 2, sines.data() + position * size / 2,
                      size);
    }
    for (u32 h = 0; h < heads; ++h) {
      float* const query = q.data() + h * size;
      kernels::rms_norm(query, query_norm.data(), query, size, 1e-6f);
      kernels::rotate(query, cosines.data() + position * size / 2,
                      sines.data() + position * size / 2, size);
      u32 const kv = h / (heads / kv_heads) * size;
      kernels::attend(query, k.data() + kv, values.data() + kv, position + 1, keys, size,
                      scores.data(), expected.data() + h * size);
    }
    run(ops::turn_heads{queries.data(), all_keys.data(), query_norm.data(), key_norm.data(),
                        cosines.data(), sines.data(), &now, heads, kv_heads, size, 1e-6f},
        heads + kv_heads, n_lanes);
    CHECK(same(queries, q));
    CHECK(same(all_keys, k));
    std::vector<float> made(heads * size), room(heads * context);
    run(ops::attend{queries.data(), all_keys.data(), values.data(), room.data(), made.data(), &now,
                    heads, kv_heads, size, context},
        heads, n_lanes);
    CHECK(same(made, expected));
  }
}

TEST_CASE("a graph routes as the CPU does: ties go to the lower expert, and what is no number "
          "comes last") {
  u32 const n_lanes = GENERATE(1u, 3u);
  warmset_test::dice random{3};
  for (u32 round = 0; round < 60; ++round) {
    u32 const n = 1 + random.below(70);
    u32 const k = 1 + random.below(n);
    std::vector<float> logits = numbers(random, n);
    for (float& x : logits) {
      x = round % 3 == 0 ? std::round(x) : x;  // many ties
    }
    if (round % 7 == 6) {
      logits[random.below(n)] = std::numeric_limits<float>::quiet_NaN();
    }
    std::vector<float> shares = logits;
    kernels::softmax(shares.data(), n);
    std::vector<u32> order(n);
    for (u32 i = 0; i < n; ++i) {
      shares[i] = shares[i] >= 0 ? shares[i] : 0;
      order[i] = i;
    }
    std::sort(order.begin(), order.end(),
              [&](u32 x, u32 y) { return shares[x] != shares[y] ? shares[x] > shares[y] : x < y; });
    float sum = 0;
    for (u32 r = 0; r < k; ++r) {
      sum += shares[order[r]];
    }
    std::vector<float> expected(k), weights(k);
    std::vector<i32> ids(k);
    for (u32 r = 0; r < k; ++r) {
      expected[r] = shares[order[r]] / sum;
    }
    run(ops::route{logits.data(), ids.data(), weights.data(), n, k}, 1, n_lanes);
    CHECK(std::equal(ids.begin(), ids.end(), order.begin(),
                     [](i32 a, u32 b) { return a == static_cast<i32>(b); }));
    CHECK(same(weights, expected));
  }
}

TEST_CASE("hints are picked in a graph as the library's predictor picks them") {
  u32 const n_lanes = GENERATE(1u, 3u);
  warmset_test::dice random{4};
  for (u32 round = 0; round < 60; ++round) {
    u32 const n = 1 + random.below(60);
    u32 const width = 1 + random.below(24);
    std::vector<float> logits = numbers(random, n);
    for (float& x : logits) {
      x = round % 3 == 0 ? std::round(x) : x;
      x = random.below(9) == 0 ? -std::numeric_limits<float>::infinity() : x;
      x = random.below(30) == 0 ? std::numeric_limits<float>::quiet_NaN() : x;
    }
    predict::router_lookahead<> by;
    by.open(geometry{{{layer_id{0}, n, 1, {64}}, {layer_id{1}, n, 1, {64}}}});
    routing_snapshot seen;
    seen.logits = logits;
    std::vector<hint> expected(width);
    expected.resize(by.predict(seen, width, expected));
    std::vector<i32> hints(width, 77);
    run(ops::pick{logits.data(), hints.data(), n, width}, 1, n_lanes);
    for (u32 i = 0; i < width; ++i) {
      CHECK(hints[i] == (i < expected.size() ? expected[i].expert : -1));
    }
  }
}

TEST_CASE("experts compute in a graph as on the CPU, wherever their weights lie") {
  u32 const n_lanes = GENERATE(1u, 3u);
  constexpr u32 n = 64, ff = 96, k = 3, n_experts = 5, n_slots = 2;
  warmset_test::dice random{5};
  std::vector<float> const x = numbers(random, n);
  std::vector<std::byte> bank[3];
  u64 const bytes[3] = {ff * n / 32 * 34, ff * n / 32 * 34, n * ff / 32 * 34};
  for (u32 b = 0; b < 3; ++b) {
    bank[b] = q8_rows(random, b == 2 ? n_experts * n : n_experts * ff, b == 2 ? ff : n);
  }
  // the first of slot 1, the second in scratch, the third failed: in place
  i32 const ids[k] = {4, 0, 2};
  i32 const answers[k] = {11, 30, 10};
  u32 const arrivals[n_slots] = {arrival::word(3, transfer::failed),
                                 arrival::word(9, transfer::arrived)};
  std::vector<unsigned char> slots[3], scratch[3];
  unsigned char const* source[3];
  std::vector<cuda::bank_addresses> addresses;
  for (u32 b = 0; b < 3; ++b) {
    slots[b].assign(n_slots * bytes[b], 0xFF);
    scratch[b].assign(2 * bytes[b], 0xFF);
    source[b] = reinterpret_cast<unsigned char const*>(bank[b].data());
    std::memcpy(slots[b].data() + bytes[b], source[b] + 4 * bytes[b], bytes[b]);
    std::memcpy(scratch[b].data() + bytes[b], source[b], bytes[b]);
    addresses.push_back({&source[b], slots[b].data(), scratch[b].data(), bytes[b]});
  }
  cuda::served_experts const served{addresses.data(), arrivals, 0, n_slots, 10, 29};
  std::vector<float> gated(k * ff), outputs(k * n), expected(k * n), gate(ff), up(ff);
  for (u32 r = 0; r < k; ++r) {
    u64 const e = static_cast<u64>(ids[r]);
    kernels::multiply_q8(bank[0].data() + e * bytes[0], x.data(), gate.data(), ff, n);
    kernels::multiply_q8(bank[1].data() + e * bytes[1], x.data(), up.data(), ff, n);
    kernels::silu_times(gate.data(), up.data(), ff);
    kernels::multiply_q8(bank[2].data() + e * bytes[2], gate.data(), expected.data() + r * n, n,
                         ff);
  }
  ops::expert_in const in{served, ids, answers, x.data(), gated.data(), n, ff};
  run(in, k * in.blocks_of_one(), n_lanes);
  ops::expert_out const out{served, ids, answers, gated.data(), outputs.data(), ff, n};
  run(out, k * out.blocks_of_one(), n_lanes);
  CHECK(same(outputs, expected));

  std::vector<float> const attended = numbers(random, n);
  float const weights[k] = {0.5f, 0.3f, 0.2f};
  std::vector<float> state = attended, made(n);
  for (u32 r = 0; r < k; ++r) {
    kernels::add_scaled(state.data(), expected.data() + r * n, weights[r], n);
  }
  run(ops::combine{attended.data(), outputs.data(), weights, made.data(), n, k}, 1, n_lanes);
  CHECK(same(made, state));
}

namespace {

bool equal_counters(total_counters const& a, total_counters const& b) {
  bool same = true;
  total_counters copy = a;
  copy.zip(b, [&](auto mine, auto other) { same = same && mine == other; });
  return same;
}

}  // namespace

TEST_CASE("the graph's device has the CPU's logits, however its experts are served and whenever "
          "its branches run") {
  loaded const m(small_model_file());
  u32 const steps = rounds(160);
  generation const expected =
      generate(*make_cpu_device(m.model, {}), m.words, request_for(m, steps));
  std::vector<arm> arms;
  u64 n_failed = 0;
  for (arm_options way : ways_to_serve(m.model, 1, "cuda")) {
    way.device.copy_failures_q16 *= steps < 512 ? 3 : 1;  // some fail in few steps, too
    for (bool const is_late : {false, true}) {
      auto const on = is_late ? make_twin<beside_runs::as_late_as_possible>(m.model, way.device)
                              : make_twin<beside_runs::at_once>(m.model, way.device);
      arm a{way.name, way.expects_hints, generate(*on, m.words, request_for(m, steps)),
            "",       on->report(),      way.expects_failures};
      a.text = m.words.decode(a.made.tokens);
      INFO(a.name);
      CHECK(a.made.logits_hash == expected.logits_hash);
      CHECK(a.report.reads >= u64{steps} * 8 * 4);
      CHECK((a.report.copies_failed != 0) == (way.device.copy_failures_q16 != 0));
      n_failed += a.report.copies_failed;
      arms.push_back(std::move(a));
    }
  }
  CHECK(arms.size() >= 22);
  CHECK(n_failed != 0);
  CHECK(compare(arms) == "");
}

TEST_CASE("a graph of another shape has the CPU's logits as well") {
  std::string const bytes = small_model().bytes();  // 2 layers of 4 experts, 2 a token
  gguf::file const file(std::as_bytes(std::span<char const>(bytes)), "made");
  warmset_decode::model const m(file);
  std::vector<u32> tokens;
  for (u32 i = 0; i < m.numbers.context; ++i) {
    tokens.push_back(i * 7 % m.numbers.vocabulary);
  }
  auto const cpu = make_cpu_device(m, {});
  std::vector<std::vector<float>> expected;
  follow(*cpu, tokens, 4,
         [&](u32, std::span<float const> l) { expected.emplace_back(l.begin(), l.end()); });
  for (u32 const slots : {2u, 3u, 4u}) {
    for (u32 const width : {0u, 2u, 4u}) {
      device_options o;
      o.slots = slots;
      o.width = width;
      o.governed = false;
      o.copy_failures_q16 = 13'000;
      auto const on = make_twin(m, o);
      follow(*on, tokens, 4, [&](u32 position, std::span<float const> l) {
        REQUIRE(same({l.begin(), l.end()}, expected[position]));
      });
      CHECK(on->report().copies_failed != 0);
    }
  }
}

TEST_CASE("a graph's step by several lanes has the same logits and decisions as by one") {
  loaded const m(small_model_file());
  device_options o;
  o.slots = 8;
  o.width = 6;
  o.governed = false;
  o.copy_failures_q16 = 3'000;
  auto const one = make_twin(m.model, o);
  auto const two = make_twin<beside_runs::as_late_as_possible, 2>(m.model, o);
  std::vector<u32> const tokens = m.words.encode("int main(void)");
  std::vector<float> expected, made;
  follow(*one, tokens, 1, [&](u32, std::span<float const> l) {
    expected.insert(expected.end(), l.begin(), l.end());
  });
  follow(*two, tokens, 1,
         [&](u32, std::span<float const> l) { made.insert(made.end(), l.begin(), l.end()); });
  CHECK(same(made, expected));
  CHECK(equal_counters(two->report().counters.sum(), one->report().counters.sum()));
}

TEST_CASE("the graph's device decides what the CPU's cache decides") {
  loaded const m(small_model_file());
  for (u32 const width : {0u, 4u, 16u}) {
    device_options o;
    o.slots = 8;
    o.width = width;
    o.governed = false;
    instruments here(m.model, {}, width, false, false);
    instruments there(m.model, {}, width, false, false);
    auto const cpu = make_cpu_device(m.model, o, &here);
    auto const twin = make_twin(m.model, o, &there);
    generation_request const request = request_for(m, rounds(64));
    CHECK(generate(*cpu, m.words, request).logits_hash ==
          generate(*twin, m.words, request).logits_hash);
    device_report const a = cpu->report();
    device_report const b = twin->report();
    CHECK(a.produced == b.produced);
    CHECK(a.possible == b.possible);
    CHECK(a.loads == b.loads);
    CHECK(a.judged.used == b.judged.used);
    CHECK(a.judged.wasted == b.judged.wasted);
    CHECK(a.judged.regretted == b.judged.regretted);
    CHECK((width == 0 || b.judged.used != 0));
    CHECK(b.reads == b.counters.sum().demanded.value);
    for (phase const p : {phase::prefill, phase::decode}) {
      for (u32 l = 0; l < m.model.numbers.layers; ++l) {
        total_counters x = a.counters.at(l, p);
        total_counters y = b.counters.at(l, p);
        // the last transfers have not been taken in yet, or under the phase of the step that does
        x.arrived[0] = y.arrived[0] = x.arrived[1] = y.arrived[1] = {};
        x.slabs[0] = y.slabs[0] = x.slabs[1] = y.slabs[1] = {};
        x.bytes[0] = y.bytes[0] = x.bytes[1] = y.bytes[1] = {};
        // where the permit says no, the graph does not look ahead at all
        x.hints_offered = y.hints_offered = {};
        x.hints_dropped[static_cast<u32>(reason::in_prefill)] = {};
        CAPTURE(width, l, p);
        CHECK(equal_counters(x, y));
      }
    }
    recall_counts const x = here.made().total(phase::decode);
    recall_counts const y = there.made().total(phase::decode);
    CHECK(x.predicted.value == y.predicted.value);
    CHECK(x.predicted_used.value == y.predicted_used.value);
    CHECK(x.copied.value == y.copied.value);
    CHECK(x.copied_used.value == y.copied_used.value);
    CHECK(x.misses.value == y.misses.value);
  }
}

TEST_CASE("a graph whose hints have no budget is not launched, and health says why") {
  loaded const m(small_model_file());
  device_options o;
  o.slots = 8;
  o.width = 4;
  auto const on = make_twin(m.model, o);
  (void)generate(*on, m.words, request_for(m, rounds(192)));
  CHECK(on->report().health.state == health_state::active);
  CHECK(on->report().produced != 0);
  CHECK(on->report().judged.used > on->report().judged.wasted);
  o.hint_bytes = 26'111;  // a byte less than an expert
  auto const off = make_twin(m.model, o);
  (void)generate(*off, m.words, request_for(m, 32));
  device_report const r = off->report();
  CHECK(r.health.state == health_state::inert);
  CHECK(r.health.why == reason::governed);
  CHECK(r.possible != 0);
  CHECK(r.produced == 0);
  CHECK(r.hints == 0);
  o.hint_bytes = 26'112;  // one expert after each layer
  auto const one = make_twin(m.model, o);
  (void)generate(*one, m.words, request_for(m, 32));
  CHECK(one->report().loads != 0);
  CHECK(one->report().loads <= one->report().produced);
}

TEST_CASE(
    "a graph's hints are trimmed to what the link carries while its layers compute, and to no "
    "less") {
  REQUIRE_OPTIMISED();  // a governor judges many samples
  loaded const m(small_model_file());
  u32 const steps = 192;
  // an expert has 26 112 bytes, and a layer computes for 100 us
  struct trial {
    u32 width;
    u64 bytes_per_us;
    double least, most;  // of the loads that the same hints start where nobody asks
  };
  for (trial const& t : {trial{16, 200, 0, 0.15}, trial{8, 200, 0, 0.3}, trial{8, 500, 0.3, 1},
                         trial{8, 26'112, 0.6, 1}}) {  // most of the steps are a trial, and half of them go without
    device_options o;
    o.slots = 12;
    o.width = t.width;
    o.link_bytes_per_us = t.bytes_per_us;
    u32 const before = twin_engine::n_sets;
    auto const governed = make_twin(m.model, o);
    (void)generate(*governed, m.words, request_for(m, steps));
    u32 const n_sets = twin_engine::n_sets - before;
    o.governed = false;
    auto const free = make_twin(m.model, o);
    (void)generate(*free, m.words, request_for(m, steps));
    double const share =
        static_cast<double>(governed->report().loads) / static_cast<double>(free->report().loads);
    CAPTURE(t.width, t.bytes_per_us, share, n_sets);
    CHECK(share >= t.least);
    CHECK(share <= t.most);
    CHECK(n_sets <=
          2 + steps / 8);  // the budget follows in steps, each of which is a copy to the device
  }
}

TEST_CASE("hints that hurt are stopped between launches") {
  loaded const m(small_model_file());
  device_options o;
  o.slots = 8;
  o.width = 8;
  o.predictor = "adversarial";
  auto const on = make_twin(m.model, o);
  (void)generate(*on, m.words, request_for(m, rounds(192)));
  device_report const r = on->report();
  CHECK(r.governor_stops != 0);
  CHECK(r.produced * 4 < r.possible);
}

TEST_CASE("a graph follows sequences, forgets them, and has no room for more than its context") {
  loaded const m(small_model_file());
  instruments tools(m.model, {}, 4, true, false);
  auto const on = make_twin(m.model, {.slots = 8, .width = 4}, &tools);
  auto const cpu = make_cpu_device(m.model, {});
  std::vector<u32> const tokens = m.words.encode("static int one(void) { return 1; }");
  for (int sequence = 0; sequence < 2; ++sequence) {
    tools.start_sequence("");
    std::vector<float> expected;
    follow(*cpu, tokens, 4, [&](u32, std::span<float const> l) {
      expected.insert(expected.end(), l.begin(), l.end());
    });
    std::vector<float> made;
    follow(*on, tokens, 4,
           [&](u32, std::span<float const> l) { made.insert(made.end(), l.begin(), l.end()); });
    CHECK(same(made, expected));
  }
  trace::recording const recorded(tools.take_trace());
  CHECK(recorded.n_events() == 2 * tokens.size() * m.model.numbers.layers);
  // a prompt in one call is the same prompt
  on->forget();
  cpu->forget();
  std::span<float const> const whole = on->forward({tokens, phase::prefill, true});
  std::span<float const> const wide = cpu->forward({tokens, phase::prefill, true});
  CHECK(std::equal(whole.begin(), whole.end(), wide.begin(), wide.end()));
  std::vector<u32> const too_long(m.model.numbers.context + 1, 5);
  CHECK_THROWS_AS(on->forward({too_long, phase::prefill, false}), std::length_error);
  u32 const unknown = m.model.numbers.vocabulary;
  CHECK_THROWS_AS(on->forward({std::span<u32 const>(&unknown, 1), phase::decode, true}),
                  std::out_of_range);
}

TEST_CASE("what a graph cannot do is refused when the device is made") {
  loaded const m(small_model_file());
  CHECK_THROWS_AS(make_twin(m.model, {.slots = 3}), config_error);  // a token has 4
  CHECK_NOTHROW(make_twin(m.model, {.slots = 4}));
  CHECK_NOTHROW(make_twin(m.model, {.slots = 4, .width = 32}));
  CHECK_THROWS_AS(make_twin(m.model, {.width = 4, .predictor = "oracle"}), config_error);
  CHECK_THROWS_AS(make_device(m.model, {.device = "abacus"}), config_error);
  retention_head const head(
      std::string(WARMSET_SOURCE_DIR) + "/examples/data/tinymoe-8x32.retention", m.model);
  CHECK_THROWS_AS(make_twin(m.model, {.retention = &head}), config_error);
}
