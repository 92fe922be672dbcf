// SPDX-License-Identifier: Apache-2.0

#include <string>

#include <catch2/catch_test_macros.hpp>

#include <warmset/core/presets.hpp>
#include <warmset/policy/guard/warm_then_challenger_must_win.hpp>
#include <warmset/policy/score/lfu.hpp>
#include <warmset/predict/supplied.hpp>
#include <warmset/trace/working_set.hpp>

#include "support.hpp"

namespace trace_test {
namespace {

using trace::advice;
using trace::capacity;
using trace::capacity_advice;
using trace::capacity_warning;

std::vector<capacity_warning> kinds(std::vector<advice> const& found) {
  std::vector<capacity_warning> result;
  for (advice const& a : found) {
    result.push_back(a.kind);
    CHECK(std::string(a.text.c_str()).size() < sentence::capacity);
    CHECK(a.have <= a.need);
  }
  return result;
}

using warnings = std::vector<capacity_warning>;

/// The only warning.
advice only(std::vector<advice> const& found, capacity_warning kind) {
  REQUIRE(found.size() == 1);
  CHECK(found.front().kind == kind);
  return found.front();
}

std::string text(advice const& a) {
  return a.text.c_str();
}

/// 4 layers of 32 experts, k = 4, 100 bytes: a cycle of 16 experts.
geometry model() {
  return geometry::uniform(4, 32, 4, 100);
}

struct three_segments : select::coldest {
  static constexpr u32 least_slots = 3;
  static constexpr char const* name = "three_segments";
};
struct segmented : default_policy {
  using selector = three_segments;
};
struct fading : default_policy {
  using guard = warmset::guard::warm_then_challenger_must_win;
  using predictor = predict::supplied;
};
struct everlasting : fading {
  using score = warmset::score::lfu;
  using decay = warmset::no_decay;
};

}  // namespace

TEST_CASE("per-layer pools: below k, below 3 k, enough") {
  CHECK(kinds(capacity_advice(model(), capacity::slots_per_layer(0))) ==
        warnings{capacity_warning::below_k});
  advice const k =
      only(capacity_advice(model(), capacity::slots_per_layer(3)), capacity_warning::below_k);
  CHECK((k.have == 3 && k.need == 4));
  CHECK(
      text(k) ==
      "3 slots are less than the k = 4 experts of one token in layer 0 (and in others): every step "
      "overflows");
  only(capacity_advice(model(), capacity::slots_per_layer(4)), capacity_warning::below_3k);
  advice const thrice =
      only(capacity_advice(model(), capacity::slots_per_layer(11)), capacity_warning::below_3k);
  CHECK((thrice.have == 11 && thrice.need == 12));
  CHECK(text(thrice) == "11 slots per layer are less than 3 k = 12; a step takes most of the pool");
  CHECK(capacity_advice(model(), capacity::slots_per_layer(12)).empty());
}

TEST_CASE("a pool that holds a whole layer is large enough below 3 k too") {
  geometry const small = geometry::uniform(2, 8, 4, 100);
  only(capacity_advice(small, capacity::slots_per_layer(7)), capacity_warning::below_3k);
  CHECK(capacity_advice(small, capacity::slots_per_layer(8)).empty());
  CHECK(capacity_advice(small, capacity::slots_per_layer(800)).empty());
  only(capacity_advice(small, capacity::shared_slots(15)), capacity_warning::below_3k);
  CHECK(capacity_advice(small, capacity::shared_slots(16)).empty());
}

TEST_CASE("layers that differ: the one that lacks most is named") {
  geometry const mixed(
      {{layer_id{3}, 32, 2, {100}}, {layer_id{7}, 32, 8, {100}}, {layer_id{9}, 32, 6, {100}}});
  std::vector<advice> const found = capacity_advice(mixed, capacity::slots_per_layer(5));
  REQUIRE(kinds(found) == warnings{capacity_warning::below_k, capacity_warning::below_3k});
  CHECK(found[0].need == 8);
  CHECK(text(found[0]).find("layer 7 (and in others)") != std::string::npos);
  CHECK(found[1].need == 6);
}

TEST_CASE("a shared pool: below a step, below a cycle, below three cycles, enough") {
  CHECK(kinds(capacity_advice(model(), capacity::shared_slots(3))) ==
        warnings{capacity_warning::below_k, capacity_warning::below_cycle});
  only(capacity_advice(model(), capacity::shared_slots(4)), capacity_warning::below_cycle);
  advice const cycle =
      only(capacity_advice(model(), capacity::shared_slots(15)), capacity_warning::below_cycle);
  CHECK((cycle.have == 15 && cycle.need == 16));
  CHECK(text(cycle) ==
        "a shared pool of 15 slots is below one token's cycle of 16 slots: where tokens repeat, a "
        "shared LRU hits nothing up to 12 slots and not everything below the cycle");
  only(capacity_advice(model(), capacity::shared_slots(16)), capacity_warning::below_3k);
  only(capacity_advice(model(), capacity::shared_slots(47)), capacity_warning::below_3k);
  CHECK(capacity_advice(model(), capacity::shared_slots(48)).empty());
}

TEST_CASE("a shared pool of bytes is judged in bytes") {
  CHECK(kinds(capacity_advice(model(), capacity::shared_bytes(399))) ==
        warnings{capacity_warning::below_k, capacity_warning::below_cycle});
  advice const cycle =
      only(capacity_advice(model(), capacity::shared_bytes(1599)), capacity_warning::below_cycle);
  CHECK((cycle.have == 1599 && cycle.need == 1600));
  only(capacity_advice(model(), capacity::shared_bytes(1600)), capacity_warning::below_3k);
  only(capacity_advice(model(), capacity::shared_bytes(4799)), capacity_warning::below_3k);
  CHECK(capacity_advice(model(), capacity::shared_bytes(4800)).empty());
}

TEST_CASE("the cliff of a published model is where its cycle is") {
  geometry const g = presets::find("gpt-oss-120b");
  u64 const cycle = u64{36} * 4 * 13'219'200;
  only(capacity_advice(g, capacity::shared_bytes(cycle - 1)), capacity_warning::below_cycle);
  only(capacity_advice(g, capacity::shared_bytes(cycle)), capacity_warning::below_3k);
}

TEST_CASE("pins must leave k slots") {
  std::vector<expert_key> pins;
  for (u32 i = 0; i < 8; ++i) {
    pins.push_back({layer_id{2}, expert_id{i}});
  }
  CHECK(capacity_advice(model(), capacity::slots_per_layer(12), {}, pins).empty());
  pins.push_back({layer_id{1}, expert_id{0}});  // another layer's pool
  CHECK(capacity_advice(model(), capacity::slots_per_layer(12), {}, pins).empty());
  CHECK(capacity_advice(model(), capacity::shared_slots(48), {}, pins).empty());
  pins.push_back({layer_id{2}, expert_id{8}});
  advice const layer = only(capacity_advice(model(), capacity::slots_per_layer(12), {}, pins),
                            capacity_warning::pins_leave_no_room);
  CHECK((layer.have == 3 && layer.need == 4));
  CHECK(text(layer) == "pins leave 3 slots of layer 2, fewer than k = 4");

  std::vector<expert_key> many;
  for (u32 i = 0; i < 44; ++i) {
    many.push_back({layer_id{i % 4}, expert_id{i / 4}});
  }
  CHECK(capacity_advice(model(), capacity::shared_slots(48), {}, many).empty());
  CHECK(capacity_advice(model(), capacity::shared_bytes(4800), {}, many).empty());
  many.push_back({layer_id{0}, expert_id{31}});
  CHECK(only(capacity_advice(model(), capacity::shared_slots(48), {}, many),
             capacity_warning::pins_leave_no_room)
            .have == 3);
  CHECK(only(capacity_advice(model(), capacity::shared_bytes(4800), {}, many),
             capacity_warning::pins_leave_no_room)
            .have == 300);
  many.assign(100, {layer_id{77}, expert_id{0}});  // a layer that the model does not have
  CHECK(capacity_advice(model(), capacity::shared_slots(48), {}, many).empty());
}

TEST_CASE("a quarter of the working set misses much under any policy") {
  trace::working_set const demand{64, 200, 20'000};
  advice const little =
      only(capacity_advice(model(), capacity::shared_slots(48), {}, {}, {64, 192, 19'200}),
           capacity_warning::below_demand);
  CHECK((little.have == 48 && little.need == 49));
  CHECK(text(little) ==
        "a capacity of 48 slots is 25 % of the 192 experts that 64 tokens demand; much of it "
        "misses under any policy");
  CHECK(capacity_advice(model(), capacity::shared_slots(51), {}, {}, demand).empty());
  only(capacity_advice(model(), capacity::shared_slots(50), {}, {}, demand),
       capacity_warning::below_demand);
  only(capacity_advice(model(), capacity::shared_bytes(5000), {}, {}, demand),
       capacity_warning::below_demand);
  CHECK(capacity_advice(model(), capacity::shared_bytes(5001), {}, {}, demand).empty());
  // 4 layers of 12 slots
  CHECK(capacity_advice(model(), capacity::slots_per_layer(12), {}, {}, {64, 191, 0}).empty());
  only(capacity_advice(model(), capacity::slots_per_layer(12), {}, {}, {64, 192, 0}),
       capacity_warning::below_demand);
}

TEST_CASE("a guard that compares heat needs heat that fades") {
  capacity const enough = capacity::slots_per_layer(16);
  CHECK(capacity_advice(model(), enough, trace::traits_of<default_policy>()).empty());
  CHECK(capacity_advice(model(), enough, trace::traits_of<fading>()).empty());
  CHECK(text(only(capacity_advice(model(), enough, trace::traits_of<everlasting>()),
                  capacity_warning::guard_without_decay)) ==
        "the guard warm_then_challenger_must_win compares heat, and that of lfu never fades: in "
        "the end it refuses "
        "every hint");
}

TEST_CASE("segments need slots") {
  trace::policy_traits const traits = trace::traits_of<segmented>();
  CHECK(traits.least_slots == 3);
  CHECK(trace::traits_of<default_policy>().least_slots == 0);
  geometry const tiny = geometry::uniform(1, 8, 1, 100);
  std::vector<advice> const found = capacity_advice(tiny, capacity::slots_per_layer(2), traits);
  REQUIRE(kinds(found) ==
          warnings{capacity_warning::below_3k, capacity_warning::segments_too_small});
  CHECK(text(found[1]) == "2 slots are less than the 3 that the segments of three_segments need");
  CHECK(capacity_advice(tiny, capacity::slots_per_layer(3), traits).empty());
  CHECK(kinds(capacity_advice(tiny, capacity::shared_slots(2), traits)).back() ==
        capacity_warning::segments_too_small);
  CHECK(capacity_advice(tiny, capacity::shared_slots(3), traits).empty());
}

TEST_CASE("every warning has a name of its own") {
  std::vector<std::string> names;
  for (u32 i = 0; i <= static_cast<u32>(capacity_warning::segments_too_small); ++i) {
    names.emplace_back(name_of(static_cast<capacity_warning>(i)));
    CHECK(names.back() != "unknown");
    for (u32 j = 0; j < i; ++j) {
      CHECK(names[j] != names[i]);
    }
  }
  CHECK(std::string(name_of(static_cast<capacity_warning>(99))) == "unknown");
}

TEST_CASE("the working set is the mean over windows of tokens") {
  trace::recording const r = one_layer(8, 2, {{0, 1}, {1, 2}, {3}, {3, 4}, {7}});
  trace::working_set const two =
      trace::working_set_of(r, {}, 2);  // {0 1 2}, {3 4}; the last token is left out
  CHECK((two.tokens == 2 && two.experts == 2 && two.bytes == 200));
  trace::working_set const one = trace::working_set_of(r, {}, 1);  // 2 + 2 + 1 + 2 + 1 over 5
  CHECK(one.experts == 1);
  trace::working_set const all = trace::working_set_of(r, {}, 64);  // no window is finished
  CHECK((all.tokens == 64 && all.experts == 6 && all.bytes == 600));
  trace::selection none;
  none.decode = false;
  CHECK(trace::working_set_of(r, none, 2).tokens == 0);
}

}  // namespace trace_test
