// SPDX-License-Identifier: Apache-2.0
//
// Decodes with a small Mixture-of-Experts model whose experts are served from a Warmset cache.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <warmset/core/config.hpp>
#include <warmset/trace/write_warmset.hpp>

#include "../common/arguments.hpp"
#include "../common/output.hpp"
#include "../common/token_lists.hpp"
#include "../common/tool_main.hpp"
#include "../common/usage_error.hpp"
#include "arms.hpp"
#include "instruments.hpp"
#include "pairs.hpp"
#include "predictor.hpp"
#include "report.hpp"
#include "table.hpp"

namespace warmset_decode {
namespace {

using warmset_tools::number_of;
using warmset_tools::outputs;
using warmset_tools::seed_of;
using warmset_tools::slots_of;
using warmset_tools::token_list;
using warmset_tools::usage_error;
using warmset_tools::whole_of;

struct options {
  std::string model = "examples/data/tinymoe-8x32.gguf";
  std::string prompt = "The system call";
  std::string slots = "25%";
  std::string width = "0";
  std::string link = "0";
  std::string predictor = "router_lookahead";
  std::string device = "cpu";
  std::string governor = "on";
  std::string json_path;
  std::string trace_path;
  std::string follow_path;
  std::string sequences = "all";
  std::string retention_path;
  std::string samples_path;
  u32 prompt_tokens = 128;
  u32 tokens = 64;
  u32 batch = 1;
  u32 lines = 0;
  std::string seed_text;
  std::optional<u64> seed;
  std::optional<double> temperature;
  std::optional<double> hint_kib;
  std::optional<u32> rounds;
  double compute_us = 100;
  double failing_percent = 0;
  bool ignores_end = false;
  bool health = false;
  bool stats = false;
  bool hash = false;
  bool recall = false;
  bool phases = false;
  bool check = false;
  bool table = false;
};

/// The parts of a list with commas.
std::vector<std::string> parts_of(std::string const& list, char const* option) {
  std::vector<std::string> parts;
  for (std::size_t at = 0;;) {
    std::size_t const comma = list.find(',', at);
    parts.push_back(list.substr(at, comma - at));
    if (parts.back().empty()) {
      throw usage_error(fmt::format("{}: '{}' has an empty part", option, list));
    }
    if (comma == list.npos) {
      return parts;
    }
    at = comma + 1;
  }
}

/// Checks one value against a list of those that are known.
void check_name(std::string const& value, char const* option,
                std::vector<std::string> const& known) {
  if (std::find(known.begin(), known.end(), value) == known.end()) {
    std::string names;
    for (std::string const& name : known) {
      names += (names.empty() ? "" : ", ") + name;
    }
    throw usage_error(fmt::format("{}: there is no '{}'; there are {}", option, value, names));
  }
}

/// Whether a table is of times by the clock. A GPU has no virtual one.
bool is_measured(options const& o) {
  return o.table && (o.rounds.has_value() || o.device != "cpu");
}

void check(options const& o) {
  check_name(o.predictor, "--predictor", predictor_names());
  check_name(o.device, "--device", {"cpu", "cuda"});
  check_name(o.governor, "--governor", {"on", "off"});
  if (o.tokens == 0) {
    throw usage_error("--tokens: at least one token must be generated");
  }
  if (o.batch == 0) {
    throw usage_error("--batch: at least one token of the prompt must go at a time");
  }
  auto const in_range = [](double v, double least, double most, char const* option) {
    if (!(v >= least && v <= most)) {
      throw usage_error(fmt::format("{}: {} is not between {} and {}", option, v, least, most));
    }
  };
  in_range(o.temperature.value_or(0), 0, 100, "--temperature");
  in_range(o.failing_percent, 0, 100, "--fail-copies");
  in_range(o.compute_us, 0, 1e6, "--compute-us");
  in_range(o.hint_kib.value_or(0), 0, 1e9, "--hint-budget-kib");
  if (o.rounds && (!o.table || *o.rounds == 0)) {
    throw usage_error("--rounds: at least one, of a --table");
  }
  bool const has_json = !o.json_path.empty() && !is_measured(o);
  if ((o.check || o.table) && (o.recall || o.phases || o.stats || o.health || has_json ||
                               !o.trace_path.empty() || !o.samples_path.empty())) {
    throw usage_error("--check and --table print a table of their own: no --json, --trace, "
                      "--retention-samples, --stats, --health, --recall, --phases");
  }
  if (o.check && o.table) {
    throw usage_error("--check and --table: one of them");
  }
  if (o.hash && !o.follow_path.empty()) {
    throw usage_error("--logits-hash: of what is generated, and --follow generates nothing");
  }
}

u64 link_of(std::string_view text) {
  double const gbps = number_of(text, "--link-gbps", 0, 1e6);
  if (gbps != 0 && gbps < 0.001) {
    throw usage_error("--link-gbps: 0 is no link, and less than 0.001 is not possible");
  }
  return static_cast<u64>(std::llround(gbps * 1000));
}

device_options device_of(options const& o, model const& m, retention_head const* retention) {
  device_options d;
  d.device = o.device;
  d.retention = retention;
  d.predictor = o.predictor;
  d.governed = o.governor == "on";
  if (o.hint_kib) {
    d.hint_bytes = static_cast<u64>(*o.hint_kib * 1024);
  }
  d.compute_ns = static_cast<u64>(o.compute_us * 1000);
  d.copy_failures_q16 = static_cast<u32>(std::llround(o.failing_percent * 655.36));
  d.seed = o.seed.value_or(1);
  if (!o.table) {
    d.slots = slots_of(o.slots, m.numbers.experts);
    d.width = whole_of(o.width, "--lookahead", 0, m.numbers.experts);
    d.link_bytes_per_us = link_of(o.link);
    if (d.predictor == "none") {
      d.width = 0;
    }
  }
  return d;
}

generation_request request_of(options const& o, model const& m, tokenizer const& words) {
  if (o.prompt.size() > std::size_t{64} * m.numbers.context) {
    throw usage_error(fmt::format("--prompt: {} bytes are more than {} tokens of context can be",
                                  o.prompt.size(), m.numbers.context));
  }
  generation_request r;
  r.prompt = words.encode(o.prompt);
  r.n_tokens = o.tokens;
  r.batch = o.batch;
  r.temperature = static_cast<float>(o.temperature.value_or(o.seed ? 0.8 : 0.0));
  r.seed = o.seed.value_or(1);
  r.stops_at_end = !o.ignores_end;
  if (r.prompt.empty()) {
    throw usage_error("--prompt: the prompt is empty");
  }
  if (r.prompt.size() + o.tokens > m.numbers.context) {
    throw usage_error(
        fmt::format("a prompt of {} tokens and {} to generate are more than the context of {}",
                    r.prompt.size(), o.tokens, m.numbers.context));
  }
  return r;
}

int run_check(options const& o, model const& m, tokenizer const& words,
              retention_head const* retention) {
  generation_request const request = request_of(o, m, words);
  std::vector<arm_options> ways = ways_to_serve(m, o.seed.value_or(1), o.device);
  for (std::size_t i = 1; i < ways.size(); ++i) {
    ways[i].device.retention = retention;
  }
  std::vector<arm> const arms = run_arms(m, words, ways, request);
  fmt::print("{}", arms_table(arms));
  std::string const fault = compare(arms);
  fmt::print("{}\n", fault.empty()
                         ? fmt::format("the same logits, bit by bit, over {} decode steps",
                                       arms[0].made.decode_steps)
                         : "does not hold: " + fault);
  return fault.empty() ? 0 : 1;
}

int run_table(options const& o, model const& m, tokenizer const& words,
              retention_head const* retention, outputs& out) {
  table_request t;
  t.device = device_of(o, m, retention);
  t.run = request_of(o, m, words);
  for (std::string const& part : parts_of(o.slots, "--slots")) {
    t.slots.push_back(slots_of(part, m.numbers.experts));
  }
  for (std::string const& part : parts_of(o.width, "--lookahead")) {
    t.widths.push_back(whole_of(part, "--lookahead", 0, m.numbers.experts));
  }
  for (std::string const& part : parts_of(o.link, "--link-gbps")) {
    t.links_bytes_per_us.push_back(link_of(part));
  }
  if (is_measured(o)) {
    pairs_report const measured = measure_pairs(m, words, t, o.rounds.value_or(30));
    if (!o.json_path.empty()) {
      out.stage(o.json_path, measured.json);
    }
    out.commit();
    if (o.json_path != "-") {
      fmt::print("{}", measured.table);
    }
  } else {
    fmt::print("{}", lookahead_table(m, words, t));
  }
  return 0;
}

/// The widths that recall is judged for: those up to the layer's experts.
std::vector<u32> recall_widths(model const& m) {
  std::vector<u32> widths;
  for (u32 w : {1u, 2u, 4u, 6u, 8u, 10u, 12u, 16u}) {
    if (w <= m.numbers.experts) {
      widths.push_back(w);
    }
  }
  return widths;
}

/// Generates, and prints the text as it comes.
generation write_text(options const& o, device& on, tokenizer const& words,
                      generation_request request, bool talks, std::string& text) {
  u32 lines = 0;
  bool begun = false;  // the prompt is repeated once it has gone through
  auto const begin = [&] {
    if (talks && !begun) {
      fmt::print("{}", o.prompt);
    }
    begun = true;
  };
  request.on_token = [&](u32 token) {
    begin();
    bool enough = false;
    for (char c : words.decode({&token, 1})) {
      if (enough) {
        break;
      }
      text += c;
      if (talks) {
        std::fputc(c, stdout);
      }
      lines += c == '\n' ? 1 : 0;
      enough = o.lines != 0 && lines == o.lines;
    }
    return !enough;
  };
  generation const made = generate(on, words, request);
  begin();
  if (talks) {
    fmt::print("{}", text.ends_with('\n') ? "" : "\n");
    std::fflush(stdout);
    fmt::print(stderr, "{} tokens in {:.2f} s\n", made.tokens.size(), made.decode_seconds);
  }
  return made;
}

int run(options const& o) {
  check(o);
  outputs out;
  out.keep(o.model, "the model");
  out.keep(o.follow_path, "the file of --follow");
  out.keep(o.retention_path, "the retention head");
  out.expect(o.json_path);
  out.expect(o.trace_path);
  out.expect(o.samples_path);
  gguf::file const file(o.model);
  model const m(file);
  tokenizer const words(file);
  std::optional<retention_head> head;
  if (!o.retention_path.empty()) {
    head.emplace(o.retention_path, m);
  }
  retention_head const* const retention = head ? &*head : nullptr;
  if (o.check) {
    return run_check(o, m, words, retention);
  }
  if (o.table) {
    return run_table(o, m, words, retention, out);
  }
  device_options const wanted = device_of(o, m, retention);
  if (wanted.device != "cpu" && o.recall && wanted.width == 0) {
    throw usage_error("--recall on a GPU judges the hints that are made: it needs --lookahead");
  }
  std::vector<token_list> const sequences =
      o.follow_path.empty()
          ? std::vector<token_list>()
          : warmset_tools::read_token_lists(o.follow_path, o.sequences, m.numbers.vocabulary,
                                            m.numbers.context);
  generation_request request;
  if (sequences.empty()) {
    request = request_of(o, m, words);
  }
  instruments tools(m, o.recall ? recall_widths(m) : std::vector<u32>(), wanted.width,
                    !o.trace_path.empty(), o.phases);
  retention_samples samples(m);
  if (!o.samples_path.empty()) {
    tools.collect(samples);
  }
  std::unique_ptr<device> const on = make_device(m, wanted, &tools);

  bool const talks = o.json_path != "-" && o.trace_path != "-" && o.samples_path != "-";
  generation made;
  std::string text;
  if (sequences.empty()) {
    tools.start_sequence("prompt");
    made = write_text(o, *on, words, request, talks, text);
  }
  for (token_list const& g : sequences) {
    tools.start_sequence(g.label);
    follow(*on, g.tokens, o.prompt_tokens);
  }
  device_report const report = on->report();
  std::string const prompt = sequences.empty() ? o.prompt : "";
  run_facts const facts{m, wanted, prompt, request.prompt.size(), made, text, report, tools};
  if (!o.json_path.empty()) {
    out.stage(o.json_path, to_json(facts));
  }
  if (!o.trace_path.empty()) {
    out.stage(o.trace_path,
              warmset::trace::write_warmset(warmset::trace::recording(tools.take_trace())));
  }
  if (!o.samples_path.empty()) {
    out.stage(o.samples_path, samples.bytes());
  }
  out.commit();
  if (talks) {
    if (o.hash) {
      fmt::print("logits: {} over {} decode steps\n", hash_text(made.logits_hash),
                 made.decode_steps);
    }
    fmt::print("{}{}{}{}", o.health ? health_text(report) : "", o.stats ? log_line(facts) : "",
               o.recall ? recall_table(tools, m.numbers.layers) : "",
               o.phases ? phase_text(tools.times()) : "");
  }
  return 0;
}

int main_of(int argc, char** argv) {
  options o;
  CLI::App app("Decodes with a Mixture-of-Experts model whose experts are served from a Warmset "
               "cache of N slots per layer.",
               "warmset-decode");
  app.set_version_flag("--version", fmt::format("warmset-decode {}.{}.{}", WARMSET_VERSION_MAJOR,
                                                WARMSET_VERSION_MINOR, WARMSET_VERSION_PATCH));
  app.add_option("--model", o.model, "A GGUF file of architecture qwen3moe with experts in Q8_0")
      ->capture_default_str();
  app.add_option("--prompt", o.prompt, "The text to go on with")->capture_default_str();
  app.add_option("--tokens", o.tokens, "Tokens to generate")->capture_default_str();
  app.add_option("--lines", o.lines, "Stop after so many lines");
  CLI::Option* const slots = app.add_option("--slots", o.slots, "Slots per layer: N, or P% of a layer's experts (at least 1)")
      ->capture_default_str();
  app.add_option("--batch", o.batch, "Prompt tokens that go through a layer together")
      ->capture_default_str();
  CLI::Option* const width = app.add_option("--lookahead", o.width, "Hints after each layer; 0 = no look-ahead")
      ->capture_default_str();
  app.add_option("--predictor", o.predictor, "Who makes the hints")->capture_default_str();
  app.add_option("--governor", o.governor,
                 "on: hints are issued while they pay. off: all are issued")
      ->capture_default_str();
  app.add_option("--hint-budget-kib", o.hint_kib,
                 "Most KiB that the hints after one layer may start to move (default: no bound)");
  app.add_option(
         "--link-gbps", o.link,
         "Link to the slots in 10^9 bytes per second, on a virtual clock; 0 = copies take no time. "
         "A GPU is held back to it; 0 = not")
      ->capture_default_str();
  app.add_option("--compute-us", o.compute_us,
                 "Compute of one layer for one token on that clock, in microseconds")
      ->capture_default_str();
  app.add_option("--fail-copies", o.failing_percent,
                 "Percent of the copies of an expert's banks that fail")
      ->capture_default_str();
  app.add_option("--device", o.device, "Where to compute: cpu or cuda")->capture_default_str();
  app.add_option("--seed", o.seed_text,
                 "Draw tokens by chance, from this seed (default: the likeliest token, always)");
  app.add_option("--temperature", o.temperature, "Of the draw (default: 0.8 with --seed, else 0)");
  app.add_flag("--ignore-eos", o.ignores_end, "Go on behind the token that ends a text");
  app.add_flag("--logits-hash", o.hash, "Print a hash of all logits");
  app.add_flag("--health", o.health, "Print the health of the cache and of speculation");
  app.add_flag("--stats", o.stats, "Print the cache's counters on one line");
  app.add_flag("--recall", o.recall,
               "Ask the predictor at every step, and print what it was worth by layer and width");
  app.add_flag("--phases", o.phases, "Print where the time of a forward pass went");
  CLI::Option* const follow = app.add_option(
      "--follow", o.follow_path,
      "Run the token ids of this file, JSON lines with `tokens`, one by one instead of generating");
  app.add_option("--sequences", o.sequences, "With --follow: lines to run, from 0: all, A or A-B")
      ->capture_default_str()
      ->needs(follow);
  app.add_option("--prompt-tokens", o.prompt_tokens,
                 "With --follow: tokens of a sequence that are its prompt")
      ->capture_default_str()
      ->needs(follow);
  app.add_option(
      "--trace", o.trace_path,
      "Write the run as a Warmset trace, predictions included; a name in .zst is compressed");
  app.add_option(
      "--retention", o.retention_path,
      "A retention head, fitted by examples/retention/fit.py: its keys are added to the score");
  app.add_option("--retention-samples", o.samples_path,
                 "Write the routers' inputs and choices, which a retention head is fitted to");
  app.add_option("--json", o.json_path,
                 "Write the run as JSON; - is stdout, which then has nothing else");
  app.add_flag("--check", o.check,
               "Serve the experts in many ways, with failing copies and hostile hints, and compare "
               "all logits; exit status 1 "
               "where they differ")
      ->excludes(follow)
      ->excludes(slots)
      ->excludes(width);
  app.add_flag("--table", o.table,
               "Print waiting and waste for every width of --lookahead, number of --slots and "
               "--link-gbps, each a list with "
               "commas")
      ->excludes(follow);
  app.add_option(
      "--rounds", o.rounds,
      "With --table: measure by the clock instead of the virtual one, every width in turn, "
      "so often (a GPU has no virtual clock: 30)");
  std::string names;
  for (std::string const& name : predictor_names()) {
    names += (names.empty() ? "" : ", ") + name;
  }
  app.footer("Predictors: " + names);
  try {
    app.parse(argc, argv);
  } catch (CLI::Success const& e) {
    return app.exit(e);
  } catch (CLI::ParseError const& e) {
    throw usage_error(e.what());
  }
  if (!o.seed_text.empty()) {
    o.seed = seed_of(o.seed_text, "--seed");
  }
  return run(o);
}

}  // namespace
}  // namespace warmset_decode

int main(int argc, char** argv) {
  return warmset_tools::tool_main("warmset-decode", &warmset_decode::main_of, argc, argv);
}
