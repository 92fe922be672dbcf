// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <set>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/observe/recall.hpp>

#include "scenario/play.hpp"

namespace warmset {
namespace {

using scenario::id_list;

std::vector<u64> values(recall_counts const& c) {
  std::vector<u64> all;
  for_each_counter(c, [&](counter_info const&, auto value) { all.push_back(value.value); });
  return all;
}

/// The same counts from lists and sets, written down from their definitions.
struct naive {
  u32 n_experts, k;
  u64 expert_bytes;
  recall_counts c{};

  void judge(std::vector<u32> const& predicted, std::set<u32> const& copied,
             std::vector<u32> const& used, std::vector<access_kind> const& how) {
    auto const is_predicted = [&](u32 e) {
      return std::find(predicted.begin(), predicted.end(), e) != predicted.end();
    };
    auto const is_used = [&](u32 e) {
      return std::find(used.begin(), used.end(), e) != used.end();
    };
    ++c.steps.value;
    c.candidates.value += n_experts;
    c.used.value += used.size();
    c.predicted.value += predicted.size();
    c.copied.value += copied.size();
    c.copied_bytes.value += copied.size() * expert_bytes;
    for (u32 i = 0; i < predicted.size(); ++i) {
      c.predicted_used.value += is_used(predicted[i]) ? 1 : 0;
      c.first_k_used.value += i < k && is_used(predicted[i]) ? 1 : 0;
      c.predicted_not_copied.value += copied.count(predicted[i]) == 0 ? 1 : 0;
    }
    for (u32 const e : copied) {
      c.copied_used.value += is_used(e) ? 1 : 0;
      c.copied_not_used.value += is_used(e) ? 0 : 1;
    }
    for (u32 i = 0; i < used.size(); ++i) {
      c.used_not_predicted.value += is_predicted(used[i]) ? 0 : 1;
      bool missed = false;
      switch (how[i]) {
      case access_kind::hit:
        break;
      case access_kind::late:
      case access_kind::overflow_hit:
        missed = copied.count(used[i]) != 0;
        break;
      default:
        missed = true;
      }
      c.misses.value += missed ? 1 : 0;
      c.misses_predicted.value += missed && is_predicted(used[i]) ? 1 : 0;
    }
  }
};

/// Takes ids that name experts, each once.
void add_to(std::vector<u32>& predicted, id_list const& ids, u32 n_experts) {
  for (routed_id const id : ids) {
    if (id >= 0 && static_cast<u32>(id) < n_experts &&
        std::find(predicted.begin(), predicted.end(), static_cast<u32>(id)) == predicted.end())
      predicted.push_back(static_cast<u32>(id));
  }
}

struct hinted : default_policy {
  using predictor = predict::supplied;
};

}  // namespace

TEST_CASE("recall keeps its three failures apart") {
  recall r{geometry::uniform(1, 16, 2, 1000)};
  r.predicted(0, id_list{3, 5, 7, 3, -1, 99});
  r.copied(0, expert_id{3});
  r.copied(0, expert_id{7});
  u32 const used[] = {3, 5, 9, 11};
  access_kind const how[] = {access_kind::first_use, access_kind::hit, access_kind::load,
                             access_kind::declined};
  r.used(0, phase::decode, used, how);
  recall_counts const c = r.total(phase::decode);
  CHECK(c.predicted.value == 3);
  CHECK(c.predicted_not_copied.value == 1);  // 5
  CHECK(c.copied_not_used.value == 1);       // 7
  CHECK(c.used_not_predicted.value == 2);    // 9 and 11
  CHECK(c.precision() == 2.0 / 3.0);
  CHECK(c.recall() == 0.5);
  CHECK(c.recall_at_k() == 0.5);
  CHECK(c.chance() == 4.0 / 16.0);
  CHECK(c.misses.value == 3);
  CHECK(c.miss_coverage() == 1.0 / 3.0);
  CHECK(c.bytes_per_useful_hit() == 2000);
  CHECK(r.total(phase::prefill).steps.value == 0);

  r.used(0, phase::decode, used, how);  // predictions were of the step before
  CHECK(r.total(phase::decode).predicted.value == 3);
  CHECK(r.total(phase::decode).used_not_predicted.value == 6);

  recall_counts const nothing{};
  for (double const ratio : {nothing.precision(), nothing.recall(), nothing.recall_at_k(),
                             nothing.chance(), nothing.miss_coverage()})
    CHECK(ratio == 0.0);
  CHECK(nothing.bytes_per_useful_hit() == 0);
  recall_counts vain{};
  vain.copied_bytes.value = 5;
  CHECK(vain.bytes_per_useful_hit() == u64_max);
  CHECK_THROWS_AS((recall{geometry::uniform(1, 16, 2, 1000), 0}), config_error);
  CHECK_THROWS_AS((recall{geometry::uniform(1, 16, 2, 1000), 5}), config_error);
}

TEST_CASE("recall is exact against a recount, on a cache that decides for itself") {
  constexpr u32 n_experts = 24, k = 3, n_layers = 2;
  geometry const model = geometry::uniform(n_layers, n_experts, k, 1000);
  for (u64 const seed : {1u, 2u, 3u}) {
    scenario::dice dice{seed};
    cache<hinted> c{model, budget::of_slots(8), {.speculative_slots = 3}};
    recall r{model};
    naive by_phase[n_layers][n_phases];
    for (auto& layer : by_phase) {
      for (naive& n : layer)
        n = {n_experts, k, 1000, {}};
    }
    std::vector<u32> predicted[n_layers];
    std::set<u32> copied[n_layers];
    for (u32 i = 0; i < 3'000; ++i) {
      u32 const layer = dice.below(n_layers);
      if (dice.below(2) == 0) {
        id_list hints(dice.below(6));
        for (routed_id& id : hints)
          id = static_cast<routed_id>(dice.below(n_experts + 4)) - 2;
        (void)c.advise(layer_id{layer}, hints);
        r.predicted(layer, hints);
        add_to(predicted[layer], hints, n_experts);
        for (u32 j = 0; j < c.last_plan().n_loads; ++j) {
          u32 const e = c.last_plan().loads[j].expert;
          r.copied(layer, expert_id{e});
          copied[layer].insert(e);
        }
      } else {
        id_list ids(1 + dice.below(dice.below(8) == 0 ? 20 : 4));
        for (routed_id& id : ids)
          id = static_cast<routed_id>(dice.below(n_experts));
        phase const p = dice.below(3) == 0 ? phase::prefill : phase::decode;
        step_view const view = c.step(layer_id{layer}, ids, p);
        r.used(layer, p, view.experts, view.how);
        by_phase[layer][static_cast<u32>(p)].judge(predicted[layer], copied[layer],
                                                   {view.experts.begin(), view.experts.end()},
                                                   {view.how.begin(), view.how.end()});
        predicted[layer].clear();
        copied[layer].clear();
      }
      if (dice.below(3) == 0) {
        for (u32 pool = 0; pool < n_layers; ++pool) {
          for (u32 s = 0; s < 8; ++s) {
            (void)(dice.below(5) == 0 ? c.backend().failed(pool, slot_id{s})
                                      : c.backend().arrived(pool, slot_id{s}));
          }
        }
        c.settle();
      }
      REQUIRE(c.audit());
    }
    for (u32 layer = 0; layer < n_layers; ++layer) {
      for (phase const p : {phase::prefill, phase::decode})
        CHECK(values(r.total(layer, p)) == values(by_phase[layer][static_cast<u32>(p)].c));
    }
    recall_counts const all = r.total(phase::decode);
    for (u64 const value : values(all))
      CHECK(value > 20);
    // sums that hold whatever happened
    CHECK(all.copied.value == all.copied_used.value + all.copied_not_used.value);
    CHECK(all.predicted.value == all.copied.value + all.predicted_not_copied.value);
    CHECK(all.used.value == all.predicted_used.value + all.used_not_predicted.value);
    CHECK(all.first_k_used.value <= all.predicted_used.value);
    CHECK(all.misses.value <= all.used.value);
    // hints drawn at random are as good as chance
    CHECK(all.precision() > all.chance() * 0.8);
    CHECK(all.precision() < all.chance() * 1.2);
  }
}

TEST_CASE("predictions for later steps are judged by those steps") {
  recall r{geometry::uniform(1, 8, 2, 100), 3};
  access_kind const hit[] = {access_kind::hit};
  auto const step = [&](u32 expert) {
    u64 const before = r.total(phase::decode).predicted_used.value;
    u32 const used[] = {expert};
    r.used(0, phase::decode, used, hit);
    return r.total(phase::decode).predicted_used.value - before;
  };
  r.predicted(0, id_list{1}, 1);
  r.predicted(0, id_list{2}, 2);
  r.predicted(0, id_list{3}, 3);
  r.predicted(0, id_list{4}, 4);  // beyond: passed over
  CHECK(step(1) == 1);
  r.predicted(0, id_list{5}, 3);
  CHECK(step(2) == 1);
  CHECK(step(2) == 0);
  CHECK(step(5) == 1);
  CHECK(step(4) == 0);
  CHECK(r.total(phase::decode).predicted.value == 4);
}

}  // namespace warmset
