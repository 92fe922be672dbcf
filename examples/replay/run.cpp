// SPDX-License-Identifier: Apache-2.0
#include "run.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "../common/progress.hpp"
#include "../common/usage_error.hpp"

namespace warmset_tools {

namespace {

/// A decimal number of digits and at most one point; nothing where it is none or too large.
std::optional<double> decimal(std::string_view text) {
  std::size_t digits = 0;
  std::size_t points = 0;
  for (char c : text) {
    digits += c >= '0' && c <= '9' ? 1 : 0;
    points += c == '.' ? 1 : 0;
  }
  if (digits == 0 || digits > 15 || points > 1 || digits + points != text.size()) {
    return std::nullopt;
  }
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::vector<std::string> split(std::string const& text) {
  std::vector<std::string> parts;
  for (std::size_t from = 0; from <= text.size();) {
    std::size_t const comma = std::min(text.find(',', from), text.size());
    parts.push_back(text.substr(from, comma - from));
    from = comma + 1;
  }
  return parts;
}

struct bounds {
  u32 k = 0;
  u32 least_experts = warmset::u32_max;
  u32 most_experts = 0;
  u64 bytes_per_slot = 0;  ///< of one slot in every layer
  u64 step_bytes = 0;      ///< of the largest layer's k experts
};

bounds bounds_of(warmset::geometry const& model) {
  bounds b;
  for (warmset::layer_geometry const& layer : model.layers()) {
    b.k = std::max(b.k, layer.k);
    b.least_experts = std::min(b.least_experts, layer.n_experts);
    b.most_experts = std::max(b.most_experts, layer.n_experts);
    b.bytes_per_slot += layer.expert_bytes();
    b.step_bytes = std::max(b.step_bytes, layer.k * layer.expert_bytes());
  }
  return b;
}

void check_slots(std::string const& what, u64 slots, bounds const& b) {
  if (slots == 0) {
    throw usage_error(what + " is 0 slots; at least k = " + std::to_string(b.k) + " are needed");
  }
  if (slots < b.k) {
    throw usage_error(fmt::format("{} is {} slots per layer, below k = {}", what, slots, b.k));
  }
  if (slots > b.most_experts) {
    throw usage_error(fmt::format("{} is {} slots per layer, more than its {} experts", what, slots,
                                  b.most_experts));
  }
}

u32 slots_of(std::string const& text, bounds const& b) {
  std::string const what = "--slots " + text;
  bool const percent = text.ends_with('%');
  std::optional<double> const value =
      decimal(std::string_view(text).substr(0, text.size() - (percent ? 1 : 0)));
  if (!value || (!percent && text.find('.') != std::string::npos)) {
    throw usage_error(
        fmt::format("--slots is '{}'; a whole number or a percentage is possible", text));
  }
  if (!percent) {
    check_slots(what, *value > 1e9 ? u64{1'000'000'000} : static_cast<u64>(*value), b);
    return static_cast<u32>(*value);
  }
  if (*value > 100) {
    throw usage_error(what + " is more than 100 %");
  }
  if (b.least_experts != b.most_experts) {
    throw usage_error(fmt::format("{} of layers with {} to {} experts is not one number of slots",
                                  what, b.least_experts, b.most_experts));
  }
  u32 const share = static_cast<u32>(std::floor(*value / 100 * b.most_experts + 1e-9));
  u32 const slots = *value == 0 ? 0 : std::max(1u, share);
  check_slots(what, slots, b);
  return slots;
}

}  // namespace

std::vector<pool_size> choose_sizes(size_options const& options, warmset::geometry const& model) {
  bounds const b = bounds_of(model);
  pool_kind pool;
  if (options.pool == "per-layer") {
    pool = pool_kind::per_layer;
  } else if (options.pool == "shared") {
    pool = pool_kind::shared;
  } else {
    throw usage_error(fmt::format("--pool is '{}'; there are per-layer and shared", options.pool));
  }
  if (options.slots.empty() == options.budget_mib.empty()) {
    throw usage_error("one of --slots and --budget-mib is needed");
  }
  std::vector<pool_size> sizes;
  auto const add = [&sizes](pool_size size) {
    if (std::none_of(sizes.begin(), sizes.end(),
                     [&](pool_size const& s) { return same_size(s, size); })) {
      sizes.push_back(size);
    }
  };
  if (!options.slots.empty()) {
    for (std::string const& text : split(options.slots)) {
      add({pool, slots_of(text, b), 0});
    }
    return sizes;
  }
  for (std::string const& text : split(options.budget_mib)) {
    std::string const what = "--budget-mib " + text;
    std::optional<double> const mib = decimal(text);
    if (!mib || *mib > 1e9) {
      throw usage_error(
          fmt::format("--budget-mib is '{}'; a number of MiB up to 10^9 is possible", text));
    }
    u64 const bytes = static_cast<u64>(*mib * 1048576.0);
    if (pool == pool_kind::shared) {
      if (bytes < b.step_bytes) {
        throw usage_error(fmt::format("{} is below the k = {} experts of one step, {} bytes", what,
                                      b.k, b.step_bytes));
      }
      add({pool, 0, bytes});
    } else {
      u64 const slots = std::min<u64>(bytes / b.bytes_per_slot, b.most_experts);
      check_slots(what, slots, b);
      add({pool, static_cast<u32>(slots), bytes});
    }
  }
  return sizes;
}

std::vector<u64> choose_hint_budgets(std::string const& mib) {
  if (mib.empty()) {
    return {warmset::u64_max};
  }
  std::vector<u64> all;
  for (std::string const& text : split(mib)) {
    double value = -1;
    char const* const end = text.data() + text.size();
    auto const [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end || !(value >= 0 && value <= 1e9)) {
      throw usage_error(
          fmt::format("--hint-budget-mib is '{}'; a number of MiB up to 10^9 is possible", text));
    }
    u64 const bytes = static_cast<u64>(value * 1048576.0);
    if (std::find(all.begin(), all.end(), bytes) == all.end()) {
      all.push_back(bytes);
    }
  }
  return all;
}

warmset::trace::selection choose_played(warmset::trace::recording const& recording,
                                        std::string const& sequences, std::string const& play) {
  warmset::trace::selection which;
  try {
    which = warmset::trace::selection::parse(sequences);
  } catch (warmset::config_error const&) {
    throw usage_error(fmt::format(
        "--sequences is '{}'; all, even, odd, A or A-B with A <= B are possible", sequences));
  }
  if (play != "all" && play != "decode" && play != "prefill") {
    throw usage_error(fmt::format("--play is '{}'; there are decode, prefill and all", play));
  }
  auto const has = [&recording](warmset::trace::selection const& some) {
    return std::any_of(recording.blocks().begin(), recording.blocks().end(),
                       [&some](warmset::trace::block const& b) { return some.contains(b); });
  };
  if (!has(which)) {
    throw usage_error(fmt::format("--sequences '{}' selects nothing; the trace has {}", sequences,
                                  list_numbers(sequence_numbers(recording))));
  }
  which.prefill = play != "decode";
  which.decode = play != "prefill";
  if (!has(which)) {
    throw usage_error(fmt::format("--play '{}' selects nothing; --sequences '{}' has {} alone",
                                  play, sequences, which.prefill ? "decode" : "prefill"));
  }
  return which;
}

std::vector<std::optional<warmset::phase>>
choose_phases(std::string const& wanted, std::array<u64, warmset::n_phases> tokens) {
  using warmset::phase;
  std::vector<std::optional<phase>> present;
  for (phase p : {phase::prefill, phase::decode}) {
    if (tokens[static_cast<std::size_t>(p)] != 0) {
      present.push_back(p);
    }
  }
  if (present.empty()) {
    throw usage_error("what is played has no event");
  }
  if (wanted.empty()) {
    return present;
  }
  if (wanted == "all") {
    present.push_back(std::nullopt);
    return present;
  }
  if (wanted != "decode" && wanted != "prefill") {
    throw usage_error(fmt::format("--phase is '{}'; there are decode, prefill and all", wanted));
  }
  phase const p = wanted == "decode" ? phase::decode : phase::prefill;
  if (tokens[static_cast<std::size_t>(p)] == 0) {
    throw usage_error(fmt::format("--phase '{}' selects nothing; what is played has {} alone",
                                  wanted, phase_name(present.front())));
  }
  return {p};
}

namespace {

/// Calls f(i) for every i < n, on up to `jobs` threads. The first exception ends it and is thrown again.
void for_each_parallel(std::size_t n, unsigned jobs, std::function<void(std::size_t)> const& f) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  std::mutex mutex;
  auto const work = [&] {
    for (std::size_t i = next++; i < n && !failed; i = next++) {
      try {
        f(i);
      } catch (...) {
        std::lock_guard const lock(mutex);
        if (!failed.exchange(true)) {
          error = std::current_exception();
        }
      }
    }
  };
  std::size_t const wanted = jobs != 0 ? jobs : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < std::min(wanted, n); ++i) {
    threads.emplace_back(work);
  }
  work();
  for (std::thread& t : threads) {
    t.join();
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

}  // namespace

void run(report& r, std::vector<chosen_policy> const& chosen, std::vector<pool_size> const& sizes,
         run_options const& options, std::vector<u32>* log) {
  for (pool_size const& size : sizes) {
    check_pool(chosen, size);
  }
  // Rows in the order of the report: by capacity, then by policy. Oracles are played once per capacity.
  struct task {
    chosen_policy const* policy;
    pool_size const* size;
    outcome_row* to;
  };
  std::vector<chosen_policy> both(2);
  both[0].name = "belady";
  both[0].what = chosen_policy::kind::belady;
  both[1].name = "belady_bypass";
  both[1].what = chosen_policy::kind::belady_bypass;
  std::vector<chosen_policy> const lru = choose_policies("lru");
  bool asked = options.oracles;
  bool without_lru = options.recommend;
  for (chosen_policy const& p : chosen) {
    asked = asked || p.is_oracle();
    without_lru = without_lru && p.name != "lru";
  }
  r.rows.resize(chosen.size() * sizes.size());
  r.oracles.resize(asked ? both.size() * sizes.size() : 0);
  r.baselines.resize(without_lru ? sizes.size() : 0);
  std::vector<task> tasks;
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    for (std::size_t p = 0; p < chosen.size(); ++p) {
      if (!chosen[p].is_oracle()) {
        tasks.push_back({&chosen[p], &sizes[s], &r.rows[s * chosen.size() + p]});
      }
    }
    for (std::size_t p = 0; p < both.size() && asked; ++p) {
      tasks.push_back({&both[p], &sizes[s], &r.oracles[s * both.size() + p]});
    }
    if (without_lru) {
      tasks.push_back({&lru.front(), &sizes[s], &r.baselines[s]});
    }
  }
  std::optional<warmset::trace::next_uses> uses;
  if (asked) {
    uses.emplace(r.trace.recording, r.played);
  }
  std::array<u64, warmset::n_phases> steps{};
  for (warmset::trace::block const& b : r.trace.recording.blocks()) {
    steps[static_cast<std::size_t>(b.phase)] += r.played.contains(b) ? b.n_events() : 0;
  }
  std::size_t const n_layers = r.trace.recording.geometry().layers().size();
  progress_bar bar(options.progress, tasks.size());
  for_each_parallel(tasks.size(), options.repeat != 0 ? 1 : options.jobs, [&](std::size_t i) {
    task const& t = tasks[i];
    if (t.policy->is_oracle()) {
      warmset::trace::capacity const room = capacity_of(*t.size, n_layers);
      *t.to = row_of(*t.policy, *t.size, r.trace, r.played,
                     t.policy->what == chosen_policy::kind::belady
                         ? warmset::trace::belady(*uses, room)
                         : warmset::trace::belady_bypass(*uses, room));
    } else {
      stretches by_stretch{};
      std::vector<double> seconds;
      play_request request{r.trace.recording, r.played, *t.size,
                           t.policy->numbers, log,      t.policy->name};
      request.steps = steps;
      request.by_stretch = options.recommend ? &by_stretch : nullptr;
      request.repeat = std::max(1u, options.repeat);
      request.seconds = options.repeat != 0 ? &seconds : nullptr;
      *t.to = row_of(*t.policy, *t.size, r.trace, r.played, t.policy->bundle->play(request));
      t.to->by_stretch = by_stretch;
      t.to->seconds = std::move(seconds);
    }
    bar.advance();
  });
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    for (std::size_t p = 0; p < chosen.size(); ++p) {
      if (chosen[p].is_oracle()) {
        r.rows[s * chosen.size() + p] = *r.oracle(chosen[p].what, sizes[s]);
      }
    }
  }
  r.warnings = find_warnings(r);
}

void run_hints(report& r, std::vector<chosen_policy> const& chosen, pool_size const& size,
               std::vector<chosen_predictor> const& predictors,
               std::vector<warmset::trace::speculation> const& ways, unsigned jobs) {
  std::size_t const first = r.rows.size();
  std::size_t const of_policy = predictors.size() * ways.size();
  r.rows.resize(first + chosen.size() * of_policy);
  for_each_parallel(chosen.size() * of_policy, jobs, [&](std::size_t i) {
    chosen_policy const& policy = chosen[i / of_policy];
    chosen_predictor const& predictor = predictors[i % of_policy / ways.size()];
    warmset::trace::speculation const& how = ways[i % ways.size()];
    play_request const request{r.trace.recording, r.played, size, policy.numbers};
    r.rows[first + i] = row_of(policy, size, r.trace, r.played, predictor, how,
                               play_hints(policy, request, predictor, how, r.time.link()));
  });
}

}  // namespace warmset_tools
