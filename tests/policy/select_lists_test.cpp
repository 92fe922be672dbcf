// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"

#include <kit/under_test.hpp>
#include <warmset/table/bundles.hpp>

using namespace warmset;

namespace {

/// lru_list without the hooks that it need not have.
struct bare_list : select::slot_list {
  static constexpr char const* name = "bare_list";

  template <class Slots>
  WARMSET_HD constexpr void on_touch(Slots const& slots, u32 slot) const noexcept {
    select::lru_list{}.on_touch(slots, slot);
  }
};
static_assert(selector_policy<bare_list>);
static_assert(!select_detail::has_replace_hook<bare_list> && !select_detail::has_touches_hook<bare_list>);
static_assert(select_detail::has_replace_hook<select::lru_list> && select_detail::has_touches_hook<select::lru_list>);

}  // namespace

template <>
struct kit::naive_rule<bare_list> : kit::naive_rule<select::lru_list> {};

namespace {

/// Random operations on two tables that differ in the selector alone: all that is decided is equal, and the selectors'
/// states as well where `EqualStates`.
template <class Score, class A, class B, bool EqualStates>
void check_decides_alike() {
  using scan = bundles::of<Score, A>;
  using list = bundles::of<Score, B>;
  kit::table_config config{.n_experts = 60, .k = 4, .reserved = 24, .capacity = 24};
  kit::table_under_test_of<scan> a(config);
  kit::table_under_test_of<list> b(config);
  std::vector<u32> arrivals(config.reserved);
  std::vector<std::vector<u32>> holds;
  kit::generator random(config, false, 77);
  for (u32 i = 0; i < 100'000; ++i) {
    kit::operation const o = random.next();
    outcome x{};
    outcome y{};
    switch (o.what) {
      case kit::operation::kind::demand: {
        auto const p = a.plan_demand(0, o.ids, o.type, phase::decode, 0, {});
        REQUIRE(p == b.plan_demand(0, o.ids, o.type, phase::decode, 0, {}));
        REQUIRE(a.commit(false, x) == b.commit(false, y));
        if (o.hold && holds.size() < 3 && p.kind != plan_kind::busy) {
          holds.push_back(a.leased_slots());
          a.acquire();
          b.acquire();
        }
        break;
      }
      case kit::operation::kind::arrive: {
        auto const state = a.state();
        for (u32 const s : state.in_flight) {
          arrivals[s] = arrival::word(state.slots[s].generation, o.b == 1 ? transfer::failed : transfer::arrived);
        }
        a.settle(arrivals.data(), x);
        b.settle(arrivals.data(), y);
        break;
      }
      case kit::operation::kind::release:
        if (!holds.empty()) {
          a.release(holds.back(), x);
          b.release(holds.back(), y);
          holds.pop_back();
        }
        break;
      case kit::operation::kind::resize: REQUIRE(a.resize(o.a, x) == b.resize(o.a, y)); break;
      case kit::operation::kind::invalidate: a.invalidate(o.a, x), b.invalidate(o.a, y); break;
      case kit::operation::kind::pin: REQUIRE(a.pin(0, o.b, 4) == b.pin(0, o.b, 4)); break;
      case kit::operation::kind::unpin: REQUIRE(a.unpin(0, o.b) == b.unpin(0, o.b)); break;
      default: break;
    }
    REQUIRE(std::memcmp(&x, &y, sizeof x) == 0);
    if (i % 64 == 0) {
      auto left = a.state();
      auto right = b.state();
      if (!EqualStates) {
        left.selector = {};
        right.selector = {};
      }
      REQUIRE(left == right);
      REQUIRE(b.audit());
    }
  }
}

/// `List` walks, `coldest` over `Score` looks.
template <class Score, class List>
void check_decides_as_scan() {
  check_decides_alike<Score, select::coldest, List, false>();
}

}  // namespace

TEST_CASE("lru_list conforms", "[policy][select]") {
  conformance::check_selector<select::lru_list>(true);
}

TEST_CASE("fifo_list conforms", "[policy][select]") {
  conformance::check_selector<select::fifo_list>(false);
}

TEST_CASE("lru_list decides as coldest over lru does", "[policy][select][B21][R15]") {
  check_decides_as_scan<score::lru, select::lru_list>();
}

TEST_CASE("fifo_list decides as coldest over fifo does", "[policy][select]") {
  check_decides_as_scan<score::fifo, select::fifo_list>();
}

TEST_CASE("lru_list decides the same without its optional hooks", "[policy][select]") {
  conformance::check_selector<bare_list>(true);
  check_decides_alike<score::lru, bare_list, select::lru_list, true>();
  check_decides_alike<score::lfu, bare_list, select::lru_list, true>();
}
