// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include <warmset/policy/guard/concept.hpp>

namespace warmset::kit {

/// One question to a guard and its answer.
struct consultation {
  duel asked;
  bool permitted;
};

inline bool operator==(consultation const& a, consultation const& b) noexcept {
  return a.asked.victim_score == b.asked.victim_score &&
         a.asked.challenger_score == b.asked.challenger_score && a.asked.one_count == b.asked.one_count &&
         a.asked.victim_heat == b.asked.victim_heat && a.asked.victim_spare == b.asked.victim_spare &&
         a.permitted == b.permitted;
}

/// Records consultations of the calling thread, from its construction to its destruction. Recorders nest:
/// the innermost one listens.
///
///     kit::recorder seen;
///     plan_speculative<my_bundle>(…);
///     REQUIRE(seen.consultations.size() == 1);
class recorder {
 public:
  recorder() noexcept : outer_(std::exchange(active(), this)) {}
  ~recorder() { active() = outer_; }
  recorder(recorder const&) = delete;
  recorder& operator=(recorder const&) = delete;

  std::vector<consultation> consultations;

  static recorder*& active() noexcept {
    thread_local recorder* innermost = nullptr;
    return innermost;
  }

 private:
  recorder* outer_;
};

/// The default sink of `probed`: the thread's innermost recorder, if there is one.
struct thread_sink {
  static void record(consultation const& c) noexcept {
    if (recorder* const r = recorder::active()) {
      r->consultations.push_back(c);
    }
  }
};

/// A guard adaptor that records every consultation and answers as the guard does. Satisfies guard_policy;
/// host only, since a recorder allocates. Give a `Sink` with a static `record(consultation)` to keep the
/// records elsewhere.
template <guard_policy Guard, class Sink = thread_sink>
struct probed : Guard {
  using inner = Guard;

  bool permits(duel const& d) const noexcept {
    bool const answer = Guard::permits(d);
    Sink::record({d, answer});
    return answer;
  }
};

/// A guard chosen at run time, so that one table type serves many guards in a test. `KeepsReserve` is part
/// of the type, since the table's rules depend on it. Set `choice` before use; per thread.
template <bool KeepsReserve, bool NeedsHeat>
struct switched {
  static constexpr bool needs_heat = NeedsHeat;
  static constexpr bool keeps_reserve = KeepsReserve;
  static constexpr char const* name = "switched";

  bool permits(duel const& d) const noexcept { return choice()(d); }

  static bool (*&choice() noexcept)(duel const&) noexcept {
    thread_local bool (*chosen)(duel const&) noexcept = nullptr;
    return chosen;
  }
  template <guard_policy Guard>
  static void choose() noexcept {
    static_assert(Guard::keeps_reserve == KeepsReserve);
    choice() = [](duel const& d) noexcept { return Guard{}.permits(d); };
  }
};

}  // namespace warmset::kit
