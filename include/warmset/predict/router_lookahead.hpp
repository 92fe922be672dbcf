// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranking.hpp"

namespace warmset::inline v0::predict {

/// What the engine's own side branch says: the router of the layer ahead, run early on the state that is there already.
/// Takes its ids, or its logits, whose largest it picks; without either it has no hints.
///
/// `Width` bounds the hints of a step, whatever the caller's width is. Confidence is how often the hint of that rank
/// came true. Of ids the order is kept; of logits ties go to the lower expert, and what is not a number, or no more than
/// -1e30, which masks an expert, is passed over.
///
/// Memory: 2 bytes per hint of a step, layer and sequence, 4 per layer and sequence. predict is O(E + E log width) on
/// logits, O(width) on ids; learn O(width n). Source: look-ahead routers as Fate and several engines run them.
template <u32 Width = most_hints>
class router_lookahead {
  static_assert(Width >= 1 && Width <= most_hints,
                "predict::router_lookahead gives 1 to 64 hints a step");

 public:
  static constexpr bool speculates = true;
  static constexpr char const* name = "router_lookahead";
  static constexpr u32 horizon = 1;

  /// @param sequences  that take turns; throws config_error where it is not 1 … 64
  explicit router_lookahead(u32 sequences = 1) : sequences_(detail::checked_sequences(sequences)) {}

  void open(geometry const& model) {
    model_ = detail::rows(model);
    n_said_ = fixed_array<u32>(u64{sequences_} * model_.size());
    said_ = fixed_array<u16>(u64{sequences_} * model_.size() * Width);
    precision_ = {};
  }

  /// Judges what was said of this layer, and remembers what is said of the next.
  void learn(routing_snapshot const& step) noexcept {
    if (step.row >= model_.size()) {
      return;
    }
    u64 const judged = place(step.sequence, step.row);
    for (u32 i = 0; i < n_said_[judged]; ++i) {
      precision_.judge(i, detail::contains(step.experts, said_[judged * Width + i]));
    }
    n_said_[judged] = 0;
    hint hints[Width];
    u64 const to = place(step.sequence, model_.ahead(step.row, 1));
    n_said_[to] = pick(step, {hints, Width});
    for (u32 i = 0; i < n_said_[to]; ++i) {
      said_[to * Width + i] = static_cast<u16>(hints[i].expert);
    }
  }

  u32 predict(routing_snapshot const& step, u32 width, array_view<hint> out) const noexcept {
    if (step.row >= model_.size()) {
      return 0;
    }
    std::size_t const most = min_of(min_of(std::size_t{width}, std::size_t{Width}), out.size());
    u32 const n = pick(step, out.subspan(0, most));
    precision_.grade(out, n);
    return n;
  }

 private:
  u64 place(u32 sequence, u32 row) const noexcept {
    return u64{sequence % sequences_} * model_.size() + row;
  }

  u32 pick(routing_snapshot const& step, array_view<hint> out) const noexcept {
    detail::rows::row const& there = model_[model_.ahead(step.row, 1)];
    u32 const width = static_cast<u32>(out.size());
    if (!step.lookahead.empty()) {
      u32 n = 0;
      for (std::size_t i = 0; i < step.lookahead.size() && n < width; ++i) {
        routed_id const id = step.lookahead[i];
        bool const known = id >= 0 && static_cast<u32>(id) < there.n_experts;
        if (known && !said_before(out, n, id)) {
          out[n++] = {there.layer, id, 0, 0};
        }
      }
      return n;
    }
    if (step.logits.size() != there.n_experts) {
      return 0;
    }
    detail::ranking best(width, out);
    for (u32 x = 0; x < there.n_experts; ++x) {
      if (step.logits[x] > -1e30f) {  // neither masked nor NaN
        best.offer_any(x, step.logits[x]);
      }
    }
    return best.write(there.layer, out, [](double) { return 0.0; });
  }

  static bool said_before(array_view<hint> out, u32 n, routed_id id) noexcept {
    for (u32 i = 0; i < n; ++i) {
      if (out[i].expert == id) {
        return true;
      }
    }
    return false;
  }

  u32 sequences_;
  detail::rows model_;
  fixed_array<u32> n_said_;  // [sequence][row]
  fixed_array<u16> said_;    // [sequence][row][Width]
  detail::rank_precision precision_;
};

static_assert(predictor<router_lookahead<>> && predictor<router_lookahead<4>>,
              "predict::router_lookahead must satisfy predictor");

}  // namespace warmset::inline v0::predict
