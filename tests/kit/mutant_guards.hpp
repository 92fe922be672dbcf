// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <warmset/policy/guard/all_of.hpp>
#include <warmset/policy/guard/challenger_must_win.hpp>
#include <warmset/policy/guard/none.hpp>
#include <warmset/policy/guard/spare_only.hpp>
#include <warmset/policy/guard/victim_must_be_hotter.hpp>
#include <warmset/policy/guard/warm_then_challenger_must_win.hpp>

namespace warmset::kit {

/// What a guard's own documentation says, computed in another way: 128 bits, no shared helper.
namespace rule {

using wide = unsigned __int128;

inline wide margin(u64 score, u64 one_count) noexcept {
  return wide{score} + wide{score} / 4 + wide{one_count} * 4;
}
inline bool none(duel const&) noexcept { return true; }
inline bool spare_only(duel const& d) noexcept { return d.victim_spare; }
inline bool challenger_must_win(duel const& d) noexcept {
  return !(wide{d.challenger_score} <= margin(d.victim_score, d.one_count));
}
inline bool warm_then_challenger_must_win(duel const& d) noexcept {
  return !(d.victim_heat >= 2 && margin(d.victim_score, d.one_count) > wide{d.challenger_score});
}
inline bool victim_must_be_hotter(duel const& d) noexcept {
  return !(d.victim_heat >= 2 && wide{d.victim_score} > margin(d.challenger_score, d.one_count));
}

}  // namespace rule

/// Duels at and around every threshold of the shipped guards: equality, one off on either side, the heat gate,
/// the marks, small and 64-bit scores, and counts of 1 and of 256 units.
inline std::vector<duel> boundary_duels() {
  std::vector<duel> list;
  u64 const scores[] = {0,       1,       2,     3,         4,         5,          255,        256,
                        257,     511,     512,   513,       767,       1024,       1279,       1280,
                        1535,    1664,    2048,  65'535,    65'536,    0x7FFF'FFFFull, 0xFFFF'FFFEull,
                        0xFFFF'FFFFull, 0x1'0000'0000ull, 0xFF'FFFF'FF00ull};
  for (u64 const one : {u64{1}, u64{256}}) {
    for (u64 const base : scores) {
      u64 const edge = base + base / 4 + 4 * one;
      for (u64 const other : {u64{0}, base, base + 1, base + 4 * one, base + base / 4, edge - 1, edge, edge + 1,
                              edge + one, 2 * edge}) {
        for (u32 const heat : {0u, 1u, 2u, 3u, u32_max}) {
          for (bool const spare : {false, true}) {
            list.push_back({base, other, one, heat, spare});
            list.push_back({other, base, one, heat, spare});
          }
        }
      }
    }
  }
  return list;
}

/// The duels on which a guard and a rule differ; empty for a guard that keeps it.
template <class Guard, class Rule>
std::vector<duel> disagreements(Guard const& guard, Rule&& rule_of_guard) {
  std::vector<duel> list;
  for (duel const& d : boundary_duels()) {
    if (guard.permits(d) != rule_of_guard(d)) {
      list.push_back(d);
    }
  }
  return list;
}

/// Guards with one mistake each, as they have been made in the field. A suite that lets one live is blind.
namespace mutant {

/// What every mutant says of itself.
struct gated {
  static constexpr bool needs_heat = true;
  static constexpr bool keeps_reserve = false;
};
struct reserving {
  static constexpr bool needs_heat = false;
  static constexpr bool keeps_reserve = true;
};

inline u64 margin(u64 score, u64 one_count) noexcept { return score + (score >> 2) + 4 * one_count; }

// ---- of challenger_must_win ------------------------------------------------------------------------------

struct inverted : gated {
  static constexpr char const* name = "challenger_must_win, inverted";
  bool permits(duel const& d) const noexcept { return d.challenger_score <= margin(d.victim_score, d.one_count); }
};
struct equality_wins : gated {
  static constexpr char const* name = "challenger_must_win, >= for >";
  bool permits(duel const& d) const noexcept { return d.challenger_score >= margin(d.victim_score, d.one_count); }
};
struct no_margin : gated {
  static constexpr char const* name = "challenger_must_win, without the margin";
  bool permits(duel const& d) const noexcept { return d.challenger_score > d.victim_score; }
};
struct no_quarter : gated {
  static constexpr char const* name = "challenger_must_win, margin without the quarter";
  bool permits(duel const& d) const noexcept { return d.challenger_score > d.victim_score + 4 * d.one_count; }
};
struct no_counts : gated {
  static constexpr char const* name = "challenger_must_win, margin without the four counts";
  bool permits(duel const& d) const noexcept { return d.challenger_score > d.victim_score + (d.victim_score >> 2); }
};
struct four_units : gated {
  static constexpr char const* name = "challenger_must_win, four units for four counts";
  bool permits(duel const& d) const noexcept { return d.challenger_score > margin(d.victim_score, 1); }
};
struct narrow : gated {
  static constexpr char const* name = "challenger_must_win, in 32 bits";
  bool permits(duel const& d) const noexcept {
    u32 const v = static_cast<u32>(d.victim_score);
    return static_cast<u32>(d.challenger_score) > v + v / 4 + 4 * static_cast<u32>(d.one_count);
  }
};
struct swapped : gated {
  static constexpr char const* name = "challenger_must_win, victim and challenger swapped";
  bool permits(duel const& d) const noexcept { return d.victim_score > margin(d.challenger_score, d.one_count); }
};
struct margin_on_challenger : gated {
  static constexpr char const* name = "challenger_must_win, margin given to the challenger";
  bool permits(duel const& d) const noexcept { return margin(d.challenger_score, d.one_count) > d.victim_score; }
};
struct off_by_one : gated {
  static constexpr char const* name = "challenger_must_win, off by one unit";
  bool permits(duel const& d) const noexcept { return d.challenger_score > margin(d.victim_score, d.one_count) + 1; }
};

// ---- of warm_then_challenger_must_win --------------------------------------------------------------------

struct no_gate : gated {
  static constexpr char const* name = "warm_then_challenger_must_win, without the heat gate";
  bool permits(duel const& d) const noexcept { return margin(d.victim_score, d.one_count) <= d.challenger_score; }
};
struct gate_at_one : gated {
  static constexpr char const* name = "warm_then_challenger_must_win, heat 1 for 2";
  bool permits(duel const& d) const noexcept {
    return d.victim_heat < 1 || margin(d.victim_score, d.one_count) <= d.challenger_score;
  }
};
struct gate_at_three : gated {
  static constexpr char const* name = "warm_then_challenger_must_win, heat 3 for 2";
  bool permits(duel const& d) const noexcept {
    return d.victim_heat <= 2 || margin(d.victim_score, d.one_count) <= d.challenger_score;
  }
};
struct gate_inverted : gated {
  static constexpr char const* name = "warm_then_challenger_must_win, gate inverted";
  bool permits(duel const& d) const noexcept {
    return d.victim_heat >= 2 || margin(d.victim_score, d.one_count) <= d.challenger_score;
  }
};
struct equality_loses : gated {
  static constexpr char const* name = "warm_then_challenger_must_win, < for <=";
  bool permits(duel const& d) const noexcept {
    return d.victim_heat < 2 || margin(d.victim_score, d.one_count) < d.challenger_score;
  }
};
struct gate_and : gated {
  static constexpr char const* name = "warm_then_challenger_must_win, && for ||";
  bool permits(duel const& d) const noexcept {
    return d.victim_heat < 2 && margin(d.victim_score, d.one_count) <= d.challenger_score;
  }
};

// ---- of victim_must_be_hotter ----------------------------------------------------------------------------

struct as_the_code_did : gated {
  static constexpr char const* name = "victim_must_be_hotter, as warm_then_challenger_must_win";
  bool permits(duel const& d) const noexcept { return rule::warm_then_challenger_must_win(d); }
};
struct hotter_equality : gated {
  static constexpr char const* name = "victim_must_be_hotter, < for <=";
  bool permits(duel const& d) const noexcept {
    return d.victim_heat < 2 || d.victim_score < margin(d.challenger_score, d.one_count);
  }
};
struct hotter_no_gate : gated {
  static constexpr char const* name = "victim_must_be_hotter, without the heat gate";
  bool permits(duel const& d) const noexcept { return d.victim_score <= margin(d.challenger_score, d.one_count); }
};
struct hotter_no_margin : gated {
  static constexpr char const* name = "victim_must_be_hotter, without the margin";
  bool permits(duel const& d) const noexcept { return d.victim_heat < 2 || d.victim_score <= d.challenger_score; }
};

// ---- of spare_only and none ------------------------------------------------------------------------------

struct spare_ignored : reserving {
  static constexpr char const* name = "spare_only, the mark ignored";
  bool permits(duel const& d) const noexcept { return d.victim_heat == 0; }
};
struct spare_inverted : reserving {
  static constexpr char const* name = "spare_only, inverted";
  bool permits(duel const& d) const noexcept { return !d.victim_spare; }
};
struct always_yes : reserving {
  static constexpr char const* name = "spare_only, always yes";
  bool permits(duel const&) const noexcept { return true; }
};
struct always_no : reserving {
  static constexpr char const* name = "spare_only, always no";
  bool permits(duel const&) const noexcept { return false; }
};
struct cold_is_spare : reserving {
  static constexpr char const* name = "spare_only, a cold resident taken for a spare";
  bool permits(duel const& d) const noexcept { return d.victim_spare || d.victim_heat == 0; }
};

// ---- of all_of -------------------------------------------------------------------------------------------

template <class... Guards>
struct any_of : gated {
  static constexpr char const* name = "all_of, as any of";
  bool permits(duel const& d) const noexcept { return (false || ... || Guards{}.permits(d)); }
};
template <class First, class... Rest>
struct first_of : gated {
  static constexpr char const* name = "all_of, the first alone";
  bool permits(duel const& d) const noexcept { return First{}.permits(d); }
};

}  // namespace mutant
}  // namespace warmset::kit
