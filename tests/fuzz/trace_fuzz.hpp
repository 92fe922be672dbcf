// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include <warmset/trace/oracle.hpp>
#include <warmset/trace/read.hpp>

namespace fuzz {

inline void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

/// Reads; what is accepted must survive the round trip through Warmset's own format, play through
/// the oracles and obey the law of their counts. A format_error is the only answer besides.
template <class Read>
void read_and_use(Read&& read) {
  using namespace warmset;
  try {
    trace::recording const r = read();
    std::vector<std::byte> const bytes = trace::write_warmset(r);
    require(trace::write_warmset(trace::read_warmset(bytes)) == bytes);
    u64 experts = 0;
    for (layer_geometry const& layer : r.geometry().layers()) {
      experts += layer.n_experts;
    }
    if (r.n_events() > 2000 || experts > 4096) {
      return;  // slow, and nothing new
    }
    u64 const lookups = trace::count_lookups(r);
    trace::next_uses const uses(r);
    u64 const n = 1 + bytes.size() % 7;
    for (trace::capacity room :
         {trace::capacity::slots_per_layer(n), trace::capacity::shared_slots(n),
          trace::capacity::shared_bytes(n * r.geometry().layers()[0].expert_bytes())}) {
      trace::oracle_counts const must = trace::belady(uses, room).total();
      trace::oracle_counts const may = trace::belady_bypass(uses, room).total();
      trace::oracle_counts const strict = trace::belady_bypass_strict(uses, room).total();
      require(must.lookups() == lookups && may.lookups() == lookups && strict.lookups() == lookups);
      require(must.bypasses == 0);
      require(must.evictions <= must.installs);
      if (room.in != trace::capacity::unit::shared_bytes && must.overflow_events == 0) {
        require(may.hits >= must.hits && may.hits >= strict.hits);
      }
    }
    trace::recording const wide = trace::rebatch(r, phase::prefill, 3);
    require(wide.ids().size() == r.ids().size());
  } catch (trace::format_error const&) {
  }
}

}  // namespace fuzz
