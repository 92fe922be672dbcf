// SPDX-License-Identifier: Apache-2.0
//
// The forward pass against recordings that others made of the same models: logits, text, routes, look-ahead.

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include <catch2/catch_test_macros.hpp>

#include <warmset/trace/trace.hpp>

#include "decode/instruments.hpp"
#include "decode/support.hpp"
#include "support/rounds.hpp"
#include "trace/support.hpp"

#if defined(WARMSET_HAS_JSON)
#include <nlohmann/json.hpp>
#endif

using namespace decode_test;
using namespace warmset;

namespace {

std::string contents_of(std::string const& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

#if defined(WARMSET_HAS_JSON)

void check_logits(std::string const& model_path, std::string const& reference_path) {
  loaded const m(model_path);
  nlohmann::json const reference = nlohmann::json::parse(contents_of(reference_path));
  std::vector<u32> const tokens = reference["tokens"];
  REQUIRE(tokens.size() == 32);
  auto const on = make_cpu_device(m.model, {.slots = m.model.numbers.experts / 4});
  u32 agree = 0;
  double worst = 0;
  follow(*on, tokens, 0, [&](u32 position, std::span<float const> logits) {
    agree += likeliest(logits) == reference["top5"][position][0].get<u32>() ? 1 : 0;
    for (u32 i = 0; i < 5; ++i) {
      u32 const token = reference["top5"][position][i];
      double const expected = reference["top5_logits"][position][i];
      worst = std::max(worst, std::abs(double{logits[token]} - expected));
    }
  });
  CHECK(agree == 32);
  CHECK(worst <= 2e-2);
  std::string const text = m.words.decode(tokens);
  CHECK(m.words.encode(text) == tokens);
}

/// Token lists by sequence.
std::map<u32, std::vector<u32>> token_lists(std::string const& path) {
  std::map<u32, std::vector<u32>> lists;
  std::istringstream in(contents_of(path));
  for (std::string line; std::getline(in, line);) {
    nlohmann::json const j = nlohmann::json::parse(line);
    lists[j["s"].get<u32>()] = j["tokens"].get<std::vector<u32>>();
  }
  return lists;
}

/// What a run of a trace's tokens came to beside the trace.
struct comparison {
  u64 rows = 0;                   ///< of a token in a layer
  u64 equal = 0;                  ///< with the same set of experts
  u64 ahead = 0;                  ///< predictions
  u64 ahead_equal = 0;            ///< with the same set
  warmset::recall_counts recall;  ///< of the first width, from layer 1 on
};

comparison compare_with_trace(std::string const& model_path, std::string const& trace_path,
                              std::vector<u32> const& sequences, u32 n_tokens, u32 width) {
  loaded const m(model_path);
  std::string tokens_path = trace_path;
  tokens_path.replace(tokens_path.find(".jsonl.zst"), std::string::npos, ".tokens.jsonl");
  std::map<u32, std::vector<u32>> lists = token_lists(tokens_path);
  instruments tools(m.model, {width}, 12, true, false);
  auto const on =
      make_cpu_device(m.model, {.slots = m.model.numbers.experts / 4, .width = 12}, &tools);
  for (u32 s : sequences) {
    tools.start_sequence(std::to_string(s));
    lists[s].resize(std::min<std::size_t>(lists[s].size(), n_tokens));
    follow(*on, lists[s], 128);
  }
  trace::recording const mine(tools.take_trace());
  trace::recording const theirs = trace_test::read_trace_file(trace_path);
  std::map<std::tuple<u32, u32, u32>, trace::event> recorded;
  trace::for_each_event(theirs, [&](trace::event const& e) {
    recorded[{e.sequence, e.position, e.row}] = e;
  });
  comparison c;
  auto const set_of = [](std::span<u16 const> ids) {
    return std::set<u16>(ids.begin(), ids.end());
  };
  trace::for_each_event(mine, [&](trace::event const& e) {
    trace::event const& other = recorded.at({sequences[e.sequence], e.position, e.row});
    ++c.rows;
    c.equal += set_of(e.ids) == set_of(other.ids) ? 1 : 0;
    REQUIRE(e.phase == other.phase);
    if (e.row != 0 && !other.lookahead.empty()) {
      ++c.ahead;
      c.ahead_equal += set_of(e.lookahead) == set_of(other.lookahead) ? 1 : 0;
    }
  });
  for (u32 row = 1; row < m.model.numbers.layers; ++row) {
    c.recall += tools.recall_at(0).total(row, phase::prefill);
    c.recall += tools.recall_at(0).total(row, phase::decode);
  }
  return c;
}

double share(u64 part, u64 whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

#endif

}  // namespace

#if defined(WARMSET_HAS_JSON)

TEST_CASE("logits of the small model agree with the reference") {
  std::optional<std::string> const reference = model_file("tinymoe-8x32.reference.json");
  if (!reference) {
    SKIP("the models are not there: WARMSET_MODELS");
  }
  check_logits(small_model_file(), *reference);
}

TEST_CASE("logits of the larger model agree with the reference") {
  std::optional<std::string> const path = model_file("tinymoe-12x64.gguf");
  if (!path) {
    SKIP("the models are not there: WARMSET_MODELS");
  }
  check_logits(*path, *model_file("tinymoe-12x64.reference.json"));
}

TEST_CASE("routes of the small model's run are those of its trace") {
  std::optional<std::string> const traced =
      trace_test::trace_file("tinymoe/tinymoe-8x32.jsonl.zst");
  if (!traced) {
    SKIP("the traces are not there: WARMSET_TRACES");
  }
  comparison const c =
      compare_with_trace(small_model_file(), *traced, {0, 31}, slow_build ? 64 : 512, 4);
  CHECK(c.rows == 2 * (slow_build ? 64 : 512) * 8);
  CHECK(share(c.equal, c.rows) >= 0.99);
}

TEST_CASE("recall of the larger model's look-ahead is what its trace says") {
  std::optional<std::string> const path = model_file("tinymoe-12x64.gguf");
  std::optional<std::string> const traced =
      trace_test::trace_file("tinymoe/tinymoe-12x64.jsonl.zst");
  if (!path || !traced) {
    SKIP("the model or the traces are not there: WARMSET_MODELS, WARMSET_TRACES");
  }
  if (slow_build) {
    SKIP("for builds with optimisation");
  }
  comparison const c = compare_with_trace(*path, *traced, {5, 25, 45}, 192, 8);
  CHECK(share(c.equal, c.rows) >= 0.99);
  CHECK(share(c.ahead_equal, c.ahead) >= 0.98);
  CHECK(std::abs(c.recall.precision() - 0.792) <= 0.02);
  CHECK(std::abs(c.recall.recall() - 0.792) <= 0.02);
}

#endif

TEST_CASE("the likeliest text is the committed one") {
  loaded const m(small_model_file());
  std::string const golden =
      contents_of(std::string(WARMSET_SOURCE_DIR) + "/tests/decode/golden.txt");
  std::string const prompt = "The system call";
  REQUIRE(golden.starts_with(prompt));
  generation_request request;
  request.prompt = m.words.encode(prompt);
  request.n_tokens = 128;
  auto const on = make_cpu_device(m.model, {.slots = 8, .width = 4});
  std::string const text = prompt + m.words.decode(generate(*on, m.words, request).tokens);
  CHECK(text == golden);
}

TEST_CASE("the same seed draws the same text, and another seed another one") {
  loaded const m(small_model_file());
  generation_request request;
  request.prompt = m.words.encode("static int");
  request.n_tokens = 24;
  request.temperature = 1;
  auto const on = make_cpu_device(m.model, {.slots = 16});
  request.seed = 5;
  std::vector<u32> const first = generate(*on, m.words, request).tokens;
  CHECK(generate(*on, m.words, request).tokens == first);
  request.seed = 6;
  CHECK(generate(*on, m.words, request).tokens != first);
}

TEST_CASE("a context that is full is refused, and a new sequence has room again") {
  loaded const m(small_model_file());
  auto const on = make_cpu_device(m.model, {});
  std::vector<u32> const too_long(m.model.numbers.context + 1, 5);
  CHECK_THROWS_AS(on->forward({too_long, phase::prefill, false}), std::length_error);
  u32 const unknown = m.model.numbers.vocabulary;
  CHECK_THROWS_AS(on->forward({std::span<u32 const>(&unknown, 1), phase::decode, true}),
                  std::out_of_range);
}
