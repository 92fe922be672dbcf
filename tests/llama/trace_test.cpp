// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <warmset/trace/write_warmset.hpp>

#include "decode/generate.hpp"
#include "decode/instruments.hpp"

using namespace llama_test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// The experts of a token in a layer, in ascending order, by sequence, position and layer.
using routes = std::map<std::tuple<u32, u32, u32>, std::vector<u16>>;

routes routes_of(warmset::trace::recording const& r) {
  routes found;
  warmset::trace::for_each_event(r, [&](warmset::trace::event const& e) {
    for (u32 t = 0; t < e.n_tokens; ++t) {
      std::vector<u16> ids(e.ids.begin() + t * e.k, e.ids.begin() + (t + 1) * e.k);
      std::sort(ids.begin(), ids.end());
      bool const is_new = found.emplace(std::tuple(e.sequence, e.position + t, e.layer.value), ids).second;
      CHECK(is_new);
    }
  });
  return found;
}

/// Share of the ids of `got` that the reference has at the same place; every place of `got` must be in it.
double agreement(routes const& got, routes const& reference) {
  u64 same = 0;
  u64 all = 0;
  for (auto const& [place, ids] : got) {
    auto const at = reference.find(place);
    REQUIRE(at != reference.end());
    std::vector<u16> both;
    std::set_intersection(ids.begin(), ids.end(), at->second.begin(), at->second.end(),
                          std::back_inserter(both));
    same += both.size();
    all += ids.size();
  }
  return static_cast<double>(same) / static_cast<double>(all);
}

warmset::trace::recording read_trace(std::string const& path) {
  return warmset::trace::read(warmset_tools::read_file(path));
}

/// The layers of the file itself, without llama.cpp.
warmset::geometry geometry_of_file(std::string const& path) {
  gguf::file const file(path);
  return decode_test::model(file).geometry();
}

/// What every trace of sequences with one prompt each must be, beyond what a recording checks.
void check_trace(warmset::trace::recording const& r, std::vector<sequence> const& all,
                 text_options const& o, warmset::geometry const& model) {
  CHECK(r.geometry().fingerprint() == model.fingerprint());
  CHECK_FALSE(r.expert_bytes_assumed());
  warmset::trace::recording const again =
      warmset::trace::read(warmset::trace::write_warmset(r));
  CHECK(again.n_events() == r.n_events());
  u32 const n_layers = static_cast<u32>(model.layers().size());
  routes const found = routes_of(r);
  std::size_t expected = 0;
  for (u32 s = 0; s < all.size(); ++s) {
    CHECK(r.label(s) == all[s].label);
    for (u32 p = 0; p < all[s].tokens.size(); ++p) {
      bool const output = o.all_outputs || p + 1 >= all[s].n_prompt;
      for (u32 row = 0; row < n_layers; ++row) {
        // the last layer computes what is read, and no other
        bool const wanted = output || row + 1 < n_layers;
        CHECK(found.count({s, p, model.layers()[row].layer.value}) == (wanted ? 1u : 0u));
        expected += wanted;
      }
    }
  }
  CHECK(found.size() == expected);
  warmset::trace::for_each_event(r, [&](warmset::trace::event const& e) {
    CHECK(e.n_tokens <= o.batch);
    for (u32 t = 0; t < e.n_tokens; ++t) {
      CHECK((e.phase == warmset::phase::prefill) == (e.position + t < all[e.sequence].n_prompt));
      CHECK(e.tokens[t] == all[e.sequence].tokens[e.position + t]);
    }
  });
}

struct tinymoe {
  char const* name;
  bool bundled;
};

}  // namespace

TEST_CASE("the recorded experts are those of the float reference engine") {
  std::string const path = decode_test::small_model_file();
  model const m(path);
  text_options o = one_text();
  o.texts = {fixed_text()};
  o.batch = 32;
  o.all_outputs = true;
  std::vector<sequence> const all = read_sequences(o, m);
  warmset::trace::recording const got = record(m, all, o);
  check_trace(got, all, o, geometry_of_file(path));

  decode_test::loaded const reference(path);
  CHECK(reference.words.encode("the system call") == m.tokenize("the system call"));
  decode_test::instruments tools(reference.model, {}, 0, true, false);
  std::unique_ptr<decode_test::device> const on =
      decode_test::make_cpu_device(reference.model, {}, &tools);
  tools.start_sequence("reference");
  decode_test::follow(*on, all[0].tokens, all[0].n_prompt);
  double const share =
      agreement(routes_of(got), routes_of(warmset::trace::recording(tools.take_trace())));
  tell("tinymoe-8x32 on " + std::to_string(all[0].tokens.size()) + " tokens of the licence: " +
       std::to_string(100 * share) + " % of the expert ids are the float engine's");
  CHECK(share >= 0.99);
}

TEST_CASE("the recorded experts are those of the reference traces") {
  for (char const* name : {"tinymoe-8x32", "tinymoe-12x64"}) {
    std::optional<std::string> const file = decode_test::model_file(std::string(name) + ".gguf");
    std::optional<std::string> const tokens = reference_file(std::string(name) + ".tokens.jsonl");
    std::optional<std::string> const trace = reference_file(std::string(name) + ".jsonl.zst");
    if (!file || !tokens || !trace) {
      SKIP("the models and their reference traces are not beside the repository");
    }
    model const m(*file);
    text_options o = one_text();
    o.tokens_path = *tokens;
    o.lines = "0-2";
    std::vector<sequence> const all = read_sequences(o, m);
    warmset::trace::recording const got = record(m, all, o);
    check_trace(got, all, o, geometry_of_file(*file));
    double const share = agreement(routes_of(got), routes_of(read_trace(*trace)));
    tell(std::string(name) + ", " + std::to_string(got.ids().size()) + " ids of " + std::to_string(all.size()) +
         " documents: " + std::to_string(100 * share) + " % are those of the reference trace");
    CHECK(share >= 0.99);
  }
}

TEST_CASE("a recorded run computes what an unrecorded one does, bit by bit") {
  model const m(decode_test::small_model_file());
  text_options o = one_text();
  o.texts = {fixed_text()};
  o.length = 96;
  o.prompt_tokens = 40;
  o.batch = 16;
  o.all_outputs = true;
  std::vector<sequence> const all = read_sequences(o, m);
  std::vector<float> recorded;
  warmset::trace::recording const trace = record(m, all, o, true, &recorded);
  std::vector<float> plain;
  context c(m, {longest(all), o.batch, o.threads});
  (void)compute(m, c, all, o, {{}, [&](pass const& p, context const& from) {
                                 for (u32 i = 0; i < p.n_outputs(); ++i) {
                                   plain.insert(plain.end(), from.logits(i).begin(),
                                                from.logits(i).end());
                                 }
                               }});
  REQUIRE(plain.size() == std::size_t{96} * m.vocabulary());
  REQUIRE(recorded.size() == plain.size());
  CHECK(std::memcmp(recorded.data(), plain.data(), plain.size() * sizeof(float)) == 0);

  SECTION("the weights are one share for each id, the first the largest") {
    REQUIRE(trace.weights().size() == trace.ids().size());
    warmset::trace::for_each_event(trace, [&](warmset::trace::event const& e) {
      for (u32 t = 0; t < e.n_tokens; ++t) {
        float sum = 0;
        for (u32 i = t * e.k; i < (t + 1) * e.k; ++i) {
          CHECK(e.weights[i] > 0);
          CHECK((i == t * e.k || e.weights[i] <= e.weights[i - 1]));
          sum += e.weights[i];
        }
        CHECK(sum == Catch::Approx(1).margin(1e-5));
      }
    });
  }
}

TEST_CASE("a prompt in batches, several prompts, generated tokens") {
  std::string const path = decode_test::small_model_file();
  model const m(path);
  text_options o = one_text();
  o.prompts = {"The system call returns the number of bytes that it has read.", "A"};
  o.generate = 5;
  o.batch = 4;
  std::vector<sequence> const all = read_sequences(o, m);
  REQUIRE(all.size() == 2);
  REQUIRE(all[0].n_prompt > 8);
  warmset::trace::recording const r = record(m, all, o);
  u32 const last = r.geometry().layers().back().layer.value;
  std::vector<std::vector<u32>> widths(2);
  std::vector<u32> last_layer(2);
  u32 decoded = 0;
  warmset::trace::for_each_event(r, [&](warmset::trace::event const& e) {
    if (e.phase == warmset::phase::prefill && e.row == 0) {
      widths[e.sequence].push_back(e.n_tokens);
    }
    last_layer[e.sequence] += e.phase == warmset::phase::prefill && e.layer.value == last;
    decoded += e.phase == warmset::phase::decode && e.row == 0;
  });
  u32 const n = all[0].n_prompt;
  std::vector<u32> expected(n / 4, 4);
  if (n % 4 != 0) {
    expected.push_back(n % 4);
  }
  CHECK(widths[0] == expected);
  CHECK(widths[1] == std::vector<u32>{all[1].n_prompt});
  CHECK(last_layer == std::vector<u32>{1, 1});  // the one token whose output is read
  CHECK(decoded > 0);
  CHECK(decoded <= 10);
}

TEST_CASE("layers are learned as the file has them") {
  model const m(decode_test::small_model_file());
  std::vector<expert_layer> const layers = learn_layers(m, 1);
  REQUIRE(layers.size() == 8);
  for (u32 i = 0; i < layers.size(); ++i) {
    CHECK(layers[i].layer == i);
    CHECK(layers[i].n_experts == 32);
    CHECK(layers[i].k == 4);
    CHECK(layers[i].obstacle.empty());
    CHECK_FALSE(layers[i].gate.empty());
    REQUIRE(layers[i].banks.size() == 3);
    CHECK(layers[i].geometry().expert_bytes() == 26'112);
  }
  CHECK(geometry_of(layers).fingerprint() ==
        geometry_of_file(decode_test::small_model_file()).fingerprint());
}

TEST_CASE("wrong models are one line that says why") {
  temporary_folder const folder;
  auto const refused = [](std::string const& path) {
    try {
      model const m(path);
      (void)learn_layers(m, 1);
    } catch (engine_error const& e) {
      CHECK_THAT(e.what(), ContainsSubstring(path));
      CHECK(std::string(e.what()).find('\n') == std::string::npos);
      return std::string(e.what());
    }
    FAIL("accepted: " << path);
    return std::string();
  };
  std::string const sound = decode_test::small_model().bytes();
  CHECK_NOTHROW(learn_layers(model(folder.write("sound.gguf", sound)), 1));
  CHECK_THAT(refused((folder.path / "missing.gguf").string()), ContainsSubstring("No such file"));
  CHECK_THAT(refused(folder.path.string()), ContainsSubstring("a directory"));
  CHECK_THAT(refused(folder.write("text.gguf", "a text")), ContainsSubstring("not a GGUF file"));
  CHECK_THAT(refused(folder.write("empty.gguf", "")), ContainsSubstring("not a GGUF file"));
  CHECK_THAT(refused(folder.write("cut.gguf", sound.substr(0, sound.size() / 2))),
             ContainsSubstring("llama.cpp cannot load it: "));
  CHECK_THAT(refused(folder.write("head.gguf", sound.substr(0, 100))),
             ContainsSubstring("llama.cpp cannot load it: "));
  CHECK_THAT(refused(folder.write("dense.gguf", decode_test::small_model("", true).bytes())),
             ContainsSubstring("a model without experts (architecture qwen3)"));
  CHECK_THAT(
      refused(folder.write("lacking.gguf",
                           decode_test::small_model("blk.1.ffn_up_exps.weight").bytes())),
      ContainsSubstring("cannot load it: tensor 'blk.1.ffn_up_exps.weight' not found"));
  if (::geteuid() != 0) {  // root reads everything
    std::string const closed = folder.write("closed.gguf", sound);
    std::filesystem::permissions(closed, std::filesystem::perms::none);
    CHECK_THAT(refused(closed), ContainsSubstring("Permission denied"));
  }
}
