// SPDX-License-Identifier: Apache-2.0
//
// The device of a GPU. Its operations are compared with the CPU's, bit by bit, in graph_test.cpp; here they run as kernels
// of a captured graph.

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "cuda/gpu.cuh"
#include "decode/instruments.hpp"
#include "decode/support.hpp"
#include "decode/twin_engine.hpp"

#if defined(WARMSET_HAS_JSON)
#include <nlohmann/json.hpp>
#endif

using namespace decode_test;
using namespace warmset;

namespace {

void require_gpu() {
  if (!has_gpu()) {
    SKIP("skipped: no GPU");
  }
}

std::string contents_of(std::string const& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Decode steps of the longer cases: WARMSET_GPU_DECODE_STEPS, else 512.
u32 n_steps() {
  char const* const said = std::getenv("WARMSET_GPU_DECODE_STEPS");
  return said != nullptr && *said != '\0' ? static_cast<u32>(std::strtoul(said, nullptr, 10)) : 512;
}

device_options on_gpu(u32 slots, u32 width) {
  device_options o;
  o.device = "cuda";
  o.slots = slots;
  o.width = width;
  return o;
}

}  // namespace

#if defined(WARMSET_HAS_JSON)

namespace {

void check_logits(std::string const& model_path, std::string const& reference_path) {
  loaded const m(model_path);
  nlohmann::json const reference = nlohmann::json::parse(contents_of(reference_path));
  std::vector<u32> const tokens = reference["tokens"];
  REQUIRE(tokens.size() == 32);
  auto const on = make_device(m.model, on_gpu(m.model.numbers.experts / 4, 4));
  auto const cpu = make_cpu_device(m.model, {});
  std::vector<std::vector<float>> expected;
  follow(*cpu, tokens, 0,
         [&](u32, std::span<float const> l) { expected.emplace_back(l.begin(), l.end()); });
  u32 agree = 0;
  double worst = 0;
  double worst_of_cpu = 0;
  follow(*on, tokens, 0, [&](u32 position, std::span<float const> logits) {
    agree += likeliest(logits) == reference["top5"][position][0].get<u32>() ? 1 : 0;
    for (u32 i = 0; i < 5; ++i) {
      u32 const token = reference["top5"][position][i];
      double const top = reference["top5_logits"][position][i];
      worst = std::max(worst, std::abs(double{logits[token]} - top));
    }
    for (std::size_t i = 0; i < logits.size(); ++i) {
      worst_of_cpu =
          std::max(worst_of_cpu, std::abs(double{logits[i]} - double{expected[position][i]}));
    }
  });
  CAPTURE(worst_of_cpu);
  CHECK(agree == 32);
  CHECK(worst <= 5e-2);
  CHECK(worst_of_cpu <= 5e-2);
}

}  // namespace

TEST_CASE("a GPU's logits of the small model agree with the reference") {
  require_gpu();
  std::optional<std::string> const reference = model_file("tinymoe-8x32.reference.json");
  if (!reference) {
    SKIP("the models are not there: WARMSET_MODELS");
  }
  check_logits(small_model_file(), *reference);
}

TEST_CASE("a GPU's logits of the larger model agree with the reference") {
  require_gpu();
  std::optional<std::string> const path = model_file("tinymoe-12x64.gguf");
  if (!path) {
    SKIP("the models are not there: WARMSET_MODELS");
  }
  check_logits(*path, *model_file("tinymoe-12x64.reference.json"));
}

#endif

TEST_CASE("the likeliest text of a GPU is the committed one, twice with the same logits") {
  require_gpu();
  loaded const m(small_model_file());
  std::string const golden =
      contents_of(std::string(WARMSET_SOURCE_DIR) + "/tests/decode/golden.txt");
  std::string const prompt = "The system call";
  generation_request request;
  request.prompt = m.words.encode(prompt);
  request.n_tokens = 128;
  u64 hashes[2] = {};
  for (u64& hash : hashes) {
    auto const on = make_device(m.model, on_gpu(8, 4));
    generation const made = generate(*on, m.words, request);
    hash = made.logits_hash;
    CHECK(prompt + m.words.decode(made.tokens) == golden);
  }
  CHECK(hashes[0] == hashes[1]);
}

namespace {

constexpr std::size_t n_parts = 4;

/// Every n_parts-th way to serve beside the first, which all are compared with.
void check_arms(std::size_t part) {
  require_gpu();
  loaded const m(small_model_file());
  u32 const steps = n_steps();
  std::vector<arm_options> const all = ways_to_serve(m.model, 1, "cuda");
  REQUIRE(all.size() >= 14);
  std::vector<arm_options> ways = {all[0]};
  for (std::size_t i = 1 + part; i < all.size(); i += n_parts) {
    ways.push_back(all[i]);
    ways.back().device.copy_failures_q16 *= steps < 512 ? 3 : 1;  // some fail in few steps, too
  }
  std::vector<arm> const arms = run_arms(m.model, m.words, ways, request_for(m, steps));
  CHECK(compare(arms) == "");
  for (std::size_t i = 0; i < arms.size(); ++i) {
    INFO(arms[i].name);
    CHECK(arms[i].made.decode_steps == steps);
    CHECK(arms[i].report.reads >= u64{steps} * 8 * 4);
    CHECK((arms[i].report.copies_failed != 0) == (ways[i].device.copy_failures_q16 != 0));
  }
}

}  // namespace

TEST_CASE("on a GPU all steps have one hash of all logits, however the experts are served: part 1",
          "[short-arms-1]") {
  check_arms(0);
}
TEST_CASE("on a GPU all steps have one hash of all logits, however the experts are served: part 2",
          "[short-arms-2]") {
  check_arms(1);
}
TEST_CASE("on a GPU all steps have one hash of all logits, however the experts are served: part 3",
          "[short-arms-3]") {
  check_arms(2);
}
TEST_CASE("on a GPU all steps have one hash of all logits, however the experts are served: part 4",
          "[short-arms-4]") {
  check_arms(3);
}

TEST_CASE("a GPU decides what its host twin decides, with hints and with copies that fail",
          "[short]") {
  require_gpu();
  loaded const m(small_model_file());
  std::vector<u32> const tokens = m.words.encode(
      "The kernel maps a page of memory into the address space of a process. static int one(void) "
      "{ return 1; }");
  device_options hints = on_gpu(8, 8);
  hints.governed = false;
  device_options fails = hints;
  fails.copy_failures_q16 = 3'000;
  for (device_options const& o : {hints, fails}) {
    auto const on = make_device(m.model, o);
    auto const twin = make_twin(m.model, o);
    follow(*on, tokens, 4, {});
    follow(*twin, tokens, 4, {});
    device_report const a = on->report();
    device_report const b = twin->report();
    CHECK((a.copies_failed != 0) == (o.copy_failures_q16 != 0));
    CHECK(a.loads != 0);
    total_counters mine = a.counters.sum();
    bool same = true;
    mine.zip(b.counters.sum(), [&](auto x, auto y) { same = same && x == y; });
    CHECK(same);
    CHECK(a.judged.used == b.judged.used);
    CHECK(a.judged.wasted == b.judged.wasted);
    CHECK(a.judged.regretted == b.judged.regretted);
  }
}

TEST_CASE("a GPU's counters, health and governor are those of a device", "[short]") {
  require_gpu();
  loaded const m(small_model_file());
  // no trial of the race is over by then: whether look-ahead pays is the machine's affair
  u32 const steps = std::min(n_steps(), 96u);
  auto const on = make_device(m.model, on_gpu(8, 4));
  (void)generate(*on, m.words, request_for(m, steps));
  device_report const r = on->report();
  total_counters const sum = r.counters.sum();
  CHECK(r.health.state == health_state::active);
  CHECK(sum.demanded.value == r.reads);
  CHECK(sum.steps.value == (steps + request_for(m, 1).prompt.size()) * m.model.numbers.layers);
  CHECK(r.judged.used > r.judged.wasted);
  u64 dropped = 0;
  for (auto const& each : sum.hints_dropped) {
    dropped += each.value;
  }
  dropped -= sum.hints_dropped[static_cast<u32>(reason::sentinel)].value;  // padding is no hint
  CHECK(r.hints == r.loads + dropped);

  device_options none = on_gpu(8, 4);
  none.hint_bytes = 26'111;  // a byte less than an expert
  auto const inert = make_device(m.model, none);
  (void)generate(*inert, m.words, request_for(m, 8));
  CHECK(inert->report().health.state == health_state::inert);
  CHECK(inert->report().produced == 0);

  if (n_steps() >= 192) {
    device_options hurts = on_gpu(8, 8);
    hurts.predictor = "adversarial";
    auto const stopped = make_device(m.model, hurts);
    (void)generate(*stopped, m.words, request_for(m, 192));
    CHECK(stopped->report().governor_stops != 0);
    CHECK(stopped->report().produced * 4 < stopped->report().possible);
  }
}

TEST_CASE("a GPU's phase table has every step, and its rows sum to them", "[short]") {
  require_gpu();
  loaded const m(small_model_file());
  instruments tools(m.model, {}, 4, false, true);
  auto const on = make_device(m.model, on_gpu(8, 4), &tools);
  u32 const steps = std::min(n_steps(), 64u);
  generation_request const request = request_for(m, steps);
  (void)generate(*on, m.words, request);
  phase_table const& times = tools.times();
  REQUIRE(times.on());
  CHECK(times.steps().value == steps + request.prompt.size());
  u64 sum = 0;
  for (u32 r = 0; r < n_time_rows; ++r) {
    sum += times.sum().rows[r].value;
  }
  CHECK(sum == times.sum().step.value);
  CHECK(times.sum()[time_row::attention].value != 0);
  CHECK(times.sum()[time_row::experts].value != 0);
  CHECK(times.sum()[time_row::copies].value != 0);
}

TEST_CASE("a GPU that is held back brings as many bytes as the link it stands for, and no more") {
  require_gpu();
  loaded const m(small_model_file());
  device_options o = on_gpu(8, 8);
  o.governed = false;
  o.link_bytes_per_us = 25;  // an expert in a millisecond: the link is never idle for long
  auto const on = make_device(m.model, o);
  generation const made = generate(*on, m.words, request_for(m, 32));
  // what the last step fetched is counted by the next one
  double const bytes = static_cast<double>(on->report().counters.sum().link_bytes().value);
  double const us = 1e6 * (made.prompt_seconds + made.decode_seconds);
  CAPTURE(bytes, us);
  CHECK(bytes > 1e6);
  CHECK(bytes / us <= 25.1);
  CHECK(bytes / us >= 0.8 * 25);
}

TEST_CASE("what no graph can do is refused where there is a GPU and where there is none") {
  loaded const m(small_model_file());
  CHECK_THROWS_AS(make_device(m.model, on_gpu(3, 0)), config_error);  // a token has 4
  if (has_gpu()) {
    CHECK_NOTHROW(make_device(m.model, on_gpu(4, 32)));
  } else {
    CHECK_THROWS_AS(make_device(m.model, on_gpu(8, 0)), config_error);
  }
}
