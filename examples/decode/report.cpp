// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <warmset/observe/export_json.hpp>
#include <warmset/observe/export_log.hpp>

namespace warmset_decode {

using namespace warmset;
using json = nlohmann::ordered_json;

namespace {

double per(double part, double whole) {
  return whole == 0 ? 0 : part / whole;
}

template <class Write>
std::string written(Write&& write) {
  std::string text;
  write([&text](char const* part, std::size_t n) { text.append(part, n); });
  return text;
}

export_source<total_span> source_of(run_facts const& run) {
  bool const hints = run.options.width != 0;
  return {run.report.counters, &run.report.health, hints ? &run.tools.made() : nullptr, {}, false};
}

json rates_of(warmset::recall_counts const& c) {
  return {{"precision", c.precision()}, {"coverage", c.recall()}, {"chance", c.chance()}};
}

/// Over all layers that a prediction can be for.
warmset::recall_counts sum_of(recall const& r, u32 n_layers) {
  warmset::recall_counts sum{};
  for (phase const p : {phase::prefill, phase::decode}) {
    for (u32 row = 0; row < n_layers; ++row) {
      if (r.total(row, p).predicted.value != 0) {
        sum += r.total(row, p);
      }
    }
  }
  return sum;
}

}  // namespace

std::string hash_text(u64 hash) {
  return fmt::format("{:016x}", hash);
}

std::string to_json(run_facts const& run) {
  device_report const& r = run.report;
  u32 const n_layers = run.of.numbers.layers;
  total_counters const sum = r.counters.sum();
  json out = {
      {"format", "warmset-decode"},
      {"version", 1},
      {"model", run.of.name},
      {"device", run.options.device},
      {"slots", run.options.slots},
      {"lookahead", run.options.width},
      {"predictor", run.options.predictor},
      {"retention",
       run.options.retention == nullptr ? json() : json(run.options.retention->name())},
      {"prompt", run.prompt},
      {"prompt_tokens", run.prompt_tokens},
      {"tokens", run.made.tokens},
      {"text", run.text},
      {"logits_hash", run.made.decode_steps == 0 ? json() : json(hash_text(run.made.logits_hash))},
      {"prompt_seconds", run.made.prompt_seconds},
      {"decode_seconds", run.made.decode_seconds},
      {"hit_rate", sum.hit_rate()},
      {"link_bytes", sum.link_bytes().value},
      {"speculation",
       {{"possible_steps", r.possible},
        {"produced_steps", r.produced},
        {"hints", r.hints},
        {"loads", r.loads},
        {"used", r.judged.used},
        {"wasted", r.judged.wasted},
        {"regretted", r.judged.regretted},
        {"governor", run.options.governed ? gate::name_of(r.governor) : "off"},
        {"governor_stops", r.governor_stops}}},
      {"virtual_time", {{"stall_ns", r.stall_ns}, {"compute_ns", r.compute_ns}}},
      {"copies_failed", r.copies_failed},
      {"expert_reads", r.reads},
      {"health", {{"state", name_of(r.health.state)}, {"reason", name_of(r.health.why)}}},
  };
  if (!run.tools.widths().empty()) {
    json all = json::array();
    for (std::size_t i = 0; i < run.tools.widths().size(); ++i) {
      json one = rates_of(sum_of(run.tools.recall_at(i), n_layers));
      one["width"] = run.tools.widths()[i];
      json layers = json::array();
      for (u32 row = 0; row < n_layers; ++row) {
        warmset::recall_counts c = run.tools.recall_at(i).total(row, phase::decode);
        c += run.tools.recall_at(i).total(row, phase::prefill);
        if (c.predicted.value != 0) {
          json rates = rates_of(c);
          rates["layer"] = row;
          layers.push_back(rates);
        }
      }
      one["layers"] = layers;
      all.push_back(one);
    }
    out["recall"] = all;
  }
  out["counters"] = json::parse(written([&](auto&& sink) { write_json(source_of(run), sink); }));
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string log_line(run_facts const& run) {
  return written([&](auto&& sink) { write_log_line(source_of(run), sink); });
}

std::string health_text(device_report const& report) {
  health_report const& h = report.health;
  std::string text = fmt::format("health: {}", name_of(h.state));
  if (h.why != reason::none) {
    text += fmt::format(" ({})", name_of(h.why));
  }
  text += fmt::format(", since step {} of {}\n", h.since_step, h.step);
  for (u32 i = 0; i < n_health_conditions; ++i) {
    condition_report const& c = h.conditions[i];
    if (c.raised) {
      text += fmt::format("  {}: {}{}{}, {} of {}\n", name_of(static_cast<health_condition>(i)),
                          name_of(c.why), c.cause != reason::none ? " by " : "",
                          c.cause != reason::none ? name_of(c.cause) : "", c.count, c.of);
    }
  }
  return text;
}

std::string recall_table(instruments const& tools, u32 n_layers) {
  std::string text = "look-ahead, precision / coverage of the experts used\n  width ";
  std::vector<u32> rows;
  auto const counts = [&](std::size_t i, u32 row) {
    warmset::recall_counts c = tools.recall_at(i).total(row, phase::decode);
    c += tools.recall_at(i).total(row, phase::prefill);
    return c;
  };
  for (u32 row = 0; row < n_layers; ++row) {
    if (!tools.widths().empty() && counts(tools.widths().size() - 1, row).predicted.value != 0) {
      rows.push_back(row);
      text += fmt::format("   layer {:<3}", row);
    }
  }
  text += "   all\n";
  for (std::size_t i = 0; i < tools.widths().size(); ++i) {
    text += fmt::format("  {:>5} ", tools.widths()[i]);
    for (u32 row : rows) {
      warmset::recall_counts const c = counts(i, row);
      text += fmt::format("  {:.3f}/{:.3f}", c.precision(), c.recall());
    }
    warmset::recall_counts const all = sum_of(tools.recall_at(i), n_layers);
    text += fmt::format("  {:.3f}/{:.3f}\n", all.precision(), all.recall());
  }
  return text;
}

std::string phase_text(phase_table const& times) {
  if (!times.on()) {
    return fmt::format("no phase table: {}\n", times.note());
  }
  phase_times const& sum = times.sum();
  double const steps = static_cast<double>(times.steps().value);
  std::string text =
      fmt::format("a forward pass took {:.1f} us, mean of {}:",
                  per(static_cast<double>(sum.step.value), steps) / 1000, times.steps().value);
  for (u32 r = 0; r < n_time_rows; ++r) {
    double const ns = static_cast<double>(sum.rows[r].value);
    text += fmt::format("{} {} {:.1f} us ({:.0f} %)", r == 0 ? "" : ",",
                        name_of(static_cast<time_row>(r)), per(ns, steps) / 1000,
                        100 * per(ns, static_cast<double>(sum.step.value)));
  }
  return text + "\n";
}

std::string arms_table(std::span<arm const> arms) {
  std::string text = fmt::format("{:<42} {:>16} {:>7} {:>8} {:>8} {:>7}\n", "experts served from",
                                 "hash of logits", "hit %", "hints", "loads", "failed");
  for (arm const& a : arms) {
    text += fmt::format("{:<42} {:>16} {:>7.1f} {:>8} {:>8} {:>7}\n", a.name,
                        hash_text(a.made.logits_hash), 100 * a.report.counters.sum().hit_rate(),
                        a.report.hints, a.report.loads, a.report.copies_failed);
  }
  return text;
}

}  // namespace warmset_decode
