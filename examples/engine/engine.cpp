// SPDX-License-Identifier: Apache-2.0
//
// What an engine that copies its own weights puts in place of its expert cache. Five minutes to read: build the
// cache for its MoE layers, ask for a step, copy the loads, report them, read the slots.

#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

#include <warmset/cache.hpp>

namespace {

// 1. The policy: kinds are types, numbers are data. Everything has a default.
struct my_policy : warmset::default_policy {
  using score = warmset::score::decayed_count;
  static constexpr warmset::tuning numbers{.half_life = 16};
};

// A stand-in for an engine: 4 layers of 16 experts, 2 used per token, one bank of 64 bytes per expert.
constexpr warmset::u32 n_layers = 4, n_experts = 16, k = 2, expert_bytes = 64, slots_per_layer = 6;

struct toy_engine {
  std::vector<unsigned char> host = std::vector<unsigned char>(n_layers * n_experts * expert_bytes);
  std::vector<unsigned char> device;  // one bank: the slots of all layers, then scratch

  unsigned char const* weights(warmset::u32 layer, warmset::u32 expert) const {
    return host.data() + (layer * n_experts + expert) * expert_bytes;
  }
};

}  // namespace

int main() {
  toy_engine engine;
  for (std::size_t i = 0; i < engine.host.size(); ++i) {
    engine.host[i] = static_cast<unsigned char>(i / expert_bytes);  // every expert has bytes of its own
  }

  // 2. Construction allocates everything and throws where something cannot work; nothing after it does either.
  warmset::cache<my_policy, warmset::move::external> cache{
      warmset::geometry::uniform(n_layers, n_experts, k, expert_bytes),
      warmset::budget::of_slots(slots_per_layer)};
  engine.device.resize(cache.effective_budget().effective_bytes);

  // Where a pool's slot lies in the engine's bank.
  auto const slot_memory = [&](warmset::u32 pool, warmset::u32 slot) {
    return engine.device.data() + cache.sites()[pool].bank_index({slot}) * expert_bytes;
  };
  auto const copy = [&](warmset::u32 pool, warmset::u32 layer, warmset::u32 expert, warmset::u32 slot) {
    std::memcpy(slot_memory(pool, slot), engine.weights(layer, expert), expert_bytes);
  };

  warmset::u32 wrong = 0;
  warmset::u32 random = 1;
  for (int token = 0; token < 1000; ++token) {
    for (warmset::u32 layer = 0; layer < n_layers; ++layer) {
      // The router's choice for this token: some experts are more popular than others.
      warmset::routed_id ids[k];
      for (warmset::routed_id& id : ids) {
        random = random * 1664525 + 1013904223;
        id = static_cast<warmset::routed_id>((random >> 24) % ((random >> 20) % 4 == 0 ? n_experts : 5));
      }

      // 3. Decide. Nothing has changed yet; dropping the plan here would leave no trace.
      warmset::step_view const step =
          cache.plan(warmset::layer_id{layer}, std::span<warmset::routed_id const>(ids));
      warmset::u32 pool = 0, row = 0;
      cache.find(warmset::layer_id{layer}, pool, row);

      // 4. Carry it out: the table knows, the engine copies and reports each expert when all its banks are there.
      if (step.kind == warmset::plan_kind::step && !cache.commit()) {
        return 1;  // only if somebody changed the table since plan
      }
      for (warmset::planned_load const& load : step.loads) {
        copy(pool, layer, load.expert, load.slot);
        cache.backend().arrived(pool, {load.slot});
      }

      // 5. Read. What found no slot (declined, or a step wider than the pool) goes through scratch in waves.
      for (warmset::u32 wave = 0; wave < warmset::max_of(step.n_waves, 1u); ++wave) {
        for (std::size_t i = 0; i < step.experts.size(); ++i) {
          bool const scratch = step.slots[i] >= cache.sites()[pool].n_slots;
          if (scratch ? step.waves[i] != wave : wave != 0) {
            continue;
          }
          if (scratch) {
            copy(pool, layer, step.experts[i], step.slots[i]);
          }
          wrong += std::memcmp(slot_memory(pool, step.slots[i]), engine.weights(layer, step.experts[i]),
                               expert_bytes) == 0
                       ? 0
                       : 1;  // an engine would multiply here
        }
      }
    }
  }

  // 6. Counters have units, phases and intents; a demand hit rate is made of demand alone.
  warmset::total_counters const total = cache.observer().total();
  std::printf("%llu of %llu demanded experts were resident (%.1f %%), %llu were loaded, %u had wrong bytes\n",
              static_cast<unsigned long long>(total.hits().value),
              static_cast<unsigned long long>(total.demanded.value), 100 * total.hit_rate(),
              static_cast<unsigned long long>(total[warmset::access_kind::load].value), wrong);
  return wrong == 0 && cache.audit() ? 0 : 1;
}
