// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <type_traits>

#include "../core/arrival.hpp"
#include "../core/config.hpp"
#include "../core/integers.hpp"

namespace warmset::inline v0::cuda {

/// One expert to fetch: from where in its layer, to which slot of the bank, and which arrival word says that it is there.
struct fetch_order {
  u32 row;
  u32 expert;
  u32 slot;        ///< of the pool; scratch from the pool's reserved slots on
  u32 generation;  ///< of a pool slot's reservation; 0 for scratch
};

/// What stands between a gather and the bytes, for tests and measurements. Plain data, which kernels take by value.
///
/// | member | meaning |
/// |---|---|
/// | `end_of(place, order)` | `arrived`, or `failed`: then no byte of the expert is copied, and its word says so. A pure function, asked for every piece; `place` is the slot's index in the bank. What goes into scratch is not asked for |
/// | `begin()` | called by one lane before each piece is copied; what it returns goes to `hold` |
/// | `hold(begin, bytes)` | called by the same lane behind the piece, before anybody may take it for complete |
template <class A>
concept gather_adaptor = std::is_trivially_copyable_v<A> && requires(A const& a, fetch_order const& order) {
  { a.end_of(u32{}, order) } -> std::same_as<transfer>;
  { a.begin() } -> std::same_as<u64>;
  a.hold(u64{}, u64{});
};

/// No adaptor: every expert arrives, as fast as it can.
struct plain_gather {
  WARMSET_HD constexpr transfer end_of(u32, fetch_order const&) const noexcept { return transfer::arrived; }
  WARMSET_HD constexpr u64 begin() const noexcept { return 0; }
  WARMSET_HD constexpr void hold(u64, u64) const noexcept {}
};

/// Makes some of the transfers into slots fail, the same ones for the same seed and decisions: whether one does is a
/// function of its place, expert and generation.
template <gather_adaptor Inner = plain_gather>
struct failing_gather {
  Inner inner{};
  u64 seed = 1;
  u32 share_q16 = 0;  ///< of the transfers, in 1/65536

  WARMSET_HD constexpr transfer end_of(u32 place, fetch_order const& order) const noexcept {
    u64 x = seed ^ (u64{place} << 32 | order.generation) * 0x9E37'79B9'7F4A'7C15ull ^ (u64{order.row} << 32 | order.expert);
    x = (x ^ x >> 30) * 0xBF58'476D'1CE4'E5B9ull;  // splitmix64
    x = (x ^ x >> 27) * 0x94D0'49BB'1331'11EBull;
    return (x >> 48) < share_q16 ? transfer::failed : inner.end_of(place, order);
  }
  WARMSET_HD constexpr u64 begin() const noexcept { return inner.begin(); }
  WARMSET_HD constexpr void hold(u64 begin, u64 bytes) const noexcept { inner.hold(begin, bytes); }
};

static_assert(gather_adaptor<plain_gather>, "cuda::plain_gather must satisfy gather_adaptor");
static_assert(gather_adaptor<failing_gather<>>, "cuda::failing_gather must satisfy gather_adaptor");

}  // namespace warmset::inline v0::cuda
