// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the gate must satisfy cache_gate
// SPDX-License-Identifier: Apache-2.0
#include "warmset/cache.hpp"

using namespace warmset;

struct my_gate {
  static constexpr bool speculates = true;
  void open(u32) {}
  u32 epoch(u32) const noexcept { return 0; }
  gate::pass enter(u32, u32 const&, gate::purpose) noexcept { return {}; }
#ifdef WARMSET_TWIN_OK
  void leave(u32) noexcept {}
#endif
  gate::pass look(u32, gate::purpose) const noexcept { return {}; }
};

bool is_on(cache<default_policy, move::external, observe::counting, my_gate> const& c) { return c.enabled; }
