// SPDX-License-Identifier: Apache-2.0
#include "expert_cache_stand_in.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <kit/naive_class_lru.hpp>
#include <warmset/trace/read.hpp>
#include <warmset_adapter.h>

#include "common/file.hpp"
#include "support/count_allocations.hpp"
#include "support/rounds.hpp"

using namespace warmset_llama;
using warmset::u32;
using warmset::u64;

namespace {

warmset::trace::recording bundled(std::string const& name) {
  return warmset::trace::read(
      warmset_tools::read_file(std::string(WARMSET_SOURCE_DIR) + "/examples/data/" + name));
}

std::unique_ptr<adapter> make(adapter_group const& g) {
  char why[256];
  std::unique_ptr<adapter> made = adapter::make(g, why, sizeof why);
  INFO(why);
  REQUIRE(made != nullptr);
  return made;
}

std::string refusal(adapter_group const& g) {
  char why[256];
  REQUIRE(adapter::make(g, why, sizeof why) == nullptr);
  return why;
}

adapter_group group_of(warmset::geometry const& m, u32 n_slots) {
  adapter_group g;
  g.n_layers = static_cast<u32>(m.layers().size());
  g.n_experts = m.layers().front().n_experts;
  g.n_used = m.layers().front().k;
  g.n_slots = n_slots;
  g.expert_bytes = m.layers().front().expert_bytes();
  return g;
}

/// The tables of all layers as somebody keeps them who applies the changes of each plan.
struct follower {
  explicit follower(adapter_group const& g) : n_experts(g.n_experts), table(g.n_layers * g.n_experts, -1) {}
  void apply(adapter_plan const& p) {
    for (std::size_t i = 0; i < p.n_changes; ++i) {
      table[p.changes[i].layer * n_experts + p.changes[i].expert] = p.changes[i].slot;
    }
  }
  u32 n_experts;
  std::vector<std::int32_t> table;
};

}  // namespace

TEST_CASE("the adapter decides as the naive class_lru does, on every step of the recordings") {
  struct play {
    char const* trace;
    u32 n_slots;
  };
  for (play const& each : {play{"tinymoe-8x32.wst.zst", 64}, {"tinymoe-8x32.wst.zst", 13},
                           {"tinymoe-12x64.wst.zst", 192}}) {
    warmset::trace::recording const r = bundled(each.trace);
    adapter_group const g = group_of(r.geometry(), each.n_slots);
    std::unique_ptr<adapter> const tested = make(g);
    warmset::kit::naive_class_lru naive(g.n_experts, g.n_slots, g.n_layers, 1);
    follower device(g);
    u64 steps = 0;
    u64 hits = 0;
    u64 misses = 0;
    bool same = true;
    std::vector<u32> ids;
    std::vector<std::int32_t> routed;
    warmset::trace::for_each_event(r, [&](warmset::trace::event const& e) {
      if (!same) {
        return;
      }
      ids.assign(e.ids.begin(), e.ids.end());
      routed.assign(e.ids.begin(), e.ids.end());
      adapter_plan const p = tested->plan(e.row, routed.data(), routed.size());
      std::vector<u32> const wanted = naive.step(ids, e.row);
      same = p.status == adapter_status::ok;
      device.apply(p);
      ++steps;
      for (std::size_t i = 0; i < ids.size() && same; ++i) {
        u32 const slot = static_cast<u32>(p.slots[i]);
        bool const is_load = std::any_of(p.loads, p.loads + p.n_loads,
                                         [&](adapter_load const& l) { return l.expert == ids[i]; });
        ++(is_load ? misses : hits);
        // the same hits in the same slots, and the misses where it put them
        same = slot < g.n_slots && naive.owner(slot) == e.row * g.n_experts + ids[i] &&
               is_load == (wanted[i] == warmset::no_slot.value) && (is_load || wanted[i] == slot);
      }
      if (!same) {
        FAIL(each.trace << ", " << each.n_slots << " slots: step " << steps << " of layer " << e.layer.value);
      }
    });
    for (u32 layer = 0; layer < g.n_layers; ++layer) {
      CHECK(std::equal(tested->table(layer), tested->table(layer) + g.n_experts,
                       device.table.begin() + layer * g.n_experts));
    }
    adapter_counters const c = tested->counters();
    CHECK(c.steps == steps);
    CHECK(c.hits == hits);
    CHECK(c.misses == misses);
    CHECK(c.evictions == misses - g.n_slots);  // the slots are full, and nothing was invalidated
    CHECK(c.bytes_loaded == misses * g.expert_bytes);
    std::printf("llama.cpp: adapter, %s, %u slots for %u layers: %llu steps decided alike, hit rate %.4f\n", each.trace,
                each.n_slots, g.n_layers, static_cast<unsigned long long>(steps),
                static_cast<double>(hits) / static_cast<double>(hits + misses));
  }
}

TEST_CASE("an engine of C++17 serves products out of slots that the adapter fills") {
  warmset::trace::recording const r = bundled("tinymoe-8x32.wst.zst");
  stand_in::options o;
  o.n_layers = 8;
  o.n_experts = 32;
  o.n_used = 4;
  o.n_slots = 48;
  std::shared_ptr<stand_in::moe_cache> const cache = stand_in::init(o);
  warmset::kit::naive_class_lru naive(o.n_experts, o.n_slots, o.n_layers, 1);
  u64 hits = 0;
  u64 misses = 0;
  u64 copies = 0;
  u32 steps = 0;
  warmset::trace::for_each_event(r, [&](warmset::trace::event const& e) {
    if (++steps > 2000) {
      return;
    }
    stand_in::step_result const s = stand_in::step(*cache, e.row, {e.ids.begin(), e.ids.end()}, 1);
    REQUIRE(s.from_slots.size() == s.from_weights.size());
    REQUIRE(std::memcmp(s.from_slots.data(), s.from_weights.data(), s.from_slots.size() * sizeof(float)) == 0);
    std::vector<u32> const ids(e.ids.begin(), e.ids.end());
    for (u32 const slot : naive.step(ids, e.row)) {
      ++(slot == warmset::no_slot.value ? misses : hits);
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      REQUIRE(naive.owner(static_cast<u32>(s.slots[i])) == e.row * o.n_experts + ids[i]);
    }
    copies += s.n_copies;
  });
  CHECK(stand_in::hits(*cache) == hits);
  CHECK(stand_in::misses(*cache) == misses);
  CHECK(copies < misses);  // neighbours went together

  // a batch wider than the cache goes past it and leaves it as it was
  std::vector<std::int32_t> wide(32 * 4);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    wide[i] = static_cast<std::int32_t>((i * 5) % 32);
  }
  stand_in::options small = o;
  small.n_slots = 16;
  std::shared_ptr<stand_in::moe_cache> const narrow = stand_in::init(small);
  CHECK(stand_in::step(*narrow, 0, wide, 32).is_bypassed);
  CHECK(stand_in::misses(*narrow) == 0);
}

TEST_CASE("a step that is too wide changes nothing and tells who is resident") {
  adapter_group g;
  g.n_layers = 2;
  g.n_experts = 8;
  g.n_used = 2;
  g.n_slots = 4;
  g.expert_bytes = 10;
  std::unique_ptr<adapter> const a = make(g);
  std::int32_t const first[] = {3, 5};
  adapter_plan p = a->plan(1, first, 2);
  REQUIRE(p.n_loads == 2);
  CHECK(p.n_changes == 2);
  std::int32_t const slot_of_3 = p.slots[0];
  std::int32_t const wide[] = {0, 1, 2, 3, -1};
  p = a->plan(1, wide, 5);  // three of the four slots are to be had beside the other layer's one
  CHECK(p.status == adapter_status::too_wide);
  CHECK(p.n_loads == 0);
  CHECK(p.n_changes == 0);
  CHECK(std::vector<std::int32_t>(p.slots, p.slots + 5) == std::vector<std::int32_t>{-1, -1, -1, slot_of_3, -1});
  std::int32_t const some[] = {5, 6, 5, -1};
  p = a->look_up(1, some, 4);
  CHECK(p.status == adapter_status::ok);
  CHECK(p.slots[0] >= 0);
  CHECK(p.slots[1] == -1);
  adapter_counters const c = a->counters();
  CHECK(c.steps == 1);
  CHECK(c.too_wide_steps == 1);
  CHECK(c.looked_up_hits == 2);
  CHECK(c.looked_up_misses == 4);
  CHECK(c.bytes_loaded == 20);
  // and the slot map has a slot for everyone
  std::int32_t map[8];
  CHECK(a->fill(1, map));
  CHECK(map[3] == slot_of_3);
  CHECK(map[0] == 0);
  CHECK_FALSE(a->fill(2, map));
}

TEST_CASE("runs are neighbours that travel together") {
  adapter_group g;
  g.n_layers = 1;
  g.n_experts = 16;
  g.n_used = 6;
  g.n_slots = 8;
  g.expert_bytes = 1;
  std::unique_ptr<adapter> const a = make(g);
  std::int32_t const ids[] = {9, 4, 3, 12, 5, 8};
  adapter_plan const p = a->plan(0, ids, 6);
  REQUIRE(p.n_runs == 3);
  u32 n = 0;
  std::vector<int> bank(8, -1);
  for (std::size_t i = 0; i < p.n_runs; ++i) {
    for (u32 j = 0; j < p.runs[i].n; ++j, ++n) {
      bank[p.runs[i].first_slot + j] = static_cast<int>(p.runs[i].first_expert + j);
    }
  }
  CHECK(n == p.n_loads);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(bank[static_cast<u32>(p.slots[i])] == ids[i]);
  }
}

TEST_CASE("layers that are invalidated are loaded again, the others stay") {
  adapter_group g;
  g.n_layers = 3;
  g.n_experts = 8;
  g.n_used = 2;
  g.n_slots = 12;
  g.expert_bytes = 1;
  std::unique_ptr<adapter> const a = make(g);
  std::int32_t const ids[] = {1, 2};
  for (u32 layer = 0; layer < 3; ++layer) {
    CHECK(a->plan(layer, ids, 2).n_loads == 2);
  }
  CHECK_FALSE(a->invalidate(1, 3));
  CHECK(a->invalidate(1, 1));
  CHECK(a->table(1)[1] == -1);
  CHECK(a->table(2)[1] >= 0);
  CHECK(a->plan(0, ids, 2).n_loads == 0);
  CHECK(a->plan(1, ids, 2).n_loads == 2);
  CHECK(a->plan(2, ids, 2).n_loads == 0);
  CHECK(a->invalidate(0, 3));
  CHECK(a->plan(2, ids, 2).n_loads == 2);
}

TEST_CASE("planning allocates nothing, with every policy") {
  std::string const names = adapter::policies();
  u32 n = 0;
  for (std::size_t from = 0; from < names.size(); ++n) {
    std::size_t const blank = std::min(names.find(' ', from), names.size());
    std::string const name = names.substr(from, blank - from);
    from = blank + 1;
    INFO(name);
    adapter_group g;
    g.n_layers = 4;
    g.n_experts = 64;
    g.n_used = 8;
    g.n_slots = 70;  // no multiple of the layers
    g.expert_bytes = 1;
    g.policy = name.c_str();
    std::unique_ptr<adapter> const a = make(g);
    follower device(g);
    std::vector<std::int32_t> ids(16);
    u32 state = 3;
    bool sound = true;
    unsigned long const before = warmset_test::n_allocations();
    for (u32 i = 0; i < 4000; ++i) {
      u32 const count = 8 * (1 + i % 2);
      for (u32 j = 0; j < count; ++j) {
        state = state * 1664525 + 1013904223;
        ids[j] = static_cast<std::int32_t>((state >> 20) % ((state >> 10) % 3 == 0 ? 64 : 12));
      }
      adapter_plan const p = a->plan(i % 4, ids.data(), count, {i % 50 == 0, 0, state >> 24});
      device.apply(p);
      for (u32 j = 0; j < count; ++j) {
        sound = sound && p.status == adapter_status::ok && p.slots[j] >= 0 && p.slots[j] < 70 &&
                device.table[i % 4 * 64 + static_cast<u32>(ids[j])] == p.slots[j];
      }
    }
    unsigned long const after = warmset_test::n_allocations();
    CHECK(sound);
    CHECK(after == before);
    CHECK(a->counters().steps == 4000);
  }
  CHECK(n == 5);
}

TEST_CASE("a group that cannot work is one sentence, and wrong ids are refused") {
  adapter_group g;
  g.n_layers = 4;
  g.n_experts = 16;
  g.n_used = 4;
  g.n_slots = 6;
  g.expert_bytes = 1;
  using Catch::Matchers::ContainsSubstring;
  CHECK_THAT(refusal(g), ContainsSubstring("6 slots are too few: 4 experts of a token and one of each of 3 other layers take 7"));
  g.n_slots = 65;
  CHECK_THAT(refusal(g), ContainsSubstring("65 slots are more than the group's 64 experts"));
  g.n_slots = 64;
  g.policy = "mru";
  CHECK_THAT(refusal(g), ContainsSubstring("no such policy"));
  g.policy = nullptr;
  CHECK_THAT(refusal(g), ContainsSubstring("no such policy"));
  g.policy = "lru";
  g.n_layers = 0;
  CHECK_THAT(refusal(g), ContainsSubstring("no layer"));
  g.n_layers = 4;
  g.n_experts = 0;
  g.n_slots = 0;
  CHECK_FALSE(refusal(g).empty());
  g.n_experts = 100'000;
  g.n_slots = 64;
  CHECK_FALSE(refusal(g).empty());
  CHECK(adapter::make(g, nullptr, 0) == nullptr);
  g.n_experts = 16;
  std::unique_ptr<adapter> const a = make(g);
  std::int32_t const ids[] = {1, 16};
  CHECK(a->plan(0, ids, 2).status == adapter_status::bad_expert);
  CHECK(a->plan(4, ids, 1).status == adapter_status::bad_layer);
  CHECK(a->look_up(4, ids, 1).status == adapter_status::bad_layer);
  CHECK(a->table(4) == nullptr);
  std::vector<std::int32_t> const many(adapter::max_ids + 1, 1);
  CHECK(a->plan(0, many.data(), many.size()).status == adapter_status::too_long);
  CHECK(a->plan(0, ids, 0).status == adapter_status::ok);
  std::int32_t const padding[] = {-1, -1};
  adapter_plan const p = a->plan(0, padding, 2);
  CHECK(p.status == adapter_status::ok);
  CHECK(p.slots[0] == -1);
  CHECK(a->counters().steps == 0);
}
