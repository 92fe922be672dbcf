// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"

#include <warmset/policy/select/coldest.hpp>
#include <warmset/policy/select/first_permitted.hpp>

using namespace warmset;

TEST_CASE("coldest conforms", "[policy][select]") {
  conformance::check_selector<select::coldest>(true);
  CHECK_FALSE(select::coldest::asks_again);
}
TEST_CASE("first_permitted conforms", "[policy][select]") {
  conformance::check_selector<select::first_permitted>(true);
  CHECK(select::first_permitted::asks_again);
}

TEST_CASE("coldest: smaller score, then larger age, then lower slot", "[policy][select][B26]") {
  CHECK(eviction_key(1, true, 0, 9) < eviction_key(2, true, 50, 0));
  CHECK(eviction_key(2, true, 50, 9) < eviction_key(2, true, 49, 0));
  CHECK(eviction_key(2, true, 50, 3) < eviction_key(2, true, 50, 4));
  CHECK(eviction_key(2, false, 0, 3) < eviction_key(2, true, u32_max - 1, 0));  // never counts as oldest
  CHECK(slot_of(eviction_key(2, true, 50, 77)) == 77);
}
