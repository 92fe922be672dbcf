// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace warmset_test {

/// Calls of operator new so far, by the whole test program.
unsigned long n_allocations() noexcept;

}  // namespace warmset_test
