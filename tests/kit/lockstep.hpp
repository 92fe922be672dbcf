// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "operations.hpp"

namespace warmset::kit {

/// What a run has exercised, so that a test can refuse to be vacuous.
struct exercise {
  u64 operations = 0, demands = 0, hints = 0, overflows = 0, busy = 0, trims = 0, evictions = 0,
      first_uses = 0, late = 0, declined = 0, consultations = 0, refusals = 0, stale = 0, failures = 0,
      drained = 0, rebases = 0;

  exercise& operator+=(exercise const& o) noexcept {
    operations += o.operations, demands += o.demands, hints += o.hints, overflows += o.overflows;
    busy += o.busy, trims += o.trims, evictions += o.evictions, first_uses += o.first_uses, late += o.late;
    declined += o.declined, consultations += o.consultations, refusals += o.refusals, stale += o.stale;
    failures += o.failures, drained += o.drained, rebases += o.rebases;
    return *this;
  }
};

/// A table and its model side by side. Every operation is done to both; plans, counters and blocks are
/// compared, the numbered invariants are asserted by name, and the block is audited.
class lockstep {
 public:
  using make_table = std::function<std::unique_ptr<table_under_test>()>;

  lockstep(make_table const& make, table_config const& config)
      : table_(make()), model_(table_->shared_policy(), table_->state()), config_(config),
        arrivals_(config.reserved, 0), model_tick_(config.first_tick) {}

  exercise const& seen() const noexcept { return seen_; }
  naive_model const& model() const noexcept { return model_; }
  table_under_test& table() noexcept { return *table_; }

  /// Empty when table and model agree and every invariant holds; else what is wrong.
  std::string apply(operation const& o) {
    ++seen_.operations;
    std::string wrong = act(o);
    if (wrong.empty()) {
      wrong = boundary();
    }
    return wrong;
  }

 private:
  using kind = operation::kind;
  using fate = operation::fate;

  struct hold {
    std::vector<u32> slots;
  };

  std::string act(operation const& o) {
    switch (o.what) {
      case kind::demand: return demand(o);
      case kind::hints: return hints(o);
      case kind::arrive: return arrive(o);
      case kind::commit_kept: return commit_kept();
      case kind::release: return release(o);
      case kind::resize: {
        outcome real{};
        outcome expected{};
        remember();
        bool const ok = table_->resize(o.a, real) == model_.resize(o.a, expected);
        if (o.a > config_.reserved && !identical()) {
          return "I7: a refused resize changed the block";
        }
        seen_.drained += expected.dropped;
        return same(ok, "resize", real, expected);
      }
      case kind::invalidate: {
        outcome real{};
        outcome expected{};
        table_->invalidate(o.a, real);
        model_.invalidate(o.a, expected);
        seen_.drained += expected.dropped;
        return same(true, "invalidate", real, expected);
      }
      case kind::pin: {
        remember();
        status const real = table_->pin(o.a, o.b, config_.k);
        if (!real && !identical()) {
          return "I7: a refused pin changed the block";
        }
        return real == model_.pin(o.a, o.b, config_.k) ? "" : "pin: answers differ";
      }
      case kind::unpin:
        return table_->unpin(o.a, o.b) == model_.unpin(o.a, o.b) ? "" : "unpin: answers differ";
      case kind::pass: model_tick_ += o.a; return "";
    }
    return "no such operation";
  }

  std::string settle() {
    outcome real{};
    outcome expected{};
    table_->settle(arrivals_.data(), real);
    model_.settle(arrivals_, expected);
    seen_.failures += expected.failed[0] + expected.failed[1] + expected.late_failed;
    return same(true, "settle", real, expected);
  }

  std::string demand(operation const& o) {
    if (o.a >= config_.n_rows) {
      return "";
    }
    if (std::string wrong = settle(); !wrong.empty()) {
      return wrong;
    }
    ++seen_.demands;
    remember();
    phase const in_phase = o.b == 0 ? phase::prefill : phase::decode;
    step_said const said = said_of(o);
    plan_record const real = table_->plan_demand(o.a, o.ids, o.type, in_phase, model_tick_, said);
    if (!identical()) {
      return "plan_demand wrote to the block";
    }
    if (!real.asked.empty()) {
      return "I2: the guard was asked on the demand path";
    }
    plan_record const expected = model_.plan_demand(o.a, o.ids, in_phase, model_tick_, said);
    if (!(real == expected)) {
      return difference(expected, real);
    }
    // I4: neither demanded nor leased slots are victims
    table_state const& before = model_.state();
    auto const check_victim = [&](u32 at) {
      auto const& s = before.slots[at];
      bool demanded = false;
      for (auto const& e : real.entries) {
        demanded = demanded || (s.state != slot_state::free && s.row == o.a && s.expert == e.expert);
      }
      return s.leases == 0 && !demanded &&
             (s.state == slot_state::free ||
              (s.state == slot_state::resident && !before.experts[s.row][s.expert].pinned));
    };
    for (auto const& l : real.loads) {
      if (!check_victim(l.slot)) {
        return "I4: slot " + std::to_string(l.slot) + " may not be a victim";
      }
    }
    for (u32 const t : real.trims) {
      if (!check_victim(t) || before.slots[t].state == slot_state::free) {
        return "I4: slot " + std::to_string(t) + " may not be trimmed";
      }
    }
    seen_.trims += real.trims.size();
    return carry_out(o, expected);
  }

  std::string hints(operation const& o) {
    if (o.a >= config_.n_rows || !model_.policy().speculates) {
      return "";
    }
    if (std::string wrong = settle(); !wrong.empty()) {
      return wrong;
    }
    ++seen_.hints;
    remember();
    auto const history = table_->history();
    u32 const target = model_.state().rows[o.a].step + o.b - 1;
    plan_record const real = table_->plan_hints(o.a, o.ids, target, o.c, model_tick_);
    if (!identical()) {
      return "plan_speculative wrote to the block";
    }
    plan_record const expected = model_.plan_hints(o.a, o.ids, target, o.c, model_tick_);
    if (!(real == expected)) {
      return difference(expected, real);
    }
    u32 evictions = 0;
    u32 permitted = 0;
    for (auto const& l : real.loads) {
      evictions += model_.state().slots[l.slot].state == slot_state::resident ? 1 : 0;
    }
    for (auto const& c : real.asked) {
      permitted += c.permitted ? 1 : 0;
    }
    seen_.consultations += real.asked.size();
    seen_.refusals += real.asked.size() - permitted;
    if (evictions != permitted) {
      return "I1: " + std::to_string(evictions) + " evictions by speculation, " +
             std::to_string(permitted) + " permitted";
    }
    if (std::string wrong = guard_none_equals_demand(o.a, real); !wrong.empty()) {
      return wrong;
    }
    std::string wrong = carry_out(o, expected);
    if (wrong.empty() && table_->history() != history) {
      wrong = "I3: speculation changed scores, ticks or steps";
    }
    return wrong;
  }

  /// What is said of the step, for contextual scores: as good as random, and decided by the operation alone, so
  /// that shrinking keeps it.
  step_said said_of(operation const& o) const {
    scalar_policy const& policy = model_.policy();
    if (!policy.contextual) {
      return {};
    }
    u64 seed = o.a * 7u + o.b * 3u + static_cast<u32>(o.then) + o.ids.size() * 1000;
    for (i64 const id : o.ids) {
      seed = seed * 31 + static_cast<u64>(id);
    }
    integers random(seed);
    u32 const n_experts = model_.state().rows[o.a].n_experts;
    step_said said;
    said.sequence = random.below(5);
    said.token = random.one_in(4) ? step_context::no_token : random.below(100);
    for (u32 i = random.below(6); policy.uses_previous_layer && i != 0; --i) {
      u32 const x = random.below(n_experts + 3);  // the layer before may have more
      if (std::find(said.previous.begin(), said.previous.end(), x) == said.previous.end()) {
        said.previous.push_back(x);
      }
    }
    if (policy.uses_supplied && !random.one_in(4)) {
      i32 const range = random.one_in(5) ? 0x7FFF'FFFF : random.one_in(2) ? 3000 : 4;  // large, fair, many ties
      for (u32 x = 0; x < n_experts; ++x) {
        said.supplied.push_back(static_cast<i32>(i64{random.below(2 * u64{static_cast<u32>(range)} + 1)} - range));
      }
    }
    return said;
  }

  /// I5: with guard `none` and room in the budget, the first hint takes the slot that a demand would take. Not so
  /// where the score looks at the demanded set itself, which a hint does not have.
  std::string guard_none_equals_demand(u32 row, plan_record const& hinted) {
    if (!model_.policy().guard_is_none || model_.policy().contextual || model_.policy().may_decline ||
        hinted.loads.empty() || model_.usable() == 0) {
      return "";
    }
    u32 unused = 0;
    for (auto const& s : model_.state().slots) {
      unused += s.unused && !s.loading ? 1 : 0;
    }
    if (unused >= model_.state().speculative_slots) {
      return "";
    }
    i64 const first[] = {hinted.loads[0].expert};
    plan_record const demanded = table_->plan_demand(row, first, id_type::i32, phase::decode, model_tick_);
    if (demanded.loads.size() != 1 || demanded.loads[0].slot != hinted.loads[0].slot) {
      return "I5: without a guard speculation chose another slot than a demand";
    }
    replan_ = true;
    return "";
  }

  std::string carry_out(operation const& o, plan_record const& p) {
    bool const is_demand = p.for_intent == intent::demand;
    if (replan_) {  // the check of I5 planned a demand meanwhile
      replan_ = false;
      plan_record const again =
          table_->plan_hints(p.row, o.ids, p.target, o.c, p.model_tick);
      if (!(again == p)) {
        return "plan_speculative is not pure: the same question had two answers";
      }
    }
    if (o.then == fate::keep) {
      table_->keep_plan();
      kept_ = p;
      have_kept_ = true;
    }
    bool const committable = p.kind == plan_kind::step || p.kind == plan_kind::hints;
    if (o.then == fate::drop || o.then == fate::keep) {
      return "";  // a dropped plan leaves no trace
    }
    outcome real{};
    outcome expected{};
    remember();
    status const answer = table_->commit(false, real);
    if (!(answer == model_.commit(p, expected))) {
      return std::string("commit: table ") + name_of(answer.why);
    }
    if (!answer) {
      if (!identical() || std::memcmp(&real, &empty_, sizeof real) != 0) {
        return "I7: a refused commit changed the block or the counters";
      }
      table_->record_uncommitted(real);
      model_.record_uncommitted(p, expected);
      seen_.overflows += p.kind == plan_kind::overflow ? 1 : 0;
      seen_.busy += p.kind == plan_kind::busy ? 1 : 0;
      if (committable) {
        ++seen_.stale;
      }
    } else {
      seen_.evictions += expected.evicted[0] + expected.evicted[1];
      seen_.first_uses += expected[access_kind::first_use];
      seen_.late += expected[access_kind::late];
      seen_.declined += expected[access_kind::declined];
      if (is_demand) {
        model_tick_ += static_cast<u32>(p.entries.size());
      }
    }
    if (std::string wrong = same(true, "commit", real, expected); !wrong.empty()) {
      return wrong;
    }
    if (std::string wrong = per_operation_laws(p, real); !wrong.empty()) {
      return wrong;
    }
    if (o.then == fate::twice && answer) {
      outcome again_real{};
      outcome again{};
      remember();
      status const second = table_->commit(false, again_real);
      if (!(second == model_.commit(p, again))) {
        return std::string("second commit: table ") + name_of(second.why);
      }
      if (!second && !identical()) {
        return "I7: a stale plan changed the block";
      }
      seen_.stale += second ? 0 : 1;
      if (std::string wrong = same(true, "second commit", again_real, again); !wrong.empty()) {
        return wrong;
      }
    }
    if (std::string wrong = delivered(p); !wrong.empty()) {
      return wrong;
    }
    if (o.hold && is_demand && p.kind != plan_kind::busy && holds_.size() < 8) {
      std::vector<u32> const slots = table_->leased_slots();
      if (slots != naive_model::leased_slots(p)) {
        return "leased_slots names other slots than the model";
      }
      table_->acquire();
      model_.acquire(p);
      holds_.push_back({slots});
    }
    return "";
  }

  std::string commit_kept() {
    if (!have_kept_) {
      return "";
    }
    outcome real{};
    outcome expected{};
    remember();
    auto const history = table_->history();
    status const answer = table_->commit(true, real);
    status const wanted = model_.commit(kept_, expected);
    if (!(answer == wanted)) {
      return std::string("late commit: model ") + name_of(wanted.why) + ", table " + name_of(answer.why);
    }
    if (!answer && !identical()) {
      return "I7: a stale plan changed the block";
    }
    if (kept_.for_intent == intent::speculative && table_->history() != history) {
      return "I3: speculation changed scores, ticks or steps";
    }
    seen_.stale += answer ? 0 : 1;
    if (answer && kept_.for_intent == intent::demand) {
      model_tick_ = kept_.model_tick + static_cast<u32>(kept_.entries.size());
    }
    return same(true, "late commit", real, expected);
  }

  std::string arrive(operation const& o) {
    std::vector<u32> const& loading = model_.state().in_flight;
    if (!loading.empty()) {
      u32 const at = loading[o.a % loading.size()];
      u32 const generation = model_.state().slots[at].generation;
      // a stale word belongs to an earlier transfer of the slot and must be ignored
      arrivals_[at] = o.b == 0   ? arrival::word(generation, transfer::arrived)
                      : o.b == 1 ? arrival::word(generation, transfer::failed)
                      : o.a % 2 == 0 ? arrival::word(generation - 1, transfer::arrived)
                                     : arrival::word(generation, transfer::loading);
    }
    return settle();
  }

  std::string release(operation const& o) {
    if (holds_.empty()) {
      return "";
    }
    auto const at = holds_.begin() + static_cast<std::ptrdiff_t>(o.a % holds_.size());
    outcome real{};
    outcome expected{};
    table_->release(at->slots, real);
    model_.release(at->slots, expected);
    holds_.erase(at);
    return same(true, "release", real, expected);
  }

  /// I6: whatever was hinted, each demanded expert is read from the slot that holds it, and no two experts
  /// of one wave share a slot.
  std::string delivered(plan_record const& p) {
    if (p.for_intent != intent::demand || p.kind == plan_kind::busy) {
      return "";
    }
    std::vector<std::pair<u32, u32>> places;
    for (auto const& e : p.entries) {
      if (e.slot < config_.reserved) {
        auto const& s = model_.state().slots[e.slot];
        if ((s.state != slot_state::resident && s.state != slot_state::reserved) || s.row != p.row ||
            s.expert != e.expert) {
          return "I6: a demanded expert is not in the slot that the plan names";
        }
      }
      places.emplace_back(e.slot, e.slot < config_.reserved ? 0 : e.wave);
    }
    std::sort(places.begin(), places.end());
    if (std::adjacent_find(places.begin(), places.end()) != places.end()) {
      return "I6: two demanded experts share a slot in one wave";
    }
    return "";
  }

  std::string per_operation_laws(plan_record const& p, outcome const& out) {
    u32 accesses = 0;
    for (u32 const n : out.accesses) {
      accesses += n;
    }
    u32 skipped = 0;
    for (u32 const n : out.hints_dropped) {
      skipped += n;
    }
    if (p.for_intent == intent::demand) {
      if (accesses != out.demanded || (p.kind != plan_kind::busy && accesses != p.entries.size())) {
        return "law: demand accesses = hits + late + installed + declined + overflow";
      }
      if (out[access_kind::load] != out.issued[0] || out.issued[1] != 0) {
        return "law: a demand issues one copy for each install";
      }
    } else if (out.hints_offered != out.issued[1] + skipped || accesses != 0) {
      return "law: hints offered = issued + deduplicated + dropped, by reason";
    }
    return "";
  }

  /// Compares counters, and adds them to the totals that the laws speak of.
  std::string same(bool answers_agree, char const* what, outcome const& real, outcome const& expected) {
    if (!answers_agree) {
      return std::string(what) + ": answers differ";
    }
    add(real);
    if (std::memcmp(&real, &expected, sizeof real) == 0) {
      return "";
    }
    auto const* const a = reinterpret_cast<u32 const*>(&expected);
    auto const* const b = reinterpret_cast<u32 const*>(&real);
    for (std::size_t i = 0; i < sizeof real / sizeof(u32); ++i) {
      if (a[i] != b[i]) {
        return std::string(what) + ": counter word " + std::to_string(i) + " of the outcome: model " +
               std::to_string(a[i]) + ", table " + std::to_string(b[i]);
      }
    }
    return "";
  }

  void add(outcome const& o) {
    auto const* const words = reinterpret_cast<u32 const*>(&o);
    totals_.resize(sizeof o / sizeof(u32));
    for (std::size_t i = 0; i < totals_.size(); ++i) {
      totals_[i] += words[i];
    }
  }
  u64 total(u32 const& member) const {
    if (totals_.empty()) {
      return 0;
    }
    return totals_[static_cast<std::size_t>(&member - reinterpret_cast<u32 const*>(&empty_))];
  }

  /// What must hold after every operation.
  std::string boundary() {
    if (audit_result const r = table_->audit(); !r) {
      return std::string("audit: ") + name_of(r.broken) + " at " + std::to_string(r.where);
    }
    actual_ = table_->state();
    if (!(actual_ == model_.state())) {
      return difference(model_.state(), actual_);
    }
    table_counts const now = table_->counts();
    outcome const& o = empty_;
    u64 const used = total(o.accesses[static_cast<u32>(access_kind::first_use)]) + total(o.late_of_hint);
    if (total(o.issued[1]) != used + total(o.evicted_unused) + now.resident_unused + now.in_flight[1] +
                                  total(o.failed[1])) {
      return "law: speculative issued = used + evicted unused + resident unused + in flight + failed";
    }
    u64 const ended = total(o.arrived[0]) + total(o.arrived[1]) + total(o.failed[0]) + total(o.failed[1]) +
                      total(o.late_failed);
    if (total(o.issued[0]) + total(o.issued[1]) !=
        ended + now.in_flight[0] + now.in_flight[1] + now.late_in_flight) {
      return "law: copies issued = completed + failed + in flight";
    }
    u32 used_slots = 0;
    for (auto const& s : actual_.slots) {
      used_slots += s.state != slot_state::free && s.state != slot_state::retired ? 1 : 0;
    }
    if (used_slots > config_.reserved) {
      return "law: used bytes = (reserved + resident + draining) x slot bytes";
    }
    return "";
  }

  void remember() {
    auto const bytes = table_->block();
    before_.assign(bytes.begin(), bytes.end());
  }
  bool identical() const {
    auto const bytes = table_->block();
    return bytes.size() == before_.size() && std::memcmp(bytes.data(), before_.data(), bytes.size()) == 0;
  }

  std::unique_ptr<table_under_test> table_;
  naive_model model_;
  table_config config_;
  std::vector<u32> arrivals_;
  u32 model_tick_;
  std::vector<hold> holds_;
  plan_record kept_;
  bool have_kept_ = false;
  bool replan_ = false;
  std::vector<unsigned char> before_;
  std::vector<u64> totals_;
  table_state actual_;
  outcome empty_{};
  exercise seen_;
};

/// Runs a sequence from a fresh table; returns the first thing that is wrong, or nothing.
inline std::string run_sequence(lockstep::make_table const& make, table_config const& config,
                                operations const& sequence, exercise* seen = nullptr) {
  lockstep both(make, config);
  std::string wrong;
  for (std::size_t i = 0; i < sequence.size() && wrong.empty(); ++i) {
    wrong = both.apply(sequence[i]);
  }
  if (seen != nullptr) {
    *seen += both.seen();
  }
  return wrong;
}

/// As run_sequence, and where something is wrong the shortest sequence that shows it, as C++.
inline std::string run_and_shrink(lockstep::make_table const& make, table_config const& config,
                                  operations const& sequence, exercise* seen = nullptr) {
  std::string const wrong = run_sequence(make, config, sequence, seen);
  if (wrong.empty()) {
    return wrong;
  }
  operations const shortest =
      shrink(sequence, [&](operations const& s) { return !run_sequence(make, config, s).empty(); });
  std::ostringstream out;
  out << run_sequence(make, config, shortest) << "\nwith rows " << config.n_rows << ", experts "
      << config.n_experts << ", k " << config.k << ", capacity " << config.capacity << " of "
      << config.reserved << ", speculative " << config.numbers.speculative_slots << ", scratch "
      << config.numbers.scratch_slots << ", floor " << config.numbers.floor << ", first tick "
      << config.first_tick << "\n"
      << as_code(shortest);
  return out.str();
}

/// Operations of one run: WARMSET_MODEL_OPS, or 20,000.
inline u64 model_operations() {
  char const* const text = std::getenv("WARMSET_MODEL_OPS");
  u64 const n = text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
  return n != 0 ? n : 20'000;
}

}  // namespace warmset::kit
