// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include <warmset/move/backend.hpp>
#include <warmset/observe/phase_table.hpp>
#include <warmset/table/table.hpp>

#include "device.hpp"
#include "forward_math.hpp"
#include "model.hpp"

/// One step of the forward pass, for one token, as a graph of operations: what a device captures once and replays for every
/// token. Which memory it works in, which operations there are and in which order is said here; how they are launched
/// is a stage's affair.
namespace warmset_decode {

/// Hands out one block of memory from its beginning; without a block it counts how large it has to be.
class arena {
 public:
  explicit arena(void* base = nullptr) noexcept : base_(static_cast<unsigned char*>(base)) {}

  template <class T>
  T* take(u64 n) noexcept {
    constexpr u64 alignment = 256;
    size_ = warmset::ceil_div(size_, alignment) * alignment;
    T* const at = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + size_);
    size_ += n * sizeof(T);
    return at;
  }
  u64 size() const noexcept { return size_; }

 private:
  unsigned char* base_;
  u64 size_ = 0;
};

/// What the host and a step say to each other, in memory that both reach. One of them writes each part.
struct step_page {
  step_now* now;  ///< the host, before a step
  i32* hints;     ///< the same: hints that it makes itself, [layers][n_hints]
  ops::told_page told;
};
step_page lay_out_page(architecture const& a, u32 n_hints, arena& to);

/// Numbers of a step that its graphs are captured with.
struct step_shape {
  u32 n_hints = 0;            ///< that are made after a layer
  u32 width = 0;              ///< of those, how many are offered
  bool said_by_host = false;  ///< the hints are the host's; else the next layer's router makes them
};
step_shape shape_of(device_options const& options, u32 wanted_hints, architecture const& a);

/// The memory of a layer.
struct layer_memory {
  float const *attention_norm, *query, *key, *value, *query_norm, *key_norm, *output;
  float const *expert_norm, *router;
  float const *ahead_norm, *ahead_router;  ///< the same once more, for who looks ahead
  float *keys, *values;                    ///< [context][kv_heads][head_size]
  float* attended;  ///< state after attention: who looks ahead may still read it
  float *ahead_state, *ahead_logits;
  i32* ids;
  float* weights;
  i32* answers;
  i32* hints;
};

/// The memory of a step.
struct step_memory {
  float const *embedding, *output_norm, *output;
  float const *cosines, *sines;  ///< [context][head_size / 2]
  step_now* now;
  float *state, *normed, *queries, *scores, *mixed, *router_logits, *gated, *outputs, *logits;
  ops::layer_facts* facts;
  std::vector<layer_memory> layers;
};

/// Numbers that a step's memory begins with.
struct weights_to_copy {
  float const* from;
  float const* to;
  u64 n;
};

/// The dense side of a model as a step needs it.
class dense_part {
 public:
  explicit dense_part(model const& m);

  /// The memory, and what is to be copied into it; `from` lives as long as this and the model.
  step_memory lay_out(step_shape const& shape, arena& to,
                      std::vector<weights_to_copy>& copies) const;

 private:
  model const& model_;
  std::vector<float> cosines_, sines_;  // [context][head_size / 2]
};

/// The pools that a graph of one token uses, one a layer in the model's order, with their tables. Throws config_error where
/// a token's experts do not fit: a graph cannot stream them.
struct step_pools {
  step_pools(model const& m, device_options const& options);
  warmset::geometry geometry;
  std::vector<warmset::pool_site> sites;
  std::vector<warmset::table<decode_policy>> tables;
};

/// Records one step into a stage. A stage has
///
///     run(place, op, blocks)           launches op in the stream of the steps, or in a branch: `beside(layer)`
///     fork(layer), join(layer)         the branch that looks ahead after a layer
///     serve(layer)                     decides and fetches what the layer's ids demand; `served(layer)` says where it lies
///     advise(layer, width)             decides on hints for a layer, in the branch of the one before it
///     fetch(layer)                     fetches what that has decided, behind the misses of the layer before
///     finish()                         what a step leaves beside it has come to an end
///     begin(row), end(row)             of the phase table
///
/// @param ahead  whether this graph looks ahead
template <class Stage>
void record_step(Stage& stage, architecture const& a, step_shape const& shape,
                 step_page const& page, step_memory const& s, bool ahead) {
  using warmset::time_row;
  constexpr int main = -1;
  u32 const queries = a.heads * a.head_size;
  u32 const keys = a.kv_heads * a.head_size;
  stage.begin(time_row::dense);
  stage.run(main,
            ops::take_in{page.now, s.now, s.embedding, s.state, a.hidden,
                         shape.said_by_host ? page.hints : nullptr, s.layers[0].hints,
                         a.layers * shape.n_hints},
            1);
  stage.end(time_row::dense);
  for (u32 l = 0; l < a.layers; ++l) {
    layer_memory const& w = s.layers[l];
    stage.begin(time_row::attention);
    stage.run(main, ops::normalise{s.state, w.attention_norm, s.normed, a.hidden, a.epsilon}, 1);
    ops::multiply const project{{{w.query, s.queries, queries, 0},
                                 {w.key, w.keys, keys, keys},
                                 {w.value, w.values, keys, keys}},
                                s.normed,
                                nullptr,
                                s.now,
                                a.hidden};
    stage.run(main, project, project.blocks());
    stage.run(main,
              ops::turn_heads{s.queries, w.keys, w.query_norm, w.key_norm, s.cosines, s.sines,
                              s.now, a.heads, a.kv_heads, a.head_size, a.epsilon},
              a.heads + a.kv_heads);
    stage.run(main,
              ops::attend{s.queries, w.keys, w.values, s.scores, s.mixed, s.now, a.heads,
                          a.kv_heads, a.head_size, a.context},
              a.heads);
    ops::multiply const output{
        {{w.output, w.attended, a.hidden, 0}}, s.mixed, s.state, s.now, queries};
    stage.run(main, output, output.blocks());
    stage.end(time_row::attention);

    if (ahead && l + 1 < a.layers) {
      layer_memory const& next = s.layers[l + 1];
      int const beside = static_cast<int>(l);
      stage.fork(l);
      if (!shape.said_by_host) {
        stage.run(
            beside,
            ops::normalise{w.attended, next.ahead_norm, next.ahead_state, a.hidden, a.epsilon}, 1);
        ops::multiply const router{{{next.ahead_router, next.ahead_logits, a.experts, 0}},
                                   next.ahead_state,
                                   nullptr,
                                   s.now,
                                   a.hidden};
        stage.run(beside, router, router.blocks());
        stage.run(beside, ops::pick{next.ahead_logits, next.hints, a.experts, shape.n_hints}, 1);
      }
      stage.advise(l + 1, shape.width);
    }

    stage.begin(time_row::dense);
    stage.run(main, ops::normalise{w.attended, w.expert_norm, s.normed, a.hidden, a.epsilon}, 1);
    ops::multiply const router{
        {{w.router, s.router_logits, a.experts, 0}}, s.normed, nullptr, s.now, a.hidden};
    stage.run(main, router, router.blocks());
    stage.run(main, ops::route{s.router_logits, w.ids, w.weights, a.experts, a.k}, 1);
    stage.end(time_row::dense);

    stage.begin(time_row::copies);  // the decision as well, and whatever the branch is late by
    if (ahead && l != 0) {
      stage.join(l - 1);
    }
    stage.serve(l);
    stage.end(time_row::copies);
    if (ahead && l + 1 < a.layers) {
      stage.fetch(l + 1);
    }

    stage.begin(time_row::experts);
    ops::expert_in const in{stage.served(l), w.ids,    w.answers,  s.normed,
                            s.gated,         a.hidden, a.expert_ff};
    stage.run(main, in, a.k * in.blocks_of_one());
    ops::expert_out const out{stage.served(l), w.ids,       w.answers, s.gated,
                              s.outputs,       a.expert_ff, a.hidden};
    stage.run(main, out, a.k * out.blocks_of_one());
    stage.run(main, ops::combine{w.attended, s.outputs, w.weights, s.state, a.hidden, a.k}, 1);
    stage.end(time_row::experts);
  }
  stage.finish();
  stage.begin(time_row::dense);
  stage.run(main, ops::normalise{s.state, s.output_norm, s.normed, a.hidden, a.epsilon}, 1);
  ops::multiply const head{
      {{s.output, s.logits, a.vocabulary, 0}}, s.normed, nullptr, s.now, a.hidden};
  stage.run(main, head, head.blocks());
  stage.run(main, ops::tell{s.facts, page.told, a.layers, a.k, shape.n_hints}, 1);
  stage.end(time_row::dense);
}

/// What carries recorded steps out: a GPU with its graphs, or a test.
class step_engine {
 public:
  virtual ~step_engine() = default;

  virtual step_page const& page() const = 0;
  /// What the next steps are under. Not while one runs.
  virtual void set(warmset::phase p, u64 hint_bytes) = 0;
  /// Carries out one step, of what the page says. Returns when it is over and has told: how many nanoseconds it took.
  virtual u64 run(bool ahead) = 0;
  /// What the link to the slots carries in a microsecond; 0 = copies take no time.
  virtual u64 link_bytes_per_us() const = 0;
  /// The logits of the last step; they live until the next call.
  virtual std::span<float const> logits() = 0;
  /// Where the parts of each step's time are to go; null = nowhere. Once, before the first step.
  virtual void measure(warmset::phase_table* table) = 0;
};

}  // namespace warmset_decode
