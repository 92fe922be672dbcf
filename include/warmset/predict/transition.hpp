// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "use_rates.hpp"

namespace warmset::inline v0::predict {

/// What the layer ahead uses follows from what this one uses: counts which experts there follow which here, and how
/// much each is used of late, learned online.
///
/// With P(x | c) the share of steps with expert c here that had x there, b(x) the share of all steps and h(x) of late
/// ones (half-life 16 steps): worth(x) = b(x) · sqrt(Π_c P(x | c) / b(x)) · (h(x) + 0.05) / (b(x) + 0.05), over the
/// experts c of this step. That is naive Bayes with the evidence at half weight: experts of one step do not speak
/// independently. Confidence: u / (u + 0.32) with u = worth^1.5. Ties: the lower expert.
///
/// Memory: 2 bytes per pair of an expert here and one there, 2 and the 8 of the use rates per expert, last sets of 2 per
/// expert and sequence: 57 KiB for gpt-oss-20b, 1.6 MiB for Qwen3-30B, 24 MiB for 48 layers of 512 experts. For n
/// demanded of E experts predict is O(n E) and learn O(n² + E); of more than 32 experts of a step the last 32 are
/// asked. Source: transition tables of several engines; this combination and its numbers were measured here
/// (docs/predict.md).
template <u32 Horizon = 1>
class transition {
  static_assert(Horizon >= 1 && Horizon < 100, "predict::transition looks 1 to 99 layers ahead");

 public:
  static constexpr bool speculates = true;
  static constexpr detail::spelling<Horizon> spelled{"transition"};
  static constexpr char const* name = spelled.text;
  static constexpr u32 horizon = Horizon;

  /// @param sequences  that take turns; throws config_error where it is not 1 … 64
  explicit transition(u32 sequences = 1) : sequences_(detail::checked_sequences(sequences)) {}

  void open(geometry const& model) {
    model_ = detail::rows(model);
    last_ = detail::last_sets(model_, sequences_);
    rates_ = detail::use_rates(model_);
    first_pair_ = fixed_array<u64>(model_.size());
    u64 pairs = 0;
    for (u32 row = 0; row < model_.size(); ++row) {
      first_pair_[row] = pairs;
      pairs += u64{model_[row].n_experts} * n_there(row);
    }
    pairs_ = fixed_array<u16>(static_cast<std::size_t>(pairs));
    seen_ = fixed_array<u16>(model_.total());
  }

  void learn(routing_snapshot const& step) noexcept {
    if (!model_.teaches(step)) {
      return;
    }
    u32 const here = model_.behind(step.row, Horizon);
    for (u32 c : last_.of(model_, here, step.sequence)) {
      count(here, c, step.experts);
    }
    rates_.touch(model_, step);
    last_.remember(model_, step);
  }

  u32 predict(routing_snapshot const& step, u32 width, array_view<hint> out) const noexcept {
    detail::ranking best(width, out);
    if (step.row >= model_.size()) {
      return 0;
    }
    u32 const there = model_.ahead(step.row, Horizon);
    u16 const* row[most_evidence];
    double share[most_evidence];  // of one count
    u32 n = 0;
    for (std::size_t i = step.experts.size(); i-- != 0 && n < most_evidence;) {
      if (u32 const c = step.experts[i]; c < model_[step.row].n_experts) {
        row[n] = pairs_.data() + at(step.row, c);
        share[n++] = 1.0 / (seen_[model_[step.row].first + c] + 1.0);
      }
    }
    for (u32 x = 0; x < model_[there].n_experts; ++x) {
      double const base = rates_.in_the_long_run(model_, there, x);
      double const per_base = 1 / base;
      double evidence = 1;
      for (u32 i = 0; i < n; ++i) {
        evidence *= (row[i][x] * per_base + 1) *
                    share[i];  // + 1: before anything is seen, as often as in all steps
      }
      double const late = rates_.of_late(model_, there, x);
      best.offer(x, base * std::sqrt(evidence) * (late + .05) / (base + .05));
    }
    return best.write(model_[there].layer, out, [](double worth) {
      double const u = worth * std::sqrt(worth);
      return u / (u + .32);
    });
  }

 private:
  static constexpr u32 most_evidence = 32;  ///< keeps the product within a double

  u32 n_there(u32 row) const noexcept { return model_[model_.ahead(row, Horizon)].n_experts; }
  u64 at(u32 row, u32 expert) const noexcept {
    return first_pair_[row] + u64{expert} * n_there(row);
  }

  /// One more step with expert c here, followed by this set there.
  void count(u32 here, u32 c, array_view<u32 const> set) noexcept {
    u16* const row = pairs_.data() + at(here, c);
    u16& seen = seen_[model_[here].first + c];
    u32 const n = n_there(here);
    if (seen == 0xFFFF) {  // old news fades
      seen /= 2;
      for (u32 x = 0; x < n; ++x) {
        row[x] = static_cast<u16>(row[x] / 2);
      }
    }
    ++seen;
    for (u32 x : set) {
      if (x < n && row[x] < seen) {  // an expert counts once per step
        ++row[x];
      }
    }
  }

  u32 sequences_;
  detail::rows model_;
  detail::last_sets last_;
  detail::use_rates rates_;
  fixed_array<u64> first_pair_;  // [row]
  fixed_array<u16> pairs_;       // [row][expert here][expert there]
  fixed_array<u16> seen_;        // [expert of the model]: steps with it here
};

static_assert(predictor<transition<1>> && predictor<transition<2>>,
              "predict::transition must satisfy predictor");

}  // namespace warmset::inline v0::predict
