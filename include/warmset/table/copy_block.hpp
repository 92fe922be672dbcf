// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>

#include "block.hpp"

namespace warmset::inline v0 {

/// memcpy, as copy_block wants it.
struct host_copy {
  status operator()(void const* from, void* to, u64 bytes) const noexcept {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return done;
  }
};

/// Copies a table's block into storage of the same size and gives the copy its epoch: the hand-over from one
/// holder to the next. The storage is neither created nor cleared here, and the source is only read. The
/// caller has seen to it that nobody is inside (gate/hand_over.hpp).
///
/// @param copy  copies bytes between the two memories: copy(from, to, bytes) -> status. It is called for the
///              block and then for the epoch's word; where one is refused the copy is nobody's table
/// Complexity: O(block).
template <class Policy, class Copy = host_copy>
status copy_block(table_reader<Policy> const& from, void* to, u32 epoch, Copy&& copy = {}) {
  if (status const all = copy(from.block(), to, block_layout<Policy>{from.shape()}.size); !all) {
    return all;
  }
  return copy(&epoch, static_cast<unsigned char*>(to) + offsetof(block_header, epoch),
              u64{sizeof epoch});
}

}  // namespace warmset::inline v0
