// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/cache.hpp>
#include <warmset/gate/certificate.hpp>
#include <warmset/gate/hand_over.hpp>
#include <warmset/gate/held_by.hpp>
#include <warmset/observe/laws.hpp>
#include <warmset/predict/supplied.hpp>
#include <warmset/table/copy_block.hpp>

#include "gate/virtual_clock.hpp"
#include "support/whole_cache.hpp"

/// A cache behind an authority, and the device's side of its pools.
namespace warmset::gate {

using id_list = std::vector<routed_id>;

struct hinted : default_policy {
  using predictor = predict::supplied;
  static constexpr u32 max_experts = 64;
};

using host_gate = held_by<holder::host>;
using gated_cache = cache<hinted, move::external, observe::counting, host_gate>;

inline gated_cache make_cache(geometry const& model, budget size, host_gate gate) {
  return gated_cache{model,          size, hinted::numbers, move::external{}, observe::counting{},
                     std::move(gate)};
}

using warmset_test::bytes_of;
using warmset_test::require_sound;

/// Every transfer that runs arrives; the cache takes it in where it may.
template <class Cache>
void land(Cache& c) {
  for (u32 pool = 0; pool < c.pools().size(); ++pool) {
    for (u32 slot = 0; slot < c.sites()[pool].n_words(); ++slot) {
      (void)c.backend().arrived(pool, slot_id{slot});
    }
  }
  c.settle();
}

/// The bytes with the epoch's word taken out.
inline std::vector<unsigned char> without_epoch(std::vector<unsigned char> bytes) {
  for (std::size_t i = 0; i < sizeof(u32); ++i) {
    bytes.at(offsetof(block_header, epoch) + i) = 0;
  }
  return bytes;
}

/// A step of one layer that is worth its ids.
template <class Cache>
void warm(Cache& c, u32 layer, id_list const& ids) {
  REQUIRE(c.step(layer_id{layer}, ids).kind == plan_kind::step);
  land(c);
}

/// Memory for the blocks of a cache's pools on another side, and the tables in it.
class other_side {
 public:
  template <class Cache>
  explicit other_side(Cache& c) {
    for (auto const& pool : c.pools()) {
      blocks_.emplace_back((pool.block_bytes() + 15) / 16);
    }
  }
  void* block(u32 pool) { return blocks_[pool].data(); }
  template <class Cache>
  std::vector<unsigned char> bytes(Cache& c, u32 pool) {
    auto const* const from = reinterpret_cast<unsigned char const*>(blocks_[pool].data());
    return {from, from + c.pools()[pool].block_bytes()};
  }
  template <class Cache>
  auto table(Cache& c, u32 pool) {
    auto& mine = c.pools()[pool];
    return table_writer<typename Cache::policy>{block(pool), mine.view().shape(), &mine.parts()};
  }

 private:
  struct alignas(16) line {
    unsigned char bytes[16];
  };
  std::vector<std::vector<line>> blocks_;
};

/// Pool p to the other side, or back, as an engine's control thread does it.
template <class Cache, class Copy = host_copy>
result give(Cache& c, other_side& there, u32 pool, virtual_clock& clock, Copy copy = {}) {
  auto const& mine = c.pools()[pool].view();
  return hand_over(
      c.gate().groups(), c.gate().group_of(pool), holder::device,
      [&](u32 epoch) {
        return copy_block<typename Cache::policy>(mine, there.block(pool), epoch, copy);
      },
      clock);
}
template <class Cache, class Copy = host_copy>
result take_back(Cache& c, other_side& there, u32 pool, virtual_clock& clock, Copy copy = {}) {
  auto const theirs = there.table(c, pool);
  return hand_over(
      c.gate().groups(), c.gate().group_of(pool), holder::host,
      [&](u32 epoch) {
        return copy_block<typename Cache::policy>(theirs, c.pools()[pool].view().block(), epoch,
                                                  copy);
      },
      clock);
}

}  // namespace warmset::gate
