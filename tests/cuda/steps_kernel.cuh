// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/steps.hpp"
#include "warmset/cuda.cuh"

namespace steps {

template <class Policy>
__global__ void run_kernel(components<Policy> parts, void* block, table_shape shape, u64 block_bytes, u32 n_steps,
                           run_state<Policy>* state, script recorded, u64* digests) {
  require_device_callable<Policy, cuda::warp_lanes>();
  __shared__ cuda::warp_room<most_experts> room;
  table_writer<Policy> const view{block, shape, &parts};
  run<Policy>(cuda::warp_lanes{room}, view, block_bytes, n_steps, *state, recorded, digests);
}

/// The same by all warps of a block.
template <class Policy>
__global__ void run_block_kernel(components<Policy> parts, void* block, table_shape shape, u64 block_bytes, u32 n_steps,
                                 run_state<Policy>* state, script recorded, u64* digests) {
  require_device_callable<Policy, cuda::block_lanes>();
  __shared__ cuda::block_words words;
  table_writer<Policy> const view{block, shape, &parts};
  run<Policy>(cuda::block_lanes{words}, view, block_bytes, n_steps, *state, recorded, digests);
}

/// Bundles that a block of several warps is tried with: every kind of operation of a lane group is in them.
using for_blocks = list<bundles::of<score::lru>, of<select::coldest, guard::spare_only>,
                        of<select::first_permitted, guard::challenger_must_win>,
                        bundles::of<score::lru, select::clock<1>>,
                        bundles::shared<bundles::of<score::successor<3, i8, 8>>>,
                        bundles::admitted<bundles::of<score::successor<>>, admit::colder_than_victim<20>>>;

}  // namespace steps
