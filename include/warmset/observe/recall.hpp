// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/array_view.hpp"
#include "../core/fixed_array.hpp"
#include "../core/geometry.hpp"
#include "registry.hpp"

namespace warmset::inline v0 {

/// What predictions came to, judged step by step against the set that the step demanded. All experts are
/// distinct within a step. Three failures are kept apart: predicted and not copied (nothing was spent), copied
/// and not used (bytes were), used and not predicted (the predictor did not see it).
struct recall_counts {
  amount<unit::steps> steps;
  amount<unit::experts> candidates;  ///< experts of the layer, once per step
  amount<unit::experts> used;        ///< demanded
  amount<unit::experts> predicted;
  amount<unit::experts> predicted_used;
  amount<unit::experts> first_k_used;  ///< of `used`: those among the first k predictions
  amount<unit::experts> predicted_not_copied;
  amount<unit::experts> copied;  ///< because of a prediction for this step
  amount<unit::experts> copied_used;
  amount<unit::experts> copied_not_used;
  amount<unit::experts> used_not_predicted;
  amount<unit::experts> misses;  ///< of `used`: absent had no prediction been copied
  amount<unit::experts> misses_predicted;
  amount<unit::bytes> copied_bytes;  ///< of `copied`

  /// Of what was predicted, the share that was used; 0 where nothing was predicted, as with all of these.
  constexpr double precision() const noexcept {
    return ratio(predicted_used.value, predicted.value);
  }
  /// Of what was used, the share among the first k predictions of its step, k being the layer's.
  constexpr double recall_at_k() const noexcept { return ratio(first_k_used.value, used.value); }
  constexpr double recall() const noexcept { return ratio(predicted_used.value, used.value); }
  /// Of what would have missed, the share that was predicted.
  constexpr double miss_coverage() const noexcept {
    return ratio(misses_predicted.value, misses.value);
  }
  /// Precision of naming experts at random: used / n_experts.
  constexpr double chance() const noexcept { return ratio(used.value, candidates.value); }
  /// Bytes copied for each copied expert that its step used; u64_max where none was, 0 where none was copied.
  constexpr u64 bytes_per_useful_hit() const noexcept {
    return copied_used.value != 0    ? copied_bytes.value / copied_used.value
           : copied_bytes.value != 0 ? u64_max
                                     : 0;
  }

  constexpr recall_counts& operator+=(recall_counts const& o) noexcept {
    steps += o.steps;
    candidates += o.candidates;
    used += o.used;
    predicted += o.predicted;
    predicted_used += o.predicted_used;
    first_k_used += o.first_k_used;
    predicted_not_copied += o.predicted_not_copied;
    copied += o.copied;
    copied_used += o.copied_used;
    copied_not_used += o.copied_not_used;
    used_not_predicted += o.used_not_predicted;
    misses += o.misses;
    misses_predicted += o.misses_predicted;
    copied_bytes += o.copied_bytes;
    return *this;
  }

 private:
  static constexpr double ratio(u64 part, u64 whole) noexcept {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  }
};

/// Entries of the registry for recall, in the order of export.
template <class F>
constexpr void for_each_counter(recall_counts const& c, F&& f) {
  auto const entry = [&]<class Unit>(char const* name, char const* help, amount<Unit> value) {
    f(counter_info{name, Unit::name, counted_for::speculation, "", "", help}, value);
  };
  entry("recall_judged", "Steps whose predictions were judged.", c.steps);
  entry("recall_candidates", "Experts of the layer, once per judged step.", c.candidates);
  entry("recall_used", "Experts that judged steps demanded.", c.used);
  entry("recall_predicted", "Experts predicted for judged steps.", c.predicted);
  entry("recall_predicted_used", "Predicted experts that the step demanded.", c.predicted_used);
  entry("recall_first_k_used", "Demanded experts among the first k predictions.", c.first_k_used);
  entry("recall_predicted_not_copied", "Predicted experts for which no transfer was issued.",
        c.predicted_not_copied);
  entry("recall_copied", "Experts copied because of a prediction for the step.", c.copied);
  entry("recall_copied_used", "Copied experts that the step demanded.", c.copied_used);
  entry("recall_copied_not_used", "Copied experts that the step did not demand.",
        c.copied_not_used);
  entry("recall_used_not_predicted", "Demanded experts that nobody had predicted.",
        c.used_not_predicted);
  entry("recall_misses", "Demanded experts that were absent but for predictions.", c.misses);
  entry("recall_misses_predicted", "Of these, the predicted ones.", c.misses_predicted);
  entry("recall_copied", "Bytes of the copied experts.", c.copied_bytes);
}

/// Judges predictions against what steps demand, per layer and phase.
///
/// Tell it, for each layer, what was offered (`predicted`), which of it got a transfer (`copied`) and what the
/// next step demanded (`used`). An expert counts as used by the very step that it was predicted for; that one
/// is of use later shows in the cache's counters alone. Allocates in its constructor only.
class recall {
 public:
  static constexpr u32 max_ahead = 4;

  /// Predictions may be for the layer's next step, up to the next but (ahead − 1). Throws config_error where
  /// `ahead` is 0 or beyond max_ahead, and bad_alloc.
  explicit recall(geometry const& model, u32 ahead = 1) : ahead_(ahead) {
    if (ahead == 0 || ahead > max_ahead) {
      throw config_error("recall: predictions ", ahead, " steps ahead; between 1 and ", max_ahead,
                         " are possible");
    }
    layers_ = fixed_array<layer>(model.layers().size());
    counts_ = fixed_array<recall_counts>(layers_.size() * n_phases);
    std::size_t marks = 0;
    for (u32 i = 0; i < layers_.size(); ++i) {
      layer_geometry const& g = model.layers()[i];
      layers_[i] = {g.n_experts, g.k, g.expert_bytes(), marks, 0, {}};
      marks += std::size_t{g.n_experts} * ahead;
    }
    marks_ = fixed_array<mark>(marks);
  }

  /// Experts offered for the layer's next step but (ahead − 1), surest first. What names no expert of the layer
  /// or was predicted for that step before is passed over. O(experts).
  template <id_range Ids>
  void predicted(u32 layer_index, Ids const& experts, u32 ahead = 1) noexcept {
    for (std::size_t i = 0; i < experts.size(); ++i) {
      note(layer_index, static_cast<i64>(experts.data()[i]), ahead, false);
    }
  }
  /// An expert for which speculation issued a transfer, for the same step. It counts as predicted.
  void copied(u32 layer_index, expert_id expert, u32 ahead = 1) noexcept {
    note(layer_index, expert.value, ahead, true);
  }

  /// The layer's next step demanded these distinct experts, and they were served so: judges its predictions,
  /// and the later ones come a step nearer. O(experts of the layer).
  void used(u32 layer_index, phase p, array_view<u32 const> experts,
            array_view<access_kind const> how) noexcept {
    layer& l = layers_[layer_index];
    recall_counts& c = counts_[layer_index * n_phases + static_cast<u32>(p)];
    mark* const marks = marks_of(l, 0);
    ++c.steps.value;
    c.candidates.value += l.n_experts;
    for (u32 i = 0; i < experts.size(); ++i) {
      mark& m = marks[experts[i]];
      // a transfer that a hint started has made a hit of what would have missed
      bool const missed =
          how[i] == access_kind::load || how[i] == access_kind::declined ||
          how[i] == access_kind::overflow_miss || how[i] == access_kind::first_use ||
          ((how[i] == access_kind::late || how[i] == access_kind::overflow_hit) && m.copied);
      ++c.used.value;
      c.predicted_used.value += m.rank != 0 ? 1 : 0;
      c.first_k_used.value += m.rank != 0 && m.rank <= l.k ? 1 : 0;
      c.copied_used.value += m.copied ? 1 : 0;
      c.used_not_predicted.value += m.rank == 0 ? 1 : 0;
      c.misses.value += missed ? 1 : 0;
      c.misses_predicted.value += missed && m.rank != 0 ? 1 : 0;
    }
    u64 copies = 0;
    for (u32 e = 0; e < l.n_experts; ++e) {
      c.predicted.value += marks[e].rank != 0 ? 1 : 0;
      c.predicted_not_copied.value += marks[e].rank != 0 && !marks[e].copied ? 1 : 0;
      copies += marks[e].copied ? 1 : 0;
      marks[e] = {};
    }
    c.copied.value += copies;
    c.copied_bytes.value += copies * l.expert_bytes;
    c.copied_not_used.value = c.copied.value - c.copied_used.value;
    l.n_predicted[l.first] = 0;
    l.first = (l.first + 1) % ahead_;
  }

  recall_counts const& total(u32 layer_index, phase p) const noexcept {
    return counts_[layer_index * n_phases + static_cast<u32>(p)];
  }
  /// Sum over the layers.
  recall_counts total(phase p) const noexcept {
    recall_counts sum{};
    for (u32 i = 0; i < layers_.size(); ++i) {
      sum += total(i, p);
    }
    return sum;
  }

 private:
  struct mark {
    u32 rank;  ///< 1 = surest; 0 = not predicted
    bool copied;
  };
  struct layer {
    u32 n_experts;
    u32 k;
    u64 expert_bytes;
    std::size_t first_mark;
    u32 first;  ///< which of the `ahead` rows of marks is the next step's
    u32 n_predicted[max_ahead];
  };

  u32 row_of(layer const& l, u32 later) const noexcept { return (l.first + later) % ahead_; }
  mark* marks_of(layer const& l, u32 later) noexcept {
    return marks_.data() + l.first_mark + std::size_t{row_of(l, later)} * l.n_experts;
  }
  void note(u32 layer_index, i64 expert, u32 ahead, bool copied) noexcept {
    layer& l = layers_[layer_index];
    if (expert < 0 || expert >= l.n_experts || ahead == 0 || ahead > ahead_) {
      return;
    }
    mark& m = marks_of(l, ahead - 1)[expert];
    if (m.rank == 0) {
      m.rank = ++l.n_predicted[row_of(l, ahead - 1)];
    }
    m.copied = m.copied || copied;
  }

  u32 ahead_;
  fixed_array<layer> layers_;
  fixed_array<mark> marks_;
  fixed_array<recall_counts> counts_;
};

}  // namespace warmset::inline v0
