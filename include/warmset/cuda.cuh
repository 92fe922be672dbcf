// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What kernels need of Warmset, for nvcc: the probe of the policies. The decisions themselves are
/// host-device functions and come with warmset.hpp.
#include "cuda/probe.cuh"
