// SPDX-License-Identifier: Apache-2.0
#include "play.hpp"

#include <cmath>

using namespace warmset;

namespace {

constexpr u32 n_experts = 64;

/// Where each step draws its experts evenly and anew, no policy can know anything: the expected hit rate of a
/// full pool is slots / experts whatever stays in it.
template <class Bundle>
void check_uniform(u32 capacity, u32 k, u32 n_steps) {
  INFO(Bundle::name << ", " << capacity << " slots, k = " << k);
  play::player<Bundle> real(n_experts, capacity);
  kit::integers random(capacity * 100 + k);
  u64 n_hits = 0;
  u64 n_ids = 0;
  std::vector<u32> ids;
  for (u32 i = 0; i < n_steps; ++i) {
    for (ids.clear(); ids.size() < k;) {
      u32 const id = random.below(n_experts);
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) {
        ids.push_back(id);
      }
    }
    bool const full = real.tested().view().header().resident == capacity;
    for (u32 const hit : real.step(ids)) {
      n_hits += full && hit != no_slot.value ? 1 : 0;
      n_ids += full ? 1 : 0;
    }
  }
  CHECK(audit(real.tested().view()));
  REQUIRE(n_ids > n_steps * k / 2);
  double const p = double{1.0} * capacity / n_experts;
  double const n = static_cast<double>(n_ids);
  // draws of one step exclude each other, which makes the sum vary less than independent ones would
  CHECK(std::abs(static_cast<double>(n_hits) - n * p) <= 4.5 * std::sqrt(n * p * (1 - p)));
}

}  // namespace

TEST_CASE("every selector has the hit rate slots / experts under even routing", "[policy][select]") {
  bundles::for_each(bundles::all{}, []<class Bundle>() {
    for (u32 const capacity : {1u, 2u, 3u, 4u, 8u, 42u, n_experts}) {
      check_uniform<Bundle>(capacity, 1, 4'000);
      if (capacity >= 4) {
        check_uniform<Bundle>(capacity, 4, 2'000);
      }
    }
  });
}
