// SPDX-License-Identifier: Apache-2.0
#include "admit.hpp"

using namespace warmset;

namespace {

using bundle = admit_test::over_counts<admit::fetch_share>;

constexpr u32 fetched(u32 misses, u32 share) {
  return admit::fetch_share{tuning{.fetch_share = share}}.fetched(misses);
}

constexpr u32 small_share = 11'207;  // .171
static_assert(fetched(2, small_share) == 0);
static_assert(fetched(5, small_share) == 1);
static_assert(fetched(10, small_share) == 1);
static_assert(fetched(3, 32'768) == 1);
static_assert(fetched(5, 32'768) == 2);
static_assert(fetched(10, 32'768) == 5);

/// The experts that a step installed, as letters in ascending order.
std::string loads_of(play::player<bundle> const& p) {
  std::string letters;
  for (u32 j = 0; j < p.last_plan().n_loads; ++j) {
    letters += static_cast<char>('a' + p.last_plan().loads[j].expert);
  }
  return letters;
}

}  // namespace

TEST_CASE("fetch_share conforms", "[policy][admit]") {
  for (u32 const share : {0u, 1u, small_share, 32'768u, 65'535u, whole_fetch_share}) {
    conformance::check_admission<admit::fetch_share>({.fetch_share = share});
  }
}

TEST_CASE("fetch_share: the split whose slower side is done first, for any number and share",
          "[policy][admit]") {
  auto const cost = [](u64 f, u64 m, u64 q) {
    using wide = unsigned __int128;
    return std::max(wide{f} * (65'536 - q), wide{m - f} * q);
  };
  for (u32 const share : {0u, 1u, 2u, small_share, 21'845u, 32'767u, 32'768u, 32'769u, 54'329u,
                          65'534u, 65'535u, whole_fetch_share}) {
    for (u32 m = 0; m <= 65'535; m += m < 200 ? 1 : 331) {
      u32 const f = fetched(m, share);
      u32 const low = static_cast<u32>(u64{m} * share / 65'536);
      INFO(m << " misses, share " << share << ": " << f);
      REQUIRE(f <= m);
      REQUIRE((f == low || f == low + 1));
      // no split is better, and of equal ones it is the one that fetches less
      if (f != 0) {
        REQUIRE(cost(f - 1, m, share) > cost(f, m, share));
      }
      if (f != m) {
        REQUIRE(cost(f + 1, m, share) >= cost(f, m, share));
      }
    }
    CHECK(fetched(65'535, share) <= 65'535);
  }
  CHECK(fetched(65'535, whole_fetch_share) == 65'535);
  CHECK(fetched(65'535, 0) == 0);
  CHECK(fetched(1, 32'768) == 0);
  CHECK(fetched(1, 32'769) == 1);
}

TEST_CASE("fetch_share: a full pool installs exactly the split of its misses, at every size",
          "[policy][admit]") {
  for (u32 const slots : {1u, 2u, 3u, 4u, 8u, 42u, 60u}) {
    for (u32 const share : {0u, small_share, 32'768u, 50'000u, whole_fetch_share}) {
      play::player<bundle> p(120, slots, tuning{.fetch_share = share});
      INFO(slots << " slots, share " << share);
      for (u32 x = 0; x < slots; ++x) {
        CHECK_FALSE(p.hits(x));
      }
      REQUIRE(p.tested().view().header().resident ==
              slots);  // free slots are filled whatever the share
      for (u32 m = 1; m <= slots; ++m) {
        std::vector<u32> ids;
        for (u32 x = 120; ids.size() < m;) {
          if ((p.tested().view().expert(--x).where & expert_word::slot_mask) == 0) {
            ids.push_back(x);
          }
        }
        (void)p.step(ids);
        CHECK(p.last_plan().kind == plan_kind::step);
        CHECK(p.last_plan().n_loads == fetched(m, share));
        CHECK(p.last_plan().n_declined == m - fetched(m, share));
        CHECK(audit(p.tested().view()));
      }
    }
  }
}

TEST_CASE("fetch_share: free slots or the split, whichever is more", "[policy][admit]") {
  play::player<bundle> p(26, 8, tuning{.fetch_share = 32'768});
  CHECK(p.run("abcde") == ".....");  // three slots are free
  (void)p.step(std::vector<u32>{'p' - 'a', 'q' - 'a', 'r' - 'a', 's' - 'a'});
  CHECK(p.last_plan().n_loads == 3);  // more than two of four
  CHECK(loads_of(p) == "pqr");
  play::player<bundle> other(26, 8, tuning{.fetch_share = 32'768});
  CHECK(other.run("abcdefg") == ".......");  // one is free
  (void)other.step(
      std::vector<u32>{'p' - 'a', 'q' - 'a', 'r' - 'a', 's' - 'a', 't' - 'a', 'u' - 'a'});
  CHECK(loads_of(other) == "pqr");  // three of six
}

TEST_CASE("fetch_share: the most recently demanded misses are fetched, ties to the lower id",
          "[policy][admit]") {
  play::player<bundle> p(26, 8, tuning{.fetch_share = 32'768});
  CHECK(p.run("abcdefgh") == "........");
  CHECK(p.run("wxyz") == "....");  // one miss of one is left to the host
  CHECK(p.order() == "abcdefgh");
  // never demanded ones stand behind x, and among them the lower id goes first: m before q before t
  (void)p.step(std::vector<u32>{'t' - 'a', 'q' - 'a', 'x' - 'a', 'm' - 'a'});
  CHECK(loads_of(p) == "mx");
  // q of the last step, then z, y, w
  (void)p.step(std::vector<u32>{'w' - 'a', 'z' - 'a', 'q' - 'a', 'y' - 'a'});
  CHECK(loads_of(p) == "qz");
  // demand order is no matter; a and b have gone
  (void)p.step(std::vector<u32>{'t' - 'a', 'w' - 'a', 'y' - 'a', 'b' - 'a', 'a' - 'a'});
  CHECK(loads_of(p) == "wy");
  CHECK(p.last_plan().no_victim.guarded == 0);
}

TEST_CASE("fetch_share: with fewer slots than fetched misses the least recent ones are declined",
          "[policy][admit]") {
  play::player<bundle> p(26, 4, tuning{.fetch_share = whole_fetch_share});
  CHECK(p.run("uv") == "..");
  CHECK(p.run("abcd") == "....");  // the residents
  auto const& t = p.tested().view();
  for (char const held :
       {'a', 'b', 'c'}) {  // readers of three slots: the step can rely on all, and gets one
    u32 const where = t.expert(static_cast<u32>(held - 'a')).where & expert_word::slot_mask;
    t.word(where - 1) += slot_word::one_lease;
    ++t.header().leases;
  }
  (void)p.step(std::vector<u32>{'u' - 'a', 'k' - 'a', 'v' - 'a'});
  CHECK(loads_of(p) == "v");
  CHECK(p.last_plan().n_declined == 2);
  CHECK(p.last_plan().no_victim.leased == 3);
  CHECK(audit(t));
}

TEST_CASE("fetch_share: a step whose misses are all declined is served", "[policy][admit]") {
  for (u32 const slots : {1u, 2u, 8u}) {
    play::player<bundle> p(60, slots, tuning{.fetch_share = 0});
    auto const& t = p.tested().view();
    for (u32 x = 0; x < slots; ++x) {
      (void)p.hits(x);
    }
    for (u32 i = 0; i < 50; ++i) {
      std::vector<u32> ids;
      for (u32 x = 0; x < slots; ++x) {
        ids.push_back(8 + (7 * i + 11 * x) % 52);
      }
      (void)p.step(ids);
      REQUIRE(p.last_plan().kind == plan_kind::step);
      REQUIRE(p.last_plan().n_declined == p.last_plan().n);
      REQUIRE(p.last_plan().n_waves == p.last_plan().n);  // one scratch slot
      REQUIRE(t.header().resident == slots);
      REQUIRE(t.layer(0).step == slots + i + 1);  // touched and counted all the same
      REQUIRE(audit(t));
    }
    CHECK(t.header().tick == 51 * slots);
  }
}

TEST_CASE("fetch_share: the share is part of the composition", "[policy][admit]") {
  CHECK(policy_fingerprint<bundle>(tuning{.fetch_share = 1}) !=
        policy_fingerprint<bundle>(tuning{.fetch_share = 2}));
  CHECK(tuning{}.fetch_share == 32'768);
}
