// SPDX-License-Identifier: Apache-2.0
//
// Compiled as C++17, with the package's headers and the adapter's alone.
#include "expert_cache_stand_in.hpp"

#include <warmset_adapter.h>

#include <cstring>
#include <stdexcept>

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <llama.h>

static_assert(__cplusplus < 202002L, "this source stands for an engine's, which is C++17");

namespace stand_in {

struct moe_cache {
  options o;
  std::unique_ptr<warmset_llama::adapter> lru;  // where upstream has a list of its own
  ggml_backend_ptr backend;
  ggml_context_ptr tensors;
  ggml_backend_buffer_ptr buffer;
  std::vector<ggml_tensor*> weights;    // by layer: [n_embd, n_ff, n_experts]
  std::vector<ggml_tensor*> slot_maps;  // by layer: [1, n_experts], I32
  ggml_tensor* bank = nullptr;          // [n_embd, n_ff, n_slots + 1]
};

std::shared_ptr<moe_cache> init(options const& o) {
  auto c = std::make_shared<moe_cache>();
  c->o = o;
  c->backend.reset(ggml_backend_cpu_init());
  ggml_backend_cpu_set_n_threads(c->backend.get(), 1);
  c->tensors.reset(ggml_init({ggml_tensor_overhead() * (2 * o.n_layers + 1), nullptr, true}));
  for (std::uint32_t i = 0; i < o.n_layers; ++i) {
    c->weights.push_back(ggml_new_tensor_3d(c->tensors.get(), GGML_TYPE_F32, o.n_embd, o.n_ff, o.n_experts));
    c->slot_maps.push_back(ggml_new_tensor_2d(c->tensors.get(), GGML_TYPE_I32, 1, o.n_experts));
  }
  c->bank = ggml_new_tensor_3d(c->tensors.get(), GGML_TYPE_F32, o.n_embd, o.n_ff, o.n_slots + 1);
  c->buffer.reset(ggml_backend_alloc_ctx_tensors(c->tensors.get(), c->backend.get()));

  warmset_llama::adapter_group group;
  group.n_layers = o.n_layers;
  group.n_experts = o.n_experts;
  group.n_used = o.n_used;
  group.n_slots = o.n_slots;
  group.expert_bytes = c->bank->nb[2];
  char why[256];
  c->lru = warmset_llama::adapter::make(group, why, sizeof why);
  if (!c->lru) {
    throw std::runtime_error(why);
  }
  std::uint32_t state = 7;
  for (ggml_tensor* w : c->weights) {
    float* const x = static_cast<float*>(w->data);
    for (std::int64_t i = 0; i < ggml_nelements(w); ++i) {
      state = state * 1664525u + 1013904223u;
      x[i] = static_cast<float>(state >> 8) / 16777216.0f - 0.5f;
    }
  }
  std::memset(c->bank->data, 0xFF, ggml_nbytes(c->bank));  // not numbers, wherever nothing was copied
  std::memset(static_cast<char*>(c->bank->data) + o.n_slots * c->bank->nb[2], 0, c->bank->nb[2]);
  return c;
}

step_result step(moe_cache& c, std::uint32_t layer, std::vector<std::int32_t> const& ids, std::uint32_t n_tokens) {
  step_result r;
  warmset_llama::adapter_plan const p = c.lru->plan(layer, ids.data(), ids.size());
  r.is_bypassed = p.status == warmset_llama::adapter_status::too_wide;
  if (p.status != warmset_llama::adapter_status::ok && !r.is_bypassed) {
    throw std::runtime_error("the adapter refused a step");
  }
  std::size_t const stride = c.bank->nb[2];
  for (std::size_t i = 0; i < p.n_runs; ++i) {
    warmset_llama::adapter_run const& run = p.runs[i];
    ggml_backend_tensor_set(c.bank, static_cast<char const*>(c.weights[layer]->data) + run.first_expert * stride,
                            run.first_slot * stride, run.n * stride);
    ++r.n_copies;
  }
  std::vector<std::int32_t> map(c.o.n_experts);
  c.lru->fill(layer, map.data());
  ggml_backend_tensor_set(c.slot_maps[layer], map.data(), 0, map.size() * sizeof map[0]);

  ggml_context_ptr graph_memory(
      ggml_init({ggml_tensor_overhead() * 32 + ggml_graph_overhead(), nullptr, true}));
  ggml_context* const g = graph_memory.get();
  std::int64_t const k = c.o.n_used;
  ggml_tensor* const selected = ggml_new_tensor_2d(g, GGML_TYPE_I32, k, n_tokens);
  ggml_tensor* const x = ggml_new_tensor_3d(g, GGML_TYPE_F32, c.o.n_embd, 1, n_tokens);
  ggml_set_input(selected);
  ggml_set_input(x);
  ggml_tensor* const flat = ggml_reshape_1d(g, selected, k * n_tokens);
  ggml_tensor* const slots = ggml_reshape_2d(g, ggml_get_rows(g, c.slot_maps[layer], flat), k, n_tokens);
  ggml_tensor* const from_slots = ggml_mul_mat_id(g, c.bank, x, slots);
  ggml_tensor* const from_weights = ggml_mul_mat_id(g, c.weights[layer], x, selected);
  for (ggml_tensor* t : {slots, from_slots, from_weights}) {
    ggml_set_output(t);
  }
  ggml_cgraph* const graph = ggml_new_graph(g);
  ggml_build_forward_expand(graph, from_slots);
  ggml_build_forward_expand(graph, from_weights);
  ggml_gallocr_ptr allocator(ggml_gallocr_new(ggml_backend_get_default_buffer_type(c.backend.get())));
  ggml_gallocr_alloc_graph(allocator.get(), graph);
  ggml_backend_tensor_set(selected, ids.data(), 0, ids.size() * sizeof ids[0]);
  std::vector<float> activations(static_cast<std::size_t>(ggml_nelements(x)));
  for (std::size_t i = 0; i < activations.size(); ++i) {
    activations[i] = static_cast<float>((i * 37 + layer) % 19) / 9.0f - 1.0f;
  }
  ggml_backend_tensor_set(x, activations.data(), 0, ggml_nbytes(x));
  ggml_backend_graph_compute(c.backend.get(), graph);
  r.slots.resize(ids.size());
  r.from_slots.resize(static_cast<std::size_t>(ggml_nelements(from_slots)));
  r.from_weights.resize(r.from_slots.size());
  ggml_backend_tensor_get(slots, r.slots.data(), 0, ggml_nbytes(slots));
  ggml_backend_tensor_get(from_slots, r.from_slots.data(), 0, ggml_nbytes(from_slots));
  ggml_backend_tensor_get(from_weights, r.from_weights.data(), 0, ggml_nbytes(from_weights));
  return r;
}

std::uint64_t hits(moe_cache const& c) { return c.lru->counters().hits; }
std::uint64_t misses(moe_cache const& c) { return c.lru->counters().misses; }

}  // namespace stand_in
