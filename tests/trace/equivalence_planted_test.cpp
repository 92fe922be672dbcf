// SPDX-License-Identifier: Apache-2.0
// The equivalence harness can fail: planted violations are found, and comparisons that prove nothing are refused.

#include "equivalence.hpp"

using namespace trace_test;
using trace::equivalence_fault;

namespace {

/// A backend that brings another expert where a hint asked, and whose reads notice nothing.
template <bool ChecksReads>
class swapping : public move::host {
 public:
  bool hinted = false;

  void start(u32 pool, array_view<transfer_order const> orders) noexcept {
    if (!hinted) {
      return move::host::start(pool, orders);
    }
    for (transfer_order order : orders) {
      u32 const expert = order.expert.expert.value;
      order.expert.expert.value = expert == 0 ? 1 : expert - 1;
      move::host::start(pool, {&order, 1});
    }
  }
  move::read_result read(u32 pool, slot_id slot, expert_key key, u32 generation,
                         u32 bank) const noexcept {
    if constexpr (ChecksReads) {
      return move::host::read(pool, slot, key, generation, bank);
    } else {
      return {raw(pool, slot, bank), move::read_fault::none};
    }
  }

 private:
  std::span<std::byte const> raw(u32 pool, slot_id slot, u32 bank) const noexcept {
    return std::as_const(static_cast<move::host const&>(*this)).raw(pool, slot, bank);
  }
};

/// Says to its backend which transfers are of hints.
template <class Policy, class Backend>
struct telling : cache<Policy, Backend> {
  using base = cache<Policy, Backend>;
  using base::base;
  template <id_range Ids>
  u32 advise(layer_id layer, Ids const& experts) noexcept {
    this->backend().hinted = true;
    u32 const n = base::advise(layer, experts);
    this->backend().hinted = false;
    return n;
  }
};

/// Forgets to move: after a hint the experts of two resident slots are exchanged in the table, not in memory.
template <class Policy>
struct stale_slots : cache<Policy, move::host> {
  using base = cache<Policy, move::host>;
  using base::base;
  template <id_range Ids>
  u32 advise(layer_id layer, Ids const& experts) noexcept {
    u32 const n = base::advise(layer, experts);
    u32 pool = 0, row = 0;
    (void)this->find(layer, pool, row);
    auto const& view = this->pools()[pool].view();
    u32 found[2];
    u32 n_found = 0;
    for (u32 e = 0; e < 32 && n_found < 2; ++e) {
      if (this->is_resident({layer, {e}})) {
        found[n_found++] = view.index_of(row, e);
      }
    }
    if (n_found == 2) {
      std::swap(view.expert(found[0]).where, view.expert(found[1]).where);
    }
    return n;
  }
};

/// Drops every hint.
template <class Policy>
struct deaf : cache<Policy, move::host> {
  using cache<Policy, move::host>::cache;
  template <id_range Ids>
  u32 advise(layer_id, Ids const&) noexcept {
    return 0;
  }
};

/// Has nothing to say.
struct mute {
  static constexpr bool speculates = true;
  static constexpr char const* name = "mute";
  static constexpr u32 horizon = 1;
  void open(geometry const&) noexcept {}
  void learn(routing_snapshot const&) noexcept {}
  u32 predict(routing_snapshot const&, u32, array_view<hint>) const noexcept { return 0; }
};

template <class Cache>
auto planted(trace::recording const& r, u32 slots) {
  return [g = small_bytes(r), slots] {
    return Cache{g, budget::of_slots(slots), Cache::policy::numbers};
  };
}

}  // namespace

TEST_CASE("equivalence: a planted violation is found, and where") {
  trace::recording const r = round_trip();
  SECTION("other bytes where a hint asked, and reads that notice nothing") {
    trace::equivalence_report const report =
        trace::check_equivalence(r, {}, planted<telling<unguarded, swapping<false>>>(r, 6));
    INFO(trace::to_sentence(report));
    CHECK(report.fault == equivalence_fault::other_bytes);
    CHECK(report.run == 1);
    CHECK(report.step == 1);  // the first step that a hint was for
    CHECK(report.layer == layer_id{0});
    CHECK(report.expert.value == r.at(r.blocks()[0], 1, 0).ids[0]);
  }
  SECTION("the same, and the backend says so") {
    trace::equivalence_report const report =
        trace::check_equivalence(r, {}, planted<telling<unguarded, swapping<true>>>(r, 6));
    CHECK(report.fault == equivalence_fault::faulty_read);
    CHECK(report.run == 1);
  }
  SECTION("a table that names stale slots") {
    trace::equivalence_report const report =
        trace::check_equivalence(r, {}, planted<stale_slots<unguarded>>(r, 6));
    CHECK(report.fault == equivalence_fault::faulty_read);
    CHECK(report.run == 1);
  }
}

TEST_CASE("equivalence: what proves nothing fails") {
  trace::recording const r = round_trip();
  SECTION("no output") {
    trace::recording const empty = one_layer(32, 2, {{}, {}, {}});
    CHECK(trace::check_equivalence(empty, {}, caches<unguarded>(empty, 6)).fault ==
          equivalence_fault::empty_output);
  }
  SECTION("a width of 0: predictors have nothing to say") {
    CHECK(trace::check_equivalence(r, {}, caches<unguarded>(r, 6), {.width = 0}).fault ==
          equivalence_fault::never_ran);
  }
  SECTION("all experts fit: after the first round no hint is needed, and some were") {
    CHECK(trace::check_equivalence(r, {}, caches<unguarded>(r, 32)));
  }
  SECTION("a predictor of the user's that never speaks") {
    mute own;
    trace::equivalence_report const report =
        trace::check_equivalence(r, {}, caches<unguarded>(r, 6), {}, own);
    CHECK(report.fault == equivalence_fault::never_ran);
    CHECK(report.run == 4);
  }
  SECTION("hints that a cache drops all") {
    CHECK(trace::check_equivalence(r, {}, planted<deaf<unguarded>>(r, 6)).fault ==
          equivalence_fault::nothing_speculated);
  }
}
