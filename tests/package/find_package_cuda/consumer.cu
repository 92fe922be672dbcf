// SPDX-License-Identifier: Apache-2.0
#include <concepts>

#if __has_include("warmset/cuda.cuh")
#include "warmset/cuda.cuh"
#else
#include "warmset/core/config.hpp"
#endif

template <std::integral T>
WARMSET_HD T twice(T value) {
    return value + value;
}

__global__ void kernel(int* out) { *out = twice(21); }

int main() { return twice(WARMSET_VERSION_MINOR) == 2 * WARMSET_VERSION_MINOR ? 0 : 1; }
