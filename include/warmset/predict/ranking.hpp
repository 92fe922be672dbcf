// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rows.hpp"

namespace warmset::inline v0 {
namespace predict::detail {

/// A probability in 1/65535.
constexpr u16 confidence_of(double p) noexcept {
  return p <= 0 ? u16{0} : p >= 1 ? u16{65'535} : static_cast<u16>(p * 65'535 + .5);
}

/// The best candidates of one call, best first; of equal ones the lower expert. Lives on the stack.
class ranking {
 public:
  explicit ranking(u32 width, array_view<hint> out) noexcept
      : width_(static_cast<u32>(min_of(std::size_t{min_of(width, most_hints)}, out.size()))) {}

  u32 width() const noexcept { return width_; }

  /// Experts are offered once each; scores of 0 and below are no candidates. O(width), mostly O(1).
  void offer(u32 expert, double score) noexcept {
    if (score > 0) {
      offer_any(expert, score);
    }
  }
  /// The same for scores of any sign; they are numbers.
  void offer_any(u32 expert, double score) noexcept {
    if (width_ == 0 || (n_ == width_ && !before(score, expert, n_ - 1))) {
      return;
    }
    u32 at = n_ < width_ ? n_++ : n_ - 1;
    for (; at != 0 && before(score, expert, at - 1); --at) {
      best_[at] = best_[at - 1];
    }
    best_[at] = {score, expert};
  }

  /// Writes the hints for a layer. `probability(score)` must not fall as the score rises.
  template <class Probability>
  u32 write(layer_id layer, array_view<hint> out, Probability&& probability) const noexcept {
    for (u32 i = 0; i < n_; ++i) {
      out[i] = {layer, static_cast<routed_id>(best_[i].expert), static_cast<u16>(i),
                confidence_of(probability(best_[i].score))};
    }
    return n_;
  }

 private:
  struct candidate {
    double score;
    u32 expert;
  };

  bool before(double score, u32 expert, u32 at) const noexcept {
    return score > best_[at].score || (score == best_[at].score && expert < best_[at].expert);
  }

  u32 width_;
  u32 n_ = 0;
  candidate best_[most_hints];
};

/// How often the hint of each rank has come true: what predictors without probabilities of their own say as their
/// confidence. Memory: 512 bytes.
class rank_precision {
 public:
  void judge(u32 rank, bool came_true) noexcept {
    counts& c = of_rank_[min_of(rank, most_hints - 1)];
    c.came_true += came_true ? 1 : 0;
    if (++c.judged == 1u << 12) {  // old news fades
      c.judged /= 2;
      c.came_true /= 2;
    }
  }

  /// 1/2 while nothing is known.
  double of(u32 rank) const noexcept {
    counts const& c = of_rank_[min_of(rank, most_hints - 1)];
    return (c.came_true + 1.0) / (c.judged + 2.0);
  }

  /// Fills in ranks and confidences of `n` hints, which must not rise.
  void grade(array_view<hint> hints, u32 n) const noexcept {
    u16 least = 65'535;
    for (u32 i = 0; i < n; ++i) {
      least = min_of(least, confidence_of(of(i)));
      hints[i].rank = static_cast<u16>(i);
      hints[i].confidence = least;
    }
  }

 private:
  struct counts {
    u32 judged = 0;
    u32 came_true = 0;
  };
  counts of_rank_[most_hints];
};

/// "name" for the usual horizon of one layer, "name_2" for others.
template <u32 Horizon>
struct spelling {
  char text[32]{};
  consteval explicit spelling(char const* name) {
    u32 at = 0;
    for (; *name != '\0'; ++name) {
      text[at++] = *name;
    }
    if (Horizon != 1) {
      text[at++] = '_';
      if (Horizon >= 10) {
        text[at++] = static_cast<char>('0' + Horizon / 10);
      }
      text[at++] = static_cast<char>('0' + Horizon % 10);
    }
  }
};

template <class Ids>
constexpr bool contains(Ids const& ids, u32 wanted) noexcept {
  for (auto id : ids) {
    if (static_cast<u32>(id) == wanted) {
      return true;
    }
  }
  return false;
}

}  // namespace predict::detail
}  // namespace warmset::inline v0
