// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/config.hpp"

#if !defined(__CUDACC__)
#error "warmset/cuda/abi.cuh needs nvcc; a host compiler includes warmset.hpp or cuda.hpp"
#endif

/// What keeps the kernels of two shared libraries in one process apart.
///
/// A kernel is hidden (between WARMSET_HIDE_KERNELS and WARMSET_SHOW_AGAIN): its stub is the address by which the runtime
/// finds it, and the dynamic linker would make one of two libraries launch the other's. nvcc 13 makes the stubs of templates
/// static by itself. What launches kernels lies in an inline namespace that is tagged with the version and the architectures
/// of its library, such as v0_1_0_sm_750_900, so that it is only ever merged with its like.
#define WARMSET_HIDE_KERNELS _Pragma("GCC visibility push(hidden)")
#define WARMSET_SHOW_AGAIN _Pragma("GCC visibility pop")

#define WARMSET_ABI_1(a) _##a
#define WARMSET_ABI_2(a, b) _##a##_##b
#define WARMSET_ABI_3(a, b, c) _##a##_##b##_##c
#define WARMSET_ABI_4(a, b, c, d) _##a##_##b##_##c##_##d
#define WARMSET_ABI_5(a, b, c, d, e) _##a##_##b##_##c##_##d##_##e
#define WARMSET_ABI_6(a, b, c, d, e, f) _##a##_##b##_##c##_##d##_##e##_##f
#define WARMSET_ABI_7(a, b, c, d, e, f, g) _##a##_##b##_##c##_##d##_##e##_##f##_##g
#define WARMSET_ABI_8(a, b, c, d, e, f, g, h) _##a##_##b##_##c##_##d##_##e##_##f##_##g##_##h
#define WARMSET_ABI_PICK(a, b, c, d, e, f, g, h, name, ...) name
#define WARMSET_ABI_OF(...)                                                                                                 \
  WARMSET_ABI_PICK(__VA_ARGS__, WARMSET_ABI_8, WARMSET_ABI_7, WARMSET_ABI_6, WARMSET_ABI_5, WARMSET_ABI_4, WARMSET_ABI_3,   \
                   WARMSET_ABI_2, WARMSET_ABI_1, )                                                                          \
  (__VA_ARGS__)
#define WARMSET_ABI_JOINED(major, minor, patch, architectures) v##major##_##minor##_##patch##_sm##architectures
#define WARMSET_ABI_JOIN(major, minor, patch, architectures) WARMSET_ABI_JOINED(major, minor, patch, architectures)

#if defined(WARMSET_CUDA_TAG)
// more architectures than eight, or a name of the user's own
#elif defined(__CUDA_ARCH_LIST__)
#define WARMSET_CUDA_TAG                                                                                \
  WARMSET_ABI_JOIN(WARMSET_VERSION_MAJOR, WARMSET_VERSION_MINOR, WARMSET_VERSION_PATCH, WARMSET_ABI_OF(__CUDA_ARCH_LIST__))
#else
#define WARMSET_CUDA_TAG WARMSET_ABI_JOIN(WARMSET_VERSION_MAJOR, WARMSET_VERSION_MINOR, WARMSET_VERSION_PATCH, _any)
#endif
