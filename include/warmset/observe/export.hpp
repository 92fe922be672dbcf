// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "health.hpp"
#include "recall.hpp"
#include "registry.hpp"
#include "snapshot.hpp"
#include "text_writer.hpp"

namespace warmset::inline v0 {

/// A name and a value that stand beside every number of an export, such as the model's name. The texts must
/// outlive it.
class export_label {
 public:
  /// Throws config_error where the name is not [a-zA-Z_][a-zA-Z0-9_]*, begins with two underscores, or is one
  /// that exports use themselves.
  export_label(char const* name, char const* value) : name_(name), value_(value) {
    bool valid = name[0] != '\0' && !(name[0] >= '0' && name[0] <= '9') &&
                 !(name[0] == '_' && name[1] == '_');
    for (char const* c = name; *c != '\0'; ++c) {
      valid = valid && ((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                        (*c >= '0' && *c <= '9') || *c == '_');
    }
    for (char const* own :
         {"phase", "layer", "intent", "source", "reason", "state", "condition", "span", "health",
          "since_step", "step", "drop_rate", "bytes_per_useful_hit"}) {
      valid = valid && !equal(name, own);
    }
    for (u32 i = 0; i < n_health_conditions; ++i) {
      valid = valid && !equal(name, name_of(static_cast<health_condition>(i)));
    }
    if (!valid) {
      throw config_error("'", name, "' is no name for a label, or one that exports use themselves");
    }
  }

  char const* name() const noexcept { return name_; }
  char const* value() const noexcept { return value_; }
  bool is_named_as(export_label const& other) const noexcept { return equal(name_, other.name_); }

 private:
  static bool equal(char const* a, char const* b) noexcept {
    for (; *a != '\0' && *a == *b; ++a, ++b) {
    }
    return *a == *b;
  }

  char const* name_;
  char const* value_;
};

/// The labels of an export, which somebody else owns. Throws config_error where two have one name.
class export_labels : public array_view<export_label const> {
 public:
  export_labels() = default;
  export_labels(array_view<export_label const> labels) : array_view<export_label const>(labels) {
    for (std::size_t i = 0; i < labels.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (labels[i].is_named_as(labels[j])) {
          throw config_error("two labels of an export are named '", labels[i].name(), "'");
        }
      }
    }
  }
  template <class Labels>
  requires std::is_convertible_v<Labels&&, array_view<export_label const>>
  export_labels(Labels&& labels) : export_labels(array_view<export_label const>(labels)) {}
  export_labels(export_label const* first, std::size_t n)
      : export_labels(array_view<export_label const>(first, n)) {}
};

/// What an export is made of. Only the counters must be there.
template <class Span>
struct export_source {
  basic_snapshot<Span> const& counters;
  health_report const* health = nullptr;
  recall const* predictions = nullptr;  ///< totals, whatever the span of the counters
  export_labels labels{};
  bool per_layer = false;  ///< a number per layer instead of their sum
};

template <class Span>
export_source(basic_snapshot<Span> const&) -> export_source<Span>;
template <class Span>
export_source(basic_snapshot<Span> const&, health_report const*) -> export_source<Span>;

namespace detail {

inline constexpr phase all_phases[] = {phase::prefill, phase::decode};

/// Calls f(layer or nullptr, phase, value) for each number of one counter that an export shows.
template <class Span, class F>
void for_each_number(export_source<Span> const& from, basic_counters<Span> const (&sums)[n_phases],
                     u32 index, F&& f) {
  for (phase const p : all_phases) {
    if (!from.per_layer) {
      f(static_cast<layer_id const*>(nullptr), p, value_of(sums[static_cast<u32>(p)], index));
      continue;
    }
    for (u32 i = 0; i < from.counters.n_layers(); ++i) {
      layer_id const layer = from.counters.layer(i);
      f(&layer, p, value_of(from.counters.at(i, p), index));
    }
  }
}

}  // namespace detail
}  // namespace warmset::inline v0
