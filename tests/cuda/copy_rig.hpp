// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <warmset/cuda/copy_engine.hpp>

#include "cuda/fake_runtime.hpp"

/// A copy engine over devices of ordinary memory, with the experts that it copies.
namespace copies {

using namespace warmset;
using warmset_test::fake_runtime;
using warmset_test::fake_world;

using engine = cuda::basic_copy_engine<fake_runtime>;

enum class way { batch, loop, staged };  // of copying
inline constexpr char const* name_of_way[] = {"batch", "loop", "staged"};

/// A world, the experts of a model in it, and engines over both.
struct rig {
  explicit rig(geometry m, way w = way::batch, u32 n_devices = 1, move::memory_kind kind = move::memory_kind::pinned)
      : model(std::move(m)), world(n_devices) {
    options.batches = w != way::loop;
    world.batches = w != way::loop;
    if (w == way::staged) {
      kind = move::memory_kind::pageable;
      world.can_register = false;
      options.staging_bytes = 100;
    }
    for (layer_geometry const& layer : model.layers()) {
      for (u32 bank = 0; bank < layer.bank_bytes.size(); ++bank) {
        u64 const bytes = layer.n_experts * layer.bank_bytes[bank];
        unsigned char* const data = world.host(bytes, kind);
        for (u32 e = 0; e < layer.n_experts; ++e) {
          pattern.read({layer.layer, {e}}, bank, 0,
                       {reinterpret_cast<std::byte*>(data) + e * layer.bank_bytes[bank], layer.bank_bytes[bank]});
        }
        source.add(layer.layer, bank, {reinterpret_cast<std::byte const*>(data), bytes});
        tensors.push_back(data);
      }
    }
  }
  rig(rig const&) = delete;
  rig& operator=(rig const&) = delete;
  ~rig() {
    for (unsigned char* data : tensors) {
      world.free_host(data);
    }
  }

  engine make() { return engine{options, source, fake_runtime{world}}; }

  bool holds(engine const& e, u32 pool, slot_id slot, expert_key key) const {
    layer_geometry const& layer = *model.find(key.layer);
    for (u32 bank = 0; bank < layer.bank_bytes.size(); ++bank) {
      if (!pattern.equals(key, bank, 0,
                          {reinterpret_cast<std::byte const*>(e.slot(pool, slot, bank)), layer.bank_bytes[bank]})) {
        return false;
      }
    }
    return true;
  }

  geometry model;
  fake_world world;
  cuda::copy_options options;
  move::patterned_source pattern;
  move::span_source source;
  std::vector<unsigned char*> tensors;
};

inline geometry one_layer(std::vector<u64> banks, u32 n_experts = 42) {
  return geometry{{{layer_id{1}, n_experts, 4, std::move(banks)}}};
}

}  // namespace copies
