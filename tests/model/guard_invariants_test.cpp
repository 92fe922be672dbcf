// SPDX-License-Identifier: Apache-2.0
#include "guard_invariants.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include <kit/operations.hpp>

namespace warmset::model_test {
namespace {

using kit::plan_record;
using kit::table_state;
using bytes = std::vector<unsigned char>;

/// One table and what a trial keeps beside it.
class trial {
 public:
  trial(make_table const& make, kit::table_config const& config, guard_rule rule, u64 seed, guard_exercise& seen)
      : table_(make(config)), policy_(table_->shared_policy()), config_(config), rule_(rule),
        arrivals_(config.reserved, 0), random_(seed * 0x1'0000'0001ull + config.capacity), seen_(seen) {}

  std::string step() {
    u32 const at = random_.below(100);
    std::string wrong;
    if (at < 38) {
      wrong = demand();
    } else if (at < 44) {
      wrong = burst();
    } else if (at < 72) {
      wrong = hints();
    } else if (at < 86) {
      arrive(random_.one_in(2));
    } else if (at < 92) {
      release();
    } else if (at < 96) {
      wrong = storm();
    } else {
      pin();
    }
    return wrong.empty() ? boundary() : wrong;
  }

 private:
  struct hold {
    std::vector<u32> slots;
    std::vector<table_state::slot> then;  ///< of the slots that are no scratch
  };

  // ---- what is done ------------------------------------------------------------------------------------

  std::string demand() {
    u32 const row = random_.below(config_.n_rows);
    return demand(row, draw(row, 1 + random_.below(config_.k)));
  }

  /// An expert that is demanded time and again. It never arrives, and is hinted: a hot one that is absent. Or it
  /// does, and others are hinted.
  std::string burst() {
    u32 const row = random_.below(config_.n_rows);
    bool const absent = random_.one_in(2);
    std::vector<i64> const one = draw(row, 1);
    std::string wrong;
    for (u32 i = 0; i < 12 && wrong.empty(); ++i) {
      wrong = demand(row, one);
      arrive(true, absent ? transfer::failed : transfer::arrived);
    }
    return !wrong.empty() ? wrong : absent ? hints(row, one) : hints(row, draw(row, 3));
  }

  std::string demand(u32 row, std::vector<i64> const& ids) {
    settle();
    table_state const before = table_->state();
    bytes const block = copy();
    plan_record const p = table_->plan_demand(row, ids, kit::id_type::i32, phase::decode, model_tick_);
    if (copy() != block) {
      return "I7: a plan changed the block";
    }
    if (!p.asked.empty()) {
      return "I2: the guard was asked on the demand path";
    }
    std::vector<u32> victims;
    for (auto const& l : p.loads) {
      victims.push_back(l.slot);
    }
    victims.insert(victims.end(), p.trims.begin(), p.trims.end());
    if (std::string wrong = check_victims(before, victims, &p); !wrong.empty()) {
      return wrong;
    }
    outcome out{};
    if (p.kind != plan_kind::step) {
      status const refused = table_->commit(false, out);
      outcome const nothing{};
      if (refused || copy() != block || std::memcmp(&out, &nothing, sizeof out) != 0) {
        return "I7: a refused commit left a trace";
      }
      table_->record_uncommitted(out);
    } else {
      if (!table_->commit(false, out)) {
        return "a plan of this version was refused";
      }
      model_tick_ += static_cast<u32>(p.entries.size());
      if (std::string wrong = check_delivered(p); !wrong.empty()) {
        return wrong;
      }
    }
    bool const holdable = p.kind == plan_kind::step || p.kind == plan_kind::overflow;
    if (holdable && holds_.size() < 3 && random_.one_in(4)) {
      hold h{table_->leased_slots(), {}};
      table_->acquire();
      table_state const now = table_->state();
      for (u32 const s : h.slots) {
        if (s < config_.reserved) {
          h.then.push_back(now.slots[s]);
        }
      }
      holds_.push_back(h);
    }
    return "";
  }

  /// A batch of hints, and all that must hold of it.
  std::string hints() {
    u32 const row = random_.below(config_.n_rows);
    std::vector<i64> ids = draw(row, random_.below(5));
    if (random_.one_in(8)) {
      ids.push_back(random_.one_in(2) ? -1 : 40'000);
    }
    return hints(row, ids);
  }

  std::string hints(u32 row, std::vector<i64> const& ids) {
    settle();
    table_state const before = table_->state();
    u32 const target = before.rows[row].step + (random_.one_in(6) ? 0 : 1 + random_.below(2));
    u32 const max_loads = random_.one_in(6) ? random_.below(3) : 1000;
    bytes const block = copy();
    bytes const history = table_->history();
    plan_record const p = table_->plan_hints(row, ids, target, max_loads, model_tick_);
    if (copy() != block) {
      return "I7: a plan changed the block";
    }
    std::string wrong = check_consultations(before, row, p);
    // a demand tells a contextual score of itself, a hint does not: their choices may differ
    if (wrong.empty() && rule_ == guard_rule{kit::rule::none} && !policy_->contextual) {
      wrong = check_demand_choice(before, row, p);
      if (wrong.empty() && !(table_->plan_hints(row, ids, target, max_loads, model_tick_) == p)) {
        wrong = "the same question had two answers";
      }
    }
    if (!wrong.empty()) {
      return wrong;
    }
    outcome out{};
    if (random_.one_in(8)) {
      return copy() == block ? "" : "I7: a plan that was not committed left a trace";
    }
    if (!table_->commit(false, out)) {
      return "hints of this version were refused";
    }
    if (table_->history() != history) {
      return "I3: speculation changed scores, ticks or steps";
    }
    if (p.loads.empty()) {
      ++seen_.dropped;
      out.hints_offered = 0;
      out.guard_asked = 0;
      out.guard_refused = 0;
      for (u32& n : out.hints_dropped) {
        n = 0;
      }
      outcome const nothing{};
      if (copy() != block || std::memcmp(&out, &nothing, sizeof out) != 0) {
        return "I7: a dropped hint changed more than the counters of hints";
      }
    }
    return "";
  }

  /// Any sequence of hints for a few experts, and arrivals, without a demand: whom the rule protects from each of
  /// the few stays where it is.
  std::string storm() {
    settle();
    table_state const before = table_->state();
    u32 const row = random_.below(config_.n_rows);
    std::vector<i64> const few = draw(row, 1 + random_.below(6));
    bytes const history = table_->history();
    std::vector<u32> defended;
    for (u32 s = 0; s < before.slots.size(); ++s) {
      auto const& slot = before.slots[s];
      if (slot.state != slot_state::resident || slot.unused || slot.leases != 0 ||
          before.experts[slot.row][slot.expert].pinned) {
        continue;
      }
      if (std::none_of(few.begin(), few.end(),
                       [&](i64 x) { return rule_(between(before, s, row, static_cast<u32>(x))); })) {
        defended.push_back(s);
      }
    }
    seen_.defended += defended.size();
    for (u32 i = 0; i < 8; ++i) {
      std::vector<i64> ids;
      for (u32 n = random_.below(4); n != 0; --n) {
        ids.push_back(few[random_.below(few.size())]);
      }
      if (std::string wrong = hints(row, ids); !wrong.empty()) {
        return wrong;
      }
      arrive(true);
    }
    table_state const after = table_->state();
    for (u32 const s : defended) {
      if (!(after.slots[s] == before.slots[s])) {
        return "I1: the protected resident of slot " + std::to_string(s) + " did not survive hints";
      }
    }
    return table_->history() == history ? "" : "I3: a storm of hints changed scores, ticks or steps";
  }

  /// Some or all of the transfers end, as is said or one in four of them badly.
  void arrive(bool all, transfer as = transfer::none) {
    for (table_state const now = table_->state(); u32 const s : now.in_flight) {
      if (all || random_.one_in(2)) {
        transfer const end = random_.one_in(4) ? transfer::failed : transfer::arrived;
        arrivals_[s] = arrival::word(now.slots[s].generation, as == transfer::none ? end : as);
      }
    }
    settle();
  }

  void settle() {
    outcome ignored{};
    table_->settle(arrivals_.data(), ignored);
  }

  void release() {
    if (!holds_.empty()) {
      outcome ignored{};
      table_->release(holds_.front().slots, ignored);
      holds_.erase(holds_.begin());
    }
  }

  void pin() {
    u32 const row = random_.below(config_.n_rows);
    u32 const x = random_.below(config_.n_experts);
    (void)(random_.one_in(3) ? table_->pin(row, x, config_.k) : table_->unpin(row, x));
  }

  /// Ids that are skewed towards a few that change.
  std::vector<i64> draw(u32 row, u32 n) {
    drift_ += random_.one_in(12) ? 1 + random_.below(3) : 0;
    u32 const experts = config_.n_experts - (row % 2);
    std::vector<i64> ids;
    for (u32 i = 0; i < n; ++i) {
      u32 const range = 1 + random_.below(1 + random_.below(experts));
      ids.push_back((random_.below(range) + drift_) % experts);
    }
    return ids;
  }

  // ---- what must hold ----------------------------------------------------------------------------------

  /// I4. Free slots are no victims; no slot is given away twice.
  std::string check_victims(table_state const& before, std::vector<u32> victims, plan_record const* demanding) {
    for (u32 const s : victims) {
      auto const& slot = before.slots[s];
      if (slot.state == slot_state::free) {
        continue;
      }
      char const* what = nullptr;
      if (slot.leases != 0) {
        what = "leased";
      } else if (slot.state != slot_state::resident) {
        what = "loading or draining";
      } else if (before.experts[slot.row][slot.expert].pinned) {
        what = "pinned";
      }
      if (demanding != nullptr && slot.row == demanding->row) {
        for (auto const& e : demanding->entries) {
          what = e.expert == slot.expert ? "demanded" : what;
        }
      }
      if (what != nullptr) {
        return "I4: the victim in slot " + std::to_string(s) + " is " + what;
      }
      seen_.leased += holds_.empty() ? 0 : 1;
    }
    std::sort(victims.begin(), victims.end());
    return std::adjacent_find(victims.begin(), victims.end()) == victims.end() ? "" : "I4: a slot is given away twice";
  }

  /// I1, I2 and I4 of a batch of hints.
  std::string check_consultations(table_state const& before, u32 row, plan_record const& p) {
    std::vector<u32> slots;
    std::vector<kit::consultation> permitted;
    for (auto const& l : p.loads) {
      slots.push_back(l.slot);
    }
    if (std::string wrong = check_victims(before, slots, nullptr); !wrong.empty()) {
      return wrong;
    }
    u32 n_free = 0;
    u32 unused = 0;
    for (u32 s = 0; s < before.capacity; ++s) {
      n_free += before.slots[s].state == slot_state::free ? 1 : 0;
    }
    for (auto const& slot : before.slots) {
      bool const holds = slot.state == slot_state::reserved || slot.state == slot_state::resident;
      unused += holds && slot.unused ? 1 : 0;
    }
    u32 const roomy = std::min(n_free, saturating_sub(before.speculative_slots, unused));
    u32 into_free = 0;
    u32 evicting = 0;
    std::vector<duel> fought;
    for (auto const& l : p.loads) {
      if (before.slots[l.slot].state == slot_state::free) {
        ++into_free;
        if (evicting != 0) {
          return "I2: an eviction came before a free slot was taken";
        }
      } else {
        ++evicting;
        fought.push_back(between(before, l.slot, row, l.expert));
        if (!rule_(fought.back())) {
          return "I1: the resident of slot " + std::to_string(l.slot) + " is protected and was evicted";
        }
      }
    }
    seen_.evictions += evicting;
    seen_.free_slots += into_free;
    if (into_free > roomy || (!p.asked.empty() && into_free != roomy)) {
      return "I2: the guard was asked before the free slots were taken";
    }
    u32 refused = 0;
    for (auto const& c : p.asked) {
      if (c.permitted) {
        permitted.push_back(c);
      } else {
        ++refused;
        if (rule_(c.asked)) {
          return "the guard refused what its rule permits";
        }
      }
    }
    seen_.refusals += refused;
    u32 const dropped = p.dropped[static_cast<u32>(reason::guard)];
    if (permitted.size() != fought.size()) {
      return "I2: " + std::to_string(fought.size()) + " evictions, " + std::to_string(permitted.size()) +
             " permissions";
    }
    for (std::size_t i = 0; i < fought.size(); ++i) {
      if (!(permitted[i] == kit::consultation{fought[i], true})) {
        return "I2: the guard was asked of another victim than the one that went";
      }
    }
    bool const asks_once = !policy_->asks_again;
    if (asks_once ? refused != dropped : (refused < dropped || (refused != 0) < (dropped != 0))) {
      return "I2: " + std::to_string(refused) + " refusals, " + std::to_string(dropped) + " hints dropped by the guard";
    }
    u32 answered = static_cast<u32>(p.loads.size());
    for (u32 const n : p.dropped) {
      answered += n;
    }
    return answered == p.hints_offered ? "" : "hints offered are not loads and drops";
  }

  /// I5: without a guard the first hint gets the slot that a demand of it would get. Not so where the score looks
  /// at the demanded set itself, which a hint does not have.
  std::string check_demand_choice(table_state const& before, u32 row, plan_record const& p) {
    u32 unused = 0;
    u32 pinned = 0;
    for (auto const& slot : before.slots) {
      unused += slot.unused && !slot.loading ? 1 : 0;
    }
    for (auto const& line : before.experts) {
      for (auto const& x : line) {
        pinned += x.pinned ? 1 : 0;
      }
    }
    u32 const floors = (config_.n_rows - 1) * before.floor + pinned;
    if (table_->shared_policy()->contextual || p.loads.empty() || unused >= before.speculative_slots || before.capacity <= floors) {
      return "";
    }
    i64 const first[] = {p.loads[0].expert};
    plan_record const demanded = table_->plan_demand(row, first, kit::id_type::i32, phase::decode, model_tick_);
    bool const same = demanded.loads.size() == 1 && demanded.loads[0].slot == p.loads[0].slot;
    return same ? "" : "I5: without a guard speculation chose another slot than a demand";
  }

  /// I6: what was demanded is, or will be, in the slot that the plan names, and two share none in one wave.
  std::string check_delivered(plan_record const& p) {
    table_state const now = table_->state();
    std::vector<std::pair<u32, u32>> places;
    for (auto const& e : p.entries) {
      if (e.slot < config_.reserved) {
        auto const& slot = now.slots[e.slot];
        if (slot.row != p.row || slot.expert != e.expert || now.experts[p.row][e.expert].slot != e.slot) {
          return "I6: a demanded expert is not in the slot that the plan names";
        }
      }
      places.emplace_back(e.slot, e.slot < config_.reserved ? 0 : e.wave);
    }
    std::sort(places.begin(), places.end());
    bool const distinct = std::adjacent_find(places.begin(), places.end()) == places.end();
    return distinct ? "" : "I6: two demanded experts share a slot in one wave";
  }

  /// After each operation: the block is sound, and whatever is leased is where it was.
  std::string boundary() {
    if (audit_result const a = table_->audit(); !a) {
      return std::string("audit: ") + name_of(a.broken) + " at " + std::to_string(a.where);
    }
    table_state const now = table_->state();
    for (hold const& h : holds_) {
      std::size_t i = 0;
      for (u32 const s : h.slots) {
        if (s >= config_.reserved) {
          continue;
        }
        table_state::slot const& then = h.then[i++];
        auto const& slot = now.slots[s];
        // the transfer of a leased slot may still fail: then the slot drains
        bool const failed = then.state == slot_state::reserved && slot.state != slot_state::resident;
        if (!failed && (slot.row != then.row || slot.expert != then.expert || slot.generation != then.generation)) {
          return "I4: a leased slot was given away";
        }
      }
    }
    return "";
  }

  /// The question that the guard must be asked before `expert` evicts what is in `slot`.
  duel between(table_state const& now, u32 slot, u32 row, u32 expert) const {
    auto const& victim = now.slots[slot];
    auto const& mine = now.experts[victim.row][victim.expert];
    auto const& other = now.experts[row][expert];
    auto const clock = [&](u32 r) { return clocks{now.tick, now.rows[r].tick, model_tick_, now.rows[r].step}; };
    auto const facts = [](table_state::expert const& x) {
      return expert_facts{x.last, x.accessed, x.slot != no_slot.value};
    };
    return {policy_->value(mine.score, facts(mine), clock(victim.row)),
            policy_->value(other.score, facts(other), clock(row)), policy_->one_count,
            policy_->heat(mine.score, facts(mine), clock(victim.row)), victim.unused};
  }

  bytes copy() const {
    auto const all = table_->block();
    return {all.begin(), all.end()};
  }

  std::unique_ptr<kit::table_under_test> table_;
  std::shared_ptr<kit::scalar_policy> policy_;
  kit::table_config config_;
  guard_rule rule_;
  std::vector<u32> arrivals_;
  kit::integers random_;
  guard_exercise& seen_;
  std::vector<hold> holds_;
  u32 model_tick_ = 0;
  u32 drift_ = 0;
};

}  // namespace

std::string check_guard_invariants(make_table const& make, kit::table_config const& config, guard_rule rule,
                                   u32 operations, u64 seed, guard_exercise& seen) {
  trial t(make, config, rule, seed, seen);
  for (u32 i = 0; i < operations; ++i) {
    if (std::string const wrong = t.step(); !wrong.empty()) {
      return wrong + " (operation " + std::to_string(i) + " of seed " + std::to_string(seed) + ")";
    }
  }
  return "";
}

std::string check_width_0(make_table const& hinted, make_table const& plain, kit::table_config const& config,
                          bool reserve, u32 operations, u64 seed) {
  u32 const kept = reserve ? config.numbers.speculative_slots : 0;
  kit::table_config without = config;
  without.capacity = config.capacity - kept;
  without.numbers.speculative_slots = 0;
  auto const a = hinted(config);
  auto const b = plain(without);
  kit::integers random(seed);
  std::vector<u32> arrivals(config.reserved, 0);
  std::vector<std::vector<u32>> holds;
  u32 model_tick = 0;
  for (u32 i = 0; i < operations; ++i) {
    outcome x{};
    outcome y{};
    std::vector<i64> ids;
    for (u32 n = 1 + random.below(std::min(config.k, without.capacity)); n != 0; --n) {
      ids.push_back(random.below(1 + random.below(config.n_experts)));
    }
    u32 const step = a->state().rows[0].step;
    for (auto const& [some, permit] : {std::pair{std::vector<i64>{}, 1000u}, std::pair{ids, 0u}}) {
      if (random.one_in(2)) {
        (void)a->plan_hints(0, some, step + 1, permit, model_tick);
        outcome ignored{};
        if (!a->commit(false, ignored)) {
          return "hints were refused";
        }
      }
    }
    plan_record const p = a->plan_demand(0, ids, kit::id_type::i32, phase::decode, model_tick);
    plan_record const q = b->plan_demand(0, ids, kit::id_type::i32, phase::decode, model_tick);
    if (!(p == q)) {
      return difference(q, p);
    }
    if (!(a->commit(false, x) == b->commit(false, y)) || std::memcmp(&x, &y, sizeof x) != 0) {
      return "the commits differ";
    }
    model_tick += p.kind == plan_kind::step ? static_cast<u32>(p.entries.size()) : 0;
    // a reserve may be lent out while slots are leased or loading, and decisions then differ
    if (!reserve && p.kind == plan_kind::step && holds.size() < 2 && random.one_in(5)) {
      holds.push_back(a->leased_slots());
      a->acquire();
      b->acquire();
    } else if (!holds.empty() && random.one_in(3)) {
      a->release(holds.back(), x);
      b->release(holds.back(), y);
      holds.pop_back();
    }
    if (reserve || random.one_in(2)) {
      table_state const now = a->state();
      for (u32 const s : now.in_flight) {
        arrivals[s] = arrival::word(now.slots[s].generation, random.one_in(8) ? transfer::failed : transfer::arrived);
      }
      a->settle(arrivals.data(), x);
      b->settle(arrivals.data(), y);
    }
    if (a->history() != b->history()) {
      return "the histories differ";
    }
  }
  return a->audit() && b->audit() ? "" : "audit";
}

bool gives_way_in_the_end(make_table const& make, u32 capacity) {
  kit::table_config config{1, capacity + 8, 4, capacity, capacity, tuning{.speculative_slots = 1}, 0};
  auto const t = make(config);
  std::vector<u32> arrivals(capacity, 0);
  u32 model_tick = 0;
  auto const arrive = [&] {
    table_state const now = t->state();
    for (u32 const s : now.in_flight) {
      arrivals[s] = arrival::word(now.slots[s].generation, transfer::arrived);
    }
    outcome ignored{};
    t->settle(arrivals.data(), ignored);
  };
  auto const demand = [&](std::vector<i64> const& ids) {
    plan_record const p = t->plan_demand(0, ids, kit::id_type::i32, phase::decode, model_tick);
    outcome ignored{};
    if (!t->commit(false, ignored)) {
      throw std::logic_error("the step was refused");
    }
    model_tick += static_cast<u32>(p.entries.size());
    arrive();
  };
  auto const hint = [&](i64 expert) {
    i64 const ids[] = {expert};
    bool const loads = !t->plan_hints(0, ids, t->state().rows[0].step + 1, 1000, model_tick).loads.empty();
    outcome ignored{};
    (void)t->commit(false, ignored);
    return loads;
  };
  std::vector<i64> residents;
  for (u32 x = 0; x < capacity; ++x) {
    residents.push_back(x);
  }
  i64 const challenger = capacity;
  i64 const other = capacity + 1;
  for (u32 i = 0; i < 40; ++i) {
    demand(residents);
  }
  if (hint(challenger)) {
    throw std::logic_error("a resident that was demanded 40 times gave way to an unseen expert");
  }
  // leased residents cannot go: what is demanded meanwhile is served from scratch, counts, and moves the clocks
  (void)t->plan_demand(0, residents, kit::id_type::i32, phase::decode, model_tick);
  outcome ignored{};
  (void)t->commit(false, ignored);
  model_tick += capacity;
  std::vector<u32> const leased = t->leased_slots();
  t->acquire();
  for (u32 i = 0; i < 400; ++i) {
    demand({other});
  }
  for (u32 i = 0; i < 10; ++i) {
    demand({challenger});
  }
  t->release(leased, ignored);
  return hint(challenger);
}

}  // namespace warmset::model_test

using namespace warmset;

namespace {

/// Whether the properties see that `Mutant` breaks the rule, and how.
template <class Mutant>
std::string killed_by(model_test::guard_rule rule) {
  using guard = kit::switched<Mutant::keeps_reserve, true>;
  guard::template choose<Mutant>();
  std::string wrong;
  auto const try_on = [&]<class Bundle>() {
    auto const make = model_test::table_maker<bundles::guarded<Bundle, guard>>();
    model_test::guard_exercise seen;
    for (u32 capacity = 2; wrong.empty() && capacity <= 8; ++capacity) {
      for (u64 seed = 1; wrong.empty() && seed <= 6; ++seed) {
        wrong = model_test::check_guard_invariants(
            make, model_test::sized(capacity, false, Mutant::keeps_reserve), rule, 200, seed, seen);
      }
    }
  };
  try_on.template operator()<bundles::of<score::lfu>>();
  try_on.template operator()<bundles::of<score::decayed_count>>();
  return wrong;
}

template <class... Mutants>
void require_killed(model_test::guard_rule rule, u32& killed) {
  auto const one = [&]<class Mutant>(Mutant const&) {
    std::string const how = killed_by<Mutant>(rule);
    INFO(Mutant::name);
    CHECK_FALSE(how.empty());
    killed += how.empty() ? 0 : 1;
  };
  (one(Mutants{}), ...);
}

}  // namespace

// Two mutants of the kit are beyond play, and mutant_guards_test alone kills them: no run reaches scores of more than
// 32 bits, and no resident of less than two counts beats a margin of four, so that the heat gate of
// victim_must_be_hotter never speaks.
TEST_CASE("guard invariants: mutants of every guard are killed", "[model][guard]") {
  using namespace kit::mutant;
  u32 killed = 0;
  require_killed<inverted, equality_wins, no_margin, no_quarter, no_counts, four_units, swapped, margin_on_challenger,
                 off_by_one>(kit::rule::challenger_must_win, killed);
  require_killed<no_gate, gate_at_one, gate_at_three, gate_inverted, equality_loses, gate_and>(
      kit::rule::warm_then_challenger_must_win, killed);
  require_killed<as_the_code_did, hotter_equality, hotter_no_margin>(kit::rule::victim_must_be_hotter, killed);
  require_killed<spare_ignored, spare_inverted, always_yes, always_no, cold_is_spare>(kit::rule::spare_only, killed);
  using victim_hotter = guard::victim_must_be_hotter;
  using challenger = guard::challenger_must_win;
  require_killed<any_of<victim_hotter, challenger>, first_of<victim_hotter, challenger>>(
      [](duel const& d) { return kit::rule::victim_must_be_hotter(d) && kit::rule::challenger_must_win(d); }, killed);
  CHECK(killed == 25);
}

TEST_CASE("guard invariants: the shipped guards pass what kills their mutants", "[model][guard]") {
  CHECK(killed_by<guard::challenger_must_win>(kit::rule::challenger_must_win).empty());
  CHECK(killed_by<guard::warm_then_challenger_must_win>(kit::rule::warm_then_challenger_must_win).empty());
  CHECK(killed_by<guard::victim_must_be_hotter>(kit::rule::victim_must_be_hotter).empty());
  CHECK(killed_by<guard::spare_only>(kit::rule::spare_only).empty());
}

TEST_CASE("guard invariants: a guard that keeps a reserve needs a slot beside it", "[model][guard]") {
  using reserving = bundles::guarded<bundles::of<score::lru>, kit::switched<true, false>>;
  kit::table_config const one{1, 9, 1, 1, 1, tuning{.speculative_slots = 1}, 0};
  CHECK_THROWS_AS(model_test::table_maker<reserving>()(one), config_error);
}
