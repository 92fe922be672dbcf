// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Version, ABI namespace, the function macros and the assertion hook. Everything else includes this.
///
/// All names live in `warmset::v0`, an inline namespace, so that two versions can be linked into one
/// program. Override WARMSET_ASSERT before the first include to route failed preconditions elsewhere.

#define WARMSET_VERSION_MAJOR 0
#define WARMSET_VERSION_MINOR 1
#define WARMSET_VERSION_PATCH 0

/// Marks a function that the host and a kernel may call: plain `inline` without nvcc.
#if defined(__CUDACC__)
#define WARMSET_HD __host__ __device__ inline
#else
#define WARMSET_HD inline
#endif

/// Marks a function that stays a call on the host, since most runs of its caller do without it: what they do keeps the
/// registers. On a device it is inlined as any other.
#if defined(__GNUC__) && !defined(__CUDACC__)
#define WARMSET_APART __attribute__((noinline))
#else
#define WARMSET_APART
#endif

#if !defined(WARMSET_ASSERT)
#if defined(NDEBUG) || defined(__CUDA_ARCH__)
#define WARMSET_ASSERT(condition, message) ((void)0)
#else
#include <cassert>
#define WARMSET_ASSERT(condition, message) assert((condition) && (message))
#endif
#endif
