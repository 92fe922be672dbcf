// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>

#include "cuda/lanes.hpp"
#include "support/dice.hpp"

using namespace warmset;
using namespace lanes_on_gpu;

namespace {

/// Scores of one of a few kinds, youth and slot behind them, as eviction_key makes them.
order_key key_of(warmset_test::dice& d, u32 kind, u32 slot) {
  u64 const score = kind == 0   ? d.below(1u << 30)  // hardly any two are equal
                    : kind == 1 ? d.below(3)         // many are
                    : kind == 2 ? u64{u32_max} - d.below(2)
                                : u64{d.below(4)} << 31;  // some have more than 32 bits
  u32 const youth = kind == 0 ? d.below(1u << 30) : u32_max - d.below(3);
  return {score, u64{youth} << 32 | slot};
}

}  // namespace

TEST_CASE("a warp takes the smallest keys that a sort finds, few and many, whatever they are", "[cuda_cuda][short]") {
  if (!gpu_is_there()) {
    SKIP("no GPU on this machine");
  }
  u32 const kind = GENERATE(0u, 1u, 2u, 3u);
  u32 const n = GENERATE(1u, 2u, 31u, 32u, 33u, 64u, 255u, 500u, 512u);
  u32 const part = GENERATE(0u, 1u, 3u);  // how many in four may not
  warmset_test::dice d(kind * 1000 + n * 4 + part);
  std::vector<order_key> keys;
  std::vector<u32> may;
  std::vector<order_key> expected;
  for (u32 i = 0; i < n; ++i) {
    keys.push_back(key_of(d, kind, i));
    may.push_back(d.below(4) >= part ? 1 : 0);
    if (may.back() != 0) {
      expected.push_back(keys.back());
    }
  }
  std::sort(expected.begin(), expected.end());
  for (u32 m : {0u, 1u, 2u, 3u, 4u, 5u, 8u, 17u, 31u, 32u, 40u}) {
    CAPTURE(kind, n, part, m);
    taken const t = take_smallest(keys, may, m);
    REQUIRE(t.error == "");
    u32 const wanted = std::min<u32>(m, static_cast<u32>(expected.size()));
    REQUIRE(t.n == wanted);
    CHECK(t.calls == wanted);
    CHECK(std::equal(t.keys.begin(), t.keys.end(), expected.begin(), expected.begin() + wanted,
                     [](order_key a, order_key b) { return a == b; }));
  }
}
