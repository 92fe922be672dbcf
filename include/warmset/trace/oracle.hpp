// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>
#include <vector>

#include "capacity.hpp"
#include "trace.hpp"

namespace warmset::inline v0 {
namespace trace {

/// Look-ups of one layer and phase by how an oracle served them. Unit: experts, one per distinct id
/// of an event, unless the name says otherwise.
struct oracle_counts {
  u64 hits = 0;             ///< resident at the start of the event
  u64 installs = 0;         ///< misses that got room
  u64 bypasses = 0;         ///< misses that got none by choice
  u64 overflow_hits = 0;    ///< residents of an event that does not fit
  u64 overflow_misses = 0;  ///< the others of such an event
  u64 evictions = 0;        ///< of experts of this layer, during this phase
  u64 read_bytes = 0;       ///< bytes of all misses
  u64 events = 0;           ///< events
  u64 overflow_events = 0;  ///< events with more distinct experts than the pool has slots

  u64 misses() const noexcept { return installs + bypasses + overflow_misses; }
  u64 lookups() const noexcept { return hits + overflow_hits + misses(); }
  /// Hits of any kind per look-up; 0 without look-ups.
  double hit_rate() const noexcept {
    return lookups() == 0
               ? 0.0
               : static_cast<double>(hits + overflow_hits) / static_cast<double>(lookups());
  }

  oracle_counts& operator+=(oracle_counts const& o) noexcept {
    hits += o.hits;
    installs += o.installs;
    bypasses += o.bypasses;
    overflow_hits += o.overflow_hits;
    overflow_misses += o.overflow_misses;
    evictions += o.evictions;
    read_bytes += o.read_bytes;
    events += o.events;
    overflow_events += o.overflow_events;
    return *this;
  }

  bool operator==(oracle_counts const&) const = default;
};

/// What an oracle reached, by layer row and phase.
struct oracle_report {
  std::vector<std::array<oracle_counts, n_phases>> by_layer;

  oracle_counts total() const noexcept {
    oracle_counts sum = total(phase::prefill);
    sum += total(phase::decode);
    return sum;
  }
  oracle_counts total(phase what) const noexcept {
    oracle_counts sum;
    for (auto const& layer : by_layer) {
      sum += layer[static_cast<u32>(what)];
    }
    return sum;
  }
};

/// One event as an oracle served it; handed to an observer, for instance to a model of time.
struct oracle_step {
  u32 row;
  phase in_phase;
  u32 hits;    ///< overflow hits included
  u32 misses;  ///< all that had to be read
  bool overflow;
  u64 read_bytes;
};

/// The selected events of a recording as distinct experts, each with the event that uses it next.
/// Made once and played at many capacities. O(ids) time and space.
class next_uses {
 public:
  static constexpr u32 never = u32_max;
  /// Most (layer, expert) pairs: above any model, and it bounds what an odd trace can make an
  /// oracle allocate.
  static constexpr u64 max_experts = u64{1} << 26;

  /// Throws config_error where the geometry has more than `max_experts` or 2^32 - 2 events or more.
  explicit next_uses(recording const& r, selection const& which = {}) {
    u64 experts = 0;
    for (layer_geometry const& layer : r.geometry().layers()) {
      first_key_.push_back(static_cast<u32>(experts));
      expert_bytes_.push_back(layer.expert_bytes());
      experts += layer.n_experts;
      if (experts > max_experts) {
        throw config_error("oracle: the model has more than ", max_experts, " experts");
      }
    }
    n_keys_ = static_cast<u32>(experts);
    if (r.n_events() >= never - 1) {
      throw config_error("oracle: ", r.n_events(), " events are more than 32 bits count");
    }
    collect(r, which);
    link();
  }

  struct entry {
    u32 key;   ///< first_key(row) + expert
    u32 next;  ///< index of the event that uses it next, or `never`
  };
  struct step {
    u32 row;
    phase in_phase;
    std::span<entry const> experts;  ///< in the order of last occurrence
  };

  u32 n_steps() const noexcept { return static_cast<u32>(heads_.size()); }
  step operator[](u32 i) const noexcept {
    std::size_t const end = i + 1 < heads_.size() ? heads_[i + 1].at : entries_.size();
    return {
        heads_[i].row, heads_[i].in_phase, {entries_.data() + heads_[i].at, end - heads_[i].at}};
  }
  u32 n_rows() const noexcept { return static_cast<u32>(first_key_.size()); }
  u32 n_keys() const noexcept { return n_keys_; }
  u32 first_key(u32 row) const noexcept { return first_key_[row]; }
  u64 expert_bytes(u32 row) const noexcept { return expert_bytes_[row]; }
  /// Layer row of a key. O(log layers).
  u32 row_of(u32 key) const noexcept {
    return static_cast<u32>(std::upper_bound(first_key_.begin(), first_key_.end(), key) -
                            first_key_.begin()) -
           1;
  }

 private:
  struct head {
    std::size_t at;
    u32 row;
    phase in_phase;
  };

  void collect(recording const& r, selection const& which) {
    detail::row_marks marks(detail::most_experts(r.geometry()));
    std::vector<u16> distinct;
    for_each_event(r, which, [&](event const& e) {
      heads_.push_back({entries_.size(), e.row, e.phase});
      u32 const base = first_key_[e.row];
      if (e.n_tokens == 1) {  // distinct already
        for (u16 id : e.ids) {
          if (id != padding) {
            entries_.push_back({base + id, never});
          }
        }
        return;
      }
      distinct.clear();
      append_distinct(e.ids, marks, distinct);
      for (u16 id : distinct) {
        entries_.push_back({base + id, never});
      }
    });
  }

  void link() {
    std::vector<u32> next(n_keys_, never);
    std::size_t end = entries_.size();
    for (std::size_t i = heads_.size(); i-- != 0;) {
      for (std::size_t j = heads_[i].at; j < end; ++j) {
        entries_[j].next = next[entries_[j].key];
        next[entries_[j].key] = static_cast<u32>(i);
      }
      end = heads_[i].at;
    }
  }

  std::vector<u32> first_key_;
  std::vector<u64> expert_bytes_;
  std::vector<head> heads_;
  std::vector<entry> entries_;
  u32 n_keys_ = 0;
};

namespace detail {

/// Residents of one pool, farthest next use first. Entries that a later use has overtaken stay in
/// the heap until they come up or until most of it is such entries.
class farthest_first {
 public:
  u64 used = 0;  ///< slots or bytes, as the owner counts

  /// `fresh` breaks ties: of equal next uses, an expert that the event brings goes before an older
  /// resident.
  void push(std::vector<u32> const& next_of, u32 key, u32 next, bool fresh) {
    if (heap_.size() > 4 * live_ + 1024) {
      std::erase_if(heap_, [&](u64 e) { return next_of[key_of(e)] != next_of_entry(e); });
      std::make_heap(heap_.begin(), heap_.end());
      live_ = heap_.size();
    }
    heap_.push_back((u64{next} << 32) | (u64{fresh} << 31) | key);
    std::push_heap(heap_.begin(), heap_.end());
  }

  /// Whether there is a candidate; drops overtaken entries on the way to it.
  bool settle(std::vector<u32> const& next_of) {
    while (!heap_.empty() && next_of[key_of(heap_.front())] != next_of_entry(heap_.front())) {
      pop();
    }
    return !heap_.empty();
  }

  u32 top_key() const noexcept { return key_of(heap_.front()); }
  u32 top_next() const noexcept { return next_of_entry(heap_.front()); }
  bool top_fresh() const noexcept { return (heap_.front() >> 31 & 1) != 0; }
  void pop() {
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
  }

 private:
  static u32 key_of(u64 e) noexcept { return static_cast<u32>(e & 0x7FFF'FFFF); }
  static u32 next_of_entry(u64 e) noexcept { return static_cast<u32>(e >> 32); }

  std::vector<u64> heap_;
  std::size_t live_ = 0;
};

/// What an oracle may do beyond choosing victims.
enum class oracle_rule : u8 {
  install_all,   ///< every miss gets room; no expert of the step leaves
  bypass,        ///< a miss may go without; once served, any expert of the step may leave
  bypass_strict  ///< a miss may go without; a hit of the step stays
};

/// Plays an oracle. `next_of_[key]` is the next use of a resident and `absent` for others, so that
/// it tells valid heap entries from overtaken ones: a resident's next use lies after the current
/// event, no entry's can equal `absent`, the index of no event.
template <oracle_rule Rule, class Observer>
class oracle_player {
 public:
  oracle_player(next_uses const& uses, capacity room, Observer& observer)
      : uses_(uses), room_(room), observer_(observer), next_of_(uses.n_keys(), absent),
        pools_(room.in == capacity::unit::slots_per_layer ? uses.n_rows() : 1) {
    report_.by_layer.resize(uses.n_rows());
  }

  oracle_report play() {
    for (u32 i = 0; i < uses_.n_steps(); ++i) {
      play(uses_[i]);
    }
    return std::move(report_);
  }

 private:
  static constexpr u32 absent = u32_max - 1;
  static constexpr bool may_bypass = Rule != oracle_rule::install_all;

  void play(next_uses::step const& s) {
    oracle_counts& counts = report_.by_layer[s.row][static_cast<u32>(s.in_phase)];
    farthest_first& pool = pools_[room_.in == capacity::unit::slots_per_layer ? s.row : 0];
    missing_.clear();
    u32 hits = 0;
    for (next_uses::entry const& e : s.experts) {
      if (next_of_[e.key] == absent) {
        missing_.push_back(e);
      } else {
        // Overtakes the heap's entry. Where hits stay, the new one enters after the evictions.
        next_of_[e.key] = e.next;
        ++hits;
      }
    }
    bool const overflow =
        room_.in != capacity::unit::shared_bytes && s.experts.size() > room_.amount;
    u32 const misses = static_cast<u32>(missing_.size());
    u64 const bytes = misses * uses_.expert_bytes(s.row);
    ++counts.events;
    counts.read_bytes += bytes;
    if (overflow) {
      ++counts.overflow_events;
      counts.overflow_hits += hits;
      counts.overflow_misses += misses;
      push_hits(pool, s);
    } else {
      counts.hits += hits;
      if constexpr (Rule == oracle_rule::bypass) {
        push_hits(pool, s);
      }
      if (room_.in == capacity::unit::shared_bytes) {
        install_bytes(pool, s, counts);
      } else {
        install_slots(pool, s, counts);
      }
      if constexpr (Rule != oracle_rule::bypass) {
        push_hits(pool, s);
      }
    }
    observer_(oracle_step{s.row, s.in_phase, hits, misses, overflow, bytes});
  }

  /// Everything of the step that is resident, with its new next use; what is in the heap already is
  /// harmless.
  void push_hits(farthest_first& pool, next_uses::step const& s) {
    std::size_t miss = 0;
    for (next_uses::entry const& e : s.experts) {
      if (miss < missing_.size() && missing_[miss].key == e.key) {
        ++miss;
      } else {
        pool.push(next_of_, e.key, e.next, false);
      }
    }
  }

  void evict_top(farthest_first& pool, next_uses::step const& s, oracle_counts& counts) {
    u32 const key = pool.top_key();
    u32 const row = room_.in == capacity::unit::slots_per_layer ? s.row : uses_.row_of(key);
    next_of_[key] = absent;
    pool.pop();
    pool.used -= room_.in == capacity::unit::shared_bytes ? uses_.expert_bytes(row) : 1;
    if (row == s.row) {
      ++counts.evictions;
    } else {
      ++report_.by_layer[row][static_cast<u32>(s.in_phase)].evictions;
    }
  }

  void install_slots(farthest_first& pool, next_uses::step const& s, oracle_counts& counts) {
    chosen_ = missing_;
    if constexpr (may_bypass) {
      std::sort(chosen_.begin(), chosen_.end(),
                [](next_uses::entry const& a, next_uses::entry const& b) {
                  return a.next != b.next ? a.next < b.next : a.key < b.key;
                });
    }
    std::size_t installed = 0;
    if constexpr (may_bypass) {
      for (; installed < chosen_.size(); ++installed) {
        if (pool.used == room_.amount) {
          if (!pool.settle(next_of_) || pool.top_next() <= chosen_[installed].next) {
            break;  // the others are needed later still
          }
          evict_top(pool, s, counts);
        }
        ++pool.used;
      }
    } else {
      while (pool.used + chosen_.size() > room_.amount && pool.settle(next_of_)) {
        evict_top(pool, s, counts);
      }
      installed = chosen_.size();
      pool.used += installed;
    }
    for (std::size_t i = 0; i < installed; ++i) {
      next_of_[chosen_[i].key] = chosen_[i].next;
      pool.push(next_of_, chosen_[i].key, chosen_[i].next, false);
    }
    counts.installs += installed;
    counts.bypasses += chosen_.size() - installed;
  }

  /// All of the event is installed; then the pool shrinks to its budget. Where experts of the event
  /// stay, one that is wider than the budget leaves the pool above it.
  void install_bytes(farthest_first& pool, next_uses::step const& s, oracle_counts& counts) {
    for (next_uses::entry const& e : missing_) {
      next_of_[e.key] = e.next;
      pool.used += uses_.expert_bytes(s.row);
      if constexpr (may_bypass) {
        pool.push(next_of_, e.key, e.next, true);
      }
    }
    u64 bypassed = 0;
    while (pool.used > room_.amount && pool.settle(next_of_)) {
      bool fresh = false;
      if constexpr (may_bypass) {
        u32 const key = pool.top_key();
        fresh = pool.top_fresh() &&
                std::any_of(missing_.begin(), missing_.end(),
                            [key](next_uses::entry const& e) { return e.key == key; });
      }
      oracle_counts discarded;
      evict_top(pool, s, fresh ? discarded : counts);
      bypassed += fresh ? 1 : 0;
    }
    if constexpr (!may_bypass) {
      for (next_uses::entry const& e : missing_) {
        pool.push(next_of_, e.key, e.next, false);
      }
    }
    counts.installs += missing_.size() - bypassed;
    counts.bypasses += bypassed;
  }

  next_uses const& uses_;
  capacity room_;
  Observer& observer_;
  std::vector<u32> next_of_;
  std::vector<farthest_first> pools_;
  std::vector<next_uses::entry> missing_;
  std::vector<next_uses::entry> chosen_;
  oracle_report report_;
};

struct ignore_step {
  void operator()(oracle_step const&) const noexcept {}
};

}  // namespace detail

/// Bélády's rule, event-atomic: every miss is installed, and the resident whose next use is
/// farthest makes room.
///
/// A step is judged as a whole against residency at its start, and nothing it demands is evicted by
/// it. Next uses are those of the selected part, overflow events included; state is carried across
/// sequences from a cold start. In slots, an event with more distinct experts than slots is an
/// overflow event and commits nothing. In bytes, all of an event is installed and then experts are
/// evicted, of any layer but never of the event, until the pool is within its budget. With slots
/// and without overflow no rule that must install hits more; with bytes and experts of several
/// sizes it is a bound in practice only. `observer(oracle_step)` sees every event. O(look-ups * log
/// slots).
template <class Observer>
oracle_report belady(next_uses const& uses, capacity room, Observer&& observer) {
  return detail::oracle_player<detail::oracle_rule::install_all, std::remove_reference_t<Observer>>(
             uses, room, observer)
      .play();
}
inline oracle_report belady(next_uses const& uses, capacity room) {
  return belady(uses, room, detail::ignore_step{});
}
inline oracle_report belady(recording const& r, capacity room, selection const& which = {}) {
  return belady(next_uses(r, which), room);
}

/// Bélády's rule with bypass: of the residents and the experts of the step, the pool keeps those
/// that are needed again soonest; the others are served without room. An expert of the step may
/// leave once the step is served, so no rule with slots and without overflow hits more, whether it
/// may decline or not. A free slot always takes a miss; of equal next uses, a miss goes before a
/// resident. Otherwise as `belady`.
template <class Observer>
oracle_report belady_bypass(next_uses const& uses, capacity room, Observer&& observer) {
  return detail::oracle_player<detail::oracle_rule::bypass, std::remove_reference_t<Observer>>(
             uses, room, observer)
      .play();
}
inline oracle_report belady_bypass(next_uses const& uses, capacity room) {
  return belady_bypass(uses, room, detail::ignore_step{});
}
inline oracle_report belady_bypass(recording const& r, capacity room, selection const& which = {}) {
  return belady_bypass(next_uses(r, which), room);
}

/// Bélády's rule with bypass as a table can follow it: as `belady_bypass`, but a hit of the step
/// stays, because a step's installs take their slots before the step is served. What a policy with
/// perfect foresight reaches; `belady_bypass` is the bound, this one is not: where hits have to
/// stay, a choice by next use alone can lose a hit.
template <class Observer>
oracle_report belady_bypass_strict(next_uses const& uses, capacity room, Observer&& observer) {
  return detail::oracle_player<detail::oracle_rule::bypass_strict,
                               std::remove_reference_t<Observer>>(uses, room, observer)
      .play();
}
inline oracle_report belady_bypass_strict(next_uses const& uses, capacity room) {
  return belady_bypass_strict(uses, room, detail::ignore_step{});
}
inline oracle_report belady_bypass_strict(recording const& r, capacity room,
                                          selection const& which = {}) {
  return belady_bypass_strict(next_uses(r, which), room);
}

}  // namespace trace
}  // namespace warmset::inline v0
