// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "export.hpp"

namespace warmset::inline v0 {

namespace detail {

template <class Writer>
void json_member(Writer& out, char const* name) {
  out.put_quoted(name).put(':');
}

template <class Writer>
void json_info(Writer& out, counter_info const& info) {
  out.put("{\"name\":")
      .put_quoted(info.name)
      .put(",\"unit\":\"")
      .put_identifier(info.unit)
      .put('"');
  if (info.intent != counted_for::neither) {
    out.put(",\"intent\":").put_quoted(name_of(info.intent));
  }
  if (info.label[0] != '\0') {
    out.put(',').put_quoted(info.label).put(':').put_quoted(info.label_value);
  }
}

template <class Writer>
void json_health(Writer& out, health_report const& h) {
  out.put("{\"state\":")
      .put_quoted(name_of(h.state))
      .put(",\"reason\":")
      .put_quoted(name_of(h.why));
  out.put(",\"since_step\":").put(h.since_step).put(",\"step\":").put(h.step);
  out.put(",\"producers_may_stop\":")
      .put(h.producers_may_stop())
      .put(",\"probe_due\":")
      .put(h.probe_due);
  out.put(",\"hints_wanting\":").put(h.hints_wanting).put(",\"hints_issued\":").put(h.hints_issued);
  out.put(",\"drop_rate\":").put_q16(h.drop_rate_q16);
  out.put(",\"bytes_per_useful_hit\":").put(h.bytes_per_useful_hit);
  out.put(",\"requested_bytes\":")
      .put(h.requested_bytes)
      .put(",\"effective_bytes\":")
      .put(h.effective_bytes);
  out.put(",\"layers\":").put(h.layers).put(",\"layers_covered\":").put(h.layers_covered);
  out.put(",\"conditions\":[");
  bool first = true;
  for (u32 i = 0; i < n_health_conditions; ++i) {
    condition_report const& c = h.conditions[i];
    if (!c.raised) {
      continue;
    }
    out.put(first ? "" : ",")
        .put("{\"condition\":")
        .put_quoted(name_of(static_cast<health_condition>(i)));
    out.put(",\"effect\":")
        .put_quoted(name_of(c.effect))
        .put(",\"reason\":")
        .put_quoted(name_of(c.why));
    out.put(",\"cause\":").put_quoted(name_of(c.cause)).put(",\"since_step\":").put(c.since_step);
    out.put(",\"count\":").put(c.count).put(",\"of\":").put(c.of).put('}');
    first = false;
  }
  out.put("]}");
}

}  // namespace detail

/// Writes one JSON object on one line, ended by a newline: docs/observe.md has the members. Numbers are integers
/// in full, up to 2^64 − 1: read them with a parser that keeps 64 bits. O(counters² · layers where per layer).
template <class Span, text_sink Sink>
void write_json(export_source<Span> const& from, Sink&& sink) {
  text_writer out{sink};
  out.put("{\"format\":\"warmset-counters\",\"version\":1,\"span\":");
  out.put_quoted(std::same_as<Span, total_span> ? "total" : "delta");
  out.put(",\"labels\":{");
  for (std::size_t i = 0; i < from.labels.size(); ++i) {
    out.put(i == 0 ? "" : ",")
        .put_quoted(from.labels[i].name())
        .put(':')
        .put_quoted(from.labels[i].value());
  }
  out.put("},\"counters\":[");
  basic_counters<Span> const sums[] = {from.counters.sum(phase::prefill),
                                       from.counters.sum(phase::decode)};
  for (u32 c = 0; c < n_counters; ++c) {
    out.put(c == 0 ? "" : ",");
    detail::json_info(out, registry[c]);
    bool first = true;
    phase last = phase::prefill;
    detail::for_each_number(from, sums, c, [&](layer_id const* layer, phase p, u64 value) {
      if (layer == nullptr) {
        out.put(",\"").put(name_of(p)).put("\":").put(value);
        return;
      }
      if (first || p != last) {
        out.put(first ? ",\"" : "},\"").put(name_of(p)).put("\":{");
      } else {
        out.put(',');
      }
      out.put('"').put(layer->value).put("\":").put(value);
      first = false;
      last = p;
    });
    out.put(first ? "}" : "}}");
  }
  out.put(']');
  if (from.predictions != nullptr) {
    out.put(",\"recall\":[");
    recall_counts const by_phase[] = {from.predictions->total(phase::prefill),
                                      from.predictions->total(phase::decode)};
    u32 c = 0;
    for_each_counter(by_phase[0], [&](counter_info const& info, auto prefill) {
      out.put(c == 0 ? "" : ",");
      detail::json_info(out, info);
      out.put(",\"prefill\":")
          .put(prefill.value)
          .put(",\"decode\":")
          .put(value_of(by_phase[1], c))
          .put('}');
      ++c;
    });
    out.put(']');
  }
  if (from.health != nullptr) {
    out.put(",\"health\":");
    detail::json_health(out, *from.health);
  }
  out.put("}\n");
  out.flush();
}

}  // namespace warmset::inline v0
