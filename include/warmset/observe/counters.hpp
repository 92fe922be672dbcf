// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "../core/outcome.hpp"

namespace warmset::inline v0 {

/// What a counter counts.
namespace unit {
/// Experts, one per distinct id of a step or per hint.
struct experts {
  static constexpr char const* name = "experts";
};
/// Single banks of experts: an expert has as many as its layer has banks.
struct bank_slabs {
  static constexpr char const* name = "bank slabs";
};
/// Bytes of completed transfers.
struct bytes {
  static constexpr char const* name = "bytes";
};
/// Steps of a layer.
struct steps {
  static constexpr char const* name = "steps";
};
/// Routed ids as they came.
struct ids {
  static constexpr char const* name = "ids";
};
/// Consultations of a guard.
struct questions {
  static constexpr char const* name = "questions";
};
/// Slots of a pool.
struct slots {
  static constexpr char const* name = "slots";
};
}  // namespace unit

/// A number with its unit: amounts of different units neither add nor compare.
template <class Unit>
struct amount {
  u64 value = 0;

  constexpr amount& operator+=(amount other) noexcept {
    value += other.value;
    return *this;
  }
  friend constexpr amount operator+(amount a, amount b) noexcept { return {a.value + b.value}; }
  friend constexpr amount operator-(amount a, amount b) noexcept { return {a.value - b.value}; }
  bool operator==(amount const&) const = default;
};

/// Since construction, or between two snapshots. Different types: a total minus a total is a delta.
struct total_span {};
struct delta_span {};

/// What has been counted of one layer and phase, or of sums of those.
///
/// Demand and speculation never mix: hit rates are made of demand accesses alone. Bytes and bank slabs
/// count completed transfers. What goes through scratch is link traffic as well and is counted beside: its
/// bytes are in none of the others.
template <class Span>
struct basic_counters {
  amount<unit::steps> steps;
  amount<unit::steps> overflow_steps;
  // demand
  amount<unit::experts> demanded;
  amount<unit::experts> accesses[n_access_kinds];
  amount<unit::experts> pinned_hits;  ///< of accesses[hit]
  amount<unit::ids> skipped_ids[n_drop_reasons];
  // transfers, by the intent that started them
  amount<unit::experts> issued[n_intents];
  amount<unit::experts> arrived[n_intents];
  amount<unit::experts> failed[n_intents];
  amount<unit::experts> late_failed;
  amount<unit::bank_slabs> slabs[n_intents];
  amount<unit::bytes> bytes[n_intents];
  // transfers into scratch: declined and overflowing experts, and those whose load failed
  amount<unit::experts> scratch_issued;
  amount<unit::experts> scratch_arrived;
  amount<unit::experts> scratch_failed;
  amount<unit::bank_slabs> scratch_slabs;
  amount<unit::bytes> scratch_bytes;
  // residency
  amount<unit::experts> evicted[n_intents];
  amount<unit::experts> evicted_unused;
  amount<unit::experts> dropped;
  amount<unit::slots> retired;
  // speculation
  amount<unit::experts> hints_offered;
  amount<unit::experts> hints_dropped[n_drop_reasons];
  amount<unit::experts> late_of_hint;
  amount<unit::questions> guard_asked;
  amount<unit::questions> guard_refused;

  constexpr amount<unit::experts> operator[](access_kind kind) const noexcept {
    return accesses[static_cast<u32>(kind)];
  }

  /// Demand accesses served from a slot that was resident when the step began.
  constexpr amount<unit::experts> hits() const noexcept {
    return (*this)[access_kind::hit] + (*this)[access_kind::first_use] +
           (*this)[access_kind::overflow_hit];
  }
  /// hits / demanded, 0 where nothing was demanded; `late` stands beside it, not in it.
  constexpr double hit_rate() const noexcept {
    return demanded.value == 0 ? 0.0
                               : static_cast<double>(hits().value) / static_cast<double>(demanded.value);
  }
  /// Speculated experts that a demand used, those it joined in flight included.
  constexpr amount<unit::experts> used() const noexcept {
    return (*this)[access_kind::first_use] + late_of_hint;
  }

  /// Bytes that speculation copied for each expert that a demand then used. Rounded down; u64_max where bytes
  /// were copied and none was of use, 0 where nothing was copied.
  constexpr u64 bytes_per_useful_hit() const noexcept {
    u64 const copied = bytes[static_cast<u32>(intent::speculative)].value;
    return used().value != 0 ? copied / used().value : copied != 0 ? u64_max : 0;
  }

  /// Bytes that the link has brought: into slots, by demand and speculation, and into scratch.
  constexpr amount<unit::bytes> link_bytes() const noexcept {
    return bytes[static_cast<u32>(intent::demand)] + bytes[static_cast<u32>(intent::speculative)] + scratch_bytes;
  }

  /// Applies f(mine, other's) to every counter.
  template <class Other, class F>
  constexpr void zip(basic_counters<Other> const& o, F&& f) noexcept {
    f(steps, o.steps);
    f(overflow_steps, o.overflow_steps);
    f(demanded, o.demanded);
    for (u32 i = 0; i < n_access_kinds; ++i) {
      f(accesses[i], o.accesses[i]);
    }
    f(pinned_hits, o.pinned_hits);
    for (u32 i = 0; i < n_drop_reasons; ++i) {
      f(skipped_ids[i], o.skipped_ids[i]);
      f(hints_dropped[i], o.hints_dropped[i]);
    }
    for (u32 i = 0; i < n_intents; ++i) {
      f(issued[i], o.issued[i]);
      f(arrived[i], o.arrived[i]);
      f(failed[i], o.failed[i]);
      f(slabs[i], o.slabs[i]);
      f(bytes[i], o.bytes[i]);
      f(evicted[i], o.evicted[i]);
    }
    f(scratch_issued, o.scratch_issued);
    f(scratch_arrived, o.scratch_arrived);
    f(scratch_failed, o.scratch_failed);
    f(scratch_slabs, o.scratch_slabs);
    f(scratch_bytes, o.scratch_bytes);
    f(late_failed, o.late_failed);
    f(evicted_unused, o.evicted_unused);
    f(dropped, o.dropped);
    f(retired, o.retired);
    f(hints_offered, o.hints_offered);
    f(late_of_hint, o.late_of_hint);
    f(guard_asked, o.guard_asked);
    f(guard_refused, o.guard_refused);
  }

  constexpr basic_counters& operator+=(basic_counters<delta_span> const& o) noexcept {
    zip(o, [](auto& mine, auto other) { mine += other; });
    return *this;
  }
};

using total_counters = basic_counters<total_span>;
using delta_counters = basic_counters<delta_span>;

/// What happened between two snapshots of the same counters.
template <class Span>
  requires std::same_as<Span, total_span>
constexpr auto operator-(basic_counters<Span> const& later, basic_counters<Span> const& earlier) noexcept {
  basic_counters<delta_span> d{};
  d.zip(later, [](auto& mine, auto other) { mine = other; });
  d.zip(earlier, [](auto& mine, auto other) { mine = mine - other; });
  return d;
}

/// Sum over layers or phases of one moment.
template <class Span>
constexpr basic_counters<Span> operator+(basic_counters<Span> a, basic_counters<Span> const& b) noexcept {
  a.zip(b, [](auto& mine, auto other) { mine += other; });
  return a;
}

/// Adds what operations did to counters. Rooms below produce outcome records and count nothing.
///
/// @param expert_bytes, banks  of the layer that the outcome belongs to
constexpr void fold(outcome const& o, u64 expert_bytes, u32 banks, total_counters& c) noexcept {
  c.steps.value += o.steps;
  c.overflow_steps.value += o.overflow_steps;
  c.demanded.value += o.demanded;
  for (u32 i = 0; i < n_access_kinds; ++i) {
    c.accesses[i].value += o.accesses[i];
  }
  c.pinned_hits.value += o.pinned_hits;
  for (u32 i = 0; i < n_drop_reasons; ++i) {
    c.skipped_ids[i].value += o.skipped_ids[i];
    c.hints_dropped[i].value += o.hints_dropped[i];
  }
  for (u32 i = 0; i < n_intents; ++i) {
    c.issued[i].value += o.issued[i];
    c.arrived[i].value += o.arrived[i];
    c.failed[i].value += o.failed[i];
    c.slabs[i].value += u64{o.arrived[i]} * banks;
    c.bytes[i].value += u64{o.arrived[i]} * expert_bytes;
    c.evicted[i].value += o.evicted[i];
  }
  c.scratch_issued.value += o.scratch_issued;
  c.scratch_arrived.value += o.scratch_arrived;
  c.scratch_failed.value += o.scratch_failed;
  c.scratch_slabs.value += u64{o.scratch_arrived} * banks;
  c.scratch_bytes.value += u64{o.scratch_arrived} * expert_bytes;
  c.late_failed.value += o.late_failed;
  c.evicted_unused.value += o.evicted_unused;
  c.dropped.value += o.dropped;
  c.retired.value += o.retired;
  c.hints_offered.value += o.hints_offered;
  c.late_of_hint.value += o.late_of_hint;
  c.guard_asked.value += o.guard_asked;
  c.guard_refused.value += o.guard_refused;
}

}  // namespace warmset::inline v0
