// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <vector>

#include <kit/operations.hpp>
#include <kit/successor_reference.hpp>

#include "successor_steps.hpp"

// The reference of the successor score against the test vectors and properties of its specification.

using namespace warmset;
using kit::id_list;
using kit::reference_cache;
using kit::reference_pools;
using kit::successor_form;
using kit::successor_reference;
using namespace successor_test;

namespace {

i32 of_count(u32 m) {
  return static_cast<i32>((m >> 1) + (m >> 3));
}

}  // namespace

TEST_CASE("successor reference: test vectors", "[policy][successor]") {
  for (test_vector const& e : test_vectors) {
    INFO("order " << e.form.order << ", " << e.form.bits << " bits");
    reference_cache cache(1, 8, e.form, {{.slots_per_layer = 4}});
    vector_steps steps;
    fnv_1a all;
    std::vector<std::array<u32, 2>> sets;
    for (u32 t = 0; t < 1000; ++t) {
      sets.push_back(steps.next());
      cache.demand(0, sets.back());
      std::array<i32, 8> keys{};
      for (u32 x = 0; x < 8; ++x) {
        keys[x] = cache.score(0).key(x);
        all.add(keys[x]);
      }
      if (t == 3) {
        CHECK(keys == e.keys_at_3);
      }
    }
    CHECK(sets[0] == std::array<u32, 2>{4, 6});
    CHECK(sets[1] == std::array<u32, 2>{1, 4});
    CHECK(sets[2] == std::array<u32, 2>{4, 6});
    CHECK(sets[3] == std::array<u32, 2>{6, 7});
    CHECK(all.sum == e.fnv);
    CHECK(cache.pool(0).hits() == e.hits);
    CHECK(cache.pool(0).lookups() == 2000);
  }
}

TEST_CASE("successor reference: the count never exceeds 16 bits and halves in 22 steps",
          "[policy][successor]") {
  for (u32 m = 0; m <= 65'535; ++m) {
    REQUIRE(m - (m >> 5) + 2047 <= 65'535);
  }
  successor_reference score(2, 0, {1, 16});
  u32 const used[] = {0};
  u32 const other[] = {1};
  u16 before = 0;
  for (u32 t = 0; t < 2000; ++t) {
    score.step(used);
    REQUIRE(score.count(0) >= before);
    before = score.count(0);
  }
  CHECK(before >= 65'504);
  for (u32 t = 0; t < 22; ++t) {
    score.step(other);
  }
  CHECK(std::abs(2 * score.count(0) - before) < before / 100);
}

TEST_CASE("successor reference: an empty table gives 5/8 of the count", "[policy][successor]") {
  for (u32 m = 0; m <= 65'535; ++m) {  // two floors cost less than 2
    REQUIRE(8 * of_count(m) <= static_cast<i32>(5 * m));
    REQUIRE(8 * of_count(m) > static_cast<i32>(5 * m) - 16);
  }
  for (successor_form const form : all_forms) {
    kit::integers random(7);
    successor_reference score(16, 3, form);
    std::vector<u32> m(16);
    for (u32 t = 0; t < 300; ++t) {
      id_list const set = random_set(random, 16, 3);
      id_list const before = random_set(random, 16, 3);
      for (u32 x = 0; x < 16; ++x) {
        m[x] = m[x] - (m[x] >> 5) + (kit::contains(set, x) ? 2047 : 0);
      }
      std::vector<i32> const key = score.keys_of(set, before);
      for (u32 x = 0; x < 16; ++x) {
        REQUIRE(key[x] == of_count(m[x]));
      }
      score.count_only(set);  // nothing is learned, so the table stays empty
    }
  }
}

TEST_CASE("successor reference: keys of 1,000 ids do not overflow", "[policy][successor]") {
  static_assert(i64{1000} * 32'767 * (16 + 8 + 16) + 65'535 < i64{1} << 31);
  constexpr u32 n =
      3000;  // 1,000 of the step, 1,000 of the step before, both at the limit, and the layer before
  for (i32 const limit : {32'767, -32'767}) {
    successor_reference score(n, 1, {3, 16});
    score.step(first_ids(1000, 1000));
    for (u32 c = 0; c < n; ++c) {
      score.set_successor(c, 2999, limit);
      score.set_successor_of_previous_layer(c, 2999, limit);
    }
    CHECK(score.keys_of(first_ids(0, 1000), first_ids(0, 1000))[2999] == 1000 * limit * (16 + 8 + 16));
    score.step(first_ids(0, 1000), first_ids(0, 1000));
    CHECK(std::abs(score.successor(1000, 2999)) <= 32'767);
  }
}

TEST_CASE("successor reference: cells of 16 bits round to nearest and saturate", "[policy][successor]") {
  using s = successor_reference;
  CHECK(s::rounded(32'767, 4096, 5) == 32'767);
  CHECK(s::rounded(-32'767, -4096, 5) == -32'767);
  CHECK(s::rounded(0, -15, 5) == 0);
  CHECK(s::rounded(0, -16, 5) == 0);  // a half goes up
  CHECK(s::rounded(0, -17, 5) == -1);
  CHECK(s::rounded(0, 15, 5) == 0);
  CHECK(s::rounded(0, 16, 5) == 1);
  for (u32 shift = 5; shift <= 15; ++shift) {
    for (i32 d = -4096; d <= 4096; ++d) {
      i64 const twice_away = 2 * ((i64{s::rounded(0, d, shift)} << shift) - d);
      REQUIRE(twice_away <= i64{1} << shift);
      REQUIRE(twice_away > -(i64{1} << shift));
    }
  }
}

TEST_CASE("successor reference: cells of 8 bits move by the error on average", "[policy][successor]") {
  using s = successor_reference;
  CHECK(s::dithered(127, 4096, 5, u32_max) == 127);
  CHECK(s::dithered(-127, -4096, 5, 0) == -127);
  for (u32 shift = 5; shift <= 9; ++shift) {
    for (i32 d = -4096; d <= 4096; d += shift < 8 ? 1 : 61) {
      i32 sum = 0;
      for (u32 h = 0; h < 1u << (shift + 3); ++h) {
        sum += s::dithered(0, d, shift, h);
      }
      REQUIRE(sum == d);
    }
  }
}

TEST_CASE("successor reference: the shift of n contexts", "[policy][successor]") {
  u32 const shifts[][2] = {{0, 4}, {1, 4},  {2, 5},  {3, 6},  {4, 6},   {5, 7},    {8, 7},
                           {9, 8}, {16, 8}, {17, 9}, {32, 9}, {33, 10}, {1000, 14}};
  for (auto const [n, shift] : shifts) {
    CHECK(successor_reference::shift_of(n) == shift);
  }
}

TEST_CASE("successor reference: contexts weigh 1, 1/2 and 1 in either width", "[policy][successor]") {
  for (successor_form const form : all_forms) {
    i32 const unit = form.bits == 16 ? 16 : 128;
    successor_reference score(8, 1, form);
    score.step(id_list{0, 1}, id_list{7});
    for (u32 c = 0; c < 8; ++c) {
      score.set_successor(c, 5, 1 << c);
      if (form.order == 3) {
        score.set_successor_of_previous_layer(c, 5, -(1 << c));
      }
    }
    // The step before was {0, 1}; of it, 1 is of this step too and counts once.
    CHECK(score.keys_of(id_list{1, 2}, id_list{3, 4})[5] ==
          unit * (2 + 4) + (form.order >= 2 ? unit / 2 * 1 : 0) - (form.order == 3 ? unit * (8 + 16) : 0));
  }
}

TEST_CASE(
    "successor reference: keys are those of the tables before the step, and the order of ids is nothing",
    "[policy][successor]") {
  for (successor_form const form : all_forms) {
    kit::integers random(11);
    successor_reference forwards(12, 2, form);
    successor_reference backwards(12, 2, form);
    for (u32 t = 0; t < 500; ++t) {
      id_list set = random_set(random, 12, 1 + random.below(4));
      id_list before = random_set(random, 12, 2);
      std::vector<i32> const planned = forwards.keys_of(set, before);
      REQUIRE(planned == forwards.keys_of(set, before));
      REQUIRE(planned == forwards.step(set, before));
      std::reverse(set.begin(), set.end());
      std::reverse(before.begin(), before.end());
      REQUIRE(planned == backwards.step(set, before));
    }
  }
}

TEST_CASE("successor reference: it learns what follows what", "[policy][successor]") {
  for (successor_form const form : all_forms) {
    INFO("order " << form.order << ", " << form.bits << " bits");
    successor_reference score(6, 0, form);
    for (u32 t = 0; t < 3000; ++t) {
      score.step(id_list{t % 3});  // 0, 1, 2, 0, ...: their counts are alike; 3 to 5 are never used
    }
    std::vector<i32> const key = score.keys_of(id_list{0});
    CHECK(key[1] > key[2]);
    CHECK(key[2] > key[3]);
    if (form.bits ==
        16) {  // a cell of 8 bits ends at 127/512, which sums over more contexts than one have to fill up
      // Discounted first use: the next step's expert is worth 1, the one after it 27/32.
      CHECK(std::abs((key[1] >> 4) - successor_reference::one) < successor_reference::one / 8);
      CHECK(std::abs((key[2] >> 4) - successor_reference::one * 27 / 32) < successor_reference::one / 8);
    }
  }
}

TEST_CASE("successor reference: which rows learn how much from which step", "[policy][successor]") {
  using s = successor_reference;
  for (u32 const bits : {16u, 8u}) {
    constexpr u32 layer = 2;
    successor_reference score(16, layer, {3, bits});
    auto const moved = [&](i32 error, u32 shift, u32 t, u32 c, u32 x, u32 salt) {
      return bits == 16 ? s::rounded(0, error, shift) : s::dithered(0, error, shift, s::hash(t, c, x, salt));
    };
    score.step(id_list{0, 1, 2}, id_list{9, 10});
    CHECK(score.successor(0, 0) == 0);  // the first step has none before it
    i32 const of_7 = 0;                 // never used: worth nothing so far
    i32 const of_0 = score.key(0) >> 4;
    std::vector<i32> const key = score.step(id_list{1, 7}, id_list{11});
    u32 const shift = 4 + 2;  // three contexts
    i32 const missed = (((key[0] >> 4) * 27) >> 5) - of_0;
    for (u32 const c : {0u, 1u, 2u}) {
      CHECK(score.successor(c, 7) == moved(s::one - of_7, shift, 1, c, 7, layer));
      CHECK(score.successor(c, 0) == moved(missed, shift, 1, c, 0, layer));
    }
    for (u32 const c : {9u, 10u}) {  // by the number of contexts of this layer, not of the one before
      CHECK(score.successor_of_previous_layer(c, 7) == moved(s::one - of_7, shift, 1, c, 7, layer + 0x5555));
    }
    CHECK(score.successor_of_previous_layer(11, 7) == 0);
    // A step later the contexts are {1, 7}; 0 and 2 are of the step before those and learn half as fast.
    i32 const of_12 = std::clamp(score.key(12) >> 4, 0, s::one);
    score.step(id_list{12}, id_list{9});
    CHECK(score.successor(7, 12) == moved(s::one - of_12, 5, 2, 7, 12, layer));
    CHECK(score.successor(0, 12) == moved(s::one - of_12, 6, 2, 0, 12, layer));
    CHECK(score.successor_of_previous_layer(11, 12) == moved(s::one - of_12, 5, 2, 11, 12, layer + 0x5555));
    CHECK(score.successor_of_previous_layer(10, 12) == 0);
  }
}

TEST_CASE("successor reference: an event wider than the pool counts and breaks the chain",
          "[policy][successor]") {
  successor_reference score(8, 0, {2, 16});
  score.step(id_list{0, 1});
  score.step(id_list{2, 3});
  i32 const learned = score.successor(0, 2);
  CHECK(learned > 0);
  score.count_only(first_ids(0, 8));
  CHECK(score.count(7) == 2047);
  CHECK(score.steps() == 2);
  score.step(id_list{4, 5});  // nothing is learned across the event
  CHECK(score.successor(0, 2) == learned);
  CHECK(score.successor(2, 4) == 0);
  score.step(id_list{6, 7});
  CHECK(score.successor(4, 6) > 0);
}

TEST_CASE("successor reference: sequences that take turns share their last sets", "[policy][successor]") {
  successor_reference score(8, 0, {1, 16});
  score.step(id_list{0, 1}, {}, 10);
  score.step(id_list{2, 3}, {}, 20);
  score.step(id_list{4, 5}, {}, 10);  // contexts before: {2, 3, 0, 1}, of four ids
  i32 const of_four = successor_reference::rounded(0, successor_reference::one, 6);
  CHECK(score.successor(2, 4) == of_four);
  CHECK(score.successor(0, 4) == of_four + successor_reference::rounded(0, 0, 6));
  for (u32 c = 0; c < 8; ++c) {
    score.set_successor(c, 7, 1 << c);
  }
  auto const table_part = [&](u32 sequence) {
    return (score.keys_of(id_list{6}, {}, sequence)[7] - of_count(score.count(7))) / 16;
  };
  CHECK(table_part(20) == (1 << 6) + (1 << 4) + (1 << 5));  // and not its own last set
  CHECK(table_part(10) == (1 << 6) + (1 << 2) + (1 << 3));
  CHECK(table_part(30) == (1 << 6) + (1 << 2) + (1 << 3) + (1 << 4) + (1 << 5));
  score.end_sequence(20);
  CHECK(table_part(10) == 1 << 6);
}

TEST_CASE("successor reference: equal keys leave by last use, then by slot", "[policy][successor]") {
  // Slots fill in the order of ids: 0 and 1 have equal keys and last uses until something tells them apart.
  reference_cache cache(1, 8, {1, 16}, {{.slots_per_layer = 3}});
  cache.demand(0, id_list{1, 0});
  cache.demand(0, id_list{2});
  REQUIRE(cache.score(0).key(0) == cache.score(0).key(1));
  cache.demand(0, id_list{3});
  CHECK_FALSE(cache.pool(0).resident(0, 0));
  CHECK(cache.pool(0).resident(0, 1));
  CHECK(cache.pool(0).resident(0, 2));
  CHECK(cache.pool(0).resident(0, 3));
  cache.demand(0, id_list{2, 4});  // what the step demands stays
  CHECK(cache.pool(0).resident(0, 2));
  CHECK(cache.pool(0).held(0) == 3);
}

TEST_CASE("successor reference: an event wider than its pool installs nothing", "[policy][successor]") {
  reference_cache cache(1, 8, {1, 16}, {{.slots_per_layer = 2}});
  cache.demand(0, id_list{1, 2});
  cache.demand(0, id_list{1, 3, 4});
  CHECK(cache.pool(0).hits() == 1);
  CHECK(cache.pool(0).lookups() == 5);
  CHECK(cache.pool(0).resident(0, 2));
  CHECK_FALSE(cache.pool(0).resident(0, 3));
}

TEST_CASE("successor reference: a shared pool moves slots between layers down to the floor",
          "[policy][successor]") {
  kit::integers random(3);
  reference_cache cache(2, 16, {2, 16}, {{.slots_per_layer = 5, .shared = true, .floor = 2}});
  for (u32 t = 0; t < 400; ++t) {
    cache.demand(0, id_list{t % 2, 2});          // three experts are all that it needs
    cache.demand(1, random_set(random, 16, 2));  // wants all sixteen
    REQUIRE(cache.pool(0).held(0) + cache.pool(0).held(1) <= 10);
    if (t > 50) {
      REQUIRE(cache.pool(0).held(0) >= 2);
      REQUIRE(cache.pool(0).held(1) > 5);
    }
  }
}

TEST_CASE("successor reference: bypass waits for its gate and spares the warmer resident",
          "[policy][successor]") {
  for (u32 const from : {0u, 1024u}) {
    reference_cache cache(1, 64, {2, 16}, {{.slots_per_layer = 2, .bypass = true, .bypass_from = from}});
    for (u32 t = 0; t < 40; ++t) {
      cache.demand(0, id_list{0, 1});
    }
    cache.demand(0, id_list{2});
    // A single use is worth less than what was used forty times.
    CHECK(cache.pool(0).resident(0, 2) == (from == 1024));
  }
  // Forced up to step 1,023; from step 1,024 on the newcomer goes without.
  for (u32 const t_at : {1023u, 1024u}) {
    reference_cache cache(1, 64, {2, 16}, {{.slots_per_layer = 2, .bypass = true}});
    for (u32 t = 0; t < t_at; ++t) {
      cache.demand(0, id_list{0, 1});
    }
    cache.demand(0, id_list{2});
    CHECK(cache.pool(0).resident(0, 2) == (t_at == 1023));
  }
}
