// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/error.hpp"
#include "../core/intent.hpp"
#include "../core/result.hpp"

namespace warmset::inline v0 {
namespace gate {

/// A share of one in 1/65536.
inline constexpr u32 q16_one = 65536;

/// Bytes of `bytes` that are expected to be wasted at this precision, rounded up. Exact, never wraps.
WARMSET_HD constexpr u64 expected_waste(u64 bytes, u32 precision_q16) noexcept {
  u64 const q = saturating_sub(q16_one, precision_q16);
  return (bytes >> 16) * q + (((bytes & 0xFFFF) * q + 0xFFFF) >> 16);
}

/// The most bytes whose expected waste is at most the slack; u64_max where that is more, or no limit. Exact, never
/// wraps.
WARMSET_HD constexpr u64 permitted_bytes(u64 slack_bytes, u32 precision_q16) noexcept {
  u64 const q = saturating_sub(q16_one, precision_q16);
  if (q == 0 || slack_bytes / q > u64_max >> 16) {
    return u64_max;
  }
  return (slack_bytes / q << 16) + ((slack_bytes % q) << 16) / q;
}

static_assert(expected_waste(u64_max, 0) == u64_max && expected_waste(u64_max, q16_one) == 0);
static_assert(permitted_bytes(u64_max - 1, 0) == u64_max - 1);
static_assert(permitted_bytes(100, 0) == 100 && permitted_bytes(100, q16_one / 2) == 200);

/// Where a governor stands.
enum class governor_state : u8 {
  sampling,  ///< one expert per step, until enough hints are judged
  open,      ///< as many bytes as the slack pays for
  starved,   ///< a window long the slack paid for no expert: `governed`
  stopped,   ///< the hints do not pay: `not_paying`
  probing,   ///< one expert per step, until a few hints are judged
};
inline constexpr u32 n_governor_states = 5;

/// What happens to it.
enum class governor_event : u8 {
  pays,          ///< enough hints are judged, and they pay
  does_not_pay,  ///< enough are judged, or windows have passed, and they do not
  slack_gone,    ///< no step of a window permitted an expert
  slack_back,    ///< the slack pays for an expert
  rested,        ///< it has been at rest long enough
  reset,         ///< another predictor, another model, another holder
};
inline constexpr u32 n_governor_events = 6;

constexpr char const* name_of(governor_state s) noexcept {
  constexpr char const* names[] = {"sampling", "open", "starved", "stopped", "probing"};
  return static_cast<u32>(s) < n_governor_states ? names[static_cast<u32>(s)] : "unknown";
}

namespace governor_detail {
using enum governor_state;
/// Rows are states, columns events; an event that means nothing in a state leaves it.
inline constexpr governor_state transitions[n_governor_states][n_governor_events] = {
    //            pays  does_not_pay  slack_gone  slack_back  rested    reset
    /* sampling */ {open, stopped, sampling, sampling, sampling, sampling},
    /* open     */ {open, stopped, starved, open, open, sampling},
    /* starved  */ {starved, starved, starved, open, probing, sampling},
    /* stopped  */ {stopped, stopped, stopped, stopped, probing, sampling},
    /* probing  */ {open, stopped, probing, probing, probing, sampling},
};
}  // namespace governor_detail

/// The state after an event. Total.
constexpr governor_state after(governor_state s, governor_event e) noexcept {
  return governor_detail::transitions[static_cast<u32>(s)][static_cast<u32>(e)];
}

namespace governor_detail {

consteval bool is_total() {
  for (auto const& row : transitions) {
    for (governor_state to : row) {
      if (static_cast<u32>(to) >= n_governor_states) {
        return false;
      }
    }
  }
  return true;
}

/// Whether `to` can be reached from `from`.
consteval bool reaches(governor_state from, governor_state to) {
  bool seen[n_governor_states] = {};
  seen[static_cast<u32>(from)] = true;
  for (u32 round = 0; round < n_governor_states; ++round) {
    for (u32 s = 0; s < n_governor_states; ++s) {
      for (u32 e = 0; seen[s] && e < n_governor_events; ++e) {
        seen[static_cast<u32>(transitions[s][e])] = true;
      }
    }
  }
  return seen[static_cast<u32>(to)];
}

consteval bool each_reaches_each() {
  for (u32 a = 0; a < n_governor_states; ++a) {
    for (u32 b = 0; b < n_governor_states; ++b) {
      if (!reaches(static_cast<governor_state>(a), static_cast<governor_state>(b))) {
        return false;
      }
    }
  }
  return true;
}

/// Whether some event leads from one state straight to the other.
consteval bool leads(governor_state from, governor_state to) {
  for (governor_state next : transitions[static_cast<u32>(from)]) {
    if (next == to) {
      return true;
    }
  }
  return false;
}

}  // namespace governor_detail

static_assert(governor_detail::is_total(), "every event has a state to go to");
static_assert(governor_detail::each_reaches_each(), "no state is a trap and none is out of reach");
static_assert(!governor_detail::leads(governor_state::stopped, governor_state::open),
              "what did not pay is tried before it is trusted");
static_assert(!governor_detail::leads(governor_state::sampling, governor_state::probing),
              "a probe follows a rest");
static_assert(after(governor_state::open, governor_event::does_not_pay) == governor_state::stopped);

/// The numbers of a governor.
struct governor_numbers {
  u32 min_samples =
      32;  ///< hints to judge before anything is believed; one expert per step until then
  u32 window_steps =
      64;  ///< steps between two looks at what speculation costs; fewer where min_samples are judged sooner
  u32 bad_windows = 2;           ///< windows in a row that do not pay, after which it stops
  u32 rest_windows = 8;         ///< windows at rest before a probe; doubled after each that fails or does not last
  u32 most_rest_windows = 1024;  ///< at least rest_windows
  u32 probe_samples = 8;         ///< hints to judge in a probe
  u32 least_precision = q16_one / 8;  ///< below it hints do not pay, whatever the slack
  u32 memory = 256;         ///< judged hints at which both counts are halved, so that old ones fade
  bool in_prefill = false;  ///< whether prefill may speculate
};

/// What may be issued in this step.
struct permission {
  u64 bytes;   ///< 0 = nothing
  reason why;  ///< none, or why nothing: governed, not_paying, in_prefill
};

/// Decides how many bytes may be speculated in a step, so that speculation pays for itself on a serial link.
///
/// B bytes of hints of precision p, of which the link carries W in its idle time, delay the next demand by B - W and
/// save it p B: they pay while B (1 - p) <= W. Precision is *net*: (used - regretted) / judged, where a hint is
/// regretted when its victim was demanded again before a demand would have evicted it. Both are facts of judged hints;
/// a hint is judged when the step that it is for has been planned.
///
/// Integers only; allocates nothing; no function but the constructor throws. Sums saturate. One owner thread. O(1).
class governor {
 public:
  /// Throws config_error where a number is 0 that counts something, where the least precision is more than one, or
  /// where the memory is below min_samples.
  explicit constexpr governor(governor_numbers const& numbers = {}) : numbers_(numbers) {
    check(numbers.min_samples != 0 && numbers.window_steps != 0 && numbers.bad_windows != 0,
          "min_samples, window_steps and bad_windows must be at least 1; they are ",
          numbers.min_samples, numbers.window_steps, numbers.bad_windows);
    check(numbers.rest_windows != 0 && numbers.most_rest_windows >= numbers.rest_windows &&
              numbers.probe_samples != 0,
          "rest_windows, most_rest_windows and probe_samples must be at least 1 and in order; they "
          "are ",
          numbers.rest_windows, numbers.most_rest_windows, numbers.probe_samples);
    check(numbers.least_precision <= q16_one && numbers.memory >= numbers.min_samples &&
              numbers.memory >= numbers.probe_samples && numbers.memory <= 1u << 20,
          "least_precision is at most 65536, memory lies between the samples and 2^20; they are ",
          numbers.least_precision, numbers.memory, numbers.min_samples);
    rest_ = numbers.rest_windows;
  }

  /// Asks for one step. Every step of every layer that may have hints asks once, also where the answer is known.
  ///
  /// @param slack_bytes   what the link can carry before the step that the hints are for, beyond what it has to do
  /// @param expert_bytes  of the layer that the hints are for; permissions are of whole experts
  constexpr permission ask(phase in_phase, u64 slack_bytes, u64 expert_bytes) noexcept {
    if (in_phase == phase::prefill && !numbers_.in_prefill) {
      return {0, reason::in_prefill};
    }
    begin_step(slack_bytes);
    u64 const paid = permitted_bytes(slack_bytes, precision());
    bool const pays_one = paid >= expert_bytes;
    if (state_ == governor_state::starved && pays_one) {
      handle(governor_event::slack_back);
    }
    switch (state_) {
    case governor_state::sampling:
    case governor_state::probing:
      return {expert_bytes, reason::none};
    case governor_state::open:
      steps_paid_ += pays_one ? 1 : 0;
      return pays_one ? permission{paid, reason::none} : permission{0, reason::governed};
    case governor_state::starved:
      return {0, reason::governed};
    case governor_state::stopped:
      break;
    }
    return {0, reason::not_paying};
  }

  /// Bytes of hints have been issued.
  constexpr void issued(u64 bytes) noexcept { window_.issued = sum(window_.issued, bytes); }

  /// Hints have been judged: their step was planned and used them, or did not. `regretted` may come at any time.
  constexpr void judge(u32 used, u32 wasted, u32 regretted) noexcept {
    used_ = saturating_add(used_, used);
    regretted_ = saturating_add(regretted_, regretted);
    judged_ = saturating_add(judged_, saturating_add(used, wasted));
    window_.judged = saturating_add(window_.judged, saturating_add(used, wasted));
    bool const is_trial = state_ == governor_state::sampling || state_ == governor_state::probing;
    u32 const wanted =
        state_ == governor_state::probing ? numbers_.probe_samples : numbers_.min_samples;
    if (is_trial && judged_ >= wanted) {
      handle(precision() >= numbers_.least_precision ? governor_event::pays
                                                     : governor_event::does_not_pay);
    }
    while (judged_ > numbers_.memory) {
      judged_ /= 2;
      used_ /= 2;
      regretted_ /= 2;
    }
  }

  /// Forgets all but its numbers, stops() and probes() as well: another predictor, model or holder.
  constexpr void reset() noexcept {
    governor_state const to = after(state_, governor_event::reset);
    *this = governor(numbers_);
    state_ = to;
  }

  constexpr governor_state state() const noexcept { return state_; }
  /// Whether producers can stop spending: no hint is issued before the next probe.
  constexpr bool is_stopped() const noexcept {
    return state_ == governor_state::stopped || state_ == governor_state::starved;
  }
  /// Why it is stopped; none where it is not.
  constexpr reason why() const noexcept {
    return state_ == governor_state::stopped   ? reason::not_paying
           : state_ == governor_state::starved ? reason::governed
                                               : reason::none;
  }
  /// Net precision in Q16, as if two more hints had been wasted: few samples promise little. 0 before the first.
  constexpr u32 precision() const noexcept {
    u64 const net = saturating_sub(used_, regretted_);
    u64 const of = u64{judged_} + 2;
    return static_cast<u32>(min_of(net * q16_one / of, u64{q16_one}));
  }
  /// How often it has stopped because hints did not pay.
  constexpr u32 stops() const noexcept { return stops_; }
  constexpr u32 probes() const noexcept { return probes_; }
  constexpr governor_numbers const& numbers() const noexcept { return numbers_; }

 private:
  struct window {
    u32 steps = 0;
    u32 judged = 0;
    u64 slack = 0;
    u64 issued = 0;
  };

  static constexpr void check(bool good, char const* what, u32 a, u32 b, u32 c) {
    if (!good) {
      throw config_error("governor: ", what, a, ", ", b, " and ", c);
    }
  }
  static constexpr u64 sum(u64 a, u64 b) noexcept { return b > u64_max - a ? u64_max : a + b; }

  constexpr void begin_step(u64 slack_bytes) noexcept {
    if (window_.steps >= numbers_.window_steps || window_.judged >= numbers_.min_samples) {
      close_window();
      window_ = {};
      steps_paid_ = 0;
    }
    ++window_.steps;
    window_.slack = sum(window_.slack, slack_bytes);
  }

  constexpr void close_window() noexcept {
    switch (state_) {
    case governor_state::open: {
      ++open_windows_;
      bool const is_waste = expected_waste(window_.issued, precision()) > window_.slack;
      bad_ = is_waste || precision() < numbers_.least_precision ? bad_ + 1 : 0;
      if (bad_ >= numbers_.bad_windows) {
        handle(governor_event::does_not_pay);
      } else if (steps_paid_ == 0) {
        handle(governor_event::slack_gone);
      }
      break;
    }
    case governor_state::starved:
    case governor_state::stopped:
      if (++rested_ >= rest_) {
        handle(governor_event::rested);
      }
      break;
    case governor_state::sampling:
    case governor_state::probing:
      break;
    }
  }

  constexpr void handle(governor_event e) noexcept {
    governor_state const from = state_;
    state_ = after(from, e);
    if (state_ == from) {
      return;
    }
    rested_ = 0;
    bad_ = 0;
    switch (state_) {
    case governor_state::stopped:
      ++stops_;
      set_rest();
      break;
    case governor_state::starved:
      if (is_untested_) {  // slack that comes and goes afterwards is no fault of the probe's
        set_rest();
      }
      is_untested_ = false;
      break;
    case governor_state::probing:
      ++probes_;
      is_untested_ = true;
      used_ = regretted_ = judged_ = 0;  // what was believed is in doubt
      open_windows_ = 0;
      break;
    case governor_state::open:
    case governor_state::sampling:
      break;
    }
  }

  /// What failed, or did not last as long as the rest before it, waits twice as long for the next chance.
  constexpr void set_rest() noexcept {
    rest_ = probes_ == 0 || open_windows_ > rest_ ? numbers_.rest_windows
                                                  : min_of(rest_, numbers_.most_rest_windows / 2) * 2;
  }

  governor_numbers numbers_;
  governor_state state_ = governor_state::sampling;
  u32 used_ = 0;  // with regretted_ and judged_: facts of the last hints, fading
  u32 regretted_ = 0;
  u32 judged_ = 0;
  window window_{};
  u32 steps_paid_ = 0;  // of the window
  u32 bad_ = 0;
  u32 open_windows_ = 0;  // since the last probe
  u32 rested_ = 0;
  u32 rest_ = 1;
  u32 stops_ = 0;
  u32 probes_ = 0;
  bool is_untested_ = true;  // it has not starved since the last probe
};

}  // namespace gate
}  // namespace warmset::inline v0
