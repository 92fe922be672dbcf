// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <vector>

#include "streamer.hpp"

namespace warmset_llama {

/// How experts are served in a run.
enum class way {
  stock,  ///< llama.cpp as it is
  idle,   ///< with a callback that stops where the pool's does, and does nothing
  pool    ///< from slots
};

/// What one run computed, and what it took.
struct run_result {
  std::vector<float> logits;         ///< of every output, where they are kept
  std::vector<std::string> texts;    ///< generated, by sequence
  std::array<double, 2> seconds{};   ///< of decodes, by phase
  double cpu_seconds = 0;            ///< of all threads in decodes: what others do on the machine is not in it
  std::array<u64, 2> tokens{};       ///< by phase
  // of the pool alone
  u64 served_steps = 0;
  u64 overflow_steps = 0;
  u64 bytes_copied = 0;
  u64 pool_bytes = 0;
  std::array<warmset::total_counters, 2> counters{};  ///< by phase
  bool is_sound = true;

  double hit_rate() const noexcept { return (counters[0] + counters[1]).hit_rate(); }
  double total_seconds() const noexcept { return seconds[0] + seconds[1]; }
};

/// A policy and its slots per layer.
struct pool_options {
  std::string policy = "successor";
  u32 slots = 0;
};

/// Runs sequences in one of the ways, from a cold pool.
///
/// @param on_pass  called after each decode; may be empty
run_result run_once(model const& m, std::vector<expert_layer> const& layers,
                    std::vector<sequence> const& all, text_options const& o, way how,
                    pool_options const& pool, bool keeps_logits,
                    std::function<void()> const& on_pass = {});

}  // namespace warmset_llama
