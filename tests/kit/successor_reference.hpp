// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <warmset/core/integers.hpp>

// The successor score and the pools that it ranks, written for reading: every quantity is computed where its
// definition names it, and nothing is shared with the library. Sets are lists of distinct ids of the layer.

namespace warmset::kit {

using id_list = std::vector<u32>;
using id_span = std::span<u32 const>;

inline bool contains(id_span ids, u32 id) noexcept {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// Which of the score's forms: order 1 = count + successors, 2 = and the step before at half weight, 3 = and
/// a second table on the previous layer's set. Tables of 16 bits round, those of 8 bits dither. With token
/// rows there is one table more, whose context is the row that the step's token hashes to.
struct successor_form {
  u32 order = 2;
  u32 bits = 16;
  u32 token_rows = 0;
};

/// The successor score of one layer: a decayed count plus what an online table says about the experts that
/// follow the step's.
///
/// W[c][x] is how much a use of c now raises the value of x, the discounted next use (27/32 a step). It
/// learns by one-step temporal differences. Parts A to D: count, rank, learn, remember.
class successor_reference {
 public:
  static constexpr i32 one = 4096;  ///< value of an expert that the step uses, Q12
  static constexpr u32 no_token = u32_max;

  successor_reference(u32 n_experts, u32 layer, successor_form form)
      : n_(n_experts), layer_(layer), form_(form), successors_(cells()),
        before_(form.order == 3 ? cells() : 0), of_token_(std::size_t{form.token_rows} * n_experts),
        count_(n_experts), predicted_(n_experts), key_(n_experts), last_(n_experts) {}

  /// Parts A and B: what each expert is worth at a step that demands `demanded`, in Q16. `before` is the
  /// previous layer's set of the same token, empty for the first layer. Where sequences take turns,
  /// `sequence` tells them apart: the last sets of all others are contexts too. Writes nothing.
  std::vector<i32> keys_of(id_span demanded, id_span before = {}, u32 sequence = 0, u32 token = no_token) const {
    std::vector<u16> const count = counts_after(demanded);
    std::vector<i32> key(n_);
    for (u32 x = 0; x < n_; ++x) {
      key[x] = (count[x] >> 1) + (count[x] >> 3);
    }
    i32 const unit = form_.bits == 16 ? 16 : 128;  // Q12 or Q9 to Q16
    id_list const contexts = contexts_of(demanded, sequence);
    for (u32 const c : contexts) {
      add_row(key, successors_, c, unit);
    }
    if (form_.order >= 2) {
      for (u32 const c : without(contexts_1_, contexts)) {
        add_row(key, successors_, c, unit / 2);
      }
    }
    if (form_.order == 3) {
      for (u32 const c : before) {
        add_row(key, before_, c, unit);
      }
    }
    if (has_row(token)) {
      add_row(key, of_token_, row_of(token), unit);
    }
    return key;
  }

  /// Parts A to D: the keys of the step, which stay readable by key(); then learns from it.
  std::vector<i32> const& step(id_span demanded, id_span before = {}, u32 sequence = 0, u32 token = no_token) {
    key_ = keys_of(demanded, before, sequence, token);
    count_ = counts_after(demanded);
    std::vector<u8> const in = flags(demanded);
    std::vector<i32> value(n_);
    std::vector<i32> error(n_);
    for (u32 x = 0; x < n_; ++x) {
      value[x] = std::clamp(key_[x] >> 4, 0, one);
      error[x] = (in[x] != 0 ? one : (value[x] * 27) >> 5) - predicted_[x];
    }
    if (seen_) {
      learn(error);
    }
    predicted_ = value;

    contexts_2_ = std::move(contexts_1_);
    contexts_1_ = contexts_of(demanded, sequence);
    before_1_.assign(before.begin(), before.end());
    token_1_ = token;
    remember(demanded, sequence);
    seen_ = true;
    ++steps_;
    for (u32 const x : demanded) {
      last_[x] = steps_;
    }
    return key_;
  }

  /// An event wider than the pool: counts its experts and learns nothing, neither from it nor across it.
  void count_only(id_span demanded) {
    count_ = counts_after(demanded);
    seen_ = false;
  }

  /// The sequence takes no more turns: its last set is a context no longer.
  void end_sequence(u32 sequence) {
    std::erase_if(live_, [&](auto const& each) { return each.first == sequence; });
  }

  i32 key(u32 x) const noexcept { return key_[x]; }
  u32 last(u32 x) const noexcept { return last_[x]; }  ///< step + 1 of the last use; 0 = never
  u16 count(u32 x) const noexcept { return count_[x]; }
  i32 predicted(u32 x) const noexcept { return predicted_[x]; }  ///< Q12
  u32 steps() const noexcept { return steps_; }
  i32 successor(u32 c, u32 x) const noexcept { return successors_[c * n_ + x]; }
  i32 successor_of_previous_layer(u32 c, u32 x) const noexcept { return before_[c * n_ + x]; }

  void set_successor(u32 c, u32 x, i32 to) noexcept {
    successors_[c * n_ + x] = static_cast<std::int16_t>(to);
  }
  void set_successor_of_previous_layer(u32 c, u32 x, i32 to) noexcept {
    before_[c * n_ + x] = static_cast<std::int16_t>(to);
  }

  /// Learning shift for a step before with n contexts: 4 + ceil(log2(n)).
  static constexpr u32 shift_of(std::size_t n) noexcept {
    u32 shift = 4;
    while ((std::size_t{1} << (shift - 4)) < n) {
      ++shift;
    }
    return shift;
  }

  /// A cell of 16 bits, moved by 2^-shift of the error: rounded to nearest.
  static constexpr i32 rounded(i32 cell, i32 error, u32 shift) noexcept {
    return std::clamp(cell + ((error + (1 << (shift - 1))) >> shift), -32'767, 32'767);
  }

  /// A cell of 8 bits: rounded up as often as the fraction says, else small errors would never move it.
  static constexpr i32 dithered(i32 cell, i32 error, u32 shift, u32 hash) noexcept {
    i32 const dither = static_cast<i32>(hash & ((1u << (shift + 3)) - 1));
    return std::clamp(cell + ((error + dither) >> (shift + 3)), -127, 127);
  }

  static constexpr u32 hash(u32 t, u32 c, u32 x, u32 salt) noexcept {
    u32 h = t * 0x9E37'79B1u + c * 0x85EB'CA6Bu + x * 0xC2B2'AE35u + salt;
    h ^= h >> 15;
    h *= 0x2C1B'3C6Du;
    h ^= h >> 12;
    return h;
  }

 private:
  using table = std::vector<std::int16_t>;  // cells of 8 bits keep to their range

  std::size_t cells() const noexcept { return std::size_t{n_} * n_; }

  std::vector<u8> flags(id_span ids) const {
    std::vector<u8> in(n_);
    for (u32 const x : ids) {
      in[x] = 1;
    }
    return in;
  }

  static id_list without(id_span ids, id_span others) {
    id_list rest;
    std::copy_if(ids.begin(), ids.end(), std::back_inserter(rest),
                 [&](u32 id) { return !contains(others, id); });
    return rest;
  }

  std::vector<u16> counts_after(id_span demanded) const {
    std::vector<u16> count = count_;
    for (u16& m : count) {
      m = static_cast<u16>(m - (m >> 5));
    }
    for (u32 const x : demanded) {
      count[x] = static_cast<u16>(count[x] + 2047);
    }
    return count;
  }

  /// The step's set and the last sets of all other live sequences.
  id_list contexts_of(id_span demanded, u32 sequence) const {
    id_list all(demanded.begin(), demanded.end());
    for (auto const& [other, set] : live_) {
      if (other != sequence) {
        id_list const more = without(set, all);
        all.insert(all.end(), more.begin(), more.end());
      }
    }
    return all;
  }

  void remember(id_span demanded, u32 sequence) {
    auto at =
        std::find_if(live_.begin(), live_.end(), [&](auto const& each) { return each.first == sequence; });
    if (at == live_.end()) {
      at = live_.insert(at, {sequence, {}});
    }
    at->second.assign(demanded.begin(), demanded.end());
  }

  void add_row(std::vector<i32>& key, table const& from, u32 c, i32 unit) const noexcept {
    std::int16_t const* const row = from.data() + std::size_t{c} * n_;
    for (u32 x = 0; x < n_; ++x) {
      key[x] += row[x] * unit;
    }
  }

  bool has_row(u32 token) const noexcept { return form_.token_rows != 0 && token != no_token; }
  u32 row_of(u32 token) const noexcept { return (token * 0x9E37'79B1u >> 8) % form_.token_rows; }

  /// Part C. A token's row tells most by itself: it learns fast, and leaves the others less to say.
  void learn(std::vector<i32> const& error) {
    u32 const shift = shift_of(contexts_1_.size()) + (form_.token_rows != 0 ? 1 : 0);
    for (u32 const c : contexts_1_) {
      learn_row(successors_, c, error, shift, layer_);
    }
    if (form_.order >= 2) {
      for (u32 const c : without(contexts_2_, contexts_1_)) {
        learn_row(successors_, c, error, shift + 1, layer_);
      }
    }
    if (form_.order == 3) {
      for (u32 const c : before_1_) {
        learn_row(before_, c, error, shift, layer_ + 0x5555);
      }
    }
    if (has_row(token_1_)) {
      learn_row(of_token_, row_of(token_1_), error, 3, layer_ + 0xAAAA);
    }
  }

  void learn_row(table& to, u32 c, std::vector<i32> const& error, u32 shift, u32 salt) const noexcept {
    std::int16_t* const row = to.data() + std::size_t{c} * n_;
    if (form_.bits == 16) {
      for (u32 x = 0; x < n_; ++x) {
        row[x] = static_cast<std::int16_t>(rounded(row[x], error[x], shift));
      }
    } else {
      for (u32 x = 0; x < n_; ++x) {
        row[x] = static_cast<std::int16_t>(dithered(row[x], error[x], shift, hash(steps_, c, x, salt)));
      }
    }
  }

  u32 n_;
  u32 layer_;
  successor_form form_;
  table successors_;            // W[c][x]
  table before_;                // X[c][x]
  table of_token_;              // a row for each hash of a token
  std::vector<u16> count_;      // m[x], Q16
  std::vector<i32> predicted_;  // p[x], Q12
  std::vector<i32> key_;        // of the last step, Q16
  std::vector<u32> last_;
  id_list contexts_1_;                         // P1
  id_list contexts_2_;                         // P2
  id_list before_1_;                           // R1
  std::vector<std::pair<u32, id_list>> live_;  // last set of every sequence
  u32 token_1_ = no_token;                     // token of the previous step
  u32 steps_ = 0;                              // t
  bool seen_ = false;
};

/// Pools of equal slots, ranked by the scores of their layers: one a layer, or one for all.
///
/// Every miss is installed unless bypass is on. A step is judged against residency at its start, and nothing
/// that it demands leaves.
class reference_pools {
 public:
  struct options {
    u32 slots_per_layer;  ///< of a shared pool, on average
    bool shared = false;
    u32 floor = 0;           ///< shared: a layer with so many slots or fewer gives none to another
    bool bypass = false;     ///< a miss worth less than its victim goes without a slot
    u32 bypass_from = 1024;  ///< ... from this step of the layer on
    bool demand_order = false;  ///< equal keys: longest unused by place in the demand order of all steps, as in
                                ///< the library, not by step, layer and slot
  };

  reference_pools(u32 n_layers, u32 n_experts, options o)
      : options_(o), slots_(std::size_t{n_layers} * o.slots_per_layer),
        slot_of_(n_layers, std::vector<u32>(n_experts, nowhere)),
        tick_of_(n_layers, std::vector<u32>(n_experts)), held_(n_layers) {}

  /// Part E, after the layer's score has made the step; the number of hits. An event wider than the pool
  /// changes nothing here.
  u32 step(std::vector<successor_reference> const& scores, u32 layer, id_span demanded) {
    id_list missing;
    for (u32 const x : demanded) {
      if (slot_of_[layer][x] == nowhere) {
        missing.push_back(x);
      }
    }
    u32 const hits = static_cast<u32>(demanded.size() - missing.size());
    lookups_ += demanded.size();
    hits_ += hits;
    auto const [first, end] = slots_of(layer);
    if (demanded.size() > end - first) {
      return hits;
    }
    for (u32 const x : demanded) {
      tick_of_[layer][x] = ++tick_;
    }
    successor_reference const& score = scores[layer];
    bool const may_bypass = options_.bypass && score.steps() > options_.bypass_from;
    if (may_bypass) {
      missing = by_falling_key(score, missing);
    }
    id_list installed;
    id_list taken;
    for (u32 const x : missing) {
      u32 const free = first + used(layer);
      u32 const at = free < end ? free : coldest(scores, layer, demanded);
      if (at == nowhere ||
          (may_bypass && free == end && rank_of(scores, layer, layer, x) < rank_of(scores, layer, at))) {
        continue;
      }
      if (free == end) {
        slot_of_[slots_[at].layer][slots_[at].expert] = nowhere;
        --held_[slots_[at].layer];
      }
      slots_[at] = {layer, nowhere};
      ++held_[layer];
      installed.push_back(x);
      taken.push_back(at);
    }
    // Ascending ids get the slots in the order of choice, so that neighbours can be copied as one.
    std::sort(installed.begin(), installed.end());
    for (std::size_t i = 0; i < installed.size(); ++i) {
      slots_[taken[i]].expert = installed[i];
      slot_of_[layer][installed[i]] = taken[i];
    }
    return hits;
  }

  bool resident(u32 layer, u32 x) const noexcept { return slot_of_[layer][x] != nowhere; }
  u32 held(u32 layer) const noexcept { return held_[layer]; }  ///< slots of the layer
  u64 hits() const noexcept { return hits_; }
  u64 lookups() const noexcept { return lookups_; }
  double hit_rate() const noexcept { return static_cast<double>(hits_) / static_cast<double>(lookups_); }

 private:
  static constexpr u32 nowhere = u32_max;

  struct place {
    u32 layer;
    u32 expert;  ///< nowhere = chosen in this step, not filled yet
  };

  std::pair<u32, u32> slots_of(u32 layer) const noexcept {
    u32 const n = options_.slots_per_layer;
    return options_.shared ? std::pair{0u, static_cast<u32>(slots_.size())}
                           : std::pair{layer * n, (layer + 1) * n};
  }

  /// Slots of the layer's pool that are in use: the first ones, for none becomes free again.
  u32 used(u32 layer) const noexcept {
    return options_.shared ? std::accumulate(held_.begin(), held_.end(), 0u) : held_[layer];
  }

  static id_list by_falling_key(successor_reference const& score, id_span ids) {
    std::vector<std::tuple<i64, std::size_t, u32>> order;  // equal keys stay in the order of demand
    for (u32 const x : ids) {
      order.emplace_back(-i64{score.key(x)}, order.size(), x);
    }
    std::sort(order.begin(), order.end());
    id_list sorted;
    for (auto const& each : order) {
      sorted.push_back(std::get<2>(each));
    }
    return sorted;
  }

  /// Key of an expert as layer `now` sees it. In a shared pool the layers passed in this token, its own
  /// included, are needed a token later than the others.
  i64 rank_of(std::vector<successor_reference> const& scores, u32 now, u32 layer, u32 x) const noexcept {
    i64 const key = scores[layer].key(x);
    return options_.shared && layer <= now && key > 0 ? (key * 27) >> 5 : key;
  }
  i64 rank_of(std::vector<successor_reference> const& scores, u32 now, u32 at) const noexcept {
    return rank_of(scores, now, slots_[at].layer, slots_[at].expert);
  }

  /// The victim: smallest key, then longest unused, then lowest layer and slot.
  u32 coldest(std::vector<successor_reference> const& scores, u32 now, id_span demanded) const {
    auto const [first, end] = slots_of(now);
    u32 best = nowhere;
    std::tuple<i64, u32, u32, u32> best_order;
    for (u32 at = first; at < end; ++at) {
      auto const [layer, expert] = slots_[at];
      if (expert == nowhere || (layer != now && held_[layer] <= options_.floor)) {
        continue;
      }
      i64 const rank = rank_of(scores, now, at);
      if ((best != nowhere && rank > std::get<0>(best_order)) ||
          (layer == now && contains(demanded, expert))) {
        continue;
      }
      std::tuple const order{rank, options_.demand_order ? tick_of_[layer][expert] : scores[layer].last(expert),
                             options_.demand_order ? 0 : layer, at};
      if (best == nowhere || order < best_order) {
        best = at;
        best_order = order;
      }
    }
    return best;
  }

  options options_;
  std::vector<place> slots_;
  std::vector<std::vector<u32>> slot_of_;  // [layer][expert]
  std::vector<std::vector<u32>> tick_of_;  // [layer][expert]: place of the last demand among all
  id_list held_;
  u32 tick_ = 0;
  u64 hits_ = 0;
  u64 lookups_ = 0;
};

/// A model's layers with their scores, and any number of pools that play the same steps: keys do not depend
/// on what is resident, so they are computed once for all.
class reference_cache {
 public:
  reference_cache(u32 n_layers, u32 n_experts, successor_form form,
                  std::vector<reference_pools::options> const& pools)
      : sets_(n_layers) {
    for (u32 l = 0; l < n_layers; ++l) {
      scores_.emplace_back(n_experts, l, form);
    }
    for (reference_pools::options const& o : pools) {
      pools_.emplace_back(n_layers, n_experts, o);
    }
  }

  /// One step. Layers come in ascending order within a token.
  void demand(u32 layer, id_span demanded, u32 sequence = 0) {
    scores_[layer].step(demanded, layer == 0 ? id_span{} : id_span(sets_[layer - 1]), sequence);
    for (reference_pools& p : pools_) {
      p.step(scores_, layer, demanded);
    }
    sets_[layer].assign(demanded.begin(), demanded.end());
  }

  successor_reference const& score(u32 layer) const noexcept { return scores_[layer]; }
  reference_pools const& pool(std::size_t i) const noexcept { return pools_[i]; }

 private:
  std::vector<successor_reference> scores_;
  std::vector<reference_pools> pools_;
  std::vector<id_list> sets_;  // what each layer demanded last
};

}  // namespace warmset::kit
