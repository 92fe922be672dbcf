// SPDX-License-Identifier: Apache-2.0
// The seam: a cache asks its gate before it looks at a table, and hands its tables over and takes them back.

#include <catch2/catch_test_macros.hpp>

#include "gate/gated_cache.hpp"
#include "support/count_allocations.hpp"

namespace warmset::gate {
namespace {

struct two_layers {
  geometry model = geometry::uniform(2, 16, 2, 100);
  references memory;
  authority groups{2};
  fallback_counts fallbacks{2};
  gated_cache c = make_cache(model, budget::of_slots(6), host_gate{groups, 0, &fallbacks});
  other_side device{c};
  virtual_clock clock;

  two_layers() {
    REQUIRE(groups.publish(0, holder::host, memory));
    REQUIRE(groups.publish(1, holder::host, memory));
    warm(c, 0, {1, 2});
    warm(c, 0, {3, 4});
    warm(c, 1, {5});
  }
  u64 dropped(reason why) {
    return c.observer().total().hints_dropped[static_cast<u32>(why)].value;
  }
};

/// Every operation of a cache on layer 0; each is refused for `why`, and nothing changes.
void require_refused(two_layers& t, reason why) {
  auto const before = bytes_of(t.c);
  auto const counted = t.c.observer().total();
  group_state const group = t.groups.look(0);
  layer_id const layer{0};
  id_list const ids{1, 7, 9};

  for (int i = 0; i < 3; ++i) {
    step_view const v = i == 0   ? t.c.step(layer, ids)
                        : i == 1 ? t.c.plan(layer, ids)
                                 : t.c.demand(layer, ids).view();
    CHECK(v.kind == plan_kind::refused);
    CHECK(v.why == why);
    CHECK(v.experts.empty());
    CHECK(v.slots.empty());
    CHECK(v.loads.empty());
    CHECK(v.n_waves == 0);
    CHECK(v.slot_of(expert_id{1}) == no_slot);
  }
  CHECK(!t.c.demand(layer, ids));
  CHECK(t.c.commit().why == reason::not_committable);
  t.c.start_wave(0);
  CHECK(t.c.serve_failed() == 0);
  CHECK(t.c.advise(layer, ids) == 0);
  hint const hints[] = {{layer, 7, 0, 1}, {layer, 8, 1, 1}};
  t.c.advise(array_view<hint const>{hints});
  // who only looks does not read a table, which somebody might be copying
  CHECK(t.c.may_advise(layer).why == (why == reason::stale_epoch ? reason::none : why));
  CHECK(t.c.resize(layer, 3).why == why);
  CHECK(t.c.invalidate(layer).why == why);
  CHECK(t.c.pin({layer, expert_id{1}}).why == why);
  CHECK(t.c.unpin({layer, expert_id{1}}).why == why);
  t.c.settle();

  CHECK((bytes_of(t.c) == before));
  CHECK(t.groups.look(0) == group);
  auto const now = t.c.observer().total();
  CHECK(now.demanded == counted.demanded);
  CHECK(now.steps == counted.steps);
  CHECK(now.hints_offered.value == counted.hints_offered.value + 5);
  CHECK(now.hints_dropped[static_cast<u32>(why)].value ==
        counted.hints_dropped[static_cast<u32>(why)].value + 5);
  require_sound(t.c);
}

}  // namespace

TEST_CASE("the default gate is nothing") {
  STATIC_CHECK(std::is_empty_v<always>);
  STATIC_CHECK(
      std::is_same_v<cache<>, cache<default_policy, move::external, observe::counting, always>>);
}

TEST_CASE("a gate needs a group for every pool") {
  authority one{1};
  CHECK_THROWS_AS(make_cache(geometry::uniform(2, 16, 2, 100), budget::of_slots(6), host_gate{one}),
                  config_error);
  authority two{2};
  CHECK_THROWS_AS(
      make_cache(geometry::uniform(2, 16, 2, 100), budget::of_slots(6), host_gate{two, 1}),
      config_error);
}

TEST_CASE("what the gate refuses changes nothing, whatever the reason") {
  two_layers t;
  slot_id const loading = t.c.step(layer_id{0}, id_list{13}).slot_of(expert_id{13});
  REQUIRE(t.c.backend().arrived(0, loading));  // which is the holder's to take in
  SECTION("another holder") {
    REQUIRE(give(t.c, t.device, 0, t.clock).is_ready());
    require_refused(t, reason::no_authority);
  }
  SECTION("nobody") {
    REQUIRE(t.groups.withdraw(0));
    require_refused(t, reason::no_authority);
  }
  SECTION("a closing gate") {
    auto moving = t.groups.begin(0, holder::device);
    require_refused(t, reason::gate_closed);
    SECTION("and while the block is copied") {
      REQUIRE(moving.prepare());
      require_refused(t, reason::gate_closed);
    }
  }
  SECTION("a stale table") {
    auto moving = t.groups.begin(0, holder::device);
    REQUIRE(moving.prepare());
    REQUIRE(moving.complete());
    moving = t.groups.begin(0, holder::host);
    REQUIRE(moving.prepare());
    REQUIRE(moving.complete());  // and nobody copied the block back
    require_refused(t, reason::stale_epoch);
  }
  // the other group goes on
  CHECK(t.c.step(layer_id{1}, id_list{5}).how[0] == access_kind::hit);
}

TEST_CASE("behind a closing gate settle goes on where a lease is held, and nowhere else") {
  for (transfer const end : {transfer::arrived, transfer::failed}) {
    two_layers t;
    auto inside = t.c.demand(layer_id{0}, id_list{13});
    slot_id const held = inside.view().slot_of(expert_id{13});
    slot_id const other = t.c.step(layer_id{1}, id_list{13}).slot_of(expert_id{13});
    auto const moving = t.groups.begin(0, holder::device);
    auto const also = t.groups.begin(1, holder::device);
    for (auto const& [pool, slot] : {std::pair{0u, held}, std::pair{1u, other}}) {
      REQUIRE((end == transfer::arrived ? t.c.backend().arrived(pool, slot)
                                        : t.c.backend().failed(pool, slot)));
    }
    t.c.settle();
    // who holds the lease may wait for it, and the transition waits for who holds the lease
    CHECK(t.c.pools()[0].view().header().in_flight == 0);
    CHECK(t.c.is_resident({layer_id{0}, expert_id{13}}) == (end == transfer::arrived));
    CHECK(t.c.pools()[1].view().header().in_flight == 1);
    CHECK(t.groups.look(0).active == 1);
    CHECK(t.groups.look(1).active == 0);
    inside.release();
    CHECK(t.groups.look(0).active == 0);
    require_sound(t.c);
  }
}

TEST_CASE("what the gate lets in is as without one") {
  two_layers t;
  cache<hinted> plain{t.model, budget::of_slots(6)};
  warm(plain, 0, {1, 2});
  warm(plain, 0, {3, 4});
  warm(plain, 1, {5});
  CHECK((bytes_of(t.c) == bytes_of(plain)));
  for (u32 i = 0; i < 200; ++i) {
    id_list const ids{static_cast<routed_id>(i * 7 % 16), static_cast<routed_id>(i * 5 % 16)};
    id_list const more{static_cast<routed_id>(i * 3 % 16)};
    layer_id const layer{i % 2};
    step_view const a = t.c.step(layer, ids), b = plain.step(layer, ids);
    REQUIRE(a.kind == b.kind);
    REQUIRE(std::equal(a.slots.begin(), a.slots.end(), b.slots.begin(), b.slots.end()));
    REQUIRE(t.c.advise(layer, more) == plain.advise(layer, more));
    if (i % 3 == 0) {
      land(t.c);
      land(plain);
    }
    REQUIRE((bytes_of(t.c) == bytes_of(plain)));
  }
  CHECK(t.groups.look(0).active == 0);
  CHECK(t.groups.look(1).active == 0);
  require_sound(t.c);
}

TEST_CASE("a hundred alternations leave the block the residency and the addresses") {
  two_layers t;
  (void)t.c.step(layer_id{0}, id_list{7});  // one transfer stays under way
  (void)t.c.advise(layer_id{1}, id_list{9});
  auto const before = bytes_of(t.c, 0);
  void const* const here = t.c.pools()[0].block();
  void const* const there = t.device.block(0);
  for (u32 i = 0; i < 100; ++i) {
    REQUIRE(give(t.c, t.device, 0, t.clock).is_ready());
    REQUIRE((without_epoch(t.device.bytes(t.c, 0)) == without_epoch(before)));
    REQUIRE(t.device.table(t.c, 0).header().epoch == 2 * i + 1);
    REQUIRE(audit(t.device.table(t.c, 0)));
    REQUIRE(take_back(t.c, t.device, 0, t.clock).is_ready());
    REQUIRE((without_epoch(bytes_of(t.c, 0)) == without_epoch(before)));
    REQUIRE(t.c.pools()[0].view().header().epoch == 2 * i + 2);
    for (u32 e = 0; e < 16; ++e) {
      REQUIRE(t.c.is_resident({layer_id{0}, expert_id{e}}) == (e >= 1 && e <= 4));
    }
    require_sound(t.c);
  }
  CHECK(t.c.pools()[0].block() == here);
  CHECK(t.c.pools()[0].view().block() == here);
  CHECK(t.device.block(0) == there);
  CHECK(t.groups.look(0).epoch == 200);
  CHECK(t.clock.sleeps.empty());
  CHECK(t.c.step(layer_id{0}, id_list{1}).how[0] == access_kind::hit);
  CHECK(t.c.step(layer_id{0}, id_list{7}).how[0] == access_kind::late);
}

TEST_CASE("what the other holder decided goes on here") {
  two_layers t;
  REQUIRE(give(t.c, t.device, 0, t.clock).is_ready());
  auto const table = t.device.table(t.c, 0);
  workspace_of<hinted> workspace;
  plan_of<hinted> plan;
  outcome out{};
  routed_id const ids[] = {3, 11};
  u32 const tick = table.header().model_tick;
  settle<hinted>(one_lane{}, table, t.c.backend().arrivals(0), out);
  plan_demand<hinted>(one_lane{}, table, {0, phase::decode, tick}, ids, 2, workspace, plan);
  REQUIRE(commit<hinted>(one_lane{}, table, plan, out));
  CHECK(!t.c.is_resident({layer_id{0}, expert_id{11}}));
  REQUIRE(take_back(t.c, t.device, 0, t.clock).is_ready());
  step_view const v = t.c.step(layer_id{0}, id_list{11});
  REQUIRE(v.kind == plan_kind::step);
  CHECK(v.how[0] == access_kind::late);
  CHECK(t.c.pools()[0].view().header().model_tick == tick + 3);  // the model's clock went on
}

TEST_CASE("a plan of before the transition is not committed after it") {
  two_layers t;
  REQUIRE(t.c.plan(layer_id{0}, id_list{8}).kind == plan_kind::step);
  REQUIRE(give(t.c, t.device, 0, t.clock).is_ready());
  auto const before = bytes_of(t.c);
  CHECK(t.c.commit().why == reason::no_authority);
  CHECK((bytes_of(t.c) == before));
  REQUIRE(take_back(t.c, t.device, 0, t.clock).is_ready());
  auto const back = bytes_of(t.c);
  CHECK(t.c.commit().why == reason::stale_epoch);  // though the table has the plan's version
  CHECK((bytes_of(t.c) == back));
  REQUIRE(t.c.plan(layer_id{0}, id_list{8}).kind == plan_kind::step);
  CHECK(t.c.commit());
  require_sound(t.c);
}

TEST_CASE("a lease keeps the group and its step goes on behind a closing gate") {
  two_layers t;
  auto held = t.c.demand(layer_id{0}, id_list{1, 12});
  REQUIRE(held);
  CHECK(t.groups.look(0).active == 1);
  auto moving = t.groups.begin(0, holder::device);
  CHECK(moving.prepare().why == reason::busy);
  CHECK(t.c.step(layer_id{0}, id_list{1}).why == reason::gate_closed);
  // another group's lease, moved
  auto second = t.c.demand(layer_id{1}, id_list{3});
  REQUIRE(second);
  auto const moved = std::move(second);
  CHECK(t.groups.look(1).active == 1);
  held.release();
  CHECK(t.groups.look(0).active == 0);
  held.release();
  CHECK(t.groups.look(0).active == 0);
  CHECK(moving.prepare());
}

TEST_CASE("the failed transfers of a leased step are served behind a closing gate") {
  two_layers t;
  auto held = t.c.demand(layer_id{0}, id_list{1, 12});
  REQUIRE(held);
  auto moving = t.groups.begin(0, holder::device);
  slot_id const lost = held.view().slot_of(expert_id{12});
  REQUIRE(t.c.backend().failed(0, lost));
  CHECK(t.c.serve_failed() == 1);
  CHECK(held.view().slot_of(expert_id{12}).value >= t.c.sites()[0].n_slots);
  CHECK(t.groups.look(0).active == 1);
  held.release();
  CHECK(moving.prepare());
  require_sound(t.c);
}

TEST_CASE("asking allocates nothing") {
  two_layers t;
  id_list const ids{1, 9};
  unsigned long const before = warmset_test::n_allocations();
  for (u32 i = 0; i < 50; ++i) {
    (void)t.c.step(layer_id{0}, ids);
    (void)t.c.advise(layer_id{0}, ids);
    auto const lease = t.c.demand(layer_id{1}, ids);
    auto moving = t.groups.begin(0, holder::device);
    (void)t.c.step(layer_id{0}, ids);
    (void)moving.prepare();
    (void)t.c.advise(layer_id{0}, ids);
    t.c.settle();
  }
  CHECK(warmset_test::n_allocations() == before);
}

TEST_CASE("storage made anew is forgotten where the gate lets in") {
  two_layers t;
  CHECK(t.c.invalidate() == result{ready{2}});
  REQUIRE(give(t.c, t.device, 0, t.clock).is_ready());
  CHECK(t.c.invalidate() == partial{1, 1});
  require_sound(t.c);
}

TEST_CASE("a cache made over an old authority begins with its epoch") {
  two_layers t;
  REQUIRE(t.groups.withdraw(1));
  gated_cache again = make_cache(t.model, budget::of_slots(4), host_gate{t.groups});
  REQUIRE(t.groups.publish(1, holder::host, t.memory));
  CHECK(again.step(layer_id{1}, id_list{1}).kind == plan_kind::step);
  CHECK(t.c.step(layer_id{1}, id_list{1}).why == reason::stale_epoch);  // the one before is not
}

}  // namespace warmset::gate
