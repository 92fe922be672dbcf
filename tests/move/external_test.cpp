// SPDX-License-Identifier: Apache-2.0
#include "backend_conformance.hpp"

using namespace warmset;
using namespace warmset_test;

TEST_CASE("external conforms", "[move]") {
  backend_conforms([] { return move::external{128}; });
}

TEST_CASE("immediate conforms", "[move]") {
  backend_conforms([] { return move::immediate{}; });
}

TEST_CASE("immediate has arrived when start returns", "[move]") {
  geometry const model = two_groups();
  std::vector<pool_site> const sites = make_sites(model, 4, 2);
  move::immediate backend;
  backend.open(model, sites);
  transfer_order const order{slot_id{3}, {layer_id{1}, expert_id{7}}, 5};
  backend.start(0, {&order, 1});
  CHECK(backend.arrivals(0)[3] == arrival::word(5, transfer::arrived));
}

TEST_CASE("external publishes what the engine reports, once", "[move]") {
  geometry const model = two_groups();
  std::vector<pool_site> const sites = make_sites(model, 4, 2);
  move::external backend;
  backend.open(model, sites);
  transfer_order const orders[] = {{slot_id{0}, {layer_id{1}, expert_id{7}}, 5},
                                   {slot_id{5}, {layer_id{1}, expert_id{8}}, 6}};

  CHECK_FALSE(backend.arrived(0, slot_id{0}));  // nothing runs
  CHECK(backend.arrivals(0)[0] == 0);
  backend.start(0, orders);
  CHECK(backend.arrivals(0)[0] == arrival::word(5, transfer::loading));
  CHECK(backend.arrivals(0)[5] == arrival::word(6, transfer::loading));

  CHECK_FALSE(backend.arrived(0, slot_id{0}, 4));  // a late report of an older transfer
  CHECK_FALSE(backend.failed(0, slot_id{0}, 6));
  CHECK(backend.arrived(0, slot_id{0}, 5));
  CHECK_FALSE(backend.failed(0, slot_id{0}));  // it has ended
  CHECK(backend.arrivals(0)[0] == arrival::word(5, transfer::arrived));
  CHECK(backend.failed(0, slot_id{5}));
  CHECK(backend.arrivals(0)[5] == arrival::word(6, transfer::failed));

  CHECK_FALSE(backend.arrived(0, slot_id{6}));  // no such slot, no such pool
  CHECK_FALSE(backend.arrived(4, slot_id{0}));
  CHECK_FALSE(backend.failed(99, slot_id{u32_max}));
  CHECK_FALSE(backend.arrived(99, slot_id{0}, 1));
}

TEST_CASE("sites that describe no bank are refused", "[move]") {
  geometry const model = two_groups();
  std::vector<pool_site> const good = make_sites(model, 4, 2);
  CHECK_NOTHROW(check_sites(model, good));
  CHECK_NOTHROW(check_sites(model, make_sites(model, 9, 0, true)));
  auto const refused = [&](auto&& change) {
    std::vector<pool_site> sites = good;
    change(sites);
    CHECK_THROWS_AS(check_sites(model, sites), config_error);
  };
  refused([](auto& s) { s[1].pool = 7; });
  refused([](auto& s) { s[1].group = 2; });
  refused([](auto& s) { s[1].first_slot = 3; });  // overlaps
  refused([](auto& s) { s[1].first_slot = 5; });  // leaves a gap
  refused([](auto& s) { s[1].first_scratch = 9; });
  refused([](auto& s) { s[1].n_scratch = 3; });
  refused([](auto& s) { s[1].layers = {layer_id{2}}; });                  // of the other group
  refused([](auto& s) { s[1].layers = {layer_id{1}}; });                  // twice
  refused([](auto& s) { s[1].layers = {layer_id{3}}; });                  // no such layer
  refused([](auto& s) { s[3].first_scratch = s[2].first_scratch = 7; });  // inside the slots
  refused([](auto& s) { s[0].n_slots = u32_max; });
}
