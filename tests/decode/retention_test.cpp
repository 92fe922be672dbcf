// SPDX-License-Identifier: Apache-2.0
//
// The retention head: its keys and what the cache does with them, against references written for reading; its file.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/trace/bytes.hpp>

#include "decode/instruments.hpp"
#include "decode/kernels.hpp"
#include "decode/retention.hpp"
#include "decode/support.hpp"
#include "kit/successor_reference.hpp"
#include "common/file.hpp"
#include "support/dice.hpp"
#include "support/rounds.hpp"

using namespace decode_test;
using namespace warmset;

namespace {

std::string head_file() {
  return std::string(WARMSET_SOURCE_DIR) + "/examples/data/tinymoe-8x32.retention";
}

std::vector<u32> some_tokens(loaded const& m, u32 n) {
  std::vector<u32> tokens =
      m.words.encode("The kernel maps a page of memory into the address space of a process.");
  auto const on = make_cpu_device(m.model, {});
  generation_request r;
  r.prompt = tokens;
  r.n_tokens = n;
  r.temperature = 1;
  r.stops_at_end = false;
  std::vector<u32> const more = generate(*on, m.words, r).tokens;
  tokens.insert(tokens.end(), more.begin(), more.end());
  tokens.resize(n);
  return tokens;
}

/// A run of given tokens: what the routers saw and chose, the keys that went to the cache, its hits.
struct run_of {
  explicit run_of(loaded const& m, retention_head const* head, u32 slots,
                  std::vector<u32> const& tokens)
      : samples(m.model) {
    instruments tools(m.model, {}, 0, false, false);
    tools.collect(samples);
    tools.on_keys = [&](u32 row, std::span<i32 const> k) {
      keys[row].emplace_back(k.begin(), k.end());
    };
    auto const on = make_cpu_device(m.model, {.slots = slots, .retention = head}, &tools);
    follow(*on, tokens, 0, [&](u32, std::span<float const> logits) {
      for (float x : logits) {
        u32 bits;
        std::memcpy(&bits, &x, sizeof bits);
        hash = (hash ^ bits) * 0x0000'0100'0000'01B3ull;
      }
    });
    total_counters const sum = on->report().counters.sum();
    hits = sum[access_kind::hit].value;
  }
  retention_samples samples;
  std::map<u32, std::vector<std::vector<i32>>> keys;  // by layer: [token][expert]
  u64 hash = 0;
  u64 hits = 0;
};

/// (bias + W . q) / 2^shift, rounded down, also below zero.
i64 key_of_reference(retention_head::layer const& l, std::span<i16 const> input, u32 expert) {
  i64 sum = l.bias[expert];
  for (std::size_t i = 0; i < input.size(); ++i) {
    sum += i64{l.weights[expert * input.size() + i]} * input[i];
  }
  i64 const unit = i64{1} << l.shift;
  return (sum - ((sum % unit) + unit) % unit) / unit;
}

/// Hits of pools whose coldest resident leaves: the smallest sum of the successor's key and the head's, then the longest
/// unused. Requires that the keys of the run are those of the head.
u64 hits_of_reference(run_of const& run, retention_head const& head, u32 n_experts, u32 slots) {
  u64 hits = 0;
  for (u32 row = 0; row < head.layers().size(); ++row) {
    kit::successor_reference successor(n_experts, row, {});
    kit::id_list residents;
    std::vector<u64> last(n_experts);
    u64 tick = 0;
    for (u64 t = 0; t < run.samples.n_tokens(); ++t) {
      auto const ids = run.samples.ids(t, row);
      kit::id_list const used(ids.begin(), ids.end());
      std::vector<i32> const& own = successor.step(used);
      std::vector<i64> worth(n_experts);
      for (u32 e = 0; e < n_experts; ++e) {
        i64 const key = key_of_reference(head.layers()[row], run.samples.input(t, row), e);
        REQUIRE(run.keys.at(row)[t][e] == key);
        worth[e] = key + own[e];
      }
      kit::id_list idle;  // residents that may leave, the coldest first
      for (u32 e : residents) {
        if (kit::contains(used, e)) {
          ++hits;
        } else {
          idle.push_back(e);
        }
      }
      std::sort(idle.begin(), idle.end(), [&](u32 x, u32 y) {
        return std::pair(worth[x], last[x]) < std::pair(worth[y], last[y]);
      });
      std::size_t const room = slots - used.size();
      idle.erase(idle.begin(), idle.begin() + static_cast<std::ptrdiff_t>(
                                                  idle.size() - std::min(idle.size(), room)));
      residents = used;
      residents.insert(residents.end(), idle.begin(), idle.end());
      for (u32 e : used) {
        last[e] = ++tick;
      }
    }
  }
  return hits;
}

/// A file in the folder of temporary files, gone at the end.
struct scratch_file {
  explicit scratch_file(std::vector<std::byte> const& bytes)
      : path((std::filesystem::temp_directory_path() / "warmset-retention-test.head").string()) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<char const*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  ~scratch_file() { std::filesystem::remove(path); }
  std::string path;
};

void seal(std::vector<std::byte>& bytes) {
  std::span<std::byte const> const summed(bytes.data(), bytes.size() - 8);
  trace::detail::store_le(bytes.data() + summed.size(), trace::checksum(summed));
}

std::string refusal(loaded const& m, std::vector<std::byte> const& bytes) {
  scratch_file const f(bytes);
  try {
    retention_head const head(f.path, m.model);
  } catch (warmset_tools::file_error const& e) {
    CHECK(std::string(e.what()).starts_with(f.path + ": "));
    return e.what();
  }
  return "";
}

bool mentions(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE(
    "keys and hits of the bundled head are those of a plain reference, and no logit changes") {
  loaded const m(small_model_file());
  retention_head const head(head_file(), m.model);
  std::vector<u32> const tokens = some_tokens(m, slow_build ? 48 : 320);
  u64 hash = 0;
  for (u32 slots : {8u, 16u}) {
    run_of const with(m, &head, slots, tokens);
    run_of const without(m, nullptr, slots, tokens);
    REQUIRE(with.samples.n_tokens() == tokens.size());
    CHECK(with.keys.size() == m.model.numbers.layers);
    CHECK(without.keys.empty());
    CHECK(with.hits == hits_of_reference(with, head, m.model.numbers.experts, slots));
    CHECK(with.hits != without.hits);
    if (!slow_build) {
      CHECK(with.hits > without.hits);  // of text that the head was not fitted to
    }
    CHECK(with.hash == without.hash);
    CHECK((hash == 0 || with.hash == hash));
    hash = with.hash;
  }
}

TEST_CASE("samples are the router's input in fixed point and what it chose") {
  loaded const m(small_model_file());
  std::vector<u32> const tokens = some_tokens(m, 12);
  run_of const run(m, nullptr, 8, tokens);
  architecture const& a = m.model.numbers;
  for (u32 row = 0; row < a.layers; ++row) {
    float const scale = input_scale(m.model, row);
    CHECK(std::ldexp(1.0f, std::ilogb(scale)) == scale);
    for (u64 t = 0; t < tokens.size(); ++t) {
      std::vector<float> x;
      for (i16 q : run.samples.input(t, row)) {
        CHECK(std::abs(q) <= input_bound);
        x.push_back(static_cast<float>(q) / scale);
      }
      std::vector<float> logits(a.experts);
      kernels::multiply(m.model.layers[row].router.data(), x.data(), logits.data(), a.experts,
                        a.hidden);
      float least = logits[run.samples.ids(t, row)[0]];
      for (u16 id : run.samples.ids(t, row)) {
        least = std::min(least, logits[id]);
      }
      u32 above = 0;  // experts that the rounded input would have chosen instead
      for (float l : logits) {
        above += l > least + 0.05f ? 1 : 0;
      }
      CHECK(above < a.k);
    }
  }
  std::vector<std::byte> const bytes = run.samples.bytes();
  CHECK(bytes.size() == 48 + tokens.size() * a.layers * 2 * (a.hidden + a.k));
  CHECK(std::memcmp(bytes.data(), "WSAMPLE\n", 8) == 0);

  // A batch gives the samples of each of its tokens, and the keys of its last.
  retention_samples batch(m.model);
  instruments tools(m.model, {}, 0, false, false);
  tools.collect(batch);
  u32 keyed = 0;
  tools.on_keys = [&](u32, std::span<i32 const>) { ++keyed; };
  retention_head const head(head_file(), m.model);
  auto const on = make_cpu_device(m.model, {.slots = 8, .retention = &head}, &tools);
  (void)on->forward({tokens, phase::prefill, false});
  CHECK(keyed == a.layers);
  CHECK(batch.bytes() == bytes);
}

TEST_CASE("fixed point is rounded half up and cut off, and what is no number is 0") {
  std::vector<float> const x = {0.0f,     0.49f,     -0.5f,   0.5f,     -0.51f,
                                1e30f,    -1e30f,    4094.6f, -4094.6f, std::nanf(""),
                                INFINITY, -INFINITY, 1.5f,    -1.5f,    2.25f};
  std::vector<i16> q(x.size());
  kernels::to_fixed_point(x.data(), 1, 4095, q.data(), x.size());
  CHECK(q == std::vector<i16>{0, 0, 0, 1, -1, 4095, -4095, 4095, -4095, 0, 4095, -4095, 2, -1, 2});
  kernels::to_fixed_point(x.data(), 2, 4095, q.data(), 4);
  CHECK(std::vector<i16>(q.begin(), q.begin() + 4) == std::vector<i16>{0, 1, -1, 1});
}

TEST_CASE("products in integers are exact up to the largest that a head may reach") {
  std::vector<i16> w(3 * 70), x(70);
  warmset_test::dice roll(5);
  for (i16& v : w) {
    v = static_cast<i16>(static_cast<int>(roll.below(65536)) - 32768);
  }
  for (i16& v : x) {
    v = static_cast<i16>(static_cast<int>(roll.below(801)) - 400);
  }
  std::vector<i32> out(3);
  kernels::multiply_i16(w.data(), x.data(), out.data(), 3, 70);
  for (std::size_t r = 0; r < 3; ++r) {
    i64 sum = 0;
    for (std::size_t i = 0; i < 70; ++i) {
      sum += i64{w[r * 70 + i]} * x[i];
    }
    CHECK(out[r] == sum);
  }
}

TEST_CASE("keys cost at most one and a half times what the router's matrix costs") {
  if (!fast_build) {
    SKIP("for builds with optimisation");
  }
  loaded const m(small_model_file());
  retention_head const head(head_file(), m.model);
  architecture const& a = m.model.numbers;
  std::vector<float> const x(a.hidden, 0.25f);
  std::vector<float> logits(a.experts);
  std::vector<i16> fixed(a.hidden);
  std::vector<i32> keys(a.experts);
  auto const seconds = [&](auto&& work) {
    auto const begin = std::chrono::steady_clock::now();
    for (u32 row = 0; row < 20 * a.layers; ++row) {
      work(row % a.layers);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  double of_router = 1e9;
  double of_keys = 1e9;
  for (int trial = 0; trial < 200; ++trial) {  // the fastest of each: others may be at work here
    of_router = std::min(of_router, seconds([&](u32 row) {
                           kernels::multiply(m.model.layers[row].router.data(), x.data(),
                                             logits.data(), a.experts, a.hidden);
                         }));
    of_keys =
        std::min(of_keys, seconds([&](u32 row) {
                   kernels::to_fixed_point(x.data(), 256, input_bound, fixed.data(), a.hidden);
                   head.keys(row, fixed, keys);
                 }));
  }
  CHECK(of_keys <= 1.5 * of_router);
}

TEST_CASE("a file that is no head of this model is refused, and why is said") {
  loaded const m(small_model_file());
  std::vector<std::byte> const sound = warmset_tools::read_file(head_file());
  CHECK(refusal(m, sound) == "");
  auto const changed = [&](std::size_t at, u32 to, bool seals = true) {
    std::vector<std::byte> bytes = sound;
    trace::detail::store_le(bytes.data() + at, to);
    if (seals) {
      seal(bytes);
    }
    return refusal(m, bytes);
  };
  CHECK(mentions(changed(0, 0), "not a retention head"));
  CHECK(mentions(changed(8, 2), "version is 2; version 1 is read"));
  CHECK(mentions(changed(12, 7), "fitted to another model"));
  CHECK(mentions(changed(16, 7), "a head of 7 bytes"));
  CHECK(mentions(changed(24, 7), "fitted to another model"));
  CHECK(mentions(changed(32, 64), "fitted to another model"));
  CHECK(mentions(changed(36, 31), "fitted to another model"));
  CHECK(mentions(changed(1000, 0x12345678, false), "the checksum does not match"));
  CHECK(mentions(changed(48, 31), "layer 0: a shift of 31 is more than 30"));
  CHECK(mentions(changed(52, 0x7FFF'FFFF), "layer 0: keys of expert 0 can exceed 32 bits"));
  CHECK(mentions(changed(52, 0x8000'0000), "layer 0: keys of expert 0 can exceed 32 bits"));
  for (std::size_t size :
       {std::size_t{1}, std::size_t{55}, std::size_t{56}, sound.size() / 2, sound.size() - 1}) {
    CHECK(refusal(m, {sound.begin(), sound.begin() + static_cast<std::ptrdiff_t>(size)}) != "");
  }
  std::vector<std::byte> longer = sound;
  longer.resize(longer.size() + 8);
  CHECK(mentions(refusal(m, longer), "in a file of "));
  trace::detail::store_le(longer.data() + 16, u64{longer.size()});
  seal(longer);
  CHECK(mentions(refusal(m, longer), "are not a head's of this model"));
  // Each byte is covered by the checksum or by the check of the size.
  for (std::size_t at = 0; at < sound.size(); at += slow_build ? 9973 : 997) {
    std::vector<std::byte> bytes = sound;
    bytes[at] ^= std::byte{0x10};
    CHECK(refusal(m, bytes) != "");
  }
  CHECK_THROWS_AS(retention_head("made", m.model, {}), warmset_tools::file_error);
  std::vector<retention_head::layer> layers(m.model.numbers.layers);
  CHECK_THROWS_AS(retention_head("made", m.model, layers), warmset_tools::file_error);
}
