// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <algorithm>
#include <cstring>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <warmset/core/error.hpp>
#include <warmset/table/bundles.hpp>
#include <warmset/trace/replay.hpp>

#include "llama_stream/run.hpp"
#include "common/usage_error.hpp"

using namespace llama_test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// 256 tokens of which 64 are a prompt in batches of 32, with the logits of each token.
text_options the_256_tokens(u32 threads) {
  text_options o = one_text();
  o.texts = {fixed_text()};
  o.length = 256;
  o.prompt_tokens = 64;
  o.batch = 32;
  o.threads = threads;
  o.all_outputs = true;
  return o;
}

void check_equal(run_result const& a, run_result const& b) {
  REQUIRE(a.logits.size() == b.logits.size());
  CHECK(std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)) == 0);
}

/// Pools of 25, 50 and 100 % of the experts beside stock, with one and two threads.
void check_model(std::string const& path) {
  model const m(path);
  std::vector<expert_layer> const layers = learn_layers(m, 1);
  u32 const experts = layers.front().n_experts;
  for (u32 threads : {1u, 2u}) {
    text_options const o = the_256_tokens(threads);
    std::vector<sequence> const all = read_sequences(o, m);
    run_result const stock = run_once(m, layers, all, o, way::stock, {}, true);
    REQUIRE(stock.logits.size() == std::size_t{256} * m.vocabulary());
    for (auto const& [slots, policy] :
         {std::pair{experts / 4, "successor"}, {experts / 2, "class_lru"}, {experts, "lru"}}) {
      INFO(path << ", " << slots << " slots, " << threads << " threads");
      run_result const pool = run_once(m, layers, all, o, way::pool, {policy, slots}, true);
      check_equal(pool, stock);
      CHECK(pool.is_sound);
      CHECK(pool.served_steps >= 256);
      CHECK((pool.overflow_steps != 0) == (slots != experts));
      CHECK(pool.served_steps + pool.overflow_steps == layers.size() * (2 + 192));
      CHECK(pool.counters[1].steps.value == layers.size() * 192);
      // all that is copied is what the counters say was loaded
      CHECK(pool.bytes_copied ==
            (pool.counters[0] + pool.counters[1])[warmset::access_kind::load].value *
                layers.front().geometry().expert_bytes());
    }
  }
}

}  // namespace

TEST_CASE("logits from a pool are those of stock llama.cpp, the bundled model") {
  check_model(decode_test::small_model_file());
}

TEST_CASE("logits from a pool are those of stock llama.cpp, the larger model") {
  std::optional<std::string> const file = decode_test::model_file("tinymoe-12x64.gguf");
  if (!file) {
    SKIP("tinymoe-12x64.gguf is not beside the repository");
  }
  check_model(*file);
}

TEST_CASE("products read what a pool has loaded, and nothing else") {
  model const m(decode_test::small_model_file());
  std::vector<expert_layer> const layers = learn_layers(m, 1);
  text_options o = the_256_tokens(1);
  o.length = 96;
  std::vector<sequence> const all = read_sequences(o, m);
  run_result const stock = run_once(m, layers, all, o, way::stock, {}, true);

  // the pool of one bank loads from a copy, in which every weight is 0
  std::vector<expert_layer> altered = layers;
  std::vector<std::byte> const zeros(altered[0].n_experts * altered[0].banks[0].stride);
  altered[0].banks[0].source = const_cast<std::byte*>(zeros.data());
  run_result const pool = run_once(m, altered, all, o, way::pool, {"lru", layers[0].n_experts}, true);
  layers[0].banks[0].weights->data = layers[0].banks[0].source;
  REQUIRE(pool.overflow_steps == 0);
  REQUIRE(pool.logits.size() == stock.logits.size());
  CHECK(std::memcmp(pool.logits.data(), stock.logits.data(), pool.logits.size() * sizeof(float)) != 0);
  check_equal(run_once(m, layers, all, o, way::stock, {}, true), stock);
}

TEST_CASE("a pool serves prompts whose last layer computes one token or none, and generates the same") {
  model const m(decode_test::small_model_file());
  std::vector<expert_layer> const layers = learn_layers(m, 1);
  text_options o = one_text();
  o.prompts = {"The system call returns the number of bytes that it has read.", "A kernel"};
  o.generate = 24;
  o.batch = 5;
  std::vector<sequence> const all = read_sequences(o, m);
  // the pool first: what it leaves behind is what stock starts from
  run_result const pool = run_once(m, layers, all, o, way::pool, {"lfru", 12}, true);
  run_result const stock = run_once(m, layers, all, o, way::stock, {}, true);
  check_equal(pool, stock);
  CHECK(pool.texts == stock.texts);
  CHECK(pool.overflow_steps > 0);
  CHECK(pool.counters[0].steps.value + pool.counters[1].steps.value == pool.served_steps);
}

TEST_CASE("every policy serves the same logits, with the hit rate of its replay") {
  model const m(decode_test::small_model_file());
  std::vector<expert_layer> const layers = learn_layers(m, 1);
  text_options o = the_256_tokens(1);
  o.length = 96;
  std::vector<sequence> const all = read_sequences(o, m);
  run_result const stock = run_once(m, layers, all, o, way::stock, {}, true);
  warmset::trace::recording const trace = record(m, all, o);
  for (std::string const& policy : pool_policies()) {
    INFO(policy);
    run_result const pool = run_once(m, layers, all, o, way::pool, {policy, 8}, true);
    check_equal(pool, stock);
    if (policy == "class_lru") {
      warmset::cache<warmset::bundles::of<warmset::score::class_lru>, warmset::move::immediate> cache(
          trace.geometry(), warmset::budget::of_slots(8));
      (void)warmset::trace::replay(trace, {}, cache);
      CHECK(pool.counters[0].hits() == cache.observer().total(warmset::phase::prefill).hits());
      CHECK(pool.counters[1].hits() == cache.observer().total(warmset::phase::decode).hits());
      CHECK(pool.hit_rate() == cache.observer().total().hit_rate());
    }
  }
}

TEST_CASE("with all experts in slots the pool keeps nine tenths of the speed") {
  model const m(decode_test::small_model_file());
  std::vector<expert_layer> const layers = learn_layers(m, 1);
  text_options const o = the_256_tokens(1);
  std::vector<sequence> const all = read_sequences(o, m);
  double stock = 1e9;
  double idle = 1e9;
  double pool = 1e9;
  // CPU time of one thread, the least of several turns: the machine has others to serve
  for (int round = 0; round < 12 && (round < 4 || pool * 0.9 > idle); ++round) {
    stock = std::min(stock, run_once(m, layers, all, o, way::stock, {}, false).cpu_seconds);
    idle = std::min(idle, run_once(m, layers, all, o, way::idle, {}, false).cpu_seconds);
    pool = std::min(pool,
                    run_once(m, layers, all, o, way::pool, {"lru", 32}, false).cpu_seconds);
  }
  tell("all experts in slots, CPU time of 256 tokens: stock " + std::to_string(stock) + " s, an idle callback " +
       std::to_string(idle) + " s, the pool " + std::to_string(pool) + " s: " + std::to_string(idle / pool) +
       " of the idle callback's speed, " + std::to_string(stock / pool) + " of stock");
  CHECK(idle / pool >= 0.9);
}

TEST_CASE("what cannot be served says so") {
  model const m(decode_test::small_model_file());
  std::vector<expert_layer> layers = learn_layers(m, 1);
  CHECK_THROWS_AS(make_pool("nix", geometry_of(layers), 8), warmset_tools::usage_error);
  CHECK_THROWS_AS(make_pool("lru", geometry_of(layers), 0), warmset::config_error);

  text_options o = the_256_tokens(1);
  o.length = 40;
  o.prompt_tokens = 8;
  std::vector<sequence> const all = read_sequences(o, m);
  SECTION("a layer with an obstacle") {
    layers[3].obstacle = "node 'x' reads the chosen experts after the first product";
    CHECK_THROWS_WITH(streamer(layers, "lru", 8),
                      ContainsSubstring("layer 3 cannot be served from slots: node 'x'"));
  }
  SECTION("a graph without the node before the products") {
    layers[3].gate = "no such node";
    CHECK_THROWS_WITH(run_once(m, layers, all, o, way::pool, {"lru", 8}, false),
                      ContainsSubstring("layer 3 at position 0: its products ran without"));
    // and it computed from the file meanwhile: nothing is left behind
    layers = learn_layers(m, 1);
    check_equal(run_once(m, layers, all, o, way::pool, {"lru", 8}, true),
                run_once(m, layers, all, o, way::stock, {}, true));
  }
  SECTION("ids under another name") {
    layers[2].ids = "no such node";
    CHECK_THROWS_AS(run_once(m, layers, all, o, way::pool, {"lru", 8}, false), engine_error);
  }
}
