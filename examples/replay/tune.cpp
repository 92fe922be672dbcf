// SPDX-License-Identifier: Apache-2.0
#include "tune.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "../common/usage_error.hpp"
#include "warmset/cache.hpp"
#include "warmset/table/bundles.hpp"
#include "warmset/trace/replay.hpp"

namespace warmset_tools {

using warmset::access_kind;
using warmset::phase;
using warmset::u16;

namespace {

constexpr u64 mib_bytes = u64{1} << 20;
constexpr u32 widest_cached_batch = 32;  // tokens; wider ones go past upstream's cache

/// One pool of all layers with equal experts, with and without a share of the host.
template <class Score, bool SplitsMisses>
struct pool_policy : warmset::bundles::shared<warmset::bundles::of<Score>> {};
template <class Score>
struct pool_policy<Score, true>
    : warmset::bundles::shared<warmset::bundles::admitted<warmset::bundles::of<Score>, warmset::admit::fetch_share>> {};

/// Slots of each group of layers with equal experts: its part of the bytes, less the entry behind the last slot.
std::vector<u32> slots_of_groups(warmset::geometry const& model, u64 mib) {
  std::vector<u32> slots;
  u64 all = 0;
  for (warmset::layer_geometry const& l : model.layers()) {
    all += l.n_experts * l.expert_bytes();
  }
  for (warmset::geometry_group const& g : model.groups()) {
    u64 const experts = u64{g.max_experts} * g.layers.size();
    double const part = static_cast<double>(experts * g.expert_bytes()) / static_cast<double>(all);
    u64 const entries =
        static_cast<u64>(part * static_cast<double>(mib * mib_bytes)) / g.expert_bytes();
    u64 const n = std::min(entries == 0 ? 0 : entries - 1, experts);
    u64 const least = g.layers.size() - 1 + g.max_k;
    if (n < least) {
      throw usage_error(fmt::format(
          "--vram-mib: {} MiB are {} slots for {} layers; with fewer than {} a step finds no room", mib,
          n, g.layers.size(), least));
    }
    slots.push_back(static_cast<u32>(n));
  }
  return slots;
}

template <class policy>
void play(upstream_cache& u, warmset::trace::recording const& r, time_model const& time, double cpu_gbps,
          bool bypasses) {
  std::vector<u32> const slots = slots_of_groups(r.geometry(), u.mib);
  for (u32 n : slots) {
    u.slots += n;
  }
  warmset::geometry const& model = r.geometry();
  std::vector<warmset::geometry_group> const groups = model.groups();
  u32 most = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    u32 const layers = static_cast<u32>(groups[g].layers.size());
    most = std::max(most, (slots[g] + layers - 1) / layers);
  }
  warmset::tuning numbers = policy::numbers;
  numbers.floor = 1;
  numbers.fetch_share = static_cast<u32>(std::lround((1 - u.cpu_share) * warmset::whole_fetch_share));
  warmset::cache<policy, warmset::move::immediate> cache(model, warmset::budget::of_slots(most), numbers);
  std::vector<u32> slots_of_row(model.layers().size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    (void)cache.resize(groups[g].layers.front(), slots[g]);
    for (warmset::layer_id id : groups[g].layers) {
      for (std::size_t row = 0; row < slots_of_row.size(); ++row) {
        slots_of_row[row] = model.layers()[row].layer == id ? slots[g] : slots_of_row[row];
      }
    }
  }
  warmset::trace::detail::row_marks marks(warmset::trace::detail::most_experts(model));
  std::vector<u16> distinct;
  std::vector<warmset::routed_id> routed;
  warmset::trace::for_each_event(r, [&](warmset::trace::event const& e) {
    warmset::layer_geometry const& layer = model.layers()[e.row];
    std::size_t const p = static_cast<std::size_t>(e.phase);
    distinct.clear();
    warmset::trace::append_distinct(e.ids, marks, distinct);
    u64 hits = 0;
    u64 declined = 0;
    u64 const worst = std::min<u64>(u64{e.n_tokens} * e.k, layer.n_experts);
    if (bypasses && (e.n_tokens > widest_cached_batch || worst > slots_of_row[e.row])) {
      ++u.bypassed;
      cache.settle();  // the last step's loads are there
      for (u16 id : distinct) {
        hits += cache.is_resident({e.layer, warmset::expert_id{id}}) ? 1 : 0;
      }
    } else {
      routed.clear();
      for (u16 id : e.ids) {
        routed.push_back(warmset::trace::routed(id));
      }
      warmset::step_view const step = cache.step(
          e.layer, std::span<warmset::routed_id const>(routed), warmset::step_facts{e.phase, e.sequence, warmset::trace::detail::token_of(e), {}});
      for (access_kind how : step.how) {
        hits += how == access_kind::hit || how == access_kind::first_use || how == access_kind::overflow_hit ? 1 : 0;
        declined += how == access_kind::declined ? 1 : 0;
      }
    }
    u64 const fetched = distinct.size() - hits - declined;
    u.lookups[p] += distinct.size();
    u.hits[p] += hits;
    u.bytes[p] += fetched * layer.expert_bytes();
    if (e.phase == phase::decode) {
      double const bytes = static_cast<double>(layer.expert_bytes());
      double const banks = static_cast<double>(layer.bank_bytes.size());
      double const link_ms = static_cast<double>(fetched) *
                             (bytes / (time.link_gbps * 1e6) + banks * time.copy_us * 1e-3);
      double const host_ms =
          declined == 0 ? 0 : static_cast<double>(declined) * bytes / (cpu_gbps * 1e6);
      u.stall_ms += std::max(link_ms, host_ms);
    }
  });
}

double per_token_mib(u64 bytes, u64 tokens) {
  return tokens == 0 ? 0.0
                     : static_cast<double>(bytes) / static_cast<double>(mib_bytes) /
                           static_cast<double>(tokens);
}

u64 tokens_of_decode(report const& r) {
  return r.tokens[static_cast<std::size_t>(phase::decode)];
}

/// The recommendation for decode that hits most. A pool of each layer is taken unless a shared one hits more by what a change
/// of policy must: an engine lays it out more easily.
json const& best_of(json const& all) {
  json const* best = nullptr;
  for (json const& one : all) {
    if (one["phase"] != "decode") {
      continue;
    }
    double const more = one["pool"] == "shared" ? 0.002 : 0.0;
    if (best == nullptr || one["hit_rate"].get<double>() > (*best)["hit_rate"].get<double>() + more) {
      best = &one;
    }
  }
  return *best;
}

outcome_row const& row_of_best(report const& r, json const& best) {
  return *std::find_if(r.rows.begin(), r.rows.end(), [&](outcome_row const& row) {
    return row.policy.name == best["policy"].get<std::string>() && row.size.slots == best["slots"].get<u32>() &&
           (row.size.pool == pool_kind::shared) == (best["pool"] == "shared");
  });
}

std::string flags_of(upstream_cache const& u) {
  return fmt::format("--moe-cache-mib {} --moe-cache-cpu-share {:.2f}", u.mib, u.cpu_share);
}

}  // namespace

double tokens_per_second(report const& r, double stall_ms) {
  double const tokens = static_cast<double>(tokens_of_decode(r));
  double const compute_ms =
      tokens * static_cast<double>(r.trace.recording.geometry().layers().size()) * r.time.compute_us * 1e-3;
  return tokens * 1e3 / std::max(compute_ms + stall_ms, 1e-9);
}

upstream_cache play_upstream(warmset::trace::recording const& r, u64 mib, double cpu_share,
                             time_model const& time, double cpu_gbps) {
  using score = warmset::score::class_lru;
  upstream_cache u;
  u.mib = mib;
  u.cpu_share = cpu_share;
  cpu_share == 0 ? play<pool_policy<score, false>>(u, r, time, cpu_gbps, true)
                 : play<pool_policy<score, true>>(u, r, time, cpu_gbps, true);
  return u;
}

upstream_cache play_split(warmset::trace::recording const& r, u64 mib, double cpu_share,
                          time_model const& time, double cpu_gbps) {
  upstream_cache u;
  u.mib = mib;
  u.cpu_share = cpu_share;
  play<pool_policy<warmset::score::successor<>, true>>(u, r, time, cpu_gbps, false);
  return u;
}

warmset::trace::recording with_model(warmset::trace::recording const& r, std::string const& trace_path,
                                     warmset::geometry const& model, std::string const& model_path,
                                     std::vector<std::string>& warnings) {
  std::vector<warmset::layer_geometry> const& from = r.geometry().layers();
  std::vector<warmset::layer_geometry> const& to = model.layers();
  auto const refuse = [&](std::string const& what) {
    throw usage_error(fmt::format("{} is no trace of {}: {}", trace_path, model_path, what));
  };
  if (from.size() != to.size()) {
    refuse(fmt::format("{} layers with experts, and the model has {}", from.size(), to.size()));
  }
  bool other_bytes = false;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i].layer != to[i].layer || from[i].n_experts != to[i].n_experts || from[i].k != to[i].k) {
      refuse(fmt::format("layer {} with {} of {} experts a token, and the model's is layer {} with {} of {}",
                         from[i].layer.value, from[i].k, from[i].n_experts, to[i].layer.value, to[i].k,
                         to[i].n_experts));
    }
    other_bytes = other_bytes || from[i].expert_bytes() != to[i].expert_bytes();
  }
  if (other_bytes && !r.expert_bytes_assumed()) {
    warnings.push_back("quantisation: the trace was recorded with experts of other sizes; the model's count here");
  }
  warmset::trace::contents c;
  c.geometry = model;
  c.model = r.model();
  c.source = r.source();
  c.blocks = r.blocks();
  c.ids.assign(r.ids().begin(), r.ids().end());
  c.tokens.assign(r.tokens().begin(), r.tokens().end());
  c.labels = r.labels();
  return warmset::trace::recording(std::move(c));
}

json to_json(tuning_report const& t, report const& r) {
  u64 const tokens = tokens_of_decode(r);
  json j;
  j["format"] = "warmset-tune";
  j["model"] = t.model_path;
  j["trace"] = r.trace.path;
  j["vram_mib"] = t.vram_mib;
  j["link_gbps"] = r.time.link_gbps;
  j["copy_us"] = r.time.copy_us;
  j["compute_us"] = r.time.compute_us;
  j["cpu_gbps"] = t.cpu_gbps;
  j["decode_tokens"] = tokens;
  auto const figures = [&](upstream_cache const& u) {
    return json{{"moe_cache_mib", u.mib},
                {"moe_cache_cpu_share", u.cpu_share},
                {"slots", u.slots},
                {"hit_rate", u.hit_rate(phase::decode)},
                {"prefill_hit_rate", u.hit_rate(phase::prefill)},
                {"bytes_per_token", static_cast<double>(u.bytes[1]) / static_cast<double>(tokens)},
                {"tokens_per_second", tokens_per_second(r, u.stall_ms)},
                {"bypassed_steps", u.bypassed}};
  };
  json shares = json::array();
  for (upstream_cache const& u : t.upstream) {
    shares.push_back(figures(u));
  }
  j["upstream"] = {{"flags", flags_of(t.upstream[t.best_upstream])},
                   {"recommended", shares[t.best_upstream]},
                   {"shares", shares}};
  json const& best = best_of(r.recommendation);
  outcome_row const& row = row_of_best(r, best);
  counts const decode = row.total(phase::decode);
  j["warmset"] = {{"policy", best["policy"]},
                  {"pool", best["pool"]},
                  {"slots", best["slots"]},
                  {"hit_rate", decode.hit_rate()},
                  {"prefill_hit_rate", row.total(phase::prefill).hit_rate()},
                  {"total_hit_rate", row.total(std::nullopt).hit_rate()},
                  {"bytes_per_token", best["bytes_per_token"]},
                  {"tokens_per_second", tokens_per_second(r, r.time.stall_ms(decode))},
                  {"reason", best["reason"]}};
  if (!t.split.empty()) {
    json with_host = figures(t.split[t.best_split]);
    with_host.erase("moe_cache_mib");
    with_host["policy"] = "successor+fetch_share";
    j["warmset_with_host"] = std::move(with_host);
  }
  j["recommendations"] = r.recommendation;
  j["warnings"] = r.warnings;
  return j;
}

std::string to_text(tuning_report const& t, report const& r) {
  warmset::geometry const& model = r.trace.recording.geometry();
  u64 const tokens = tokens_of_decode(r);
  u64 all = 0;
  for (warmset::layer_geometry const& l : model.layers()) {
    all += l.n_experts * l.expert_bytes();
  }
  warmset::layer_geometry const& first = model.layers().front();
  std::string text = fmt::format(
      "{}: {} layers of {} experts, {} a token, {} bytes an expert in the first, {:.2f} MiB in all\n",
      t.model_name, model.layers().size(), first.n_experts, first.k, first.expert_bytes(),
      static_cast<double>(all) / static_cast<double>(mib_bytes));
  text += fmt::format("{} tokens of decode; {:g} MiB, link {:g} GB/s, {:g} us a copy, {:g} us of compute a layer and token{}\n\n",
                      tokens, t.vram_mib, r.time.link_gbps, r.time.copy_us, r.time.compute_us,
                      t.cpu_gbps != 0 ? fmt::format(", host {:g} GB/s", t.cpu_gbps) : "");
  text += "                                               hit rate   MiB/token   tokens/s\n";
  auto const line = [&](std::string const& what, double rate, double mib, double speed, bool taken) {
    text += fmt::format("{} {:<44} {:>8.4f} {:>11.4f} {:>10.1f}\n", taken ? '*' : ' ', what, rate, mib, speed);
  };
  text += "llama.cpp's own cache\n";
  for (std::size_t i = 0; i < t.upstream.size(); ++i) {
    upstream_cache const& u = t.upstream[i];
    line(fmt::format("class_lru, {} slots, host {:.0f} %", u.slots, 100 * u.cpu_share), u.hit_rate(phase::decode),
         per_token_mib(u.bytes[1], tokens), tokens_per_second(r, u.stall_ms), i == t.best_upstream);
  }
  text += "Warmset\n";
  json const& best = best_of(r.recommendation);
  for (json const& one : r.recommendation) {
    if (one["phase"] == "decode") {
      outcome_row const& row = row_of_best(r, one);
      line(fmt::format("{}, {} slots {}", one["policy"].get<std::string>(), one["slots"].get<u32>(),
                       one["pool"] == "shared" ? "a layer, shared" : "in each layer"),
           one["hit_rate"].get<double>(), one["bytes_per_token"].get<double>() / static_cast<double>(mib_bytes),
           tokens_per_second(r, r.time.stall_ms(row.total(phase::decode))), &one == &best);
    }
  }
  if (!t.split.empty()) {
    upstream_cache const& u = t.split[t.best_split];
    line(fmt::format("successor, {} slots, host {:.0f} %", u.slots, 100 * u.cpu_share), u.hit_rate(phase::decode),
         per_token_mib(u.bytes[1], tokens), tokens_per_second(r, u.stall_ms), false);
    text += "  Without a share the link brings every miss: compare such rows with host 0 %.\n";
  }
  text += fmt::format("\nflags of llama.cpp: {}\n", flags_of(t.upstream[t.best_upstream]));
  text += fmt::format("Warmset: policy {}, {} slots {}: {}\n", best["policy"].get<std::string>(),
                      best["slots"].get<u32>(),
                      best["pool"] == "shared" ? "a layer on average, shared by all layers" : "in each layer",
                      best["reason"].get<std::string>());
  return text;
}

}  // namespace warmset_tools
