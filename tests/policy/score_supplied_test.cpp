// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <string_view>
#include <vector>

#include <kit/operations.hpp>
#include <kit/successor_reference.hpp>
#include <warmset/cache.hpp>
#include <warmset/policy/score/fifo.hpp>
#include <warmset/policy/score/lfu.hpp>
#include <warmset/table/bundles.hpp>

using namespace warmset;
using kit::id_list;

using with_count = score::supplied_with<score::decayed_count>;
using with_successor = score::supplied_with<score::successor<>>;

static_assert(std::string_view(with_count::name) == "supplied_with_decayed_count");
static_assert(std::string_view(with_successor::name) == "supplied_with_successor");
static_assert(score_detail::has_rebase_hook<with_count> && !score_detail::has_evict_hook<with_count>);
static_assert(score_detail::has_install_hook<score::supplied_with<score::fifo>>);
static_assert(score_detail::has_evict_hook<score::supplied_with<score::lfu_forget>> ==
              score_detail::has_evict_hook<score::lfu_forget>);
static_assert(counting_score<with_successor> && !counting_score<score::supplied>);

namespace {

/// A cache of one layer of 8 experts and 3 slots, which is given keys.
template <class Score>
struct small_cache {
  cache<bundles::of<Score>, move::immediate> tested{geometry::uniform(1, 8, 2, 1), budget::of_slots(3)};

  plan_kind step(id_list const& ids, std::vector<i32> const& keys = {}) {
    step_facts facts;
    if (!keys.empty()) {
      facts.supplied = keys;
    }
    return tested.step(layer_id{0}, ids, facts).kind;
  }
  bool resident(u32 x) {
    tested.settle();
    return tested.is_resident({layer_id{0}, expert_id{x}});
  }
  i32 key(u32 x) {
    auto const& view = tested.pools()[0].view();
    return view.parts().score.key_of(view.score_of(x));
  }
  u64 value(u32 x) {
    auto const& view = tested.pools()[0].view();
    return view.value(x, view.now(0, 0));
  }
};

}  // namespace

TEST_CASE("supplied: the smallest key leaves, whatever its sign, and the keys last until the next", "[policy][supplied]") {
  small_cache<score::supplied> c;
  c.step({0, 1});
  c.step({2}, {5, -7, 100, 0, 0, 0, 0, 0});
  c.step({3}, {5, -7, 100, 0, 0, 0, 0, 0});  // 1 is worth least, though 0 was used as long ago
  CHECK(c.resident(0));
  CHECK_FALSE(c.resident(1));
  CHECK(c.key(1) == -7);
  CHECK(c.value(1) == 0);
  CHECK(c.value(0) == 5);
  c.step({4});  // without keys those of before stay: 3 is worth 0
  CHECK_FALSE(c.resident(3));
  CHECK(c.key(2) == 100);
  c.step({5}, {-100, 0, i32{-0x7FFF'FFFF} - 1, 0, 0x7FFF'FFFF, 0, 0, 0});  // of this step, not of the one before
  CHECK(c.resident(0));
  CHECK_FALSE(c.resident(2));
  CHECK(c.resident(4));
  CHECK(c.tested.audit());
}

TEST_CASE("supplied: equal keys leave by last use", "[policy][supplied]") {
  small_cache<score::supplied> c;
  std::vector<i32> const equal(8, 3);
  for (u32 x = 0; x < 8; ++x) {
    c.step({x}, equal);
    for (u32 y = 0; y <= x; ++y) {
      REQUIRE(c.resident(y) == (x - y < 3));
    }
  }
}

TEST_CASE("supplied: keys of another number than the layer's experts are refused", "[policy][supplied]") {
  small_cache<score::supplied> c;
  for (std::size_t const n : {std::size_t{1}, std::size_t{7}, std::size_t{9}}) {
    step_facts facts;
    std::vector<i32> const keys(n);
    facts.supplied = keys;
    step_view const seen = c.tested.step(layer_id{0}, id_list{1}, facts);
    CHECK(seen.kind == plan_kind::empty);
    CHECK(seen.why == reason::out_of_range);
    CHECK_FALSE(c.tested.commit());
  }
  CHECK(c.step({1}, std::vector<i32>(8)) == plan_kind::step);
}

TEST_CASE("supplied_with: the base as it stood before the step, and the keys, in 32 bits", "[policy][supplied]") {
  small_cache<with_count> c;
  c.step({0});
  CHECK(c.key(0) == 0);  // before its first use
  c.step({1});
  CHECK(c.key(0) == 256);
  CHECK(c.key(1) == 0);
  c.step({2}, {-300, 10, 0, 0x7FFF'FFFF, i32{-0x7FFF'FFFF} - 1, 0, 0, 0});
  CHECK(c.key(0) < 0);
  CHECK(c.value(0) == 0);
  CHECK(c.key(1) == 266);
  CHECK(c.key(3) == 0x7FFF'FFFF);
  CHECK(c.key(4) == -0x7FFF'FFFF);  // saturated, so that its sign may be changed
  c.step({1}, std::vector<i32>(8, 0x7FFF'FFFF));
  CHECK(c.key(1) == 0x7FFF'FFFF);
  c.step({5});  // no keys: the counts alone; 1 has two
  CHECK(c.resident(1));
  CHECK(c.tested.audit());
}

TEST_CASE("supplied_with: a contextual score learns from its own part of the sum", "[policy][supplied]") {
  small_cache<with_successor> c;
  kit::successor_reference base(8, 0, {2, 16});
  kit::integers random(3);
  for (u32 t = 0; t < 500; ++t) {
    id_list ids{random.below(8)};
    ids.push_back((ids[0] + 1 + random.below(7)) % 8);
    std::vector<i32> keys;
    for (u32 x = 0; x < 8 && !random.one_in(10); ++x) {
      keys.push_back(static_cast<i32>(random.below(200'000)) - 100'000);
    }
    keys.resize(keys.size() == 8 ? 8 : 0);
    REQUIRE(c.step(ids, keys) == plan_kind::step);
    std::vector<i32> const& own = base.step(ids);
    auto const& view = c.tested.pools()[0].view();
    for (u32 x = 0; x < 8; ++x) {
      REQUIRE(c.key(x) == own[x] + (keys.empty() ? 0 : keys[x]));
      REQUIRE(view.score_of(x).predicted == base.predicted(x));
    }
  }
  CHECK(c.tested.audit());
}
