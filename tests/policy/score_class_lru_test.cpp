// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"
#include "play.hpp"

#include <algorithm>
#include <cmath>

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

namespace {

/// class_lru in the words of the design page and nothing of the library: a list of slots, a history per expert,
/// and a search for the largest u64(age) << (7 - class) among those that the step does not demand.
class naive_class_lru {
 public:
  naive_class_lru(u32 n_experts, u32 capacity) : experts_(n_experts), slots_(capacity, nobody) {
    for (u32 i = 0; i < half_life; ++i) {
      factor_[i] = static_cast<u64>(std::llround(65'536.0 * std::exp2(-static_cast<double>(i) / half_life)));
    }
  }

  /// The slots of hits and no_slot for each miss, for distinct ids of which there are no more than slots.
  std::vector<u32> step(std::span<u32 const> ids) {
    std::vector<u32> answer;
    std::vector<u32> misses;
    for (u32 const id : ids) {
      auto const at = std::find(slots_.begin(), slots_.end(), id);
      answer.push_back(at == slots_.end() ? no_slot.value : static_cast<u32>(at - slots_.begin()));
      if (at == slots_.end()) {
        misses.push_back(id);
      }
    }
    std::vector<u32> places;
    for (u32 s = 0; s < slots_.size() && places.size() < misses.size(); ++s) {
      if (slots_[s] == nobody) {
        places.push_back(s);
      }
    }
    while (places.size() < misses.size()) {
      places.push_back(coldest(ids, places));
    }
    std::sort(misses.begin(), misses.end());
    for (std::size_t i = 0; i < misses.size(); ++i) {
      slots_[places[i]] = misses[i];
    }
    ++steps_;
    for (u32 const id : ids) {
      past& x = experts_[id];
      x = {count(x, steps_) + 256, steps_, ++ticks_};
    }
    return answer;
  }

  u32 class_of(u32 id) const {
    u64 const whole = std::max<u64>(1, count(experts_[id], steps_) / 256);
    return static_cast<u32>(std::min(7.0, std::floor(std::log2(static_cast<double>(whole)))));
  }

  std::vector<u64> victims_of_class = std::vector<u64>(8);

 private:
  static constexpr u32 half_life = 128;
  static constexpr u32 nobody = 0xFFFF'FFFF;
  struct past {
    u64 count;  ///< in 1/256 of a demand
    u64 step;
    u64 tick;
  };

  u64 count(past const& x, u64 now) const {
    u64 const steps = now - x.step;
    return steps / half_life >= 32 ? 0 : (x.count * factor_[steps % half_life] >> 16) >> steps / half_life;
  }

  u32 coldest(std::span<u32 const> demanded, std::vector<u32> const& taken) {
    u32 best = nobody;
    u64 largest = 0;
    for (u32 s = 0; s < slots_.size(); ++s) {
      bool const free_to_go = std::find(demanded.begin(), demanded.end(), slots_[s]) == demanded.end() &&
                              std::find(taken.begin(), taken.end(), s) == taken.end();
      if (!free_to_go) {
        continue;
      }
      u64 const weighted = (ticks_ - experts_[slots_[s]].tick) << (7 - class_of(slots_[s]));
      u64 const age = ticks_ - experts_[slots_[s]].tick;
      if (best == nobody || weighted > largest ||
          (weighted == largest && age > ticks_ - experts_[slots_[best]].tick)) {
        best = s;
        largest = weighted;
      }
    }
    ++victims_of_class[class_of(slots_[best])];
    return best;
  }

  std::vector<past> experts_;
  std::vector<u32> slots_;
  u64 factor_[half_life]{};
  u64 steps_ = 0;
  u64 ticks_ = 0;
};

}  // namespace

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
    naive_class_lru naive(p.experts, p.capacity);
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
