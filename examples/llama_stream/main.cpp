// SPDX-License-Identifier: Apache-2.0
//
// Runs a Mixture-of-Experts model in an unpatched llama.cpp whose experts are served from a Warmset pool.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <warmset/core/config.hpp>

#include "../common/arguments.hpp"
#include "../common/output.hpp"
#include "../common/progress.hpp"
#include "../common/tool_main.hpp"
#include "../common/usage_error.hpp"
#include "run.hpp"

namespace warmset_llama {
namespace {

using json = nlohmann::ordered_json;
using warmset_tools::usage_error;

struct options {
  text_options text;
  std::string slots = "25%";
  std::string policy = "successor";
  std::string json_path;
  u32 repeat = 1;
  bool check = false;
  bool progress = false;
};

/// Slots per layer. Throws usage_error where a token's experts do not fit.
u32 slots_of(options const& o, std::vector<expert_layer> const& layers) {
  u32 least = warmset::u32_max;
  u32 k = 0;
  for (expert_layer const& l : layers) {
    least = std::min(least, l.n_experts);
    k = std::max(k, l.k);
  }
  u32 const slots = warmset_tools::slots_of(o.slots, least);
  if (slots < k) {
    throw usage_error(fmt::format(
        "--slots {}: {} slots are fewer than the k = {} experts of one token", o.slots, slots, k));
  }
  return slots;
}

/// Runs of the three ways.
struct arms {
  run_result stock;
  run_result idle;
  run_result pool;
  bool is_equal = true;
};

/// The fastest run of each way; the ways take turns, so that what else the machine does meets all of them.
arms run_arms(model const& m, std::vector<expert_layer> const& layers,
              std::vector<sequence> const& all, options const& o, pool_options const& pool,
              std::function<void()> const& on_pass) {
  arms a;
  auto const take = [&](run_result& best, way how, u32 round) {
    run_result r = run_once(m, layers, all, o.text, how, pool, true, on_pass);
    if (how != way::stock) {
      a.is_equal = a.is_equal && r.logits.size() == a.stock.logits.size() &&
                   std::memcmp(r.logits.data(), a.stock.logits.data(),
                               r.logits.size() * sizeof(float)) == 0;
    }
    if (round != 0) {
      r.seconds = {std::min(r.seconds[0], best.seconds[0]), std::min(r.seconds[1], best.seconds[1])};
      r.cpu_seconds = std::min(r.cpu_seconds, best.cpu_seconds);
    }
    best = std::move(r);
  };
  for (u32 round = 0; round < o.repeat; ++round) {
    take(a.stock, way::stock, round);
    take(a.idle, way::idle, round);
    take(a.pool, way::pool, round);
  }
  return a;
}

json to_json(run_result const& r) {
  json j;
  for (warmset::phase p : {warmset::phase::prefill, warmset::phase::decode}) {
    std::size_t const i = static_cast<std::size_t>(p);
    char const* const name = i == 0 ? "prefill" : "decode";
    j[name]["tokens"] = r.tokens[i];
    j[name]["seconds"] = r.seconds[i];
    j[name]["demanded"] = r.counters[i].demanded.value;
    j[name]["hits"] = r.counters[i].hits().value;
    j[name]["hit_rate"] = r.counters[i].hit_rate();
  }
  j["hit_rate"] = r.hit_rate();
  j["served_steps"] = r.served_steps;
  j["overflow_steps"] = r.overflow_steps;
  j["bytes_copied"] = r.bytes_copied;
  j["pool_bytes"] = r.pool_bytes;
  return j;
}

std::string summary(run_result const& r, u32 slots, u32 experts, std::string const& policy) {
  auto const mib = [](u64 bytes) { return static_cast<double>(bytes) / 1048576.0; };
  u64 const tokens = r.tokens[0] + r.tokens[1];
  return fmt::format(
      "{} of {} experts of a layer in slots, {:.2f} MiB, policy {}\n"
      "{} steps served from slots, {} overflow steps read in place\n"
      "hit rate {:.4f} (prefill {:.4f}, decode {:.4f}); {:.2f} MiB copied, {:.4f} MiB a token\n",
      slots, experts, mib(r.pool_bytes), policy, r.served_steps, r.overflow_steps, r.hit_rate(),
      r.counters[0].hit_rate(), r.counters[1].hit_rate(), mib(r.bytes_copied),
      mib(r.bytes_copied) / static_cast<double>(std::max<u64>(tokens, 1)));
}

int run(options& o) {
  o.text.check();
  if (o.repeat == 0 || o.repeat > 1000) {
    throw usage_error(fmt::format("--repeat: {} is not between 1 and 1000", o.repeat));
  }
  warmset_tools::outputs out;
  out.keep(o.text.model, "the model");
  for (std::string const& path : o.text.texts) {
    out.keep(path, "a text");
  }
  out.keep(o.text.tokens_path, "the file of --tokens");
  out.expect(o.json_path);
  model const m(o.text.model);
  std::vector<sequence> const sequences = read_sequences(o.text, m);
  std::vector<expert_layer> const layers = learn_layers(m, o.text.threads);
  pool_options const pool{o.policy, slots_of(o, layers)};
  (void)make_pool(pool.policy, geometry_of(layers), pool.slots);  // errors before the work

  std::size_t const passes = count_decodes(sequences, o.text.batch) * (o.check ? 3 * o.repeat : 1);
  arms a;
  {
    warmset_tools::progress_bar bar(o.progress || ::isatty(2) != 0, passes);
    auto const on_pass = [&] { bar.advance(); };
    if (o.check) {
      a = run_arms(m, layers, sequences, o, pool, on_pass);
    } else {
      a.pool = run_once(m, layers, sequences, o.text, way::pool, pool, false, on_pass);
    }
  }
  std::string text;
  for (std::size_t i = 0; i < o.text.prompts.size() && !o.check; ++i) {
    text += o.text.prompts[i] + a.pool.texts[i] + "\n";
  }
  text += summary(a.pool, pool.slots, layers.front().n_experts, pool.policy);
  json j{{"format", "warmset-llama-stream"},
         {"model", m.name()},
         {"policy", pool.policy},
         {"slots", pool.slots},
         {"threads", o.text.threads}};
  j["pool"] = to_json(a.pool);
  if (o.check) {
    double const stock = a.stock.total_seconds();
    double const idle = a.idle.total_seconds();
    double const own = a.pool.total_seconds();
    j["check"] = {{"logits_equal", a.is_equal},
                  {"rows", a.stock.logits.size() / m.vocabulary()},
                  {"seconds", {{"stock", stock}, {"idle_callback", idle}, {"pool", own}}},
                  {"cpu_seconds",
                   {{"stock", a.stock.cpu_seconds},
                    {"idle_callback", a.idle.cpu_seconds},
                    {"pool", a.pool.cpu_seconds}}},
                  {"speed", {{"pool_to_idle_callback", idle / own}, {"pool_to_stock", stock / own}}}};
    text += fmt::format("logits of {} rows: {}\n", a.stock.logits.size() / m.vocabulary(),
                        a.is_equal ? "byte-identical to stock llama.cpp" : "NOT those of stock llama.cpp");
    text += fmt::format(
        "{:.3f} s; stock {:.3f} s, stock with an idle callback {:.3f} s: speed {:.2f} of that, {:.2f} of stock\n",
        own, stock, idle, idle / own, stock / own);
    text += fmt::format("CPU time {:.3f} s; {:.3f} s, {:.3f} s: {:.2f}, {:.2f}\n", a.pool.cpu_seconds,
                        a.stock.cpu_seconds, a.idle.cpu_seconds,
                        a.idle.cpu_seconds / a.pool.cpu_seconds,
                        a.stock.cpu_seconds / a.pool.cpu_seconds);
  }
  if (!a.pool.is_sound) {
    throw engine_error("an invariant of the pool is broken");
  }
  if (!o.json_path.empty()) {
    out.stage(o.json_path, j.dump(2) + "\n");
  }
  if (o.json_path != "-") {
    out.stage("-", text);
  }
  out.commit();
  return a.is_equal ? 0 : 1;
}

int main_of(int argc, char** argv) {
  options o;
  CLI::App app("Runs a Mixture-of-Experts model in an unpatched llama.cpp on the CPU; its experts come out of a Warmset "
               "pool of N slots per layer.",
               "warmset-llama-stream");
  app.set_version_flag("--version", fmt::format("warmset-llama-stream {}.{}.{}", WARMSET_VERSION_MAJOR,
                                                WARMSET_VERSION_MINOR, WARMSET_VERSION_PATCH));
  o.text.add_to(app);
  app.add_option("--slots", o.slots, "Slots per layer: N, or P% of a layer's experts; at least k")
      ->capture_default_str();
  app.add_option("--policy", o.policy, "What decides which expert leaves a slot")
      ->capture_default_str();
  app.add_flag("--check", o.check,
               "Run stock llama.cpp too, and with a callback that does nothing; compare all logits and times; exit "
               "status 1 where logits differ");
  app.add_option("--repeat", o.repeat, "With --check: runs of each, of which the fastest counts")
      ->capture_default_str();
  app.add_option("--json", o.json_path,
                 "Write figures as JSON; - is stdout, which then has nothing else");
  app.add_flag("--progress", o.progress, "Show the progress bar even where stderr is no terminal");
  app.footer(fmt::format(
      "Policies: {}\nA step with more distinct experts than slots, such as a prompt's, is an overflow step: it reads the mapped "
      "file in place and changes nothing in the pool.",
      fmt::join(pool_policies(), ", ")));
  try {
    app.parse(argc, argv);
  } catch (CLI::Success const& e) {
    return app.exit(e);
  } catch (CLI::ParseError const& e) {
    throw usage_error(e.what());
  }
  return run(o);
}

}  // namespace
}  // namespace warmset_llama

int main(int argc, char** argv) {
  warmset_tools::tell_closed_pipes();
  return warmset_tools::tool_main("warmset-llama-stream", &warmset_llama::main_of, argc, argv);
}
