// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/error.hpp"
#include "../core/geometry.hpp"
#include "../core/intent.hpp"
#include "plain_rows.hpp"

namespace warmset::inline v0 {
namespace trace {

namespace detail {

/// Leaves new elements of a vector uninitialized, so that a column is filled once and not twice.
template <class T>
struct uninitialized_allocator : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = uninitialized_allocator<U>;
  };

  using std::allocator<T>::allocator;

  template <class U>
  void construct(U* place) noexcept {
    ::new (static_cast<void*>(place)) U;
  }
  template <class U, class... Args>
  void construct(U* place, Args&&... args) {
    ::new (static_cast<void*>(place)) U(std::forward<Args>(args)...);
  }
};

}  // namespace detail

/// One value per id, token or event; `resize` leaves new elements uninitialized.
template <class T>
using column = std::vector<T, detail::uninitialized_allocator<T>>;

/// The id that fills a place where the router chose no expert: −1 in 16 bits.
inline constexpr u16 padding = 0xFFFF;

/// Input token ids are below: engines count them in signed 32 bits, so that more is a negative one.
inline constexpr u32 token_bound = u32{1} << 31;

/// Values of the residency column: what the recording engine's own cache did.
enum class recorded_access : u8 {
  miss,   ///< not resident at the start of its event
  hit,    ///< resident at the start of its event
  repeat  ///< padding, or an expert that its event has already looked up: no look-up of its own
};

/// The id as an engine hands it over: padding becomes −1.
constexpr routed_id routed(u16 id) noexcept {
  return id == padding ? -1 : routed_id{id};
}

/// Consecutive steps of one sequence, all of one shape: ids[n_steps][n_rows][n_tokens][k].
///
/// Step i starts at position first_position + i * n_tokens. Rows index the geometry's list of
/// layers. Blocks follow each other in a recording without gaps, so the last four members are
/// derived.
struct block {
  u32 sequence = 0;
  u32 first_position = 0;
  warmset::phase phase = warmset::phase::decode;
  u32 first_row = 0;  ///< first layer, as an index into geometry::layers()
  u32 n_rows = 0;     ///< layers per step
  u32 n_steps = 0;
  u32 n_tokens = 1;  ///< tokens per step: the width of the micro-batch
  u32 k = 0;         ///< ids per token

  u64 events_at = 0;  ///< derived: events of earlier blocks
  u64 tokens_at = 0;  ///< derived: token rows of earlier blocks
  u64 ids_at = 0;     ///< derived: ids of earlier blocks
  u64 inputs_at = 0;  ///< derived: input tokens of earlier blocks

  u64 n_events() const noexcept { return u64{n_steps} * n_rows; }
  u64 n_token_rows() const noexcept { return n_events() * n_tokens; }
  u64 n_ids() const noexcept { return n_token_rows() * k; }
  u64 n_inputs() const noexcept { return u64{n_steps} * n_tokens; }

  bool operator==(block const&) const = default;
};

/// What one cache step gets: the ids of one layer for one micro-batch. Views into a recording.
struct event {
  u64 index;  ///< from 0, in the order of the recording
  u32 sequence;
  u32 position;  ///< of the first token
  warmset::phase phase;
  u32 row;  ///< index into geometry::layers()
  layer_id layer;
  u32 n_tokens;
  u32 k;
  std::span<u16 const> ids;                    ///< [n_tokens][k] in rank order, `padding` for none
  std::span<recorded_access const> residency;  ///< one per id, or empty
  u32 lookahead_width;
  std::span<u16 const> lookahead;  ///< [n_tokens][lookahead_width], best first; `padding`, or empty
  std::span<float const> weights;  ///< one per id, or empty
  std::span<u32 const> tokens;     ///< [n_tokens], the same for all layers of a step; or empty
};

/// What kind of text a sequence is.
struct sequence_label {
  u32 sequence;
  std::string label;
  bool operator==(sequence_label const&) const = default;
};

/// Everything that a recording holds, before its invariants are checked. Columns other than `ids`
/// may be empty.
struct contents {
  warmset::geometry geometry;
  bool expert_bytes_assumed = false;  ///< the bytes per expert are not from the recording
  std::string model;
  std::string source;  ///< where the routes are from
  std::vector<block> blocks;
  column<u16> ids;                     ///< all blocks, one after the other
  column<recorded_access> residency;   ///< one per id
  u32 lookahead_width = 0;             ///< ids per token in `lookahead`; 0 without that column
  column<u16> lookahead;               ///< [token row][lookahead_width]
  column<float> weights;               ///< one per id, as the engine applied them
  column<u32> tokens;                  ///< input token ids: all blocks' [n_steps][n_tokens]
  std::vector<sequence_label> labels;  ///< ascending by sequence
};

/// Which columns a reader has already found in range and without repetitions, row by row.
struct rows_known {
  bool ids = false;
  bool lookahead = false;
};

/// The first broken invariant of a contents: which list, which element of it, and why.
struct fault {
  enum class list : u8 { header, block, id, residency, lookahead, weight, token, label };
  list where;
  u64 index;
  std::string what;
};

namespace detail {

/// Remembers which ids a row has shown, without clearing between rows.
class row_marks {
 public:
  explicit row_marks(u32 n_experts) : stamp_(n_experts, 0) {}

  void next_row() {
    if (++now_ == 0) {
      std::fill(stamp_.begin(), stamp_.end(), 0);
      now_ = 1;
    }
  }
  /// Whether the id is new to the row.
  bool mark(u16 id) {
    bool const fresh = stamp_[id] != now_;
    stamp_[id] = now_;
    return fresh;
  }

 private:
  std::vector<u32> stamp_;
  u32 now_ = 0;
};

/// First id of the rows that is neither below n_experts nor padding, or repeats an id of its row.
inline std::optional<fault> check_rows(u16 const* ids, u64 n_rows, u32 k, u32 n_experts, u64 ids_at,
                                       fault::list where) {
  if (rows_are_plain(ids, n_rows, k, n_experts)) {
    return std::nullopt;
  }
  row_marks marks(n_experts);
  for (u64 row = 0; row < n_rows; ++row) {
    marks.next_row();
    for (u32 rank = 0; rank < k; ++rank) {
      u64 const i = row * k + rank;
      u16 const id = ids[i];
      if (id == padding) {
        continue;
      }
      if (id >= n_experts) {
        return fault{where, ids_at + i,
                     "expert " + std::to_string(id) + " of a layer with " +
                         std::to_string(n_experts) + " experts"};
      }
      if (!marks.mark(id)) {
        return fault{where, ids_at + i,
                     "expert " + std::to_string(id) + " occurs twice in the row of one token"};
      }
    }
  }
  return std::nullopt;
}

}  // namespace detail

/// A routing trace in memory: which experts a model's router chose, event by event, in recorded
/// order.
///
/// Immutable; every invariant holds: ids name experts of their layer or are padding, no expert
/// twice in the row of one token, blocks name layers of the geometry with its k, columns have one
/// value per id or token, input token ids are below 2^31.
class recording {
 public:
  /// Throws config_error with the first broken invariant. O(ids).
  explicit recording(contents parts) : parts_(std::move(parts)) {
    if (std::optional<fault> broken = place(parts_)) {
      throw config_error("trace: ", broken->what.c_str());
    }
  }

  /// Checks contents and derives the offsets of its blocks; the first broken invariant, or nothing.
  /// O(ids).
  static std::optional<fault> place(contents& parts, rows_known known = {}) {
    if (std::optional<fault> broken = place_blocks(parts, parts.ids.size())) {
      return broken;
    }
    return check_columns(parts, known);
  }

  /// The part of `place` that needs the number of ids only, for readers that check before they
  /// allocate.
  static std::optional<fault> place_blocks(contents& parts, u64 n_ids) {
    std::vector<layer_geometry> const& layers = parts.geometry.layers();
    u64 events = 0;
    u64 tokens = 0;
    u64 placed = 0;
    u64 inputs = 0;
    for (std::size_t i = 0; i < parts.blocks.size(); ++i) {
      block& b = parts.blocks[i];
      if (b.n_rows == 0 || b.n_steps == 0 || b.n_tokens == 0 || b.k == 0) {
        return block_fault(i, "rows, steps, tokens and k are " + std::to_string(b.n_rows) + ", " +
                                  std::to_string(b.n_steps) + ", " + std::to_string(b.n_tokens) +
                                  ", " + std::to_string(b.k) + "; none may be 0");
      }
      if (b.phase != phase::prefill && b.phase != phase::decode) {
        return block_fault(i, "phase " + std::to_string(static_cast<u32>(b.phase)) +
                                  " is neither prefill nor decode");
      }
      if (b.first_row >= layers.size() || b.n_rows > layers.size() - b.first_row) {
        return block_fault(i, "rows " + std::to_string(b.first_row) + " + " +
                                  std::to_string(b.n_rows) + " of " +
                                  std::to_string(layers.size()) + " layers");
      }
      for (u32 row = b.first_row; row < b.first_row + b.n_rows; ++row) {
        if (layers[row].k != b.k) {
          return block_fault(i, "k is " + std::to_string(b.k) + ", but layer " +
                                    std::to_string(layers[row].layer.value) + " uses " +
                                    std::to_string(layers[row].k));
        }
      }
      // Every factor is at least 1, so no partial product may exceed what is left.
      u64 const left = n_ids - placed;
      u64 const per_step = u64{b.n_rows} * b.k;  // below 2^32: rows and k fit in 16 bits
      if (b.n_steps > left / per_step || b.n_tokens > left / (per_step * b.n_steps)) {
        return block_fault(i, std::to_string(b.n_steps) + " steps of " +
                                  std::to_string(b.n_tokens) + " tokens need more than the " +
                                  std::to_string(left) + " ids left");
      }
      if (u64{b.n_steps} * b.n_tokens > u64{u32_max} + 1 - b.first_position) {
        return block_fault(i, "positions from " + std::to_string(b.first_position) +
                                  " on do not fit in 32 bits");
      }
      b.events_at = events;
      b.tokens_at = tokens;
      b.ids_at = placed;
      b.inputs_at = inputs;
      events += b.n_events();
      tokens += b.n_token_rows();
      placed += b.n_ids();
      inputs += b.n_inputs();
    }
    if (placed != n_ids) {
      return fault{fault::list::id, placed,
                   std::to_string(n_ids) + " ids, but the blocks hold " + std::to_string(placed)};
    }
    return std::nullopt;
  }

  /// The recording, or what the caller makes of the fault (readers add the byte or line and throw).
  template <class OnFault>
  static recording checked(contents parts, OnFault&& on_fault, rows_known known = {}) {
    if (std::optional<fault> broken = place(parts, known)) {
      on_fault(*broken);
      throw config_error("trace: ", broken->what.c_str());
    }
    return recording(std::move(parts), already_placed{});
  }

  warmset::geometry const& geometry() const noexcept { return parts_.geometry; }
  /// Whether the bytes per expert are an assumption and not part of the recording.
  bool expert_bytes_assumed() const noexcept { return parts_.expert_bytes_assumed; }
  std::string const& model() const noexcept { return parts_.model; }
  std::string const& source() const noexcept { return parts_.source; }
  std::vector<block> const& blocks() const noexcept { return parts_.blocks; }
  std::span<u16 const> ids() const noexcept { return parts_.ids; }
  std::span<recorded_access const> residency() const noexcept { return parts_.residency; }
  u32 lookahead_width() const noexcept { return parts_.lookahead_width; }
  std::span<u16 const> lookahead() const noexcept { return parts_.lookahead; }
  std::span<float const> weights() const noexcept { return parts_.weights; }
  /// Input token ids, one per (block, step, token), or empty.
  std::span<u32 const> tokens() const noexcept { return parts_.tokens; }
  std::vector<sequence_label> const& labels() const noexcept { return parts_.labels; }

  /// The kind of text of a sequence, or nothing. O(log labels).
  std::string_view label(u32 sequence) const noexcept {
    auto const at = std::lower_bound(parts_.labels.begin(), parts_.labels.end(), sequence,
                                     [](sequence_label const& a, u32 b) { return a.sequence < b; });
    return at != parts_.labels.end() && at->sequence == sequence ? std::string_view(at->label)
                                                                 : std::string_view();
  }

  u64 n_events() const noexcept {
    return parts_.blocks.empty() ? 0
                                 : parts_.blocks.back().events_at + parts_.blocks.back().n_events();
  }

  u64 n_token_rows() const noexcept { return token_rows(parts_.blocks); }

  /// Input tokens: steps x tokens, summed over the blocks.
  u64 n_inputs() const noexcept { return inputs(parts_.blocks); }

  /// What the recording is made of, to make another one from.
  contents release() && noexcept { return std::move(parts_); }

  /// Event `step` x `row` of a block, both counted from the block's first. O(1).
  event at(block const& b, u64 step, u32 row) const noexcept {
    u64 const n = step * b.n_rows + row;
    u64 const tokens_at = b.tokens_at + n * b.n_tokens;
    std::size_t const n_ids = std::size_t{b.n_tokens} * b.k;
    std::size_t const ids_at = static_cast<std::size_t>(b.ids_at + n * n_ids);
    u32 const width = parts_.lookahead_width;
    return event{b.events_at + n,
                 b.sequence,
                 b.first_position + static_cast<u32>(step) * b.n_tokens,
                 b.phase,
                 b.first_row + row,
                 parts_.geometry.layers()[b.first_row + row].layer,
                 b.n_tokens,
                 b.k,
                 {parts_.ids.data() + ids_at, n_ids},
                 parts_.residency.empty()
                     ? std::span<recorded_access const>()
                     : std::span<recorded_access const>(parts_.residency.data() + ids_at, n_ids),
                 width,
                 width == 0 ? std::span<u16 const>()
                            : std::span<u16 const>(parts_.lookahead.data() + tokens_at * width,
                                                   std::size_t{b.n_tokens} * width),
                 parts_.weights.empty()
                     ? std::span<float const>()
                     : std::span<float const>(parts_.weights.data() + ids_at, n_ids),
                 parts_.tokens.empty()
                     ? std::span<u32 const>()
                     : std::span<u32 const>(parts_.tokens.data() + b.inputs_at + step * b.n_tokens,
                                            b.n_tokens)};
  }

  /// Event by its index, which must be below n_events(). O(log blocks).
  event operator[](u64 index) const noexcept {
    auto const after = std::upper_bound(parts_.blocks.begin(), parts_.blocks.end(), index,
                                        [](u64 i, block const& b) { return i < b.events_at; });
    block const& b = *(after - 1);
    u64 const n = index - b.events_at;
    return at(b, n / b.n_rows, static_cast<u32>(n % b.n_rows));
  }

 private:
  struct already_placed {};
  recording(contents parts, already_placed) noexcept : parts_(std::move(parts)) {}

  static u64 token_rows(std::vector<block> const& placed) noexcept {
    return placed.empty() ? 0 : placed.back().tokens_at + placed.back().n_token_rows();
  }

  static u64 inputs(std::vector<block> const& placed) noexcept {
    return placed.empty() ? 0 : placed.back().inputs_at + placed.back().n_inputs();
  }

  static fault block_fault(std::size_t i, std::string what) {
    return {fault::list::block, i, "block " + std::to_string(i) + ": " + std::move(what)};
  }

  static std::optional<fault> check_columns(contents const& parts, rows_known known) {
    if (parts.lookahead.size() != 0 || parts.lookahead_width != 0) {
      u64 const tokens = token_rows(parts.blocks);
      u64 const width = parts.lookahead_width;
      if (width == 0 || width > geometry::max_experts_per_layer ||
          parts.lookahead.size() % width != 0 || parts.lookahead.size() / width != tokens) {
        return fault{fault::list::header, 0,
                     "look-ahead of width " + std::to_string(width) + " has " +
                         std::to_string(parts.lookahead.size()) + " ids for " +
                         std::to_string(tokens) + " tokens"};
      }
    }
    if (!parts.residency.empty() && parts.residency.size() != parts.ids.size()) {
      return fault{fault::list::header, 0, "residency has another length than the ids"};
    }
    if (!parts.weights.empty() && parts.weights.size() != parts.ids.size()) {
      return fault{fault::list::header, 0, "weights have another length than the ids"};
    }
    if (!parts.tokens.empty() && parts.tokens.size() != inputs(parts.blocks)) {
      return fault{fault::list::header, 0,
                   std::to_string(parts.tokens.size()) + " input tokens, but the blocks have " +
                       std::to_string(inputs(parts.blocks))};
    }
    // Whether anything is wrong is asked first, which needs no branch per value.
    u32 all_tokens = 0;
    for (u32 token : parts.tokens) {
      all_tokens |= token;
    }
    for (std::size_t i = 0; all_tokens >= token_bound && i < parts.tokens.size(); ++i) {
      if (parts.tokens[i] >= token_bound) {
        return fault{fault::list::token, i,
                     "input token " + std::to_string(parts.tokens[i]) + " is not below 2^31"};
      }
    }
    for (std::size_t i = 1; i < parts.labels.size(); ++i) {
      if (parts.labels[i].sequence <= parts.labels[i - 1].sequence) {
        return fault{fault::list::label, i, "labels are not in ascending order of sequence"};
      }
    }
    u8 most = 0;
    for (recorded_access access : parts.residency) {
      most = max_of(most, static_cast<u8>(access));
    }
    for (std::size_t i = 0; most > static_cast<u8>(recorded_access::repeat) && i < parts.residency.size(); ++i) {
      if (static_cast<u8>(parts.residency[i]) > static_cast<u8>(recorded_access::repeat)) {
        return fault{fault::list::residency, i,
                     "residency " + std::to_string(static_cast<u32>(parts.residency[i])) +
                         " is none of miss, hit, repeat"};
      }
    }
    return check_ids(parts, known);
  }

  static std::optional<fault> check_ids(contents const& parts, rows_known known) {
    std::vector<layer_geometry> const& layers = parts.geometry.layers();
    u32 const width = parts.lookahead_width;
    if (known.ids && (width == 0 || known.lookahead)) {
      return std::nullopt;
    }
    for (block const& b : parts.blocks) {
      bool equal = true;
      for (u32 row = 1; row < b.n_rows; ++row) {
        equal &= layers[b.first_row + row].n_experts == layers[b.first_row].n_experts;
      }
      // Rows of layers with equally many experts are checked in one sweep.
      u64 const sweeps = equal ? 1 : b.n_events();
      u64 const tokens = b.n_token_rows() / sweeps;
      for (u64 i = 0; i < sweeps; ++i) {
        u32 const row = b.first_row + (equal ? 0 : static_cast<u32>(i % b.n_rows));
        u64 const at = b.ids_at + i * tokens * b.k;
        u32 const experts = layers[row].n_experts;
        if (auto broken = known.ids ? std::nullopt
                                    : detail::check_rows(parts.ids.data() + at, tokens, b.k, experts, at,
                                                         fault::list::id)) {
          return broken;
        }
        u64 const ahead = (b.tokens_at + i * tokens) * width;
        if (auto broken = width == 0 || known.lookahead
                              ? std::nullopt
                              : detail::check_rows(parts.lookahead.data() + ahead, tokens, width, experts, ahead,
                                                   fault::list::lookahead)) {
          return broken;
        }
      }
    }
    return std::nullopt;
  }

  contents parts_;
};

/// Which part of a recording is played: sequences by number, and phases.
struct selection {
  enum class rule : u8 { all, even, odd, range };
  rule sequences = rule::all;
  u32 first = 0;        ///< for `range`, inclusive
  u32 last = u32_max;   ///< for `range`, inclusive
  bool prefill = true;  ///< whether prefill is played
  bool decode = true;   ///< whether decode is played

  bool contains(block const& b) const noexcept {
    bool const phase_played = b.phase == phase::prefill ? prefill : decode;
    switch (sequences) {
    case rule::even:
      return phase_played && b.sequence % 2 == 0;
    case rule::odd:
      return phase_played && b.sequence % 2 == 1;
    case rule::range:
      return phase_played && b.sequence >= first && b.sequence <= last;
    case rule::all:
      break;
    }
    return phase_played;
  }

  /// "all", "even", "odd", "A-B" (inclusive) or "A". Throws config_error.
  static selection parse(std::string_view text) {
    selection s;
    if (text == "all") {
      return s;
    }
    if (text == "even" || text == "odd") {
      s.sequences = text == "even" ? rule::even : rule::odd;
      return s;
    }
    s.sequences = rule::range;
    std::size_t const dash = text.find('-');
    s.first = number(text.substr(0, dash), text);
    s.last = dash == std::string_view::npos ? s.first : number(text.substr(dash + 1), text);
    if (s.first > s.last) {
      throw config_error("selection: '", std::string(text).c_str(), "' ends before it starts");
    }
    return s;
  }

 private:
  static u32 number(std::string_view digits, std::string_view text) {
    u64 value = 0;
    bool wrong = digits.empty();
    for (char c : digits) {
      wrong = wrong || c < '0' || c > '9' || value > u32_max;
      value = wrong ? 0 : value * 10 + static_cast<u64>(c - '0');
    }
    if (wrong || value > u32_max) {
      throw config_error("selection: '", std::string(text).c_str(),
                         "' is none of all, even, odd, A-B, A");
    }
    return static_cast<u32>(value);
  }
};

/// Calls f(event) for every selected event in recorded order: by block, step, layer. O(events).
template <class F>
void for_each_event(recording const& r, selection const& which, F&& f) {
  for (block const& b : r.blocks()) {
    if (!which.contains(b)) {
      continue;
    }
    for (u64 step = 0; step < b.n_steps; ++step) {
      for (u32 row = 0; row < b.n_rows; ++row) {
        f(r.at(b, step, row));
      }
    }
  }
}

template <class F>
void for_each_event(recording const& r, F&& f) {
  for_each_event(r, selection{}, std::forward<F>(f));
}

/// The distinct ids of an event in the order of their last occurrence, appended to `out`. The marks
/// must cover the layer's experts.
template <class Vector>
void append_distinct(std::span<u16 const> ids, detail::row_marks& marks, Vector& out) {
  std::size_t const start = out.size();
  marks.next_row();
  for (std::size_t i = ids.size(); i-- != 0;) {
    if (ids[i] != padding && marks.mark(ids[i])) {
      out.push_back(ids[i]);
    }
  }
  std::reverse(out.begin() + static_cast<std::ptrdiff_t>(start), out.end());
}

namespace detail {
inline u32 most_experts(geometry const& g) noexcept {
  u32 most = 0;
  for (layer_geometry const& layer : g.layers()) {
    most = max_of(most, layer.n_experts);
  }
  return most;
}
}  // namespace detail

/// Look-ups: distinct experts per event, summed over the selected events. O(ids).
inline u64 count_lookups(recording const& r, selection const& which = {}) {
  detail::row_marks marks(detail::most_experts(r.geometry()));
  u64 sum = 0;
  for_each_event(r, which, [&](event const& e) {
    marks.next_row();
    for (u16 id : e.ids) {
      sum += id != padding && marks.mark(id) ? 1 : 0;
    }
  });
  return sum;
}

namespace detail {

/// Appends the events of block `b` of `from`, steps [first, first + n), as steps of `tokens` tokens
/// each.
inline void append_steps(recording const& from, block const& b, u64 first, u64 n, u32 tokens,
                         contents& to) {
  block made = b;
  made.first_position = b.first_position + static_cast<u32>(first * b.n_tokens);
  made.n_tokens = b.n_tokens * tokens;
  made.n_steps = static_cast<u32>(n / tokens);
  to.blocks.push_back(made);
  if (!from.tokens().empty()) {
    // A step's tokens are in order, so those of joined steps are too.
    auto const inputs = from.tokens().subspan(b.inputs_at + first * b.n_tokens, n * b.n_tokens);
    to.tokens.insert(to.tokens.end(), inputs.begin(), inputs.end());
  }
  for (u64 step = first; step < first + n; step += tokens) {
    for (u32 row = 0; row < b.n_rows; ++row) {
      for (u64 i = step; i < step + tokens; ++i) {
        event const e = from.at(b, i, row);
        to.ids.insert(to.ids.end(), e.ids.begin(), e.ids.end());
        to.residency.insert(to.residency.end(), e.residency.begin(), e.residency.end());
        to.lookahead.insert(to.lookahead.end(), e.lookahead.begin(), e.lookahead.end());
        to.weights.insert(to.weights.end(), e.weights.begin(), e.weights.end());
      }
    }
  }
}

inline contents like(recording const& r) {
  contents c;
  c.geometry = r.geometry();
  c.expert_bytes_assumed = r.expert_bytes_assumed();
  c.model = r.model();
  c.source = r.source();
  c.lookahead_width = r.lookahead_width();
  return c;
}

}  // namespace detail

/// The selected part as a recording of its own; sequence numbers and labels stay. O(ids).
inline recording select(recording const& r, selection const& which) {
  contents c = detail::like(r);
  for (block const& b : r.blocks()) {
    if (which.contains(b)) {
      detail::append_steps(r, b, 0, b.n_steps, 1, c);
    }
  }
  for (sequence_label const& l : r.labels()) {
    for (block const& b : c.blocks) {
      if (b.sequence == l.sequence) {
        c.labels.push_back(l);
        break;
      }
    }
  }
  if (c.blocks.empty()) {
    c.lookahead_width = 0;
  }
  return recording(std::move(c));
}

/// The recording with the steps of one phase joined into micro-batches of up to `steps_joined`
/// steps within their block, as an engine that processes a prompt in batches would run them.
/// Residency flags, which belong to the recorded batches, are dropped. Throws config_error for 0.
/// O(ids).
inline recording rebatch(recording const& r, phase what, u32 steps_joined) {
  if (steps_joined == 0) {
    throw config_error("rebatch: 0 steps cannot be joined");
  }
  contents c = detail::like(r);
  c.labels = r.labels();
  for (block const& b : r.blocks()) {
    u32 const width = b.phase == what ? min_of(steps_joined, b.n_steps) : 1;
    u64 const rest = b.n_steps % width;
    detail::append_steps(r, b, 0, b.n_steps - rest, width, c);
    if (rest != 0) {
      detail::append_steps(r, b, b.n_steps - rest, rest, static_cast<u32>(rest), c);
    }
  }
  c.residency.clear();
  return recording(std::move(c));
}

}  // namespace trace
}  // namespace warmset::inline v0
