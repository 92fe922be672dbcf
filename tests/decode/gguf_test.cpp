// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include <catch2/catch_test_macros.hpp>

#include <unistd.h>

#include "common/gguf.hpp"
#include "decode/generate.hpp"
#include "decode/gguf_builder.hpp"
#include "decode/model.hpp"
#include "support/dice.hpp"
#include "support/rounds.hpp"

using namespace decode_test;

namespace {

std::span<std::byte const> view(std::string const& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

/// The message of the format_error that reading a file throws, or "".
std::string error_of(std::string const& bytes) {
  try {
    gguf::file const f(view(bytes), "F");
  } catch (gguf::format_error const& e) {
    return e.what();
  }
  return "";
}

template <class F>
std::string what_of(F&& f) {
  try {
    f();
  } catch (gguf::format_error const& e) {
    return e.what();
  }
  return "";
}

/// Reads everything that this program reads of a file, and runs a token where it is a model.
void read_all(std::string const& bytes) {
  gguf::file const f(view(bytes), "F");
  warmset_decode::model const m(f);
  warmset_decode::tokenizer const words(f);
  (void)words.decode(words.encode("the"));
  if (m.numbers.layers <= 2 && m.numbers.hidden <= 64) {
    auto const on = make_cpu_device(m, {});
    warmset_decode::follow(*on, words.encode("a"), 0);
  }
}

bool mentions(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a file is read as it was written") {
  std::string const bytes = small_model().bytes();
  gguf::file const f(view(bytes), "F");
  CHECK(f.text("general.name") == "made");
  CHECK(f.count("qwen3moe.expert_count") == 4);
  CHECK(f.number("qwen3moe.rope.freq_base") == 10000);
  CHECK(f.number("qwen3moe.block_count") == 2);
  CHECK(f.texts("tokenizer.ggml.tokens").size() == 258);
  CHECK(f.tensors().size() == 2 + 2 * 12);

  gguf::tensor const* const t = f.find("blk.1.ffn_gate_exps.weight");
  REQUIRE(t != nullptr);
  CHECK(t->shape == std::vector<std::uint64_t>{32, 32, 4});
  CHECK(t->stride == std::vector<std::uint64_t>{34, 34, 34 * 32});
  CHECK(t->slice_bytes() == 32 * 34);
  CHECK(t->bytes.size() == 4 * 32 * 34);
  CHECK(t->slice(3).data() == t->bytes.data() + 3 * 32 * 34);
  std::vector<float> const w = f.floats(*t);
  REQUIRE(w.size() == 4 * 32 * 32);
  for (std::size_t i = 0; i < w.size(); ++i) {
    float const q =
        static_cast<float>(static_cast<signed char>(t->bytes[i / 32 * 34 + 2 + i % 32]));
    REQUIRE(w[i] == q / 1024);
  }
  CHECK(f.find("blk.2.ffn_gate_exps.weight") == nullptr);
}

TEST_CASE("half-precision numbers become single-precision ones exactly") {
  CHECK(gguf::to_float(0x3C00) == 1.0f);
  CHECK(gguf::to_float(0xC000) == -2.0f);
  CHECK(gguf::to_float(0x0001) == 0x1p-24f);
  CHECK(gguf::to_float(0x03FF) == 0x1p-14f - 0x1p-24f);
  CHECK(gguf::to_float(0x7BFF) == 65504.0f);
  CHECK(gguf::to_float(0x7C00) > 3e38f);
  CHECK(gguf::to_float(0x7C01) != gguf::to_float(0x7C01));
  CHECK(gguf::to_float(0x8000) == 0.0f);
}

TEST_CASE("every malformed file is one line that names the file and what is wrong") {
  auto const with = [](auto&& change) {
    gguf_builder b;
    b.number("a", 1);
    change(b);
    return b.bytes();
  };
  std::string const four(16, 'x');
  struct malformed {
    char const* name;
    std::string bytes;
    char const* says;
  };
  malformed const cases[] = {
      {"nothing", "", "not a GGUF file"},
      {"another magic", "GGML" + small_model().bytes().substr(4), "not a GGUF file"},
      {"no version", "GGUF\3", "truncated"},
      {"another version", with([](auto& b) { b.version = 2; }), "version 2"},
      {"big endian", with([](auto& b) { b.version = 0x03000000; }), "version 50331648"},
      {"too many tensors",
       bytes_writer{"GGUF"}.put(3u).put(~std::uint64_t{0}).put<std::uint64_t>(0).bytes,
       "18446744073709551615 tensors do not fit"},
      {"too many keys",
       bytes_writer{"GGUF"}.put(3u).put<std::uint64_t>(0).put(~std::uint64_t{0}).bytes,
       "18446744073709551615 metadata keys do not fit"},
      {"a key twice", with([](auto& b) { b.number("a", 2); }), "'a' occurs twice"},
      {"an unknown value type", with([](auto& b) { b.head("b", 13).put(0u).put(0u); }),
       "unknown type 13"},
      {"an array of arrays", with([](auto& b) {
         b.head("b", 9).template put<std::uint32_t>(9).put(std::uint64_t{1}).put(0u);
       }),
       "an array of type 9"},
      {"an array that is too long", with([](auto& b) {
         b.head("b", 9).template put<std::uint32_t>(10).put(~std::uint64_t{0} / 4);
       }),
       "do not fit"},
      {"a text that is too long", with([](auto& b) { b.head("b", 8).put(~std::uint64_t{0}); }),
       "truncated"},
      {"an alignment of 12", with([](auto& b) { b.number("general.alignment", 12); }),
       "alignment of 12"},
      {"an alignment of 0", with([](auto& b) { b.number("general.alignment", 0); }),
       "alignment of 0"},
      {"an alignment that is a text", with([](auto& b) { b.text("general.alignment", "x"); }),
       "not a whole number"},
      {"no dimension", with([&](auto& b) { b.tensor("t", {}, 0, four); }), "0 dimensions"},
      {"five dimensions", with([&](auto& b) {
         b.tensor("t", {1, 1, 1, 1, 1}, 0, four);
       }),
       "5 dimensions"},
      {"a dimension of 0", with([&](auto& b) {
         b.tensor("t", {4, 0}, 0, four);
       }),
       "is empty"},
      {"a shape that overflows", with([&](auto& b) {
         b.tensor("t", {1ull << 40, 1ull << 40}, 0, four);
       }),
       "larger than the file"},
      {"a type that nobody knows", with([&](auto& b) { b.tensor("t", {4}, 99, four); }),
       "unknown type 99"},
      {"half a block", with([&](auto& b) { b.tensor("t", {16}, 8, four); }), "blocks of 32"},
      {"a tensor twice",
       with([&](auto& b) { b.tensor("t", {4}, 0, four).tensor("t", {4}, 0, four); }),
       "'t' occurs twice"},
      {"an offset that is not aligned", with([&](auto& b) {
         b.shift = 4;
         b.tensor("t", {4}, 0, four + four);
       }),
       "not a multiple of 32"},
      {"an offset outside", with([&](auto& b) {
         b.shift = 1u << 20;
         b.tensor("t", {4}, 0, four);
       }),
       "outside of the file"},
      {"an offset that overflows", with([&](auto& b) {
         b.shift = ~std::uint64_t{31};
         b.tensor("t", {4}, 0, four);
       }),
       "outside of the file"},
      {"data that is cut off", with([&](auto& b) { b.tensor("t", {8}, 0, four); }),
       "outside of the file"},
      {"tensors that overlap", with([&](auto& b) {
         b.tensor("t", {16}, 0, four + four + four + four);
         b.shift = ~std::uint64_t{31};
         b.tensor("u", {4}, 0, four);
       }),
       "overlap"},
  };
  for (malformed const& c : cases) {
    INFO(c.name);
    std::string const what = error_of(c.bytes);
    INFO(what);
    CHECK(what.starts_with("F: "));
    CHECK(mentions(what, c.says));
    CHECK(!mentions(what, "\n"));
  }
}

TEST_CASE("what a file lacks, or has as something else, is said by name") {
  std::string const bytes = small_model().bytes();
  gguf::file const f(view(bytes), "F");
  CHECK(mentions(what_of([&] { (void)f.count("no.such"); }), "'no.such' is missing"));
  CHECK(mentions(what_of([&] { (void)f.count("general.name"); }),
                 "'general.name' is not a whole number"));
  CHECK(mentions(what_of([&] { (void)f.text("qwen3moe.block_count"); }), "is not a string"));
  CHECK(mentions(what_of([&] { (void)f.number("general.name"); }), "is not a number"));
  CHECK(mentions(what_of([&] { (void)f.texts("general.name"); }), "is not an array of strings"));
  CHECK(mentions(what_of([&] { (void)f.integers("tokenizer.ggml.tokens"); }),
                 "is not an array of whole numbers"));
  std::uint64_t const shape[] = {32, 4};
  CHECK(mentions(what_of([&] { (void)f.get("no.weight", shape); }), "'no.weight' is missing"));
  CHECK(mentions(what_of([&] { (void)f.get("output_norm.weight", shape); }),
                 "has the shape 32 instead of 32 x 4"));
}

TEST_CASE("types that are not computed with are listed, and refused by name") {
  gguf_builder b;
  b.tensor("t", {256}, 12, std::string(144, '\1'));
  std::string const bytes = b.bytes();
  gguf::file const f(view(bytes), "F");
  REQUIRE(f.tensors().size() == 1);
  CHECK(std::string(name_of(f.tensors()[0].type)) == "Q4_K");
  CHECK(f.tensors()[0].bytes.size() == 144);
  std::uint64_t const shape[] = {256};
  CHECK(mentions(what_of([&] { (void)f.get("t", shape); }), "'t' is Q4_K"));
  CHECK(mentions(what_of([&] { (void)f.floats(f.tensors()[0]); }), "'t' is Q4_K"));
}

TEST_CASE("what is no qwen3moe model is refused in one line") {
  auto const model_error = [](gguf_builder const& b) {
    std::string const bytes = b.bytes();
    return what_of([&] {
      gguf::file const f(view(bytes), "F");
      warmset_decode::model const m(f);
    });
  };
  CHECK(mentions(model_error(gguf_builder().number("x", 1)), "'general.architecture' is missing"));
  CHECK(mentions(model_error(gguf_builder().text("general.architecture", "llama")),
                 "'llama', which has no experts"));
  CHECK(mentions(
      model_error(
          gguf_builder().text("general.architecture", "mixed").number("mixed.expert_count", 8)),
      "'mixed'"));
  CHECK(mentions(model_error(gguf_builder().text("general.architecture", "qwen3moe")),
                 "'qwen3moe.block_count' is missing"));
  CHECK(mentions(model_error(gguf_builder()
                                 .text("general.architecture", "qwen3moe")
                                 .number("qwen3moe.block_count", 0)),
                 "is 0, not between 1 and"));
}

TEST_CASE("a file that is cut off anywhere is an error or a smaller sound file, never a crash") {
  std::string const whole = small_model().bytes();
  read_all(whole);
  for (std::size_t n = 0; n < whole.size(); n += n < 9000 ? 1 : 997) {
    std::string const what = what_of([&] { read_all(whole.substr(0, n)); });
    INFO(n);
    REQUIRE(what.starts_with("F: "));
  }
}

TEST_CASE("a file with wrong bytes is an error or another sound file, never a crash") {
  std::string const whole = small_model().bytes();
  std::size_t const header = whole.size() < 12000 ? whole.size() : 12000;
  warmset_test::dice dice(7);
  for (unsigned round = 0; round < rounds(4000); ++round) {
    std::string bytes = whole;
    for (warmset::u32 n = 1 + dice.below(3); n != 0; --n) {
      char const odd[] = {0, 1, -1, 127, -128, static_cast<char>(dice.below(256))};
      bytes[dice.below(static_cast<warmset::u32>(header))] = odd[dice.below(6)];
    }
    try {
      read_all(bytes);
    } catch (gguf::format_error const& e) {
      REQUIRE(std::string(e.what()).find('\n') == std::string::npos);
    } catch (warmset::config_error const&) {
    } catch (std::bad_alloc const&) {
    }
  }
}

TEST_CASE("paths that cannot be mapped are refused with the reason") {
  namespace fs = std::filesystem;
  fs::path const folder =
      fs::temp_directory_path() / ("warmset-gguf-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  auto const at = [](fs::path const& p) {
    return what_of([&] { gguf::file const f(p.string()); });
  };
  CHECK(mentions(at(folder), "a directory"));
  CHECK(mentions(at(folder / "none"), "No such file"));
  std::ofstream(folder / "empty").flush();
  CHECK(mentions(at(folder / "empty"), "empty"));
  CHECK(mentions(at("/dev/null"), "not a regular file"));
  std::ofstream(folder / "other") << "something else";
  CHECK(mentions(at(folder / "other"), "not a GGUF file"));
  std::ofstream(folder / "whole", std::ios::binary) << small_model().bytes();
  CHECK(gguf::file((folder / "whole").string()).tensors().size() == 26);
  if (::geteuid() != 0) {
    fs::permissions(folder / "whole", fs::perms::none);
    CHECK(mentions(at(folder / "whole"), "Permission denied"));
  }
  fs::remove_all(folder);
}
