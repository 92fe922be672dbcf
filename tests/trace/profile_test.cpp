// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"
#include "support/rounds.hpp"

#include <algorithm>

#include <warmset/cache.hpp>
#include <warmset/table/bundles.hpp>
#include <warmset/table/profile.hpp>
#include <warmset/trace/replay.hpp>

// A restart between two halves of a bundled trace: what goes on from a saved profile decides as what never stopped.

using namespace trace_test;

namespace {

struct decided {
  std::vector<u32> experts, slots;
  std::vector<access_kind> how;
  bool operator==(decided const&) const = default;
};

template <class Bundle>
using replayed = cache<Bundle, move::immediate, observe::counting>;

template <class Bundle>
std::vector<decided> play(replayed<Bundle>& c, trace::recording const& r, trace::selection const& which) {
  std::vector<decided> steps;
  (void)trace::replay(r, which, c, [&](trace::event const&, auto const& d) {
    steps.push_back({{d.experts.begin(), d.experts.end()}, {d.slots.begin(), d.slots.end()}, {d.how.begin(), d.how.end()}});
  });
  return steps;
}

template <class Bundle>
void check_restart(trace::recording const& r, u32 slots) {
  trace::selection const first = trace::selection::parse("0-30");
  trace::selection const second = trace::selection::parse("31-61");
  budget const size = budget::of_slots(slots);
  replayed<Bundle> going_on(r.geometry(), size);
  REQUIRE_FALSE(play(going_on, r, first).empty());
  auto const image = profile_of(going_on).save();
  // the other one loses its residency and rebases its clocks, and does not restart
  going_on.invalidate();
  for (auto& pool : going_on.pools()) {
    detail::rebase<Bundle>(one_lane{}, pool.view());
  }

  replayed<Bundle> restarted(r.geometry(), size);
  heat_profile loaded(r.geometry());
  REQUIRE(loaded.load(image));
  REQUIRE(seed(restarted, loaded));
  REQUIRE(restarted.audit());
  replayed<Bundle> cold(r.geometry(), size);

  auto const expected = play(going_on, r, second);
  auto const actual = play(restarted, r, second);
  REQUIRE(expected.size() > 1000);
  CHECK(actual == expected);
  CHECK(play(cold, r, second) != expected);  // the profile matters
  CHECK(restarted.audit());
  u64 hits = 0;
  for (u32 layer = 0; layer < r.geometry().layers().size(); ++layer) {
    hits += restarted.observer().total(layer, phase::decode).hits().value;
  }
  CHECK(hits != 0);
}

}  // namespace

TEST_CASE("profile: decisions after save and load are those without the restart", "[profile]") {
#if defined(WARMSET_HAS_ZSTD)
  trace::recording const r =
      read_trace_file(std::string(WARMSET_SOURCE_DIR) + "/examples/data/tinymoe-8x32.wst.zst");
  using counted = bundles::of<score::decayed_count>;
  for (u32 const slots : {4u, 8u, 16u}) {
    if (slow_build && slots != 8) {
      continue;
    }
    INFO(slots << " slots");
    check_restart<counted>(r, slots);
    check_restart<bundles::shared<counted>>(r, slots);
  }
#else
  SKIP("skipped: zstd is not there");
#endif
}
