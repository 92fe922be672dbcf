// SPDX-License-Identifier: Apache-2.0

#include <cmath>
#include <string>

#include <catch2/catch_test_macros.hpp>

#include <warmset/core/presets.hpp>

namespace warmset {
namespace {

/// What was published or worked out elsewhere, in the units of those tables: MiB with two decimals and so on.
struct published {
  char const* name;
  u32 moe_layers;
  u32 layers;
  u32 n_experts;
  u32 k;
  double expert_mib[3];  ///< all Q4_K, a layer with Q6_K down, MXFP4, had every row divided by the block
  u64 pairs;
  double all_gib;
  u64 cycle_mib;
};
constexpr published table[] = {
    {"mixtral-8x7b", 32, 32, 8, 2, {94.50, 108.94, 89.25}, 256, 23.6, 6048},
    {"phi-3.5-moe", 32, 32, 16, 2, {42.19, 48.63, 39.84}, 512, 21.1, 2700},
    {"olmoe-1b-7b-0924", 16, 16, 64, 8, {3.38, 3.89, 3.19}, 1024, 3.4, 432},
    {"deepseek-v2-lite", 26, 27, 64, 6, {4.64, 5.35, 4.38}, 1664, 7.5, 724},
    {"qwen1.5-moe-a2.7b", 24, 24, 60, 4, {4.64, 5.35, 4.38}, 1440, 6.5, 446},
    {"glm-4.7-flash", 46, 47, 64, 4, {5.06, 5.84, 4.78}, 2944, 14.6, 932},
    {"qwen3-30b-a3b", 48, 48, 128, 8, {2.53, 2.92, 2.39}, 6144, 15.2, 972},
    {"qwen3-235b-a22b", 94, 94, 128, 8, {10.12, 11.67, 9.56}, 12032, 119.0, 7614},
    {"qwen3-coder-480b", 62, 62, 160, 8, {25.31, 29.18, 23.91}, 9920, 245.2, 12555},
    {"qwen3-next-80b-a3b", 48, 48, 512, 10, {1.69, 1.95, 1.59}, 24576, 40.5, 810},
    {"qwen3.5-35b-a3b", 40, 40, 256, 8, {1.69, 1.95, 1.59}, 10240, 16.9, 540},
    {"qwen3.8-flash-next", 48, 48, 512, 10, {2.64, 3.04, 2.49}, 24576, 63.3, 1266},
    {"gpt-oss-20b", 24, 24, 32, 4, {13.35, 15.39, 12.61}, 768, 10.0, 1281},
    {"gpt-oss-120b", 36, 36, 128, 4, {13.35, 15.39, 12.61}, 4608, 60.1, 1922},
    {"gemma-4-26b-a4b", 30, 30, 128, 8, {3.19, 3.68, 3.01}, 3840, 12.0, 766},
    {"glm-4.5-air", 45, 46, 128, 8, {9.28, 10.70, 8.77}, 5760, 52.2, 3341},
    {"glm-4.5", 89, 92, 160, 8, {12.66, 14.59, 11.95}, 14240, 176.0, 9011},
    {"glm-5", 75, 78, 256, 8, {20.25, 23.34, 19.12}, 19200, 379.7, 12150},
    {"deepseek-v3", 58, 61, 256, 8, {23.62, 27.23, 22.31}, 14848, 342.6, 10962},
    {"deepseek-v4-flash", 43, 43, 256, 6, {13.50, 15.56, 12.75}, 11008, 145.1, 3483},
    {"kimi-k2", 60, 61, 384, 8, {23.62, 27.23, 22.31}, 23040, 531.6, 11340},
    {"minimax-m2", 62, 62, 256, 8, {7.59, 8.75, 7.17}, 15872, 117.7, 3766},
    {"llama-4-scout", 48, 48, 16, 1, {67.50, 77.81, 63.75}, 768, 50.6, 3240},
};

/// Exact bytes of models whose rows do not divide by 256, and the cycle in MiB; 0 where the table has none.
struct fallback {
  char const* name;
  u64 bytes;
  u64 more_bits;
  u64 cycle_mib;
};
constexpr fallback fallbacks[] = {
    {"deepseek-v2-lite", 5'226'496, 6'307'840, 778},   {"qwen1.5-moe-a2.7b", 5'226'496, 6'307'840, 478},
    {"qwen3.8-flash-next", 2'969'600, 3'584'000, 1359}, {"gemma-4-26b-a4b", 3'593'216, 4'336'640, 822},
    {"glm-4.5-air", 10'452'992, 12'615'680, 3589},      {"gpt-oss-20b", 17'107'200, 20'217'600, 0},
    {"gpt-oss-120b", 17'107'200, 20'217'600, 0},
};

constexpr double mib = 1048576.0;

fallback const* fallback_of(char const* name) {
  for (fallback const& each : fallbacks) {
    if (std::string(each.name) == name) {
      return &each;
    }
  }
  return nullptr;
}

/// Whether an exact amount is the printed one, whose last decimal may have been cut off instead of rounded.
bool prints_as(double exact, double printed, double last_digit) {
  return std::abs(exact - printed) <= 0.51 * last_digit;
}

u64 cycle_bytes(geometry const& g) {
  u64 sum = 0;
  for (layer_geometry const& layer : g.layers()) {
    sum += layer.k * layer.expert_bytes();
  }
  return sum;
}

u64 n_pairs(geometry const& g) {
  u64 sum = 0;
  for (layer_geometry const& layer : g.layers()) {
    sum += layer.n_experts;
  }
  return sum;
}

}  // namespace

TEST_CASE("presets agree with the table of models") {
  CHECK(std::size(presets::models) == std::size(table));
  for (published const& p : table) {
    INFO(p.name);
    presets::model const* const m = presets::lookup(p.name);
    REQUIRE(m != nullptr);
    CHECK(m->moe_layers() == p.moe_layers);
    CHECK(m->layers == p.layers);
    CHECK(m->n_experts == p.n_experts);
    CHECK(m->k == p.k);
    u64 weights = 0;
    for (u32 i = 0; i < m->n_tensors; ++i) {
      weights += m->tensors[i].weights();
      CHECK(std::string(m->tensors[i].name) == (i == 0 ? "gate" : i == 1 ? "up" : "down"));
    }
    double const n = static_cast<double>(weights);
    CHECK(prints_as(n * 144 / 256 / mib, p.expert_mib[0], 0.01));
    CHECK(prints_as(n * (144 * 2 + 210) / 3 / 256 / mib, p.expert_mib[1], 0.01));
    CHECK(prints_as(n * 17 / 32 / mib, p.expert_mib[2], 0.01));
    CHECK(prints_as(n * 144 / 256 * static_cast<double>(p.pairs) / mib / 1024, p.all_gib, 0.1));
    CHECK(prints_as(n * 144 / 256 * p.moe_layers * p.k / mib, static_cast<double>(p.cycle_mib), 1));

    geometry const g = presets::make(*m, presets::encoding::q4_k);
    CHECK(g.cycle() == u64{p.moe_layers} * p.k);
    CHECK(n_pairs(g) == p.pairs);
    CHECK(g.groups().size() == 1);
    CHECK(g.layers().front().layer.value == p.layers - p.moe_layers);
    CHECK(g.layers().back().layer.value == p.layers - 1);
    CHECK(g.layers().front().bank_bytes.size() == m->n_tensors);
    if (fallback_of(p.name) == nullptr) {
      CHECK(prints_as(static_cast<double>(g.total_bytes()) / mib / 1024, p.all_gib, 0.1));
      CHECK(prints_as(static_cast<double>(cycle_bytes(g)) / mib, static_cast<double>(p.cycle_mib), 1));
    }
    geometry const small = presets::make(*m, presets::encoding::mxfp4);
    CHECK(prints_as(static_cast<double>(small.layers()[0].expert_bytes()) / mib, p.expert_mib[2], 0.01));
  }
}

TEST_CASE("rows that no block divides get the bytes of real files") {
  for (fallback const& f : fallbacks) {
    INFO(f.name);
    geometry const plain = presets::find(f.name, presets::encoding::q4_k);
    CHECK(plain.layers().front().expert_bytes() == f.bytes);
    if (f.cycle_mib != 0) {
      CHECK(prints_as(static_cast<double>(cycle_bytes(plain)) / mib, static_cast<double>(f.cycle_mib), 1));
    }
    geometry const mixed = presets::find(f.name, presets::encoding::q4_k_m);
    for (layer_geometry const& layer : mixed.layers()) {
      bool const more = presets::has_more_bits(layer.layer.value, presets::lookup(f.name)->layers);
      CHECK(layer.expert_bytes() == (more ? f.more_bits : f.bytes));
    }
  }
}

TEST_CASE("a Q4_K_M file has two expert sizes, in the numbers of layers that traces tell") {
  geometry const qwen = presets::find("qwen3-30b-a3b");
  REQUIRE(qwen.groups().size() == 2);
  CHECK(qwen.groups()[0].expert_bytes() == 3'059'712);
  CHECK(qwen.groups()[0].layers.size() == 24);
  CHECK(qwen.groups()[1].expert_bytes() == 2'654'208);
  CHECK(qwen.groups()[1].layers.size() == 24);
  geometry const gemma = presets::find("gemma-4-26b-a4b");
  REQUIRE(gemma.groups().size() == 2);
  CHECK(gemma.groups()[0].expert_bytes() == 4'336'640);
  CHECK(gemma.groups()[0].layers.size() == 14);
  CHECK(gemma.groups()[1].expert_bytes() == 3'593'216);
  CHECK(gemma.groups()[1].layers.size() == 16);
  geometry const oss = presets::find("gpt-oss-120b");
  REQUIRE(oss.groups().size() == 1);
  CHECK(oss.groups()[0].expert_bytes() == 13'219'200);
  CHECK(oss.groups()[0].layers.size() == 36);
}

TEST_CASE("every usual geometry has its banks, and names are known once") {
  for (presets::model const& m : presets::models) {
    INFO(m.name);
    CHECK(presets::lookup(m.name) == &m);
    geometry const g = presets::find(m.name);
    CHECK(g == presets::make(m, m.usual));
    CHECK(g.groups().size() == (m.usual == presets::encoding::mxfp4 ? 1 : 2));
    for (layer_geometry const& layer : g.layers()) {
      u64 sum = 0;
      for (u32 i = 0; i < m.n_tensors; ++i) {
        CHECK(layer.bank_bytes[i] == presets::bank_bytes(m, i, layer.layer.value, m.usual));
        sum += layer.bank_bytes[i];
      }
      CHECK(layer.expert_bytes() == sum);
    }
  }
}

TEST_CASE("an unknown model is refused with the names of all") {
  std::string what;
  try {
    (void)presets::find("qwen3-30b");
  } catch (config_error const& e) {
    what = e.what();
  }
  CHECK(what.starts_with("presets: there is no model 'qwen3-30b'; there are mixtral-8x7b, "));
  for (presets::model const& m : presets::models) {
    CHECK(what.find(m.name) != std::string::npos);
  }
  CHECK(what.ends_with(", llama-4-scout"));
  CHECK(presets::lookup("") == nullptr);
}

}  // namespace warmset
