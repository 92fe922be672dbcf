// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "concept.hpp"

namespace warmset::inline v0::score {

namespace successor_detail {

/// The name of a form: what differs from the default one.
struct spelling {
  char text[40];

  consteval spelling(u32 order, u32 bits, u32 token_rows) : text{} {
    u32 at = 0;
    auto const add = [&](char const* word) {
      for (; *word != '\0'; ++word) {
        text[at++] = *word;
      }
    };
    add("successor");
    if (order != 2) {
      text[at++] = '_';
      text[at++] = static_cast<char>('0' + order);
    }
    add(bits == 8 ? "_int8" : "");
    add(token_rows != 0 ? "_token" : "");
  }
};

}  // namespace successor_detail

/// Decayed use count plus an online table of which experts follow which. W[c][x] is how much a use of expert c
/// now raises the worth of expert x; it learns by one-step temporal differences, where a use is worth 1 and the
/// next step is discounted by 27/32. The key of x is 5/8 of its count plus the rows of the experts that the
/// step demands. Unit: Q16. Integers only; the count has a half-life of 22 steps. History survives eviction.
///
/// - `Order` 1: the step's own set. 2, the default: and the set of the step before at half weight. 3: and a
///   second table on the set that the layer before demanded for the same token.
/// - `Cell`: i16 (Q12, rounded) or i8 (Q9, dithered: half the memory, a thousandth of hit rate).
/// - `TokenRows`: 0, or a power of two: a table more, with a row per hash of the input token. The engine says the
///   token with the step.
///
/// Where sequences take turns, `tuning::sequences` of them, the last sets of all are contexts of each step.
///
/// Memory per layer: E x E cells, twice with order 3, and TokenRows x E. Per step O(n E) additions and as many
/// updates for n demanded of E experts, no multiplication but the discount (i8 hashes its dither). Ties: the
/// selector's. Source: this project (docs/successor.md), measured there against what else was tried.
template <u32 Order = 2, class Cell = i16, u32 TokenRows = 0>
class successor {
  static_assert(Order >= 1 && Order <= 3, "score::successor has order 1, 2 or 3");
  static_assert(std::is_same_v<Cell, i16> || std::is_same_v<Cell, i8>, "score::successor has cells of i16 or i8");
  static_assert((TokenRows & (TokenRows - 1)) == 0, "score::successor has a power of two of token rows, or 0");

 public:
  struct state {
    i32 key;        ///< of the layer's last step, Q16
    u16 count;      ///< decayed uses, Q16 of a use at every step
    i16 predicted;  ///< worth that the last step predicted, Q12, 0 … 4096
  };
  static constexpr successor_detail::spelling spelled{Order, 8 * sizeof(Cell), TokenRows};
  static constexpr char const* name = spelled.text;
  static constexpr u64 one_count = 1279;  ///< 5/8 of the count that one use adds
  static constexpr bool decays = true;
  static constexpr u32 columns = 32;  // more than g++ unrolls away before it vectorises
  static constexpr bool uses_previous_layer = Order == 3;
  static constexpr bool uses_supplied = false;

  WARMSET_HD explicit constexpr successor(tuning const& numbers) noexcept
      : sequences_(max_of(numbers.sequences, 1u)) {}

  WARMSET_HD constexpr u64 value(state const& x, expert_facts, clocks) const noexcept {
    return x.key > 0 ? static_cast<u64>(x.key) : 0;
  }
  WARMSET_HD constexpr u32 heat(state const& x, expert_facts, clocks) const noexcept { return x.count >> 11; }
  WARMSET_HD constexpr void on_demand(state&, clocks) const noexcept {}

  WARMSET_HD constexpr i32 key_of(state const& x) const noexcept { return x.key; }
  WARMSET_HD constexpr i32 aged(i32 key) const noexcept {
    return key > 0 ? static_cast<i32>((i64{key} * 27) >> 5) : key;
  }

  WARMSET_HD constexpr u64 context_bytes(u32 n_experts) const noexcept {
    return parts(n_experts, sequences_).size;
  }

  /// Lists the experts whose rows the step adds: the id, with `half` set where at half weight. One lane.
  template <class Experts>
  WARMSET_HD u32 list_contexts(unsigned char const* context, Experts const& experts, step_context const& step,
                               u32* out) const noexcept {
    parts const at(step.n_experts, sequences_);
    head const& h = head_of(context);
    u32 n = add_live(context, at, step, out);
    if constexpr (Order >= 2) {
      u16 const* const before = list(context, at.before);
      u32 const full = n;
      for (u32 i = 0; i < h.n_before; ++i) {
        u32 const c = before[i];
        if (!(sequences_ == 1 ? experts.demanded(c) : holds(out, full, c))) {
          out[n++] = c | half;
        }
      }
    }
    return n;
  }

  /// Parts A and B of the rule: count, rank. `contexts` is what list_contexts said. Of at most N columns from a multiple of N.
  template <u32 N = columns, class Experts>
  WARMSET_HD void keys(unsigned char const* context, state const* states, Experts const& experts,
                       step_context const& step, u32 first, u32 end, i32* out) const noexcept {
    parts const at(step.n_experts, sequences_);
    i32 sum[N];
    for (u32 j = 0; j < N; ++j) {
      sum[j] = 0;
    }
    for (u32 x = first; x < end; ++x) {
      u32 const count = counted(states[x].count, experts.demanded(x));
      sum[x - first] = static_cast<i32>((count >> 1) + (count >> 3));
    }
    for (u32 i = 0; i < step.n_contexts; ++i) {
      u32 const c = step.contexts[i];
      add_row<N>(cells(context, at.successors, at.stride, c & ~half) + first, (c & half) != 0 ? unit / 2 : unit, sum);
    }
    if constexpr (Order == 3) {
      for (u32 i = 0; i < step.n_previous; ++i) {
        add_row<N>(cells(context, at.of_layer, at.stride, step.previous[i]) + first, unit, sum);
      }
    }
    if constexpr (TokenRows != 0) {
      if (step.token != step_context::no_token) {
        add_row<N>(cells(context, at.of_token, at.stride, token_row(step.token)) + first, unit, sum);
      }
    }
    for (u32 x = first; x < end; ++x) {
      out[x] = sum[x - first];
    }
  }

  /// Part C: learn. Columns as for keys.
  template <u32 N = columns, class Experts, class Keys>
  WARMSET_HD void learn(unsigned char* context, state* states, Experts const& experts, step_context const& step,
                        Keys const& keys, u32 first, u32 end) const noexcept {
    parts const at(step.n_experts, sequences_);
    head const& h = head_of(context);
    i32 error[N];
    for (u32 j = 0; j < N; ++j) {
      error[j] = 0;
    }
    for (u32 x = first; x < end; ++x) {
      bool const demanded = experts.demanded(x);
      state& mine = states[x];
      i32 const worth = min_of(max_of(keys[x] >> 4, 0), one);
      error[x - first] = (demanded ? one : (worth * 27) >> 5) - mine.predicted;
      mine.key = keys[x];
      mine.count = static_cast<u16>(counted(mine.count, demanded));
      mine.predicted = static_cast<i16>(worth);
    }
    if (h.seen == 0) {
      return;
    }
    u32 const shift = base_shift + ceil_log2(max_of(h.n_before, 1u));
    u16 const* const before = list(context, at.before);
    learn_rows<N>(context, at.successors, at.stride, before, h.n_before, error, shift, step.layer, h.t, first);
    if constexpr (Order >= 2) {
      learn_rows<N>(context, at.successors, at.stride, list(context, at.two_before), h.n_two_before, error, shift + 1,
                    step.layer, h.t, first);
    }
    if constexpr (Order == 3) {
      learn_rows<N>(context, at.of_layer, at.stride, list(context, at.layer_before), h.n_layer_before, error, shift,
                    step.layer + 0x5555, h.t, first);
    }
    if constexpr (TokenRows != 0) {
      if (h.token_row != 0) {
        learn_row<N>(cells(context, at.of_token, at.stride, h.token_row - 1) + first, error, token_shift,
                     step.layer + 0xAAAA, h.t, h.token_row - 1, first);
      }
    }
  }

  /// Part D: remember. One lane.
  WARMSET_HD void end_step(unsigned char* context, step_context const& step) const noexcept {
    parts const at(step.n_experts, sequences_);
    head& h = *reinterpret_cast<head*>(context);
    u16* const before = list(context, at.before);
    if constexpr (Order >= 2) {
      // what is in the new list as well has been counted there
      u16* const two_before = list(context, at.two_before);
      h.n_two_before = 0;
      for (u32 i = 0; i < h.n_before; ++i) {
        if (!in_contexts(context, at, step, before[i])) {
          two_before[h.n_two_before++] = before[i];
        }
      }
    }
    h.n_before = 0;
    for (u32 i = 0; i < step.n; ++i) {
      before[h.n_before++] = static_cast<u16>(step.ids[i]);
    }
    if (sequences_ > 1) {
      u32 const own = step.sequence % sequences_;
      for (u32 s = 0; s < sequences_; ++s) {
        u16 const* const set = list(context, at.live) + u64{s} * at.list;
        for (u32 i = 0; s != own && i < set[0]; ++i) {
          if (!holds(before, h.n_before, set[8 + i])) {
            before[h.n_before++] = set[8 + i];
          }
        }
      }
      u16* const mine = list(context, at.live) + u64{own} * at.list;
      mine[0] = static_cast<u16>(step.n);
      for (u32 i = 0; i < step.n; ++i) {
        mine[8 + i] = static_cast<u16>(step.ids[i]);
      }
    }
    if constexpr (Order == 3) {
      u16* const layer_before = list(context, at.layer_before);
      h.n_layer_before = step.n_previous;
      for (u32 i = 0; i < step.n_previous; ++i) {
        layer_before[i] = static_cast<u16>(step.previous[i]);
      }
    }
    if constexpr (TokenRows != 0) {
      h.token_row = step.token == step_context::no_token ? 0 : token_row(step.token) + 1;
    }
    h.seen = 1;
    ++h.t;
  }

  /// Steps that the layer has learned from.
  WARMSET_HD u32 steps(unsigned char const* context) const noexcept { return head_of(context).t; }

  /// The sequence takes no more turns: its last set is a context no longer. One lane; O(1).
  WARMSET_HD void end_sequence(unsigned char* context, u32 n_experts, u32 sequence) const noexcept {
    if (sequences_ > 1) {
      parts const at(n_experts, sequences_);
      list(context, at.live)[u64{sequence % sequences_} * at.list] = 0;
    }
  }

 private:
  static constexpr i32 one = 4096;  ///< worth of an expert that the step demands, Q12
  static constexpr i32 unit = sizeof(Cell) == 2 ? 16 : 128;
  static constexpr u32 base_shift = TokenRows != 0 ? 5 : 4;
  static constexpr u32 token_shift = 3;
  static constexpr u32 half = 1u << 31;

  struct head {
    u32 t;       ///< steps done
    u32 seen;    ///< whether there was one
    u32 n_before;
    u32 n_two_before;
    u32 n_layer_before;
    u32 token_row;  ///< of the last step, + 1; 0 = none
    u32 unused[2];
  };

  /// Where everything of a context lies, in bytes; rows and lists are padded to whole blocks of columns.
  struct parts {
    u64 stride;  ///< cells of a row
    u64 list;    ///< elements of a live list: its length, and from [8] on the ids
    u64 before, two_before, layer_before, live, successors, of_layer, of_token, size;

    WARMSET_HD constexpr parts(u32 n_experts, u32 sequences) noexcept
        : stride((u64{n_experts} + columns - 1) / columns * columns), list(stride + 8), before(sizeof(head)),
          two_before(before + stride * sizeof(u16)),
          layer_before(two_before + (Order >= 2 ? stride * sizeof(u16) : 0)),
          live(layer_before + (Order == 3 ? stride * sizeof(u16) : 0)),
          successors(live + (sequences > 1 ? sequences * list * sizeof(u16) : 0)),
          of_layer(successors + n_experts * stride * sizeof(Cell)),
          of_token(of_layer + (Order == 3 ? n_experts * stride * sizeof(Cell) : 0)),
          size(of_token + TokenRows * stride * sizeof(Cell)) {}
  };

  WARMSET_HD static head const& head_of(unsigned char const* context) noexcept {
    return *reinterpret_cast<head const*>(context);
  }
  WARMSET_HD static u16 const* list(unsigned char const* context, u64 at) noexcept {
    return reinterpret_cast<u16 const*>(context + at);
  }
  WARMSET_HD static u16* list(unsigned char* context, u64 at) noexcept {
    return reinterpret_cast<u16*>(context + at);
  }
  WARMSET_HD static Cell const* cells(unsigned char const* context, u64 at, u64 stride, u32 row) noexcept {
    return reinterpret_cast<Cell const*>(context + at) + row * stride;
  }
  WARMSET_HD static Cell* cells(unsigned char* context, u64 at, u64 stride, u32 row) noexcept {
    return reinterpret_cast<Cell*>(context + at) + row * stride;
  }
  WARMSET_HD static constexpr u32 counted(u32 count, bool demanded) noexcept {
    return count - (count >> 5) + (demanded ? 2047 : 0);
  }
  WARMSET_HD static constexpr u32 token_row(u32 token) noexcept {
    return ((token * 0x9E37'79B1u) >> 8) & (TokenRows - 1);
  }
  template <class Id>
  WARMSET_HD static constexpr bool holds(Id const* ids, u32 n, u32 wanted) noexcept {
    for (u32 i = 0; i < n; ++i) {
      if (ids[i] == wanted) {
        return true;
      }
    }
    return false;
  }

  /// The step's set, and the last sets of the other sequences without what is listed already.
  WARMSET_HD u32 add_live(unsigned char const* context, parts const& at, step_context const& step,
                          u32* out) const noexcept {
    u32 n = 0;
    for (; n < step.n; ++n) {
      out[n] = step.ids[n];
    }
    for (u32 s = 0; sequences_ > 1 && s < sequences_; ++s) {
      u16 const* const set = list(context, at.live) + u64{s} * at.list;
      for (u32 i = 0; s != step.sequence % sequences_ && i < set[0]; ++i) {
        if (!holds(out, n, set[8 + i])) {
          out[n++] = set[8 + i];
        }
      }
    }
    return n;
  }
  WARMSET_HD bool in_contexts(unsigned char const* context, parts const& at, step_context const& step,
                              u32 c) const noexcept {
    bool found = holds(step.ids, step.n, c);
    for (u32 s = 0; !found && sequences_ > 1 && s < sequences_; ++s) {
      u16 const* const set = list(context, at.live) + u64{s} * at.list;
      found = s != step.sequence % sequences_ && holds(set + 8, set[0], c);
    }
    return found;
  }

  template <u32 N>
  WARMSET_HD static void add_row(Cell const* row, i32 weight, i32* sum) noexcept {
    for (u32 j = 0; j < N; ++j) {
      sum[j] += row[j] * weight;
    }
  }

  /// What rows of 16-bit cells move by: the same for every row. In 16 bits throughout, which every vector unit
  /// has a minimum and a maximum for: a cell is brought to where the move cannot leave +-32767, then moved.
  template <u32 N>
  struct rounded_moves {
    i16 move[N];
    i16 least[N];
    i16 most[N];

    WARMSET_HD rounded_moves(i32 const* error, u32 shift) noexcept {
      for (u32 j = 0; j < N; ++j) {
        i32 const by = (error[j] + (1 << (shift - 1))) >> shift;
        move[j] = static_cast<i16>(by);
        least[j] = static_cast<i16>(-32'767 - min_of(by, 0));
        most[j] = static_cast<i16>(32'767 - max_of(by, 0));
      }
    }
    WARMSET_HD void apply(i16* row) const noexcept {
      for (u32 j = 0; j < N; ++j) {
        i16 const bounded = min_of(max_of(row[j], least[j]), most[j]);
        row[j] = static_cast<i16>(bounded + move[j]);
      }
    }
  };

  template <u32 N>
  WARMSET_HD static void learn_rows(unsigned char* context, u64 where, u64 stride, u16 const* rows, u32 n_rows,
                                    i32 const* error, u32 shift, u32 salt, u32 t, u32 first) noexcept {
    if constexpr (sizeof(Cell) == 2) {
      rounded_moves<N> const moves(error, shift);
      for (u32 i = 0; i < n_rows; ++i) {
        moves.apply(cells(context, where, stride, rows[i]) + first);
      }
    } else {
      for (u32 i = 0; i < n_rows; ++i) {
        learn_row<N>(cells(context, where, stride, rows[i]) + first, error, shift, salt, t, rows[i], first);
      }
    }
  }
  template <u32 N>
  WARMSET_HD static void learn_row(Cell* row, i32 const* error, u32 shift, u32 salt, u32 t, u32 c,
                                   u32 first) noexcept {
    if constexpr (sizeof(Cell) == 2) {
      rounded_moves<N>(error, shift).apply(row);
    } else {
      // rounded up as often as the fraction says: rounding to nearest would freeze the table
      u32 const mask = (1u << (shift + 3)) - 1;
      u32 const base = t * 0x9E37'79B1u + c * 0x85EB'CA6Bu + salt;
      for (u32 j = 0; j < N; ++j) {
        u32 h = base + (first + j) * 0xC2B2'AE35u;
        h ^= h >> 15;
        h *= 0x2C1B'3C6Du;
        h ^= h >> 12;
        i32 const step = (error[j] + static_cast<i32>(h & mask)) >> (shift + 3);
        row[j] = static_cast<Cell>(min_of(max_of(row[j] + step, -127), 127));
      }
    }
  }

  u32 sequences_;
};

static_assert(contextual_score<successor<>> && counting_score<successor<>>,
              "score::successor must satisfy contextual_score and counting_score");

}  // namespace warmset::inline v0::score
