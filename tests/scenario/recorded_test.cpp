// SPDX-License-Identifier: Apache-2.0
// Policies side by side, on recordings and on traces that favour one of them.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <string_view>

#include <warmset/table/profile.hpp>
#include <warmset/trace/halve.hpp>
#include <warmset/trace/read_bigmoe.hpp>
#include <warmset/trace/replay.hpp>
#include <warmset/trace/working_set.hpp>

#include "play.hpp"
#include "policy/play.hpp"
#include "recordings.hpp"

namespace warmset::scenario {
namespace {

using lru = plain<score::lru, select::lru_list>;
using clock_1 = plain<score::lru, select::clock<1>>;
using slru_80 = plain<score::lru, select::slru<>>;

/// The stack model of locality: nineteen of twenty ids are among the `reach` that were used last, each as likely as
/// the others; the rest are any. Where `reach` are the slots, nothing beats LRU.
std::vector<u32> stack_trace(u32 experts, u32 reach, u32 length, u64 seed) {
  dice random{seed};
  std::vector<u32> stack(experts);
  std::iota(stack.begin(), stack.end(), 0u);
  std::vector<u32> ids;
  for (u32 i = 0; i < length; ++i) {
    u32 const depth = random.below(random.below(20) == 0 ? experts : reach);
    u32 const id = stack[depth];
    std::rotate(stack.begin(), stack.begin() + depth, stack.begin() + depth + 1);
    ids.push_back(id);
  }
  return ids;
}

template <class Bundle>
double hit_rate(std::vector<u32> const& ids, u32 experts, u32 slots) {
  play::player<Bundle> pool(experts, slots);
  u32 hits = 0;
  for (u32 const id : ids)
    hits += pool.hits(id) ? 1 : 0;
  return static_cast<double>(hits) / static_cast<double>(ids.size());
}

trace::selection decoded() {
  trace::selection s;
  s.prefill = false;
  return s;
}

template <class Bundle>
double hit_rate(trace::recording const& r, u32 slots) {
  cache<Bundle, move::immediate> c{r.geometry(), budget::of_slots(slots)};
  (void)trace::replay(r, decoded(), c);
  return c.observer().total().hit_rate();
}

/// Calls f(recording) for the recordings of an engine on a telephone; skips where they are not there.
template <class F>
void for_recordings(F&& f) {
  for (char const* const name : {"qwen", "gptoss"}) {
    std::vector<std::byte> const bytes = unpacked(traces() / "raw/BigMoeOnEdge" / (std::string(name) + ".route.csv.zst"));
    if (bytes.empty()) {
      SKIP("skipped: no recordings (WARMSET_TRACES) or no zstd");
    }
    INFO("recording " << name);
    f(trace::read_bigmoe({reinterpret_cast<char const*>(bytes.data()), bytes.size()}));
  }
}

}  // namespace

// The reference trace of the report is not at hand. Where recency decides, LRU is ahead of CLOCK by that much; in
// the recordings experts have lasting popularity, and CLOCK is level with it or ahead.
TEST_CASE("B20 second chance falls behind LRU where recency decides") {
  constexpr u32 experts = 64;
  for (u32 const slots : {8u, 16u, 32u}) {
    std::vector<u32> const ids = stack_trace(experts, slots, 200'000, 20);
    double const best = hit_rate<lru>(ids, experts, slots);
    double const chance = hit_rate<clock_1>(ids, experts, slots);
    INFO(slots << " slots: lru " << best << ", clock " << chance);
    CHECK(best - chance > 0.015);
    CHECK(best - chance < 0.08);
  }
}

TEST_CASE("R20 CLOCK is deterministic and near LRU") {
  constexpr double stated = 0.02;  // of all demands
  SECTION("two runs decide alike") {
    std::vector<u32> const ids = play::zipf_stream(64, 50'000, 1);
    play::player<clock_1> a(64, 16), b(64, 16);
    for (u32 const id : ids) {
      u32 const one[] = {id};
      REQUIRE(a.step(one) == b.step(one));
    }
    CHECK(std::memcmp(a.tested().block(), b.tested().block(), a.tested().block_bytes()) == 0);
  }
  SECTION("on a trace of lasting popularity") {
    std::vector<u32> const ids = play::zipf_stream(64, 200'000, 2);
    for (u32 const slots : {2u, 3u, k, 8u, 42u, 63u}) {
      double const recent = hit_rate<lru>(ids, 64, slots);
      double const chance = hit_rate<clock_1>(ids, 64, slots);
      INFO(slots << " slots: lru " << recent << ", clock " << chance);
      CHECK(std::abs(recent - chance) < stated);
    }
  }
  SECTION("on recordings") {
    for_recordings([=](trace::recording const& r) {
      for (u32 const slots : {8u, 12u, 16u, 24u, 32u, 48u}) {
        double const recent = hit_rate<lru>(r, slots);
        double const chance = hit_rate<clock_1>(r, slots);
        INFO(slots << " slots a layer: lru " << recent << ", clock " << chance);
        CHECK(std::abs(recent - chance) < stated);
      }
    });
  }
}

// The report found SLRU and LRU equal where the capacity was a quarter of the demand. The recordings here do not show
// that; what the library owes is the ratio beside the result.
TEST_CASE("R16 a result is read with the ratio of capacity and demand") {
  SECTION("a demand that knows no favourites: equal at every ratio") {
    dice random{16};
    std::vector<u32> ids(200'000);
    for (u32& id : ids)
      id = random.below(n_experts);
    for (u32 const slots : {n_experts / 4, 3 * n_experts / 5}) {
      double const share = static_cast<double>(slots) / n_experts;
      double const deviation = std::sqrt(share * (1 - share) / 200'000);
      CHECK(std::abs(hit_rate<lru>(ids, n_experts, slots) - share) < 5 * deviation + 0.001);
      CHECK(std::abs(hit_rate<slru_80>(ids, n_experts, slots) - share) < 5 * deviation + 0.001);
    }
  }
  SECTION("on recordings the ratio is visible, and a quarter is warned of") {
    for_recordings([](trace::recording const& r) {
      trace::working_set const demand = trace::working_set_of(r, decoded(), 64);
      u64 const layers = r.geometry().layers().size();
      REQUIRE(demand.experts != 0);
      auto const advice_at = [&](double ratio, u32& slots) {
        slots = static_cast<u32>(ratio * static_cast<double>(demand.experts) / static_cast<double>(layers));
        for (trace::advice const& a : trace::capacity_advice(
                 r.geometry(), trace::capacity::slots_per_layer(slots), trace::traits_of<slru_80>(), {}, demand)) {
          if (a.kind == trace::capacity_warning::below_demand) {
            std::string const percent = std::to_string(slots * layers * 100 / demand.experts) + " % of";
            CHECK(std::string_view{a.text.c_str()}.find(percent) != std::string_view::npos);
            CHECK(a.have == slots * layers);
            return true;
          }
        }
        return false;
      };
      for (double const ratio : {0.25, 0.6}) {
        u32 slots = 0;
        CHECK(advice_at(ratio, slots) == (ratio <= 0.25));
        double const recent = hit_rate<lru>(r, slots);
        double const segmented = hit_rate<slru_80>(r, slots);
        INFO(slots << " slots a layer, " << ratio << " of the demand: lru " << recent << ", slru " << segmented);
        CHECK(std::abs(recent - segmented) < 0.04);
      }
    });
  }
}

// A static set is what a cache of pins and k further slots hits: the pins are the hottest of the first half.
TEST_CASE("R55 a static set from the first half is replayed on the second") {
  SECTION("where favourites change between the halves it covers what a uniform set would") {
    constexpr u32 steps = 40'000;
    geometry const g = geometry::uniform(1, n_experts, 1, 1000);
    using counted = plain<score::lfu>;
    for (u32 const pins : {8u, 16u, 32u}) {
      cache<counted, move::immediate> first{g, budget::of_slots(pins)};
      cache<counted, move::immediate> second{g, budget::of_slots(pins + 1)};
      cache<plain<score::decayed_count>, move::immediate> adaptive{g, budget::of_slots(pins + 1)};
      dice random{55};
      for (u32 i = 0; i < steps; ++i) {
        routed_id const id[] = {static_cast<routed_id>(random.below(1 + random.below(n_experts)))};
        (void)first.step(layer_id{0}, std::span<routed_id const>{id});
      }
      REQUIRE(pin_hottest(second, profile_of(first), pins));
      u32 covered = 0;
      for (u32 i = 0; i < steps; ++i) {
        // another favourite every 500 steps, anywhere
        u32 const favourite = i / 500 * 37 % n_experts;
        u32 const e = (favourite + random.below(1 + random.below(n_experts))) % n_experts;
        routed_id const id[] = {static_cast<routed_id>(e)};
        covered += (second.pools()[0].view().expert(e).where & expert_word::pinned) != 0 ? 1 : 0;
        (void)second.step(layer_id{0}, std::span<routed_id const>{id});
        (void)adaptive.step(layer_id{0}, std::span<routed_id const>{id});
      }
      double const share = static_cast<double>(covered) / steps;
      INFO(pins << " pins cover " << share << ", adaptive " << adaptive.observer().total().hit_rate());
      CHECK(std::abs(share - static_cast<double>(pins) / n_experts) < 0.05);
      CHECK(second.observer().total().hit_rate() < share + 0.05);
      CHECK(adaptive.observer().total().hit_rate() > share + 0.1);
    }
  }
  // The recordings at hand are short and of one text each: favourites last, and the set covers far more than a
  // uniform one.
  SECTION("on recordings the static set is beside the others") {
    for_recordings([](trace::recording const& r) {
      trace::halves const parts = trace::halve(r, decoded());
      u32 const n = r.geometry().layers().front().n_experts;
      u32 const per_token = r.geometry().layers().front().k;
      for (u32 const slots : {16u, 32u}) {
        u32 const pins = slots - per_token;
        cache<plain<score::lfu>, move::immediate> first{r.geometry(), budget::of_slots(slots)};
        (void)trace::replay(parts.first, decoded(), first);
        cache<plain<score::lfu>, move::immediate> fixed{r.geometry(), budget::of_slots(slots)};
        REQUIRE(pin_hottest(fixed, profile_of(first), pins));
        u64 demanded = 0;
        u64 covered = 0;
        (void)trace::replay(parts.second, decoded(), fixed, [&](trace::event const& e, step_view const& step) {
          u32 pool = 0, row = 0;
          REQUIRE(fixed.find(e.layer, pool, row));
          auto const& view = fixed.pools()[pool].view();
          for (u32 const x : step.experts) {
            ++demanded;
            covered += (view.expert(view.index_of(row, x)).where & expert_word::pinned) != 0 ? 1 : 0;
          }
        });
        double const share = static_cast<double>(covered) / static_cast<double>(demanded);
        double const stays = fixed.observer().total().hit_rate();
        double const adapts = hit_rate<plain<score::decayed_count>>(parts.second, slots);
        INFO(slots << " of " << n << " slots: " << pins << " pins cover " << share << "; static " << stays
                   << ", decayed_count " << adapts);
        CHECK(share > 2.0 * pins / n);
        CHECK(std::abs(stays - adapts) < 0.03);
      }
    });
  }
}

}  // namespace warmset::scenario
