// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "counters.hpp"

namespace warmset::inline v0 {

/// Whose doing a counter counts. Transfers and evictions have one counter per intent.
enum class counted_for : u8 { demand, speculation, neither };

constexpr char const* name_of(counted_for c) noexcept {
  constexpr char const* names[] = {"demand", "speculative", "neither"};
  return names[static_cast<u32>(c)];
}

constexpr char const* name_of(phase p) noexcept {
  return p == phase::prefill ? "prefill" : "decode";
}

/// What an exporter must know of one counter. Counters that differ in their label alone are one family; the
/// registry has them next to each other. Each is kept per layer and phase.
struct counter_info {
  char const* name;
  char const* unit;  ///< from the counter's type
  counted_for intent;
  char const* label;  ///< "" where the family is a single counter
  char const* label_value;
  char const* help;  ///< one sentence

  constexpr bool same_family(counter_info const& o) const noexcept {
    return same(name, o.name) && same(unit, o.unit);
  }

 private:
  static constexpr bool same(char const* a, char const* b) noexcept {
    for (; *a != '\0' && *a == *b; ++a, ++b) {
    }
    return *a == *b;
  }
};

/// Why a routed id can be skipped.
inline constexpr reason id_reasons[] = {reason::sentinel, reason::out_of_range, reason::duplicate};

/// The registry: calls f(counter_info, amount) for every counter, in the order in which they are exported.
/// The amounts keep their unit's type. A counter that is not here is in no export; a test compares the two.
///
/// B104's words: a plan is admitted when it is committed, a copy is issued when its transfer starts, and
/// `copies_complete_before_use` are the experts that a demand found resident because of a hint; `late` are
/// those that it found on their way. None of them is called ready.
template <class Span, class F>
constexpr void for_each_counter(basic_counters<Span> const& c, F&& f) {
  constexpr counted_for demand = counted_for::demand;
  constexpr counted_for speculation = counted_for::speculation;
  auto const entry = [&]<class Unit>(char const* name, char const* help, counted_for whose,
                                     amount<Unit> value, char const* label = "",
                                     char const* label_value = "") {
    f(counter_info{name, Unit::name, whose, label, label_value, help}, value);
  };
  auto const by_intent = [&](char const* name, char const* help, auto const& values) {
    entry(name, help, demand, values[static_cast<u32>(intent::demand)]);
    entry(name, help, speculation, values[static_cast<u32>(intent::speculative)]);
  };

  entry("plans_admitted", "Steps whose plan was committed.", demand, c.steps);
  entry("plans_overflowed", "Steps with more experts than usable slots; they commit nothing.",
        demand, c.overflow_steps);
  entry("demanded", "Distinct valid experts of all steps.", demand, c.demanded);
  char const* const hits =
      "Demanded experts that were resident when the step began, by what put them there.";
  entry("hits", hits, demand, c[access_kind::hit] - c.pinned_hits, "source", "demanded");
  entry("hits", hits, demand, c.pinned_hits, "source", "pinned");
  entry("hits", hits, demand, c[access_kind::first_use], "source", "speculated");
  entry("hits", hits, demand, c[access_kind::overflow_hit], "source", "overflow");
  entry("late", "Demanded experts that were in flight: the demand joined the transfer.", demand,
        c[access_kind::late]);
  entry("loads", "Demanded experts that the step installs.", demand, c[access_kind::load]);
  entry("declined", "Demanded experts that were not installed and were served from scratch.",
        demand, c[access_kind::declined]);
  entry("overflow_misses", "Absent experts of overflow steps, streamed through scratch.", demand,
        c[access_kind::overflow_miss]);
  for (reason const r : id_reasons) {
    entry("skipped", "Routed ids that named no further expert, by reason.", demand,
          c.skipped_ids[static_cast<u32>(r)], "reason", name_of(r));
  }

  by_intent("copies_issued", "Transfers of experts that were started.", c.issued);
  by_intent("copies_completed", "Transfers that ended with the expert in its slot.", c.arrived);
  by_intent("copies_failed", "Transfers that failed while the intent that started them owned them.",
            c.failed);
  entry("copies_failed_after_join",
        "Speculative transfers that failed after a demand had joined them.", speculation,
        c.late_failed);
  by_intent("copied", "Bytes of completed transfers.", c.bytes);
  by_intent("copied", "Single banks of completed transfers.", c.slabs);

  entry("scratch_copies_issued", "Transfers into scratch that were started.", demand, c.scratch_issued);
  entry("scratch_copies_completed", "Transfers that ended with the expert in scratch.", demand,
        c.scratch_arrived);
  entry("scratch_copies_failed", "Transfers into scratch that failed.", demand, c.scratch_failed);
  entry("scratch_copied", "Bytes of completed transfers into scratch.", demand, c.scratch_bytes);
  entry("scratch_copied", "Single banks of completed transfers into scratch.", demand,
        c.scratch_slabs);

  by_intent("evicted", "Residents that made way.", c.evicted);
  entry("evicted_unused", "Speculated experts that left before any demand.", speculation,
        c.evicted_unused);
  entry("residents_dropped", "Residents dropped by a resize or an invalidation.",
        counted_for::neither, c.dropped);
  entry("retired", "Slots taken out of use by a smaller capacity.", counted_for::neither,
        c.retired);

  entry("hints_offered", "Hints looked at, and those dropped on the way to the cache.", speculation, c.hints_offered);
  for (u32 r = 1; r < n_drop_reasons; ++r) {  // `none` drops nothing
    entry("hints_dropped", "Hints that led to no transfer, by reason.", speculation,
          c.hints_dropped[r], "reason", name_of(static_cast<reason>(r)));
  }
  entry("copies_complete_before_use", "Speculated experts that their first demand found resident.",
        speculation, c[access_kind::first_use]);
  entry("copies_joined", "Speculated experts that their first demand found in flight.", speculation,
        c.late_of_hint);
  entry("guard_asked", "Consultations of the guard.", speculation, c.guard_asked);
  entry("guard_refused", "Consultations in which the guard refused the eviction.", speculation,
        c.guard_refused);
}

namespace detail {
consteval u32 count_registry() {
  u32 n = 0;
  for_each_counter(total_counters{}, [&](counter_info const&, auto) { ++n; });
  return n;
}
}  // namespace detail

inline constexpr u32 n_counters = detail::count_registry();

/// All entries of the registry, by index.
struct counter_registry {
  counter_info entries[n_counters];

  constexpr counter_info const* begin() const noexcept { return entries; }
  constexpr counter_info const* end() const noexcept { return entries + n_counters; }
  constexpr counter_info const& operator[](u32 i) const noexcept { return entries[i]; }
};

inline constexpr counter_registry registry = [] {
  counter_registry all{};
  u32 n = 0;
  for_each_counter(total_counters{},
                   [&](counter_info const& info, auto) { all.entries[n++] = info; });
  return all;
}();

/// Value of entry `index` of what for_each_counter goes over. O(entries); for exporters, not for decision paths.
template <class Counters>
constexpr u64 value_of(Counters const& c, u32 index) noexcept {
  u64 found = 0;
  for_each_counter(c, [&, at = 0u](counter_info const&, auto value) mutable {
    found = at++ == index ? value.value : found;
  });
  return found;
}

}  // namespace warmset::inline v0
