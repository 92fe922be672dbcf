// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "export.hpp"

namespace warmset::inline v0 {

namespace detail {

/// Writes families of the text exposition format, version 0.0.4.
template <text_sink Sink>
class prometheus_writer {
 public:
  prometheus_writer(Sink& sink, array_view<export_label const> labels) noexcept
      : out_(sink), labels_(labels) {}

  /// HELP and TYPE of a counter's family: warmset_<name>_<unit>_total.
  void counter_family(counter_info const& info) {
    header(info.help, "counter", [&] { counter_name(info); });
  }
  void counter(counter_info const& info, phase p, layer_id const* layer, u64 value) {
    counter_name(info);
    begin();
    label("phase", name_of(p));
    if (info.intent != counted_for::neither) {
      label("intent", name_of(info.intent));
    }
    if (info.label[0] != '\0') {
      label(info.label, info.label_value);
    }
    if (layer != nullptr) {
      comma();
      out_.put("layer=\"").put(layer->value).put('"');
    }
    end().put(value).put('\n');
  }

  void gauge_family(char const* name, char const* help) {
    header(help, "gauge", [&] { out_.put("warmset_").put(name); });
  }
  void gauge(char const* name, u64 value, char const* key = nullptr, char const* text = nullptr,
             char const* key2 = nullptr, char const* text2 = nullptr) {
    begin_gauge(name, key, text, key2, text2).put(value).put('\n');
  }
  void gauge_q16(char const* name, u32 value) {
    begin_gauge(name, nullptr, nullptr, nullptr, nullptr).put_q16(value).put('\n');
  }
  void simple(char const* name, char const* help, u64 value) {
    gauge_family(name, help);
    gauge(name, value);
  }

  void flush() { out_.flush(); }

 private:
  void counter_name(counter_info const& info) {
    out_.put("warmset_").put(info.name).put('_').put_identifier(info.unit).put("_total");
  }
  template <class Name>
  void header(char const* help, char const* type, Name&& name) {
    out_.put("# HELP ");
    name();
    out_.put(' ');
    for (; *help != '\0'; ++help) {
      *help == '\\' ? out_.put("\\\\") : *help == '\n' ? out_.put("\\n") : out_.put(*help);
    }
    out_.put("\n# TYPE ");
    name();
    out_.put(' ').put(type).put('\n');
  }
  text_writer<Sink>& begin_gauge(char const* name, char const* key, char const* text,
                                 char const* key2, char const* text2) {
    out_.put("warmset_").put(name);
    begin();
    if (key != nullptr) {
      label(key, text);
    }
    if (key2 != nullptr) {
      label(key2, text2);
    }
    return end();
  }
  void begin() {
    any_ = false;
    for (export_label const& l : labels_) {
      label(l.name(), l.value());
    }
  }
  void comma() {
    out_.put(any_ ? ',' : '{');
    any_ = true;
  }
  void label(char const* name, char const* value) {
    comma();
    out_.put(name).put("=\"");
    for (; *value != '\0'; ++value) {
      *value == '\\'   ? out_.put("\\\\")
      : *value == '"'  ? out_.put("\\\"")
      : *value == '\n' ? out_.put("\\n")
                       : out_.put(*value);
    }
    out_.put('"');
  }
  text_writer<Sink>& end() { return out_.put(any_ ? "} " : " "); }

  text_writer<Sink> out_;
  array_view<export_label const> labels_;
  bool any_ = false;
};

template <class Writer>
void prometheus_health(Writer& out, health_report const& h) {
  out.gauge_family("health", "1 for the state that holds, 0 for the others.");
  for (u32 i = 0; i < n_health_states; ++i) {
    health_state const s = static_cast<health_state>(i);
    out.gauge("health", s == h.state ? 1 : 0, "state", name_of(s));
  }
  out.gauge_family("health_condition", "1 for each condition that is raised, 0 for the others.");
  for (u32 i = 0; i < n_health_conditions; ++i) {
    condition_report const& c = h.conditions[i];
    out.gauge("health_condition", c.raised ? 1 : 0, "condition",
              name_of(static_cast<health_condition>(i)), "reason",
              name_of(c.cause != reason::none ? c.cause : c.why));
  }
  out.simple("health_since_steps", "Steps of layers until this state was entered.", h.since_step);
  out.simple("producers_may_stop", "1 where what predictors cost is wasted.",
             h.producers_may_stop() ? 1 : 0);
  out.gauge_family("drop_ratio",
                   "Share of the hints wanting a copy that got none, in the last window.");
  out.gauge_q16("drop_ratio", h.drop_rate_q16);
  out.simple("useful_hit_bytes", "Speculated bytes per expert of use, in the last window.",
             h.bytes_per_useful_hit);
  out.simple("budget_requested_bytes", "Bytes that were asked for; 0 where slots were.",
             h.requested_bytes);
  out.simple("budget_effective_bytes", "Bytes of all pools.", h.effective_bytes);
  out.simple("layers", "Layers with experts.", h.layers);
  out.simple("layers_covered", "Layers in the cache.", h.layers_covered);
}

}  // namespace detail

/// Writes Prometheus text, format 0.0.4. Totals alone: a delta is no counter that a scraper could read. Each
/// family has HELP, TYPE and its samples together; names end in the unit and, for counters, in `_total`.
/// Numbers are integers in full; a scraper keeps 53 bits of them.
template <text_sink Sink>
void write_prometheus(export_source<total_span> const& from, Sink&& sink) {
  detail::prometheus_writer out{sink, from.labels};
  total_counters const sums[] = {from.counters.sum(phase::prefill),
                                 from.counters.sum(phase::decode)};
  for (u32 c = 0; c < n_counters; ++c) {
    if (c == 0 || !registry[c].same_family(registry[c - 1])) {
      out.counter_family(registry[c]);
    }
    detail::for_each_number(from, sums, c, [&](layer_id const* layer, phase p, u64 value) {
      out.counter(registry[c], p, layer, value);
    });
  }
  if (from.predictions != nullptr) {
    recall_counts const by_phase[] = {from.predictions->total(phase::prefill),
                                      from.predictions->total(phase::decode)};
    u32 c = 0;
    for_each_counter(by_phase[0], [&](counter_info const& info, auto prefill) {
      out.counter_family(info);
      out.counter(info, phase::prefill, nullptr, prefill.value);
      out.counter(info, phase::decode, nullptr, value_of(by_phase[1], c));
      ++c;
    });
  }
  if (from.health != nullptr) {
    detail::prometheus_health(out, *from.health);
  }
  out.flush();
}

}  // namespace warmset::inline v0
