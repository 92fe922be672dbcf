// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <vector>

#include "model_geometry.hpp"
#include "report.hpp"

namespace warmset_tools {

/// What llama.cpp's own expert cache (`--moe-cache-mib`) would do with a trace, by a model of its rules: layers of equal
/// experts share slots, of which one entry guards the end, and one class_lru; batches of more than 32 tokens, or that might
/// need more experts than there are slots, read what is resident and change nothing; `--moe-cache-cpu-share` of the misses
/// are computed by the host once the slots are full.
struct upstream_cache {
  u64 mib = 0;             ///< of --moe-cache-mib
  double cpu_share = 0;    ///< of --moe-cache-cpu-share
  u64 slots = 0;           ///< of all layers
  std::array<u64, warmset::n_phases> lookups{};
  std::array<u64, warmset::n_phases> hits{};
  std::array<u64, warmset::n_phases> bytes{};  ///< over the link
  u64 bypassed = 0;        ///< steps
  double stall_ms = 0;     ///< of decode: the slower of link and host, step by step

  double hit_rate(warmset::phase p) const noexcept {
    std::size_t const i = static_cast<std::size_t>(p);
    return lookups[i] == 0 ? 0.0 : static_cast<double>(hits[i]) / static_cast<double>(lookups[i]);
  }
};

/// Plays a recording through that model.
///
/// @param cpu_gbps  rate at which the host computes experts in its memory, 10^9 bytes per second; 0: it computes none
///
/// Throws usage_error where `mib` holds too little for a step.
upstream_cache play_upstream(warmset::trace::recording const& r, u64 mib, double cpu_share,
                             time_model const& time, double cpu_gbps);

/// The same for a Warmset cache with the score `successor` over a pool of all layers, which lets nothing go past: what a
/// policy is worth where the host takes its share.
upstream_cache play_split(warmset::trace::recording const& r, u64 mib, double cpu_share,
                          time_model const& time, double cpu_gbps);

/// The recording with the layers of a model. Throws usage_error where they are not those of the recording.
warmset::trace::recording with_model(warmset::trace::recording const& r, std::string const& trace_path,
                                     warmset::geometry const& model, std::string const& model_path,
                                     std::vector<std::string>& warnings);

/// What `tune` found out.
struct tuning_report {
  std::string model_path;
  std::string model_name;
  double vram_mib = 0;
  double cpu_gbps = 0;
  std::vector<upstream_cache> upstream = {};  ///< one for each share of the host
  std::size_t best_upstream = 0;              ///< of them, by tokens per second in decode
  std::vector<upstream_cache> split = {};     ///< Warmset's, with the same shares; empty where the host computes none
  std::size_t best_split = 0;
};

json to_json(tuning_report const& t, report const& r);
std::string to_text(tuning_report const& t, report const& r);
/// Tokens of decode per second, for a stall of so many milliseconds in all of it.
double tokens_per_second(report const& r, double stall_ms);

}  // namespace warmset_tools
