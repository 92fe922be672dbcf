// SPDX-License-Identifier: Apache-2.0
#include <warmset/move/copy_planner.hpp>

#include "sites.hpp"

#include <catch2/catch_test_macros.hpp>

#include <random>
#include <set>
#include <span>

using namespace warmset;
using namespace warmset_test;

namespace {

constexpr u64 KiB = 1024;
constexpr u64 MiB = 1024 * KiB;

std::vector<transfer_order> orders_of(layer_id layer, std::vector<std::pair<u32, u32>> pairs) {
  std::vector<transfer_order> orders;
  for (auto [expert, slot] : pairs) {
    orders.push_back({slot_id{slot}, {layer, expert_id{expert}}, 1});
  }
  return orders;
}

struct planned {
  move::copy_plan plan;
  std::vector<move::copy_entry> copies;
};

planned plan_all(std::vector<transfer_order> const& orders, pool_site const& site,
                 group_layout const& layout, u64 large_from = move::large_copy_bytes) {
  planned p;
  p.copies.resize(orders.size() * layout.n_banks());
  p.plan = move::plan_copies(orders, site, layout, large_from, p.copies);
  p.copies.resize(p.plan.n_copies());
  CHECK(p.plan == move::count_copies(orders, site, layout, large_from));
  return p;
}

}  // namespace

TEST_CASE("R34: eight experts of 128 queue the bytes of eight experts", "[move]") {
  geometry const model = geometry{{{layer_id{0}, 128, 8, {3 * MiB, 3 * MiB, 3 * MiB}}}};
  std::vector<pool_site> const sites = make_sites(model, 32, 8);
  std::vector<group_layout> const layouts = layouts_of(model, sites, 0);
  auto const orders = orders_of(
      layer_id{0}, {{3, 0}, {17, 1}, {40, 2}, {41, 5}, {63, 9}, {90, 10}, {100, 11}, {127, 31}});
  planned const p = plan_all(orders, sites[0], layouts[0]);
  CHECK(p.plan.bytes == 8 * 9 * MiB);
  CHECK(p.plan.bytes == 8 * model.layers()[0].expert_bytes());
  CHECK(p.plan.n_copies() == 24);
  CHECK(p.plan.n_runs == 8);
}

TEST_CASE("neighbouring experts in neighbouring slots are one copy per bank", "[move]") {
  geometry const model = geometry{{{layer_id{7}, 64, 4, {300 * KiB, 10 * KiB}}}};
  std::vector<pool_site> const sites = make_sites(model, 16, 4);
  std::vector<group_layout> const layouts = layouts_of(model, sites, 0);
  // two runs; 12 follows 11 in expert but not in slot, 30 follows 12 in slot but not in expert
  auto const orders = orders_of(layer_id{7}, {{10, 4}, {11, 5}, {12, 8}, {30, 9}});
  planned const p = plan_all(orders, sites[0], layouts[0]);
  CHECK(p.plan.n_runs == 3);
  REQUIRE(p.plan.n_copies() == 6);
  CHECK(p.plan.n_large == 3);
  CHECK(p.plan.n_small == 3);
  CHECK(p.copies[0].first_expert == 10);
  CHECK(p.copies[0].n_experts == 2);
  CHECK(p.copies[0].bytes == 600 * KiB);
  CHECK(p.copies[0].source_offset == 3000 * KiB);
  CHECK(p.copies[0].device_offset == 1200 * KiB);
  CHECK(p.copies[1].first_order == 2);
}

TEST_CASE("a run may go on from the last slot into scratch, where these are neighbours", "[move]") {
  geometry const model = geometry{{{layer_id{0}, 64, 4, {8}}, {layer_id{1}, 64, 4, {8}}}};
  std::vector<pool_site> const sites = make_sites(model, 2, 4);
  std::vector<group_layout> const layouts = layouts_of(model, sites, 0);
  // pool 1 ends where the scratch begins, pool 0 does not
  CHECK(plan_all(orders_of(layer_id{1}, {{5, 1}, {6, 2}}), sites[1], layouts[0]).plan.n_runs == 1);
  CHECK(plan_all(orders_of(layer_id{0}, {{5, 1}, {6, 2}}), sites[0], layouts[0]).plan.n_runs == 2);
}

TEST_CASE("experts of two layers are never one copy", "[move]") {
  geometry const model = geometry::uniform(2, 8, 2, 64);
  std::vector<pool_site> const sites = make_sites(model, 8, 2, true);
  std::vector<group_layout> const layouts = layouts_of(model, sites, 0);
  std::vector<transfer_order> const orders = {{slot_id{0}, {layer_id{0}, expert_id{3}}, 1},
                                              {slot_id{1}, {layer_id{1}, expert_id{4}}, 1}};
  CHECK(plan_all(orders, sites[0], layouts[0]).plan.n_runs == 2);
}

TEST_CASE("B96: entries under the bound never share a batch with large ones", "[move]") {
  // 200 KiB banks are small alone and large as a pair; scales of 4 KiB are always small
  geometry const model = geometry{{{layer_id{0}, 64, 4, {2 * MiB, 200 * KiB, 4 * KiB}}}};
  std::vector<pool_site> const sites = make_sites(model, 32, 4);
  std::vector<group_layout> const layouts = layouts_of(model, sites, 0);
  auto const orders = orders_of(layer_id{0}, {{1, 0}, {2, 1}, {9, 2}});
  planned const p = plan_all(orders, sites[0], layouts[0]);
  CHECK(p.plan.n_batches() == 2);
  CHECK(p.plan.n_large == 3);
  CHECK(p.plan.n_small == 3);
  for (u32 i = 0; i < p.plan.n_copies(); ++i) {
    CHECK((p.copies[i].bytes >= move::large_copy_bytes) == (i < p.plan.n_large));
  }
  // exactly at the bound is large; a bound of 0 makes one batch of all
  CHECK(plan_all(orders, sites[0], layouts[0], 4 * KiB).plan.n_small == 0);
  CHECK(plan_all(orders, sites[0], layouts[0], 0).plan.n_batches() == 1);
  CHECK(plan_all(orders, sites[0], layouts[0], u64_max).plan.n_large == 0);
  CHECK(plan_all({}, sites[0], layouts[0]).plan.n_batches() == 0);
}

TEST_CASE("R41: tensors of 1.00 and 1.08 MiB keep their exact strides", "[move]") {
  u64 const a = 1 * MiB;
  u64 const b = 1'132'462;  // 1.08 MiB
  geometry const apart = geometry{{{layer_id{0}, 8, 2, {a}}, {layer_id{1}, 8, 2, {b}}}};
  std::vector<pool_site> const sites = make_sites(apart, 3, 1);
  std::vector<group_layout> const layouts = layouts_of(apart, sites, 0);
  REQUIRE(layouts.size() == 2);
  CHECK(layouts[0].stride(0) == a);
  CHECK(layouts[1].stride(0) == b);
  CHECK(layouts[1].offset(0, 2) == 2 * b);
  CHECK(layouts[0].bytes() == 4 * a);
  CHECK(layouts[1].bytes() - 4 * b < group_layout::alignment);

  // the same two tensors as banks of one expert
  geometry const together = geometry{{{layer_id{0}, 8, 2, {b, a}}}};
  std::vector<pool_site> const one = make_sites(together, 3, 1);
  group_layout const layout = layouts_of(together, one, 512)[0];
  CHECK(layout.offset(0, 1) - layout.offset(0, 0) == b);
  CHECK(layout.offset(1, 1) - layout.offset(1, 0) == a);
  CHECK(layout.tail_offset(0) == 4 * b);
  CHECK(layout.tail_bytes(0) >= 512);
  CHECK(layout.offset(1, 0) == layout.tail_offset(0) + layout.tail_bytes(0));
  CHECK(layout.offset(1, 0) % group_layout::alignment == 0);
  CHECK(plan_all(orders_of(layer_id{0}, {{0, 0}, {1, 1}}), one[0], layout).plan.bytes ==
        2 * (a + b));
}

TEST_CASE("a short array plans the first orders and says how many", "[move]") {
  geometry const model = geometry{{{layer_id{0}, 64, 4, {8, 9, 10}}}};
  std::vector<pool_site> const sites = make_sites(model, 32, 4);
  group_layout const layout = layouts_of(model, sites, 0)[0];
  auto const orders = orders_of(layer_id{0}, {{1, 0}, {3, 1}, {5, 2}, {7, 3}, {9, 4}});
  std::vector<move::copy_entry> room(8);
  std::span<transfer_order const> left = orders;
  std::vector<u32> planned;
  while (!left.empty()) {
    move::copy_plan const p = move::plan_copies(left, sites[0], layout, 0, room);
    planned.push_back(p.n_orders);
    left = left.subspan(p.n_orders);
  }
  CHECK(planned == std::vector<u32>{2, 2, 1});
  CHECK(move::plan_copies(orders, sites[0], layout, 0, std::span(room).first(2)).n_orders == 0);
}

TEST_CASE("every bank of every order is copied exactly once, to its place", "[move]") {
  std::mt19937 engine(1);
  auto const random = [&engine] { return static_cast<u32>(engine()); };
  for (u32 round = 0; round < 300; ++round) {
    u32 const n_experts = 1 + random() % 42;
    std::vector<u64> banks;
    for (u32 i = 0; i < 1 + random() % 3; ++i) {
      banks.push_back(1 + random() % 5000);
    }
    banks.push_back(1 + random() % 100);
    geometry const model =
        geometry{{{layer_id{2}, n_experts, 1, banks}, {layer_id{3}, n_experts, 1, banks}}};
    std::vector<pool_site> const sites = make_sites(model, n_experts, 2);
    group_layout const layout = layouts_of(model, sites, random() % 100)[0];
    pool_site const& site = sites[random() % 2];
    std::vector<transfer_order> orders;
    u32 slot = 0;
    for (u32 e = 0; e < n_experts && slot < site.n_words(); ++e) {
      if (random() % 3 != 0) {
        orders.push_back({slot_id{slot}, {site.layers[0], expert_id{e}}, e});
        slot += 1 + (random() % 4 == 0 ? 1 : 0);
      }
    }
    u64 const bound = random() % 8000;
    planned const p = plan_all(orders, site, layout, bound);
    std::set<std::pair<u32, u32>> seen;  // (order, bank)
    u64 bytes = 0;
    for (u32 i = 0; i < p.plan.n_copies(); ++i) {
      move::copy_entry const& c = p.copies[i];
      CHECK((c.bytes >= bound) == (i < p.plan.n_large));
      CHECK(c.bytes == c.n_experts * banks[c.bank]);
      CHECK(c.source_offset == c.first_expert * banks[c.bank]);
      CHECK(c.device_offset == layout.offset(c.bank, c.first_index));
      for (u32 j = 0; j < c.n_experts; ++j) {
        transfer_order const& order = orders[c.first_order + j];
        CHECK(order.expert == expert_key{c.layer, expert_id{c.first_expert + j}});
        CHECK(site.bank_index(order.slot) == c.first_index + j);
        CHECK(seen.insert({c.first_order + j, c.bank}).second);
      }
      bytes += c.bytes;
    }
    CHECK(seen.size() == orders.size() * banks.size());
    CHECK(bytes == p.plan.bytes);
    CHECK(bytes == orders.size() * model.layers()[0].expert_bytes());
  }
}
