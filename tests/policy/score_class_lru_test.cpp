// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"
#include "play.hpp"

#include <algorithm>

#include <kit/naive_class_lru.hpp>
#include <warmset/policy/score/class_lru.hpp>

#include "support/rounds.hpp"

using namespace warmset;

TEST_CASE("class_lru conforms", "[policy][score]") {
  conformance::check_score<score::class_lru>();
}

TEST_CASE("class_lru: the largest age << (7 - class) goes first", "[policy][score]") {
  score::class_lru const score;
  score::decayed_count const count{tuning{.half_life = 128}};
  kit::integers random(6);
  for (u32 i = 0; i < 20'000; ++i) {
    score::class_lru::state const x{random.below(1u << (1 + random.below(31))), random.below(5'000)};
    clocks const now{random.below(1u << 30), 0, 0, x.stamp + random.below(2'000)};
    expert_facts const e{now.tick - random.below(1u << 20), true, true};
    u64 whole = count.value(x, e, now) / 256;
    u32 cls = 0;  // floor(log2(max(1, whole))), at most 7
    while (whole >= 2 && cls < 7) {
      whole /= 2;
      ++cls;
    }
    REQUIRE(score.value(x, e, now) == u64_max - (u64{now.tick - e.last} << (7 - cls)));
  }
  CHECK(score.value({}, {0, false, false}, {77, 0, 0, 0}) == 0);
  // 64 bits: the oldest age of the lowest class does not wrap
  CHECK(score.value({}, {1, true, true}, {0, 0, 0, 0}) == u64_max - (u64{u32_max} << 7));
}

TEST_CASE("class_lru decides as its specification says, in a million random steps", "[policy][score]") {
  using bundle = bundles::of<score::class_lru>;
  struct pool {
    u32 experts, capacity, width, steps;
  };
  std::vector<u64> victims(8);
  std::vector<u64> lookups(8);
  u64 steps = 0;
  for (pool const p : {pool{12, 1, 1, 60'000}, pool{12, 2, 2, 60'000}, pool{16, 3, 3, 60'000}, pool{24, 4, 4, 120'000},
                       pool{40, 8, 4, 500'000}, pool{64, 24, 6, 200'000}}) {
    play::player<bundle> table(p.experts, p.capacity);
    kit::naive_class_lru naive(p.experts, p.capacity);
    kit::integers random(p.experts * 100 + p.capacity);
    u32 popular = 0;
    std::vector<u32> ids;
    u32 const n_steps = std::max(rounds(p.steps), p.steps / 4);  // fewer would see no class 7
    for (u32 i = 0; i < n_steps; ++i) {
      if (random.one_in(3'000)) {
        popular = random.below(p.experts);
      }
      ids.clear();
      for (u32 const n = 1 + random.below(p.width); ids.size() < n;) {
        // two dice: the nearer to the popular one, the more often, so that all classes come about
        u32 const range = 1 + random.below(1 + random.below(p.experts));
        u32 const id = (popular + random.below(range)) % p.experts;
        if (std::find(ids.begin(), ids.end(), id) == ids.end()) {
          ids.push_back(id);
        }
      }
      ++lookups[naive.class_of(ids.front())];
      std::vector<u32> const got = table.step(ids);
      std::vector<u32> const wanted = naive.step(ids);
      if (got != wanted) {
        FAIL("step " << i << " of a pool of " << p.capacity);
      }
    }
    steps += n_steps;
    for (u32 c = 0; c < 8; ++c) {
      victims[c] += naive.victims_of_class[c];
    }
    REQUIRE(audit(table.tested().view()));
  }
  CHECK(steps >= 250'000);
  for (u32 c = 0; c < 8; ++c) {
    INFO("class " << c << ": " << lookups[c] << " look-ups, " << victims[c] << " victims");
    CHECK(lookups[c] > rounds(200));
    CHECK(victims[c] > 0);
  }
}
