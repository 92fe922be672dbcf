// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "file.hpp"
#include "inspect.hpp"
#include "output.hpp"
#include "report.hpp"
#include "run.hpp"
#include "usage_error.hpp"
#include "warmset/trace/decision_log.hpp"

namespace warmset_tools {
namespace {

/// Everything that the command line can say.
struct options {
  std::string trace;
  std::string second;  ///< OUT of convert, B of diff
  std::string policies = "all";
  size_options size;
  std::string phase;
  std::string play = "all";
  std::string sequences = "all";
  std::string order = "auto";
  std::string json_path;
  std::string csv_path;
  std::string log_path;
  time_model time;
  unsigned jobs = 0;
  bool no_oracles = false;
  bool progress = false;
  bool zstd = false;
};

void check_time(time_model const& time) {
  if (!(time.link_gbps > 0 && time.link_gbps <= 1e6)) {
    throw usage_error("--link-gbps must be above 0 and at most 10^6");
  }
  if (!(time.copy_us >= 0 && time.copy_us <= 1e9) ||
      !(time.compute_us >= 0 && time.compute_us <= 1e9)) {
    throw usage_error("--copy-us and --compute-us must lie between 0 and 10^9");
  }
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
  report r{
      trace, choose_played(o.sequences, o.play), o.sequences, ascending, o.time, {}, {}, {}, {},
      {}};
  for (auto const& layer : warmset::trace::count_token_rows(trace.recording, r.played)) {
    for (std::size_t p = 0; p < r.tokens.size(); ++p) {
      r.tokens[p] = std::max(r.tokens[p], layer[p]);
    }
  }
  r.phases = choose_phases(o.phase, r.tokens);
  return r;
}

/// Puts the outputs in their places and the table on the terminal, unless stdout is taken.
void finish(options const& o, outputs& out, report const& r, std::string const& table) {
  for (std::string const& warning : r.warnings) {
    fmt::print(stderr, "warmset-replay: warning: {}\n", warning);
  }
  if (!o.json_path.empty()) {
    out.stage(o.json_path, to_json(r).dump(2) + "\n");
  }
  if (!o.csv_path.empty()) {
    out.stage(o.csv_path, to_csv(r));
  }
  out.commit();
  if (o.json_path != "-" && o.csv_path != "-") {
    fmt::print("{}", table);
  }
}

int replay(options const& o) {
  outputs out;
  out.expect(o.json_path);
  out.expect(o.csv_path);
  out.expect(o.log_path);
  std::vector<chosen_policy> const chosen = choose_policies(o.policies);
  if (!o.log_path.empty() && (chosen.size() != 1 || chosen.front().is_oracle())) {
    throw usage_error("--log needs one policy that is no oracle");
  }
  loaded_trace trace = load_trace(o.trace);
  report r = frame(o, trace);
  std::vector<pool_size> const sizes = choose_sizes(o.size, trace.recording.geometry());
  if (sizes.size() != 1) {
    throw usage_error("replay takes one capacity; sweep takes several");
  }
  std::vector<u32> log;
  run(r, chosen, sizes, {o.jobs, !o.no_oracles, false}, o.log_path.empty() ? nullptr : &log);
  if (!o.log_path.empty()) {
    out.stage(o.log_path, warmset::trace::to_bytes(log));
  }
  finish(o, out, r, to_table(r));
  return 0;
}

int sweep(options const& o) {
  outputs out;
  out.expect(o.json_path);
  out.expect(o.csv_path);
  std::vector<chosen_policy> const chosen = choose_policies(o.policies);
  loaded_trace trace = load_trace(o.trace);
  report r = frame(o, trace);
  std::vector<pool_size> const sizes = choose_sizes(o.size, trace.recording.geometry());
  run(r, chosen, sizes, {o.jobs, !o.no_oracles, o.progress || ::isatty(2) != 0});
  finish(o, out, r, to_matrix(r));
  return 0;
}

int info(options const& o) {
  outputs out;
  out.expect(o.json_path);
  loaded_trace const trace = load_trace(o.trace);
  json const facts = inspect(trace, choose_played(o.sequences, o.play));
  if (!o.json_path.empty()) {
    out.stage(o.json_path, facts.dump(2) + "\n");
  }
  out.commit();
  if (o.json_path != "-") {
    fmt::print("{}", inspection_text(facts));
  }
  return 0;
}

int convert(options const& o) {
  outputs out;
  out.expect(o.second);
  loaded_trace trace = load_trace(o.trace);
  warmset::trace::recording const chosen =
      warmset::trace::select(trace.recording, choose_played(o.sequences, o.play));
  if (chosen.n_events() == 0) {
    throw usage_error("the selection has no event");
  }
  std::vector<std::byte> const bytes = warmset::trace::write_warmset(chosen);
  out.stage(o.second, bytes, o.zstd);
  out.commit();
  if (o.second != "-") {
    fmt::print("{}: {} events of {} layers, {} ids, {} bytes before compression\n", o.second,
               chosen.n_events(), chosen.geometry().layers().size(), chosen.ids().size(),
               bytes.size());
  }
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
  if (auto const parted = warmset::trace::diff(a, b)) {
    fmt::print("{}\n", parted->text);
    return 1;
  }
  fmt::print("the logs say the same: {} records\n", a.n_records());
  return 0;
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
          name += fmt::format("[:{}={}]", parameter_name, p.numbers.*each.member);
        }
      }
    }
    add(name, false);
  }
  add("and the oracles belady, belady_bypass", true);
  return text;
}

void add_played(CLI::App& command, options& o) {
  command.add_option("--sequences", o.sequences, "Sequences to play: all, even, odd, A or A-B")
      ->capture_default_str();
  command.add_option("--play", o.play, "Phases to play: decode, prefill or all")
      ->capture_default_str();
}

void add_replay_options(CLI::App& command, options& o, bool several) {
  command.add_option("trace", o.trace, "A trace in any known layout, plain or zstd")->required();
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
  command
      .add_option("--order", o.order,
                  "Order of a token's ids, which is the order of recency within a step: recorded, "
                  "ascending, or auto: recorded where the trace tells what the recording engine's "
                  "cache did, ascending elsewhere")
      ->capture_default_str();
  command.add_option("--link-gbps", o.time.link_gbps, "Link in 10^9 bytes per second")
      ->capture_default_str();
  command
      .add_option("--copy-us", o.time.copy_us,
                  "Fixed cost of a copy of one bank of one expert, in microseconds")
      ->capture_default_str();
  command
      .add_option("--compute-us", o.time.compute_us,
                  "Compute of one layer for one token, in microseconds")
      ->capture_default_str();
  command.add_flag("--no-oracles", o.no_oracles, "Leave out the distance to the oracles");
  command.add_option("--jobs", o.jobs, "Threads (default: the number of processors)");
  command.add_option("--json", o.json_path,
                     "Write the report as JSON; - is stdout, which then has nothing else");
  command.add_option("--csv", o.csv_path,
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
  replay_command.add_option("--log", o.log_path, "Write the decisions of the one policy, for diff");
  replay_command.footer(known_policies());

  CLI::App& sweep_command =
      *app.add_subcommand("sweep", "Play a trace through policies at several capacities");
  add_replay_options(sweep_command, o, true);
  sweep_command.add_flag("--progress", o.progress,
                         "Show the progress bar even where stderr is no terminal");
  sweep_command.footer(known_policies());

  CLI::App& info_command = *app.add_subcommand("info", "Say what a trace holds");
  info_command.add_option("trace", o.trace, "A trace in any known layout, plain or zstd")
      ->required();
  info_command.add_option("--json", o.json_path, "Write it as JSON; - is stdout");
  add_played(info_command, o);

  CLI::App& convert_command =
      *app.add_subcommand("convert", "Write a trace, or a part of it, in Warmset's own format");
  convert_command.add_option("in", o.trace, "A trace in any known layout, plain or zstd")
      ->required();
  convert_command.add_option("out", o.second, "The file to write; a name in .zst is compressed")
      ->required();
  add_played(convert_command, o);
  convert_command.add_flag("--zstd", o.zstd, "Compress, whatever the name");

  CLI::App& diff_command =
      *app.add_subcommand("diff", "Say where two decision logs part; exit status 1 where they do");
  diff_command.add_option("a", o.trace, "A decision log")->required();
  diff_command.add_option("b", o.second, "Another one")->required();

  try {
    app.parse(argc, argv);
  } catch (CLI::Success const& e) {
    return app.exit(e);
  } catch (CLI::ParseError const& e) {
    throw usage_error(e.what());
  }
  if (replay_command.parsed()) {
    return replay(o);
  }
  if (sweep_command.parsed()) {
    return sweep(o);
  }
  if (info_command.parsed()) {
    return info(o);
  }
  if (convert_command.parsed()) {
    return convert(o);
  }
  return diff(o);
}

}  // namespace
}  // namespace warmset_tools

int main(int argc, char** argv) {
  std::string what;
  try {
    return warmset_tools::main_of(argc, argv);
  } catch (std::bad_alloc const&) {
    what = "out of memory";
  } catch (std::exception const& e) {
    what = e.what();
  }
  std::replace(what.begin(), what.end(), '\n', ' ');
  fmt::print(stderr, "warmset-replay: error: {}\n", what);
  return 2;
}
