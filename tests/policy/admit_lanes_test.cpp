// SPDX-License-Identifier: Apache-2.0
#include "admit.hpp"

#include <algorithm>

using namespace warmset;

namespace {

/// A group whose lanes come last to first, and whose passes may not be joined.
struct backward_lanes {
  static constexpr bool is_single = false;

  template <class F>
  void for_each(u32 n, F&& f) const {
    for (u32 i = n; i-- != 0;) {
      f(i);
    }
  }
  template <class F>
  order_key min_key(u32 n, F&& f) const {
    order_key best = no_key;
    for_each(n, [&](u32 i) {
      order_key own = no_key;
      f(i, own);
      lower(best, own);
    });
    return best;
  }
  template <class P>
  bool any(u32 n, P&& p) const {
    return count(n, p) != 0;
  }
  template <class P>
  u32 count(u32 n, P&& p) const {
    u32 found = 0;
    for_each(n, [&](u32 i) { found += p(i) ? 1 : 0; });
    return found;
  }
  template <class P, class Emit>
  u32 append_in_order(u32 n, P&& p, Emit&& emit) const {
    std::vector<u32> found;
    for_each(n, [&](u32 i) {
      if (p(i)) {
        found.push_back(i);
      }
    });
    u32 const size = static_cast<u32>(found.size());
    for (u32 i = 0; i < size; ++i) {
      emit(found[i], size - 1 - i);
    }
    return size;
  }
  template <class F>
  void leader(F&& f) const {
    f();
  }
  template <class F, class G>
  void for_each_then_leader(u32 n, F&& f, G&& then) const {
    for_each(n, f);
    for (u32 i = 0; i < n; ++i) {
      then(i);
    }
  }
};

static_assert(lane_group<backward_lanes>);

template <class Bundle>
void check_lanes() {
  constexpr u32 experts = 40;
  table<Bundle> made({{layer_id{0}, experts, 4, {3}}}, {10, 10}, tuning{.insert_bytes = 7});
  auto const& t = made.view();
  t.layer(0).step = 2000;  // what compares once the layer has learned compares
  std::vector<u32> arrivals(10);
  auto const work = std::make_unique<workspace_of<Bundle>>();
  auto const plan = std::make_unique<plan_of<Bundle>>();
  auto const other = std::make_unique<plan_of<Bundle>>();
  outcome out{};
  kit::integers random(9);
  for (u32 i = 0; i < 2000; ++i) {
    std::vector<i32> ids;
    for (u32 n = 1 + random.below(8); n != 0; --n) {
      ids.push_back(static_cast<i32>(random.below(1 + random.below(experts))));
    }
    step_input in{};
    in.in_phase = random.one_in(4) ? phase::prefill : phase::decode;
    auto const n_ids = static_cast<u32>(ids.size());
    plan_demand<Bundle>(backward_lanes{}, t, in, ids.data(), n_ids, *work, *other);
    plan_demand<Bundle>(one_lane{}, t, in, ids.data(), n_ids, *work, *plan);
    REQUIRE(plan->kind == other->kind);
    REQUIRE(plan->n == other->n);
    REQUIRE(plan->n_declined == other->n_declined);
    REQUIRE(std::equal(plan->how, plan->how + plan->n, other->how));
    REQUIRE(std::equal(plan->slot, plan->slot + plan->n, other->slot));
    REQUIRE(plan->n_loads == other->n_loads);
    if (plan->kind == plan_kind::step) {
      REQUIRE(commit<Bundle>(one_lane{}, t, *plan, out));
    }
    for (u32 j = 0; j < plan->n_loads; ++j) {
      u32 const at = plan->loads[j].slot;
      arrivals[at] = arrival::word(t.generation(at), transfer::arrived);
    }
    settle<Bundle>(one_lane{}, t, arrivals.data(), out);
  }
  CHECK(out[access_kind::declined] != 0);
  CHECK(out[access_kind::load] != 0);
  CHECK(audit(t));
}

}  // namespace

TEST_CASE("admissions decide alike in groups of any order", "[policy][admit]") {
  bundles::for_each(bundles::admitting{}, []<class Bundle>() {
    INFO(Bundle::name);
    check_lanes<Bundle>();
  });
}
