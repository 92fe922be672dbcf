// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <warmset/table/persist.hpp>

#include "support.hpp"

using namespace warmset;
using namespace warmset::table_test;

namespace {

using policy = hinted<guard::spare_only>;
constexpr u64 model = 0x1234;

kit::table_config config() {
  auto c = sized(12, 6);
  c.numbers.speculative_slots = 2;
  return c;
}

/// A table in full swing: residents, a speculated slot, a pin, a lease and two transfers.
bench<policy> busy_table() {
  bench<policy> b(config());
  for (i32 i = 0; i < 20; ++i) {
    b.demand({i % 5, (i * 7) % 11});
  }
  (void)pin<policy>(b.made.view(), 0, 3, 2);
  b.hint({11});
  (void)b.commit();
  b.arrive();
  b.plan({0, 6});
  (void)b.commit();
  b.acquire();
  b.hint({9, 10});
  (void)b.commit();
  return b;
}

void seal(std::vector<unsigned char>& image) {
  image_header h{};
  std::memcpy(&h, image.data(), sizeof h);
  h.checksum = detail::checksum(image.data() + sizeof h, image.size() - sizeof h);
  std::memcpy(image.data(), &h, sizeof h);
}

}  // namespace

TEST_CASE("persist: what does not fit is refused and nothing changes", "[table][persist][R51][B53]") {
  auto const source = busy_table();
  auto const good = save(source.made, model);
  bench<policy> b(config());
  b.demand({1, 2});
  auto const before = b.bytes();
  auto const refused = [&](std::vector<unsigned char> const& image, u64 fingerprint, reason why) {
    CHECK(load(b.made, image, fingerprint).why == why);
    CHECK(b.bytes() == before);
  };
  refused(good, model + 1, reason::wrong_geometry);
  refused({}, model, reason::wrong_size);
  auto image = good;
  image[0] ^= 1;
  refused(image, model, reason::wrong_magic);
  image = good;
  image[4] ^= 1;
  refused(image, model, reason::wrong_version);
  image = good;
  image.pop_back();
  refused(image, model, reason::wrong_size);
  image.resize(sizeof(image_header));
  refused(image, model, reason::wrong_size);
  for (std::size_t at = sizeof(image_header); at < good.size(); at += 37) {
    image = good;
    image[at] ^= 0x10;
    refused(image, model, reason::corrupt);
  }
  image = good;
  block_header h{};
  std::memcpy(&h, image.data() + sizeof(image_header), sizeof h);
  h.policy ^= 1;
  std::memcpy(image.data() + sizeof(image_header), &h, sizeof h);
  seal(image);
  refused(image, model, reason::wrong_policy);
  h.policy ^= 1;
  ++h.n_experts;
  std::memcpy(image.data() + sizeof(image_header), &h, sizeof h);
  seal(image);
  refused(image, model, reason::wrong_size);
  --h.n_experts;
  ++h.resident;  // a sealed lie: audit finds it
  std::memcpy(image.data() + sizeof(image_header), &h, sizeof h);
  seal(image);
  refused(image, model, reason::corrupt);

  bench<hinted<guard::none>> other_policy(config());
  CHECK(load(other_policy.made, good, model).why == reason::wrong_policy);
  auto c = config();
  c.reserved = c.capacity = 7;
  bench<policy> other_size(c);
  CHECK(load(other_size.made, good, model).why == reason::wrong_size);
}

TEST_CASE("persist: a sealed image of any bytes does no harm", "[table][persist]") {
  auto const good = save(busy_table().made, model);
  kit::integers random(11);
  u32 accepted = 0;
  for (u32 round = 0; round < 3'000; ++round) {
    auto image = good;
    for (u32 i = 0, n = 1 + random.below(3); i < n; ++i) {
      image[sizeof(image_header) + random.below(image.size() - sizeof(image_header))] =
          static_cast<unsigned char>(random.next());
    }
    seal(image);
    bench<policy> b(config());
    if (load(b.made, image, model, round % 2 == 0 ? residency::keep : residency::drop)) {
      ++accepted;
      REQUIRE(b.sound());
      b.demand({1, 2});
      REQUIRE(b.sound());
    }
  }
  CHECK(accepted != 0);
}

TEST_CASE("persist: drop keeps scores and clocks, and no residency", "[table][persist]") {
  auto const source = busy_table();
  bench<policy> b(config());
  REQUIRE(load(b.made, save(source.made, model), model));
  REQUIRE(b.sound());
  CHECK(kit::history_bytes<policy>(b.made.view()) == kit::history_bytes<policy>(source.made.view()));
  auto const& h = b.made.view().header();
  CHECK((h.resident == 0 && h.reserved == 0 && h.draining == 0 && h.leases == 0 && h.in_flight == 0));
  CHECK(h.pinned == 1);
  CHECK(h.storage_generation == 1);
  for (u32 x = 0; x < 12; ++x) {
    CHECK_FALSE(b.resident(x));
  }
  b.demand({3});
  CHECK(b.made.view().word(b.slot_of(3)) == (slot_word::of(slot_state::resident) | slot_word::pinned));
}

TEST_CASE("persist: keep leaves the residents and drops what was in flight", "[table][persist]") {
  auto const source = busy_table();
  bench<policy> b(config());
  REQUIRE(load(b.made, save(source.made, model), model, residency::keep));
  REQUIRE(b.sound());
  auto const& from = source.made.view();
  auto const& h = b.made.view().header();
  CHECK(h.resident == from.header().resident);
  CHECK((h.reserved == 0 && h.leases == 0 && h.in_flight == 0));
  CHECK(h.storage_generation == from.header().storage_generation);
  b.demand({0, 1});
  CHECK(b.sound());
}

TEST_CASE("persist: equal tables decide alike after a round trip", "[table][persist]") {
  bench<policy> a(config());
  for (i32 i = 0; i < 30; ++i) {
    a.demand({i % 7, (i * 5) % 12});
  }
  bench<policy> b(config());
  REQUIRE(load(b.made, save(a.made, model), model, residency::keep));
  for (i32 i = 0; i < 100; ++i) {
    a.demand({i % 11, (i * 5) % 12});
    b.demand({i % 11, (i * 5) % 12});
    for (u32 x = 0; x < 12; ++x) {
      REQUIRE(a.slot_of(x) == b.slot_of(x));
    }
  }
}

TEST_CASE("persist: a table in use refuses, scratch leases included", "[table][persist]") {
  auto const image = save(busy_table().made, model);
  bench<policy> b(config());
  b.plan({1});
  REQUIRE(b.commit());
  CHECK(load(b.made, image, model).why == reason::busy);
  b.arrive();
  auto const held = b.acquire();
  CHECK(load(b.made, image, model).why == reason::busy);
  b.release(held);
  b.plan({0, 1, 2, 3, 4, 5, 6, 7, 8});  // overflow: reads scratch
  REQUIRE(b.decided->kind == plan_kind::overflow);
  auto const scratch = b.acquire();
  std::vector<u32> pool_only;
  std::vector<u32> scratch_only;
  for (u32 const s : scratch) {
    (s < 6 ? pool_only : scratch_only).push_back(s);
  }
  b.release(pool_only);
  CHECK(load(b.made, image, model).why == reason::busy);
  b.release(scratch_only);
  CHECK(load(b.made, image, model));
}

TEST_CASE("persist: what the table is given now stays", "[table][persist][R13]") {
  auto const image = save(busy_table().made, model);
  for (residency const keep : {residency::drop, residency::keep}) {
    bench<policy> b(config());
    REQUIRE(resize<policy>(b.made.view(), 3, b.sum));
    REQUIRE(load(b.made, image, model, keep));
    CHECK(b.made.view().header().capacity == 3);
    CHECK(b.made.view().header().retired == 3);
    CHECK(b.sound());
    for (i32 i = 0; i < 50; ++i) {
      b.demand({i % 12});
      REQUIRE(b.made.view().header().resident <= 3);
    }
  }
  auto c = config();
  c.numbers.speculative_slots = 1;
  bench<policy> b(c);
  REQUIRE(load(b.made, image, model));
  CHECK(b.made.view().header().speculative_slots == 1);
}

TEST_CASE("persist: words of earlier transfers say nothing after a load", "[table][persist]") {
  bench<policy> young(config());
  young.demand({0});
  auto const image = save(young.made, model);
  bench<policy> b(config());
  for (i32 i = 0; i < 30; ++i) {
    b.demand({i % 12, (i + 5) % 12});  // generations go on, and the arrival words with them
  }
  REQUIRE(load(b.made, image, model));
  for (i32 i = 0; i < 30; ++i) {
    b.plan({i % 12, (i + 1) % 12});
    REQUIRE(b.commit());
    u32 const waiting = b.made.view().header().in_flight;
    b.settle();
    REQUIRE(b.made.view().header().in_flight == waiting);  // nothing has arrived
    b.arrive();
  }
}
