// SPDX-License-Identifier: Apache-2.0

// Empty where the libraries of the tool are not there.
#if defined(WARMSET_HAS_FMT) && defined(WARMSET_HAS_JSON) && defined(WARMSET_HAS_ZSTD)

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <decode/gguf_builder.hpp>
#include <kit/naive_class_lru.hpp>

#include "../../examples/common/gguf.hpp"
#include "../../examples/common/file.hpp"
#include "../../examples/replay/tune.hpp"
#include "../../examples/common/usage_error.hpp"

namespace warmset_tools {
namespace {

using warmset::phase;
using Catch::Matchers::ContainsSubstring;

std::string const data = std::string(WARMSET_SOURCE_DIR) + "/examples/data/";

warmset::trace::recording bundled() {
  warmset::trace::recording const all =
      load_trace(data + "tinymoe-8x32.wst.zst").recording;
  return warmset::trace::select(all, warmset::trace::selection::parse("0-5"));
}

/// A folder that is gone afterwards.
struct temporary_folder {
  temporary_folder() {
    std::string made = (std::filesystem::temp_directory_path() / "warmset-tune-XXXXXX").string();
    path = ::mkdtemp(made.data());
  }
  temporary_folder(temporary_folder const&) = delete;
  ~temporary_folder() { std::filesystem::remove_all(path); }
  std::string write(std::string const& name, std::string const& bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return (path / name).string();
  }
  std::filesystem::path path;
};

/// What the naive class_lru hits in one pool of all layers, where wide batches go past it.
struct naive_counts {
  u64 hits[2] = {};
  u64 lookups[2] = {};
  u64 bypassed = 0;
};

naive_counts play_naively(warmset::trace::recording const& r, u32 slots) {
  naive_counts found;
  u32 const experts = r.geometry().layers().front().n_experts;
  u32 const n_layers = static_cast<u32>(r.geometry().layers().size());
  warmset::kit::naive_class_lru pool(experts, slots, n_layers, 1);
  warmset::trace::detail::row_marks marks(experts);
  warmset::trace::for_each_event(r, [&](warmset::trace::event const& e) {
    std::vector<u32> ids;
    warmset::trace::append_distinct(e.ids, marks, ids);
    std::size_t const p = static_cast<std::size_t>(e.phase);
    found.lookups[p] += ids.size();
    if (e.n_tokens > 32) {
      ++found.bypassed;
      for (u32 s = 0; s < slots; ++s) {
        for (u32 id : ids) {
          found.hits[p] += pool.owner(s) == e.row * experts + id;
        }
      }
      return;
    }
    for (u32 slot : pool.step(ids, e.row)) {
      found.hits[p] += slot != warmset::no_slot.value;
    }
  });
  return found;
}

}  // namespace

TEST_CASE("tune: the model of llama.cpp's cache hits what a naive class_lru hits") {
  warmset::trace::recording const by_token = bundled();
  time_model const time{16, 5, 100, 0};
  for (u32 width : {1u, 8u, 40u}) {
    warmset::trace::recording const r = warmset::trace::rebatch(by_token, phase::prefill, width);
    upstream_cache const u = play_upstream(r, 2, 0, time, 0);
    CHECK(u.slots == (2u << 20) / 26'112 - 1);
    naive_counts const wanted = play_naively(r, static_cast<u32>(u.slots));
    for (std::size_t p = 0; p < 2; ++p) {
      INFO(width << " tokens, phase " << p);
      CHECK(u.hits[p] == wanted.hits[p]);
      CHECK(u.lookups[p] == wanted.lookups[p]);
      CHECK(u.bytes[p] == (wanted.lookups[p] - wanted.hits[p]) * 26'112);
    }
    CHECK(u.bypassed == wanted.bypassed);
    CHECK((u.bypassed != 0) == (width == 40));
    u64 const misses = wanted.lookups[1] - wanted.hits[1];
    double const banks = static_cast<double>(r.geometry().layers().front().bank_bytes.size());
    CHECK(u.stall_ms == Catch::Approx(static_cast<double>(misses) * (26'112 / 16e6 + banks * 5e-3)));
  }
}

TEST_CASE("tune: a share of the misses on the host takes them off the link") {
  warmset::trace::recording const r = bundled();
  time_model const time{1, 0, 100, 0};
  upstream_cache const none = play_upstream(r, 2, 0, time, 1);
  upstream_cache const half = play_upstream(r, 2, 0.5, time, 1);
  CHECK(half.lookups == none.lookups);
  CHECK(half.bytes[1] < none.bytes[1]);
  CHECK(half.stall_ms < none.stall_ms);
  CHECK(play_split(r, 2, 0.5, time, 1).hits[1] > half.hits[1]);
  // a host that is slow makes it worse than the link alone
  CHECK(play_upstream(r, 2, 0.5, time, 0.01).stall_ms > none.stall_ms);
}

TEST_CASE("tune: the layers of a model file") {
  model_file const m = read_model_file(data + "tinymoe-8x32.gguf");
  CHECK(m.name == "tinymoe-8x32");
  REQUIRE(m.geometry.layers().size() == 8);
  for (u32 i = 0; i < 8; ++i) {
    warmset::layer_geometry const& l = m.geometry.layers()[i];
    CHECK(l.layer.value == i);
    CHECK(l.n_experts == 32);
    CHECK(l.k == 4);
    CHECK(l.bank_bytes == std::vector<u64>{8'704, 8'704, 8'704});
  }
  temporary_folder const folder;
  auto const refusal = [&](std::string const& bytes) -> std::string {
    std::string const path = folder.write("m.gguf", bytes);
    try {
      (void)read_model_file(path);
    } catch (gguf::format_error const& e) {
      CHECK_THAT(e.what(), ContainsSubstring(path + ": "));
      return e.what();
    }
    return "";
  };
  using decode_test::small_model;
  CHECK(refusal(small_model().bytes()).empty());
  CHECK_THAT(refusal("text"), ContainsSubstring("not a GGUF file"));
  CHECK_THAT(refusal(small_model("", true).bytes()),
             ContainsSubstring("a model without experts (architecture qwen3)"));
  CHECK_THAT(refusal(small_model("blk.1.ffn_up_exps.weight").bytes()),
             ContainsSubstring("tensor 'blk.1.ffn_up_exps.weight' is missing"));
  CHECK_THAT(refusal(small_model("blk.1.ffn_gate_exps.weight").bytes()),
             ContainsSubstring("tensor 'blk.1.ffn_gate_exps.weight' is missing"));
  CHECK_THAT(refusal(small_model().number("split.count", 3).bytes()),
             ContainsSubstring("one part of a split model"));
  CHECK_THAT(refusal(small_model().number("qwen3moe.expert_count", 5).bytes()), ContainsSubstring("twice"));
  decode_test::gguf_builder bare;
  bare.text("general.architecture", "x").number("x.expert_count", 4).number("x.expert_used_count", 2);
  CHECK_THAT(refusal(bare.bytes()), ContainsSubstring("no tensor of experts"));
  bare.tensor("blk.0.ffn_down_exps.weight", {32, 32, 3}, 0, std::string(32 * 32 * 3 * 4, 'x'));
  CHECK_THAT(refusal(bare.bytes()), ContainsSubstring("'blk.0.ffn_down_exps.weight' does not hold 4 experts"));
}

TEST_CASE("tune: a trace of another model is refused, of another quantisation is not") {
  warmset::trace::recording const r = bundled();
  model_file const m = read_model_file(data + "tinymoe-8x32.gguf");
  std::vector<std::string> warnings;
  warmset::trace::recording const same = with_model(r, "T", m.geometry, "M", warnings);
  CHECK(same.geometry().fingerprint() == m.geometry.fingerprint());
  CHECK(same.n_events() == r.n_events());
  CHECK(warnings.empty());
  CHECK_THROWS_WITH(with_model(r, "T", warmset::geometry::uniform(7, 32, 4, 1), "M", warnings),
                    ContainsSubstring("T is no trace of M: 8 layers with experts, and the model has 7"));
  CHECK_THROWS_WITH(with_model(r, "T", warmset::geometry::uniform(8, 32, 2, 1), "M", warnings),
                    ContainsSubstring("layer 0 with 4 of 32 experts a token, and the model's is layer 0 with 2 of 32"));
  (void)with_model(r, "T", warmset::geometry::uniform(8, 32, 4, 1), "M", warnings);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], ContainsSubstring("quantisation"));
  CHECK_THROWS_AS(play_upstream(warmset::trace::recording(r), 0, 0, {}, 0), usage_error);
}

}  // namespace warmset_tools

#endif
