// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>

#include <warmset/gate/governor.hpp>
#include <warmset/gate/hint_ledger.hpp>
#include <warmset/observe/health.hpp>
#include <warmset/observe/snapshot.hpp>

#include "model.hpp"

namespace warmset_decode {

class instruments;
class retention_head;

/// What a device is to do besides computing.
struct device_options {
  std::string device = "cpu";  ///< where to compute: cpu or cuda
  u32 slots = 0;               ///< experts of a layer that fit; 0 = all of them
  u32 width = 0;               ///< hints after each layer; 0 = no look-ahead
  std::string predictor = "router_lookahead";
  bool governed = true;               ///< a governor says how many of the hints are issued
  u64 hint_bytes = warmset::u64_max;  ///< most bytes that the hints of one layer may start to move
  /// Of the link to the slots, on the CPU on a virtual clock; 0 = copies take no time. A GPU is held back to it; 0 = not.
  u64 link_bytes_per_us = 0;
  u64 compute_ns = 100'000;   ///< of a layer and token, on the virtual clock
  u32 copy_failures_q16 = 0;  ///< copies of a bank that fail, on a GPU of an expert, in 1/65536
  u64 seed = 1;               ///< of the failures
  retention_head const* retention =
      nullptr;  ///< whose keys go to the cache with each step; outlives the device
};

/// What one forward pass is given: consecutive tokens of one sequence.
struct batch {
  std::span<u32 const> tokens;
  warmset::phase in_phase = warmset::phase::decode;
  bool wants_logits = true;
};

/// What a device has done since it was made. Times are those of the virtual clock; a GPU has none.
struct device_report {
  warmset::snapshot counters;
  warmset::health_report health{};
  warmset::gate::verdict judged;  ///< hints, by their own step
  warmset::gate::governor_state governor = warmset::gate::governor_state::sampling;
  u64 governor_stops = 0;
  u64 possible = 0;  ///< layers after which hints could have been made
  u64 produced = 0;  ///< of those, in which the predictor was asked
  u64 hints = 0;     ///< that it made; on a GPU those offered
  u64 loads = 0;     ///< transfers that they started
  u64 stall_ns = 0;  ///< compute waited for demanded experts
  u64 compute_ns = 0;
  u64 copies_failed = 0;  ///< banks; on a GPU experts
  u64 reads =
      0;  ///< of experts' weights, each checked for whose they are; on a GPU experts that were routed to
};

/// Where a model runs: the dense weights resident, the experts out of a cache. A sequence is one context; the cache
/// outlasts it.
class device {
 public:
  virtual ~device() = default;

  /// Appends the tokens to the sequence. Returns the logits after the last of them, which live until the next call;
  /// none where they are not wanted. Throws std::length_error where the context is full.
  virtual std::span<float const> forward(batch const& b) = 0;
  /// Begins a new sequence.
  virtual void forget() = 0;
  virtual device_report report() = 0;
};

/// The device that the options name. The model and the instruments must outlive it; throws warmset::config_error where
/// the options cannot work, and where the program or the machine has no such device.
std::unique_ptr<device> make_device(model const& m, device_options const& options,
                                    instruments* tools = nullptr);

/// The CPU. The model and the instruments must outlive it; throws warmset::config_error where the options cannot work.
std::unique_ptr<device> make_cpu_device(model const& m, device_options const& options,
                                        instruments* tools = nullptr);

/// The first GPU: the whole step of a token is one captured graph, experts come out of pools that it decides about by
/// itself, and prompts go through the same graph token by token.
std::unique_ptr<device> make_cuda_device(model const& m, device_options const& options,
                                         instruments* tools = nullptr);

}  // namespace warmset_decode
