// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "read_geometry.hpp"
#include "write_warmset.hpp"

namespace warmset::inline v0 {
namespace trace {

namespace detail {

/// The counts at the head of a file.
struct wst_head {
  u32 flags;
  u64 fingerprint;
  u64 n_ids;
  u32 n_layers;
  u32 n_banks;
  u32 n_blocks;
  u32 n_labels;
  u32 width;
  u32 model_size;
  u32 source_size;
};

/// Copies columns out of a file and sums the file up on the way, so that large columns are read
/// from memory once. The last 8 bytes of the file are the checksum and no part of it.
class summing_copier {
 public:
  explicit summing_copier(std::span<std::byte const> file) noexcept : file_(file) {}

  /// Columns come in the order of the file, each from a multiple of 8 bytes on.
  template <class T>
  void copy(column<T>& to, std::byte const* from, std::size_t n) {
    advance(from);
    done_ += load_column(to, from, n, sum_);
  }

  /// Whether the rows of k ids are known to be plain.
  bool copy_rows(column<u16>& to, std::byte const* from, std::size_t n, u32 k, u32 n_experts) {
    bool plain = false;
    advance(from);
    done_ += load_rows(to, from, n, k, n_experts, sum_, plain);
    return plain;
  }

  /// The checksum of the whole file; the columns must have left 8 bytes.
  u64 finish() {
    advance(file_.data() + file_.size() - 8);
    return sum_.sum();
  }

 private:
  void advance(std::byte const* to) {
    std::size_t const at = static_cast<std::size_t>(to - file_.data());
    sum_.add(file_.subspan(done_, at - done_));
    done_ = at;
  }

  std::span<std::byte const> file_;
  checksummer sum_;
  std::size_t done_ = 0;
};

inline wst_head read_wst_head(byte_cursor& in, std::span<std::byte const> bytes) {
  wst_head h;
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
  h.flags = in.take<u32>("flags");
  if ((h.flags & ~wst::all_flags) != 0) {
    in.fail_at(12, "flags are " + std::to_string(h.flags) + ", of which some are unknown");
  }
  u64 const size = in.take<u64>("size");
  if (size != bytes.size()) {
    in.fail_at(16, "size is " + std::to_string(size) + ", but the input has " +
                       std::to_string(bytes.size()) + " bytes");
  }
  h.fingerprint = in.take<u64>("fingerprint");
  h.n_ids = in.take<u64>("ids");
  h.n_layers = in.take<u32>("layers");
  h.n_banks = in.take<u32>("banks");
  h.n_blocks = in.take<u32>("blocks");
  h.n_labels = in.take<u32>("labels");
  h.width = in.take<u32>("look-ahead width");
  h.model_size = in.take<u32>("model");
  h.source_size = in.take<u32>("source");
  if (in.take<u32>("reserved") != 0 || in.take<u64>("reserved") != 0) {
    in.fail_at(68, "reserved bytes are not zero");
  }
  if (h.n_layers == 0 || h.n_layers > geometry::max_layers) {
    in.fail_at(40, "layers is " + std::to_string(h.n_layers) + "; between 1 and " +
                       std::to_string(geometry::max_layers) + " are possible");
  }
  return h;
}

inline recording read_wst_body(byte_cursor& in, std::span<std::byte const> bytes, wst_head const& h,
                               u64 stored_sum) {
  contents parts;
  parts.expert_bytes_assumed = (h.flags & wst::assumes_expert_bytes) != 0;
  parts.lookahead_width = h.width;

  u64 const layers_at = in.at();
  std::byte const* layer = in.take_bytes("layers", h.n_layers * wst::layer_bytes);
  std::byte const* bank = in.take_bytes("banks", u64{h.n_banks} * 8);
  std::vector<layer_geometry> layers;
  layers.reserve(h.n_layers);
  u64 banks_left = h.n_banks;
  for (u32 i = 0; i < h.n_layers; ++i, layer += wst::layer_bytes) {
    u32 const banks = load_le<u32>(layer + 12);
    if (banks > banks_left) {
      in.fail_at(layers_at + i * wst::layer_bytes + 12,
                 "layer has " + std::to_string(banks) + " banks where " +
                     std::to_string(banks_left) + " are left");
    }
    layers.push_back(
        {layer_id{load_le<u32>(layer)}, load_le<u32>(layer + 4), load_le<u32>(layer + 8), {}});
    for (u32 j = 0; j < banks; ++j, bank += 8) {
      layers.back().bank_bytes.push_back(load_le<u64>(bank));
    }
    banks_left -= banks;
  }
  if (banks_left != 0) {
    in.fail_at(44, "banks is " + std::to_string(h.n_banks) + ", but the layers name " +
                       std::to_string(h.n_banks - banks_left));
  }
  parts.geometry =
      read_geometry(std::move(layers), [&](char const* what) { in.fail_at(layers_at, what); });
  if (parts.geometry.fingerprint() != h.fingerprint) {
    in.fail_at(24, "the h.fingerprint is not that of the layers");
  }

  u64 const blocks_at = in.at();
  std::byte const* b = in.take_bytes("blocks", h.n_blocks * wst::block_bytes);
  parts.blocks.resize(h.n_blocks);
  for (block& made : parts.blocks) {
    made.sequence = load_le<u32>(b);
    made.first_position = load_le<u32>(b + 4);
    u32 const what = load_le<u32>(b + 8);
    made.phase = static_cast<phase>(what < n_phases ? what : n_phases);
    made.first_row = load_le<u32>(b + 12);
    made.n_rows = load_le<u32>(b + 16);
    made.n_steps = load_le<u32>(b + 20);
    made.n_tokens = load_le<u32>(b + 24);
    made.k = load_le<u32>(b + 28);
    b += wst::block_bytes;
  }

  u64 const labels_at = in.at();
  std::byte const* l = in.take_bytes("labels", h.n_labels * wst::label_bytes);
  parts.model = in.take_text("model", h.model_size);
  parts.source = in.take_text("source", h.source_size);
  parts.labels.reserve(h.n_labels);
  for (u32 i = 0; i < h.n_labels; ++i, l += wst::label_bytes) {
    parts.labels.push_back({load_le<u32>(l), in.take_text("label", load_le<u32>(l + 4))});
  }
  in.align();

  if (std::optional<fault> const broken = recording::place_blocks(parts, h.n_ids)) {
    in.fail_at(broken->where == fault::list::block ? blocks_at + broken->index * wst::block_bytes
                                                   : 32,
               broken->what);
  }
  u64 const tokens =
      parts.blocks.empty() ? 0 : parts.blocks.back().tokens_at + parts.blocks.back().n_token_rows();
  u64 const n_ahead = saturating_mul(tokens, h.width);
  summing_copier sum(bytes);
  auto take_column = [&in, &sum](std::string_view field, auto& to, u64 n, u64 each) {
    u64 const at = in.at();
    std::byte const* const from = in.take_bytes(field, saturating_mul(n, each));
    sum.copy(to, from, static_cast<std::size_t>(n));
    in.align();
    return at;
  };
  // Where all layers are alike, rows are checked in the same pass.
  layer_geometry const& first = parts.geometry.layers().front();
  bool alike = true;
  for (layer_geometry const& each : parts.geometry.layers()) {
    alike &= each.n_experts == first.n_experts && each.k == first.k;
  }
  auto take_rows = [&](std::string_view field, column<u16>& to, u64 n, u32 k, bool& known) {
    u64 const at = in.at();
    std::byte const* const from = in.take_bytes(field, saturating_mul(n, 2));
    known = sum.copy_rows(to, from, static_cast<std::size_t>(n), alike ? k : 0, first.n_experts);
    in.align();
    return at;
  };
  rows_known known;
  u64 const ids_at = take_rows("ids", parts.ids, h.n_ids, first.k, known.ids);
  u64 const residency_at = take_column("residency", parts.residency,
                                       (h.flags & wst::has_residency) != 0 ? h.n_ids : 0, 1);
  u64 const ahead_at = take_rows("look-ahead", parts.lookahead, n_ahead, h.width, known.lookahead);
  take_column("weights", parts.weights, (h.flags & wst::has_weights) != 0 ? h.n_ids : 0, 4);
  u64 const inputs =
      parts.blocks.empty() ? 0 : parts.blocks.back().inputs_at + parts.blocks.back().n_inputs();
  u64 const tokens_at =
      take_column("tokens", parts.tokens, (h.flags & wst::has_tokens) != 0 ? inputs : 0, 4);
  if (in.left() != 8) {
    in.fail(std::to_string(in.left()) + " bytes follow where the checksum of 8 is due");
  }
  if (sum.finish() != stored_sum) {
    in.fail_at(bytes.size() - 8, "the checksum does not match");
  }
  auto refuse = [&](fault const& f) {
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
    case fault::list::token:
      at = tokens_at + f.index * 4;
      break;
    case fault::list::label:
      at = labels_at + f.index * wst::label_bytes;
      break;
    }
    in.fail_at(at, f.what);
  };
  return recording::checked(std::move(parts), refuse, known);
}

}  // namespace detail

/// Reads Warmset's own trace format, version 1, already decompressed.
///
/// Nothing is allocated before its count was checked against the size. Throws format_error with the
/// byte offset and the field. O(size), close to the cost of copying the bytes.
inline recording read_warmset(std::span<std::byte const> bytes) {
  detail::byte_cursor in("warmset trace", bytes);
  detail::wst_head const head = detail::read_wst_head(in, bytes);
  if (in.left() < 8) {
    in.fail("the checksum is missing");
  }
  u64 const stored = detail::load_le<u64>(bytes.data() + bytes.size() - 8);
  try {
    return detail::read_wst_body(in, bytes, head, stored);
  } catch (format_error const&) {
    // Damage explains whatever else is wrong.
    if (checksum(bytes.first(bytes.size() - 8)) != stored) {
      in.fail_at(bytes.size() - 8, "the checksum does not match");
    }
    throw;
  }
}

}  // namespace trace
}  // namespace warmset::inline v0
