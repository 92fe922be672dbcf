// SPDX-License-Identifier: Apache-2.0
#include <warmset/move/host_staging.hpp>
#include <warmset/move/link.hpp>

#include <catch2/catch_test_macros.hpp>

#include <vector>

using namespace warmset;
using namespace warmset::move;

namespace {

/// Nanoseconds of a PCIe 5.0 x16 link at 55.4 GB/s. Latency and the entries' share are fitted to
/// the measurements below.
constexpr link_model measured{.bytes = 554, .ticks = 10, .latency = 3900, .per_copy = 480};

constexpr u64 KiB = 1024;

static_assert(link_model{}.copy_ticks(u64{1} << 40) == 0, "the default link takes no time");
static_assert(link_model{.bytes = 10, .latency = 5}.copy_ticks(41) == 5 + 5, "rounded up");
static_assert(link_model{.bytes = 0}.byte_ticks(7) == 7, "a rate of 0 counts as 1");
static_assert(measured.class_of(256 * KiB) == size_class::large_copy);
static_assert(measured.class_of(256 * KiB - 1) == size_class::small_copy);

bool is_near(u64 ns, u64 wanted, u64 percent) {
  u64 const difference = ns < wanted ? wanted - ns : ns - wanted;
  return difference * 100 <= wanted * percent;
}

}  // namespace

TEST_CASE("a link of latency and rate predicts measured copies within 8 %", "[move]") {
  // medians of one H200 over PCIe 5.0 x16, CUDA 13.0, pinned host memory
  struct {
    u64 bytes, ns;
  } const copies[] = {{64 * KiB, 5200},     {256 * KiB, 8900},       {1024 * KiB, 23'000},
                      {4096 * KiB, 80'000}, {16'384 * KiB, 306'000}, {262'144 * KiB, 4'844'000}};
  for (auto const& c : copies) {
    CAPTURE(c.bytes);
    CHECK(is_near(measured.copy_ticks(c.bytes), c.ns, 8));
  }
  // one batch of 32 · 256 KiB at 49.2 GB/s, of 32 · 768 KiB at 53.3 GB/s
  CHECK(is_near(measured.batch_ticks(std::vector<u64>(32, 256 * KiB)), 170'500, 8));
  CHECK(is_near(measured.batch_ticks(std::vector<u64>(32, 768 * KiB)), 472'000, 8));
}

TEST_CASE("a batch pays the latency once, and its smallest entry decides the class", "[move]") {
  constexpr link_model m{
      .bytes = 1, .latency = 100, .per_copy = 3, .per_small_copy = 50, .large_from = 10};
  std::vector<u64> const large = {10, 20, 30};
  std::vector<u64> const small = {4, 5};
  std::vector<u64> const mixed = {10, 20, 30, 4, 5};
  CHECK(m.batch_ticks(std::vector<u64>{}) == 0);
  CHECK(m.batch_ticks(large) == 100 + 3 * 3 + 60);
  CHECK(m.batch_ticks(small) == 100 + 2 * 50 + 9);
  CHECK(m.batch_ticks(mixed) == 100 + 5 * 50 + 69);
  CHECK(m.batch_ticks(large) + m.batch_ticks(small) < m.batch_ticks(mixed) + 100);
  for (u64 n : mixed) {
    CHECK(m.batch_ticks(std::vector<u64>{n}) == m.copy_ticks(n));
  }
}

TEST_CASE("byte ticks do not overflow where their product would", "[move]") {
  constexpr link_model m{.bytes = 1u << 20, .ticks = 1u << 20};
  CHECK(m.byte_ticks(u64{1} << 50) == u64{1} << 50);
  for (u64 n : {u64{1}, u64{999}, (u64{1} << 44) + 1}) {
    CHECK(link_model{.bytes = 7, .ticks = 3}.byte_ticks(n) == (n * 3 + 6) / 7);
  }
}

TEST_CASE("a serial link carries one copy at a time", "[move]") {
  serial_link link{};
  CHECK(link.occupy(10, 5) == 15);
  CHECK(link.occupy(11, 5) == 20);
  CHECK(link.occupy(30, 1) == 31);
  CHECK(link.busy == 11);
  u64 const end = link.occupy(40, 100);
  link.give_back(end, 60);
  CHECK(link.free_at == 60);
  CHECK(link.busy == 31);
}

namespace {

/// Ticks in which n pieces go through a ring of `slots`, each 10 ticks to stage and 10 to copy.
u64 staged_ticks(u32 slots, u32 n) {
  virtual_streams s;
  staging_ring ring;
  ring.stream = s.add_stream();
  u32 const copies = s.add_stream();
  ring.staged = s.add_event();
  ring.copied = s.add_event();
  ring.slots = slots;
  for (u32 i = 0; i < n; ++i) {
    stream_op stage;
    stream_op copy;
    stage.ticks = copy.ticks = 10;
    CHECK(ring.next(stage, copy) == i % slots);
    s.enqueue(ring.stream, stage);
    s.enqueue(copies, copy);
  }
  u64 const ticks = s.advance_to_idle();
  CHECK(s.idle());
  return ticks;
}

}  // namespace

TEST_CASE("staging overlaps from two slots on", "[move]") {
  CHECK(staged_ticks(1, 8) == 8 * 20);
  CHECK(staged_ticks(2, 8) == 9 * 10);
  CHECK(staged_ticks(5, 8) == 9 * 10);
}
