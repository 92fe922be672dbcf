// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <warmset/core/arrival.hpp>
#include <warmset/table/bundle.hpp>
#include <warmset/policy/guard/none.hpp>
#include <warmset/policy/select/first_permitted.hpp>
#include <warmset/policy/select/lru_list.hpp>

#include "state.hpp"

namespace warmset::kit {

/// Whether the model knows the eviction order of a selector by a rule of its own.
template <class Selector>
inline constexpr bool has_naive_order = std::same_as<Selector, select::coldest> ||
                                        std::same_as<Selector, select::first_permitted> ||
                                        std::same_as<Selector, select::lru_list>;

/// The scalar functions of one bundle behind a plain interface: all that the model takes from it.
class scalar_policy {
 public:
  bool speculates = false, keeps_reserve = false, asks_again = false, spans_layers = false,
       keeps_list = false, may_decline = false, counts = false, guard_is_none = false;
  u64 one_count = 0;
  u32 max_experts = 0;

  virtual ~scalar_policy() = default;
  virtual u64 value(score_cell const&, expert_facts, clocks) const = 0;
  virtual u32 heat(score_cell const&, expert_facts, clocks) const = 0;
  virtual void on_demand(score_cell&, clocks) const = 0;
  virtual void on_install(score_cell&, clocks) const = 0;
  virtual void on_evict(score_cell&, clocks) const = 0;
  virtual void rebase(score_cell&, clocks) const = 0;
  virtual bool permits(duel const&) const = 0;
  virtual bool admits(admission_question const&) const = 0;
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
        admission_(warmset::detail::make_part<typename Policy::admission>(numbers)) {
    speculates = Policy::predictor::speculates;
    keeps_reserve = speculates && guard_type::keeps_reserve;
    asks_again = Policy::selector::asks_again;
    spans_layers = Policy::pool::spans_layers;
    keeps_list = std::same_as<typename Policy::selector, select::lru_list>;
    may_decline = Policy::admission::may_decline;
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
};

/// An independent reference of the table's rules: vectors, loops and one decision at a time. It takes only
/// the scalar functions of score, guard and admission from the library, and has its own eviction orders.
///
/// It predicts every plan (hits, late, loads with slots, victims, declines, drops by reason, consultations
/// of the guard) and the state and the counters after every operation.
class naive_model {
 public:
  naive_model(std::shared_ptr<scalar_policy const> policy, table_state initial)
      : policy_(std::move(policy)), s_(std::move(initial)) {}

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

  plan_record plan_demand(u32 row, std::span<i64 const> ids, phase in_phase, u32 model_tick) const {
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
    u32 promoted = 0;
    bool any_miss = false;
    std::vector<u32> admitted;  // positions
    u32 const n_free = count_state(slot_state::free);
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
        admission_question const question{score(row, x, model_tick),
                                          age_of(s_.tick, e.last),
                                          static_cast<u32>(admitted.size()),
                                          n_free,
                                          e.accessed,
                                          in_phase};
        if (!policy_->may_decline || policy_->admits(question)) {
          admitted.push_back(static_cast<u32>(p.entries.size()));
        }
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
        found = next_resident(row, experts, sources, {}, model_tick);
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
        u32 const at = next_resident(row, experts, sources, p.trims, model_tick);
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
            u32 const at = next_resident(row, {}, sources, passed, model_tick);
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
      for (u32 r = 0; r < n_reasons; ++r) {
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
      bool install = entry.how == access_kind::load;
      if (entry.how != access_kind::declined) {
        slot& at = s_.slots[entry.slot];
        if (at.unused) {
          install = true;
          at.unused = false;
          at.target = 0;
          out.late_of_hint += entry.how == access_kind::late ? 1 : 0;
        }
        if (policy_->keeps_list) {
          std::erase(s_.oldest_first, entry.slot);
          s_.oldest_first.push_back(entry.slot);
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
  std::vector<u32> eviction_order(u32 model_tick) const {
    std::vector<u32> order;
    if (policy_->keeps_list) {
      for (u32 const at : s_.oldest_first) {
        if (candidate(at)) {
          order.push_back(at);
        }
      }
      return order;
    }
    struct ranked {
      u64 value;
      u32 age, at;
    };
    std::vector<ranked> all;
    for (u32 at = 0; at < s_.capacity; ++at) {
      if (candidate(at)) {
        slot const& held = s_.slots[at];
        all.push_back({score(held.row, held.expert, model_tick),
                       s_.tick - s_.experts[held.row][held.expert].last, at});
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
  u32 next_resident(u32 row, std::vector<u32> const& demanded, std::vector<u32> const& sources,
                    std::vector<u32> const& more, u32 model_tick) const {
    for (u32 const at : eviction_order(model_tick)) {
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
    std::erase(s_.oldest_first, at);
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
};

}  // namespace warmset::kit
