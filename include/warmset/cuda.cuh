// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What kernels need of Warmset, for nvcc: pools in device memory with the kernels that decide their steps, the kernels of
/// host-directed mode, the lane groups of a device, and the probe of the policies. The decisions themselves are host-device
/// functions and come with warmset.hpp.
#include "cuda/device_pools.cuh"
#include "cuda/host_directed.cuh"
#include "cuda/lanes.cuh"
#include "cuda/probe.cuh"
#include "cuda/throttled_gather.cuh"
