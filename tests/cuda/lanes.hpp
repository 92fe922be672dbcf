// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <warmset/core/order_key.hpp>

namespace lanes_on_gpu {

using warmset::order_key;
using warmset::u32;

/// Whether this machine can run what the tests launch.
bool gpu_is_there();

/// What a warp came to.
struct taken {
  std::string error;             ///< of the runtime; empty: none
  std::vector<order_key> keys;   ///< in the order of their places
  u32 n = 0;                     ///< what the operation returned
  u32 calls = 0;                 ///< of `take`
};

/// warp_lanes::take_smallest of keys that lie in device memory; `may` has one entry for each.
taken take_smallest(std::vector<order_key> const& keys, std::vector<u32> const& may, u32 m);

}  // namespace lanes_on_gpu
