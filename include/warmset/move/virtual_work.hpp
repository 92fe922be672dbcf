// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "host_memory.hpp"
#include "host_stream.hpp"

namespace warmset::inline v0 {
namespace move {

/// A copy between blocks.
struct block_copy {
  block_id to;
  u64 to_offset;
  block_id from;
  u64 from_offset;
  u64 bytes;
};

class virtual_driver;

/// What a kernel sees at its turn: blocks of its own device and mapped host memory, nothing else.
class kernel_access {
 public:
  kernel_access(virtual_driver& driver, u32 device) noexcept : driver_(driver), device_(device) {}

  /// The bytes, or none and a counted fault: another device's block, memory that kernels cannot
  /// read, or a range that is not there.
  std::span<std::byte> bytes(block_id block, u64 offset, u64 n) noexcept;
  /// One word of a block.
  u32* word(block_id block, u64 index) noexcept {
    std::span<std::byte> const b = bytes(block, 4 * index, 4);
    return b.empty() ? nullptr : reinterpret_cast<u32*>(b.data());
  }

 private:
  virtual_driver& driver_;
  u32 device_;
};

/// Work of a kernel: runs when its ticks are over.
struct virtual_kernel {
  void (*run)(void* context, kernel_access& access);
  void* context = nullptr;
  u64 ticks = 0;
};

namespace detail {

/// One piece of work: what a stream holds and what a graph freezes.
struct driver_work {
  enum class kind : u8 { record, wait, copy, kernel, host, word };
  kind of = kind::record;
  u32 device = 0;
  u32 stream = 0;
  u32 event = no_event;
  u64 after_record = 0;
  block_copy copy{no_block, 0, no_block, 0, 0};
  virtual_kernel kernel{nullptr, nullptr, 0};
  void (*host)(void*) = nullptr;
  u64 ticks = 0;
  u32 value = 0;

  static driver_work of_copy(block_copy const& c, u64 ticks) {
    driver_work w;
    w.of = kind::copy;
    w.copy = c;
    w.ticks = ticks;
    return w;
  }
  static driver_work of_kernel(virtual_kernel const& k) {
    driver_work w;
    w.of = kind::kernel;
    w.kernel = k;
    w.ticks = k.ticks;
    return w;
  }
  static driver_work of_host(void (*run)(void*), void* context) {
    driver_work w;
    w.of = kind::host;
    w.host = run;
    w.kernel.context = context;
    return w;
  }
  static driver_work of_word(block_id block, u64 index, u32 value) {
    driver_work w;
    w.of = kind::word;
    w.copy = {block, 4 * index, no_block, 0, 0};
    w.value = value;
    return w;
  }
  static driver_work of_record(u32 event) {
    driver_work w;
    w.event = event;
    return w;
  }
  static driver_work of_wait(u32 event, u64 record) {
    driver_work w;
    w.of = kind::wait;
    w.event = event;
    w.after_record = record;
    return w;
  }
};

}  // namespace detail
}  // namespace move
}  // namespace warmset::inline v0
