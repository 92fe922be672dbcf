// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <warmset/core/integers.hpp>

namespace differential {

using warmset::u16;
using warmset::u32;
using warmset::u64;

/// Whether this machine can run what the tests launch.
bool gpu_is_there();

/// One layer's recorded steps.
struct recorded_steps {
  std::vector<u16> ids;        ///< [n_steps][k]
  std::vector<u32> sequences;  ///< [n_steps]
  u32 k = 0;
  u32 n_experts = 0;

  u32 n_steps() const { return k == 0 ? 0 : static_cast<u32>(ids.size() / k); }
};

/// What is played on the device and on the host.
struct options {
  u32 n_steps = 0;                      ///< of each bundle
  recorded_steps const* recorded = nullptr;  ///< null: random steps of a small pool
  u32 flips_at = warmset::u32_max;      ///< the device turns a bit of its block before the digest of this step
};

/// What came of one bundle.
struct verdict {
  std::string bundle;
  std::string error;       ///< of the runtime; empty: none
  u64 compared = 0;        ///< steps whose digests were compared
  u64 planned = 0;         ///< steps that the device committed
  u64 first_difference = 0;  ///< the first step whose digests differ; `compared` where none does
  bool blocks_equal = true;  ///< block, counters and arrival words, every 1,000 steps and at the end
  bool audited = false;

  /// Whether the two decided alike, and decided anything.
  bool holds() const {
    return error.empty() && compared != 0 && planned != 0 && first_difference == compared && blocks_equal && audited;
  }
};

/// Every bundle that a kernel can run, by a warp; side by side, each in a stream of its own.
std::vector<verdict> play_all(options const& o);

/// Some of them, by a block of four warps.
std::vector<verdict> play_blocks(options const& o);

}  // namespace differential
