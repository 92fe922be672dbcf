// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <span>
#include <string>
#include <string_view>

#include "bytes.hpp"
#include "read_geometry.hpp"

namespace warmset::inline v0 {
namespace trace {

/// Bytes of one gpt-oss expert in MXFP4, its biases not counted: 3 * 2880 * 2880 weights at 17/32
/// bytes, 12.61 MiB. The value that the BigMoeOnEdge trace of gpt-oss-120b states for every layer;
/// the 20b model has experts of the same shape.
inline constexpr u64 gpt_oss_expert_bytes = 13'219'200;

/// What an RTB1 file does not say.
struct rtb1_options {
  u64 expert_bytes = gpt_oss_expert_bytes;
  std::string model = "gpt-oss-20b";
  std::string source = {};
  /// Router weights of the same rows: IEEE half, little endian, one per id (`prob.f16`); empty for
  /// none.
  std::span<std::byte const> weights = {};
};

namespace detail {

/// IEEE binary16 as a float; exact.
constexpr float float_of_half(u16 half) noexcept {
  u32 const sign = u32{half & 0x8000u} << 16;
  u32 exponent = (half >> 10) & 31u;
  u32 fraction = half & 1023u;
  if (exponent == 0 && fraction != 0) {  // subnormal: normalize
    exponent = 1;
    while ((fraction & 1024u) == 0) {
      fraction <<= 1;
      --exponent;  // wraps below 1; the sum below is modulo 2^32
    }
    fraction &= 1023u;
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
  }
  if (exponent == 0) {
    return std::bit_cast<float>(sign);
  }
  u32 const wide = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

}  // namespace detail

/// Reads the binary layout RTB1, already decompressed: `RTB1`, then u32 layers, experts, k,
/// sequences S and token rows N, then u32 length[S], then u16 ids[N][layers][k] in rank order,
/// little endian.
///
/// Decode steps of one token; sequence i is the i-th of the file and starts at position 0. The
/// layout has no bytes per expert: `options` says them, and the recording remembers that they are
/// assumed. Input token ids are in a list beside it, for `with_tokens`. Throws format_error with the
/// byte offset. O(size).
inline recording read_rtb1(std::span<std::byte const> bytes, rtb1_options options = {}) {
  detail::byte_cursor in("rtb1", bytes);
  if (bytes.empty()) {
    in.fail("the input is empty");
  }
  if (in.take<u32>("magic") != 0x3142'5452u) {
    in.fail_at(0, "the magic is not 'RTB1'");
  }
  struct count {
    char const* name;
    u32 most;
    u32 value = 0;
  };
  count counts[] = {{"layers", geometry::max_layers},
                    {"experts", geometry::max_experts_per_layer},
                    {"k", geometry::max_experts_per_layer},
                    {"sequences", u32_max},
                    {"rows", u32_max}};
  for (count& c : counts) {
    c.value = in.take<u32>(c.name);
    if (c.value == 0 || c.value > c.most) {
      in.fail_at(in.at() - 4, std::string(c.name) + " is " + std::to_string(c.value) +
                                  "; between 1 and " + std::to_string(c.most) + " are possible");
    }
  }
  auto const [layers, experts, k, sequences, rows] = std::array{
      counts[0].value, counts[1].value, counts[2].value, counts[3].value, counts[4].value};
  if (k > experts) {
    in.fail_at(12, "k is " + std::to_string(k) + " of " + std::to_string(experts) + " experts");
  }
  u64 const ids = detail::saturating_mul(u64{rows} * layers, k);
  u64 const wanted = detail::saturating_sum(u64{sequences} * 4, detail::saturating_mul(ids, 2));
  if (wanted != in.left()) {
    in.fail(std::to_string(sequences) + " lengths and " + std::to_string(rows) + " rows of " +
            std::to_string(layers) + " layers with k = " + std::to_string(k) + " need " +
            std::to_string(wanted) + " bytes, but " + std::to_string(in.left()) + " follow");
  }
  if (!options.weights.empty() && options.weights.size() / 2 != ids) {
    in.fail("router weights have " + std::to_string(options.weights.size()) + " bytes for " +
            std::to_string(ids) + " ids");
  }
  contents parts;
  std::vector<layer_geometry> model;
  model.reserve(layers);
  for (u32 i = 0; i < layers; ++i) {
    model.push_back({layer_id{i}, experts, k, {options.expert_bytes}});
  }
  parts.geometry = detail::read_geometry(std::move(model), [&](char const* what) {
    in.fail_at(4, std::string(what) + " (every expert is taken to have " + std::to_string(options.expert_bytes) + ")");
  });
  parts.expert_bytes_assumed = true;
  parts.model = std::move(options.model);
  parts.source = std::move(options.source);
  parts.blocks.reserve(sequences);
  u64 placed = 0;
  for (u32 s = 0; s < sequences; ++s) {
    u32 const length = in.take<u32>("length");
    if (length == 0 || length > rows - placed) {
      in.fail_at(in.at() - 4, "sequence " + std::to_string(s) + " has length " +
                                  std::to_string(length) + " where " +
                                  std::to_string(rows - placed) + " rows are left");
    }
    block b;
    b.sequence = s;
    b.n_rows = layers;
    b.n_steps = length;
    b.k = k;
    parts.blocks.push_back(b);
    placed += length;
  }
  if (placed != rows) {
    in.fail("the sequences have " + std::to_string(placed) + " rows of " + std::to_string(rows));
  }
  u64 const ids_at = in.at();
  rows_known known;
  detail::no_sum none;
  detail::load_rows(parts.ids, in.take_bytes("ids", ids * 2), static_cast<std::size_t>(ids), k, experts, none, known.ids);
  if (!options.weights.empty()) {
    parts.weights.resize(static_cast<std::size_t>(ids));
    for (std::size_t i = 0; i < parts.weights.size(); ++i) {
      parts.weights[i] =
          detail::float_of_half(detail::load_le<u16>(options.weights.data() + 2 * i));
    }
  }
  return recording::checked(
      std::move(parts),
      [&](fault const& f) { in.fail_at(f.where == fault::list::id ? ids_at + 2 * f.index : ids_at, f.what); }, known);
}

}  // namespace trace
}  // namespace warmset::inline v0
