// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <utility>
#include <vector>

#include "copy_runtime.hpp"

namespace warmset::inline v0::cuda {

/// The calls of a runtime that the phase probe makes: cuda::runtime, and one of tests.
template <class R>
concept timing_runtime = requires(R& r, typename R::event& event, typename R::stream stream, u64& nanoseconds, bool& flag) {
  { r.make_timed_event(event) } noexcept -> std::same_as<call_result>;
  { r.destroy_event(event) } noexcept -> std::same_as<call_result>;
  { r.record_timed(event, stream) } noexcept -> std::same_as<call_result>;
  { r.is_captured(stream, flag) } noexcept -> std::same_as<call_result>;
  { r.query(event) } noexcept -> std::same_as<call_result>;
  { r.elapsed(nanoseconds, event, event) } noexcept -> std::same_as<call_result>;
};

/// Records when parts of a step run on a device, with events around them, and hands the times to a phase table. A step is
/// begin_step, spans (begin, end; they may lie in other streams of the device), and end_step; collect, somewhat later,
/// takes in the steps whose events have come and never waits.
///
/// A step that is begun in a stream that is being captured is recorded at every launch of the graph: the host says
/// `launched()` after each, and collects before the next. The probe has one such step, and no other beside it.
///
/// Where events cannot be made, recorded or read it switches the table off, once, with a note, and does nothing any more.
/// Its functions answer `busy` for a step that finds no room, `limited` for a span too many, `unsupported` when off.
///
/// @tparam Span  {row, begin, end}, as the table takes them: warmset::time_span
template <timing_runtime Runtime, class Span>
class basic_phase_probe {
 public:
  using stream = typename Runtime::stream;
  using row = decltype(Span::row);

  /// Allocates 2 · max_spans + 2 events for each of the steps that may be under way. The device is the current one.
  explicit basic_phase_probe(u32 max_spans, u32 steps_under_way = 4, Runtime runtime = {})
      : runtime_(std::move(runtime)), max_spans_(max_spans), steps_(steps_under_way), out_(max_spans) {
    if (max_spans == 0 || steps_under_way == 0) {
      throw config_error("a phase probe of ", max_spans, " spans and ", steps_under_way, " steps records nothing");
    }
    for (step& s : steps_) {
      s.spans.resize(max_spans);
      for (u32 i = 0; i < 2 * max_spans + 2 && note_ == nullptr; ++i) {
        typename Runtime::event made{};
        if (runtime_.make_timed_event(made)) {
          s.events.push_back(made);
        } else {
          note_ = "events cannot be made";
        }
      }
    }
  }
  basic_phase_probe(basic_phase_probe const&) = delete;
  basic_phase_probe& operator=(basic_phase_probe const&) = delete;
  ~basic_phase_probe() {
    for (step& s : steps_) {
      for (std::size_t i = 0; i < s.events.size(); ++i) {
        (void)runtime_.destroy_event(s.events[i]);
      }
    }
  }

  call_result begin_step(stream in) noexcept {
    if (note_ != nullptr) {
      return {reason::unsupported};
    }
    bool captured = false;
    if (call_result const r = runtime_.is_captured(in, captured); !r) {
      return give_up("streams cannot be asked", r);
    }
    if (open_ || is_captured_ || n_ == steps_.size() || (captured && n_ != 0)) {
      return {reason::busy};
    }
    is_captured_ = captured;
    open_ = true;
    step& s = last();
    s.n = 0;
    return record(s, 0, in);
  }
  call_result begin(stream in, row of) noexcept {
    if (note_ != nullptr) {
      return {reason::unsupported};
    }
    if (!open_) {
      return {reason::busy};
    }
    step& s = last();
    if (s.n == max_spans_) {
      return {reason::limited};
    }
    s.spans[s.n] = {of, false};
    return record(s, 2 + 2 * s.n++, in);
  }
  /// Ends the last span of this row that has begun and not ended.
  call_result end(stream in, row of) noexcept {
    if (note_ != nullptr) {
      return {reason::unsupported};
    }
    if (open_) {
      step& s = last();
      for (u32 i = s.n; i-- != 0;) {
        if (s.spans[i].of == of && !s.spans[i].ended) {
          s.spans[i].ended = true;
          return record(s, 3 + 2 * i, in);
        }
      }
    }
    return {reason::busy};
  }
  /// Spans that have not ended are left out.
  call_result end_step(stream in) noexcept {
    if (note_ != nullptr) {
      return {reason::unsupported};
    }
    if (!open_) {
      return {reason::busy};
    }
    call_result const r = record(last(), 1, in);
    open_ = false;
    n_ += is_captured_ ? 0 : 1;
    return r;
  }
  /// The graph with the captured step has been launched.
  void launched() noexcept { n_ = is_captured_ && !open_ ? 1 : n_; }

  /// Adds the steps that have come to the table, oldest first. Returns how many.
  template <class Table>
  u32 collect(Table& table) noexcept {
    u32 added = 0;
    while (note_ == nullptr && n_ != 0) {
      step& s = steps_[first_];
      call_result const come = all_have_come(s);
      if (come.why == reason::busy) {
        break;
      }
      u64 length = 0;
      if (!come || !read(s, length)) {
        note_ = "events cannot be read";
        break;
      }
      added += table.add_step(0, length, array_view<Span const>(out_.data(), n_out_)) ? 1 : 0;
      --n_;
      first_ = is_captured_ ? first_ : (first_ + 1) % static_cast<u32>(steps_.size());
    }
    if (note_ != nullptr) {
      table.switch_off(note_);
    }
    return added;
  }

  bool on() const noexcept { return note_ == nullptr; }

 private:
  struct span {
    row of;
    bool ended;
  };
  /// Events: begin and end of the step, then of each span.
  struct step {
    std::vector<typename Runtime::event> events;
    std::vector<span> spans;
    u32 n = 0;
  };

  step& last() noexcept { return steps_[(first_ + n_) % static_cast<u32>(steps_.size())]; }
  call_result give_up(char const* why, call_result r) noexcept {
    note_ = why;
    return r;
  }
  call_result record(step& s, u32 event, stream in) noexcept {
    call_result const r = runtime_.record_timed(s.events[event], in);
    return r ? r : give_up("events cannot be recorded", r);
  }
  /// Spans of other streams may end after the step.
  call_result all_have_come(step& s) noexcept {
    call_result r = runtime_.query(s.events[1]);
    for (u32 i = 0; r && i < s.n; ++i) {
      r = s.spans[i].ended ? runtime_.query(s.events[3 + 2 * i]) : r;
    }
    return r;
  }
  bool read(step& s, u64& length) noexcept {
    n_out_ = 0;
    bool sound = static_cast<bool>(runtime_.elapsed(length, s.events[0], s.events[1]));
    for (u32 i = 0; sound && i < s.n; ++i) {
      if (s.spans[i].ended) {
        Span& to = out_[n_out_++];
        to.row = s.spans[i].of;
        sound = runtime_.elapsed(to.begin, s.events[0], s.events[2 + 2 * i]) &&
                runtime_.elapsed(to.end, s.events[0], s.events[3 + 2 * i]);
        to.end = max_of(to.begin, to.end);  // each is rounded by itself
      }
    }
    return sound;
  }

  Runtime runtime_;
  u32 max_spans_;
  std::vector<step> steps_;
  std::vector<Span> out_;
  u32 n_out_ = 0;
  u32 first_ = 0;
  u32 n_ = 0;  ///< steps that have ended and are not collected
  bool open_ = false;
  bool is_captured_ = false;
  char const* note_ = nullptr;
};

}  // namespace warmset::inline v0::cuda
