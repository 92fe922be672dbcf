// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <warmset/cache.hpp>
#include <warmset/table/bundles.hpp>
#include <warmset/table/profile.hpp>

using namespace warmset;

namespace {

template <class Bundle>
using made = cache<Bundle, move::immediate>;
using counted = bundles::of<score::decayed_count>;

/// Layers 3 and 5 of 6 and 4 experts, k = 2.
geometry small() { return geometry({{layer_id{3}, 6, 2, {10}}, {layer_id{5}, 4, 2, {10}}}); }

constexpr expert_key at(u32 layer, u32 expert) { return {layer_id{layer}, expert_id{expert}}; }

template <class Cache>
void step(Cache& c, u32 layer, std::vector<routed_id> const& ids) {
  (void)c.step(layer_id{layer}, ids);
}

/// Layer 3: expert 0 three times, 1 twice, 2 once; layer 5: expert 3 once.
template <class Cache>
void play(Cache& c) {
  step(c, 3, {0, 1});
  step(c, 3, {0, 1});
  step(c, 3, {0, 2});
  step(c, 5, {3});
}

template <class Bundle>
std::vector<unsigned char> blocks(made<Bundle> const& c) {
  std::vector<unsigned char> all;
  for (auto const& pool : c.pools()) {
    auto const* const first = static_cast<unsigned char const*>(pool.block());
    all.insert(all.end(), first, first + pool.block_bytes());
  }
  return all;
}

heat_profile some_profile() {
  made<counted> c(small(), budget::of_slots(4));
  play(c);
  return profile_of(c);
}

}  // namespace

TEST_CASE("profile: what a cache has counted", "[table][profile]") {
  tuning numbers;
  numbers.half_life = 16;  // T[1] = 62757 of 65536
  made<counted> c(small(), budget::of_slots(4), numbers);
  heat_profile const blank = profile_of(c);
  CHECK(blank == heat_profile(small()));
  CHECK(blank.find(at(3, 0))->age == heat_profile::never);
  play(c);
  heat_profile const p = profile_of(c);
  // 256; 256 * T >> 16 = 245, + 256 = 501; 501 * T >> 16 = 479, + 256 = 735
  CHECK(*p.find(at(3, 0)) == expert_heat{735, 1});
  CHECK(p.find(at(3, 0))->counts() == 2);
  CHECK(*p.find(at(3, 1)) == expert_heat{479, 2});  // 501, a step ago
  CHECK(*p.find(at(3, 2)) == expert_heat{256, 0});
  CHECK(*p.find(at(3, 3)) == expert_heat{0, heat_profile::never});
  CHECK(*p.find(at(5, 3)) == expert_heat{256, 0});
  CHECK(p.find(at(3, 6)) == nullptr);
  CHECK(p.find(at(4, 0)) == nullptr);
  CHECK(p.find(at(6, 0)) == nullptr);
  CHECK(heat_profile().find(at(0, 0)) == nullptr);
  CHECK(p.geometry_fingerprint() == small().fingerprint());

  made<bundles::of<score::lfu>> whole(small(), budget::of_slots(4));
  play(whole);
  CHECK(*profile_of(whole).find(at(3, 0)) == expert_heat{3 * 256, 1});
}

TEST_CASE("profile: saved and loaded it is the same", "[table][profile]") {
  heat_profile const p = some_profile();
  auto const image = p.save();
  CHECK(image.size() == sizeof(profile_header) + 10 * sizeof(expert_heat));
  heat_profile loaded(small());
  REQUIRE(loaded.load(image));
  CHECK(loaded == p);
  CHECK(loaded.save() == image);
  heat_profile none;
  REQUIRE(none.load(heat_profile().save()));
}

TEST_CASE("profile: what does not fit is refused and nothing changes", "[table][profile]") {
  auto const good = some_profile().save();
  heat_profile const before = [] {
    heat_profile p(small());
    *p.find(at(5, 1)) = {77, 5};
    return p;
  }();
  heat_profile p = before;
  auto const refused = [&](std::vector<unsigned char> const& image, reason why) {
    CHECK(p.load(image).why == why);
    CHECK(p == before);
  };
  for (std::size_t n = 0; n < good.size(); ++n) {  // cut at every byte
    INFO("cut to " << n);
    refused({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)}, reason::wrong_size);
  }
  auto longer = good;
  longer.push_back(0);
  refused(longer, reason::wrong_size);
  for (std::size_t byte = 0; byte < good.size(); ++byte) {  // every bit of every byte
    reason const why = byte < 4    ? reason::wrong_magic
                       : byte < 8  ? reason::wrong_version
                       : byte < 16 ? reason::wrong_geometry
                       : byte < 24 ? reason::wrong_size
                                   : reason::corrupt;
    for (u32 bit = 0; bit < 8; ++bit) {
      INFO("byte " << byte << ", bit " << bit);
      auto image = good;
      image[byte] = static_cast<unsigned char>(image[byte] ^ 1u << bit);
      refused(image, why);
    }
  }
  heat_profile other(geometry::uniform(2, 5, 2, 10));  // as many experts
  CHECK(other.load(good).why == reason::wrong_geometry);
  CHECK(other.merge(before).why == reason::wrong_geometry);
  CHECK(other == heat_profile(geometry::uniform(2, 5, 2, 10)));
}

TEST_CASE("profile: merging adds, and saturates", "[table][profile]") {
  heat_profile a(small());
  heat_profile b(small());
  *a.find(at(3, 0)) = {1000, 9};
  *b.find(at(3, 0)) = {24, 4};
  *a.find(at(3, 1)) = {u32_max - 1, 0};
  *b.find(at(3, 1)) = {2, 3};
  *b.find(at(5, 2)) = {7, 1};
  heat_profile sum = a;
  REQUIRE(sum.merge(b));
  CHECK(*sum.find(at(3, 0)) == expert_heat{1024, 4});
  CHECK(*sum.find(at(3, 1)) == expert_heat{u32_max, 0});
  CHECK(*sum.find(at(5, 2)) == expert_heat{7, 1});
  CHECK(*sum.find(at(5, 3)) == expert_heat{0, heat_profile::never});
  heat_profile other_way = b;
  REQUIRE(other_way.merge(a));
  CHECK(other_way == sum);
  heat_profile same = sum;
  REQUIRE(same.merge(heat_profile(small())));
  CHECK(same == sum);
}

TEST_CASE("profile: a seeded cache says the same profile, for every score that can be seeded", "[table][profile]") {
  u32 seeded = 0;
  bundles::for_each(bundles::all{}, [&]<class Bundle>() {
    using score = typename Bundle::score;
    if constexpr (counting_score<score> && score_detail::has_seed_hook<score>) {
      ++seeded;
      INFO(Bundle::name);
      made<Bundle> source(small(), budget::of_slots(4));
      play(source);
      heat_profile const p = profile_of(source);
      made<Bundle> fresh(small(), budget::of_slots(4));
      REQUIRE(seed(fresh, p));
      CHECK(fresh.audit());
      heat_profile const again = profile_of(fresh);
      if constexpr (std::same_as<score, warmset::score::lfu_forget>) {
        CHECK(again.find(at(3, 0))->counts_256 == 0);  // an absent expert has no heat there
      } else {
        CHECK(again == p);
      }
      // what it knew before is gone
      REQUIRE(seed(fresh, heat_profile(small())));
      CHECK(fresh.audit());
      CHECK(profile_of(fresh) == heat_profile(small()));
      CHECK_FALSE(fresh.is_resident(at(3, 0)));
    }
  });
  CHECK(seeded >= 6);
}

TEST_CASE("profile: seeding needs an empty cache of the same model", "[table][profile]") {
  made<counted> c(small(), budget::of_slots(4));
  step(c, 5, {1});
  auto const before = blocks(c);
  CHECK(seed(c, some_profile()).why == reason::resident);
  CHECK(seed(c, heat_profile(geometry::uniform(2, 5, 2, 10))).why == reason::wrong_geometry);
  CHECK(seed(c, heat_profile()).why == reason::wrong_geometry);
  CHECK(blocks(c) == before);
  c.invalidate();
  CHECK(seed(c, some_profile()));
  CHECK(c.audit());
  // the clocks go on: counts are stamped with the present step, ages count back from the present tick
  CHECK(profile_of(c) == some_profile());
  step(c, 3, {2});
  CHECK(*profile_of(c).find(at(3, 2)) == expert_heat{245 + 256, 0});
}

TEST_CASE("profile: a plan made before the seed is stale", "[table][profile]") {
  made<counted> c(small(), budget::of_slots(4));
  std::vector<routed_id> const ids{1};
  CHECK(c.plan(layer_id{3}, ids).kind == plan_kind::step);
  REQUIRE(seed(c, some_profile()));
  CHECK(c.commit().why == reason::stale_plan);
}

TEST_CASE("profile: the hottest experts are pinned, and k slots stay", "[table][profile]") {
  heat_profile const p = some_profile();  // layer 3: 0, 1, 2; layer 5: 3
  auto const pinned = [](auto& c, u32 layer, u32 expert) {
    u32 pool = 0;
    u32 row = 0;
    REQUIRE(c.find(layer_id{layer}, pool, row));
    auto const& view = c.pools()[pool].view();
    return (view.expert(view.index_of(row, expert)).where & expert_word::pinned) != 0;
  };
  SECTION("two of four slots") {
    made<counted> c(small(), budget::of_slots(4));
    REQUIRE(pin_hottest(c, p, 2));
    CHECK(pinned(c, 3, 0));
    CHECK(pinned(c, 3, 1));
    CHECK_FALSE(pinned(c, 3, 2));
    CHECK(pinned(c, 5, 3));
    CHECK_FALSE(pinned(c, 5, 0));  // never demanded
    CHECK(c.audit());
    REQUIRE(pin_hottest(c, p, 2));  // nothing more
    CHECK(c.pools()[0].view().header().pinned == 2);
    // once loaded they stay, whatever comes
    step(c, 3, {0, 1});
    for (routed_id x = 0; x < 40; ++x) {
      step(c, 3, {2 + x % 4});
    }
    CHECK(c.is_resident(at(3, 0)));
    CHECK(c.is_resident(at(3, 1)));
    CHECK(c.fits(layer_id{3}, 1));
    auto const before = blocks(c);
    CHECK(pin_hottest(c, p, 3).why == reason::limited);
    CHECK(blocks(c) == before);
  }
  SECTION("at every size: as many as leave k, never more") {
    for (u32 const n : {1u, 2u, 3u, 4u, 8u, 42u, 60u}) {
      geometry const model = geometry::uniform(2, 60, std::min(n, 4u), 10);
      u32 const k = model.layers()[0].k;
      heat_profile hot(model);
      for (u32 x = 0; x < 60; ++x) {
        *hot.find(at(0, x)) = {x * 256, x};
        *hot.find(at(1, x)) = {256, x / 2};
      }
      for (u32 const wanted : {0u, 1u, n - k, n - k + 1, u32_max}) {
        made<counted> c(model, budget::of_slots(n));
        bool const fits = wanted <= n - k;
        INFO(n << " slots, k " << k << ", wanted " << wanted);
        auto const before = blocks(c);
        CHECK(pin_hottest(c, hot, wanted).why == (fits ? reason::none : reason::limited));
        CHECK((blocks(c) == before) == (!fits || wanted == 0));
        CHECK(c.audit());
        CHECK(c.fits(layer_id{0}, 1));
        for (u32 x = 0; fits && x < 60; ++x) {
          CHECK(pinned(c, 0, x) == (x >= 60 - wanted));  // most counts
          CHECK(pinned(c, 1, x) == (x < wanted));        // equal counts: smallest age, then lowest index
        }
      }
    }
  }
  SECTION("a shared pool keeps its floors as well") {
    made<bundles::shared<counted>> c(small(), budget::of_slots(4));  // 8 slots, floors of 2
    CHECK(pin_hottest(c, p, 3));                                     // 4 pins: 8 - 2 - 4 = k
    CHECK(c.fits(layer_id{3}, 1));
    made<bundles::shared<counted>> tight(small(), budget::of_slots(3));  // 6 slots
    CHECK(pin_hottest(tight, p, 3).why == reason::limited);
    CHECK(tight.pools()[0].view().header().pinned == 0);
    CHECK(pin_hottest(tight, p, 1));
    CHECK(tight.fits(layer_id{3}, 1));
  }
  SECTION("wrong geometry") {
    made<counted> c(geometry::uniform(2, 5, 2, 10), budget::of_slots(4));
    CHECK(pin_hottest(c, p, 1).why == reason::wrong_geometry);
  }
}
