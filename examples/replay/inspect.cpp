// SPDX-License-Identifier: Apache-2.0
#include "inspect.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include <fmt/format.h>

namespace warmset_tools {

using warmset::layer_geometry;

namespace {

/// Smallest value that at least `share` of the counted values do not exceed.
u64 quantile(std::map<u64, u64> const& histogram, u64 total, double share) {
  u64 seen = 0;
  for (auto const& [value, n] : histogram) {
    seen += n;
    if (static_cast<double>(seen) >= share * static_cast<double>(total)) {
      return value;
    }
  }
  return 0;
}

u64 count_distinct(std::span<warmset::u32 const> values) {
  std::vector<warmset::u32> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return static_cast<u64>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
}

double ratio(u64 part, u64 of) {
  return of == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(of);
}

}  // namespace

json inspect(loaded_trace const& trace, warmset::trace::selection const& which) {
  warmset::trace::recording const& r = trace.recording;
  std::vector<layer_geometry> const& layers = r.geometry().layers();

  // Steps of the layer since an expert's last use; 0 = never used.
  std::vector<std::vector<u64>> last(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    last[i].assign(layers[i].n_experts, 0);
  }
  std::vector<u64> step(layers.size(), 0);
  u64 lookups = 0, first_uses = 0, previous = 0, again = 0;
  std::map<u64, u64> distance;
  std::map<u64, u64> width;
  warmset::trace::for_each_event(r, which, [&](warmset::trace::event const& e) {
    u64 const now = ++step[e.row];
    u64 n = 0;
    for (warmset::u16 id : e.ids) {
      if (id == warmset::trace::padding || last[e.row][id] == now) {
        continue;
      }
      u64& stamp = last[e.row][id];
      ++n;
      if (stamp == 0) {
        ++first_uses;
      } else {
        ++again;
        ++distance[now - stamp];
        previous += now - stamp == 1 ? 1 : 0;
      }
      stamp = now;
    }
    lookups += n;
    ++width[n];
  });

  json j = describe_trace(trace);
  json groups = json::array();
  for (warmset::geometry_group const& g : r.geometry().groups()) {
    groups.push_back({{"layers", g.layers.size()},
                      {"bank_bytes", g.bank_bytes},
                      {"expert_bytes", g.expert_bytes()},
                      {"max_experts", g.max_experts},
                      {"max_k", g.max_k}});
  }
  j["groups"] = std::move(groups);
  j["sequence_numbers"] = sequence_numbers(r);
  j["columns"] = {{"residency", !r.residency().empty()},
                  {"lookahead_width", r.lookahead_width()},
                  {"weights", !r.weights().empty()},
                  {"tokens", !r.tokens().empty()}};
  j["distinct_tokens"] = r.tokens().empty() ? json(nullptr) : json(count_distinct(r.tokens()));
  json labels = json::object();
  for (warmset::trace::sequence_label const& l : r.labels()) {
    labels[l.label] = labels.value(l.label, 0) + 1;
  }
  j["labels"] = std::move(labels);
  u64 events = 0;
  for (auto const& [n, count] : width) {
    events += count;
  }
  j["step_width"] = {{"median", quantile(width, events, 0.5)},
                     {"max", width.empty() ? 0 : width.rbegin()->first}};
  j["reuse"] = {{"lookups", lookups},
                {"first_uses", first_uses},
                {"hit_rate_bound", ratio(again, lookups)},
                {"in_previous_step", ratio(previous, lookups)},
                {"steps_since_last_use",
                 {{"p50", quantile(distance, again, 0.5)},
                  {"p90", quantile(distance, again, 0.9)},
                  {"p99", quantile(distance, again, 0.99)}}}};
  return j;
}

std::string inspection_text(json const& j) {
  auto const number = [](json const& x) { return x.dump(); };
  auto const range = [&](json const& x) {
    return x["min"] == x["max"] ? number(x["min"]) : number(x["min"]) + " to " + number(x["max"]);
  };
  std::string text;
  auto const line = [&text](char const* name, std::string const& value) {
    text += fmt::format("{:<14} {}\n", name, value);
  };
  line("file", j["file"].get<std::string>());
  line("layout", j["layout"].get<std::string>());
  line("model", j["model"].get<std::string>());
  line("source", j["source"].get<std::string>());
  line("fingerprint", j["fingerprint"].get<std::string>());
  line("geometry",
       fmt::format("{} layers of {} experts, k = {}; {} experts of {} bytes{}, {:.1f} MiB in all",
                   number(j["layers"]), range(j["experts_per_layer"]), range(j["k"]),
                   number(j["experts"]), range(j["expert_bytes"]),
                   j["expert_bytes_assumed"].get<bool>() ? " (assumed)" : "",
                   j["total_bytes"].get<double>() / 1048576.0));
  for (json const& g : j["groups"]) {
    line("  group", fmt::format("{} layers of {} bytes per expert, banks {}", number(g["layers"]),
                                number(g["expert_bytes"]), g["bank_bytes"].dump()));
  }
  line("cycle", fmt::format("{} experts per token", number(j["cycle"])));
  line("sequences", fmt::format("{}: {}", number(j["sequences"]),
                                list_numbers(j["sequence_numbers"].get<std::vector<u32>>())));
  for (auto const& [label, n] : j["labels"].items()) {
    line("  label", fmt::format("{}: {}", label, number(n)));
  }
  for (char const* p : {"prefill", "decode"}) {
    line(p, fmt::format("{} tokens, {} look-ups", number(j["tokens"][p]), number(j["lookups"][p])));
  }
  line("events",
       fmt::format("{}; distinct experts per step: median {}, at most {}", number(j["events"]),
                   number(j["step_width"]["median"]), number(j["step_width"]["max"])));
  line("columns",
       fmt::format("residency {}, look-ahead of {}, weights {}, input tokens {}",
                   j["columns"]["residency"].get<bool>() ? "yes" : "no",
                   number(j["columns"]["lookahead_width"]),
                   j["columns"]["weights"].get<bool>() ? "yes" : "no",
                   j["columns"]["tokens"].get<bool>() ? number(j["distinct_tokens"]) + " distinct"
                                                      : "no"));
  json const& reuse = j["reuse"];
  json const& since = reuse["steps_since_last_use"];
  line("reuse",
       fmt::format(
           "{:.4f} of look-ups are in the layer's previous step; {:.4f} hit without any limit",
           reuse["in_previous_step"].get<double>(), reuse["hit_rate_bound"].get<double>()));
  line("", fmt::format("steps of the layer since the last use: median {}, 90 % {}, 99 % {}",
                       number(since["p50"]), number(since["p90"]), number(since["p99"])));
  return text;
}

}  // namespace warmset_tools
