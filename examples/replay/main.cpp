// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <sstream>
#include <string>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "../common/file.hpp"
#include "../common/output.hpp"
#include "../common/tool_main.hpp"
#include "../common/usage_error.hpp"
#include "inspect.hpp"
#include "report.hpp"
#include "run.hpp"
#include "tune.hpp"
#include "warmset/trace/decision_log.hpp"
#include "warmset/trace/halve.hpp"

namespace warmset_tools {
namespace {

/// Everything that the command line can say.
struct options {
  std::string trace;
  std::string second;  ///< OUT of convert, B of diff
  std::string model;   ///< of tune
  double vram_mib = 0;
  double cpu_gbps = 0;
  std::string policies = "all";
  size_options size;
  std::string phase;
  std::string play = "all";
  std::string sequences = "all";
  std::string order = "auto";
  std::string json_path;
  std::string csv_path;
  std::string log_path;
  std::string tokens_path;
  time_model time;
  hint_options hints;
  unsigned jobs = 0;
  bool no_oracles = false;
  bool progress = false;
  bool zstd = false;
  bool renumber_tokens = false;
  bool flatten = false;
  bool cross_validate = false;
  unsigned repeat = 0;
};

constexpr char const* input_trace = "the input trace";

/// A line on stderr. Where that takes none, nobody is there to be told.
void warn(std::string const& what) {
  std::fputs(fmt::format("warmset-replay: warning: {}\n", what).c_str(), stderr);
}

/// Puts a text on stdout. Throws file_error.
void say(std::string_view text) {
  outputs out;
  out.stage("-", text);
  out.commit();
}

void check_time(time_model const& time) {
  if (!(time.link_gbps >= 1e-3 && time.link_gbps <= 1e6)) {
    throw usage_error(
        fmt::format("--link-gbps is {:g}; 0.001 to 10^6 are possible", time.link_gbps));
  }
  auto const check = [](char const* option, double us) {
    if (!(us >= 0 && us <= 1e9)) {
      throw usage_error(fmt::format("{} is {:g}; 0 to 10^9 are possible", option, us));
    }
  };
  check("--copy-us", time.copy_us);
  check("--compute-us", time.compute_us);
  check("--latency-us", time.latency_us);
}

/// How the command line speculates, for each budget that it gives. Throws usage_error.
std::vector<warmset::trace::speculation> speculations_of(hint_options const& o,
                                                         warmset::geometry const& model) {
  warmset::trace::speculation how;
  if (o.governor != "on" && o.governor != "off") {
    throw usage_error(fmt::format("--governor is '{}'; there are on and off", o.governor));
  }
  u32 width = 0;
  if (o.width) {
    char const* const end = o.width->data() + o.width->size();
    auto const [stop, error] = std::from_chars(o.width->data(), end, width);
    if (error != std::errc{} || stop != end || width == 0 || width > 512) {
      throw usage_error(fmt::format("--width is '{}'; 1 to 512 are possible", *o.width));
    }
  }
  u32 k = 1;
  for (warmset::layer_geometry const& layer : model.layers()) {
    k = std::max(k, layer.k);
  }
  how.width = width != 0 ? width : k;
  how.governed = o.governor == "on";
  std::vector<warmset::trace::speculation> all;
  for (u64 bytes : choose_hint_budgets(o.budgets_mib)) {
    how.bytes_per_step = bytes;
    all.push_back(how);
  }
  return all;
}

/// The report's frame: what is played and what is reported.
report frame(options const& o, loaded_trace& trace) {
  check_time(o.time);
  if (o.order != "auto" && o.order != "ascending" && o.order != "recorded") {
    throw usage_error(
        fmt::format("--order is '{}'; there are auto, ascending and recorded", o.order));
  }
  // A recorded residency tells that an engine's cache saw the ids in this order; other traces have ranks.
  bool const ascending =
      o.order == "ascending" || (o.order == "auto" && trace.recording.residency().empty());
  if (ascending) {
    trace.recording = in_ascending_order(trace.recording);
  }
  warmset::trace::selection const played = choose_played(trace.recording, o.sequences, o.play);
  json facts = describe_trace(trace);
  if (o.flatten) {
    trace.recording = one_id_per_step(trace.recording, played);
  }
  report r{trace, played, o.sequences, ascending, o.flatten, o.time};
  r.facts = std::move(facts);
  r.demand = warmset::trace::working_set_of(trace.recording, played, demand_tokens);
  for (auto const& layer : warmset::trace::count_token_rows(trace.recording, r.played)) {
    for (std::size_t p = 0; p < r.tokens.size(); ++p) {
      r.tokens[p] = std::max(r.tokens[p], layer[p]);
    }
  }
  r.phases = choose_phases(o.phase, r.tokens);
  return r;
}

/// Puts the outputs in their places and the table on the terminal, unless stdout is taken. Warnings come last, so that
/// an error is alone.
void finish(options const& o, outputs& out, report const& r, std::string const& table) {
  if (!o.json_path.empty()) {
    out.stage(o.json_path, to_json(r).dump(2) + "\n");
  }
  if (!o.csv_path.empty()) {
    out.stage(o.csv_path, to_csv(r));
  }
  if (o.json_path != "-" && o.csv_path != "-" && o.log_path != "-") {
    out.stage("-", table);
  }
  out.commit();
  for (std::string const& warning : r.warnings) {
    warn(warning);
  }
}

int replay(options const& o) {
  outputs out;
  out.keep(o.trace, input_trace);
  out.expect(o.json_path);
  out.expect(o.csv_path);
  out.expect(o.log_path);
  std::vector<chosen_policy> const chosen = choose_policies(o.policies);
  if (!o.log_path.empty() && (chosen.size() != 1 || chosen.front().is_oracle())) {
    throw usage_error("--log needs one policy that is no oracle");
  }
  if (!o.log_path.empty() && o.repeat != 0) {
    throw usage_error("--log and --repeat do not go together: a log is of one play");
  }
  bool const with_hints = o.hints.predictors.has_value();
  if (with_hints && (!o.log_path.empty() || o.repeat != 0 || o.flatten)) {
    throw usage_error("--predictor does not go together with --log, --repeat and --flatten");
  }
  loaded_trace trace = load_trace(o.trace);
  bool const lookahead = !trace.recording.lookahead().empty();
  report r = frame(o, trace);
  std::vector<pool_size> const sizes = choose_sizes(o.size, trace.recording.geometry());
  if (sizes.size() != 1) {
    throw usage_error("replay takes one capacity; sweep takes several");
  }
  std::vector<chosen_predictor> predictors;
  std::vector<warmset::trace::speculation> const how =
      speculations_of(o.hints, trace.recording.geometry());
  if (with_hints) {
    predictors =
        choose_predictors(*o.hints.predictors, {.lookahead = lookahead,
                                                .in_recorded_order = !r.ascending,
                                                .tokens = !trace.recording.tokens().empty()});
    check_hints(chosen, sizes.front());
  }
  std::vector<u32> log;
  run(r, chosen, sizes, {o.jobs, !o.no_oracles, false, false, o.repeat},
      o.log_path.empty() ? nullptr : &log);
  run_hints(r, chosen, sizes.front(), predictors, how, o.jobs);
  if (!o.log_path.empty()) {
    out.stage(o.log_path, warmset::trace::to_bytes(log));
  }
  finish(o, out, r, to_table(r));
  return 0;
}

/// What a part of a halved trace is, for people.
std::string part_name(bool by_sequence, int part) {
  if (by_sequence) {
    return part == 0 ? "the even sequences (the first, the third, ... that are played)"
                     : "the odd sequences (the second, the fourth, ... that are played)";
  }
  return part == 0 ? "the first half of the decoded tokens, and what is before them"
                   : "the second half of the decoded tokens";
}

warmset::trace::halves halve_trace(loaded_trace const& trace,
                                   warmset::trace::selection const& played) {
  try {
    return warmset::trace::halve(trace.recording, played);
  } catch (warmset::config_error const& e) {
    throw usage_error(e.what());
  }
}

/// Chooses on one half of what is played and reports the other.
void sweep_halves(options const& o, loaded_trace& trace, std::vector<chosen_policy> const& chosen,
                  run_options how, outputs& out) {
  options part = o;
  part.flatten = false;  // a step stays in one half
  report const whole = frame(part, trace);
  warmset::trace::halves halves = halve_trace(trace, whole.played);
  loaded_trace first{trace.path, trace.layout, std::move(halves.first)};
  loaded_trace second{trace.path, trace.layout, std::move(halves.second)};
  part.flatten = o.flatten;
  part.sequences = "all";
  report figures = frame(part, second);
  part.phase.clear();
  report chosen_on = frame(part, first);
  figures.facts = whole.facts;
  figures.sequences = fmt::format("{}: {}", o.sequences, part_name(halves.by_sequence, 1));
  figures.cross_validation = {{"split", halves.by_sequence ? "sequences" : "tokens"},
                              {"chosen_on", part_name(halves.by_sequence, 0)},
                              {"reported_on", part_name(halves.by_sequence, 1)}};
  std::vector<pool_size> const sizes = choose_sizes(o.size, second.recording.geometry());
  run(figures, chosen, sizes, how);
  how.oracles = false;
  run(chosen_on, chosen, sizes, how);
  figures.recommendation = recommend(chosen_on, figures);
  finish(o, out, figures, to_matrix(figures));
}

int sweep(options const& o) {
  outputs out;
  out.keep(o.trace, input_trace);
  out.expect(o.json_path);
  out.expect(o.csv_path);
  std::vector<chosen_policy> const chosen = choose_policies(o.policies);
  loaded_trace trace = load_trace(o.trace);
  run_options const how{o.jobs, !o.no_oracles, o.progress || ::isatty(2) != 0, true};
  if (o.cross_validate) {
    sweep_halves(o, trace, chosen, how, out);
    return 0;
  }
  report r = frame(o, trace);
  run(r, chosen, choose_sizes(o.size, trace.recording.geometry()), how);
  r.recommendation = recommend(r, r);
  finish(o, out, r, to_matrix(r));
  return 0;
}

/// The capacities of `tune`: as many slots in each layer as fit, and as many on average in one pool.
std::vector<pool_size> sizes_to_tune(warmset::geometry const& model, double vram_mib) {
  u64 bytes_per_slot = 0;
  u32 k = 0;
  u32 experts = 0;
  for (warmset::layer_geometry const& l : model.layers()) {
    bytes_per_slot += l.expert_bytes();
    k = std::max(k, l.k);
    experts = std::max(experts, l.n_experts);
  }
  u64 const slots = std::min<u64>(static_cast<u64>(vram_mib * 1048576.0) / bytes_per_slot, experts);
  if (slots < k) {
    throw usage_error(fmt::format(
        "--vram-mib {:g} holds {} experts of each layer, fewer than the k = {} of one token; that takes {:.2f} MiB",
        vram_mib, slots, k, static_cast<double>(k * bytes_per_slot) / 1048576.0));
  }
  return {{pool_kind::per_layer, static_cast<u32>(slots), 0},
          {pool_kind::shared, static_cast<u32>(slots), 0}};
}

int tune(options& o) {
  outputs out;
  out.keep(o.trace, input_trace);
  out.keep(o.model, "the model");
  out.expect(o.json_path);
  if (!(o.vram_mib >= 1 && o.vram_mib <= 1e9)) {
    throw usage_error(fmt::format("--vram-mib is {:g}; 1 to 10^9 are possible", o.vram_mib));
  }
  if (o.cpu_gbps != 0 && !(o.cpu_gbps >= 1e-3 && o.cpu_gbps <= 1e6)) {
    throw usage_error(fmt::format("--cpu-gbps is {:g}; 0, and 0.001 to 10^6 are possible", o.cpu_gbps));
  }
  check_time(o.time);
  model_file const model = read_model_file(o.model);
  std::vector<pool_size> const sizes = sizes_to_tune(model.geometry, o.vram_mib);
  loaded_trace trace = load_trace(o.trace);
  std::vector<std::string> warnings;
  trace.recording = with_model(trace.recording, o.trace, model.geometry, o.model, warnings);
  o.order = "recorded";  // the order in which the engine hands over its ids
  report r = frame(o, trace);
  if (r.tokens_of(warmset::phase::decode) == 0) {
    throw usage_error(o.trace + ": what is played has no decode step to tune for");
  }
  u64 all = 0;
  for (warmset::layer_geometry const& l : model.geometry.layers()) {
    all += (u64{l.n_experts} + 1) * l.expert_bytes();
  }
  u64 const mib = std::min(static_cast<u64>(o.vram_mib), (all + (u64{1} << 20) - 1) >> 20);
  tuning_report t{o.model, model.name, o.vram_mib, o.cpu_gbps};
  warmset::trace::recording const played = warmset::trace::select(trace.recording, r.played);
  for (u32 tenths = 0; tenths < (o.cpu_gbps != 0 ? 10u : 1u); ++tenths) {
    t.upstream.push_back(play_upstream(played, mib, tenths / 10.0, o.time, o.cpu_gbps));
    if (tokens_per_second(r, t.upstream.back().stall_ms) >
        tokens_per_second(r, t.upstream[t.best_upstream].stall_ms)) {
      t.best_upstream = tenths;
    }
    if (o.cpu_gbps != 0) {
      t.split.push_back(play_split(played, mib, tenths / 10.0, o.time, o.cpu_gbps));
      if (tokens_per_second(r, t.split.back().stall_ms) >
          tokens_per_second(r, t.split[t.best_split].stall_ms)) {
        t.best_split = tenths;
      }
    }
  }
  run(r, choose_policies(o.policies), sizes, {o.jobs, false, o.progress || ::isatty(2) != 0, true});
  r.recommendation = recommend(r, r);
  r.warnings.insert(r.warnings.begin(), warnings.begin(), warnings.end());
  if (!o.json_path.empty()) {
    out.stage(o.json_path, to_json(t, r).dump(2) + "\n");
  }
  if (o.json_path != "-") {
    out.stage("-", to_text(t, r));
  }
  out.commit();
  for (std::string const& warning : r.warnings) {
    warn(warning);
  }
  return 0;
}

/// The ids that a replay of the same options plays, one a line.
int ids(options const& o) {
  outputs out;
  out.keep(o.trace, input_trace);
  out.expect(o.second);
  loaded_trace trace = load_trace(o.trace);
  options flat = o;
  flat.flatten = true;
  report const r = frame(flat, trace);
  std::string text = "layer,expert\n";
  warmset::trace::for_each_event(trace.recording, [&](warmset::trace::event const& e) {
    fmt::format_to(std::back_inserter(text), "{},{}\n", e.layer.value, e.ids.front());
  });
  out.stage(o.second, text);
  out.commit();
  return 0;
}

int info(options const& o) {
  outputs out;
  out.keep(o.trace, input_trace);
  out.expect(o.json_path);
  loaded_trace const trace = load_trace(o.trace);
  json const facts = inspect(trace, choose_played(trace.recording, o.sequences, o.play));
  if (!o.json_path.empty()) {
    out.stage(o.json_path, facts.dump(2) + "\n");
  }
  if (o.json_path != "-") {
    out.stage("-", inspection_text(facts));
  }
  out.commit();
  return 0;
}

int convert(options const& o) {
  outputs out;
  out.keep(o.trace, input_trace);
  out.keep(o.tokens_path, "the list of --tokens");
  out.expect(o.second);
  loaded_trace trace = load_trace(o.trace);
  if (!o.tokens_path.empty()) {
    add_tokens(trace, o.tokens_path);
  }
  warmset::trace::recording chosen =
      warmset::trace::select(trace.recording, choose_played(trace.recording, o.sequences, o.play));
  if (o.renumber_tokens) {
    chosen = warmset::trace::renumber_tokens(std::move(chosen));
  }
  std::vector<std::byte> const bytes = warmset::trace::write_warmset(chosen);
  out.stage(o.second, bytes, o.zstd);
  if (o.second != "-") {
    out.stage("-", fmt::format("{}: {} events of {} layers, {} ids, {} bytes before compression\n",
                               o.second, chosen.n_events(), chosen.geometry().layers().size(),
                               chosen.ids().size(), bytes.size()));
  }
  out.commit();
  return 0;
}

warmset::trace::decision_log load_log(std::string const& path) {
  std::vector<std::byte> const bytes = read_file(path);
  try {
    return warmset::trace::decision_log::parse(bytes);
  } catch (warmset::trace::format_error const& e) {
    throw file_error(fmt::format("{}:{}: {}", path, e.at(), e.what()));
  }
}

int diff(options const& o) {
  warmset::trace::decision_log const a = load_log(o.trace);
  warmset::trace::decision_log const b = load_log(o.second);
  auto const parted = warmset::trace::diff(a, b);
  say(parted ? parted->text + "\n"
             : fmt::format("the logs say the same: {} records\n", a.n_records()));
  return parted ? 1 : 0;
}

std::string known_policies() {
  std::string text = "Policies: ";
  std::size_t column = text.size();
  auto const add = [&](std::string const& name, bool last) {
    if (column + name.size() > 90) {
      text += "\n  ";
      column = 2;
    }
    text += last ? name : fmt::format("{}, ", name);
    column += name.size() + 2;
  };
  for (policy const& p : policies()) {
    std::string name = p.name;
    for (std::string const& parameter_name : p.parameters) {
      for (parameter const& each : parameters) {
        if (parameter_name == each.name) {
          name += fmt::format("[:{}={}]", parameter_name, each.of(p.numbers));
        }
      }
    }
    add(name, false);
  }
  add("and the oracles belady, belady_bypass", true);
  return text;
}

/// A file by its name, which is not empty.
CLI::Option* add_file(CLI::App& command, std::string const& name, std::string& path,
                      std::string const& what) {
  auto const check = [](std::string const& text) {
    return text.empty() ? std::string("an empty name is no file") : std::string();
  };
  return command.add_option(name, path, what)->check(check);
}

void add_trace(CLI::App& command, options& o, std::string const& name = "trace") {
  add_file(command, name, o.trace, "A trace in any known layout, plain or zstd")->required();
}

/// A file to write. What the system calls stdout is stdout: it has nothing else then, and is not replaced.
CLI::Option* add_output(CLI::App& command, std::string const& name, std::string& path,
                        std::string const& what) {
  return add_file(command, name, path, what)->transform([](std::string const& text) {
    return text == "/dev/stdout" || text == "/dev/fd/1" ? std::string("-") : text;
  });
}

void add_played(CLI::App& command, options& o) {
  command.add_option("--sequences", o.sequences, "Sequences to play: all, even, odd, A or A-B")
      ->capture_default_str();
  command.add_option("--play", o.play, "Phases to play: decode, prefill or all")
      ->capture_default_str();
}

void add_order(CLI::App& command, options& o) {
  command
      .add_option("--order", o.order,
                  "Order of a token's ids, which is the order of recency within a step: recorded, "
                  "ascending, or auto: recorded where the trace tells what the recording engine's "
                  "cache did, ascending elsewhere")
      ->capture_default_str();
}

void add_time(CLI::App& command, options& o) {
  command
      .add_option("--copy-us", o.time.copy_us,
                  "Fixed cost of a copy of one bank of one expert, in microseconds")
      ->capture_default_str();
  command
      .add_option("--compute-us", o.time.compute_us,
                  "Compute of one layer for one token, in microseconds")
      ->capture_default_str();
}

void add_replay_options(CLI::App& command, options& o, bool several) {
  add_trace(command, o);
  command
      .add_option("--policy", o.policies, "NAME[,NAME...] or all; parameters as NAME:half_life=64")
      ->capture_default_str();
  command.add_option("--slots", o.size.slots,
                     several ? "Capacities N or P% of a layer's experts, with commas between them"
                             : "Slots per layer: N, or P% of a layer's experts (at least 1)");
  command.add_option("--budget-mib", o.size.budget_mib,
                     several ? "Capacities in MiB, with commas between them"
                             : "Capacity of all layers in MiB (experts only, no scratch)");
  command
      .add_option("--pool", o.size.pool,
                  "per-layer: the same number of slots for every layer. shared: with --slots N, N "
                  "slots per layer "
                  "on average (N times the layers in all, k of them kept for each layer), one pool "
                  "per expert "
                  "size; with --budget-mib, one pool of bytes for all layers and sizes")
      ->capture_default_str();
  add_played(command, o);
  command.add_option(
      "--phase", o.phase,
      "Entries to report: decode, prefill, or all for both and their sum (default: those present)");
  add_order(command, o);
  command.add_flag("--flatten", o.flatten, "Play one id a step instead of the trace's own steps");
  command.add_option("--link-gbps", o.time.link_gbps, "Link in 10^9 bytes per second")
      ->capture_default_str();
  add_time(command, o);
  command.add_flag("--no-oracles", o.no_oracles, "Leave out the distance to the oracles");
  command.add_option("--jobs", o.jobs, "Threads (default: the number of processors)");
  add_output(command, "--json", o.json_path,
             "Write the report as JSON; - is stdout, which then has nothing else");
  add_output(command, "--csv", o.csv_path,
             "Write the results as CSV; - is stdout, which then has nothing else");
}

int main_of(int argc, char** argv) {
  options o;
  CLI::App app("Plays routing traces of Mixture-of-Experts models through expert caches.",
               "warmset-replay");
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("warmset-replay {}.{}.{}", WARMSET_VERSION_MAJOR,
                                                WARMSET_VERSION_MINOR, WARMSET_VERSION_PATCH));

  CLI::App& replay_command =
      *app.add_subcommand("replay", "Play a trace through policies at one capacity");
  add_replay_options(replay_command, o, false);
  add_output(replay_command, "--log", o.log_path,
             "Write the decisions of the one policy, for diff");
  replay_command.add_option("--repeat", o.repeat,
                            "Play each policy this many times, one after the other, and report the "
                            "time of its decisions");
  CLI::Option* const predictor = replay_command.add_option(
      "--predictor", o.hints.predictors,
      "NAME[,NAME...]: play the policies with hints too, in the model of time; "
      "parameters as transition:horizon=2");
  replay_command
      .add_option("--width", o.hints.width,
                  "Hints that a predictor is asked for after each step (default: the largest k)")
      ->needs(predictor);
  replay_command
      .add_option("--governor", o.hints.governor,
                  "on: hints are issued while they pay. off: all are issued")
      ->needs(predictor)
      ->capture_default_str();
  replay_command
      .add_option("--hint-budget-mib", o.hints.budgets_mib,
                  "M[,M...]: most MiB that the hints of one step may start to move; an entry for "
                  "each (default: no bound)")
      ->needs(predictor);
  replay_command
      .add_option("--latency-us", o.time.latency_us,
                  "From the end of a transfer on the link to its arrival, in microseconds; the "
                  "link is free meanwhile")
      ->needs(predictor)
      ->capture_default_str();
  replay_command.footer(known_policies() + "\nPredictors: " + known_predictors());

  CLI::App& sweep_command =
      *app.add_subcommand("sweep", "Play a trace through policies at several capacities");
  add_replay_options(sweep_command, o, true);
  sweep_command.add_flag("--progress", o.progress,
                         "Show the progress bar even where stderr is no terminal");
  sweep_command.add_flag(
      "--cross-validate", o.cross_validate,
      "Choose the recommended policy on the even sequences and report on the odd "
      "ones; with one sequence, on the halves of its tokens");
  sweep_command.footer(known_policies());

  CLI::App& tune_command = *app.add_subcommand(
      "tune", "Say what a model's expert cache should be for a trace of it: for llama.cpp's own cache, and with Warmset");
  add_file(tune_command, "model", o.model, "The model, a GGUF file: of what size its experts are")
      ->required();
  add_file(tune_command, "--trace", o.trace, "A trace of the model in any known layout, plain or zstd")
      ->required();
  tune_command.add_option("--vram-mib", o.vram_mib, "MiB of fast memory for experts")->required();
  tune_command
      .add_option("--link,--link-gbps", o.time.link_gbps,
                  "Link to the fast memory in 10^9 bytes per second")
      ->required();
  tune_command
      .add_option("--cpu-gbps", o.cpu_gbps,
                  "Rate at which the host computes experts in its own memory, in 10^9 bytes per second, for "
                  "--moe-cache-cpu-share; 0: it computes none")
      ->capture_default_str();
  add_time(tune_command, o);
  tune_command.add_option("--policy", o.policies, "Policies of Warmset to try: NAME[,NAME...] or all")
      ->capture_default_str();
  add_played(tune_command, o);
  tune_command.add_option("--jobs", o.jobs, "Threads (default: the number of processors)");
  tune_command.add_flag("--progress", o.progress,
                        "Show the progress bar even where stderr is no terminal");
  add_output(tune_command, "--json", o.json_path,
             "Write the report as JSON; - is stdout, which then has nothing else");

  CLI::App& info_command = *app.add_subcommand("info", "Say what a trace holds");
  add_trace(info_command, o);
  add_output(info_command, "--json", o.json_path, "Write it as JSON; - is stdout");
  add_played(info_command, o);

  CLI::App& convert_command =
      *app.add_subcommand("convert", "Write a trace, or a part of it, in Warmset's own format");
  add_trace(convert_command, o, "in");
  add_output(convert_command, "out", o.second,
             "The file to write; a name in .zst is compressed; - is stdout")
      ->required();
  add_played(convert_command, o);
  add_file(convert_command, "--tokens", o.tokens_path,
           "Add the input token ids of a list: JSON lines with s, a sequence, and "
           "tokens, or one line with the token of each step");
  convert_command.add_flag("--renumber-tokens", o.renumber_tokens,
                           "Number the input tokens anew in the order of their first appearance: "
                           "equal ones stay equal, and the text stays with you");
  convert_command.add_flag("--zstd", o.zstd, "Compress, whatever the name");

  CLI::App& ids_command = *app.add_subcommand(
      "ids", "Write the ids that --flatten plays, as lines of layer,expert, for other simulators");
  add_trace(ids_command, o, "in");
  add_output(ids_command, "out", o.second, "The file to write; - is stdout")->required();
  add_played(ids_command, o);
  add_order(ids_command, o);

  CLI::App& diff_command =
      *app.add_subcommand("diff", "Say where two decision logs part; exit status 1 where they do");
  add_file(diff_command, "a", o.trace, "A decision log")->required();
  add_file(diff_command, "b", o.second, "Another one")->required();

  try {
    app.parse(argc, argv);
  } catch (CLI::Success const& e) {
    std::ostringstream text;
    app.exit(e, text, text);
    say(text.str());
    return 0;
  } catch (CLI::ParseError const& e) {
    if (app.get_subcommands().empty() && app.remaining_size() != 0) {
      std::vector<std::string> names;
      for (CLI::App const* command : app.get_subcommands([](CLI::App*) { return true; })) {
        names.push_back(command->get_name());
      }
      throw usage_error(fmt::format("'{}' is no command; there are {}", app.remaining().front(),
                                    fmt::join(names, ", ")));
    }
    throw usage_error(e.what());
  }
  if (replay_command.parsed()) {
    return replay(o);
  }
  if (sweep_command.parsed()) {
    return sweep(o);
  }
  if (tune_command.parsed()) {
    return tune(o);
  }
  if (info_command.parsed()) {
    return info(o);
  }
  if (ids_command.parsed()) {
    return ids(o);
  }
  if (convert_command.parsed()) {
    return convert(o);
  }
  return diff(o);
}

}  // namespace
}  // namespace warmset_tools

int main(int argc, char** argv) {
  warmset_tools::tell_closed_pipes();
  return warmset_tools::tool_main("warmset-replay", &warmset_tools::main_of, argc, argv);
}
