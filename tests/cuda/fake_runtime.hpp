// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <warmset/cuda/copy_runtime.hpp>
#include <warmset/move/failure_schedule.hpp>

/// Devices of ordinary memory, for the copy engine: streams lag behind until events are asked, every call can fail, and
/// what is not given back is counted.
namespace warmset_test {

using namespace warmset;

/// What the copies of all runtimes with this world go through.
struct fake_world {
  static constexpr unsigned char poison = 0xDB;

  struct block {
    unsigned char* data;
    u64 bytes;
    move::memory_kind kind;
    u32 device;
    bool registered;
  };
  enum class op_kind : u8 { copy, clear, record, wait };
  struct op {
    op_kind kind;
    unsigned char* to;
    unsigned char const* from;
    u64 bytes;
    u32 event;
    u64 number;
  };
  struct stream {
    u32 device;
    bool live;
    std::size_t first;  ///< of `ops`
    std::vector<op> ops;
  };
  struct event {
    bool live;
    u64 recorded;
    u64 completed;
  };

  explicit fake_world(u32 n_devices = 1, u64 bytes = u64{1} << 30) : left(n_devices, bytes) {
    blocks.reserve(64);
    events.reserve(512);
    streams.reserve(8);
  }

  std::vector<u64> left;  ///< bytes of each device
  std::vector<block> blocks;
  std::vector<stream> streams;
  std::vector<event> events;
  u32 current = 0;
  i32 capture_mode = 0;
  u32 ops_per_query = 1;    ///< that streams get on when an event is asked
  bool batches = true;
  bool batch_works = true;  ///< else it answers unsupported
  bool can_register = true;
  move::failure_schedule fails{};  ///< of all calls, from 0
  bool dead = false;               ///< every call fails, and nothing runs any more
  u64 calls = 0;
  u64 n_batches = 0;
  u64 n_copies = 0;
  u64 smallest_in_batch_of_large = u64_max;  ///< the largest other entry in a batch with one below 256 KiB
  u64 foreign = 0;  ///< copies to memory of another device than the current one, or outside of a block
  u64 unrelaxed = 0;  ///< queries under another capture mode
  std::vector<std::size_t> batch_sizes;

  bool fails_now() noexcept { return fails.fails(calls++) || dead; }

  block* find(void const* at, u64 bytes = 1) noexcept {
    unsigned char const* const p = static_cast<unsigned char const*>(at);
    for (block& b : blocks) {
      if (b.data != nullptr && p >= b.data && p + bytes <= b.data + b.bytes) {
        return &b;
      }
    }
    return nullptr;
  }
  /// Memory of a test's own; pageable unless it says otherwise. Page by page, as an engine's tensors are.
  unsigned char* host(u64 bytes, move::memory_kind kind) {
    u64 const whole = (bytes + 4095) / 4096 * 4096;
    unsigned char* const data = static_cast<unsigned char*>(std::aligned_alloc(4096, whole));
    blocks.push_back({data, whole, kind, u32_max, false});
    return data;
  }
  void free_host(unsigned char* data) noexcept { drop(data); }
  void drop(void* data) noexcept {
    for (block& b : blocks) {
      if (b.data == data && data != nullptr) {
        if (b.device != u32_max) {
          left[b.device] += b.bytes;
        }
        std::free(b.data);
        b = {};
      }
    }
  }

  /// Streams, events, blocks of devices or pinned, and registrations that somebody still holds.
  u32 held() const noexcept {
    u32 n = 0;
    for (stream const& s : streams) {
      n += s.live ? 1 : 0;
    }
    for (event const& e : events) {
      n += e.live ? 1 : 0;
    }
    for (block const& b : blocks) {
      n += b.data != nullptr && (b.registered || b.device != u32_max || b.kind == move::memory_kind::mapped) ? 1 : 0;
    }
    return n;
  }

  /// Runs so many operations of each stream.
  void advance(u64 n) noexcept {
    for (stream& s : streams) {
      for (u64 i = 0; i < n && s.first != s.ops.size(); ++i) {
        op const& o = s.ops[s.first];
        if (o.kind == op_kind::wait && events[o.event].completed < o.number) {
          break;
        }
        ++s.first;
        if (o.kind == op_kind::copy) {
          std::memcpy(o.to, o.from, o.bytes);
        } else if (o.kind == op_kind::clear) {
          std::memset(o.to, 0, o.bytes);
        } else if (o.kind == op_kind::record) {
          events[o.event].completed = o.number;
        }
      }
      if (s.first == s.ops.size()) {
        s.ops.clear();
        s.first = 0;
      }
    }
  }
};

class fake_runtime {
 public:
  using stream = u32;
  using event = u32;
  using result = cuda::call_result;
  static constexpr result ok{};
  static constexpr result failed{reason::device_error, 719};

  fake_runtime() = default;
  explicit fake_runtime(fake_world& w) : w_(&w) {}

  result count_devices(u32& n) noexcept {
    n = w_->fails_now() ? 0 : static_cast<u32>(w_->left.size());
    return n != 0 ? ok : failed;
  }
  result current_device(u32& d) noexcept { return d = w_->current, w_->fails_now() ? failed : ok; }
  result use_device(u32 d) noexcept {
    if (d >= w_->left.size()) {
      return {reason::wrong_device, 101};
    }
    // giving the device back is part of what tests look at, so that it alone never fails
    bool const fails = w_->fails_now();
    w_->current = d;
    return fails && d == 0 ? ok : fails ? (w_->current = 0, failed) : ok;
  }
  result free_bytes(u64& n) noexcept { return n = w_->left[w_->current], w_->fails_now() ? failed : ok; }
  result allocate(void*& p, u64 bytes) noexcept {
    if (w_->fails_now() || bytes > w_->left[w_->current]) {
      return {reason::no_memory, 2};
    }
    unsigned char* const data = static_cast<unsigned char*>(std::malloc(bytes));
    std::memset(data, fake_world::poison, bytes);
    w_->blocks.push_back({data, bytes, move::memory_kind::device, w_->current, false});
    w_->left[w_->current] -= bytes;
    p = data;
    return ok;
  }
  // what gives back has an effect even where it reports an error of somebody before
  result release(void* p) noexcept { return w_->drop(p), w_->fails_now() ? failed : ok; }
  result allocate_pinned(void*& p, u64 bytes) noexcept {
    if (w_->fails_now()) {
      return {reason::no_memory, 2};
    }
    p = w_->host(bytes, move::memory_kind::mapped);
    return ok;
  }
  result release_pinned(void* p) noexcept { return w_->drop(p), w_->fails_now() ? failed : ok; }
  result register_host(void const* p, u64 bytes) noexcept {
    fake_world::block* const b = w_->find(p, bytes);
    if (w_->fails_now() || !w_->can_register || b == nullptr || b->registered) {
      return {reason::device_error, 712};
    }
    b->registered = true;
    return ok;
  }
  result unregister_host(void const* p) noexcept {
    fake_world::block* const b = w_->find(p);
    if (b != nullptr) {
      b->registered = false;
    }
    return w_->fails_now() ? failed : ok;
  }
  result kind_of(void const* p, move::memory_kind& kind) noexcept {
    fake_world::block* const b = w_->find(p);
    kind = b == nullptr ? move::memory_kind::pageable : b->registered ? move::memory_kind::pinned : b->kind;
    return w_->fails_now() ? failed : ok;
  }

  result clear(void* to, u64 bytes, stream s) noexcept {
    return put(s, {fake_world::op_kind::clear, static_cast<unsigned char*>(to), nullptr, bytes, 0, 0}, to, nullptr);
  }
  result make_stream(stream& s) noexcept {
    if (w_->fails_now()) {
      return failed;
    }
    s = static_cast<u32>(w_->streams.size());
    w_->streams.push_back({w_->current, true, 0, {}});
    w_->streams.back().ops.reserve(4096);
    return ok;
  }
  result destroy_stream(stream s) noexcept {
    w_->streams[s].live = false;
    return w_->fails_now() ? failed : ok;
  }
  result make_event(event& e) noexcept {
    if (w_->fails_now()) {
      return failed;
    }
    e = static_cast<u32>(w_->events.size());
    w_->events.push_back({true, 0, 0});
    return ok;
  }
  result destroy_event(event e) noexcept {
    w_->events[e].live = false;
    return w_->fails_now() ? failed : ok;
  }
  result copy(void* to, void const* from, u64 bytes, stream s) noexcept {
    ++w_->n_copies;
    return put(s,
               {fake_world::op_kind::copy, static_cast<unsigned char*>(to), static_cast<unsigned char const*>(from), bytes,
                0, 0},
               to, from);
  }
  bool has_batch_copy() const noexcept { return w_->batches; }
  result copy_batch(void* const* to, void const* const* from, std::size_t const* bytes, std::size_t n,
                    stream s) noexcept {
    if (w_->fails_now()) {
      return failed;
    }
    if (!w_->batch_works) {
      return {reason::unsupported, 801};
    }
    ++w_->n_batches;
    std::size_t least = bytes[0], most = bytes[0];
    for (std::size_t i = 0; i < n; ++i) {
      least = min_of(least, bytes[i]);
      most = max_of(most, bytes[i]);
    }
    if (most >= move::large_copy_bytes) {
      w_->smallest_in_batch_of_large = min_of(w_->smallest_in_batch_of_large, u64{least});
    }
    u64 const calls = w_->calls;
    for (std::size_t i = 0; i < n; ++i) {
      move::failure_schedule const kept = w_->fails;
      w_->fails = {};
      (void)put(s,
                {fake_world::op_kind::copy, static_cast<unsigned char*>(to[i]),
                 static_cast<unsigned char const*>(from[i]), bytes[i], 0, 0},
                to[i], from[i]);
      w_->fails = kept;
    }
    w_->calls = calls;
    return ok;
  }
  result record(event e, stream s) noexcept {
    if (w_->fails_now()) {
      return failed;
    }
    w_->streams[s].ops.push_back({fake_world::op_kind::record, nullptr, nullptr, 0, e, ++w_->events[e].recorded});
    return ok;
  }
  result query(event e) noexcept {
    w_->unrelaxed += w_->capture_mode == 2 ? 0 : 1;
    if (w_->fails_now()) {
      return failed;
    }
    w_->advance(w_->ops_per_query);
    return w_->events[e].completed >= w_->events[e].recorded ? ok : result{reason::busy, 600};
  }
  result order(stream s, event e) noexcept {
    if (w_->fails_now()) {
      return failed;
    }
    w_->streams[s].ops.push_back({fake_world::op_kind::wait, nullptr, nullptr, 0, e, w_->events[e].recorded});
    return ok;
  }
  result synchronise(stream s) noexcept {
    if (w_->fails_now()) {
      return failed;
    }
    while (w_->streams[s].first != w_->streams[s].ops.size()) {
      w_->advance(1);
    }
    return ok;
  }
  result enter_relaxed(i32& before) noexcept {
    before = w_->capture_mode;
    if (w_->fails_now()) {
      return failed;
    }
    w_->capture_mode = 2;
    return ok;
  }
  result leave_relaxed(i32 before) noexcept { return w_->capture_mode = before, ok; }

 private:
  /// A copy or a fill; it is poison until the stream gets there.
  result put(stream s, fake_world::op o, void* to, void const* from) noexcept {
    if (w_->fails_now()) {
      return failed;
    }
    fake_world::block* const b = w_->find(to, o.bytes);
    if (b == nullptr || b->device != w_->streams[s].device || (from != nullptr && w_->find(from, o.bytes) == nullptr)) {
      ++w_->foreign;
      return {reason::device_error, 1};
    }
    std::memset(to, fake_world::poison, o.bytes);
    w_->streams[s].ops.push_back(o);
    return ok;
  }
  fake_world* w_ = nullptr;
};

static_assert(cuda::copy_runtime<fake_runtime>, "the fake runtime must satisfy copy_runtime");

}  // namespace warmset_test
