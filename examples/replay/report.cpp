// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace warmset_tools {

using warmset::layer_geometry;
using warmset::phase;

namespace {

constexpr char const* unit_text =
    "experts: one per distinct expert of a step; a step is one layer of one micro-batch";
constexpr char const* denominator_text =
    "hit_rate = (hits + overflow_hits) / demand_accesses; per token = per token of the phase";

std::string scope_text(report const& r) {
  return fmt::format(
      "{} steps{} of sequences {}, played in recorded order{} from a cold start, state "
      "carried across sequences; {} layers",
      r.tokens[0] != 0 && r.tokens[1] != 0 ? "prefill and decode"
      : r.tokens[0] != 0                   ? "prefill"
                                           : "decode",
      r.flat ? " of one id each" : "", r.sequences,
      r.ascending ? " with ascending ids in each token" : "",
      r.trace.recording.geometry().layers().size());
}

std::size_t index_of(phase p) {
  return static_cast<std::size_t>(p);
}

double per(double amount, u64 n) {
  return n == 0 ? 0.0 : amount / static_cast<double>(n);
}

}  // namespace

counts& counts::operator+=(counts const& o) noexcept {
  demand_accesses += o.demand_accesses;
  hits += o.hits;
  late += o.late;
  installs += o.installs;
  declined += o.declined;
  overflow_hits += o.overflow_hits;
  overflow_misses += o.overflow_misses;
  steps += o.steps;
  overflow_steps += o.overflow_steps;
  evictions += o.evictions;
  wasted += o.wasted;
  bytes_loaded += o.bytes_loaded;
  copies += o.copies;
  layer_tokens += o.layer_tokens;
  hints_offered += o.hints_offered;
  hints_issued += o.hints_issued;
  hints_used += o.hints_used;
  bytes_speculated += o.bytes_speculated;
  return *this;
}

counts outcome_row::of_layer(std::size_t row, std::optional<phase> which) const {
  if (which) {
    return by_layer[row][index_of(*which)];
  }
  counts sum = by_layer[row][0];
  return sum += by_layer[row][1];
}

counts outcome_row::total(std::optional<phase> which) const {
  counts sum;
  for (std::size_t row = 0; row < by_layer.size(); ++row) {
    sum += of_layer(row, which);
  }
  return sum;
}

double outcome_row::stall_ms(time_model const& time, std::optional<phase> which) const {
  if (!hints) {
    return time.stall_ms(total(which));
  }
  u64 const ns =
      which ? hints->stall_ns[index_of(*which)] : hints->stall_ns[0] + hints->stall_ns[1];
  return static_cast<double>(ns) * 1e-6;
}

u64 report::tokens_of(std::optional<phase> which) const {
  return which ? tokens[index_of(*which)] : tokens[0] + tokens[1];
}

bool same_size(pool_size const& a, pool_size const& b) {
  return a.pool == b.pool && a.slots == b.slots && a.budget_bytes == b.budget_bytes;
}

outcome_row const* report::oracle(chosen_policy::kind what, pool_size const& size) const {
  for (outcome_row const& row : oracles) {
    if (row.policy.what == what && same_size(row.size, size)) {
      return &row;
    }
  }
  return nullptr;
}

char const* phase_name(std::optional<phase> p) {
  return !p ? "all" : *p == phase::decode ? "decode" : "prefill";
}

std::string size_name(pool_size const& size) {
  if (size.slots != 0) {
    return std::to_string(size.slots);
  }
  return fmt::format("{:g} MiB", static_cast<double>(size.budget_bytes) / 1048576.0);
}

namespace {

/// A row with what depends on the trace alone filled in from the misses.
void add_transfers(outcome_row& row, loaded_trace const& trace,
                   warmset::trace::selection const& which) {
  auto const token_rows = warmset::trace::count_token_rows(trace.recording, which);
  std::vector<layer_geometry> const& layers = trace.recording.geometry().layers();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    for (std::size_t p = 0; p < warmset::n_phases; ++p) {
      counts& c = row.by_layer[i][p];
      c.bytes_loaded = c.misses() * layers[i].expert_bytes();
      c.copies = c.misses() * layers[i].bank_bytes.size();
      c.layer_tokens = token_rows[i][p];
      c.bytes_speculated = c.hints_issued * layers[i].expert_bytes();
    }
  }
}

}  // namespace

outcome_row row_of(chosen_policy policy, pool_size size, loaded_trace const& trace,
                   warmset::trace::selection const& which,
                   warmset::trace::replay_report const& found) {
  using warmset::access_kind;
  outcome_row row{std::move(policy), size, {}};
  row.by_layer.resize(found.by_layer.size());
  for (std::size_t i = 0; i < found.by_layer.size(); ++i) {
    for (std::size_t p = 0; p < warmset::n_phases; ++p) {
      warmset::total_counters const& from = found.by_layer[i][p].counted;
      counts& c = row.by_layer[i][p];
      c.demand_accesses = from.demanded.value;
      c.hits = from[access_kind::hit].value + from[access_kind::first_use].value;
      c.late = from[access_kind::late].value;
      c.installs = from[access_kind::load].value;
      c.declined = from[access_kind::declined].value;
      c.overflow_hits = from[access_kind::overflow_hit].value;
      c.overflow_misses = from[access_kind::overflow_miss].value;
      c.steps = from.steps.value;
      c.overflow_steps = from.overflow_steps.value;
      c.evictions = from.evicted[0].value + from.evicted[1].value;
      c.wasted = found.by_layer[i][p].wasted;
      c.hints_offered = from.hints_offered.value;
      c.hints_issued = from.issued[static_cast<u32>(warmset::intent::speculative)].value;
      c.hints_used = from.used().value;
    }
  }
  add_transfers(row, trace, which);
  return row;
}

outcome_row row_of(chosen_policy policy, pool_size size, loaded_trace const& trace,
                   warmset::trace::selection const& which, chosen_predictor const& predictor,
                   warmset::trace::speculation const& how,
                   warmset::trace::speculative_report const& found) {
  outcome_row row = row_of(std::move(policy), size, trace, which, found.counts);
  row.hints = {predictor.name, how, found.stall_ns, found.judged, found.governor};
  return row;
}

outcome_row row_of(chosen_policy policy, pool_size size, loaded_trace const& trace,
                   warmset::trace::selection const& which,
                   warmset::trace::oracle_report const& found) {
  outcome_row row{std::move(policy), size, {}};
  row.by_layer.resize(found.by_layer.size());
  for (std::size_t i = 0; i < found.by_layer.size(); ++i) {
    for (std::size_t p = 0; p < warmset::n_phases; ++p) {
      warmset::trace::oracle_counts const& from = found.by_layer[i][p];
      counts& c = row.by_layer[i][p];
      c.demand_accesses = from.lookups();
      c.hits = from.hits;
      c.installs = from.installs;
      c.declined = from.bypasses;
      c.overflow_hits = from.overflow_hits;
      c.overflow_misses = from.overflow_misses;
      c.steps = from.events - from.overflow_events;
      c.overflow_steps = from.overflow_events;
      c.evictions = from.evictions;
    }
  }
  add_transfers(row, trace, which);
  return row;
}

// ---- the trace ------------------------------------------------------------------------------------------------

std::vector<u32> sequence_numbers(warmset::trace::recording const& recording) {
  std::vector<u32> numbers;
  for (warmset::trace::block const& b : recording.blocks()) {
    numbers.push_back(b.sequence);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

std::string list_numbers(std::vector<u32> const& numbers) {
  std::vector<std::string> parts;
  for (auto from = numbers.begin(); from != numbers.end();) {
    auto const gap =
        std::adjacent_find(from, numbers.end(), [](u32 a, u32 b) { return b - a != 1; });
    auto const last = gap == numbers.end() ? gap - 1 : gap;
    parts.push_back(last == from ? std::to_string(*from) : fmt::format("{}-{}", *from, *last));
    from = last + 1;
  }
  constexpr std::size_t most = 5;
  if (parts.size() > most) {
    parts.erase(parts.begin() + most - 2, parts.end() - 1);
    parts.insert(parts.end() - 1, "...");
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

json describe_trace(loaded_trace const& trace) {
  warmset::trace::recording const& r = trace.recording;
  std::vector<layer_geometry> const& layers = r.geometry().layers();
  u32 least_k = warmset::u32_max, most_k = 0, least = warmset::u32_max, most = 0;
  u64 least_bytes = warmset::u64_max, most_bytes = 0, experts = 0;
  for (layer_geometry const& layer : layers) {
    least_k = std::min(least_k, layer.k);
    most_k = std::max(most_k, layer.k);
    least = std::min(least, layer.n_experts);
    most = std::max(most, layer.n_experts);
    least_bytes = std::min(least_bytes, layer.expert_bytes());
    most_bytes = std::max(most_bytes, layer.expert_bytes());
    experts += layer.n_experts;
  }
  u64 tokens[2] = {};
  for (auto const& layer : warmset::trace::count_token_rows(r)) {
    tokens[0] = std::max(tokens[0], layer[0]);
    tokens[1] = std::max(tokens[1], layer[1]);
  }
  warmset::trace::selection prefill, decode;
  prefill.decode = false;
  decode.prefill = false;
  json j;
  j["file"] = trace.path;
  j["layout"] = warmset::trace::name_of(trace.layout);
  j["model"] = r.model();
  j["source"] = r.source();
  j["fingerprint"] = fmt::format("{:016x}", r.geometry().fingerprint());
  j["layers"] = layers.size();
  j["experts_per_layer"] = {{"min", least}, {"max", most}};
  j["k"] = {{"min", least_k}, {"max", most_k}};
  j["experts"] = experts;
  j["expert_bytes"] = {{"min", least_bytes}, {"max", most_bytes}};
  j["expert_bytes_assumed"] = r.expert_bytes_assumed();
  j["total_bytes"] = r.geometry().total_bytes();
  j["geometries"] = r.geometry().groups().size();
  j["cycle"] = r.geometry().cycle();
  j["sequences"] = sequence_numbers(r).size();
  j["events"] = r.n_events();
  j["tokens"] = {{"prefill", tokens[0]}, {"decode", tokens[1]}};
  j["lookups"] = {{"prefill", warmset::trace::count_lookups(r, prefill)},
                  {"decode", warmset::trace::count_lookups(r, decode)}};
  return j;
}

// ---- JSON and CSV ---------------------------------------------------------------------------------------------

namespace {

json or_null(std::optional<double> x) {
  return x ? json(*x) : json(nullptr);
}

json counts_json(counts const& c, bool wasted_is_known, bool has_hints) {
  json j;
  j["demand_accesses"] = c.demand_accesses;
  j["hits"] = c.hits;
  j["hit_rate"] = c.hit_rate();
  j["late"] = c.late;
  j["installs"] = c.installs;
  j["declined"] = c.declined;
  j["overflow_hits"] = c.overflow_hits;
  j["overflow_misses"] = c.overflow_misses;
  j["overflow_steps"] = c.overflow_steps;
  j["steps"] = c.steps;
  j["evictions"] = c.evictions;
  j["wasted_installs"] = wasted_is_known ? json(c.wasted) : json(nullptr);
  j["bytes_loaded"] = c.bytes_loaded;
  for (auto const& [name, value] : {std::pair{"hints_offered", c.hints_offered},
                                    {"hints_issued", c.hints_issued},
                                    {"hints_used", c.hints_used},
                                    {"bytes_speculated", c.bytes_speculated}}) {
    j[name] = has_hints ? json(value) : json(nullptr);
  }
  j["hint_precision"] = has_hints ? or_null(c.hint_precision()) : json(nullptr);
  j["miss_coverage"] = has_hints ? json(c.miss_coverage()) : json(nullptr);
  return j;
}

/// Who played without hints and knows no future has followed its installs to their ends.
bool wasted_is_known(outcome_row const& row) {
  return !row.policy.is_oracle() && !row.hints;
}

/// How hints were played; null in every member where there were none.
json hints_json(outcome_row const& row) {
  json j;
  bool const has = row.hints.has_value();
  bool const governed = has && row.hints->how.governed;
  bool const bounded = has && row.hints->how.bytes_per_step != warmset::u64_max;
  j["predictor"] = has ? json(row.hints->predictor) : json(nullptr);
  j["hint_width"] = has ? json(row.hints->how.width) : json(nullptr);
  j["hint_budget_bytes"] = bounded ? json(row.hints->how.bytes_per_step) : json(nullptr);
  j["governor"] = has ? json(governed ? "on" : "off") : json(nullptr);
  j["governor_state"] =
      governed ? json(warmset::gate::name_of(row.hints->governor.state())) : json(nullptr);
  j["hints_regretted"] = has ? json(row.hints->judged.regretted) : json(nullptr);
  return j;
}

json parameters_json(chosen_policy const& p) {
  json j = json::object();
  if (p.bundle != nullptr) {
    for (parameter const& each : parameters) {
      for (std::string const& name : p.bundle->parameters) {
        if (name == each.name) {
          j[name] = each.of(p.numbers);
        }
      }
    }
  }
  return j;
}

/// Hit rate of an oracle at the row's capacity less the row's own.
std::optional<double> regret(report const& r, outcome_row const& row, std::optional<phase> p,
                             chosen_policy::kind what) {
  outcome_row const* const oracle = r.oracle(what, row.size);
  if (oracle == nullptr) {
    return std::nullopt;
  }
  return oracle->total(p).hit_rate() - row.total(p).hit_rate();
}

/// Capacity as a share of the working set; null where that is not known.
json capacity_to_demand(report const& r, pool_size const& size) {
  if (r.demand.tokens == 0) {
    return nullptr;
  }
  if (size.slots == 0) {
    return per(static_cast<double>(size.budget_bytes), r.demand.bytes);
  }
  u64 slots = 0;
  for (layer_geometry const& layer : r.trace.recording.geometry().layers()) {
    slots += std::min(size.slots, layer.n_experts);
  }
  return per(static_cast<double>(slots), r.demand.experts);
}

/// Times of the plays, of all phases together: the decisions, neither loading nor making the cache.
json timing_json(outcome_row const& row) {
  std::vector<double> seconds = row.seconds;
  std::sort(seconds.begin(), seconds.end());
  counts const c = row.total(std::nullopt);
  double const median = seconds[seconds.size() / 2];
  json j;
  j["plays"] = seconds.size();
  j["seconds_best"] = seconds.front();
  j["seconds_median"] = median;
  j["steps"] = c.steps + c.overflow_steps;
  j["lookups"] = c.demand_accesses;
  j["lookups_per_second"] =
      seconds.front() > 0 ? static_cast<double>(c.demand_accesses) / seconds.front() : 0.0;
  return j;
}

json result_json(report const& r, outcome_row const& row, std::optional<phase> p) {
  std::vector<layer_geometry> const& layers = r.trace.recording.geometry().layers();
  counts const c = row.total(p);
  u64 const tokens = r.tokens_of(p);
  json j;
  j["policy"] = row.policy.name;
  j["parameters"] = parameters_json(row.policy);
  j["pool"] = row.size.pool == pool_kind::shared ? "shared" : "per-layer";
  j["slots"] = row.size.slots != 0 ? json(row.size.slots) : json(nullptr);
  j["slots_total"] =
      row.size.slots != 0 ? json(u64{row.size.slots} * layers.size()) : json(nullptr);
  j["budget_bytes"] = row.size.budget_bytes != 0 ? json(row.size.budget_bytes) : json(nullptr);
  j["capacity_to_demand"] = capacity_to_demand(r, row.size);
  j["phase"] = phase_name(p);
  j["tokens"] = tokens;
  j.update(counts_json(c, wasted_is_known(row), row.hints.has_value()));
  j.update(hints_json(row));
  j["bytes_per_token"] = per(static_cast<double>(c.bytes_loaded), tokens);
  double const stall = row.stall_ms(r.time, p);
  double const compute = r.time.compute_ms(c);
  j["stall_ms"] = stall;
  j["stall_ms_per_token"] = per(stall, tokens);
  j["compute_ms_per_token"] = per(compute, tokens);
  j["stall_share"] = stall + compute == 0 ? 0.0 : stall / (stall + compute);
  j["regret_belady"] = or_null(regret(r, row, p, chosen_policy::kind::belady));
  j["regret_belady_bypass"] = or_null(regret(r, row, p, chosen_policy::kind::belady_bypass));
  if (!row.seconds.empty()) {
    j["timing"] = timing_json(row);
  }
  json per_layer = json::array();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    json one;
    one["layer"] = layers[i].layer.value;
    one.update(counts_json(row.of_layer(i, p), wasted_is_known(row), row.hints.has_value()));
    per_layer.push_back(std::move(one));
  }
  j["per_layer"] = std::move(per_layer);
  return j;
}

}  // namespace

json best_by_capacity(report const& r) {
  json best = json::array();
  if (r.phases.empty()) {
    return best;
  }
  std::vector<pool_size> seen;
  for (outcome_row const& first : r.rows) {
    if (std::any_of(seen.begin(), seen.end(),
                    [&](pool_size const& s) { return same_size(s, first.size); })) {
      continue;
    }
    seen.push_back(first.size);
    for (std::optional<phase> p : r.phases) {
      std::vector<std::pair<u64, std::string>> ranking;
      u64 accesses = 0;
      for (outcome_row const& row : r.rows) {
        if (!row.policy.is_oracle() && !row.hints && same_size(row.size, first.size)) {
          counts const c = row.total(p);
          accesses = c.demand_accesses;
          ranking.emplace_back(c.hits + c.overflow_hits, row.policy.name);
        }
      }
      if (ranking.empty()) {
        continue;
      }
      std::stable_sort(ranking.begin(), ranking.end(),
                       [](auto const& a, auto const& b) { return a.first > b.first; });
      json j;
      j["pool"] = first.size.pool == pool_kind::shared ? "shared" : "per-layer";
      j["slots"] = first.size.slots != 0 ? json(first.size.slots) : json(nullptr);
      j["budget_bytes"] =
          first.size.budget_bytes != 0 ? json(first.size.budget_bytes) : json(nullptr);
      j["phase"] = phase_name(p);
      j["policy"] = ranking.front().second;
      j["hit_rate"] = per(static_cast<double>(ranking.front().first), accesses);
      json tied = json::array();
      std::size_t i = 1;
      for (; i < ranking.size() && ranking[i].first == ranking.front().first; ++i) {
        tied.push_back(ranking[i].second);
      }
      j["tied"] = std::move(tied);
      j["runner_up"] = i < ranking.size() ? json(ranking[i].second) : json(nullptr);
      j["runner_up_hit_rate"] = i < ranking.size()
                                    ? json(per(static_cast<double>(ranking[i].first), accesses))
                                    : json(nullptr);
      best.push_back(std::move(j));
    }
  }
  return best;
}

json to_json(report const& r) {
  json j;
  j["tool"] = "warmset-replay";
  j["version"] =
      fmt::format("{}.{}.{}", WARMSET_VERSION_MAJOR, WARMSET_VERSION_MINOR, WARMSET_VERSION_PATCH);
  j["trace"] = r.facts;
  j["unit"] = unit_text;
  j["scope"] = scope_text(r);
  j["denominator"] = denominator_text;
  j["played"] = {{"prefill", r.played.prefill},
                 {"decode", r.played.decode},
                 {"sequences", r.sequences},
                 {"order", r.ascending ? "ascending" : "recorded"},
                 {"flattened", r.flat},
                 {"tokens", {{"prefill", r.tokens[0]}, {"decode", r.tokens[1]}}}};
  j["working_set"] = {
      {"tokens", r.demand.tokens}, {"experts", r.demand.experts}, {"bytes", r.demand.bytes}};
  j["time_model"] = {{"link_gbps", r.time.link_gbps},
                     {"copy_us", r.time.copy_us},
                     {"compute_us", r.time.compute_us},
                     {"latency_us", r.time.latency_us}};
  json results = json::array();
  for (outcome_row const& row : r.rows) {
    for (std::optional<phase> p : r.phases) {
      results.push_back(result_json(r, row, p));
    }
  }
  j["results"] = std::move(results);
  j["best"] = best_by_capacity(r);
  if (!r.recommendation.is_null()) {
    j["recommendation"] = r.recommendation;
    j["cross_validation"] = r.cross_validation;
  }
  j["warnings"] = r.warnings;
  return j;
}

namespace {

std::string csv_field(json const& value) {
  if (value.is_null()) {
    return {};
  }
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (char c : text) {
    quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  }
  return quoted + "\"";
}

}  // namespace

std::string to_csv(report const& r) {
  std::string text;
  for (outcome_row const& row : r.rows) {
    for (std::optional<phase> p : r.phases) {
      json result = result_json(r, row, p);
      result.erase("per_layer");
      result.erase("timing");
      std::string given;
      for (auto const& [name, value] : result["parameters"].items()) {
        given += fmt::format("{}{}={}", given.empty() ? "" : ":", name, value.dump());
      }
      result["parameters"] = given;
      result["unit"] = unit_text;
      result["scope"] = scope_text(r);
      result["denominator"] = denominator_text;
      if (text.empty()) {
        std::string head;
        for (auto const& [name, value] : result.items()) {
          head += (head.empty() ? "" : ",") + name;
        }
        text = head + "\n";
      }
      std::string line;
      for (auto const& [name, value] : result.items()) {
        line += (name == "policy" ? "" : ",") + csv_field(value);
      }
      text += line + "\n";
    }
  }
  return text;
}

// ---- tables ---------------------------------------------------------------------------------------------------

namespace {

/// A text with thousands apart, for people.
std::string grouped(u64 n) {
  std::string digits = std::to_string(n);
  for (std::size_t i = digits.size(); i > 3;) {
    i -= 3;
    digits.insert(i, " ");
  }
  return digits;
}

class text_table {
 public:
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void rule() { rows_.push_back({}); }

  std::string str() const {
    std::vector<std::size_t> width;
    for (auto const& cells : rows_) {
      for (std::size_t i = 0; i < cells.size(); ++i) {
        width.resize(std::max(width.size(), i + 1));
        width[i] = std::max(width[i], cells[i].size());
      }
    }
    std::string text;
    for (auto const& cells : rows_) {
      std::string line;
      if (cells.empty()) {
        for (std::size_t i = 0; i < width.size(); ++i) {
          line += (i == 0 ? "" : "  ") + std::string(width[i], '-');
        }
      }
      for (std::size_t i = 0; i < cells.size(); ++i) {
        line += i == 0 ? fmt::format("{:<{}}", cells[i], width[i])
                       : fmt::format("  {:>{}}", cells[i], width[i]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string heading(report const& r) {
  json const& t = r.facts;
  std::string text = fmt::format(
      "{}: {} layers of {} experts, k = {}, cycle {}; {} tokens played (prefill {}, decode {})\n",
      r.trace.recording.model().empty() ? r.trace.path : r.trace.recording.model(),
      t["layers"].get<u64>(), t["experts_per_layer"]["max"].get<u64>(), t["k"]["max"].get<u64>(),
      t["cycle"].get<u64>(), grouped(r.tokens[0] + r.tokens[1]), grouped(r.tokens[0]),
      grouped(r.tokens[1]));
  text += fmt::format("unit         {}\nscope        {}\ndenominator  {}\n", unit_text,
                      scope_text(r), denominator_text);
  text += fmt::format(
      "stall        link {:g} GB/s, {:g} us per copy{}; compute {:g} us per layer and token\n\n",
      r.time.link_gbps, r.time.copy_us,
      r.time.latency_us == 0 ? ""
                             : fmt::format(", {:g} us of latency with hints", r.time.latency_us),
      r.time.compute_us);
  return text;
}

std::string points(std::optional<double> x, int digits = 4) {
  return x ? fmt::format("{:.{}f}", *x, digits) : "-";
}

}  // namespace

namespace {

/// The entry of the same policy and capacity that another's stall is compared with: the one of predictor none, which is
/// of the same clock, or the one without hints, which knows no latency. Null where that was not played.
outcome_row const* without_hints(report const& r, outcome_row const& row) {
  outcome_row const* plain = nullptr;
  for (outcome_row const& other : r.rows) {
    if (other.policy.name != row.policy.name || !same_size(other.size, row.size)) {
      continue;
    }
    if (other.hints && other.hints->predictor == "none") {
      return &other;
    }
    if (!other.hints && r.time.latency_us == 0) {
      plain = &other;
    }
  }
  return plain;
}

/// What hints cost and saved, a line for each entry that had some; empty without.
std::string hint_table(report const& r) {
  text_table table;
  table.row({"policy", "predictor", "budget MiB", "phase", "hit rate", "late", "issued", "used",
             "precision", "coverage", "hint MiB/token", "stall ms/token", "to none", "governor"});
  table.rule();
  bool any = false;
  for (outcome_row const& row : r.rows) {
    if (!row.hints) {
      continue;
    }
    any = true;
    outcome_row const* const plain = without_hints(r, row);
    for (std::optional<phase> p : r.phases) {
      counts const c = row.total(p);
      u64 const tokens = r.tokens_of(p);
      double const stall = row.stall_ms(r.time, p);
      double const without = plain == nullptr ? 0 : plain->stall_ms(r.time, p);
      u64 const budget = row.hints->how.bytes_per_step;
      table.row(
          {row.policy.name, row.hints->predictor,
           budget == warmset::u64_max
               ? "-"
               : fmt::format("{:.2f}", static_cast<double>(budget) / 1048576.0),
           phase_name(p), fmt::format("{:.4f}", c.hit_rate()), grouped(c.late),
           grouped(c.hints_issued), grouped(c.hints_used), points(c.hint_precision(), 3),
           fmt::format("{:.3f}", c.miss_coverage()),
           fmt::format("{:.2f}", per(static_cast<double>(c.bytes_speculated), tokens) / 1048576.0),
           fmt::format("{:.3f}", per(stall, tokens)),
           without == 0 ? "-" : fmt::format("{:.3f} x", stall / without),
           row.hints->how.governed ? warmset::gate::name_of(row.hints->governor.state()) : "off"});
    }
  }
  return !any ? std::string()
              : "\n" + table.str() +
                    "\nlate: in flight when demanded. precision: used / issued. coverage: used / "
                    "(used + "
                    "misses). to none: stall over that without hints.\n";
}

}  // namespace

std::string to_table(report const& r) {
  text_table table;
  table.row({"policy", "phase", "slots", "demanded", "hit rate", "installs", "wasted", "MiB/token",
             "stall ms/token", "stall", "to belady", "to bypass"});
  table.rule();
  for (outcome_row const& row : r.rows) {
    for (std::optional<phase> p : r.phases) {
      if (row.hints) {
        continue;  // in a table of their own
      }
      counts const c = row.total(p);
      u64 const tokens = r.tokens_of(p);
      double const stall = r.time.stall_ms(c);
      double const compute = r.time.compute_ms(c);
      table.row(
          {row.policy.name, phase_name(p), size_name(row.size), grouped(c.demand_accesses),
           fmt::format("{:.4f}", c.hit_rate()), grouped(c.installs),
           row.policy.is_oracle() || c.installs == 0
               ? "-"
               : fmt::format("{:.1f} %", 100 * per(static_cast<double>(c.wasted), c.installs)),
           fmt::format("{:.2f}", per(static_cast<double>(c.bytes_loaded), tokens) / 1048576.0),
           fmt::format("{:.3f}", per(stall, tokens)),
           fmt::format("{:.1f} %", stall + compute == 0 ? 0.0 : 100 * stall / (stall + compute)),
           points(regret(r, row, p, chosen_policy::kind::belady)),
           points(regret(r, row, p, chosen_policy::kind::belady_bypass))});
    }
  }
  return heading(r) + table.str() +
         "\nwasted: installed and evicted without a further use. to belady, to bypass: hit rate of "
         "the oracle less the "
         "policy's.\n" +
         hint_table(r);
}

std::string to_matrix(report const& r) {
  std::vector<pool_size> sizes;
  std::vector<std::string> names;
  for (outcome_row const& row : r.rows) {
    if (std::none_of(sizes.begin(), sizes.end(),
                     [&](pool_size const& s) { return same_size(s, row.size); })) {
      sizes.push_back(row.size);
    }
    if (std::find(names.begin(), names.end(), row.policy.name) == names.end()) {
      names.push_back(row.policy.name);
    }
  }
  std::string text = heading(r);
  json const best = best_by_capacity(r);
  for (std::optional<phase> p : r.phases) {
    text_table table;
    std::vector<std::string> head = {fmt::format("hit rate, {}", phase_name(p))};
    for (pool_size const& size : sizes) {
      head.push_back(size_name(size));
    }
    table.row(head);
    table.rule();
    for (std::string const& name : names) {
      std::vector<std::string> cells = {name};
      for (pool_size const& size : sizes) {
        cells.push_back("-");
        for (outcome_row const& row : r.rows) {
          if (row.policy.name == name && same_size(row.size, size)) {
            cells.back() = fmt::format("{:.4f}", row.total(p).hit_rate());
          }
        }
      }
      table.row(std::move(cells));
    }
    text += table.str() + "\n";
    for (json const& b : best) {
      if (b["phase"] == phase_name(p)) {
        std::string tied;
        for (json const& name : b["tied"]) {
          tied += ", " + name.get<std::string>();
        }
        text += fmt::format(
            "best at {}: {}{} {:.4f}{}\n",
            b["slots"].is_null()
                ? fmt::format("{:g} MiB",
                              static_cast<double>(b["budget_bytes"].get<u64>()) / 1048576.0)
                : fmt::format("{} slots per layer", b["slots"].get<u64>()),
            b["policy"].get<std::string>(), tied, b["hit_rate"].get<double>(),
            b["runner_up"].is_null()
                ? ""
                : fmt::format("; runner-up {} {:.4f}", b["runner_up"].get<std::string>(),
                              b["runner_up_hit_rate"].get<double>()));
      }
    }
    for (json const& one : r.recommendation) {
      if (one["phase"] == phase_name(p)) {
        text += recommendation_text(one) + "\n";
      }
    }
    text += "\n";
  }
  return text;
}

}  // namespace warmset_tools
