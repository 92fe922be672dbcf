// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <warmset/cache.hpp>
#include <warmset/trace/replay.hpp>

using namespace trace_test;

namespace {

using lru = bundles::of<score::lru>;
template <class Bundle>
using replayed = cache<Bundle, move::immediate, observe::counting>;

/// Steps of one layer, each of its own number of tokens; k = 2, sequences and phases by step.
struct wide_step {
  u32 sequence;
  phase what;
  std::vector<u16> ids;
};

trace::recording two_layers(std::vector<wide_step> const& steps) {
  trace::builder made;
  made.parts.geometry = geometry({{layer_id{3}, 8, 2, {100}}, {layer_id{5}, 8, 2, {30, 20}}});
  u32 position = 0;
  for (wide_step const& s : steps) {
    for (u32 row = 0; row < 2; ++row) {
      made.add(s.sequence, position, s.what, row, static_cast<u32>(s.ids.size() / 2), 2, s.ids);
    }
    position += static_cast<u32>(s.ids.size() / 2);
  }
  return trace::recording(made.take());
}

u64 hits(trace::replay_report const& r, u32 row, phase p) {
  return r.by_layer[row][static_cast<u32>(p)].counted.hits().value;
}
u64 wasted(trace::replay_report const& r, u32 row, phase p) {
  return r.by_layer[row][static_cast<u32>(p)].wasted;
}

}  // namespace

TEST_CASE(
    "replay: each event is one step, judged as a whole, and the next sequence finds the state") {
  trace::recording const r = two_layers({{0, phase::prefill, {0, 1}},
                                         {0, phase::decode, {1, 2}},
                                         {1, phase::decode, {1, 2}},
                                         {1, phase::decode, {0, 3}}});
  replayed<lru> made(r.geometry(), budget::of_slots(3));
  std::vector<std::vector<u32>> seen;
  trace::replay_report const report =
      trace::replay(r, {}, made, [&](trace::event const& e, auto const& d) {
        CHECK(d.experts.size() == d.how.size());
        CHECK(e.ids.size() == 2);
        seen.emplace_back(d.experts.begin(), d.experts.end());
      });
  CHECK(seen.size() == 8);
  CHECK(seen[2] == std::vector<u32>{1, 2});
  for (u32 row = 0; row < 2; ++row) {
    CHECK(hits(report, row, phase::prefill) == 0);
    CHECK(hits(report, row, phase::decode) ==
          1 + 2 + 1);  // expert 0 is the oldest, and still there
    u64 const loads = 2 + 1 + 1;
    CHECK(made.observer().total(row, phase::prefill).bytes[0].value +
              made.observer().total(row, phase::decode).bytes[0].value ==
          loads * r.geometry().layers()[row].expert_bytes());
  }
  CHECK(made.audit());
}

TEST_CASE("replay: an install is wasted where the expert is evicted without a further use") {
  // 2 slots: 0 and 1 are used again, 2 and 3 are not; 4 and 5 are resident at the end.
  trace::recording const r = two_layers({{0, phase::prefill, {0, 1}},
                                         {0, phase::decode, {0, 1}},
                                         {0, phase::decode, {2, 3}},
                                         {0, phase::decode, {4, 5}}});
  replayed<lru> made(r.geometry(), budget::of_slots(2));
  trace::replay_report const report = trace::replay(r, {}, made);
  CHECK(wasted(report, 0, phase::prefill) == 0);
  CHECK(wasted(report, 0, phase::decode) == 2);

  SECTION("by the phase of the install, also when a later load reveals it") {
    trace::recording const again = two_layers({{0, phase::prefill, {0, 1}},
                                               {0, phase::decode, {2, 3}},
                                               {0, phase::decode, {0, 1}},
                                               {0, phase::decode, {0, 1}}});
    replayed<lru> other(again.geometry(), budget::of_slots(2));
    trace::replay_report const found = trace::replay(again, {}, other);
    CHECK(wasted(found, 1, phase::prefill) == 2);
    CHECK(wasted(found, 1, phase::decode) == 2);
  }
}

TEST_CASE("replay: padding is no expert") {
  trace::recording const r = one_layer(4, 2, {{0, 1}, {2}, {1}});
  replayed<lru> made(r.geometry(), budget::of_slots(2));
  (void)trace::replay(r, {}, made);
  total_counters const c = made.observer().total(0, phase::decode);
  CHECK(c.demanded.value == 4);
  CHECK(c.hits().value == 1);
  CHECK(c.skipped_ids[static_cast<u32>(reason::sentinel)].value == 2);
  CHECK(c.skipped_ids[static_cast<u32>(reason::out_of_range)].value == 0);
}

TEST_CASE("replay: a selection is all that is played") {
  trace::recording const r = two_layers(
      {{0, phase::prefill, {0, 1}}, {0, phase::decode, {0, 1}}, {1, phase::decode, {0, 1}}});
  trace::selection which;
  which.prefill = false;
  replayed<lru> made(r.geometry(), budget::of_slots(2));
  trace::replay_report const report = trace::replay(r, which, made);
  CHECK(hits(report, 0, phase::decode) == 2);
  CHECK(report.by_layer[0][0].counted.demanded.value == 0);
  CHECK(trace::count_token_rows(r, which)[1][1] == 2);
  CHECK(trace::count_token_rows(r)[0][0] == 1);
}

TEST_CASE("replay: a prompt wider than the pool overflows and leaves it alone") {
  trace::recording const r = two_layers({{0, phase::decode, {0, 1}},
                                         {1, phase::prefill, {0, 2, 4, 6, 3, 5}},
                                         {1, phase::decode, {0, 1}}});
  replayed<lru> made(r.geometry(), budget::of_slots(3));
  (void)trace::replay(r, {}, made);
  total_counters const prompt = made.observer().total(0, phase::prefill);
  CHECK(prompt.overflow_steps.value == 1);
  CHECK(prompt[access_kind::overflow_hit].value == 1);
  CHECK(prompt[access_kind::overflow_miss].value == 5);
  CHECK(made.observer().total(0, phase::decode).hits().value == 2);
}

TEST_CASE(
    "byte_pool: exact bytes over layers of two sizes; a member of the step is never evicted") {
  trace::recording const r = two_layers({{0, phase::decode, {0, 1}},
                                         {0, phase::decode, {0, 1}},
                                         {0, phase::prefill, {2, 3, 4, 5}},
                                         {0, phase::decode, {2, 5}}});
  SECTION("all fits") {
    trace::byte_pool<lru> made(r.geometry(), 8 * 150);
    trace::replay_report const report = trace::replay(r, {}, made);
    CHECK(hits(report, 0, phase::decode) + hits(report, 1, phase::decode) == 4 + 4);
    CHECK(made.used_bytes() == 6 * 150);
    CHECK(made.audit());
  }
  SECTION("one layer's step at a time: nothing is ever hit, and a wide step is above the budget") {
    trace::byte_pool<lru> made(r.geometry(), 200);
    u64 most = 0;
    u64 reclaimed = 0;
    trace::replay_report const report =
        trace::replay(r, {}, made, [&](trace::event const&, auto const& d) {
          most = std::max(most, made.used_bytes());
          reclaimed += d.reclaimed.size();
          for (auto const& out : d.reclaimed) {
            CHECK_FALSE(
                made.is_resident({r.geometry().layers()[out.row].layer, expert_id{out.expert}}));
          }
          CHECK(made.audit());
        });
    // 2 of 100 are resident, then 2 of 50 make the older one go
    CHECK(hits(report, 0, phase::decode) == 1 + 0);
    CHECK(most == 400);
    total_counters const all = made.observer().total();
    CHECK(reclaimed == all.evicted[0].value);
    CHECK(all.overflow_steps.value == 0);
  }
}

TEST_CASE("byte_pool: impossible numbers are refused") {
  trace::recording const r = one_layer(4, 2, {{0, 1}});
  CHECK_THROWS_AS((trace::byte_pool<bundles::of<score::decayed_count>>(r.geometry(), 100,
                                                                       tuning{.half_life = 3})),
                  config_error);
}
