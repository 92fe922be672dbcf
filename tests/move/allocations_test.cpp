// SPDX-License-Identifier: Apache-2.0
#include "allocations.hpp"

#include <catch2/catch_test_macros.hpp>

#include <vector>

#include "support/count_allocations.hpp"

TEST_CASE("the counter of allocations counts", "[move]") {
  std::uint64_t const before = warmset_test::n_allocations();
  std::vector<int> const v(7, 3);
  CHECK(v[6] == 3);
  CHECK(warmset_test::n_allocations() > before);
}
