// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bytes.hpp"

namespace warmset::inline v0 {
namespace trace {

/// Sizes and flags of the trace format; docs/trace-format.md describes every byte.
namespace wst {
inline constexpr u64 magic = 0x0A54'4553'4D52'4157ull;  // "WARMSET\n"
inline constexpr u32 version = 1;
inline constexpr u64 header_bytes = 80;
inline constexpr u64 layer_bytes = 16;
inline constexpr u64 block_bytes = 32;
inline constexpr u64 label_bytes = 8;
inline constexpr u32 has_residency = 1;
inline constexpr u32 has_weights = 2;
inline constexpr u32 assumes_expert_bytes = 4;
inline constexpr u32 has_tokens = 8;
inline constexpr u32 all_flags = 15;

constexpr u64 aligned(u64 n) noexcept {
  return (n + 7) / 8 * 8;
}
}  // namespace wst

/// The recording in Warmset's own trace format, version 1. Throws config_error where a text is
/// longer than 32 bits can say. O(size).
inline std::vector<std::byte> write_warmset(recording const& r) {
  std::vector<layer_geometry> const& layers = r.geometry().layers();
  u64 n_banks = 0;
  for (layer_geometry const& layer : layers) {
    n_banks += layer.bank_bytes.size();
  }
  u64 text = r.model().size() + r.source().size();
  for (sequence_label const& l : r.labels()) {
    text += l.label.size();
  }
  if (text > u32_max || n_banks > u32_max || r.blocks().size() > u32_max ||
      r.labels().size() > u32_max) {
    throw config_error("trace: texts, banks, blocks or labels need counts of more than 32 bits");
  }
  u64 const n_ids = r.ids().size();
  u64 const size = wst::header_bytes + layers.size() * wst::layer_bytes + n_banks * 8 +
                   r.blocks().size() * wst::block_bytes + r.labels().size() * wst::label_bytes +
                   wst::aligned(text) + wst::aligned(n_ids * 2) +
                   wst::aligned(r.residency().size()) + wst::aligned(r.lookahead().size() * 2) +
                   wst::aligned(r.weights().size() * 4) + wst::aligned(r.tokens().size() * 4) + 8;
  std::vector<std::byte> out(static_cast<std::size_t>(size));
  std::byte* p = out.data();
  auto put = [&p](auto value) {
    detail::store_le(p, value);
    p += sizeof(value);
  };
  auto put_text = [&p](std::string const& s) {
    std::memcpy(p, s.data(), s.size());
    p += s.size();
  };
  auto align = [&] { p = out.data() + wst::aligned(static_cast<u64>(p - out.data())); };
  auto put_column = [&](auto values) {
    detail::store_column(p, values);
    p += values.size_bytes();
    align();
  };
  put(wst::magic);
  put(wst::version);
  put(static_cast<u32>((r.residency().empty() ? 0 : wst::has_residency) |
                       (r.weights().empty() ? 0 : wst::has_weights) |
                       (r.tokens().empty() ? 0 : wst::has_tokens) |
                       (r.expert_bytes_assumed() ? wst::assumes_expert_bytes : 0)));
  put(size);
  put(r.geometry().fingerprint());
  put(n_ids);
  put(static_cast<u32>(layers.size()));
  put(static_cast<u32>(n_banks));
  put(static_cast<u32>(r.blocks().size()));
  put(static_cast<u32>(r.labels().size()));
  put(r.lookahead_width());
  put(static_cast<u32>(r.model().size()));
  put(static_cast<u32>(r.source().size()));
  put(u32{0});
  put(u64{0});
  for (layer_geometry const& layer : layers) {
    put(layer.layer.value);
    put(layer.n_experts);
    put(layer.k);
    put(static_cast<u32>(layer.bank_bytes.size()));
  }
  for (layer_geometry const& layer : layers) {
    for (u64 bytes : layer.bank_bytes) {
      put(bytes);
    }
  }
  for (block const& b : r.blocks()) {
    put(b.sequence);
    put(b.first_position);
    put(static_cast<u32>(b.phase));
    put(b.first_row);
    put(b.n_rows);
    put(b.n_steps);
    put(b.n_tokens);
    put(b.k);
  }
  for (sequence_label const& l : r.labels()) {
    put(l.sequence);
    put(static_cast<u32>(l.label.size()));
  }
  put_text(r.model());
  put_text(r.source());
  for (sequence_label const& l : r.labels()) {
    put_text(l.label);
  }
  align();
  put_column(r.ids());
  put_column(r.residency());
  put_column(r.lookahead());
  put_column(r.weights());
  put_column(r.tokens());
  put(checksum({out.data(), out.size() - 8}));
  return out;
}

}  // namespace trace
}  // namespace warmset::inline v0
