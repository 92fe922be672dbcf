// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "arms.hpp"
#include "instruments.hpp"

namespace warmset_decode {

/// What a run was asked for and what came of it, for reports.
struct run_facts {
  model const& of;
  device_options const& options;
  std::string const& prompt;
  std::size_t prompt_tokens;
  generation const& made;
  std::string const& text;
  device_report const& report;
  instruments const& tools;
};

std::string to_json(run_facts const& run);
/// The cache's counters and health on one line.
std::string log_line(run_facts const& run);
/// The state, why, and every condition that is raised.
std::string health_text(device_report const& report);
/// Precision and coverage of the look-ahead, by width and layer; layers without a prediction are left out.
std::string recall_table(instruments const& tools, u32 n_layers);
/// Where the time of a step went, prompt and decode together.
std::string phase_text(warmset::phase_table const& times);
std::string hash_text(u64 hash);

/// The arms side by side, a line each.
std::string arms_table(std::span<arm const> arms);

}  // namespace warmset_decode
