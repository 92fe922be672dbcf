// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/array_view.hpp"
#include "../core/error.hpp"
#include "../core/fixed_array.hpp"
#include "../core/geometry.hpp"
#include "counters.hpp"

namespace warmset::inline v0 {

/// How the cache and its speculation are, worst first.
enum class health_state : u8 {
  off,       ///< nobody asked for a cache
  inactive,  ///< one was asked for and cannot be active
  inert,     ///< it serves demands; speculation is offered and comes to nothing
  degraded,  ///< it works, and for a reason not as well as configured
  active,
};

inline constexpr u32 n_health_states = 5;

constexpr char const* name_of(health_state s) noexcept {
  constexpr char const* names[n_health_states] = {"off", "inactive", "inert", "degraded", "active"};
  return names[static_cast<u32>(s)];
}

/// What can be wrong. Each is raised and cleared on its own; the state is the worst that any of them has.
enum class health_condition : u8 {
  cannot_be_active,  ///< of the configuration: inactive
  no_permit,  ///< speculation may not be issued, other than in prefill: inert for all groups, else degraded
  nothing_issued,  ///< hints that want a copy are offered for a window and none is issued: inert
  not_paying,      ///< bytes per useful hit over the bound: degraded
  stock_path,      ///< steps go the stock way beyond the threshold: degraded
  uncovered,       ///< layers are not in the cache and nobody excluded them: degraded
  excluded,        ///< layers are excluded by the minimum size: no effect on the state
  budget_differs,  ///< bytes requested and effective differ: degraded where something is short
  pageable,        ///< copies go through a staging ring: degraded
};

inline constexpr u32 n_health_conditions = 9;

constexpr char const* name_of(health_condition c) noexcept {
  constexpr char const* names[n_health_conditions] = {
      "cannot_be_active", "no_permit", "nothing_issued", "not_paying", "stock_path",
      "uncovered",        "excluded",  "budget_differs", "pageable"};
  return names[static_cast<u32>(c)];
}

/// Bounds of the judgement. Percentages are whole; all comparisons are of integers.
struct health_limits {
  u32 window_steps = 4096;  ///< steps of a layer, both phases: 85 tokens of a model of 48 layers
  u32 min_hints = 8;        ///< fewer that want a copy say nothing
  u32 min_copies = 16;      ///< fewer ended transfers say nothing of what pays
  u32 experts_per_useful_hit =
      4;                  ///< bytes of this many experts per useful hit are too many beyond
  u32 stock_percent = 5;  ///< of a group's steps
};

/// The configuration as plain facts; health_facts.hpp takes them from a cache and its reservation.
struct health_setup {
  bool wanted = true;  ///< false: off
  reason cannot_be_active =
      reason::none;  ///< why this configuration cannot be active, where that is known
  u32 layers = 0;    ///< MoE layers of the model
  u32 layers_covered = 0;
  u32 layers_below_minimum = 0;  ///< excluded because their experts are smaller than the minimum
  u64 expert_bytes = 0;          ///< of the largest expert
  u64 requested_bytes = 0;       ///< 0: slots were asked for
  u64 effective_bytes = 0;
  /// Why effective differs from requested; none: by rounding alone, `limited`: the model has no more.
  reason budget_why = reason::none;
  bool pageable = false;
  u32 n_groups = 0;  ///< that `update` will be told of

  /// Of a cache that covers the layers of `model` whose experts have at least `min_expert_bytes`.
  static health_setup of(geometry const& model, u64 min_expert_bytes = 0) noexcept {
    health_setup s;
    for (layer_geometry const& layer : model.layers()) {
      bool const excluded = layer.expert_bytes() < min_expert_bytes;
      ++s.layers;
      ++(excluded ? s.layers_below_minimum : s.layers_covered);
      s.expert_bytes = max_of(s.expert_bytes, layer.expert_bytes());
    }
    return s;
  }
};

/// What is so of one group of layers now. Steps are totals that never fall.
struct group_health {
  reason refuses = reason::none;  ///< why its speculation may not be issued now
  u64 steps = 0;
  u64 stock_steps = 0;  ///< of these, served another way than configured
  reason stock_why = reason::none;
  bool is_stopped = false;  ///< the governor that refuses: no window need pass
};

/// One condition: whether it holds, since when, and in figures.
struct condition_report {
  bool raised;
  health_state effect;  ///< of this condition alone; `active` = none
  reason why;
  reason cause;    ///< of nothing_issued and stock_path: the reason that was given most
  u64 since_step;  ///< of the last change
  u64 count;       ///< what of `of`; see docs/observe.md
  u64 of;
};

/// Health at one moment: plain data.
struct health_report {
  health_state state;
  reason why;      ///< of the condition that decides the state; none where active or off
  u64 since_step;  ///< when this state was entered, in steps of layers since construction
  u64 step;        ///< now
  condition_report conditions[n_health_conditions];
  // of speculation in the last whole window; in the running one while none is whole
  u64 hints_wanting;  ///< offered hints that wanted a copy: not resident, in flight or invalid
  u64 hints_issued;
  u32 drop_rate_q16;  ///< hints_wanting without a copy, in 1/65536; 65536 = every one was dropped
  u64 bytes_per_useful_hit;  ///< see basic_counters
  bool probe_due;            ///< a producer that has stopped should offer one batch now
  u64 requested_bytes, effective_bytes;
  u32 layers, layers_covered;

  constexpr condition_report const& operator[](health_condition c) const noexcept {
    return conditions[static_cast<u32>(c)];
  }
  /// Whether what predictors cost is wasted now. While so, offer a batch where `probe_due` says so.
  constexpr bool producers_may_stop() const noexcept { return state <= health_state::inert; }
};

enum class health_level : u8 { notice, warning };

/// A condition was raised, changed its effect, reason or cause, or was cleared.
struct health_event {
  u64 step;
  health_level level;
  health_condition condition;
  bool raised;
  reason why;
  reason cause;
  u64 count;
  u64 of;
};

/// Judges a cache's health from counters and facts that it is handed. Asks nobody, calls nobody, reads no
/// clock: time is the number of steps that the counters or the groups tell, whichever is more. One owner; allocates in its constructor only.
class health_monitor {
 public:
  static constexpr u32 max_events = 64;

  /// Configuration conditions are events from the start. Throws config_error where a window or a bound is 0,
  /// and bad_alloc.
  explicit health_monitor(health_setup const& setup, health_limits limits = {})
      : limits_(limits), groups_(setup.n_groups), named_(setup.n_groups) {
    if (limits.window_steps == 0 || limits.experts_per_useful_hit == 0 || limits.min_hints == 0 ||
        limits.min_copies == 0 || limits.stock_percent >= 100) {
      throw config_error("health limits: a window of ", limits.window_steps, " steps, ",
                         limits.min_hints, " hints, ", limits.min_copies, " copies, ",
                         limits.experts_per_useful_hit,
                         " experts per useful hit must not be 0, and ", limits.stock_percent,
                         " % of stock steps must be below 100");
    }
    if (setup.wanted && setup.layers_covered != 0 && setup.expert_bytes == 0) {
      throw config_error("health setup: ", setup.layers_covered, " layers of experts of 0 bytes");
    }
    for (condition_report& c : report_.conditions) {
      c.effect = health_state::active;
    }
    revise(setup);
    report_.since_step = 0;
  }

  /// The configuration has changed, or is told again. O(1).
  void revise(health_setup const& setup) noexcept {
    setup_ = setup;
    report_.requested_bytes = setup.requested_bytes;
    report_.effective_bytes = setup.effective_bytes;
    report_.layers = setup.layers;
    report_.layers_covered = setup.layers_covered;
    if (setup.wanted) {
      judge_configuration();
    }
    conclude();
  }

  /// Takes the counters of all layers and phases, and what is so of each group, in the order of their ids;
  /// groups beyond n_groups are not looked at. Call it as often as health shall be fresh: once per step to see
  /// a lost authority within one step. O(groups + reasons).
  void update(total_counters const& all, array_view<group_health const> groups = {}) noexcept {
    now_ = all;
    if (groups.size() > groups_.size()) {
      groups = groups.subspan(0, groups_.size());
    }
    u64 const before = step_;
    u64 of_groups = 0;
    for (group_health const& g : groups) {
      of_groups += g.steps;
    }
    step_ = max_of(step_, max_of(all.steps.value + all.overflow_steps.value, of_groups));
    report_.step = step_;
    if (!setup_.wanted) {
      return;
    }
    judge_permits(groups, step_ - before);
    judge_issue();
    judge_paying();
    judge_stock(groups);
    roll_window();
    conclude();
  }

  health_report const& report() const noexcept { return report_; }

  /// Ids of the groups that go the stock way beyond the threshold, ascending.
  array_view<u32 const> stock_groups() const noexcept { return {named_.data(), n_named_}; }

  /// The oldest event that has not been taken; false where there is none.
  bool next_event(health_event& out) noexcept {
    if (taken_ == noted_) {
      return false;
    }
    out = events_[taken_++ % max_events];
    return true;
  }
  /// Events that were overwritten before anybody took them.
  u64 events_lost() const noexcept { return lost_; }

 private:
  static constexpr u32 spec = static_cast<u32>(intent::speculative);

  /// A group as it was told.
  struct watched {
    u64 steps;  ///< when its window began
    u64 stock_steps;
    u64 stock;  ///< in its last whole window
    reason why;
    bool named;
    reason refused;      ///< when it was last looked at
    bool is_starved;     ///< `governed` for a window, or by a governor that has stopped
    u64 governed_steps;  ///< of the running window of `governed`
  };

  /// Hints that wanted a copy: what the reason says needs none, or names nothing, is left out.
  template <class Span>
  static constexpr u64 dropped_of(basic_counters<Span> const& c) noexcept {
    u64 n = 0;
    for (u32 r = 0; r < n_drop_reasons; ++r) {
      n += wants_copy(static_cast<reason>(r)) ? c.hints_dropped[r].value : 0;
    }
    return n;
  }
  static constexpr bool wants_copy(reason r) noexcept {
    return r > reason::in_flight;  // up to there: nothing, no expert, or no need
  }
  static_assert(reason::sentinel < reason::in_flight && reason::resident < reason::in_flight &&
                    reason::guard > reason::in_flight && reason::ring_full > reason::in_flight,
                "reasons that need no copy come before those that got none");

  // ---- configuration ----------------------------------------------------------------------------------

  void judge_configuration() noexcept {
    health_setup const& c = setup_;
    u32 const missing = saturating_sub(c.layers, c.layers_covered);
    u32 const not_excluded = saturating_sub(missing, c.layers_below_minimum);
    bool const no_layer = c.layers_covered == 0;
    bool const no_byte = c.requested_bytes != 0 && c.effective_bytes == 0;
    reason const inactive =
        c.cannot_be_active != reason::none                             ? c.cannot_be_active
        : no_layer && c.layers_below_minimum != 0 && not_excluded == 0 ? reason::below_minimum
        : no_layer                                                     ? reason::uncovered
        : no_byte ? (c.budget_why != reason::none ? c.budget_why : reason::over_budget)
                  : reason::none;
    set(health_condition::cannot_be_active, inactive != reason::none, health_state::inactive,
        inactive);
    set(health_condition::uncovered, not_excluded != 0, health_state::degraded, reason::uncovered,
        reason::none, c.layers_covered, c.layers);
    set(health_condition::excluded, c.layers_below_minimum != 0, health_state::active,
        reason::below_minimum, reason::none, c.layers_below_minimum, c.layers);
    bool const differs = c.requested_bytes != 0 && c.requested_bytes != c.effective_bytes;
    bool const is_short = c.budget_why != reason::none && c.budget_why != reason::limited;
    bool const explained = is_short || c.effective_bytes > c.requested_bytes;
    set(health_condition::budget_differs, differs,
        explained ? health_state::degraded : health_state::active,
        c.budget_why != reason::none ? c.budget_why : reason::over_budget, reason::none,
        c.effective_bytes, c.requested_bytes);
    set(health_condition::pageable, c.pageable, health_state::degraded, reason::pageable);
  }

  // ---- what runs --------------------------------------------------------------------------------------

  /// @param passed  steps since the groups were last looked at
  void judge_permits(array_view<group_health const> groups, u64 passed) noexcept {
    u32 refused = 0;
    reason why = reason::none;
    for (u32 g = 0; g < groups.size(); ++g) {
      reason const lost = lost_permit(groups[g], groups_[g], passed);
      refused += lost != reason::none ? 1 : 0;
      why = why == reason::none ? lost : why;
    }
    set(health_condition::no_permit, refused != 0,
        refused == groups.size() ? health_state::inert : health_state::degraded, why, reason::none,
        refused, groups.size());
  }

  /// Why a group has lost its permit; none where it has not. `governed` is how a governor works, and a fault only
  /// where it has stopped or a window has passed under it. Prefill is no fault; it neither adds to nor ends a
  /// window of `governed`.
  reason lost_permit(group_health const& g, watched& w, u64 passed) const noexcept {
    reason const before = w.refused;
    w.refused = g.refuses;
    if (g.refuses != reason::governed && g.refuses != reason::in_prefill) {
      w.governed_steps = 0;
      w.is_starved = false;
      return g.refuses;
    }
    if (g.refuses == reason::governed) {
      w.governed_steps += before == reason::governed ? passed : 0;
      w.is_starved = g.is_stopped || w.governed_steps >= limits_.window_steps;
    }
    return w.is_starved ? reason::governed : reason::none;
  }

  /// Raised once a window of steps has passed since the first hint that wanted a copy, none having been issued;
  /// cleared by the first that is.
  void judge_issue() noexcept {
    u64 const issued = now_.issued[spec].value;
    u64 const dropped = dropped_of(now_);
    if (issued != quiet_.issued || dropped == quiet_.dropped) {
      if (issued != quiet_.issued) {
        set(health_condition::nothing_issued, false);
      }
      quiet_ = {step_, issued, dropped, now_};
      return;
    }
    if (report_[health_condition::nothing_issued].raised) {
      return;
    }
    u64 const wanted = dropped - quiet_.dropped;
    if (step_ - quiet_.step >= limits_.window_steps && wanted >= limits_.min_hints) {
      set(health_condition::nothing_issued, true, health_state::inert, reason::inert,
          cause_of_drops(), wanted, wanted);
    }
  }
  /// The reason for which most hints were dropped since one was last issued; the earlier one of equals.
  reason cause_of_drops() const noexcept {
    u32 most = 0;
    u64 n = 0;
    for (u32 r = 0; r < n_drop_reasons; ++r) {
      u64 const dropped = now_.hints_dropped[r].value - quiet_.at.hints_dropped[r].value;
      if (wants_copy(static_cast<reason>(r)) && dropped > n) {
        n = dropped;
        most = r;
      }
    }
    return static_cast<reason>(most);
  }

  /// Judged over at least a window and min_copies ended transfers. Cleared at three quarters of the bound.
  void judge_paying() noexcept {
    u64 const ended = now_.arrived[spec].value + now_.failed[spec].value -
                      paid_.arrived[spec].value - paid_.failed[spec].value;
    if (step_ - paid_step_ < limits_.window_steps || ended < limits_.min_copies) {
      return;
    }
    u64 const bytes = now_.bytes[spec].value - paid_.bytes[spec].value;
    u64 const used = now_.used().value - paid_.used().value;
    u64 const bound = used * setup_.expert_bytes * limits_.experts_per_useful_hit;
    bool const raised = report_[health_condition::not_paying].raised;
    if (bytes > bound || (raised && bytes > bound / 4 * 3)) {
      set(health_condition::not_paying, true, health_state::degraded, reason::not_paying,
          reason::none, bytes, used);
    } else {
      set(health_condition::not_paying, false);
    }
    paid_ = now_;
    paid_step_ = step_;
  }

  /// Each group is judged over its share of the window in steps of its own. Cleared at three quarters of the
  /// threshold.
  void judge_stock(array_view<group_health const> groups) noexcept {
    u64 const own_window = max_of(limits_.window_steps / max_of(setup_.n_groups, 1u), 1u);
    u64 by_reason[n_reasons] = {};
    n_named_ = 0;
    for (u32 g = 0; g < groups.size(); ++g) {
      watched& w = groups_[g];
      u64 const steps = groups[g].steps - w.steps;
      if (steps >= own_window) {
        w.stock = groups[g].stock_steps - w.stock_steps;
        u64 const bound = steps * limits_.stock_percent;
        w.named = w.stock * 100 > bound || (w.named && w.stock * 400 > bound * 3);
        w.why = groups[g].stock_why;
        w.steps = groups[g].steps;
        w.stock_steps = groups[g].stock_steps;
      }
      if (w.named) {
        named_[n_named_++] = g;
        by_reason[static_cast<u32>(w.why)] += w.stock;
      }
    }
    u32 cause = 0;
    for (u32 r = 0; r < n_reasons; ++r) {
      cause = by_reason[r] > by_reason[cause] ? r : cause;
    }
    set(health_condition::stock_path, n_named_ != 0, health_state::degraded, reason::fallback,
        static_cast<reason>(cause), n_named_, groups.size());
  }

  void roll_window() noexcept {
    bool const whole = step_ - window_step_ >= limits_.window_steps;
    if (whole || !had_window_) {
      u64 const issued = now_.issued[spec].value - window_.issued[spec].value;
      u64 const dropped = dropped_of(now_) - dropped_of(window_);
      report_.hints_wanting = issued + dropped;
      report_.hints_issued = issued;
      report_.drop_rate_q16 =
          issued + dropped == 0 ? 0 : static_cast<u32>((dropped << 16) / (issued + dropped));
      report_.bytes_per_useful_hit = (now_ - window_).bytes_per_useful_hit();
    }
    if (whole) {
      window_ = now_;
      window_step_ = step_;
      had_window_ = true;
    }
    report_.probe_due = report_[health_condition::nothing_issued].raised &&
                        now_.hints_offered.value == probe_.offered &&
                        step_ - probe_.step >= limits_.window_steps;
    if (now_.hints_offered.value != probe_.offered) {
      probe_ = {step_, now_.hints_offered.value};
    }
  }

  // ---- conditions and events --------------------------------------------------------------------------

  void set(health_condition which, bool raised, health_state effect = health_state::active,
           reason why = reason::none, reason cause = reason::none, u64 count = 0,
           u64 of = 0) noexcept {
    condition_report& c = report_.conditions[static_cast<u32>(which)];
    bool const same =
        raised ? c.raised && c.effect == effect && c.why == why && c.cause == cause : !c.raised;
    if (raised) {
      c.count = count;
      c.of = of;
    }
    if (same) {
      return;
    }
    if (!raised) {  // the event says what is over
      note({step_, health_level::notice, which, false, c.why, c.cause, c.count, c.of});
      c = {false, health_state::active, reason::none, reason::none, step_, 0, 0};
      return;
    }
    c = {true, effect, why, cause, step_, count, of};
    note({step_, effect == health_state::active ? health_level::notice : health_level::warning,
          which, true, why, cause, count, of});
  }

  void note(health_event const& e) noexcept {
    if (noted_ - taken_ == max_events) {
      ++taken_;
      ++lost_;
    }
    events_[noted_++ % max_events] = e;
  }

  /// The worst effect decides; of equals the condition that comes first.
  void conclude() noexcept {
    health_state state = setup_.wanted ? health_state::active : health_state::off;
    reason why = reason::none;
    for (condition_report const& c : report_.conditions) {
      if (c.raised && c.effect < state) {
        state = c.effect;
        why = c.why;
      }
    }
    if (state != report_.state) {
      report_.since_step = step_;
    }
    report_.state = state;
    report_.why = why;
  }

  struct quiet_since {
    u64 step;
    u64 issued;
    u64 dropped;
    total_counters at;
  };
  struct last_offer {
    u64 step;
    u64 offered;
  };

  health_limits limits_;
  health_setup setup_{};
  health_report report_{};
  u64 step_ = 0;
  total_counters now_{};
  total_counters window_{};  ///< when the running window began
  u64 window_step_ = 0;
  total_counters paid_{};  ///< when paying was last judged
  u64 paid_step_ = 0;
  quiet_since quiet_{};  ///< when a hint was last issued, or none was waiting
  last_offer probe_{};
  bool had_window_ = false;
  fixed_array<watched> groups_;
  fixed_array<u32> named_;
  u32 n_named_ = 0;
  health_event events_[max_events] = {};
  u64 noted_ = 0;
  u64 taken_ = 0;
  u64 lost_ = 0;
};

}  // namespace warmset::inline v0
