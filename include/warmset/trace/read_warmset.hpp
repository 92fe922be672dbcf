// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "write_warmset.hpp"

namespace warmset::inline v0 {
namespace trace {

/// Reads Warmset's own trace format, version 1, already decompressed.
///
/// Nothing is allocated before its count was checked against the size. Throws format_error with the
/// byte offset and the field. O(size), close to the cost of copying the bytes.
inline recording read_warmset(std::span<std::byte const> bytes) {
  detail::byte_cursor in("warmset trace", bytes);
  if (bytes.empty()) {
    in.fail("the input is empty");
  }
  if (in.take<u64>("magic") != wst::magic) {
    in.fail_at(0, "the magic is not 'WARMSET'");
  }
  u32 const version = in.take<u32>("version");
  if (version != wst::version) {
    in.fail_at(8, "version is " + std::to_string(version) + "; this reader knows version " +
                      std::to_string(wst::version));
  }
  u32 const flags = in.take<u32>("flags");
  if ((flags & ~wst::all_flags) != 0) {
    in.fail_at(12, "flags are " + std::to_string(flags) + ", of which some are unknown");
  }
  u64 const size = in.take<u64>("size");
  if (size != bytes.size()) {
    in.fail_at(16, "size is " + std::to_string(size) + ", but the input has " +
                       std::to_string(bytes.size()) + " bytes");
  }
  u64 const fingerprint = in.take<u64>("fingerprint");
  u64 const n_ids = in.take<u64>("ids");
  u32 const n_layers = in.take<u32>("layers");
  u32 const n_banks = in.take<u32>("banks");
  u32 const n_blocks = in.take<u32>("blocks");
  u32 const n_labels = in.take<u32>("labels");
  u32 const width = in.take<u32>("look-ahead width");
  u32 const model_size = in.take<u32>("model");
  u32 const source_size = in.take<u32>("source");
  if (in.take<u32>("reserved") != 0 || in.take<u64>("reserved") != 0) {
    in.fail_at(68, "reserved bytes are not zero");
  }
  if (n_layers == 0 || n_layers > geometry::max_layers) {
    in.fail_at(40, "layers is " + std::to_string(n_layers) + "; between 1 and " +
                       std::to_string(geometry::max_layers) + " are possible");
  }
  if (in.left() < 8) {
    in.fail("the checksum is missing");
  }
  u64 const sum = detail::load_le<u64>(bytes.data() + bytes.size() - 8);
  if (sum != checksum(bytes.first(bytes.size() - 8))) {
    in.fail_at(bytes.size() - 8, "the checksum does not match");
  }

  contents parts;
  parts.expert_bytes_assumed = (flags & wst::assumes_expert_bytes) != 0;
  parts.lookahead_width = width;

  u64 const layers_at = in.at();
  std::byte const* layer = in.take_bytes("layers", n_layers * wst::layer_bytes);
  std::byte const* bank = in.take_bytes("banks", u64{n_banks} * 8);
  std::vector<layer_geometry> layers;
  layers.reserve(n_layers);
  u64 banks_left = n_banks;
  for (u32 i = 0; i < n_layers; ++i, layer += wst::layer_bytes) {
    u32 const banks = detail::load_le<u32>(layer + 12);
    if (banks > banks_left) {
      in.fail_at(layers_at + i * wst::layer_bytes + 12,
                 "layer has " + std::to_string(banks) + " banks where " +
                     std::to_string(banks_left) + " are left");
    }
    layers.push_back({layer_id{detail::load_le<u32>(layer)},
                      detail::load_le<u32>(layer + 4),
                      detail::load_le<u32>(layer + 8),
                      {}});
    for (u32 j = 0; j < banks; ++j, bank += 8) {
      u64 const size_of_bank = detail::load_le<u64>(bank);
      // Keeps every sum over experts and layers within 64 bits.
      if (size_of_bank > u64{1} << 32) {
        in.fail_at(layers_at + i * wst::layer_bytes,
                   "a bank has " + std::to_string(size_of_bank) + " bytes, more than 2^32");
      }
      layers.back().bank_bytes.push_back(size_of_bank);
    }
    banks_left -= banks;
  }
  if (banks_left != 0) {
    in.fail_at(44, "banks is " + std::to_string(n_banks) + ", but the layers name " +
                       std::to_string(n_banks - banks_left));
  }
  try {
    parts.geometry = geometry(std::move(layers));
  } catch (config_error const& e) {
    in.fail_at(layers_at, e.what());
  }
  if (parts.geometry.fingerprint() != fingerprint) {
    in.fail_at(24, "the fingerprint is not that of the layers");
  }

  u64 const blocks_at = in.at();
  std::byte const* b = in.take_bytes("blocks", n_blocks * wst::block_bytes);
  parts.blocks.resize(n_blocks);
  for (block& made : parts.blocks) {
    made.sequence = detail::load_le<u32>(b);
    made.first_position = detail::load_le<u32>(b + 4);
    u32 const what = detail::load_le<u32>(b + 8);
    made.phase = static_cast<phase>(what < n_phases ? what : n_phases);
    made.first_row = detail::load_le<u32>(b + 12);
    made.n_rows = detail::load_le<u32>(b + 16);
    made.n_steps = detail::load_le<u32>(b + 20);
    made.n_tokens = detail::load_le<u32>(b + 24);
    made.k = detail::load_le<u32>(b + 28);
    b += wst::block_bytes;
  }

  u64 const labels_at = in.at();
  std::byte const* l = in.take_bytes("labels", n_labels * wst::label_bytes);
  parts.model = in.take_text("model", model_size);
  parts.source = in.take_text("source", source_size);
  parts.labels.reserve(n_labels);
  for (u32 i = 0; i < n_labels; ++i, l += wst::label_bytes) {
    parts.labels.push_back(
        {detail::load_le<u32>(l), in.take_text("label", detail::load_le<u32>(l + 4))});
  }
  in.align();

  if (std::optional<fault> const broken = recording::place_blocks(parts, n_ids)) {
    in.fail_at(broken->where == fault::list::block ? blocks_at + broken->index * wst::block_bytes
                                                   : 32,
               broken->what);
  }
  u64 const tokens =
      parts.blocks.empty() ? 0 : parts.blocks.back().tokens_at + parts.blocks.back().n_token_rows();
  u64 const n_ahead = detail::saturating_mul(tokens, width);
  auto take_column = [&in](std::string_view field, auto& to, u64 n, u64 each) {
    u64 const at = in.at();
    std::byte const* const from = in.take_bytes(field, detail::saturating_mul(n, each));
    detail::load_column(to, from, static_cast<std::size_t>(n));
    in.align();
    return at;
  };
  u64 const ids_at = take_column("ids", parts.ids, n_ids, 2);
  u64 const residency_at =
      take_column("residency", parts.residency, (flags & wst::has_residency) != 0 ? n_ids : 0, 1);
  u64 const ahead_at = take_column("look-ahead", parts.lookahead, n_ahead, 2);
  take_column("weights", parts.weights, (flags & wst::has_weights) != 0 ? n_ids : 0, 4);
  if (in.left() != 8) {
    in.fail(std::to_string(in.left()) + " bytes follow where the checksum of 8 is due");
  }
  return recording::checked(std::move(parts), [&](fault const& f) {
    u64 at = 0;
    switch (f.where) {
    case fault::list::header:
      break;
    case fault::list::block:
      at = blocks_at + f.index * wst::block_bytes;
      break;
    case fault::list::id:
    case fault::list::weight:
      at = ids_at + f.index * 2;
      break;
    case fault::list::residency:
      at = residency_at + f.index;
      break;
    case fault::list::lookahead:
      at = ahead_at + f.index * 2;
      break;
    case fault::list::label:
      at = labels_at + f.index * wst::label_bytes;
      break;
    }
    in.fail_at(at, f.what);
  });
}

}  // namespace trace
}  // namespace warmset::inline v0
