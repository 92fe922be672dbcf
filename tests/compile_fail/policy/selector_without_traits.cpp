// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the selector lacks asks_again, host_only or a name
// SPDX-License-Identifier: Apache-2.0
#include "warmset/table/bundles.hpp"
#include "warmset/table/table.hpp"

using namespace warmset;

struct my_selector {
  using pool_state = no_state;
  using slot_state = no_state;
  using expert_state = no_state;
  struct walk_state {
    u32 cursor;
  };
#ifdef WARMSET_TWIN_OK
  static constexpr bool asks_again = false;
  static constexpr bool host_only = false;
  static constexpr char const* name = "my_selector";
#else
  static constexpr char const* name = "my_selector";
#endif
  template <lane_group Group, class Slots>
  WARMSET_HD constexpr slot_id next(Group const&, Slots const& slots, walk_state& walk) const {
    while (walk.cursor < slots.size()) {
      u32 const s = walk.cursor++;
      if (slots.evictable(s)) {
        return {s};
      }
    }
    return no_slot;
  }
  template <class Slots>
  WARMSET_HD constexpr void apply(Slots const&, walk_state const&) const noexcept {}
  template <class Slots>
  WARMSET_HD constexpr void on_touch(Slots const&, u32) const noexcept {}
  template <class Slots>
  WARMSET_HD constexpr void on_remove(Slots const&, u32) const noexcept {}
};

struct my_policy : default_policy {
  using selector = my_selector;
};

unsigned long long size(table<my_policy> const& t) { return t.block_bytes(); }
