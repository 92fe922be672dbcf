// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/array_view.hpp"
#include "../core/error.hpp"
#include "../core/fixed_array.hpp"
#include "counters.hpp"

namespace warmset::inline v0 {

namespace unit {
/// Device time.
struct nanoseconds {
  static constexpr char const* name = "nanoseconds";
};
}  // namespace unit

/// What a step's device time goes to. Where several run at once the first of this order has the time.
enum class time_row : u8 {
  experts,
  attention,
  dense,
  copies,  ///< copies that nothing hides
  rest,    ///< the device did none of these
};

inline constexpr u32 n_time_rows = 5;

constexpr char const* name_of(time_row r) noexcept {
  constexpr char const* names[n_time_rows] = {"experts", "attention", "dense", "copies", "rest"};
  return names[static_cast<u32>(r)];
}

/// When something ran on the device, in nanoseconds of the clock of the step's events; end is exclusive.
struct time_span {
  time_row row;
  u64 begin;
  u64 end;
};

/// Device time by row. The rows sum to `step` exactly.
struct phase_times {
  amount<unit::nanoseconds> rows[n_time_rows];
  amount<unit::nanoseconds> step;

  constexpr amount<unit::nanoseconds> operator[](time_row r) const noexcept {
    return rows[static_cast<u32>(r)];
  }
  constexpr phase_times& operator+=(phase_times const& o) noexcept {
    for (u32 r = 0; r < n_time_rows; ++r) {
      rows[r] += o.rows[r];
    }
    step += o.step;
    return *this;
  }
};

/// Attributes the time of steps to rows: the arithmetic alone, fed with times that somebody recorded. Where
/// events cannot be recorded it is switched off for good, and keeps one note. Allocates in its constructor only.
class phase_table {
 public:
  /// Room for `max_spans` spans per step. Throws config_error for 0, and bad_alloc.
  explicit phase_table(u32 max_spans) : spans_(max_spans) {
    if (max_spans == 0) {
      throw config_error("a phase table of 0 spans per step attributes nothing");
    }
  }

  /// A step ran from begin to end, and in it these spans, in any order; they may overlap, and what lies outside
  /// of the step is cut off. Refused, and not added: `unsupported` once switched off, `limited` for more spans
  /// than there is room for, `out_of_range` for a step or span that ends before it begins or a span of `rest`.
  /// O(spans · rows), and O(spans²) where they come in no order.
  status add_step(u64 begin, u64 end, array_view<time_span const> spans) noexcept {
    if (note_ != nullptr) {
      return {reason::unsupported};
    }
    if (spans.size() > spans_.size()) {
      return {reason::limited};
    }
    bool sound = begin <= end;
    for (time_span const& s : spans) {
      sound = sound && s.begin <= s.end && s.row < time_row::rest;
    }
    if (!sound) {
      return {reason::out_of_range};
    }
    sort(spans);
    last_ = attribute(begin, end, static_cast<u32>(spans.size()));
    sum_ += last_;
    ++n_steps_.value;
    return done;
  }

  /// Events cannot be recorded here. The first note stays; it must outlive the table.
  void switch_off(char const* note) noexcept { note_ = note_ == nullptr ? note : note_; }

  bool on() const noexcept { return note_ == nullptr; }
  /// Why it is off; nullptr while it is on.
  char const* note() const noexcept { return note_; }
  phase_times const& last() const noexcept { return last_; }
  phase_times const& sum() const noexcept { return sum_; }
  amount<unit::steps> steps() const noexcept { return n_steps_; }

 private:
  /// By begin; engines record nearly in order.
  void sort(array_view<time_span const> spans) noexcept {
    for (u32 i = 0; i < spans.size(); ++i) {
      u32 at = i;
      for (; at != 0 && spans[i].begin < spans_[at - 1].begin; --at) {
        spans_[at] = spans_[at - 1];
      }
      spans_[at] = spans[i];
    }
  }

  /// From one time at which something begins or ends to the next, the first row that runs has the time.
  phase_times attribute(u64 begin, u64 end, u32 n) const noexcept {
    phase_times t{};
    t.step.value = end - begin;
    u64 until[n_time_rows] = {};  // when what has begun of a row ends
    u32 next = 0;
    for (u64 now = begin; now < end;) {
      for (; next < n && spans_[next].begin <= now; ++next) {
        u64& ends = until[static_cast<u32>(spans_[next].row)];
        ends = max_of(ends, spans_[next].end);
      }
      u64 change = next < n ? min_of(end, spans_[next].begin) : end;
      u32 running = static_cast<u32>(time_row::rest);
      for (u32 r = n_time_rows; r-- != 0;) {
        if (until[r] > now) {
          running = r;
          change = min_of(change, until[r]);
        }
      }
      t.rows[running].value += change - now;
      now = change;
    }
    return t;
  }

  fixed_array<time_span> spans_;
  char const* note_ = nullptr;
  phase_times last_{};
  phase_times sum_{};
  amount<unit::steps> n_steps_{};
};

}  // namespace warmset::inline v0
