// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "report.hpp"

namespace warmset_tools {

using warmset::phase;

namespace {

/// A gain of hit rate below this is not worth another policy, however certain it is.
constexpr double least_gain = 0.002;

/// How much more one policy hits than another, and what of that may be chance.
struct comparison {
  double gain;
  double noise;

  bool is_real() const noexcept { return gain > noise; }
};

std::vector<stretch> stretches_of(outcome_row const& row, std::optional<phase> which) {
  std::vector<stretch> all;
  for (std::size_t p = 0; p < warmset::n_phases; ++p) {
    if (!which || static_cast<std::size_t>(*which) == p) {
      for (stretch const& s : row.by_stretch[p]) {
        if (s.lookups != 0) {
          all.push_back(s);
        }
      }
    }
  }
  return all;
}

/// The noise is twice the standard error of the gain over the stretches of the trace, both played alike; without
/// bound where there is but one. At least least_gain.
comparison compare(outcome_row const& a, outcome_row const& b, std::optional<phase> which) {
  std::vector<stretch> const of_a = stretches_of(a, which);
  std::vector<stretch> const of_b = stretches_of(b, which);
  double sum = 0, squares = 0;
  double const n = static_cast<double>(of_a.size());
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    double const gain = (static_cast<double>(of_a[i].hits) - static_cast<double>(of_b[i].hits)) /
                        static_cast<double>(of_a[i].lookups);
    sum += gain;
    squares += gain * gain;
  }
  comparison c{a.total(which).hit_rate() - b.total(which).hit_rate(),
               std::numeric_limits<double>::infinity()};
  if (of_a.size() > 1) {
    double const variance = std::max(0.0, (squares - sum * sum / n) / (n - 1));
    c.noise = std::max(least_gain, 2 * std::sqrt(variance / n));
  }
  return c;
}

std::vector<outcome_row const*> candidates(report const& r, pool_size const& size) {
  std::vector<outcome_row const*> found;
  for (std::vector<outcome_row> const* rows : {&r.rows, &r.baselines}) {
    for (outcome_row const& row : *rows) {
      if (!row.policy.is_oracle() && same_size(row.size, size)) {
        found.push_back(&row);
      }
    }
  }
  return found;
}

outcome_row const& named(std::vector<outcome_row const*> const& rows, std::string const& name) {
  return **std::find_if(rows.begin(), rows.end(),
                        [&](outcome_row const* row) { return row->policy.name == name; });
}

/// The row with most hits of those that `may` be taken, the first of several; null where none may.
template <class May>
outcome_row const* most_hits(std::vector<outcome_row const*> const& rows,
                             std::optional<phase> which, May&& may) {
  outcome_row const* best = nullptr;
  for (outcome_row const* row : rows) {
    if (may(*row) &&
        (best == nullptr || row->total(which).hit_rate() > best->total(which).hit_rate())) {
      best = row;
    }
  }
  return best;
}

struct choice {
  outcome_row const* taken;
  char const* rule;
  std::string reason;
};

/// lru, unless something gains more than the noise; then the policy that keeps fewest bytes of those that do and
/// whose distance to the best is within the noise. Counts that never fade are taken for simpler by nobody: they fit a
/// short trace and fail a long one.
choice choose(std::vector<outcome_row const*> const& rows, std::optional<phase> which) {
  outcome_row const& lru = named(rows, "lru");
  outcome_row const& best = *most_hits(rows, which, [](outcome_row const&) { return true; });
  comparison const over_lru = compare(best, lru, which);
  if (over_lru.gain <= 0) {
    return {&lru, "best", "no policy hits more"};
  }
  if (!over_lru.is_real()) {
    return {&lru, "lru-within-noise",
            fmt::format("{} gains {:.4f}, within the noise of {:.4f}", best.policy.name,
                        over_lru.gain, over_lru.noise)};
  }
  outcome_row const* taken = &best;
  for (outcome_row const* row : rows) {
    bool const as_good = row->policy.bundle->traits.score_decays &&
                         compare(*row, lru, which).is_real() &&
                         !compare(best, *row, which).is_real();
    std::size_t const bytes = row->policy.bundle->state_bytes;
    std::size_t const least = taken->policy.bundle->state_bytes;
    if (as_good && (bytes < least || (bytes == least && row->total(which).hit_rate() >
                                                            taken->total(which).hit_rate()))) {
      taken = row;
    }
  }
  if (taken == &best) {
    return {taken, "best",
            fmt::format("gains {:.4f} over lru, above the noise of {:.4f}", over_lru.gain,
                        over_lru.noise)};
  }
  comparison const to_best = compare(best, *taken, which);
  return {taken, "simpler-within-noise",
          fmt::format("{} bytes of state instead of {}; {} hits {:.4f} more, within the noise of "
                      "{:.4f}",
                      taken->policy.bundle->state_bytes, best.policy.bundle->state_bytes,
                      best.policy.name, to_best.gain, to_best.noise)};
}

double bytes_per_token(report const& r, outcome_row const& row, std::optional<phase> which) {
  u64 const tokens = r.tokens_of(which);
  return tokens == 0
             ? 0.0
             : static_cast<double>(row.total(which).bytes_loaded) / static_cast<double>(tokens);
}

json finite(double x) {
  return std::isfinite(x) ? json(x) : json(nullptr);
}

json recommend_one(report const& chosen_on, report const& figures, pool_size const& size,
                   std::optional<phase> which) {
  std::vector<outcome_row const*> const seen = candidates(chosen_on, size);
  std::vector<outcome_row const*> const rows = candidates(figures, size);
  choice const c = choose(seen, which);
  comparison const over_lru = compare(*c.taken, named(seen, "lru"), which);
  // Policies that decide alike are no runners-up of each other.
  outcome_row const* const second = most_hits(seen, which, [&](outcome_row const& row) {
    return row.policy.name != c.taken->policy.name &&
           stretches_of(row, which) != stretches_of(*c.taken, which);
  });
  outcome_row const& taken = named(rows, c.taken->policy.name);
  outcome_row const& lru = named(rows, "lru");
  double const rate = taken.total(which).hit_rate();
  json j;
  j["pool"] = size.pool == pool_kind::shared ? "shared" : "per-layer";
  j["slots"] = size.slots != 0 ? json(size.slots) : json(nullptr);
  j["budget_bytes"] = size.budget_bytes != 0 ? json(size.budget_bytes) : json(nullptr);
  j["phase"] = phase_name(which);
  j["policy"] = taken.policy.name;
  j["rule"] = c.rule;
  j["reason"] = c.reason;
  j["chosen_gain_over_lru"] = over_lru.gain;
  j["noise"] = c.taken->policy.name == "lru" ? json(nullptr) : finite(over_lru.noise);
  j["hit_rate"] = rate;
  j["bytes_per_token"] = bytes_per_token(figures, taken, which);
  j["gain_over_lru"] = rate - lru.total(which).hit_rate();
  if (second != nullptr) {
    outcome_row const& other = named(rows, second->policy.name);
    j["runner_up"] = other.policy.name;
    j["runner_up_hit_rate"] = other.total(which).hit_rate();
    j["margin_hit_rate"] = rate - other.total(which).hit_rate();
    j["margin_bytes_per_token"] =
        bytes_per_token(figures, other, which) - bytes_per_token(figures, taken, which);
  } else {
    for (char const* name :
         {"runner_up", "runner_up_hit_rate", "margin_hit_rate", "margin_bytes_per_token"}) {
      j[name] = nullptr;
    }
  }
  for (auto [name, what] : {std::pair{"to_belady", chosen_policy::kind::belady},
                            std::pair{"to_belady_bypass", chosen_policy::kind::belady_bypass}}) {
    outcome_row const* const oracle = figures.oracle(what, size);
    j[name] = oracle == nullptr ? json(nullptr) : json(oracle->total(which).hit_rate() - rate);
  }
  return j;
}

}  // namespace

json recommend(report const& chosen_on, report const& figures) {
  json all = json::array();
  std::vector<pool_size> sizes;
  for (outcome_row const& row : figures.rows) {
    if (std::any_of(sizes.begin(), sizes.end(),
                    [&](pool_size const& s) { return same_size(s, row.size); })) {
      continue;
    }
    sizes.push_back(row.size);
    for (std::optional<phase> which : figures.phases) {
      if (chosen_on.tokens_of(which) != 0) {
        all.push_back(recommend_one(chosen_on, figures, row.size, which));
      }
    }
  }
  return all;
}

std::string recommendation_text(json const& one) {
  std::string text = fmt::format(
      "recommended at {}: {}, {:.4f}: {}",
      one["slots"].is_null()
          ? fmt::format("{:g} MiB", static_cast<double>(one["budget_bytes"].get<u64>()) / 1048576.0)
          : fmt::format("{} slots per layer", one["slots"].get<u64>()),
      one["policy"].get<std::string>(), one["hit_rate"].get<double>(),
      one["reason"].get<std::string>());
  if (!one["runner_up"].is_null()) {
    text += fmt::format("; runner-up {}: {:+.4f}, {:+.3g} MiB/token",
                        one["runner_up"].get<std::string>(), -one["margin_hit_rate"].get<double>(),
                        one["margin_bytes_per_token"].get<double>() / 1048576.0);
  }
  if (!one["to_belady"].is_null()) {
    text += fmt::format("; to belady {:.4f}, to bypass {:.4f}", one["to_belady"].get<double>(),
                        one["to_belady_bypass"].get<double>());
  }
  return text;
}

}  // namespace warmset_tools
