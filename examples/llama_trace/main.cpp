// SPDX-License-Identifier: Apache-2.0
//
// Records which experts a Mixture-of-Experts model in llama.cpp chooses, through its evaluation callback alone.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <warmset/core/config.hpp>
#include <warmset/trace/write_warmset.hpp>

#include "../common/output.hpp"
#include "../common/progress.hpp"
#include "../common/tool_main.hpp"
#include "../common/usage_error.hpp"
#include "recorder.hpp"

namespace warmset_llama {
namespace {

struct options {
  text_options text;
  std::string out;
  bool weights = false;
  bool cost = false;
  bool progress = false;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run(options& o) {
  o.text.check();
  warmset_tools::outputs out;
  out.keep(o.text.model, "the model");
  for (std::string const& path : o.text.texts) {
    out.keep(path, "a text");
  }
  out.keep(o.text.tokens_path, "the file of --tokens");
  out.expect(o.out);
  model const m(o.text.model);
  std::vector<sequence> const sequences = read_sequences(o.text, m);
  std::vector<expert_layer> const layers = learn_layers(m, o.text.threads);
  recorder writer(layers, o.weights);
  context::options how{longest(sequences), std::min(o.text.batch, longest(sequences)),
                       o.text.threads, &writer};
  std::size_t const passes = count_decodes(sequences, o.text.batch);
  double seconds = 0;
  std::vector<std::string> generated;
  {
    context c(m, how);
    warmset_tools::progress_bar bar(o.progress || ::isatty(2) != 0, passes);
    listeners who;
    who.before = [&](pass const& p) { writer.begin(p); };
    who.after = [&](pass const& p, context const&) {
      writer.end(p);
      bar.advance();
    };
    auto const start = std::chrono::steady_clock::now();
    generated = compute(m, c, sequences, o.text, who);
    seconds = seconds_since(start);
  }
  warmset::trace::recording const trace = writer.take(m.name(), sequences);
  out.stage(o.out, warmset::trace::write_warmset(trace));
  if (o.out != "-") {
    std::string text =
        fmt::format("{}: {} events of {} layers, {} ids, {} sequences\n", o.out, trace.n_events(),
                    layers.size(), trace.ids().size(), sequences.size());
    text += fmt::format(
        "{:.2f} s, in which the evaluation was stopped and waited for {} times: no benchmark\n",
        seconds, writer.stops());
    if (o.cost) {
      how.listener = nullptr;
      context c(m, how);
      auto const start = std::chrono::steady_clock::now();
      (void)compute(m, c, sequences, o.text, {});
      double const plain = seconds_since(start);
      text += fmt::format("{:.2f} s without recording: recording takes {:.2f} times as long\n", plain,
                          seconds / plain);
    }
    out.stage("-", text);
  }
  out.commit();
  return 0;
}

int main_of(int argc, char** argv) {
  options o;
  CLI::App app("Records the routing of a Mixture-of-Experts model in llama.cpp as a Warmset trace.",
               "warmset-llama-trace");
  app.set_version_flag("--version", fmt::format("warmset-llama-trace {}.{}.{}", WARMSET_VERSION_MAJOR,
                                                WARMSET_VERSION_MINOR, WARMSET_VERSION_PATCH));
  o.text.add_to(app);
  app.add_option("-o,--out", o.out,
                 "The trace to write; a name in .zst is compressed; - is stdout, which then has "
                 "nothing else")
      ->required();
  app.add_flag("--weights", o.weights,
               "Record the routers' weights too; one more stop in every layer");
  app.add_flag("--cost", o.cost, "Compute everything a second time without recording, and say what "
                                 "recording costs");
  app.add_flag("--progress", o.progress, "Show the progress bar even where stderr is no terminal");
  app.footer("What it costs: llama.cpp computes up to each layer's last product, waits for the device and hands over the "
             "ids. That wait, and the parts that a graph is cut into, make a recorded run slower than others: its times "
             "mean nothing. Its routes do: on a CPU the logits are those of an unrecorded run, bit by bit.");
  try {
    app.parse(argc, argv);
  } catch (CLI::Success const& e) {
    return app.exit(e);
  } catch (CLI::ParseError const& e) {
    throw warmset_tools::usage_error(e.what());
  }
  return run(o);
}

}  // namespace
}  // namespace warmset_llama

int main(int argc, char** argv) {
  warmset_tools::tell_closed_pipes();
  return warmset_tools::tool_main("warmset-llama-trace", &warmset_llama::main_of, argc, argv);
}
