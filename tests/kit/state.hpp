// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <warmset/table/block.hpp>
#include <warmset/table/plan.hpp>

#include "probe.hpp"

namespace warmset::kit {

/// A score's state as opaque words, so that one model serves every score.
using score_cell = std::array<u32, 4>;

/// What an engine says of a step besides its ids; contextual scores read it.
struct step_said {
  u32 sequence = 0;
  u32 token = step_context::no_token;
  std::vector<u32> previous;  ///< what the layer before demanded; may name experts that this layer lacks
  std::vector<i32> supplied;  ///< one key per expert, or none
};

/// What a selector with an order of its own remembers, in plain lists.
struct selector_memory {
  std::vector<std::vector<u32>> queues;  ///< of slots, oldest first
  std::vector<expert_key> ghost;         ///< (row, expert), oldest first
  std::map<u32, u32> uses;               ///< by slot: what the selector counts or marks
  u32 hand = no_slot.value;
  bool operator==(selector_memory const&) const = default;
};

/// A table without its encoding: what the model keeps, and what a block says when it is read naively.
struct table_state {
  struct row {
    u32 n_experts, step, tick, id;
    u64 expert_bytes;  ///< 0 unless the admission counts bytes
    bool operator==(row const&) const = default;
  };
  struct slot {
    slot_state state = slot_state::free;
    u32 row = 0, expert = 0, leases = 0, generation = 0, target = 0;
    bool unused = false, from_hint = false, loading = false, returns = false;
    bool operator==(slot const&) const = default;
  };
  struct expert {
    bool accessed = false, pinned = false;
    u32 last = 0;
    u32 slot = no_slot.value;
    score_cell score{};
    bool operator==(expert const&) const = default;
  };

  u64 version = 0;
  u32 capacity = 0, n_scratch = 0, speculative_slots = 0, floor = 0, tick = 0, model_tick = 0,
      storage_generation = 0;
  std::vector<row> rows;
  std::vector<slot> slots;
  std::vector<std::vector<expert>> experts;  ///< by row
  std::vector<u32> in_flight;                ///< slots, in the order of their loads
  std::vector<u32> scratch;                  ///< lease counts
  selector_memory selector;                  ///< empty where the selector has none

  bool operator==(table_state const&) const = default;
};

/// A plan without its encoding.
struct plan_record {
  struct entry {
    u32 expert = 0;
    access_kind how = access_kind::hit;
    u32 slot = no_slot.value;
    u32 wave = 0;
    bool operator==(entry const&) const = default;
  };
  u64 version = 0;
  plan_kind kind = plan_kind::empty;
  intent for_intent = intent::demand;
  u32 row = 0, model_tick = 0, target = 0;
  u32 n_waves = 0, n_declined = 0, sentinels = 0, out_of_range = 0, duplicates = 0, hints_offered = 0;
  no_victim_counts obstacles{};
  std::array<u32, n_drop_reasons> dropped{};
  std::vector<entry> entries;
  std::vector<planned_load> loads;
  std::vector<u32> trims;
  std::vector<consultation> asked;
  std::vector<i32> keys;  ///< of every expert of the row, where a contextual score made them
  step_said said;         ///< what commit learns from; ignored by ==
  std::size_t offered = 0;  ///< candidates that the selector was asked for; the model's alone, ignored by ==

  void clear() { *this = plan_record{}; }
};

inline bool operator==(plan_record const& a, plan_record const& b) {
  auto const same_loads = [](auto const& x, auto const& y) {
    if (x.size() != y.size()) {
      return false;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i].expert != y[i].expert || x[i].slot != y[i].slot) {
        return false;
      }
    }
    return true;
  };
  return a.version == b.version && a.kind == b.kind && a.for_intent == b.for_intent && a.row == b.row &&
         a.model_tick == b.model_tick && a.target == b.target && a.n_waves == b.n_waves &&
         a.n_declined == b.n_declined && a.sentinels == b.sentinels && a.out_of_range == b.out_of_range &&
         a.duplicates == b.duplicates && a.hints_offered == b.hints_offered &&
         a.obstacles.leased == b.obstacles.leased && a.obstacles.loading == b.obstacles.loading &&
         a.obstacles.guarded == b.obstacles.guarded && a.obstacles.pinned == b.obstacles.pinned &&
         a.dropped == b.dropped && a.entries == b.entries && same_loads(a.loads, b.loads) &&
         a.trims == b.trims && a.asked == b.asked && a.keys == b.keys;
}

namespace detail {
inline void show(std::ostream& out, plan_record const& p) {
  constexpr char const* kinds[] = {"empty", "step", "overflow", "hints", "busy"};
  out << kinds[static_cast<u32>(p.kind)] << " v" << p.version << " row " << p.row << " entries [";
  for (auto const& e : p.entries) {
    out << ' ' << e.expert << ':' << name_of(e.how) << '@' << e.slot << '/' << e.wave;
  }
  out << " ] loads [";
  for (auto const& l : p.loads) {
    out << ' ' << l.expert << "->" << l.slot;
  }
  out << " ] trims [";
  for (u32 const t : p.trims) {
    out << ' ' << t;
  }
  out << " ] waves " << p.n_waves << " declined " << p.n_declined << " skipped " << p.sentinels << '/'
      << p.out_of_range << '/' << p.duplicates << " obstacles " << p.obstacles.leased << '/'
      << p.obstacles.loading << '/' << p.obstacles.guarded << '/' << p.obstacles.pinned << " dropped [";
  for (u32 r = 0; r < n_drop_reasons; ++r) {
    if (p.dropped[r] != 0) {
      out << ' ' << name_of(static_cast<reason>(r)) << '=' << p.dropped[r];
    }
  }
  out << " ] asked [";
  for (auto const& c : p.asked) {
    out << " v" << c.asked.victim_score << "(heat " << c.asked.victim_heat
        << (c.asked.victim_spare ? ", spare" : "") << ") c" << c.asked.challenger_score << '='
        << (c.permitted ? "yes" : "no");
  }
  out << " ] keys [";
  for (i32 const key : p.keys) {
    out << ' ' << key;
  }
  out << " ]";
}

inline void show(std::ostream& out, selector_memory const& m) {
  for (auto const& queue : m.queues) {
    out << " [";
    for (u32 const slot : queue) {
      out << ' ' << slot;
    }
    out << " ]";
  }
  out << " ghost [";
  for (auto const& key : m.ghost) {
    out << ' ' << key.layer.value << '/' << key.expert.value;
  }
  out << " ] uses [";
  for (auto const& [slot, uses] : m.uses) {
    out << ' ' << slot << ':' << uses;
  }
  out << " ] hand " << m.hand;
}
}  // namespace detail

/// What the model expected and what the table did, in one sentence.
inline std::string difference(plan_record const& expected, plan_record const& actual) {
  std::ostringstream out;
  out << "plans differ\n  model ";
  detail::show(out, expected);
  out << "\n  table ";
  detail::show(out, actual);
  return out.str();
}

/// The first member in which two states differ; empty where none does.
inline std::string difference(table_state const& expected, table_state const& actual) {
  std::ostringstream out;
  auto const number = [&out](char const* what, u64 a, u64 b) {
    if (out.tellp() == 0 && a != b) {
      out << what << ": model " << a << ", table " << b;
    }
  };
  number("version", expected.version, actual.version);
  number("capacity", expected.capacity, actual.capacity);
  number("speculative_slots", expected.speculative_slots, actual.speculative_slots);
  number("floor", expected.floor, actual.floor);
  number("tick", expected.tick, actual.tick);
  number("model_tick", expected.model_tick, actual.model_tick);
  number("storage_generation", expected.storage_generation, actual.storage_generation);
  number("rows", expected.rows.size(), actual.rows.size());
  number("slots", expected.slots.size(), actual.slots.size());
  if (out.tellp() != 0) {
    return out.str();
  }
  auto const show_slot = [&out](table_state::slot const& s) {
    constexpr char const* states[] = {"free", "reserved", "resident", "draining", "retired"};
    out << states[static_cast<u32>(s.state)] << " (" << s.row << ", " << s.expert << ") leases " << s.leases
        << " generation " << s.generation << " target " << s.target << (s.unused ? " unused" : "")
        << (s.from_hint ? " from_hint" : "") << (s.loading ? " loading" : "")
        << (s.returns ? " returns" : "");
  };
  for (std::size_t s = 0; s < expected.slots.size(); ++s) {
    if (!(expected.slots[s] == actual.slots[s])) {
      out << "slot " << s << ": model ";
      show_slot(expected.slots[s]);
      out << ", table ";
      show_slot(actual.slots[s]);
      return out.str();
    }
  }
  for (std::size_t r = 0; r < expected.rows.size(); ++r) {
    number("layer step", expected.rows[r].step, actual.rows[r].step);
    number("layer tick", expected.rows[r].tick, actual.rows[r].tick);
    for (std::size_t e = 0; e < expected.experts[r].size(); ++e) {
      auto const& a = expected.experts[r][e];
      auto const& b = actual.experts[r][e];
      if (!(a == b) && out.tellp() == 0) {
        out << "expert (" << r << ", " << e << "): model accessed " << a.accessed << " pinned " << a.pinned
            << " last " << a.last << " slot " << a.slot << " score " << a.score[0] << ',' << a.score[1]
            << "; table accessed " << b.accessed << " pinned " << b.pinned << " last " << b.last << " slot "
            << b.slot << " score " << b.score[0] << ',' << b.score[1];
      }
    }
  }
  if (out.tellp() == 0 && expected.in_flight != actual.in_flight) {
    out << "in-flight lists differ";
  }
  if (out.tellp() == 0 && expected.scratch != actual.scratch) {
    out << "scratch leases differ";
  }
  if (out.tellp() == 0 && !(expected.selector == actual.selector)) {
    out << "the selector's memories differ: model";
    detail::show(out, expected.selector);
    out << "; table";
    detail::show(out, actual.selector);
  }
  if (out.tellp() == 0 && !(expected == actual)) {
    out << "states differ";
  }
  return out.str();
}

}  // namespace warmset::kit
