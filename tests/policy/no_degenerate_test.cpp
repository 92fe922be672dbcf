// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>

#include "play.hpp"
#include "support/rounds.hpp"

/// No policy degenerates at 1, 2, 3, k, 8, 42 slots or where every expert has one. Every bundle of the table.
namespace {

using namespace warmset;

constexpr u32 n_experts = 64;
constexpr u32 k = 4;
constexpr u32 capacities[] = {1, 2, 3, k, 8, 42, n_experts};

/// Distinct ids, uniform over all experts.
void draw(kit::integers& random, u32 width, std::vector<u32>& ids) {
  ids.clear();
  while (ids.size() < width) {
    u32 const id = random.below(n_experts);
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) {
      ids.push_back(id);
    }
  }
}

u32 count_hits(std::vector<u32> const& slots) {
  return static_cast<u32>(slots.size()) -
         static_cast<u32>(std::count(slots.begin(), slots.end(), no_slot.value));
}

}  // namespace

// A full pool of c slots holds c experts chosen from the past, and the w distinct ids of a step are drawn
// independently of it: whatever the policy, their hits are hypergeometric, of mean w c / n and variance
// w (c / n) (1 - c / n) (n - w) / (n - 1), and independent from step to step. Over T steps the bound is five
// standard deviations of the sum, which chance exceeds in less than one of 10^6 runs. A step of k ids
// overflows where there are fewer slots, so that the width is at most the capacity.
TEST_CASE("uniform routing hits slots / experts, whatever the policy", "[policy][degenerate]") {
#if defined(NDEBUG)
  constexpr u32 steps = 20'000;
#else
  constexpr u32 steps = 800 + rounds(3'200);
#endif
  bundles::for_each(bundles::all{}, []<class Bundle>() {
    for (u32 const capacity : capacities) {
      for (u32 const width : {1u, min_of(k, capacity)}) {
        INFO(Bundle::name << ", " << capacity << " slots, " << width << " ids a step");
        play::player<Bundle> pool(n_experts, capacity);
        kit::integers random(1000 * capacity + width);
        std::vector<u32> ids;
        while (pool.tested().view().header().resident < capacity) {
          draw(random, width, ids);
          REQUIRE(pool.step(ids).size() == width);
        }
        u64 hits = 0;
        for (u32 i = 0; i < steps; ++i) {
          draw(random, width, ids);
          std::vector<u32> const slots = pool.step(ids);
          REQUIRE(slots.size() == width);
          hits += count_hits(slots);
        }
        double const share = static_cast<double>(capacity) / n_experts;
        double const mean = steps * width * share;
        double const variance = mean * (1 - share) * (n_experts - width) / (n_experts - 1);
        INFO(hits << " hits, expected " << mean << " +- " << std::sqrt(variance));
        REQUIRE(std::abs(static_cast<double>(hits) - mean) <= 5 * std::sqrt(variance));
        REQUIRE(pool.tested().view().header().resident == capacity);
        REQUIRE(audit(pool.tested().view()));
      }
    }
  });
}

TEST_CASE("with a slot for every expert each misses once and never again", "[policy][degenerate]") {
  bundles::for_each(bundles::all{}, []<class Bundle>() {
    for (u32 const n : {1u, 2u, 3u, k, 8u, 42u, n_experts}) {
      INFO(Bundle::name << ", " << n << " experts");
      play::player<Bundle> pool(n, n);
      kit::integers random(n);
      std::vector<bool> seen(n);
      for (u32 i = 0; i < 200 + rounds(2'800); ++i) {
        u32 const id = random.below(1 + random.below(n));
        REQUIRE(pool.hits(id) == seen[id]);
        seen[id] = true;
      }
      REQUIRE(audit(pool.tested().view()));
    }
  });
}

TEST_CASE("a pool of one slot holds what was demanded last", "[policy][degenerate]") {
  bundles::for_each(bundles::all{}, []<class Bundle>() {
    INFO(Bundle::name);
    play::player<Bundle> pool(n_experts, 1);
    kit::integers random(1);
    u32 last = u32_max;
    for (u32 i = 0; i < 200 + rounds(4'800); ++i) {
      u32 const id = random.one_in(2) && last != u32_max ? last : random.below(n_experts);
      REQUIRE(pool.hits(id) == (id == last));
      last = id;
    }
    REQUIRE(audit(pool.tested().view()));
  });
}

// A loop of no more experts than slots misses each once: nothing makes way for nothing. A longer one has at
// least one miss in each round.
TEST_CASE("a loop over experts ends in hits where it fits and in no crash where it does not",
          "[policy][degenerate]") {
  bundles::for_each(bundles::all{}, []<class Bundle>() {
    for (u32 const capacity : capacities) {
      for (u32 const length : {1u, 2u, capacity - (capacity > 1 ? 1u : 0u), capacity, capacity + 1, capacity + 2,
                               2 * capacity, n_experts}) {
        if (length > n_experts) {
          continue;
        }
        for (u32 const width : {1u, min_of(min_of(k, capacity), length)}) {
          INFO(Bundle::name << ", " << capacity << " slots, a loop of " << length << ", " << width << " ids a step");
          play::player<Bundle> pool(n_experts, capacity);
          std::vector<u32> ids;
          u32 at = 0;
          u64 missed = 0;
          u32 const steps = 6 * ceil_div(max_of(length, capacity), width);
          for (u32 i = 0; i < steps; ++i) {
            ids.clear();
            for (u32 j = 0; j < width; ++j) {
              ids.push_back(at);
              at = at + 1 == length ? 0 : at + 1;
            }
            std::vector<u32> const slots = pool.step(ids);
            REQUIRE(slots.size() == width);
            missed += width - count_hits(slots);
          }
          if (length <= capacity) {
            REQUIRE(missed == length);
          } else {
            u64 const rounds = u64{steps} * width / length;
            REQUIRE(missed >= length + (rounds - 1));
          }
          REQUIRE(audit(pool.tested().view()));
        }
      }
    }
  });
}
