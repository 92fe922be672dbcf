// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"

#include <warmset/policy/admit/always.hpp>

TEST_CASE("admission always conforms", "[policy][admit]") {
  static_assert(!warmset::admit::always::may_decline);
  warmset::conformance::check_admission<warmset::admit::always>();
}
