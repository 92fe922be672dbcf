// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <warmset/core/arrival.hpp>
#include <warmset/policy/admit/colder_than_victim.hpp>
#include <warmset/policy/admit/fetch_share.hpp>
#include <warmset/policy/admit/frequency_gate.hpp>
#include <warmset/policy/admit/insert_budget.hpp>
#include <warmset/policy/admit/second_touch.hpp>
#include <warmset/table/bundle.hpp>
#include <warmset/policy/guard/none.hpp>
#include <warmset/policy/select/first_permitted.hpp>

#include "naive_scores.hpp"
#include "naive_selectors.hpp"
#include "state.hpp"

namespace warmset::kit {

/// Whether the model knows the eviction order of a selector by a rule of its own.
template <class Selector>
inline constexpr bool has_naive_order = std::same_as<Selector, select::coldest> ||
                                        std::same_as<Selector, select::first_permitted> ||
                                        has_naive_rule<Selector>;

/// Which rule of admission the model follows in its own words; `other` asks the bundle's.
enum class naive_admission : u8 { always, second_touch, insert_budget, fetch_share, frequency_gate, colder_than_victim, other };

namespace detail {
template <class Admission>
struct naive_admission_of {
  static constexpr naive_admission rule = naive_admission::other;
  static constexpr u64 number = 0;
};
template <>
struct naive_admission_of<admit::always> {
  static constexpr naive_admission rule = naive_admission::always;
  static constexpr u64 number = 0;
};
template <u32 Window>
struct naive_admission_of<admit::second_touch<Window>> {
  static constexpr naive_admission rule = naive_admission::second_touch;
  static constexpr u64 number = Window;
};
template <>
struct naive_admission_of<admit::insert_budget> {
  static constexpr naive_admission rule = naive_admission::insert_budget;
  static constexpr u64 number = 0;  // the tuning's
};
template <>
struct naive_admission_of<admit::fetch_share> {
  static constexpr naive_admission rule = naive_admission::fetch_share;
  static constexpr u64 number = 0;  // the tuning's
};
template <>
struct naive_admission_of<admit::frequency_gate> {
  static constexpr naive_admission rule = naive_admission::frequency_gate;
  static constexpr u64 number = 0;
};
template <u32 AfterSteps>
struct naive_admission_of<admit::colder_than_victim<AfterSteps>> {
  static constexpr naive_admission rule = naive_admission::colder_than_victim;
  static constexpr u64 number = AfterSteps;
};
}  // namespace detail

/// The scalar functions of one bundle behind a plain interface: all that the model takes from it.
class scalar_policy {
 public:
  bool speculates = false, keeps_reserve = false, asks_again = false, spans_layers = false,
       may_decline = false, counts = false, guard_is_none = false, contextual = false,
       uses_previous_layer = false, uses_supplied = false, ages = false;
  naive_admission admission = naive_admission::always;
  u64 admission_number = 0;  ///< the rule's own: ticks, bytes or steps
  u64 one_count = 0;
  u32 max_experts = 0;
  std::shared_ptr<naive_selector const> selector;  ///< null: candidates come in the order of coldest

  virtual ~scalar_policy() = default;
  virtual u64 value(score_cell const&, expert_facts, clocks) const = 0;
  virtual u32 heat(score_cell const&, expert_facts, clocks) const = 0;
  virtual void on_demand(score_cell&, clocks) const = 0;
  virtual void on_install(score_cell&, clocks) const = 0;
  virtual void on_evict(score_cell&, clocks) const = 0;
  virtual void rebase(score_cell&, clocks) const = 0;
  virtual bool permits(duel const&) const = 0;
  virtual bool admits(admission_question const&) const = 0;
  /// Contextual scores: the rule of one row, and the key of its last step in a cell.
  virtual std::unique_ptr<naive_context> context(u32 n_experts, u32 layer) const = 0;
  virtual i32 key_of(score_cell const&) const = 0;
};

namespace detail {
template <class Guard>
struct inner_guard {
  using type = Guard;
};
template <class Guard, class Sink>
struct inner_guard<probed<Guard, Sink>> {
  using type = Guard;
};
}  // namespace detail

/// The guard of a bundle without its probe, so that the model's questions are not recorded.
template <class Guard>
using unprobed = typename detail::inner_guard<Guard>::type;

template <policy_bundle Policy>
class scalar_policy_of final : public scalar_policy {
  using score_type = typename Policy::score;
  using score_state = typename score_type::state;
  using guard_type = unprobed<typename Policy::guard>;
  static_assert(sizeof(score_state) <= sizeof(score_cell));

 public:
  explicit scalar_policy_of(tuning const& numbers)
      : score_(warmset::detail::make_part<score_type>(numbers)),
        guard_(warmset::detail::make_part<guard_type>(numbers)),
        admission_(warmset::detail::make_part<typename Policy::admission>(numbers)), numbers_(numbers) {
    if constexpr (contextual_score<score_type>) {
      contextual = true;
      uses_previous_layer = score_type::uses_previous_layer;
      uses_supplied = score_type::uses_supplied;
      ages = naive_context_of<score_type>::ages;
    }
    speculates = Policy::predictor::speculates;
    keeps_reserve = speculates && guard_type::keeps_reserve;
    asks_again = Policy::selector::asks_again;
    spans_layers = Policy::pool::spans_layers;
    if constexpr (has_naive_rule<typename Policy::selector>) {
      selector = naive_rule<typename Policy::selector>::make();
    }
    may_decline = Policy::admission::may_decline;
    using naive = detail::naive_admission_of<typename Policy::admission>;
    admission = naive::rule;
    admission_number = admission == naive_admission::insert_budget ? numbers.insert_bytes
                       : admission == naive_admission::fetch_share ? numbers.fetch_share
                                                                   : naive::number;
    max_experts = Policy::max_experts;
    guard_is_none = std::same_as<guard_type, guard::none>;
    counts = counting_score<score_type>;
    if constexpr (counting_score<score_type>) {
      one_count = score_type::one_count;
    }
  }

  u64 value(score_cell const& c, expert_facts e, clocks now) const override {
    return score_.value(read(c), e, now);
  }
  u32 heat(score_cell const& c, expert_facts e, clocks now) const override {
    if constexpr (counting_score<score_type>) {
      return score_.heat(read(c), e, now);
    } else {
      return 0;
    }
  }
  void on_demand(score_cell& c, clocks now) const override {
    change(c, [&](score_state& x) { score_.on_demand(x, now); });
  }
  void on_install(score_cell& c, clocks now) const override {
    if constexpr (score_detail::has_install_hook<score_type>) {
      change(c, [&](score_state& x) { score_.on_install(x, now); });
    }
  }
  void on_evict(score_cell& c, clocks now) const override {
    if constexpr (score_detail::has_evict_hook<score_type>) {
      change(c, [&](score_state& x) { score_.on_evict(x, now); });
    }
  }
  void rebase(score_cell& c, clocks now) const override {
    if constexpr (score_detail::has_rebase_hook<score_type>) {
      change(c, [&](score_state& x) { score_.rebase(x, now); });
    }
  }
  bool permits(duel const& d) const override { return guard_.permits(d); }
  bool admits(admission_question const& q) const override { return admission_.admits(q); }
  std::unique_ptr<naive_context> context(u32 n_experts, u32 layer) const override {
    if constexpr (contextual_score<score_type>) {
      return naive_context_of<score_type>::make(numbers_, n_experts, layer);
    } else {
      return nullptr;
    }
  }
  i32 key_of(score_cell const& c) const override {
    if constexpr (contextual_score<score_type>) {
      return naive_context_of<score_type>::key_of(c);
    } else {
      return 0;
    }
  }

 private:
  static score_state read(score_cell const& c) {
    score_state x{};
    if constexpr (!std::is_empty_v<score_state>) {
      std::memcpy(&x, c.data(), sizeof x);
    }
    return x;
  }
  template <class F>
  static void change(score_cell& c, F&& f) {
    score_state x = read(c);
    f(x);
    if constexpr (!std::is_empty_v<score_state>) {
      std::memcpy(c.data(), &x, sizeof x);
    }
  }

  score_type score_;
  guard_type guard_;
  typename Policy::admission admission_;
  tuning numbers_;
};

/// An independent reference of the table's rules: vectors, loops and one decision at a time. It takes only
/// the scalar functions of score and guard from the library, and has its own admissions, eviction orders and
/// rules of contextual scores.
///
/// It predicts every plan (hits, late, loads with slots, victims, declines, drops by reason, consultations
/// of the guard) and the state and the counters after every operation.
class naive_model {
 public:
  naive_model(std::shared_ptr<scalar_policy const> policy, table_state initial)
      : policy_(std::move(policy)), s_(std::move(initial)) {
    for (u32 r = 0; policy_->contextual && r < s_.rows.size(); ++r) {
      contexts_.push_back(policy_->context(s_.rows[r].n_experts, s_.rows[r].id));
    }
  }

  table_state const& state() const noexcept { return s_; }
  scalar_policy const& policy() const noexcept { return *policy_; }

  /// Slots that one step can rely on.
  u32 usable() const {
    u64 kept = 0;
    for (auto const& row : s_.experts) {
      for (auto const& e : row) {
        kept += e.pinned ? 1 : 0;
      }
    }
    if (policy_->spans_layers) {
      kept += (s_.rows.size() - 1) * u64{s_.floor};
    }
    return kept > s_.capacity ? 0 : static_cast<u32>(s_.capacity - kept);
  }

  // ---- decisions -----------------------------------------------------------------------------------------

  plan_record plan_demand(u32 row, std::span<i64 const> ids, phase in_phase, u32 model_tick,
                          step_said const& said = {}) const {
    plan_record p;
    p.version = s_.version;
    p.row = row;
    p.model_tick = model_tick;
    std::vector<u32> experts;  // distinct, by last occurrence
    for (std::size_t i = ids.size(); i-- != 0;) {
      if (ids[i] < 0) {
        ++p.sentinels;
      } else if (ids[i] >= s_.rows[row].n_experts) {
        ++p.out_of_range;
      } else if (contains(experts, static_cast<u32>(ids[i]))) {
        ++p.duplicates;
      } else {
        experts.push_back(static_cast<u32>(ids[i]));
      }
    }
    std::reverse(experts.begin(), experts.end());
    if (experts.empty()) {
      return p;
    }
    std::vector<u32> free_scratch;
    for (u32 i = 0; i < s_.n_scratch; ++i) {
      if (s_.scratch[i] == 0) {
        free_scratch.push_back(i);
      }
    }
    auto const serve_from_scratch = [&](access_kind how) {
      u32 n = 0;
      for (auto& e : p.entries) {
        if (e.how == how) {
          if (free_scratch.empty()) {
            return false;
          }
          e.slot = n_slots() + free_scratch[n % free_scratch.size()];
          e.wave = static_cast<u32>(n / free_scratch.size());
          p.n_waves = e.wave + 1;
          p.n_declined = ++n;
        }
      }
      return true;
    };
    auto const busy = [&] {
      p.kind = plan_kind::busy;
      p.loads.clear();
      p.trims.clear();
      p.keys.clear();
    };

    if (experts.size() > usable()) {
      p.kind = plan_kind::overflow;
      for (u32 const x : experts) {
        u32 const at = s_.experts[row][x].slot;
        bool const resident = at != no_slot.value && s_.slots[at].state == slot_state::resident;
        p.entries.push_back({x, resident ? access_kind::overflow_hit : access_kind::overflow_miss,
                             resident ? at : no_slot.value, 0});
      }
      if (!serve_from_scratch(access_kind::overflow_miss)) {
        busy();
      }
      return p;
    }

    p.kind = plan_kind::step;
    if (policy_->contextual) {
      p.said = said;
      p.keys = contexts_[row]->keys(experts, said, experts_of(row, model_tick));
    }
    u32 promoted = 0;
    bool any_miss = false;
    std::vector<u32> missing;  // positions
    for (u32 const x : experts) {
      expert const& e = s_.experts[row][x];
      plan_record::entry entry{x, access_kind::declined, no_slot.value, 0};
      if (e.slot != no_slot.value) {
        slot const& held = s_.slots[e.slot];
        entry.slot = e.slot;
        entry.how = held.state != slot_state::resident ? access_kind::late
                    : held.unused                      ? access_kind::first_use
                                                       : access_kind::hit;
        promoted += held.unused ? 1 : 0;
      } else {
        any_miss = true;
        missing.push_back(static_cast<u32>(p.entries.size()));
      }
      p.entries.push_back(entry);
    }
    if (!any_miss && promoted == 0) {
      return p;
    }

    // Slots that demand holds after this step's hits; what is kept for speculation is taken last.
    u32 ordinary = promoted;
    for (slot const& held : s_.slots) {
      bool const holds = held.state == slot_state::reserved || held.state == slot_state::resident;
      ordinary += holds && !held.unused ? 1 : 0;
    }
    u32 const kept =
        policy_->keeps_reserve ? std::min(s_.speculative_slots, s_.capacity == 0 ? 0 : s_.capacity - 1) : 0;
    u32 const bound = s_.capacity - kept;
    u32 const n_free = std::min(count_state(slot_state::free), bound > ordinary ? bound - ordinary : 0);
    if (policy_->admission == naive_admission::fetch_share) {
      auto const& known = s_.experts[row];
      std::sort(missing.begin(), missing.end(), [&](u32 a, u32 b) {
        u32 const x = p.entries[a].expert, y = p.entries[b].expert;
        if (known[x].accessed != known[y].accessed) {
          return known[x].accessed;
        }
        u32 const age_x = s_.tick - known[x].last, age_y = s_.tick - known[y].last;
        return known[x].accessed && age_x != age_y ? age_x < age_y : x < y;
      });
    }
    std::vector<u32> admitted;  // positions
    u32 const n_missing = static_cast<u32>(missing.size());
    for (u32 const at : missing) {
      if (admits(p, p.entries[at].expert, static_cast<u32>(admitted.size()), n_missing, n_free, in_phase)) {
        admitted.push_back(at);
      }
    }
    bool const by_score = policy_->admission == naive_admission::colder_than_victim &&
                          in_phase == phase::decode && s_.rows[row].step >= policy_->admission_number;
    if (by_score) {
      std::sort(admitted.begin(), admitted.end(), [&](u32 a, u32 b) {
        auto const rank_a = rank(p, row, p.entries[a].expert);
        auto const rank_b = rank(p, row, p.entries[b].expert);
        return rank_a != rank_b ? rank_a > rank_b : a < b;  // equal ones in demand order
      });
    }
    std::vector<u32> sources;
    auto const usable_spare = [&](u32 at, bool expired) {
      slot const& held = s_.slots[at];
      return spare(at) && has_passed(at) == expired && !(held.row == row && contains(experts, held.expert)) &&
             !contains(sources, at) && leaves_floor(row, at, sources, {});
    };
    while (sources.size() < admitted.size()) {
      bool const roomy = ordinary + sources.size() < bound;
      u32 found = no_slot.value;
      auto const try_slots = [&](auto&& fits) {
        for (u32 at = 0; at < s_.capacity && found == no_slot.value; ++at) {
          found = fits(at) ? at : no_slot.value;
        }
      };
      auto const is_free = [&](u32 at) {
        return s_.slots[at].state == slot_state::free && !contains(sources, at);
      };
      if (roomy) {
        try_slots(is_free);
        try_slots([&](u32 at) { return usable_spare(at, true); });
      }
      if (found == no_slot.value) {
        std::size_t const offered = p.offered;
        found = next_resident(p, row, experts, sources, {});
        if (found != no_slot.value &&
            is_refused(p, p.entries[admitted[sources.size()]].expert, found, by_score)) {
          admitted.erase(admitted.begin() + static_cast<std::ptrdiff_t>(sources.size()));
          p.offered = std::max(offered, p.offered - 1);  // it stays where it is; what the step demands was passed
          continue;
        }
      }
      if (found == no_slot.value) {
        try_slots(is_free);
        try_slots([&](u32 at) { return usable_spare(at, true); });
        try_slots([&](u32 at) { return usable_spare(at, false); });
      }
      if (found == no_slot.value) {
        break;
      }
      sources.push_back(found);
    }
    if (sources.size() == admitted.size()) {
      u32 const excess = std::min(ordinary > bound ? ordinary - bound : 0, policy_->max_experts);
      while (p.trims.size() < excess) {
        u32 const at = next_resident(p, row, experts, sources, p.trims);
        if (at == no_slot.value) {
          break;
        }
        p.trims.push_back(at);
      }
    } else {
      p.obstacles = obstacles();
    }
    admitted.resize(std::min(admitted.size(), sources.size()));
    std::sort(admitted.begin(), admitted.end(),
              [&](u32 a, u32 b) { return p.entries[a].expert < p.entries[b].expert; });
    for (std::size_t j = 0; j < admitted.size(); ++j) {
      auto& entry = p.entries[admitted[j]];
      entry.how = access_kind::load;
      entry.slot = sources[j];
      p.loads.push_back({entry.expert, sources[j]});
    }
    if (!serve_from_scratch(access_kind::declined)) {
      busy();
    }
    return p;
  }

  plan_record plan_hints(u32 row, std::span<i64 const> ids, u32 target, u32 max_loads,
                         u32 model_tick) const {
    plan_record p;
    p.version = s_.version;
    p.kind = plan_kind::hints;
    p.for_intent = intent::speculative;
    p.row = row;
    p.model_tick = model_tick;
    p.target = target;
    p.hints_offered = static_cast<u32>(ids.size());
    std::vector<u32> seen;
    std::vector<u32> sources;
    u32 unused = 0;
    for (slot const& held : s_.slots) {
      unused += held.unused && !held.loading ? 1 : 0;
    }
    for (i64 const id : ids) {
      auto const drop = [&](reason why) { ++p.dropped[static_cast<u32>(why)]; };
      if (id < 0) {
        drop(reason::sentinel);
        continue;
      }
      if (id >= s_.rows[row].n_experts) {
        drop(reason::out_of_range);
        continue;
      }
      u32 const x = static_cast<u32>(id);
      if (contains(seen, x)) {
        drop(reason::duplicate);
        continue;
      }
      seen.push_back(x);
      if (u32 const at = s_.experts[row][x].slot; at != no_slot.value) {
        drop(s_.slots[at].state == slot_state::resident ? reason::resident : reason::in_flight);
        continue;
      }
      if (reached(s_.rows[row].step, target)) {
        drop(reason::too_late);
        continue;
      }
      if (p.loads.size() >= max_loads || p.loads.size() >= policy_->max_experts) {
        drop(reason::limited);
        continue;
      }
      u32 destination = no_slot.value;
      reason why = reason::no_victim;
      bool const below = unused < s_.speculative_slots;
      for (u32 at = 0; below && at < s_.capacity && destination == no_slot.value; ++at) {
        if (s_.slots[at].state == slot_state::free && !contains(sources, at)) {
          destination = at;
        }
      }
      if (destination == no_slot.value) {
        // an eviction is next: the guard is asked for every candidate that is considered
        bool any_spare = false;
        for (u32 at = 0; at < s_.capacity; ++at) {
          if (!spare(at) || !has_passed(at) || contains(sources, at) || !leaves_floor(row, at, sources, {})) {
            continue;
          }
          any_spare = true;
          if (ask(p, row, x, at, model_tick)) {
            destination = at;
            --unused;
            break;
          }
          why = reason::guard;
          if (!policy_->asks_again) {
            break;
          }
        }
        if (destination == no_slot.value && below && (!any_spare || policy_->asks_again)) {
          std::vector<u32> passed = sources;
          while (destination == no_slot.value) {
            u32 const at = next_resident(p, row, {}, sources, passed);
            if (at == no_slot.value) {
              break;
            }
            if (ask(p, row, x, at, model_tick)) {
              destination = at;
              break;
            }
            why = reason::guard;
            passed.push_back(at);
            if (!policy_->asks_again) {
              break;
            }
          }
        } else if (destination == no_slot.value && !any_spare) {
          why = reason::speculative_budget;
        }
      }
      if (destination == no_slot.value) {
        drop(why);
        continue;
      }
      ++unused;
      sources.push_back(destination);
      p.loads.push_back({x, destination});
    }
    return p;
  }

  // ---- changes -------------------------------------------------------------------------------------------

  status commit(plan_record const& p, outcome& out) {
    if (p.kind != plan_kind::step && p.kind != plan_kind::hints) {
      return {reason::not_committable};
    }
    if (p.version != s_.version) {
      return {reason::stale_plan};
    }
    bool const demand = p.for_intent == intent::demand;
    if (policy_->selector && (!p.loads.empty() || !p.trims.empty())) {
      policy_->selector->offer(s_.selector, s_.capacity, [&](u32 at) { return candidate(at); }, p.offered);
    }
    for (u32 const at : p.trims) {
      evict(at, p, out);
    }
    for (auto const& l : p.loads) {
      if (s_.slots[l.slot].state == slot_state::resident) {
        evict(l.slot, p, out);
      }
    }
    for (auto const& l : p.loads) {
      slot& at = s_.slots[l.slot];
      u32 const generation = at.generation + 1;
      at = {};
      at.state = slot_state::reserved;
      at.row = p.row;
      at.expert = l.expert;
      at.generation = generation;
      if (!demand) {
        at.unused = at.from_hint = true;
        at.target = p.target;
      }
      s_.experts[p.row][l.expert].slot = l.slot;
      s_.in_flight.push_back(l.slot);
      ++out.issued[static_cast<u32>(p.for_intent)];
    }
    if (!demand) {
      for (u32 r = 0; r < n_drop_reasons; ++r) {
        out.hints_dropped[r] += p.dropped[r];
      }
      out.hints_offered += p.hints_offered;
      out.guard_asked += static_cast<u32>(p.asked.size());
      for (auto const& c : p.asked) {
        out.guard_refused += c.permitted ? 0 : 1;
      }
      s_.version += p.loads.empty() ? 0 : 1;  // hints that were all dropped change nothing
      return done;
    }
    table_state::row& row = s_.rows[p.row];
    u32 const tick_before = s_.tick;
    u32 const model_tick_before = s_.model_tick;
    clocks const before{s_.tick, row.tick, p.model_tick, row.step};
    u32 position = 0;
    for (auto const& entry : p.entries) {
      ++position;
      clocks const now{before.tick + position, before.layer_tick + position, before.model_tick + position,
                       before.step + 1};
      expert& e = s_.experts[p.row][entry.expert];
      e.accessed = true;
      e.last = now.tick;
      ++out[entry.how];
      out.pinned_hits += entry.how == access_kind::hit && e.pinned ? 1 : 0;
      bool install = entry.how == access_kind::load;
      if (entry.how != access_kind::declined) {
        slot& at = s_.slots[entry.slot];
        if (at.unused) {
          install = true;
          at.unused = false;
          at.target = 0;
          out.late_of_hint += entry.how == access_kind::late ? 1 : 0;
        }
        if (policy_->selector) {
          policy_->selector->touched(s_.selector, s_.capacity, entry.slot, key_of(entry.slot));
        }
      }
      if (install) {
        policy_->on_install(e.score, now);
      }
      policy_->on_demand(e.score, now);
    }
    row.step = before.step + 1;
    row.tick = before.layer_tick + position;
    s_.tick = before.tick + position;
    s_.model_tick = before.model_tick + position;
    if (policy_->contextual) {
      learn(p);
    }
    ++s_.version;
    ++out.steps;
    count_skipped(p, out);
    if (tick_before >> 30 != s_.tick >> 30 || model_tick_before >> 30 != s_.model_tick >> 30) {
      rebase();
    }
    return done;
  }

  void record_uncommitted(plan_record const& p, outcome& out) const {
    if (p.kind != plan_kind::overflow && p.kind != plan_kind::empty) {
      return;
    }
    for (auto const& entry : p.entries) {
      ++out[entry.how];
    }
    out.overflow_steps += p.kind == plan_kind::overflow ? 1 : 0;
    count_skipped(p, out);
  }

  void settle(std::span<u32 const> arrivals, outcome& out) {
    std::vector<u32> still;
    for (u32 const at : s_.in_flight) {
      slot& held = s_.slots[at];
      bool const ours = arrivals[at] >> 2 == (held.generation & 0x3FFF'FFFF);
      bool const arrived = ours && (arrivals[at] & 3) == static_cast<u32>(transfer::arrived);
      bool const failed = ours && (arrivals[at] & 3) == static_cast<u32>(transfer::failed);
      if (!arrived && !failed) {
        still.push_back(at);
        continue;
      }
      bool const hinted = held.from_hint;
      bool const wanted_by_none = held.unused;
      intent const by = hinted ? intent::speculative : intent::demand;
      if (arrived) {
        ++out.arrived[static_cast<u32>(by)];
      } else if (hinted && !wanted_by_none) {
        ++out.late_failed;
      } else {
        ++out.failed[static_cast<u32>(by)];
      }
      if (held.state == slot_state::draining) {
        out.evicted_unused += arrived && wanted_by_none ? 1 : 0;
        held.loading = held.from_hint = held.unused = false;
        end_draining(at, out);
      } else if (arrived) {
        held.state = slot_state::resident;
        held.from_hint = false;
      } else if (held.leases == 0) {
        forget(at);
        make_free(at);
      } else {
        forget(at);
        u32 const leases = held.leases;
        make_free(at);
        held.state = slot_state::draining;
        held.leases = leases;
        held.returns = true;
      }
    }
    if (still.size() != s_.in_flight.size()) {
      s_.in_flight = still;
      ++s_.version;
    }
  }

  /// The distinct slots that a plan leases.
  static std::vector<u32> leased_slots(plan_record const& p) {
    std::vector<u32> slots;
    for (auto const& entry : p.entries) {
      if (!contains(slots, entry.slot)) {
        slots.push_back(entry.slot);
      }
    }
    return slots;
  }

  void acquire(plan_record const& p) {
    for (u32 const at : leased_slots(p)) {
      ++(at < n_slots() ? s_.slots[at].leases : s_.scratch[at - n_slots()]);
    }
    s_.version += p.entries.empty() ? 0 : 1;
  }

  void release(std::span<u32 const> slots, outcome& out) {
    for (u32 const at : slots) {
      --(at < n_slots() ? s_.slots[at].leases : s_.scratch[at - n_slots()]);
      if (at < n_slots()) {
        end_draining(at, out);
      }
    }
    s_.version += slots.empty() ? 0 : 1;
  }

  status resize(u32 capacity, outcome& out) {
    if (capacity > n_slots()) {
      return {reason::limited};
    }
    if (capacity == s_.capacity) {
      return done;
    }
    u32 const before = s_.capacity;
    s_.capacity = capacity;
    ++s_.version;
    for (u32 at = 0; at < n_slots(); ++at) {
      slot& held = s_.slots[at];
      if (at >= capacity && at < before) {
        if (held.state == slot_state::free) {
          held.state = slot_state::retired;
          ++out.retired;
        } else if (held.state == slot_state::draining) {
          held.returns = false;
        } else {
          drain(at, false, out);
        }
      } else if (at >= before && at < capacity) {
        if (held.state == slot_state::retired) {
          held.state = slot_state::free;
        } else {
          held.returns = true;
        }
      }
    }
    return done;
  }

  void invalidate(u32 row, outcome& out) {
    bool const all = row >= s_.rows.size();
    for (u32 at = 0; at < n_slots(); ++at) {
      slot const& held = s_.slots[at];
      if ((held.state == slot_state::reserved || held.state == slot_state::resident) &&
          (all || held.row == row)) {
        drain(at, true, out);
      }
    }
    s_.storage_generation += all ? 1 : 0;
    ++s_.version;
  }

  status pin(u32 row, u32 x, u32 k) {
    if (row >= s_.rows.size() || x >= s_.rows[row].n_experts) {
      return {reason::out_of_range};
    }
    if (s_.experts[row][x].pinned) {
      return done;
    }
    u64 pins = 0;
    for (auto const& line : s_.experts) {
      pins += static_cast<u64>(std::count_if(line.begin(), line.end(), [](auto& e) { return e.pinned; }));
    }
    if (pins + 1 + k > s_.capacity) {
      return {reason::limited};
    }
    s_.experts[row][x].pinned = true;
    ++s_.version;
    return done;
  }

  status unpin(u32 row, u32 x) {
    if (row >= s_.rows.size() || x >= s_.rows[row].n_experts) {
      return {reason::out_of_range};
    }
    s_.version += s_.experts[row][x].pinned ? 1 : 0;
    s_.experts[row][x].pinned = false;
    return done;
  }

 private:
  using slot = table_state::slot;
  using expert = table_state::expert;

  static bool contains(std::vector<u32> const& list, u32 x) {
    return std::find(list.begin(), list.end(), x) != list.end();
  }
  u32 n_slots() const { return static_cast<u32>(s_.slots.size()); }
  static bool reached(u32 step, u32 target) { return step - target < 0x8000'0000u; }

  u32 count_state(slot_state wanted) const {
    u32 n = 0;
    for (slot const& held : s_.slots) {
      n += held.state == wanted ? 1 : 0;
    }
    return n;
  }

  clocks now(u32 row, u32 model_tick) const {
    return {s_.tick, s_.rows[row].tick, model_tick, s_.rows[row].step};
  }
  expert_facts facts(u32 row, u32 x) const {
    expert const& e = s_.experts[row][x];
    return {e.last, e.accessed, e.slot != no_slot.value};
  }
  u64 score(u32 row, u32 x, u32 model_tick) const {
    return policy_->value(s_.experts[row][x].score, facts(row, x), now(row, model_tick));
  }
  row_of_experts experts_of(u32 row, u32 model_tick) const {
    row_of_experts all{{}, {}, now(row, model_tick)};
    for (u32 x = 0; x < s_.rows[row].n_experts; ++x) {
      all.cells.push_back(s_.experts[row][x].score);
      all.facts.push_back(facts(row, x));
    }
    return all;
  }
  void learn(plan_record const& p) {
    std::vector<u32> demanded;
    for (auto const& entry : p.entries) {
      demanded.push_back(entry.expert);
    }
    std::vector<score_cell> cells = experts_of(p.row, p.model_tick).cells;
    contexts_[p.row]->learn(demanded, p.said, p.keys, cells);
    for (u32 x = 0; x < cells.size(); ++x) {
      s_.experts[p.row][x].score = cells[x];
    }
  }
  /// What victims are ordered by: the score, or a contextual score's key, this step's in its row and in others
  /// that of their last step. In one pool of all layers those that this token has passed are needed later.
  u64 rank(plan_record const& p, u32 at) const { return rank(p, s_.slots[at].row, s_.slots[at].expert); }
  u64 rank(plan_record const& p, u32 row, u32 x) const {
    if (!policy_->contextual) {
      return score(row, x, p.model_tick);
    }
    i64 key = policy_->key_of(s_.experts[row][x].score);
    if (row == p.row && !p.keys.empty()) {
      key = p.keys[x];
    }
    bool const passed = policy_->spans_layers && row <= p.row;
    key = policy_->ages && passed && key > 0 ? key * 27 / 32 : key;
    return static_cast<u64>(key + 0x8000'0000);  // in the same order
  }
  expert_key key_of(u32 at) const { return {layer_id{s_.slots[at].row}, expert_id{s_.slots[at].expert}}; }
  bool is_pinned(u32 at) const { return s_.experts[s_.slots[at].row][s_.slots[at].expert].pinned; }

  bool spare(u32 at) const {
    slot const& held = s_.slots[at];
    return held.state == slot_state::resident && held.unused && held.leases == 0 && !is_pinned(at);
  }
  bool has_passed(u32 at) const {
    return reached(s_.rows[s_.slots[at].row].step, s_.slots[at].target);
  }
  bool candidate(u32 at) const {
    slot const& held = s_.slots[at];
    return held.state == slot_state::resident && !held.unused && held.leases == 0 && !is_pinned(at);
  }

  /// Whether the donor keeps its floor when `at` goes, after those already chosen.
  bool leaves_floor(u32 row, u32 at, std::vector<u32> const& chosen, std::vector<u32> const& more) const {
    u32 const donor = s_.slots[at].row;
    if (!policy_->spans_layers || donor == row) {
      return true;
    }
    u32 held = 0;
    for (u32 i = 0; i < n_slots(); ++i) {
      slot const& other = s_.slots[i];
      bool const holds = other.state == slot_state::reserved || other.state == slot_state::resident;
      held += holds && other.row == donor && !contains(chosen, i) && !contains(more, i) ? 1 : 0;
    }
    return held > s_.floor;
  }

  /// Candidates in eviction order.
  std::vector<u32> eviction_order(plan_record const& p) const {
    std::vector<u32> order;
    if (policy_->selector) {
      selector_memory copy = s_.selector;
      return policy_->selector->offer(copy, s_.capacity, [&](u32 at) { return candidate(at); }, s_.slots.size());
    }
    struct ranked {
      u64 value;
      u32 age, at;
    };
    std::vector<ranked> all;
    for (u32 at = 0; at < s_.capacity; ++at) {
      if (candidate(at)) {
        slot const& held = s_.slots[at];
        all.push_back({rank(p, at), s_.tick - s_.experts[held.row][held.expert].last, at});
      }
    }
    std::sort(all.begin(), all.end(), [](ranked const& a, ranked const& b) {
      return a.value != b.value ? a.value < b.value : a.age != b.age ? a.age > b.age : a.at < b.at;
    });
    for (ranked const& r : all) {
      order.push_back(r.at);
    }
    return order;
  }

  /// The first resident in eviction order that may go and is in neither list.
  u32 next_resident(plan_record& p, u32 row, std::vector<u32> const& demanded, std::vector<u32> const& sources,
                    std::vector<u32> const& more) const {
    std::size_t offered = 0;
    for (u32 const at : eviction_order(p)) {
      p.offered = std::max(p.offered, ++offered);
      slot const& held = s_.slots[at];
      if (!(held.row == row && contains(demanded, held.expert)) && !contains(sources, at) &&
          !contains(more, at) && leaves_floor(row, at, sources, refused_are_held(demanded, more))) {
        return at;
      }
    }
    return no_slot.value;
  }

  /// For a demand `more` are trims, which leave; for hints they are refused candidates, which stay.
  static std::vector<u32> refused_are_held(std::vector<u32> const& demanded, std::vector<u32> const& more) {
    return demanded.empty() ? std::vector<u32>{} : more;
  }

  bool ask(plan_record& p, u32 row, u32 challenger, u32 at, u32 model_tick) const {
    slot const& held = s_.slots[at];
    expert const& victim = s_.experts[held.row][held.expert];
    duel const d{score(held.row, held.expert, model_tick), score(row, challenger, model_tick),
                 policy_->one_count,
                 policy_->heat(victim.score, facts(held.row, held.expert), now(held.row, model_tick)),
                 held.unused};
    bool const answer = policy_->permits(d);
    p.asked.push_back({d, answer});
    return answer;
  }

  /// The first question of an admission, rule by rule.
  bool admits(plan_record const& p, u32 x, u32 installs, u32 n_missing, u32 n_free, phase in_phase) const {
    expert const& e = s_.experts[p.row][x];
    u32 const age = s_.tick - e.last;
    u64 const bytes = s_.rows[p.row].expert_bytes;
    switch (policy_->admission) {
      case naive_admission::always:
      case naive_admission::frequency_gate:
      case naive_admission::colder_than_victim: return true;
      case naive_admission::second_touch:
        return installs < n_free || (e.accessed && age + u64{1} <= policy_->admission_number);
      case naive_admission::insert_budget:
        return installs == 0 || (installs + u64{1}) * bytes <= policy_->admission_number;
      case naive_admission::fetch_share: {
        // the fewest for which the slower side is as fast as it can be
        u64 const q = policy_->admission_number;
        u64 best = 0, least = u64_max;
        for (u64 f = 0; f <= n_missing; ++f) {
          u64 const takes = std::max(f * (65'536 - q), (n_missing - f) * q);
          best = takes < least ? f : best;
          least = std::min(takes, least);
        }
        return installs < std::max<u64>(best, n_free);
      }
      case naive_admission::other: break;
    }
    return policy_->admits({rank(p, p.row, x), bytes, age, installs, n_missing, n_free, e.accessed, in_phase});
  }

  /// The second: whether the resident of `at` stays although `x` wants its slot.
  bool is_refused(plan_record const& p, u32 x, u32 at, bool by_score) const {
    if (policy_->admission == naive_admission::frequency_gate) {
      auto const heat = [&](u32 row, u32 of) {
        return policy_->heat(s_.experts[row][of].score, facts(row, of), now(row, p.model_tick));
      };
      return heat(p.row, x) + u64{1} < heat(s_.slots[at].row, s_.slots[at].expert);
    }
    return by_score && rank(p, p.row, x) < rank(p, at);
  }

  no_victim_counts obstacles() const {
    no_victim_counts c{};
    for (u32 at = 0; at < s_.capacity; ++at) {
      slot const& held = s_.slots[at];
      if (held.state == slot_state::reserved) {
        ++c.loading;
      } else if (held.state == slot_state::resident) {
        ++(held.leases != 0 ? c.leased : is_pinned(at) ? c.pinned : c.guarded);
      }
    }
    return c;
  }

  static void count_skipped(plan_record const& p, outcome& out) {
    out.demanded += static_cast<u32>(p.entries.size());
    out.skipped_ids[static_cast<u32>(reason::sentinel)] += p.sentinels;
    out.skipped_ids[static_cast<u32>(reason::out_of_range)] += p.out_of_range;
    out.skipped_ids[static_cast<u32>(reason::duplicate)] += p.duplicates;
  }

  void forget(u32 at) {
    s_.experts[s_.slots[at].row][s_.slots[at].expert].slot = no_slot.value;
    if (policy_->selector) {
      policy_->selector->removed(s_.selector, at, key_of(at));
    }
  }
  void make_free(u32 at) {
    u32 const generation = s_.slots[at].generation;
    s_.slots[at] = {};
    s_.slots[at].generation = generation;
  }

  void evict(u32 at, plan_record const& p, outcome& out) {
    slot const held = s_.slots[at];
    if (p.for_intent == intent::demand) {
      policy_->on_evict(s_.experts[held.row][held.expert].score, now(held.row, p.model_tick));
    }
    out.evicted_unused += held.unused ? 1 : 0;
    ++out.evicted[static_cast<u32>(p.for_intent)];
    forget(at);
    make_free(at);
  }

  void drain(u32 at, bool returns, outcome& out) {
    slot& held = s_.slots[at];
    forget(at);
    bool const loading = held.state == slot_state::reserved;
    if (!loading) {
      ++out.dropped;
      out.evicted_unused += held.unused ? 1 : 0;
      held.unused = false;
    }
    held.state = slot_state::draining;
    held.row = held.expert = held.target = 0;
    held.loading = loading;
    held.returns = returns;
    end_draining(at, out);
  }

  void end_draining(u32 at, outcome& out) {
    slot& held = s_.slots[at];
    if (held.state != slot_state::draining || held.leases != 0 || held.loading) {
      return;
    }
    bool const returns = held.returns;
    make_free(at);
    if (!returns) {
      held.state = slot_state::retired;
      ++out.retired;
    }
  }

  void rebase() {
    for (u32 r = 0; r < s_.rows.size(); ++r) {
      clocks const at = now(r, s_.model_tick);
      for (expert& e : s_.experts[r]) {
        if (e.accessed) {
          if (s_.tick - e.last > 0x7FFF'FFFFu) {
            e.last = s_.tick - 0x7FFF'FFFFu;
          }
          policy_->rebase(e.score, at);
        }
      }
    }
  }

  std::shared_ptr<scalar_policy const> policy_;
  table_state s_;
  std::vector<std::unique_ptr<naive_context>> contexts_;  // by row, where the score is contextual
};

}  // namespace warmset::kit
