// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "decode.hpp"
#include "nodes.hpp"
#include "report.hpp"
#include "routes.hpp"

namespace {

void usage() {
  std::puts(
      "usage: warmset_bench_gpu [nodes | decode]... [--traces FOLDER] [--model NAME] [--resident P%] [--dense MIB]\n"
      "                         [--steps N] [--pairs N] [--recall P%] [--json FILE]\n\n"
      "Measures on the GPU of this machine: `nodes` what one step costs inside a graph, `decode` a decode loop with the\n"
      "shapes of real models and the routes of recorded traces (`warmset-replay convert` writes them). Without a name both.\n\n"
      "  --traces FOLDER  has qwen.wst, gptoss.wst and tinymoe.wst (default: build/gpu-traces)\n"
      "  --model NAME     one of qwen3-30b-a3b, qwen3-next-80b-a3b, gpt-oss-120b, olmoe-1b-7b-0924 (default: all)\n"
      "  --resident P%    part of each layer's experts that has a slot (default 25%)\n"
      "  --dense MIB      weights of each layer that are no experts, in MiB (default 8)\n"
      "  --steps N        decode steps of each mode (default 120, or what the trace has)\n"
      "  --pairs N        rounds in which no look-ahead and widths 4, 8 and 16 take turns (default 30; 0: none)\n"
      "  --recall P%      of what stands for a look-ahead (default 80%)\n"
      "  --json FILE      writes all figures there as well");
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

int run(int argc, char** argv) {
  bool nodes = false, decode = false;
  std::string traces = "build/gpu-traces", model, json;
  gpu_bench::decode_options o;
  for (int i = 1; i < argc; ++i) {
    std::string const word = argv[i];
    if (word == "nodes") {
      nodes = true;
    } else if (word == "decode") {
      decode = true;
    } else if (word == "-h" || word == "--help") {
      usage();
      return 0;
    } else if (word == "--traces" || word == "--model" || word == "--resident" || word == "--dense" || word == "--steps" ||
               word == "--pairs" || word == "--recall" || word == "--json") {
      if (i + 1 == argc) {
        return fail(word + " needs a value");
      }
      std::string const value = argv[++i];
      char* end = nullptr;
      double const number = std::strtod(value.c_str(), &end);
      bool const is_percent = word == "--resident" || word == "--recall";
      bool const is_number = end != value.c_str() && (*end == '\0' || (is_percent && std::strcmp(end, "%") == 0));
      if (word == "--traces") {
        traces = value;
      } else if (word == "--model") {
        model = value;
      } else if (word == "--json") {
        json = value;
      } else if (!is_number || !(number > 0 || (word == "--pairs" && number == 0)) || (is_percent && number > 100) || number > 1e6) {
        return fail(word + " is '" + value + "', not a number that makes sense there");
      } else if (word == "--resident") {
        o.resident = number / 100;
      } else if (word == "--recall") {
        o.recall = number / 100;
      } else if (word == "--pairs") {
        o.pairs = static_cast<warmset::u32>(number);
      } else if (word == "--dense") {
        o.dense_bytes = static_cast<warmset::u64>(number * 1048576) / 16 * 16;
      } else {
        o.most_steps = static_cast<warmset::u32>(number);
      }
    } else {
      usage();
      return fail("unknown word '" + word + "'");
    }
  }
  if (!nodes && !decode) {
    nodes = decode = true;
  }
  if (!gpu_bench::has_gpu()) {
    std::puts("skipped: no GPU");
    return 0;
  }
  gpu_bench::report out;
  if (nodes) {
    gpu_bench::measure_nodes(out);
  }
  if (decode) {
    double product = 1;
    double best_with_slack = 0;
    int n = 0;
    for (shape const& s : shapes) {
      if (model.empty() || model == s.model) {
        gpu_bench::model_routes const m = gpu_bench::read_routes(s.model, traces + "/" + s.trace, o.most_steps);
        if (m.n_steps <= o.warm_up + 4) {
          return fail(traces + "/" + s.trace + " has " + std::to_string(m.n_steps) + " decode steps, too few");
        }
        gpu_bench::decode_figures const f = gpu_bench::measure_decode(out, m, o);
        product *= f.against_practice;
        best_with_slack = std::max(best_with_slack, f.best_with_slack);
        ++n;
      }
    }
    if (n == 0) {
      return fail("'" + model + "' is no model of this benchmark; see --help");
    }
    out.add({"common practice / best bundle, geometric mean", std::pow(product, 1.0 / n), "x", 1.1, false});
    if (o.pairs != 0) {
      out.add({"look-ahead where there is slack, best width of the best model", best_with_slack, "x", 1.1, false});
    }
  }
  if (!json.empty()) {
    out.write(json.c_str());
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
