// SPDX-License-Identifier: Apache-2.0

#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>

#include <catch2/catch_test_macros.hpp>

#include <warmset/core/arrival.hpp>
#include <warmset/core/geometry.hpp>
#include <warmset/core/lanes.hpp>
#include <warmset/core/outcome.hpp>

namespace warmset {
namespace {

/// Whether ids of two kinds can be mistaken for each other.
template <class A, class B>
concept mixes = std::is_convertible_v<A, B> || std::is_constructible_v<A, B> || requires(A a, B b) {
  a == b;
};

std::string message(std::vector<layer_geometry> layers) {
  try {
    geometry const g{std::move(layers)};
  } catch (config_error const& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("ids are strong types") {
  STATIC_CHECK(!mixes<expert_id, layer_id>);
  STATIC_CHECK(!mixes<expert_id, slot_id>);
  STATIC_CHECK(!mixes<slot_id, layer_id>);
  STATIC_CHECK(!std::is_convertible_v<u32, expert_id>);
  STATIC_CHECK(!std::is_convertible_v<slot_id, u32>);
  STATIC_CHECK(std::is_trivially_copyable_v<expert_key>);
  CHECK(no_slot == slot_id{u32_max});
  CHECK(!(slot_id{0} == no_slot));
}

TEST_CASE("expert keys are ordered by layer then index") {
  CHECK(expert_key{{1}, {9}} < expert_key{{2}, {0}});
  CHECK(expert_key{{1}, {3}} < expert_key{{1}, {4}});
  CHECK(!(expert_key{{1}, {4}} < expert_key{{1}, {4}}));
  CHECK(!(expert_key{{2}, {0}} < expert_key{{1}, {9}}));
}

TEST_CASE("integer helpers are total") {
  CHECK(saturating_sub(3u, 5u) == 0);
  CHECK(saturating_sub(5u, 3u) == 2);
  CHECK(saturating_add(u32_max, 1) == u32_max);
  CHECK(saturating_add(u32_max - 1, 1) == u32_max);
  CHECK(saturating_add(0, u32_max) == u32_max);
  CHECK(saturating_add(2, 3) == 5);
  CHECK(ceil_div(0u, 4u) == 0);
  CHECK(ceil_div(1u, 4u) == 1);
  CHECK(ceil_div(8u, 4u) == 2);
  CHECK(ceil_div(9u, 4u) == 3);
  CHECK(ceil_div(u32_max, 2u) == u32_max / 2 + 1);
  CHECK(ceil_div(7u, 0u) == 0);
  CHECK(floor_log2(0) == 0);
  for (u32 bit = 0; bit < 64; ++bit) {
    u64 const x = u64{1} << bit;
    CHECK(floor_log2(x) == bit);
    CHECK(floor_log2(x | (x - 1)) == bit);
    CHECK(lowest_bit(x) == bit);
    CHECK(lowest_bit(~(x - 1)) == bit);
  }
  CHECK(lowest_bit(0) == 64);
  CHECK(age_of(3, u32_max) == 4);
  CHECK(age_of(7, 7) == 0);
  CHECK(min_of(2u, 3u) == 2);
  CHECK(max_of(2u, 3u) == 3);
  STATIC_CHECK(saturating_add(u32_max, u32_max) == u32_max);
}

TEST_CASE("eviction keys order by score then age then slot") {
  CHECK(eviction_key(1, true, 0, 0) < eviction_key(2, true, 100, 0));
  CHECK(eviction_key(5, true, 9, 7) < eviction_key(5, true, 8, 0));
  CHECK(eviction_key(5, true, 9, 3) < eviction_key(5, true, 9, 4));
  // never accessed is older than everything
  CHECK(eviction_key(0, false, 0, 9) < eviction_key(0, true, u32_max - 1, 0));
  CHECK(eviction_key(u64_max - 1, true, 0, max_of(1u, 2u)) < no_key);
  for (u32 const slot : {0u, 1u, 4095u, 0xFF'FFFEu}) {
    CHECK(slot_of(eviction_key(77, true, 123, slot)) == slot);
    CHECK(slot_of(eviction_key(77, false, 123, slot)) == slot);
  }
}

TEST_CASE("arrival words carry a generation and a state") {
  for (u32 const generation : {0u, 1u, arrival::generation_mask, arrival::generation_mask + 5}) {
    for (transfer const t :
         {transfer::none, transfer::loading, transfer::arrived, transfer::failed}) {
      u32 const w = arrival::word(generation, t);
      CHECK(arrival::state(w) == t);
      CHECK(arrival::is_of(w, generation));
      CHECK(!arrival::is_of(w, generation + 1));
    }
  }
  CHECK(arrival::state(0) == transfer::none);  // zeroed words say nothing
}

TEST_CASE("every reason and access kind has a name of its own") {
  for (u32 i = 0; i < n_reasons; ++i) {
    CHECK(std::strlen(name_of(static_cast<reason>(i))) != 0);
    for (u32 j = 0; j < i; ++j) {
      CHECK(std::strcmp(name_of(static_cast<reason>(i)), name_of(static_cast<reason>(j))) != 0);
    }
  }
  CHECK(std::string{name_of(reason::corrupt)} == "corrupt");
  CHECK(std::string{name_of(reason::too_late)} == "too_late");
  CHECK(std::string{name_of(static_cast<reason>(200))} == "unknown");
  CHECK(std::string{name_of(access_kind::overflow_miss)} == "overflow_miss");
  CHECK(std::string{name_of(static_cast<access_kind>(200))} == "unknown");
  CHECK(done);
  CHECK(!status{reason::busy});
}

TEST_CASE("an error's message is one sentence with its values") {
  CHECK(std::string{config_error("k = ", 4u, " of ", u64_max, " experts").what()} ==
        "k = 4 of 18446744073709551615 experts");
  CHECK(std::string{config_error("zero ", 0u).what()} == "zero 0");
  CHECK(std::string{config_error().what()}.empty());
  std::string const far(600, 'x');
  CHECK(std::string{config_error(far.c_str()).what()}.size() == 511);
  CHECK(std::string{config_error(far.substr(0, 506).c_str(), 1234567890u).what()} ==
        std::string(506, 'x') + "12345");
  STATIC_CHECK(std::is_base_of_v<std::exception, config_error>);
  STATIC_CHECK(std::is_nothrow_copy_constructible_v<config_error>);
}

TEST_CASE("a wrong geometry is refused with its values") {
  CHECK(message({{layer_id{4}, 0, 1, {8}}}) ==
        "geometry: layer 4 has 0 experts; between 1 and 65535 are possible");
  CHECK(message({{layer_id{4}, 65'536, 1, {8}}}).find("65536 experts") != std::string::npos);
  CHECK(message({{layer_id{4}, 8, 0, {8}}}) == "geometry: layer 4 uses k = 0 of 8 experts");
  CHECK(message({{layer_id{4}, 8, 9, {8}}}) == "geometry: layer 4 uses k = 9 of 8 experts");
  CHECK(message({{layer_id{4}, 8, 2, {}}}) == "geometry: layer 4 has experts of no bytes");
  CHECK(message({{layer_id{4}, 8, 2, {0, 0}}}) == "geometry: layer 4 has experts of no bytes");
  for (std::vector<u64> const& banks : std::vector<std::vector<u64>>{{0, 8}, {8, 0, 8}, {8, 0}}) {
    CHECK(message({{layer_id{4}, 8, 2, banks}}) ==
          std::string("geometry: bank ") + (banks[0] == 0 ? "0" : "1") +
              " of layer 4 has 0 bytes; only banks that the experts have are listed");
  }
  u64 const most = geometry::max_expert_bytes;
  CHECK(message({{layer_id{4}, 8, 2, {most - 1, 1}}}).empty());
  for (std::vector<u64> const& banks : std::vector<std::vector<u64>>{
           {most + 1}, {most, 1}, {u64{1} << 63, u64{1} << 63, 96}, {u64_max}}) {
    CHECK(message({{layer_id{4}, 8, 2, banks}})
              .starts_with("geometry: layer 4 has experts of more than 1099511627776 bytes; bank "));
  }
  CHECK(message({{layer_id{4}, 1u << 15, 1, {most}}, {layer_id{5}, 1u << 15, 1, {most}}}).empty());
  std::vector<layer_geometry> many;
  for (u32 i = 0; i < 32; ++i) {  // 32 x 2^15 x 2^40 are 2^60
    many.push_back({layer_id{i}, 1u << 15, 1, {most}});
  }
  CHECK(message(many).empty());
  many.push_back({layer_id{40}, 1, 1, {1}});
  CHECK(message(many) == "geometry: up to layer 40 all experts have more than 1152921504606846976 bytes");
  CHECK(message({{layer_id{4}, 8, 2, {1}}, {layer_id{4}, 8, 2, {1}}})
            .find("layer 4 does not follow layer 4") != std::string::npos);
  CHECK(message({{layer_id{4}, 8, 2, {1}}, {layer_id{3}, 8, 2, {1}}})
            .find("layer 3 does not follow layer 4") != std::string::npos);
  CHECK(message({{layer_id{0}, 65'535, 65'535, {1}}}).empty());
  CHECK(message({}).empty());
}

TEST_CASE("a sparse geometry finds its layers") {
  geometry const g{{{layer_id{3}, 8, 2, {100, 50}},
                    {layer_id{5}, 16, 4, {300}},
                    {layer_id{6}, 8, 2, {100, 50}},
                    {layer_id{9}, 4, 1, {100}}}};
  for (u32 const id : {3u, 5u, 6u, 9u}) {
    REQUIRE(g.find(layer_id{id}) != nullptr);
    CHECK(g.find(layer_id{id})->layer == layer_id{id});
  }
  for (u32 const id : {0u, 2u, 4u, 7u, 8u, 10u, u32_max}) {
    CHECK(g.find(layer_id{id}) == nullptr);
  }
  CHECK(geometry{}.find(layer_id{0}) == nullptr);
  CHECK(g.cycle() == 9);
  CHECK(g.total_bytes() == 8 * 150 + 16 * 300 + 8 * 150 + 4 * 100);
  CHECK(g.layers()[0].expert_bytes() == 150);

  auto const groups = g.groups();  // equal banks, not equal sums
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].layers == std::vector<layer_id>{{3}, {6}});
  CHECK(groups[0].max_experts == 8);
  CHECK(groups[0].expert_bytes() == 150);
  CHECK(groups[1].layers == std::vector<layer_id>{{5}});
  CHECK(groups[1].max_k == 4);
  CHECK(groups[2].layers == std::vector<layer_id>{{9}});
}

TEST_CASE("groups differ by bytes of each bank") {
  geometry const g{{{layer_id{0}, 8, 2, {100, 50}}, {layer_id{1}, 8, 2, {50, 100}}}};
  CHECK(g.groups().size() == 2);
}

TEST_CASE("coverage says which layers are left out and why") {
  geometry const g{
      {{layer_id{0}, 8, 2, {296}}, {layer_id{1}, 8, 2, {512}}, {layer_id{2}, 8, 2, {600}}}};
  CHECK(g.coverage().complete());
  coverage_report const r = g.coverage(512);
  CHECK(r.layers_total == 3);
  CHECK(r.layers_covered == 2);
  CHECK(r.groups == 3);
  CHECK(!r.complete());
  REQUIRE(r.excluded.size() == 1);
  CHECK(r.excluded[0].layer == layer_id{0});
  CHECK(r.excluded[0].expert_bytes == 296);
  CHECK(std::strlen(r.excluded[0].why) != 0);
}

TEST_CASE("a fingerprint tells geometries apart") {
  geometry const g = geometry::uniform(4, 8, 2, 100);
  CHECK(g.fingerprint() == geometry::uniform(4, 8, 2, 100).fingerprint());
  CHECK(g == geometry::uniform(4, 8, 2, 100));
  for (geometry const& other :
       {geometry::uniform(5, 8, 2, 100), geometry::uniform(4, 9, 2, 100),
        geometry::uniform(4, 8, 3, 100), geometry::uniform(4, 8, 2, 101), geometry{}}) {
    CHECK(other.fingerprint() != g.fingerprint());
  }
  geometry const split{{{layer_id{0}, 8, 2, {60, 40}}}};
  geometry const whole{{{layer_id{0}, 8, 2, {100}}}};
  geometry const moved{{{layer_id{1}, 8, 2, {100}}}};
  CHECK(split.fingerprint() != whole.fingerprint());
  CHECK(moved.fingerprint() != whole.fingerprint());
}

TEST_CASE("the lane group of one lane") {
  one_lane const g;
  std::vector<u32> seen;
  g.for_each(4, [&](u32 i) { seen.push_back(i); });
  CHECK(seen == std::vector<u32>{0, 1, 2, 3});
  CHECK(g.min_key(0, [](u32, order_key& k) { lower(k, order_key{0, 0}); }) == no_key);
  CHECK(g.min_key(5, [](u32 i, order_key& k) { lower(k, order_key{10 - i, i}); }) == order_key{6, 4});
  CHECK(g.min_key(3, [](u32 i, order_key& k) { lower(k, order_key{1, 2 - i}); }) == order_key{1, 0});
  CHECK(g.min_key(3, [](u32, order_key& k) { lower(k, no_key); }) == no_key);
  CHECK(g.any(4, [](u32 i) { return i == 3; }));
  CHECK(!g.any(3, [](u32 i) { return i == 3; }));
  CHECK(!g.any(0, [](u32) { return true; }));
  CHECK(g.count(10, [](u32 i) { return i % 3 == 0; }) == 4);
  std::vector<u32> even(3, 0);
  CHECK(g.append_in_order(
            6, [](u32 i) { return i % 2 == 0; }, [&](u32 i, u32 at) { even[at] = i; }) == 3);
  CHECK(even == std::vector<u32>{0, 2, 4});
  u32 led = 0;
  g.leader([&] { ++led; });
  CHECK(led == 1);
}

TEST_CASE("an outcome is plain data without padding") {
  STATIC_CHECK(std::has_unique_object_representations_v<outcome>);
  outcome o{};
  o[access_kind::late] = 3;
  outcome const& view = o;
  CHECK(view[access_kind::late] == 3);
  CHECK(o.accesses[2] == 3);
}

}  // namespace warmset
