// SPDX-License-Identifier: Apache-2.0
// Waves through scratch over real bytes: failures, retries, and what the link brought.

#include "over_host.hpp"

namespace warmset {
namespace {

using namespace over_host;

constexpr u32 d = static_cast<u32>(intent::demand);

/// Two layers that share scratch of k slots.
geometry model(u32 experts, u32 k) {
  return geometry{{{layer_id{3}, experts, k, {24, 13, 7}}, {layer_id{4}, experts, k, {24, 13, 7}}}};
}
constexpr u64 expert_bytes = 24 + 13 + 7;

/// Fails the copies whose number lies in [first, first + n).
struct doomed_copies {
  u64 first = u64_max;
  u64 n = 0;
  static bool strikes(void* context, move::copy_attempt const& a) {
    auto const& self = *static_cast<doomed_copies const*>(context);
    return a.n >= self.first && a.n - self.first < self.n;
  }
};

/// An overflow step of `wide` experts in a pool of `slots`, wave after wave; the copy number `fail_at` counted from
/// the first wave fails, once or with its retry. Returns how many copies the waves took.
u64 play_waves(u32 slots, u32 k, u32 wide, u64 fail_at, u64 n_fail, u64& failures) {
  subject s(model(wide + 4, k), budget::of_slots(slots));
  doomed_copies doomed;
  s.device().fail_when(&doomed_copies::strikes, &doomed);
  (void)s.step(3, range(2, std::min(slots, k)));
  s.land();
  u64 const copies_before = s.device().ledger().copies.issued;
  doomed = {copies_before + fail_at, n_fail};

  auto const before = s.blocks();
  step_view const v = s.step(3, range(0, wide));
  REQUIRE(v.kind == plan_kind::overflow);
  u64 arrived = 0;
  for (u32 wave = 0; wave < v.n_waves; ++wave) {
    CHECK(s.c.wave(wave).arrived + s.c.wave(wave).failed + s.c.wave(wave).in_flight == 0);
    (void)s.start_wave(wave);
    s.land();
    for (u64 tries = 0; !s.c.wave(wave).ready(); ++tries) {
      wave_report const r = s.c.wave(wave);
      REQUIRE(r.failed != 0);
      REQUIRE(r.in_flight == 0);
      REQUIRE(tries < n_fail);
      u32 const generation = s.c.scratch_generation();
      failures += r.failed;
      (void)s.start_wave(wave);
      CHECK(s.c.scratch_generation() == generation);  // what had arrived is still what it was
      s.land();
    }
    s.require_readable(3, v, wave);
    arrived += s.c.wave(wave).arrived;
  }
  CHECK((s.blocks() == before));
  total_counters const c = s.c.observer().total();
  CHECK(arrived == c[access_kind::overflow_miss].value);
  CHECK(c.scratch_arrived.value == arrived);  // what a retry brings again is what had failed
  CHECK(c.scratch_bytes.value == arrived * expert_bytes);
  CHECK(c.scratch_slabs.value == arrived * 3);
  CHECK(c.scratch_issued.value == arrived + c.scratch_failed.value);
  s.device().fail_when(nullptr);
  return s.device().ledger().copies.issued - copies_before;
}

}  // namespace

TEST_CASE("waves: one copy after another fails, and the wave is brought again",
          "[cache][scratch]") {
  u64 faults = 0;
  u64 failures = 0;
  for (u32 const slots : {1u, 2u, 3u, 8u, 42u}) {
    for (u32 const k : {1u, 2u, 4u}) {
      u32 const wide = slots + 1 + k;
      INFO(slots << " slots, k = " << k);
      u64 none = 0;
      u64 const copies = play_waves(slots, k, wide, u64_max / 2, 1, none);
      REQUIRE(none == 0);
      for (u64 at = 0; at < copies; at += slots == 42 ? 7 : 1) {
        play_waves(slots, k, wide, at, 1, failures);
        ++faults;
      }
      play_waves(slots, k, wide, 0, 3, failures);  // and the retries of the first wave
    }
  }
  CHECK(failures >= faults);
  CHECK(faults > 100);
}

TEST_CASE("waves: scratch that is being filled is not filled for another", "[cache][scratch]") {
  subject s(model(16, 2), budget::of_slots(2), by_hand);
  CHECK(s.start_wave(0).why == reason::out_of_range);  // nothing is planned
  step_view const v = s.step(3, range(0, 6));
  REQUIRE(v.n_waves == 3);
  CHECK(s.start_wave(3).why == reason::out_of_range);
  wave_report r = s.start_wave(0);
  CHECK(r.why == reason::none);
  CHECK(r.in_flight == 2);
  CHECK(!r.ready());
  u64 const issued = s.device().ledger().transfers.issued;
  u32 const generation = s.c.scratch_generation();
  CHECK(s.start_wave(1).why == reason::in_flight);
  CHECK(s.c.scratch_generation() != generation);  // what arrives is not taken for it
  CHECK(s.c.wave(0).in_flight == 2);
  CHECK(s.start_wave(0).in_flight == 2);  // the same again brings nothing again
  CHECK(s.c.slot_counts().scratch_in_flight == 2);
  // the other layer of the group has the same scratch, and its words know nothing of it
  step_view const other = s.step(4, range(0, 6));
  CHECK(other.kind == plan_kind::overflow);
  CHECK(s.start_wave(0).why == reason::in_flight);
  CHECK(s.device().ledger().transfers.issued == issued);
  s.land();
  CHECK(s.c.slot_counts().scratch_in_flight == 0);
  CHECK(s.c.wave(0).arrived == 0);  // of this step nothing has been started
  r = s.start_wave(0);
  CHECK(r.in_flight == 2);
  s.land();
  CHECK(s.c.wave(0).ready());
  s.require_readable(4, other, 0);
  CHECK(s.c.observer().total().scratch_issued.value == 4);
  CHECK(s.c.observer().total(0, phase::decode).scratch_arrived.value == 2);
  CHECK(s.c.observer().total(1, phase::decode).scratch_arrived.value == 2);
}

TEST_CASE("waves: a busy step has none", "[cache][scratch]") {
  subject s(model(16, 2), budget::of_slots(2));
  id_list const wide = range(0, 6);
  auto const lease = s.c.demand(layer_id{3}, std::span<routed_id const>(wide));
  REQUIRE(lease);
  REQUIRE(s.step(4, wide).kind == plan_kind::busy);
  CHECK(s.start_wave(0).why == reason::out_of_range);
  CHECK(s.c.observer().total().scratch_issued.value == 0);
}

TEST_CASE("serve_failed: loads fail, their wave through scratch fails, the step is served",
          "[cache][scratch]") {
  for (u32 const k : {1u, 2u, 4u, 8u}) {
    INFO("k = " << k);
    subject s(model(64, k), budget::of_slots(8));
    doomed_copies doomed;
    s.device().fail_when(&doomed_copies::strikes, &doomed);
    doomed = {0, u64_max};
    step_view const v = s.step(3, range(10, 8));
    REQUIRE(v.loads.size() == 8);
    s.land();
    CHECK(s.c.pools()[0].view().header().free() == 8);
    auto const before = s.blocks();
    u32 served = 0;
    u32 next_wave = v.n_waves;
    for (u32 calls = 0; served < 8; ++calls) {
      REQUIRE(calls < 8);
      u32 const n = s.c.serve_failed();
      s.require_sound();
      REQUIRE(n == std::min(k, 8 - served));
      s.land();
      wave_report r = s.c.wave(next_wave);
      CHECK(r.failed == n);  // everything fails still
      doomed = {};
      (void)s.start_wave(next_wave);
      s.land();
      CHECK(s.c.wave(next_wave).ready());
      s.require_readable(3, v, next_wave++);
      doomed = {s.device().ledger().copies.issued, u64_max};
      served += n;
    }
    CHECK(s.c.serve_failed() == 0);
    CHECK((s.blocks() == before));
    total_counters const c = s.c.observer().total();
    CHECK(c.failed[d].value == 8);
    CHECK(c.scratch_failed.value == 8);
    CHECK(c.scratch_arrived.value == 8);
    CHECK(c.bytes[d].value == 0);
    CHECK(c.link_bytes().value == 8 * expert_bytes);
    s.device().fail_when(nullptr);
  }
}

TEST_CASE("serve_failed: declined experts of the same step keep their waves", "[cache][scratch]") {
  subject s(model(16, 2), budget::of_slots(2));
  doomed_copies doomed;
  s.device().fail_when(&doomed_copies::strikes, &doomed);
  id_list const first{0, 1};
  auto lease = s.c.demand(layer_id{3}, std::span<routed_id const>(first));
  s.land();
  step_view const all_declined = s.step(3, {4, 5});  // both slots have readers
  REQUIRE(all_declined.n_waves == 1);
  (void)s.start_wave(0);
  s.land();
  s.require_readable(3, all_declined, 0);
  CHECK(s.c.serve_failed() == 0);  // none of them had a load
  lease.release();

  doomed = {s.device().ledger().copies.issued, u64_max};
  step_view const v = s.step(3, {6, 7});
  REQUIRE(v.loads.size() == 2);
  s.land();
  doomed = {};
  CHECK(s.c.serve_failed() == 2);
  s.land();
  CHECK(v.waves[0] == v.n_waves);
  s.require_readable(3, v, v.n_waves);
  s.device().fail_when(nullptr);
}

TEST_CASE("what the link brings is counted once, by phase", "[cache][scratch]") {
  subject s(model(40, 4), budget::of_slots(8));
  u64 state = 11;
  auto const below = [&](u32 n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<u32>((state >> 33) % n);
  };
  for (u32 i = 0; i < 400; ++i) {
    bool const prompt = below(4) == 0;
    id_list ids;
    for (u32 n = prompt ? 1 + below(30) : 1 + below(4); n != 0; --n) {
      ids.push_back(static_cast<routed_id>(below(40)));
    }
    step_view const v = s.step(3 + below(2), ids, prompt ? phase::prefill : phase::decode);
    for (u32 wave = 0; wave < v.n_waves; ++wave) {
      (void)s.start_wave(wave);
      s.land();
    }
  }
  s.land();
  total_counters const all = s.c.observer().total();
  CHECK(all.scratch_bytes.value != 0);
  CHECK(all.bytes[d].value != 0);
  CHECK(all.link_bytes().value == s.device().ledger().bytes.completed);
  CHECK(all.scratch_arrived.value ==
        all[access_kind::declined].value + all[access_kind::overflow_miss].value);
  // no step of decode overflows
  total_counters const prefill = s.c.observer().total(phase::prefill);
  CHECK(prefill.scratch_arrived.value == prefill[access_kind::overflow_miss].value);
  CHECK(s.c.observer().total(phase::decode).scratch_issued.value == 0);
}

}  // namespace warmset
