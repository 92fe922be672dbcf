// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "export.hpp"

namespace warmset::inline v0 {

namespace detail {

/// phase.name.label.unit=value; nothing for 0.
template <class Writer>
void log_number(Writer& out, phase p, counter_info const& info, bool names_intent, u64 value) {
  if (value == 0) {
    return;
  }
  out.put(' ').put(name_of(p)).put('.').put(info.name);
  if (info.label[0] != '\0') {
    out.put('.').put(info.label_value);
  } else if (names_intent) {
    out.put('.').put(name_of(info.intent));
  }
  out.put('.').put_identifier(info.unit).put('=').put(value);
}

}  // namespace detail

/// Writes one line of key=value pairs, ended by a newline, summed over the layers: first the health, then every
/// counter that is not 0 as `phase.name.label.unit=value`. A counter that is absent is 0. Made for people and
/// for tools that split at blanks: only label values can hold blanks, and they are quoted.
template <class Span, text_sink Sink>
void write_log_line(export_source<Span> const& from, Sink&& sink) {
  text_writer out{sink};
  out.put("warmset span=").put(std::same_as<Span, total_span> ? "total" : "delta");
  for (export_label const& l : from.labels) {
    out.put(' ').put(l.name()).put('=').put_quoted(l.value());
  }
  if (health_report const* const h = from.health; h != nullptr) {
    out.put(" health=").put(name_of(h->state)).put(" reason=").put(name_of(h->why));
    out.put(" since_step=").put(h->since_step).put(" step=").put(h->step);
    out.put(" drop_rate=").put_q16(h->drop_rate_q16);
    out.put(" bytes_per_useful_hit=").put(h->bytes_per_useful_hit);
    for (u32 i = 0; i < n_health_conditions; ++i) {
      condition_report const& c = h->conditions[i];
      if (c.raised) {
        out.put(' ').put(name_of(static_cast<health_condition>(i))).put('=').put(name_of(c.why));
        if (c.cause != reason::none) {
          out.put('/').put(name_of(c.cause));
        }
        out.put(',').put(c.count).put('/').put(c.of);
      }
    }
  }
  for (phase const p : detail::all_phases) {
    basic_counters<Span> const sum = from.counters.sum(p);
    for (u32 c = 0; c < n_counters; ++c) {
      bool const pair = (c + 1 < n_counters && registry[c].same_family(registry[c + 1])) ||
                        (c != 0 && registry[c].same_family(registry[c - 1]));
      detail::log_number(out, p, registry[c], pair, value_of(sum, c));
    }
    if (from.predictions != nullptr) {
      for_each_counter(from.predictions->total(p), [&](counter_info const& info, auto value) {
        detail::log_number(out, p, info, false, value.value);
      });
    }
  }
  out.put('\n');
  out.flush();
}

}  // namespace warmset::inline v0
