// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <warmset/core/integers.hpp>

namespace gpu_bench {

class report;
struct model_routes;

struct decode_options {
  double resident = 0.25;                              ///< part of each layer's experts that has a slot
  warmset::u64 dense_bytes = warmset::u64{8} << 20;    ///< weights of a layer that are no experts
  warmset::u32 warm_up = 24;                           ///< steps that are not timed
  warmset::u32 most_steps = 120;
  warmset::u32 pairs = 30;                             ///< rounds of on and off in turn, at most; 0: none
  double pair_seconds = 100;                           ///< after which no round begins, but for the first three
  warmset::u32 pair_steps = 24;                        ///< timed steps of one arm in a round
  double recall = 0.8;                                 ///< of what stands for a look-ahead
  warmset::u64 pinned_bytes = warmset::u64{4} << 30;

  /// Steps of a mode of which enough are timed.
  warmset::u32 least_steps() const { return warm_up + 5; }
};

/// What a model's bounds are about.
struct decode_figures {
  double of_serial_floor;
  double against_practice;
  double best_with_slack;  ///< speed of the best width in that of no look-ahead; 0: not measured
};

/// Decodes with one model's shape in every mode.
decode_figures measure_decode(report& out, model_routes const& m, decode_options const& o);

}  // namespace gpu_bench
