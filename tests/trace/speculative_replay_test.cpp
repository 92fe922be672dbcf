// SPDX-License-Identifier: Apache-2.0
// What hints cost and save in the link model.

#include "speculate.hpp"

using namespace trace_test;

namespace {

using plain = bundles::of<score::lru>;
using with_hints = hinted<plain>;

/// What the replay tool computes without a virtual clock: link time of all misses.
u64 plain_stall_ns(trace::recording const& r, setting const& s) {
  cache<plain, move::immediate> c{r.geometry(), budget::of_slots(s.slots)};
  trace::replay_report const report = trace::replay(r, s.which, c);
  u64 sum = 0;
  for (std::size_t row = 0; row < report.by_layer.size(); ++row) {
    layer_geometry const& layer = r.geometry().layers()[row];
    for (auto const& counts : report.by_layer[row]) {
      total_counters const& n = counts.counted;
      u64 const misses = n[access_kind::load].value + n[access_kind::declined].value +
                         n[access_kind::overflow_miss].value;
      sum += misses * trace::link_time(s.link, layer.expert_bytes(),
                                       static_cast<u32>(layer.bank_bytes.size()));
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("without hints the virtual clock stalls for the link time of all misses") {
  REQUIRE_BUNDLED(r);
  setting s;
  s.which = decoded(0, 4);
  s.which.prefill = true;
  for (u32 slots : {4u, 8u, 20u}) {
    s.slots = slots;
    for (u64 compute : {0u, 300'000u}) {
      s.link.compute_ns = compute;
      played const p = speculate<plain, predict::none>(*r, s);
      INFO("slots " << slots << ", compute " << compute);
      CHECK(p.report.total_stall_ns() == plain_stall_ns(*r, s));
      CHECK(p.report.total_stall_ns() > 0);
      CHECK(p.sum.issued[1].value == 0);
      CHECK(p.report.traffic[1].transfers == 0);
    }
  }
}

TEST_CASE("a prompt that overflows streams through waves at the same price") {
  REQUIRE_BUNDLED(r);
  trace::recording const wide = trace::rebatch(*r, phase::prefill, 16);
  setting s;
  s.which = decoded(0, 2);
  s.which.prefill = true;
  played const p = speculate<plain, predict::none>(wide, s);
  CHECK(p.sum.overflow_steps.value > 10);
  CHECK(p.report.total_stall_ns() == plain_stall_ns(wide, s));
}

TEST_CASE("an oracle with slack for all of it leaves little to wait for") {
  REQUIRE_BUNDLED(r);
  setting s;
  s.which = decoded(0, 3);
  s.link.compute_ns = 10'000'000;
  s.how.width = 4;
  s.how.governed = false;
  played const without = speculate<plain, predict::none>(*r, s);
  played const with = speculate<with_hints, predict::oracle<>>(*r, s);
  CHECK(with.report.total_stall_ns() * 5 < without.report.total_stall_ns());
  CHECK(trace::precision_of(with.sum) > .95);
  CHECK(trace::coverage_of(with.sum) > .8);
  CHECK(with.report.judged.used > 20 * with.report.judged.wasted);
}

TEST_CASE("hints that come too late are joined, and save what is left of their transfer") {
  REQUIRE_BUNDLED(r);
  setting s;
  s.which = decoded(0, 3);
  s.link.compute_ns = 200'000;  // a quarter of a transfer
  s.how.width = 1;
  s.how.governed = false;
  played const without = speculate<plain, predict::none>(*r, s);
  played const with = speculate<with_hints, predict::oracle<>>(*r, s);
  CHECK(with.sum.late_of_hint.value > 1000);
  CHECK(with.sum.late_of_hint.value * 10 > with.sum.used().value * 9);
  CHECK(with.report.total_stall_ns() < without.report.total_stall_ns());
}

TEST_CASE("what hints cost without a governor") {
  REQUIRE_BUNDLED(r);
  setting s;
  s.which = decoded(0, 3);
  s.link.compute_ns = 0;
  s.how.width = 4;
  s.how.governed = false;
  double const without =
      static_cast<double>(speculate<plain, predict::none>(*r, s).report.total_stall_ns());
  played const wild = speculate<with_hints, predict::random<>>(*r, s);
  s.how.governed = true;
  played const governed = speculate<with_hints, predict::random<>>(*r, s);
  CHECK(static_cast<double>(wild.report.total_stall_ns()) > 1.3 * without);  // the test can fail
  CHECK(static_cast<double>(governed.report.total_stall_ns()) <=
        allowed_ns(speculate<plain, predict::none>(*r, s).report, s, r->geometry().layers()[0]));
  CHECK(governed.report.governor.is_stopped());
  CHECK(governed.report.predicted * 10 < wild.report.predicted);  // the producer stops spending
}

TEST_CASE("a byte budget bounds what a step may start") {
  REQUIRE_BUNDLED(r);
  setting s;
  s.which = decoded(0, 2);
  s.link.compute_ns = 10'000'000;
  s.how.width = 8;
  s.how.governed = false;
  double before = 0;
  for (u64 experts : {0u, 1u, 2u, 4u}) {
    s.how.bytes_per_step = experts * gpt_oss_bytes;
    played const p = speculate<with_hints, predict::transition<1>>(*r, s);
    CHECK(p.sum.issued[1].value <= experts * p.report.asked);
    CHECK((experts == 0) == (p.sum.issued[1].value == 0));
    double const coverage = trace::coverage_of(p.sum);
    CHECK((experts == 0 || coverage > before));
    before = coverage;
  }
}

TEST_CASE("prefill speculates only where it is asked to") {
  REQUIRE_BUNDLED(r);
  setting s;
  s.which.prefill = true;
  s.which.decode = false;
  s.which.sequences = trace::selection::rule::range;
  s.which.last = 4;
  for (bool governed : {false, true}) {
    s.how.governed = governed;
    s.how.numbers.in_prefill = false;
    played const off = speculate<with_hints, predict::transition<1>>(*r, s);
    CHECK(off.sum.hints_offered.value == 0);
    CHECK(off.report.predicted == 0);
    s.how.numbers.in_prefill = true;
    played const on = speculate<with_hints, predict::transition<1>>(*r, s);
    CHECK(on.sum.issued[1].value > 100);
  }
}
