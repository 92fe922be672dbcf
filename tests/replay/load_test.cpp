// SPDX-License-Identifier: Apache-2.0

// Empty where the libraries of the tool are not there.
#if defined(WARMSET_HAS_FMT) && defined(WARMSET_HAS_JSON)

#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "../../examples/replay/load.hpp"

namespace warmset_tools {
namespace {

using warmset::trace::recording;

/// One step of two layers and two tokens, 7 and 8; a token's second id is padding.
recording two_tokens() {
  warmset::trace::contents c;
  c.geometry = warmset::geometry::uniform(2, 8, 2, 100);
  warmset::trace::block b;
  b.n_rows = 2;
  b.n_steps = 1;
  b.n_tokens = 2;
  b.k = 2;
  c.blocks = {b};
  c.ids = {5, 1, 4, warmset::trace::padding, 3, 2, 6, 0};
  c.tokens = {7, 8};
  return recording(std::move(c));
}

template <class T>
std::vector<T> all(std::span<T const> values) {
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("ids in ascending order keep their tokens") {
  recording const r = in_ascending_order(two_tokens());
  CHECK(all(r[0].ids) == std::vector<warmset::u16>{1, 5, 4, warmset::trace::padding});
  CHECK(all(r[0].tokens) == std::vector<warmset::u32>{7, 8});
  CHECK(all(r[1].tokens) == std::vector<warmset::u32>{7, 8});
}

TEST_CASE("one id a step: each has the token that it was chosen for") {
  recording const r = one_id_per_step(two_tokens(), {});
  REQUIRE(r.n_events() == 7);
  std::vector<warmset::u32> tokens;
  for_each_event(r, [&](warmset::trace::event const& e) {
    REQUIRE(e.tokens.size() == 1);
    tokens.push_back(e.tokens[0]);
  });
  CHECK(tokens == std::vector<warmset::u32>{7, 7, 8, 7, 7, 8, 8});
}

}  // namespace warmset_tools

#endif
