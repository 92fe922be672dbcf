// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "decode.hpp"
#include "nodes.hpp"
#include "report.hpp"
#include "routes.hpp"

namespace {

void usage() {
  std::puts(
      "usage: warmset_bench_gpu [nodes | decode]... [--traces FOLDER] [--model NAME]... [--resident P%] [--dense MIB]\n"
      "                         [--steps N] [--pairs N] [--pair-seconds S] [--recall P%] [--json FILE] [--strict]\n\n"
      "Measures on the GPU of this machine: `nodes` what one step costs inside a graph, `decode` a decode loop with the\n"
      "shapes of real models and the routes of recorded traces (`warmset-replay convert` writes them). Without a name both.\n\n"
      "  --traces FOLDER  has qwen.wst, gptoss.wst and tinymoe.wst (default: build/gpu-traces)\n"
      "  --model NAME     one of qwen3-30b-a3b, qwen3-next-80b-a3b, gpt-oss-120b, olmoe-1b-7b-0924 (default: all);\n"
      "                   may be given several times\n"
      "  --resident P%    part of each layer's experts that has a slot (default 25%)\n"
      "  --dense MIB      weights of each layer that are no experts, in MiB (default 8)\n"
      "  --steps N        decode steps of each mode, of which the first 24 are not timed (at least 29; default 120, or what\n"
      "                   the trace has)\n"
      "  --pairs N        rounds in which no look-ahead and widths 4, 8 and 16 take turns, at most (default 30; 0: none)\n"
      "  --pair-seconds S no round of a table of pairs begins after so long, but for the first three; a model has two such\n"
      "                   tables (default 100)\n"
      "  --recall P%      of what stands for a look-ahead (default 80%)\n"
      "  --json FILE      writes all figures there as well, anew after each part of a model: what a later failure or a time\n"
      "                   limit ends has its figures there\n"
      "  --strict         exit status 1 where a bound does not hold; without it such a bound is only printed\n\n"
      "Exit status 0 where everything was measured, and without a GPU; 1 after an error.");
}

struct shape {
  char const* model;
  char const* trace;
};
constexpr shape shapes[] = {{"qwen3-30b-a3b", "qwen.wst"},
                            {"qwen3-next-80b-a3b", "qwen.wst"},
                            {"gpt-oss-120b", "gptoss.wst"},
                            {"olmoe-1b-7b-0924", "tinymoe.wst"}};

int fail(std::string const& what) {
  std::fprintf(stderr, "error: %s\n", what.c_str());
  return 1;
}

struct arguments {
  bool nodes = false;
  bool decode = false;
  bool is_strict = false;
  std::string traces = "build/gpu-traces";
  std::vector<std::string> models;
  std::string json;
  gpu_bench::decode_options o;

  bool wants(char const* model) const {
    return models.empty() || std::find(models.begin(), models.end(), model) != models.end();
  }
};

void measure(gpu_bench::report& out, arguments const& a) {
  if (a.nodes) {
    gpu_bench::measure_nodes(out);
    out.save();
  }
  if (!a.decode) {
    return;
  }
  double product = 1;
  double best_with_slack = 0;
  int n = 0;
  for (shape const& s : shapes) {
    if (a.wants(s.model)) {
      std::string const trace = a.traces + "/" + s.trace;
      gpu_bench::model_routes const m = gpu_bench::read_routes(s.model, trace, a.o.most_steps);
      if (m.n_steps < a.o.least_steps()) {
        throw std::runtime_error(trace + " has " + std::to_string(m.n_steps) + " decode steps, too few");
      }
      gpu_bench::decode_figures const f = gpu_bench::measure_decode(out, m, a.o);
      out.save();
      product *= f.against_practice;
      best_with_slack = std::max(best_with_slack, f.best_with_slack);
      ++n;
    }
  }
  out.add({"common practice / best bundle, geometric mean", std::pow(product, 1.0 / n), "x", 1.1, false});
  if (a.o.pairs != 0) {
    out.add({"look-ahead where there is slack, best width of the best model", best_with_slack, "x", 1.1, false});
  }
  out.save();
}

int run(int argc, char** argv) {
  arguments a;
  gpu_bench::decode_options& o = a.o;
  for (int i = 1; i < argc; ++i) {
    std::string const word = argv[i];
    if (word == "nodes") {
      a.nodes = true;
    } else if (word == "decode") {
      a.decode = true;
    } else if (word == "--strict") {
      a.is_strict = true;
    } else if (word == "-h" || word == "--help") {
      usage();
      return 0;
    } else if (word == "--traces" || word == "--model" || word == "--resident" || word == "--dense" || word == "--steps" ||
               word == "--pairs" || word == "--pair-seconds" || word == "--recall" || word == "--json") {
      if (i + 1 == argc) {
        return fail(word + " needs a value");
      }
      std::string const value = argv[++i];
      char* end = nullptr;
      double const number = std::strtod(value.c_str(), &end);
      bool const is_percent = word == "--resident" || word == "--recall";
      bool const is_number = end != value.c_str() && (*end == '\0' || (is_percent && std::strcmp(end, "%") == 0));
      if (word == "--traces") {
        a.traces = value;
      } else if (word == "--model") {
        if (std::none_of(std::begin(shapes), std::end(shapes), [&](shape const& s) { return value == s.model; })) {
          return fail("'" + value + "' is no model of this benchmark; see --help");
        }
        a.models.push_back(value);
      } else if (word == "--json") {
        a.json = value;
      } else if (!is_number || !(number > 0 || (word == "--pairs" && number == 0)) || (is_percent && number > 100) || number > 1e6) {
        return fail(word + " is '" + value + "', not a number that makes sense there");
      } else if (word == "--resident") {
        o.resident = number / 100;
      } else if (word == "--recall") {
        o.recall = number / 100;
      } else if (word == "--pairs") {
        o.pairs = static_cast<warmset::u32>(number);
      } else if (word == "--pair-seconds") {
        o.pair_seconds = number;
      } else if (word == "--dense") {
        o.dense_bytes = static_cast<warmset::u64>(number * 1048576) / 16 * 16;
      } else {
        o.most_steps = static_cast<warmset::u32>(number);
        if (o.most_steps < o.least_steps()) {
          return fail("--steps is " + value + ", and at least " + std::to_string(o.least_steps()) +
                      " are needed: the first " + std::to_string(o.warm_up) + " are not timed");
        }
      }
    } else {
      usage();
      return fail("unknown word '" + word + "'");
    }
  }
  if (!a.nodes && !a.decode) {
    a.nodes = a.decode = true;
  }
  if (!gpu_bench::has_gpu()) {
    std::puts("skipped: no GPU");
    return 0;
  }
  gpu_bench::report out(a.json);
  try {
    measure(out, a);
  } catch (std::exception const& e) {
    int const status = fail(e.what());
    out.save();  // what has been measured before
    return status;
  }
  if (a.is_strict && out.n_failed() != 0) {
    return fail(std::to_string(out.n_failed()) + " bounds do not hold");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (std::exception const& e) {
    return fail(e.what());
  }
}
