// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <warmset/cuda/device_step.hpp>
#include <warmset/move/backend.hpp>
#include <warmset/table/table.hpp>

#include "cuda/fixture.hpp"

/// A pool with bytes, as step_on_device and gather take it: what the tests on the host and on a device build alike.
namespace steps {

/// The experts' bytes: every bank of every row, each byte telling where it is from.
class sources {
 public:
  sources(std::vector<layer_geometry> const& rows, std::vector<u64> bank_bytes) : bank_bytes_(std::move(bank_bytes)) {
    for (u32 row = 0; row < rows.size(); ++row) {
      for (u32 bank = 0; bank < bank_bytes_.size(); ++bank) {
        std::vector<unsigned char>& bytes = tensors_.emplace_back(rows[row].n_experts * bank_bytes_[bank]);
        for (std::size_t i = 0; i < bytes.size(); ++i) {
          bytes[i] = value(row, bank, static_cast<u32>(i / bank_bytes_[bank]), i % bank_bytes_[bank]);
        }
      }
    }
  }

  static WARMSET_HD unsigned char value(u32 row, u32 bank, u32 expert, u64 at) {
    u64 const x = ((u64{row} * 31 + bank) * 1009 + expert) * 0x9E37'79B9'7F4A'7C15ull + at * 0xD134'2543'DE82'EF95ull;
    return static_cast<unsigned char>(x >> 56);
  }

  u32 n_banks() const { return static_cast<u32>(bank_bytes_.size()); }
  u64 bytes(u32 bank) const { return bank_bytes_[bank]; }
  std::vector<unsigned char> const& tensor(u32 row, u32 bank) const { return tensors_[row * n_banks() + bank]; }

 private:
  std::vector<u64> bank_bytes_;
  std::vector<std::vector<unsigned char>> tensors_;  // [row][bank]
};

/// Sizes that vector loads cannot take as a whole, and one that they can.
inline std::vector<u64> odd_banks() {
  return {96, 52, 7};
}

inline constexpr u32 piece_bytes = 32;

inline u32 pieces_of(std::vector<u64> const& banks) {
  u32 n = 0;
  for (u64 bytes : banks) {
    n += static_cast<u32>(ceil_div(bytes, u64{piece_bytes}));
  }
  return n;
}

}  // namespace steps
