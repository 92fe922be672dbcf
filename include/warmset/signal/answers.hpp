// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "../core/ids.hpp"
#include "../core/result.hpp"
#include "words.hpp"

namespace warmset::inline v0::signal {

/// Sizes of the answers to a ring of demands: a cell for each message that can be owed.
struct answer_shape {
  u32 capacity;
  u32 max_ids;

  static constexpr u32 cell_head = words_per_line;
  WARMSET_HD constexpr u32 stride() const noexcept { return cell_head + whole_lines(2 * max_ids); }
  WARMSET_HD constexpr u32 words() const noexcept { return capacity * stride(); }
};

/// What the worker answers, in plain words that it alone writes. One cell per demand, found by the demand's
/// number; a waiting side polls it for its own number, and for multi-pass answers for the pass that it wants.
///
///     line 0   number, reason, count of ids, waves, waves ready
///     then     the slot of each id, in the order of the message; no_slot for padding
///     then     the wave in which that slot is filled
///
/// Numbers are written last, when all bytes of their wave are in place.
struct answers_view {
  u32* base = nullptr;
  answer_shape shape{};

  enum word : u32 { number, why, n_ids, n_waves, waves_ready };

  WARMSET_HD constexpr u32* cell(u32 sequence) const noexcept {
    return base + (sequence & (shape.capacity - 1)) * shape.stride();
  }
  WARMSET_HD constexpr u32* slots(u32 sequence) const noexcept {
    return cell(sequence) + answer_shape::cell_head;
  }
  WARMSET_HD constexpr u32* waves(u32 sequence) const noexcept {
    return slots(sequence) + shape.max_ids;
  }

  // ---- the worker

  /// Writes cells of the lap before, so that the first answer is the one to `first`.
  template <memory_words Words>
  void format(u32 first) const noexcept {
    for (u32 i = 0; i < shape.words(); ++i) {
      Words::store(base + i, 0);
    }
    for (u32 i = 0; i < shape.capacity; ++i) {
      Words::store_release(cell(first + i) + number, first + i - shape.capacity);
    }
  }
  /// Publishes the answer whose slots and waves have been written, with its first wave.
  WARMSET_SIDE_OF_WORDS
  template <memory_words Words>
  WARMSET_HD void publish(u32 sequence, reason refused, u32 n, u32 waves_of_it) const noexcept {
    u32* const c = cell(sequence);
    Words::store(c + why, static_cast<u32>(refused));
    Words::store(c + n_ids, n);
    Words::store(c + n_waves, waves_of_it);
    Words::store(c + waves_ready, 1);
    Words::store_release(c + number, sequence);
  }
  /// Publishes that waves up to this one have their bytes.
  WARMSET_SIDE_OF_WORDS
  template <memory_words Words>
  WARMSET_HD void publish_wave(u32 sequence, u32 wave) const noexcept {
    Words::store_release(cell(sequence) + waves_ready, wave + 1);
  }

  // ---- the waiting side

  /// Whether the demand has been answered and the wave's bytes are in place.
  WARMSET_SIDE_OF_WORDS
  template <memory_words Words>
  WARMSET_HD bool ready(u32 sequence, u32 wave = 0) const noexcept {
    u32 const* const c = cell(sequence);
    return reached(Words::load_acquire(c + number), sequence) &&
           (wave == 0 || Words::load_acquire(c + waves_ready) > wave);
  }
  /// Whether the cell still is this demand's: it is until the demand has been finished.
  WARMSET_SIDE_OF_WORDS
  template <memory_words Words>
  WARMSET_HD bool is_of(u32 sequence) const noexcept {
    return Words::load_acquire(cell(sequence) + number) == sequence;
  }
};

static_assert(std::is_trivially_copyable_v<answers_view>, "a view goes to a kernel");

/// One answer as the waiting side reads it, until it finishes the demand.
template <memory_words Words>
class basic_answer {
 public:
  WARMSET_HD basic_answer(answers_view of, u32 sequence) noexcept
      : view_(of), sequence_(sequence) {}

  /// Why the demand was refused: `unknown_layer`, or what the cache's gate says, which is `no_authority`,
  /// `gate_closed` or `stale_epoch` of those in gate/; none otherwise. A refused answer names no slot.
  WARMSET_HD reason why() const noexcept { return static_cast<reason>(head(answers_view::why)); }
  WARMSET_HD u32 size() const noexcept { return head(answers_view::n_ids); }
  /// Passes through scratch: 0 and 1 are one pass.
  WARMSET_HD u32 n_waves() const noexcept { return head(answers_view::n_waves); }
  /// The slot of the i-th id of the message, local to the pool. Read it after its wave is ready.
  WARMSET_SIDE_OF_WORDS
  WARMSET_HD slot_id slot(u32 i) const noexcept {
    return {Words::load(view_.slots(sequence_) + i)};
  }
  WARMSET_SIDE_OF_WORDS
  WARMSET_HD u32 wave(u32 i) const noexcept { return Words::load(view_.waves(sequence_) + i); }

 private:
  WARMSET_SIDE_OF_WORDS
  WARMSET_HD u32 head(u32 w) const noexcept { return Words::load(view_.cell(sequence_) + w); }
  answers_view view_;
  u32 sequence_;
};

using answer = basic_answer<host_words>;

}  // namespace warmset::inline v0::signal
