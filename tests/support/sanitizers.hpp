// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which sanitizer watches, in the spelling of either compiler: WARMSET_TEST_ASAN and WARMSET_TEST_TSAN are 0 or 1.

#if defined(__has_feature)
#define WARMSET_TEST_HAS_FEATURE(x) __has_feature(x)
#else
#define WARMSET_TEST_HAS_FEATURE(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || WARMSET_TEST_HAS_FEATURE(address_sanitizer)
#define WARMSET_TEST_ASAN 1
#else
#define WARMSET_TEST_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || WARMSET_TEST_HAS_FEATURE(thread_sanitizer)
#define WARMSET_TEST_TSAN 1
#else
#define WARMSET_TEST_TSAN 0
#endif
