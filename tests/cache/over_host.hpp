// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/cache.hpp>
#include <warmset/move/host.hpp>
#include <warmset/observe/laws.hpp>
#include <warmset/table/bundles.hpp>

/// A cache over real bytes, and what must hold of it after every operation.
namespace warmset::over_host {

using id_list = std::vector<routed_id>;

inline id_list range(u32 first, u32 n) {
  id_list ids;
  for (u32 i = 0; i < n; ++i) {
    ids.push_back(static_cast<routed_id>(first + i));
  }
  return ids;
}

/// Copies that run when the test says so.
inline constexpr move::host_options by_hand{.bytes_per_tick = 1, .ticks_per_poll = 0};

template <class Policy = default_policy>
class subject {
 public:
  using cache_type = cache<Policy, move::host>;

  subject(geometry model, budget size, move::host_options options = {},
          tuning numbers = Policy::numbers)
      : c(std::move(model), size, numbers, move::host{options}) {
    require_sound();
  }

  move::host& device() { return c.backend(); }

  step_view step(u32 layer, id_list const& ids, phase p = phase::decode) {
    step_view const v = c.step(layer_id{layer}, std::span<routed_id const>(ids), p);
    require_sound();
    return v;
  }
  wave_report start_wave(u32 wave) {
    wave_report const r = c.start_wave(wave);
    require_sound();
    return r;
  }
  /// Runs all copies to their end.
  void land() {
    device().advance_to_idle();
    c.settle();
    require_sound();
  }

  /// The experts of one wave of the last step hold their own bytes, in every bank.
  void require_readable(u32 layer, step_view const& v, u32 wave) {
    u32 pool = 0, row = 0;
    REQUIRE(c.find(layer_id{layer}, pool, row));
    pool_site const& site = c.sites()[pool];
    u32 n = 0;
    for (std::size_t i = 0; i < v.experts.size(); ++i) {
      if (v.slots[i] >= site.n_slots && v.waves[i] == wave) {
        require_read(pool, v.slots[i], {layer_id{layer}, expert_id{v.experts[i]}},
                     c.scratch_generation());
        ++n;
      }
    }
    REQUIRE(n != 0);
  }

  /// The invariants, the laws, the bytes of every resident and zeroes behind every bank.
  void require_sound() {
    if (audit_result const a = c.audit(); !a) {
      FAIL(name_of(a.broken) << " at " << a.where);
    }
    if (law_result const l = check_laws(c.observer().total(), c.slot_counts()); !l) {
      FAIL(name_of(l.broken) << ": " << l.left << " against " << l.right);
    }
    REQUIRE(device().ledger().balances());
    REQUIRE(device().ledger().refused == 0);
    for (u32 pool = 0; pool < c.pools().size(); ++pool) {
      auto const& t = c.pools()[pool].view();
      pool_site const& site = c.sites()[pool];
      for (u32 s = 0; s < site.n_slots; ++s) {
        if (slot_word::state(t.word(s)) == slot_state::resident) {
          u32 const owner = t.owner(s);
          require_read(pool, s, {site.layers[t.row_of(owner)], expert_id{t.expert_of(owner)}},
                       t.generation(s));
        }
      }
    }
    for (u32 g = 0; g < device().n_groups(); ++g) {
      group_layout const& layout = device().layout(g);
      for (u32 bank = 0; bank < layout.n_banks(); ++bank) {
        // as a reader sees it that reads on behind the last slot
        u64 const last = layout.offset(bank, layout.n_slots() + layout.n_scratch() - 1);
        auto const behind =
            device().memory(g).subspan(last + layout.stride(bank), device().tail_bytes());
        REQUIRE(std::all_of(behind.begin(), behind.end(),
                            [](std::byte b) { return b == std::byte{0}; }));
      }
    }
  }

  std::vector<unsigned char> blocks() const {
    std::vector<unsigned char> all;
    for (auto const& pool : c.pools()) {
      auto const* const from = static_cast<unsigned char const*>(pool.block());
      all.insert(all.end(), from, from + pool.block_bytes());
    }
    return all;
  }

  cache_type c;

 private:
  void require_read(u32 pool, u32 slot, expert_key key, u32 generation) {
    for (u32 bank = 0; bank < device().layout(c.sites()[pool].group).n_banks(); ++bank) {
      auto const read = device().read(pool, slot_id{slot}, key, generation, bank);
      if (!read) {
        FAIL("layer " << key.layer.value << ", expert " << key.expert.value << " in slot " << slot
                      << ", bank " << bank << ": " << name_of(read.fault));
      }
    }
  }
};

}  // namespace warmset::over_host
