// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "order_key.hpp"

namespace warmset::inline v0 {

namespace detail {
struct lane_probe {
  WARMSET_HD constexpr void operator()(u32) const noexcept {}
};
struct lane_key_probe {
  WARMSET_HD constexpr void operator()(u32, order_key&) const noexcept {}
};
struct lane_predicate_probe {
  WARMSET_HD constexpr bool operator()(u32) const noexcept { return false; }
};
struct lane_emit_probe {
  WARMSET_HD constexpr void operator()(u32, u32) const noexcept {}
};
struct lane_leader_probe {
  WARMSET_HD constexpr void operator()() const noexcept {}
};
}  // namespace detail

/// A group of lanes that executes selectors and plan together: one lane on the host, a warp or a block on
/// a device. Every operation ends converged, with the writes of all lanes visible to all.
///
/// | operation | effect |
/// |---|---|
/// | is_single | constant: whether the group is always one lane, so that passes may be joined |
/// | for_each(n, f) | f(i) for every i < n, in any order, by any lane |
/// | min_key(n, f) | the smallest order_key of all i < n; `no_key` where n = 0. f(i, best) lowers `best`, a lane's own, to the key of i where that is smaller |
/// | any(n, p), count(n, p) | whether, and for how many i < n, p(i) holds |
/// | append_in_order(n, p, emit) | emit(i, position) for every i with p(i), positions ascending with i; returns how many |
/// | leader(f) | f() by one lane |
/// | for_each_then_leader(n, f, g) | f(i) as in for_each, and g(i) by one lane in ascending order, each after its f(i) |
template <class Group>
concept lane_group = requires(Group const& group, u32 n) {
  { Group::is_single } -> std::convertible_to<bool>;
  group.for_each(n, detail::lane_probe{});
  { group.min_key(n, detail::lane_key_probe{}) } -> std::same_as<order_key>;
  { group.any(n, detail::lane_predicate_probe{}) } -> std::same_as<bool>;
  { group.count(n, detail::lane_predicate_probe{}) } -> std::same_as<u32>;
  {
    group.append_in_order(n, detail::lane_predicate_probe{}, detail::lane_emit_probe{})
  } -> std::same_as<u32>;
  group.leader(detail::lane_leader_probe{});
  group.for_each_then_leader(n, detail::lane_probe{}, detail::lane_probe{});
};

namespace detail {

/// Adds n to a word that the group alone changes, and that no other lane reads before its work ends. On a device nobody waits for
/// the word. By one lane.
template <class Group>
WARMSET_HD void add_unread(Group const& g, u32& word, u32 n) {
  if constexpr (requires { g.add_unread(word, n); }) {
    g.add_unread(word, n);
  } else {
    word += n;
  }
}

/// The m smallest of key(i) for the i < n that may(i): take(j, smallest) by one lane for each, j ascending with it. Keys are
/// distinct. Returns how many there are. One pass for each.
template <class Group, class May, class Key, class Take>
WARMSET_HD u32 take_one_by_one(Group const& g, u32 n, u32 m, May&& may, Key&& key, Take&& take) {
  order_key previous{};
  for (u32 j = 0; j < m; ++j) {
    order_key const smallest = g.min_key(n, [&](u32 i, order_key& best) {
      order_key const k = key(i);
      if (may(i) && (j == 0 || previous < k)) {
        lower(best, k);
      }
    });
    if (smallest == no_key) {
      return j;
    }
    g.leader([&] { take(j, smallest); });
    previous = smallest;
  }
  return m;
}

}  // namespace detail

/// The lane group of one lane: plain loops. The reference that wider groups are tested against.
struct one_lane {
  static constexpr bool is_single = true;

  template <class F>
  WARMSET_HD constexpr void for_each(u32 n, F&& f) const {
    for (u32 i = 0; i < n; ++i) {
      f(i);
    }
  }

  template <class F>
  WARMSET_HD constexpr order_key min_key(u32 n, F&& f) const {
    order_key best = no_key;
    for (u32 i = 0; i < n; ++i) {
      f(i, best);
    }
    return best;
  }

  template <class P>
  WARMSET_HD constexpr bool any(u32 n, P&& p) const {
    for (u32 i = 0; i < n; ++i) {
      if (p(i)) {
        return true;
      }
    }
    return false;
  }

  template <class P>
  WARMSET_HD constexpr u32 count(u32 n, P&& p) const {
    u32 found = 0;
    for (u32 i = 0; i < n; ++i) {
      found += p(i) ? 1 : 0;
    }
    return found;
  }

  template <class P, class Emit>
  WARMSET_HD constexpr u32 append_in_order(u32 n, P&& p, Emit&& emit) const {
    u32 found = 0;
    for (u32 i = 0; i < n; ++i) {
      if (p(i)) {
        emit(i, found);
        ++found;
      }
    }
    return found;
  }

  template <class F>
  WARMSET_HD constexpr void leader(F&& f) const {
    f();
  }

  template <class F, class G>
  WARMSET_HD constexpr void for_each_then_leader(u32 n, F&& f, G&& then) const {
    for (u32 i = 0; i < n; ++i) {
      f(i);
      then(i);
    }
  }
};

static_assert(lane_group<one_lane>, "one_lane must satisfy lane_group");

}  // namespace warmset::inline v0
