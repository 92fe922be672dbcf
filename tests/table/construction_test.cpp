// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "support.hpp"

using namespace warmset;
using namespace warmset::table_test;
using Catch::Matchers::ContainsSubstring;

namespace {

struct small : lru {
  static constexpr u32 max_experts = 32;
};

std::vector<layer_geometry> rows(u32 n, u32 experts, u32 k = 2) {
  std::vector<layer_geometry> list;
  for (u32 i = 0; i < n; ++i) {
    list.push_back({layer_id{i}, experts, k, {1}});
  }
  return list;
}

/// The message of the refusal; empty where the table can be made.
template <class Policy>
std::string refusal(std::vector<layer_geometry> const& layers, pool_size size, tuning numbers = {}) {
  try {
    table<Policy> made(layers, size, numbers);
    CHECK(audit(made.view()));
    return "";
  } catch (config_error const& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("construction: a refusal is one sentence that names the values", "[table][construction][B11]") {
  using spare = hinted<guard::spare_only>;
  using soft = hinted<guard::none>;
  using pooled = bundles::shared<lru>;
  CHECK_THAT(refusal<lru>({}, {4, 4}), ContainsSubstring("0 layers"));
  CHECK_THAT(refusal<lru>(rows(2, 8), {4, 4}), ContainsSubstring("2 layers"));
  CHECK_THAT(refusal<small>(rows(1, 33), {4, 4}), ContainsSubstring("33") && ContainsSubstring("32"));
  CHECK_THAT(refusal<lru>(rows(1, 8), {4, 5}), ContainsSubstring("5") && ContainsSubstring("4"));
  CHECK_THAT(refusal<lru>(rows(1, 8), {max_slots + 1, 4}), ContainsSubstring(std::to_string(max_slots + 1)));
  CHECK_THAT(refusal<lru>(rows(1, 8), {4, 4}, {.half_life = 3}), ContainsSubstring("half_life = 3"));
  CHECK_THAT(refusal<lru>(rows(1, 8), {4, 4}, {.half_life = 257}), ContainsSubstring("half_life = 257"));
  CHECK_THAT(refusal<lru>(rows(1, 8), {4, 4}, {.fetch_share = 65'537}),
             ContainsSubstring("fetch_share = 65537") && ContainsSubstring("65536"));
  CHECK(refusal<lru>(rows(1, 8), {4, 4}, {.fetch_share = 65'536}).empty());
  CHECK_THAT(refusal<lru>(rows(1, 8), {4, 4}, {.epoch = 0}), ContainsSubstring("epoch = 0"));
  CHECK_THAT(refusal<lru>(rows(1, 8), {4, 4}, {.epoch = 24}), ContainsSubstring("epoch = 24"));
  CHECK_THAT(refusal<lru>(rows(1, 8), {4, 4}, {.epoch = 65536}), ContainsSubstring("epoch = 65536"));
  CHECK_THAT(refusal<lru>(rows(1, 8), {4, 4}, {.speculative_slots = 2}),
             ContainsSubstring("speculative_slots = 2") && ContainsSubstring("none"));
  CHECK_THAT(refusal<spare>(rows(1, 8), {4, 4}, {.speculative_slots = 4}),
             ContainsSubstring("speculative_slots = 4") && ContainsSubstring("capacity of 4"));
  CHECK_THAT(refusal<spare>(rows(1, 8), {1, 1}), ContainsSubstring("speculative_slots = 1"));
  CHECK_THAT(refusal<soft>(rows(1, 8), {4, 4}, {.speculative_slots = 5}),
             ContainsSubstring("speculative_slots = 5"));
  CHECK_THAT(refusal<pooled>(rows(3, 8), {5, 5}), ContainsSubstring("floor of 2") && ContainsSubstring("3 layers") &&
                                                      ContainsSubstring("capacity of 5"));
  CHECK_THAT(refusal<pooled>(rows(3, 8), {8, 8}, {.floor = 3}), ContainsSubstring("floor of 3"));
}

TEST_CASE("construction: every size from one slot to all experts", "[table][construction]") {
  for (u32 const slots : {1u, 2u, 3u, 4u, 8u, 42u, 60u}) {
    CHECK(refusal<lru>(rows(1, 60, 4), {slots, slots}).empty());
    CHECK(refusal<counted>(rows(1, 60, 4), {slots, slots}).empty());
    CHECK(refusal<hinted<guard::none>>(rows(1, 60, 4), {slots, slots}).empty());
    CHECK(refusal<hinted<guard::spare_only>>(rows(1, 60, 4), {slots, slots}).empty() == (slots > 1));
    CHECK(refusal<bundles::shared<lru>>(rows(2, 60, 4), {slots, slots}).empty() == (slots >= 8));
  }
  CHECK(refusal<lru>(rows(1, 60, 4), {4, 0}).empty());
  CHECK(refusal<small>(rows(1, 32), {4, 4}).empty());
}

TEST_CASE("construction: defaults of speculation, scratch and floor", "[table][construction]") {
  bench<hinted<guard::spare_only>> b(sized(8, 4, 3));
  CHECK(b.made.view().header().speculative_slots == 1);
  CHECK(b.made.view().header().n_scratch == 3);
  CHECK(b.made.view().usable() == 4);
  CHECK(b.made.view().fits(0, 1, 3));
  CHECK_FALSE(b.made.view().fits(0, 2, 3));
  table<bundles::shared<lru>> shared(rows(3, 8, 2), {12, 12});
  CHECK(shared.view().header().floor == 2);
  CHECK(shared.view().usable() == 8);  // the floors of two other rows
}

TEST_CASE("construction: a moved table keeps its block", "[table][construction]") {
  bench<lru> b(sized(8, 3));
  b.demand({0, 1});
  void const* const where = b.made.block();
  table<lru> moved = std::move(b.made);
  CHECK(moved.block() == where);
  CHECK(audit(moved.view()));
  CHECK(&moved.view().parts() == &moved.parts());
}
