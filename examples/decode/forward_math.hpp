// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <math.h>

#include <warmset/core/lanes.hpp>
#include <warmset/cuda/device_step.hpp>

#include "policy.hpp"

/// The arithmetic of the forward pass as operations of a graph: each is a plain struct, which a kernel takes by value, and
/// its body a host-device function of a lane group. A test on the host runs what the kernels run.
///
/// Sums have the order that kernels.hpp has: sixteen partial sums, then their sum; where it sums one after the other, so
/// do these. Nothing depends on the width of the group, on where weights lie or on the clock. Where the compiler does not
/// fuse multiplication and addition, all but exp gives the bits of kernels.hpp.
namespace warmset_decode {

using warmset::i32;
using warmset::lane_group;
using warmset::min_of;
using warmset::u16;
using warmset::u32;
using warmset::u64;

/// Which token a step is about. The host says it before each launch.
struct step_now {
  u32 token;
  u32 position;
};

namespace ops {

inline constexpr u32 dot_lanes = 16;
inline constexpr u32 block_rows = 16;      ///< rows of a matrix that a block multiplies
inline constexpr u32 block_threads = 256;  ///< block_rows * dot_lanes

/// A half-precision number as a single-precision one. Exact.
WARMSET_HD float half_to_float(u16 half) noexcept {
  u32 const sign = u32{half} >> 15 << 31;
  u32 const exponent = half >> 10 & 0x1F;
  u32 const mantissa = half & 0x3FF;
  if (exponent == 0) {  // zero, or below the least normal number
    float const f = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -f : f;
  }
  u32 const bits = sign | (exponent == 0x1F ? 0xFF : exponent + 112) << 23 | mantissa << 13;
  float f;
  __builtin_memcpy(&f, &bits, sizeof f);
  return f;
}

/// One of the sixteen partial sums of a · b.
WARMSET_HD float part_of_dot(float const* a, float const* b, u32 n, u32 lane) noexcept {
  float sum = 0;
  for (u32 i = lane; i < n; i += dot_lanes) {
    sum += a[i] * b[i];
  }
  return sum;
}

/// The same where `row` is Q8_0: blocks of a half-precision scale and 32 signed bytes.
WARMSET_HD float part_of_dot_q8(unsigned char const* row, float const* x, u32 n,
                                u32 lane) noexcept {
  float sum = 0;
  for (u32 i = 0; i < n; i += 32, row += 34) {
    float const scale = half_to_float(static_cast<u16>(row[0] | row[1] << 8));
    auto const* const q = reinterpret_cast<signed char const*>(row + 2);
    for (u32 j = lane; j < 32; j += dot_lanes) {
      sum += scale * static_cast<float>(q[j]) * x[i + j];
    }
  }
  return sum;
}

WARMSET_HD float sum_of_parts(float const* part) noexcept {
  float sum = 0;
  for (u32 j = 0; j < dot_lanes; ++j) {
    sum += part[j];
  }
  return sum;
}

/// a · b by one lane.
WARMSET_HD float dot(float const* a, float const* b, u32 n) noexcept {
  float part[dot_lanes];
  for (u32 j = 0; j < dot_lanes; ++j) {
    part[j] = part_of_dot(a, b, n, j);
  }
  return sum_of_parts(part);
}

struct norm_shared {
  float part[dot_lanes];
  float scale;
};

/// out = x / rms(x) * weight; out may be x.
template <lane_group Group>
WARMSET_HD void rms_norm(Group const& g, float const* x, float const* weight, float* out, u32 n,
                         float epsilon, norm_shared& s) {
  g.for_each(dot_lanes, [&](u32 j) { s.part[j] = part_of_dot(x, x, n, j); });
  g.leader([&] { s.scale = 1.0f / sqrtf(sum_of_parts(s.part) / static_cast<float>(n) + epsilon); });
  g.for_each(n, [&](u32 i) { out[i] = x[i] * s.scale * weight[i]; });
}

struct softmax_shared {
  float part[dot_lanes];
  float most;
  float sum;
};

/// x = exp(x) / sum exp(x).
template <lane_group Group>
WARMSET_HD void softmax(Group const& g, float* x, u32 n, softmax_shared& s) {
  g.for_each(dot_lanes, [&](u32 j) {
    float most = x[0];
    for (u32 i = j; i < n; i += dot_lanes) {
      most = x[i] > most ? x[i] : most;
    }
    s.part[j] = most;
  });
  g.leader([&] {
    s.most = s.part[0];
    for (u32 j = 1; j < dot_lanes; ++j) {
      s.most = s.part[j] > s.most ? s.part[j] : s.most;
    }
  });
  g.for_each(n, [&](u32 i) { x[i] = expf(x[i] - s.most); });
  g.leader([&] {
    float sum = 0;
    for (u32 i = 0; i < n; ++i) {
      sum += x[i];
    }
    s.sum = sum;
  });
  g.for_each(n, [&](u32 i) { x[i] /= s.sum; });
}

/// Begins a step: takes in what the host says and looks the token up. One block.
struct take_in {
  step_now const* said;  ///< in memory that the host writes
  step_now* now;
  float const* embedding;
  float* state;
  u32 hidden;
  i32 const* said_hints;  ///< null: the step makes its own
  i32* hints;
  u32 n_hints;

  struct shared {
    step_now now;
  };
  template <lane_group Group>
  WARMSET_HD void operator()(Group const& g, u32, shared& s) const {
    g.leader([&] {
      s.now = *said;
      *now = s.now;
    });
    g.for_each(hidden, [&](u32 i) { state[i] = embedding[u64{s.now.token} * hidden + i]; });
    g.for_each(said_hints == nullptr ? 0 : n_hints, [&](u32 i) { hints[i] = said_hints[i]; });
  }
};

/// out = x / rms(x) * weight. One block.
struct normalise {
  float const* x;
  float const* weight;
  float* out;
  u32 n;
  float epsilon;

  using shared = norm_shared;
  template <lane_group Group>
  WARMSET_HD void operator()(Group const& g, u32, shared& s) const {
    rms_norm(g, x, weight, out, n, epsilon, s);
  }
};

/// A matrix that a vector is multiplied with, and where the product goes: at `out`, and further by `stride` for each
/// position.
struct matrix {
  float const* w;
  float* out;
  u32 rows;
  u32 stride;
};

/// out = W · x for up to three matrices of n columns, plus `added` where it is not null. block_rows rows a block.
struct multiply {
  matrix m[3];
  float const* x;
  float const* added;
  step_now const* now;
  u32 n;

  WARMSET_HD u32 blocks() const noexcept {
    u32 sum = 0;
    for (matrix const& each : m) {
      sum += warmset::ceil_div(each.rows, block_rows);
    }
    return sum;
  }

  struct shared {
    float part[block_rows * dot_lanes];
  };
  template <lane_group Group>
  WARMSET_HD void operator()(Group const& g, u32 block, shared& s) const {
    u32 which = 0;
    for (; block >= warmset::ceil_div(m[which].rows, block_rows); ++which) {
      block -= warmset::ceil_div(m[which].rows, block_rows);
    }
    matrix const& of = m[which];
    u32 const first = block * block_rows;
    u32 const n_rows = min_of(block_rows, of.rows - first);
    float* const out = of.out + (of.stride == 0 ? 0 : u64{now->position} * of.stride);
    g.for_each(n_rows * dot_lanes, [&](u32 i) {
      s.part[i] = part_of_dot(of.w + u64{first + i / dot_lanes} * n, x, n, i % dot_lanes);
    });
    g.for_each(n_rows, [&](u32 r) {
      float const product = sum_of_parts(s.part + r * dot_lanes);
      out[first + r] = added == nullptr ? product : added[first + r] + product;
    });
  }
};

/// Normalises the heads of queries and of this position's keys and turns them by their position. A block a head.
struct turn_heads {
  float* queries;  ///< [heads][size]
  float* keys;     ///< [position][kv_heads][size]
  float const* query_norm;
  float const* key_norm;
  float const* cosines;  ///< [position][size / 2]
  float const* sines;
  step_now const* now;
  u32 heads;
  u32 kv_heads;
  u32 size;
  float epsilon;

  using shared = norm_shared;
  template <lane_group Group>
  WARMSET_HD void operator()(Group const& g, u32 block, shared& s) const {
    bool const is_query = block < heads;
    u32 const half = size / 2;
    u64 const position = now->position;
    float* const x = is_query ? queries + u64{block} * size
                              : keys + (position * kv_heads + (block - heads)) * size;
    rms_norm(g, x, is_query ? query_norm : key_norm, x, size, epsilon, s);
    g.for_each(half, [&](u32 i) {
      float const cosine = cosines[position * half + i];
      float const sine = sines[position * half + i];
      float const a = x[i];
      float const b = x[i + half];
      x[i] = a * cosine - b * sine;
      x[i + half] = a * sine + b * cosine;
    });
  }
};

/// Attention of the query heads over the keys and values up to this position. A block a head.
struct attend {
  float const* queries;
  float const* keys;  ///< [position][kv_heads][size]
  float const* values;
  float* scores;  ///< [heads][context]
  float* out;     ///< [heads][size]
  step_now const* now;
  u32 heads;
  u32 kv_heads;
  u32 size;
  u32 context;

  using shared = softmax_shared;
  template <lane_group Group>
  WARMSET_HD void operator()(Group const& g, u32 head, shared& s) const {
    u32 const n_steps = now->position + 1;
    u64 const stride = u64{kv_heads} * size;
    u64 const kv = u64{head / (heads / kv_heads)} * size;
    float* const score = scores + u64{head} * context;
    float const scale = 1.0f / sqrtf(static_cast<float>(size));
    g.for_each(n_steps, [&](u32 t) {
      score[t] = dot(queries + u64{head} * size, keys + t * stride + kv, size) * scale;
    });
    softmax(g, score, n_steps, s);
    g.for_each(size, [&](u32 i) {
      float sum = 0;
      for (u32 t = 0; t < n_steps; ++t) {
        sum += score[t] * values[t * stride + kv + i];
      }
      out[u64{head} * size + i] = sum;
    });
  }
};

/// The router's choice: ids and weights of the k largest shares, the largest first; ties go to the lower expert. One block.
struct route {
  float* logits;  ///< become shares
  i32* ids;
  float* weights;
  u32 n_experts;
  u32 k;

  using shared = softmax_shared;
  template <lane_group Group>
  WARMSET_HD void operator()(Group const& g, u32, shared& s) const {
    softmax(g, logits, n_experts, s);
    g.for_each(n_experts, [&](u32 e) {
      logits[e] = logits[e] >= 0 ? logits[e] : 0;
    });  // no number: of damaged weights
    g.for_each(n_experts, [&](u32 e) {
      u32 rank = 0;
      for (u32 x = 0; x < n_experts; ++x) {
        rank += logits[x] > logits[e] || (logits[x] == logits[e] && x < e) ? 1 : 0;
      }
      if (rank < k) {
        ids[rank] = static_cast<i32>(e);
      }
    });
    g.leader([&] {
      float sum = 0;
      for (u32 r = 0; r < k; ++r) {
        sum += logits[ids[r]];
      }
      s.sum = sum;
    });
    g.for_each(k, [&](u32 r) { weights[r] = logits[ids[r]] / s.sum; });
  }
};

/// Hints out of the logits of a router that was run ahead, as predict::router_lookahead picks them; the rest is -1. One
/// block.
struct pick {
  float const* logits;
  i32* hints;
  u32 n_experts;
  u32 width;

  struct shared {};
  template <lane_group Group>
  WARMSET_HD void operator()(Group const& g, u32, shared&) const {
    g.for_each(width, [&](u32 i) { hints[i] = -1; });
    g.for_each(n_experts, [&](u32 e) {
      auto const is_one = [&](u32 x) { return logits[x] > -1e30f; };  // neither masked nor NaN
      u32 rank = 0;
      for (u32 x = 0; x < n_experts; ++x) {
        rank += is_one(x) && (logits[x] > logits[e] || (logits[x] == logits[e] && x < e)) ? 1 : 0;
      }
      if (is_one(e) && rank < width) {
        hints[rank] = static_cast<i32>(e);
      }
    });
  }
};

/// The banks of an expert, in the order of the cache's geometry.
enum expert_bank : u32 { gate_bank, up_bank, down_bank };

/// silu(gate · x) * (up · x) of the chosen experts. Blocks: rank by rank, block_rows rows each.
struct expert_in {
  warmset::cuda::served_experts served;
  i32 const* ids;
  i32 const* answers;
  float const* x;
  float* out;  ///< [k][ff]
  u32 n;
  u32 ff;

  WARMSET_HD u32 blocks_of_one() const noexcept { return warmset::ceil_div(ff, block_rows); }

  struct shared {
    float gate[block_rows * dot_lanes];
    float up[block_rows * dot_lanes];
  };
  template <lane_group Group>
  WARMSET_HD void operator()(Group const& g, u32 block, shared& s) const {
    u32 const rank = block / blocks_of_one();
    u32 const first = block % blocks_of_one() * block_rows;
    u32 const n_rows = min_of(block_rows, ff - first);
    u64 const row_bytes = n / 32 * 34;
    u32 const expert = static_cast<u32>(ids[rank]);
    unsigned char const* const gate =
        served.bytes(gate_bank, expert, answers[rank]) + first * row_bytes;
    unsigned char const* const up =
        served.bytes(up_bank, expert, answers[rank]) + first * row_bytes;
    g.for_each(n_rows * dot_lanes, [&](u32 i) {
      s.gate[i] = part_of_dot_q8(gate + i / dot_lanes * row_bytes, x, n, i % dot_lanes);
      s.up[i] = part_of_dot_q8(up + i / dot_lanes * row_bytes, x, n, i % dot_lanes);
    });
    g.for_each(n_rows, [&](u32 r) {
      float const a = sum_of_parts(s.gate + r * dot_lanes);
      out[u64{rank} * ff + first + r] = a / (1.0f + expf(-a)) * sum_of_parts(s.up + r * dot_lanes);
    });
  }
};

/// down · (what expert_in left) of the chosen experts. Blocks: rank by rank, block_rows rows each.
struct expert_out {
  warmset::cuda::served_experts served;
  i32 const* ids;
  i32 const* answers;
  float const* x;  ///< [k][ff]
  float* out;      ///< [k][hidden]
  u32 n;           ///< ff
  u32 hidden;

  WARMSET_HD u32 blocks_of_one() const noexcept { return warmset::ceil_div(hidden, block_rows); }

  struct shared {
    float part[block_rows * dot_lanes];
  };
  template <lane_group Group>
  WARMSET_HD void operator()(Group const& g, u32 block, shared& s) const {
    u32 const rank = block / blocks_of_one();
    u32 const first = block % blocks_of_one() * block_rows;
    u32 const n_rows = min_of(block_rows, hidden - first);
    u64 const row_bytes = n / 32 * 34;
    unsigned char const* const down =
        served.bytes(down_bank, static_cast<u32>(ids[rank]), answers[rank]) + first * row_bytes;
    g.for_each(n_rows * dot_lanes, [&](u32 i) {
      s.part[i] =
          part_of_dot_q8(down + i / dot_lanes * row_bytes, x + u64{rank} * n, n, i % dot_lanes);
    });
    g.for_each(n_rows, [&](u32 r) {
      out[u64{rank} * hidden + first + r] = sum_of_parts(s.part + r * dot_lanes);
    });
  }
};

/// state = attended + the experts' outputs by their weights, in rank order. One block.
struct combine {
  float const* attended;
  float const* outputs;  ///< [k][n]
  float const* weights;
  float* state;
  u32 n;
  u32 k;

  struct shared {};
  template <lane_group Group>
  WARMSET_HD void operator()(Group const& g, u32, shared&) const {
    g.for_each(n, [&](u32 i) {
      float sum = attended[i];
      for (u32 r = 0; r < k; ++r) {
        sum += weights[r] * outputs[u64{r} * n + i];
      }
      state[i] = sum;
    });
  }
};

using queue = warmset::cuda::fetch_queue<decode_policy::max_experts>;

/// Where what happened in a layer can be looked up, by kernels.
struct layer_facts {
  warmset::outcome const* counters;  ///< [n_phases]
  queue const* loads;   ///< of the step
  queue const* copies;  ///< of the hints; null without
  i32 const* ids;
  float const* weights;
  i32 const* hints;
};

/// What a step tells the host, layer by layer, in memory that the host reads.
struct told_page {
  warmset::outcome* counters;          ///< so far, in all phases
  i32* ids;                            ///< [layers][k]
  float* weights;                      ///< [layers][k]
  i32* hints;                          ///< [layers][n_hints]
  u32* n_loads;                        ///< [layers]
  u32* n_copies;                       ///< [layers]
  warmset::cuda::fetch_order* loads;   ///< [layers][k]
  warmset::cuda::fetch_order* copies;  ///< [layers][n_hints]; of the last step that looked ahead
  u32* faults;                         ///< [layers]: step_fault
};

/// Ends a step: tells the host. One block.
struct tell {
  layer_facts const* facts;  ///< [layers]
  told_page page;
  u32 layers;
  u32 k;
  u32 n_hints;

  struct shared {};
  template <lane_group Group>
  WARMSET_HD void operator()(Group const& g, u32, shared&) const {
    constexpr u32 n_words = sizeof(warmset::outcome) / sizeof(u32);
    g.for_each(layers * n_words, [&](u32 i) {
      u32 sum = 0;
      for (u32 p = 0; p < warmset::n_phases; ++p) {
        sum += reinterpret_cast<u32 const*>(facts[i / n_words].counters + p)[i % n_words];
      }
      reinterpret_cast<u32*>(page.counters)[i] = sum;
    });
    g.for_each(layers * k, [&](u32 i) {
      page.ids[i] = facts[i / k].ids[i % k];
      page.weights[i] = facts[i / k].weights[i % k];
    });
    g.for_each(layers * n_hints,
               [&](u32 i) { page.hints[i] = facts[i / n_hints].hints[i % n_hints]; });
    g.for_each(layers, [&](u32 l) {
      page.faults[l] = facts[l].loads->fault;
      page.n_loads[l] = list(*facts[l].loads, page.loads + u64{l} * k, k);
      if (facts[l].copies != nullptr) {
        page.n_copies[l] = list(*facts[l].copies, page.copies + u64{l} * n_hints, n_hints);
      }
    });
  }

 private:
  WARMSET_HD static u32 list(queue const& from, warmset::cuda::fetch_order* to, u32 most) noexcept {
    u32 const n = min_of(from.n, most);
    for (u32 i = 0; i < n; ++i) {
      to[i] = from.order[i];
    }
    return n;
  }
};

}  // namespace ops
}  // namespace warmset_decode
