// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <catch2/catch_test_macros.hpp>

/// For tests of millions of steps: skips them in a build with assertions, which is what a sanitizer watches.
#if defined(NDEBUG)
#define REQUIRE_OPTIMISED() (void)0
#else
#define REQUIRE_OPTIMISED() SKIP("skipped: too long for a build with assertions")
#endif
