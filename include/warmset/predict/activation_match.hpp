// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "ranking.hpp"

namespace warmset::inline v0::predict {

/// Like states use like experts: remembers the hidden states of late steps and what the layer ahead used after each;
/// the sets that followed the states nearest to this one vote. Without an activation it has no hints.
///
/// A state is kept as a sketch of 64 numbers of length 1: element i is added to place hash(i), with a sign of the hash
/// (Charikar, Chen and Farach-Colton, Count sketch, 2002), which keeps cosines. The 8 nearest with a cosine above 0 vote
/// by their cosine to the eighth power; confidence is the share of the vote. Ties: the lower expert, the newer state.
///
/// Memory: `States` per layer, 264 bytes and one bit per expert ahead each, in a ring. For d elements predict and learn
/// are O(d + 64 States + 8 E). Source: matching of activations as in MoE-Infinity and fMoE; sketch and vote are this
/// project's, and no public recording with hidden states was at hand to measure them on.
template <u32 Horizon = 1, u32 States = 128>
class activation_match {
  static_assert(Horizon >= 1 && Horizon < 100,
                "predict::activation_match looks 1 to 99 layers ahead");
  static_assert(States >= 1 && States <= 65'536,
                "predict::activation_match keeps 1 to 65536 states of a layer");

 public:
  static constexpr bool speculates = true;
  static constexpr detail::spelling<Horizon> spelled{"activation_match"};
  static constexpr char const* name = spelled.text;
  static constexpr u32 horizon = Horizon;

  /// @param sequences  that take turns; throws config_error where it is not 1 … 64
  explicit activation_match(u32 sequences = 1) : sequences_(detail::checked_sequences(sequences)) {}

  void open(geometry const& model) {
    model_ = detail::rows(model);
    words_ = (model_.widest() + 31) / 32;
    states_ = fixed_array<state>(u64{model_.size()} * States);
    sets_ = fixed_array<u32>(states_.size() * words_);
    newest_ = fixed_array<u32>(model_.size());
    waiting_ = fixed_array<ticket>(u64{sequences_} * model_.size());
  }

  void learn(routing_snapshot const& step) noexcept {
    if (step.row >= model_.size()) {
      return;
    }
    answer(step);
    ticket& mine = waiting_[u64{step.sequence % sequences_} * model_.size() + step.row];
    mine = {};
    if (step.activation.empty()) {
      return;
    }
    float made[dimensions];
    if (!sketch(step.activation, made)) {
      return;
    }
    u32 const number = ++newest_[step.row];  // from 1; a ring
    mine = {step.row * States + number % States, number};
    state& s = states_[mine.place];
    for (u32 i = 0; i < dimensions; ++i) {
      s.sketch[i] = made[i];
    }
    s.number = number;
    s.answered = 0;
  }

  u32 predict(routing_snapshot const& step, u32 width, array_view<hint> out) const noexcept {
    detail::ranking best(width, out);
    float wanted[dimensions];
    if (step.row >= model_.size() || step.activation.empty() || !sketch(step.activation, wanted)) {
      return 0;
    }
    neighbour closest[n_neighbours];
    u32 const n = nearest(step.row, wanted, closest);
    double sum = 0;
    for (u32 i = 0; i < n; ++i) {
      sum += closest[i].vote;
    }
    u32 const there = model_.ahead(step.row, Horizon);
    for (u32 x = 0; x < model_[there].n_experts && n != 0; ++x) {
      double votes = 0;
      for (u32 i = 0; i < n; ++i) {
        u32 const word = sets_[u64{closest[i].place} * words_ + x / 32];
        votes += (word >> (x % 32) & 1) != 0 ? closest[i].vote : 0;
      }
      best.offer(x, votes / sum);
    }
    return best.write(model_[there].layer, out, [](double share) { return share; });
  }

 private:
  static constexpr u32 dimensions = 64;
  static constexpr u32 n_neighbours = 8;

  struct state {
    float sketch[dimensions];
    u32 number = 0;    ///< of the layer's states; 0 = none
    u32 answered = 0;  ///< whether the layer ahead has been seen
  };
  struct ticket {
    u32 place = 0;
    u32 number = 0;  ///< 0 = none waits
  };
  struct neighbour {
    double vote;
    u32 place;
    u32 number;
  };

  /// The layer ahead of a state that waits has been routed: keeps its set.
  void answer(routing_snapshot const& step) noexcept {
    u32 const here = model_.behind(step.row, Horizon);
    ticket const t = waiting_[u64{step.sequence % sequences_} * model_.size() + here];
    if (t.number == 0 || states_[t.place].number != t.number) {
      return;  // none, or the ring has come round
    }
    u32* const set = sets_.data() + u64{t.place} * words_;
    for (u32 w = 0; w < words_; ++w) {
      set[w] = 0;
    }
    for (u32 x : step.experts) {
      if (x < model_[step.row].n_experts) {
        set[x / 32] |= 1u << (x % 32);
      }
    }
    states_[t.place].answered = 1;
  }

  /// False where the state has no direction.
  static bool sketch(array_view<float const> activation, float (&out)[dimensions]) noexcept {
    for (float& x : out) {
      x = 0;
    }
    for (std::size_t i = 0; i < activation.size(); ++i) {
      u32 const hash = static_cast<u32>((i + 1) * 0x9E37'79B9'7F4A'7C15ull >> 32);
      out[hash % dimensions] += (hash & 64) != 0 ? activation[i] : -activation[i];
    }
    double square = 0;
    for (float x : out) {
      square += double{x} * x;
    }
    if (!(square > 0) || !(square < 1e300)) {
      return false;
    }
    double const scale = 1 / std::sqrt(square);
    for (float& x : out) {
      x = static_cast<float>(x * scale);
    }
    return true;
  }

  u32 nearest(u32 row, float const (&wanted)[dimensions],
              neighbour (&closest)[n_neighbours]) const noexcept {
    u32 n = 0;
    for (u32 place = row * States; place < (row + 1) * States; ++place) {
      state const& s = states_[place];
      if (s.number == 0 || s.answered == 0) {
        continue;
      }
      float cosine = 0;
      for (u32 i = 0; i < dimensions; ++i) {
        cosine += wanted[i] * s.sketch[i];
      }
      if (!(cosine > 0)) {
        continue;
      }
      double const square = double{cosine} * cosine;
      neighbour const made{square * square * square * square, place, s.number};
      u32 at = n;
      for (;
           at != 0 && (made.vote > closest[at - 1].vote ||
                       (made.vote == closest[at - 1].vote && made.number > closest[at - 1].number));
           --at) {
        if (at < n_neighbours) {
          closest[at] = closest[at - 1];
        }
      }
      if (at < n_neighbours) {
        closest[at] = made;
        n += n < n_neighbours ? 1 : 0;
      }
    }
    return n;
  }

  u32 sequences_;
  detail::rows model_;
  u32 words_ = 0;
  fixed_array<state> states_;    // [row][States]
  fixed_array<u32> sets_;        // [row][States][words_]
  fixed_array<u32> newest_;      // [row]: number of the last state
  fixed_array<ticket> waiting_;  // [sequence][row]
};

static_assert(predictor<activation_match<>>, "predict::activation_match must satisfy predictor");

}  // namespace warmset::inline v0::predict
