// SPDX-License-Identifier: Apache-2.0
#include "instruments.hpp"

#include <algorithm>
#include <chrono>

namespace warmset_decode {

using namespace warmset;

namespace {

u64 now_ns() {
  return static_cast<u64>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                              std::chrono::steady_clock::now().time_since_epoch())
                              .count());
}

/// Spans of a batch: experts of each layer one by one, and a few more.
u32 most_spans(architecture const& a) {
  return a.layers * (a.experts + 8) + 8;
}

}  // namespace

instruments::instruments(model const& m, std::vector<u32> widths, u32 hints, bool traces,
                         bool times)
    : widths_(std::move(widths)), made_(m.geometry()), has_times_(times),
      times_(most_spans(m.numbers)), traces_(traces),
      trace_width_(std::min(hints, m.numbers.experts)), k_(m.numbers.k),
      pending_(m.numbers.layers) {
  for (u32 w : widths_) {
    wanted_width_ = std::max(wanted_width_, w);
    recalls_.emplace_back(m.geometry());
  }
  if (times) {
    spans_.reserve(most_spans(m.numbers));
  }
  builder_.parts.geometry = m.geometry();
  builder_.parts.model = m.name;
  builder_.parts.source = "recorded by warmset-decode";
  builder_.parts.lookahead_width = trace_width_;
}

void instruments::predicted(u32 row, std::span<routed_id const> experts) {
  made_.predicted(row, experts.first(std::min<std::size_t>(trace_width_, experts.size())));
  for (std::size_t i = 0; i < widths_.size(); ++i) {
    recalls_[i].predicted(row, experts.first(std::min<std::size_t>(widths_[i], experts.size())));
  }
  if (traces_) {
    pending_[row].clear();
    for (routed_id id : experts.first(std::min<std::size_t>(trace_width_, experts.size()))) {
      pending_[row].push_back(static_cast<u16>(id));
    }
  }
}

void instruments::copied(u32 row, u32 expert) {
  made_.copied(row, expert_id{expert});
}

void instruments::served(u32 row, phase p, array_view<u32 const> experts,
                         array_view<access_kind const> how) {
  made_.used(row, p, experts, how);
  for (recall& r : recalls_) {
    r.used(row, p, experts, how);
  }
}

void instruments::routed(u32 row, u32 position, phase p, std::span<u32 const> tokens,
                         std::span<routed_id const> ids, std::span<float const> weights) {
  if (!traces_) {
    return;
  }
  std::vector<u16> chosen(ids.begin(), ids.end());
  builder_.add(sequence_, position, p, row, static_cast<u32>(tokens.size()), k_, chosen, tokens);
  builder_.parts.weights.insert(builder_.parts.weights.end(), weights.begin(), weights.end());
  pending_[row].resize(trace_width_,
                       trace::padding);  // of a batch the first token alone has a prediction
  auto& column = builder_.parts.lookahead;
  column.insert(column.end(), pending_[row].begin(), pending_[row].end());
  column.insert(column.end(), (tokens.size() - 1) * trace_width_, trace::padding);
  pending_[row].clear();
}

void instruments::start_sequence(std::string label) {
  sequence_ = n_sequences_++;
  if (traces_) {
    builder_.parts.labels.push_back({sequence_, std::move(label)});
  }
}

trace::contents instruments::take_trace() {
  return builder_.take();
}

void instruments::begin_batch() {
  if (has_times_) {
    spans_.clear();
    batch_begin_ = now_ns();
  }
}

void instruments::end_batch() {
  if (has_times_ && !times_.add_step(batch_begin_, now_ns(), spans_)) {
    times_.switch_off("a step had more parts than the table has room for");
  }
}

instruments::timer::timer(instruments* of, time_row row)
    : of_(of != nullptr && of->has_times_ ? of : nullptr), row_(row) {
  begin_ = of_ != nullptr ? now_ns() : 0;
}

instruments::timer::~timer() {
  if (of_ != nullptr) {
    of_->spans_.push_back({row_, begin_, now_ns()});
  }
}

}  // namespace warmset_decode
