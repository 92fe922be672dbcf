// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <warmset/observe/phase_table.hpp>
#include <warmset/observe/recall.hpp>
#include <warmset/trace/builder.hpp>

#include "model.hpp"
#include "retention.hpp"

namespace warmset_decode {

/// What looks on while a device works: recall by width, the trace of the run, the phase table. Each is on only
/// where it is asked for; none changes what the device does, but that a predictor is asked at every step where recall
/// wants it.
class instruments {
 public:
  /// @param widths  of look-ahead for which recall is judged; none = no recall
  instruments(model const& m, std::vector<u32> widths, u32 hints, bool traces, bool times);

  // ---- what a device tells

  /// Whether the predictor is to be asked even where no hint may be issued, and how wide.
  u32 wanted_width() const noexcept { return wanted_width_; }
  void predicted(u32 row, std::span<warmset::routed_id const> experts);
  void copied(u32 row, u32 expert);
  /// A step of a layer was served.
  void served(u32 row, warmset::phase p, warmset::array_view<u32 const> experts,
              warmset::array_view<warmset::access_kind const> how);
  /// What the router chose: ids and weights of [tokens][k].
  void routed(u32 row, u32 position, warmset::phase p, std::span<u32 const> tokens,
              std::span<warmset::routed_id const> ids, std::span<float const> weights);

  /// Where the samples of the routers are to go; null = nowhere.
  retention_samples* samples() const noexcept { return samples_; }
  /// The keys that go to the cache with a step.
  void keyed(u32 row, std::span<i32 const> keys) {
    if (on_keys) {
      on_keys(row, keys);
    }
  }

  /// Notes the time of its life as a span of this row, where times are wanted.
  class timer {
   public:
    timer(instruments* of, warmset::time_row row);
    timer(timer const&) = delete;
    ~timer();

   private:
    instruments* of_;
    warmset::time_row row_;
    u64 begin_;
  };
  void begin_batch();
  void end_batch();
  /// Where a device that times its steps by itself hands the times to; null where nobody wants them.
  warmset::phase_table* device_times() noexcept { return has_times_ ? &times_ : nullptr; }

  // ---- what a person reads

  std::vector<u32> const& widths() const noexcept { return widths_; }
  /// Of the width at that place of `widths`.
  warmset::recall const& recall_at(std::size_t i) const noexcept { return recalls_[i]; }
  /// Of the hints as they were made, with what was copied because of them.
  warmset::recall const& made() const noexcept { return made_; }
  warmset::phase_table const& times() const noexcept { return times_; }
  void start_sequence(std::string label);
  /// Collects samples from now on. They must outlive the work.
  void collect(retention_samples& to) noexcept { samples_ = &to; }
  std::function<void(u32 row, std::span<i32 const> keys)> on_keys;
  /// The run as a trace, with the predictions. The recording is empty afterwards.
  warmset::trace::contents take_trace();

 private:
  retention_samples* samples_ = nullptr;
  std::vector<u32> widths_;
  u32 wanted_width_ = 0;
  std::vector<warmset::recall> recalls_;
  warmset::recall made_;
  bool has_times_;
  warmset::phase_table times_;
  std::vector<warmset::time_span> spans_;
  u64 batch_begin_ = 0;
  bool traces_;
  u32 trace_width_;
  u32 sequence_ = 0;
  u32 n_sequences_ = 0;
  u32 k_;
  warmset::trace::builder builder_;
  std::vector<std::vector<warmset::u16>> pending_;  // predictions for the next step, by row
};

}  // namespace warmset_decode
