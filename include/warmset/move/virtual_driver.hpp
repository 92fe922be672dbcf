// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "host_capture.hpp"
#include "host_faults.hpp"
#include "host_memory.hpp"
#include "host_stream.hpp"
#include "virtual_work.hpp"

namespace warmset::inline v0 {
namespace move {

/// A device of a virtual driver. Devices of one link share it.
struct virtual_device {
  u64 budget = u64_max;  ///< bytes
  u32 link = 0;
};

/// A device driver without devices: memory with budgets, streams, events, capture and graphs on a
/// virtual clock, every call with a typed result and every fault on demand.
///
/// A copy poisons its destination when it begins and writes it when it ends. What is in flight or
/// captured refers to its blocks, which are then not released. A graph replays what was captured in
/// the order of the calls, with the addresses and values of then. One capture may be open at a
/// time, in CUDA's global mode: some calls it forbids to all, others to streams that take part in
/// it alone (`rule_scope`).
///
/// Refused with: `device_error` (an injected fault, or an earlier failed copy that an event
/// reports), `out_of_range`, `wrong_device`, `over_budget`, `no_memory`, `in_use`, `busy`,
/// and what capture_rules say. A test's instrument: calls may allocate. One thread. Does not move.
class virtual_driver {
 public:
  static constexpr std::byte poison{0xDB};

  explicit virtual_driver(std::vector<link_model> const& links = {link_model{}},
                          std::vector<virtual_device> const& devices = {virtual_device{}})
      : memory_(budgets_of(devices)), devices_(devices) {
    for (link_model const& m : links) {
      streams_.add_link(m);
    }
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (devices[i].link >= links.size()) {
        throw config_error("device ", i, " hangs on link ", devices[i].link, " of ", links.size());
      }
    }
  }
  virtual_driver(virtual_driver const&) = delete;
  virtual_driver& operator=(virtual_driver const&) = delete;

  fault_injector& faults() noexcept { return faults_; }
  fault_injector const& faults() const noexcept { return faults_; }
  virtual_streams& streams() noexcept { return streams_; }
  virtual_streams const& streams() const noexcept { return streams_; }
  host_memory& memory() noexcept { return memory_; }
  host_memory const& memory() const noexcept { return memory_; }
  u32 n_devices() const noexcept { return memory_.n_devices(); }
  u32 link_of(u32 device) const noexcept { return devices_[device].link; }
  u64 now() const noexcept { return streams_.now(); }

  // ---- memory

  allocation allocate(u32 device, u64 bytes, u64 alignment = 1) noexcept {
    return allocate(device, memory_kind::device, bytes, alignment);
  }
  allocation allocate_host(memory_kind kind, u64 bytes, u64 alignment = 1) noexcept {
    return allocate(host_tier, kind, bytes, alignment);
  }
  status release(block_id block) noexcept {
    if (status const s = enter(stream_call::release); !s) {
      return s;
    }
    if (faults_.strikes(fault_point::release)) {
      return {reason::device_error};
    }
    return memory_.release(block);
  }

  // ---- streams and events

  u32 make_stream(u32 device, std::size_t room = 16) {
    stream_info_.push_back({device, false});
    return streams_.add_stream(room);
  }
  u32 make_event() {
    event_failed_.push_back(0);
    return streams_.add_event();
  }
  u32 device_of(u32 stream) const noexcept { return stream_info_[stream].device; }

  /// One copy: to or from the stream's device. The host side may be any host memory; the source may
  /// be another device's.
  status copy(u32 stream, block_copy const& c) {
    bool const pageable = touches_pageable(c);
    return issue(stream, pageable ? stream_call::copy_pageable : stream_call::copy,
                 driver_work::of_copy(c, link_ticks(stream, c, u64_max)));
  }

  /// Several copies in one call, which pays the link's latency once. All or none are enqueued.
  status copy_batch(u32 stream, array_view<block_copy const> copies) {
    for (block_copy const& c : copies) {
      if (status const s = check(stream, c); !s) {
        return s;
      }
    }
    if (status const s = enter(stream_call::copy_batch, stream); !s) {
      return s;
    }
    if (faults_.strikes(fault_point::launch)) {
      return {reason::device_error};
    }
    u64 smallest = u64_max;
    for (block_copy const& c : copies) {
      smallest = min_of(smallest, c.bytes);
    }
    link_model const& model = streams_.link(link_of(device_of(stream))).model;
    for (std::size_t i = 0; i < copies.size(); ++i) {
      u64 ticks = link_ticks(stream, copies[i], smallest);
      ticks += i == 0 && ticks != 0 ? model.latency : 0;
      enqueue(stream, driver_work::of_copy(copies[i], ticks));
    }
    return done;
  }

  status launch(u32 stream, virtual_kernel const& k) {
    return issue(stream, stream_call::launch, driver_work::of_kernel(k));
  }
  /// A host function that runs at the stream's turn.
  status launch_host(u32 stream, void (*run)(void* context), void* context) {
    return issue(stream, stream_call::launch_host, driver_work::of_host(run, context));
  }
  /// The same by the older call, which no capture takes.
  status launch_callback(u32 stream, void (*run)(void* context), void* context) {
    return issue(stream, stream_call::launch_callback, driver_work::of_host(run, context));
  }
  /// The stream goes on once a word of mapped memory is at least `value`.
  status wait_word(u32 stream, block_id block, u64 index, u32 value) {
    if (!memory_.covers(block, 4 * index, 4)) {
      return {reason::out_of_range};
    }
    if (memory_.kind(block) != memory_kind::mapped) {
      return {reason::wrong_device};
    }
    return issue(stream, stream_call::wait_word, driver_work::of_word(block, index, value));
  }

  status record(u32 event, u32 stream) {
    if (status const s = enter(stream_call::record, stream); !s) {
      return s;
    }
    if (faults_.strikes(fault_point::event)) {
      return {reason::device_error};
    }
    if (captures(stream)) {
      capture_.note_record(stream, event);
      return done;
    }
    capture_.forget(event);
    driver_work w = driver_work::of_record(event);
    enqueue(stream, w);
    return done;
  }

  /// What the stream is given from now on begins after the event's last record so far; an event
  /// that was never recorded holds nothing up. A stream that waits for an event of the open capture
  /// takes part in it.
  status wait(u32 stream, u32 event) {
    if (is_frozen(event)) {
      return {reason::unsupported};
    }
    bool const of_capture = capture_.is_open() && capture_.holds_event(event);
    bool const foreign = captures(stream) && !of_capture;
    stream_call const call = foreign ? stream_call::wait_foreign : stream_call::wait_captured;
    if (status const s = enter(call, stream); !s) {
      return s;
    }
    if (of_capture) {
      capture_.note_wait(stream, event);
      return done;
    }
    if (u64 const record = streams_.recorded(event); record != 0) {
      enqueue(stream, driver_work::of_wait(event, record));
    }
    return done;
  }

  /// Whether the event's last record is complete: done, `busy`, or `device_error` where a copy
  /// before it failed.
  status query(u32 event) {
    if (status const s = enter(stream_call::query); !s) {
      return s;
    }
    if (is_frozen(event)) {
      return {reason::unsupported};
    }
    if (faults_.strikes(fault_point::event)) {
      return {reason::device_error};
    }
    if (streams_.completed(event) < streams_.recorded(event)) {
      return {reason::busy};
    }
    return event_failed_[event] != 0 ? status{reason::device_error} : done;
  }

  /// Runs the clock until the stream is idle; `busy` where it waits for what will not come.
  status synchronise(u32 stream) {
    if (status const s = enter(stream_call::synchronise, stream); !s) {
      return s;
    }
    return streams_.advance_to_idle(stream) ? done : status{reason::busy};
  }

  // ---- capture

  /// Refused with `busy` where a capture is open.
  status begin_capture(u32 stream) {
    if (capture_.is_open()) {
      return {reason::busy};
    }
    capture_.open(stream);
    nodes_.clear();
    return done;
  }
  bool captures(u32 stream) const noexcept { return capture_.is_open() && capture_.holds(stream); }
  /// Whether the open capture, or the last one, is still good; `broken_by` names the call that
  /// spoiled it.
  bool capture_is_valid() const noexcept { return capture_.is_valid(); }
  stream_call broken_by() const noexcept { return capture_.broken_by(); }

  /// Ends the capture and gives a graph. Refused with `unsupported` where the capture is spoiled or
  /// a forked stream has not come back (the capture is then gone), or the stream did not begin it.
  status end_capture(u32 stream, u32& graph) {
    if (!capture_.is_open() || capture_.origin() != stream) {
      return {reason::unsupported};
    }
    bool const good = capture_.is_valid() && capture_.all_back();
    capture_.close();
    if (!good) {
      for (driver_work const& w : nodes_) {
        refer(w, false);
      }
      nodes_.clear();
      return {reason::unsupported};
    }
    graph = static_cast<u32>(graphs_.size());
    graphs_.push_back(nodes_);
    nodes_.clear();
    return done;
  }

  /// Puts all of a graph into a stream of the device it was captured on.
  status launch_graph(u32 graph, u32 stream) {
    if (status const s = enter(stream_call::launch_graph, stream); !s) {
      return s;
    }
    if (faults_.strikes(fault_point::launch)) {
      return {reason::device_error};
    }
    for (driver_work const& w : graphs_[graph]) {
      if (device_of(stream) != w.device) {
        return {reason::wrong_device};
      }
    }
    for (driver_work const& w : graphs_[graph]) {
      enqueue(stream, w);
    }
    return done;
  }
  u32 n_nodes(u32 graph) const noexcept { return static_cast<u32>(graphs_[graph].size()); }
  /// The graph refers to its blocks no more and is empty.
  void destroy_graph(u32 graph) noexcept {
    for (driver_work const& w : graphs_[graph]) {
      refer(w, false);
    }
    graphs_[graph].clear();
  }

  // ---- owners

  void add_owner() noexcept { ++n_owners_; }
  /// True: it was the last.
  bool drop_owner() noexcept { return --n_owners_ == 0; }

  // ---- what happened

  /// Calls so far, refused ones included; and those made while a capture was open, whichever stream
  /// they were for.
  u64 calls(stream_call c) const noexcept { return calls_[static_cast<u32>(c)]; }
  u64 calls_in_capture(stream_call c) const noexcept { return captured_[static_cast<u32>(c)]; }
  u64 failed_copies() const noexcept { return n_failed_copies_; }
  u64 copied_bytes() const noexcept { return copied_bytes_; }
  /// Accesses of kernels to what they cannot see.
  u64 access_faults() const noexcept { return n_access_faults_; }

 private:
  friend class kernel_access;
  using driver_work = detail::driver_work;

  struct stream_facts {
    u32 device;
    bool failed;  ///< a copy since the last record
  };

  static std::vector<u64> budgets_of(std::vector<virtual_device> const& devices) {
    std::vector<u64> budgets;
    for (virtual_device const& d : devices) {
      budgets.push_back(d.budget);
    }
    return budgets;
  }

  allocation allocate(u32 device, memory_kind kind, u64 bytes, u64 alignment) noexcept {
    if (status const s = enter(stream_call::allocate); !s) {
      return {no_block, s.why, device};
    }
    if (faults_.strikes(fault_point::allocate)) {
      return {no_block, reason::no_memory, device};
    }
    return memory_.allocate(device, kind, bytes, alignment);
  }

  /// Counts the call and applies the rule of an open capture.
  /// @param stream  that the call is for, if it is for one
  status enter(stream_call call, u32 stream = u32_max) noexcept {
    ++calls_[static_cast<u32>(call)];
    if (!capture_.is_open()) {
      return done;
    }
    ++captured_[static_cast<u32>(call)];
    capture_rule const& rule = rule_of(call);
    if (rule.scope == rule_scope::captured && !captures(stream)) {
      return done;
    }
    if (rule.invalidates) {
      capture_.invalidate(call);
    }
    return {rule.why};
  }

  /// Recorded in a capture that has ended: it belongs to the graph until it is recorded anew.
  bool is_frozen(u32 event) const noexcept {
    return !capture_.is_open() && capture_.holds_event(event);
  }

  bool touches_pageable(block_copy const& c) const noexcept {
    return (memory_.is_live(c.to) && memory_.kind(c.to) == memory_kind::pageable) ||
           (memory_.is_live(c.from) && memory_.kind(c.from) == memory_kind::pageable);
  }

  /// A copy writes its own device, or reads it where it writes the host.
  status check(u32 stream, block_copy const& c) const noexcept {
    if (!memory_.covers(c.to, c.to_offset, c.bytes) ||
        !memory_.covers(c.from, c.from_offset, c.bytes)) {
      return {reason::out_of_range};
    }
    bool const to_host = is_host_readable(memory_.kind(c.to));
    block_id const own = to_host ? c.from : c.to;
    if (memory_.kind(own) != memory_kind::device || memory_.device(own) != device_of(stream)) {
      return {reason::wrong_device};
    }
    return done;
  }

  /// @param smallest  of the copy's batch; u64_max = it is alone and pays the latency itself
  u64 link_ticks(u32 stream, block_copy const& c, u64 smallest) const noexcept {
    link_model const& m = streams_.link(link_of(device_of(stream))).model;
    return smallest == u64_max ? m.copy_ticks(c.bytes)
                               : m.entry_ticks(c.bytes, m.class_of(smallest));
  }

  status issue(u32 stream, stream_call call, driver_work const& w) {
    if (w.of == driver_work::kind::copy) {
      if (status const s = check(stream, w.copy); !s) {
        return s;
      }
    }
    if (status const s = enter(call, stream); !s) {
      return s;
    }
    if (faults_.strikes(fault_point::launch)) {
      return {reason::device_error};
    }
    if (captures(stream)) {
      capture_.note_work(stream);
      nodes_.push_back(w);
      nodes_.back().device = device_of(stream);
      refer(w, true);
    } else {
      enqueue(stream, w);
    }
    return done;
  }

  void refer(driver_work const& w, bool more) noexcept {
    for (block_id b : {w.copy.to, w.copy.from}) {
      if (b != no_block) {
        more ? memory_.refer(b) : memory_.drop(b);
      }
    }
  }

  void enqueue(u32 stream, driver_work const& w) {
    if (free_works_.empty()) {
      free_works_.push_back(works_.size());
      works_.emplace_back();
    }
    u64 const at = free_works_.back();
    free_works_.pop_back();
    works_[at] = w;
    works_[at].stream = stream;
    works_[at].device = device_of(stream);
    refer(w, true);
    stream_op op;
    op.ticks = w.ticks;
    op.context = this;
    op.argument = at;
    op.end = &virtual_driver::end_work;
    switch (w.of) {
    case driver_work::kind::record:
      op.records = w.event;
      break;
    case driver_work::kind::wait:
      op.after = w.event;
      op.after_record = w.after_record;
      break;
    case driver_work::kind::copy:
      op.link = link_of(device_of(stream));
      op.begin = &virtual_driver::begin_copy;
      break;
    case driver_work::kind::word:
      op.word = reinterpret_cast<u32 const*>(memory_.peek(w.copy.to).data() + w.copy.to_offset);
      op.at_least = w.value;
      break;
    case driver_work::kind::kernel:
    case driver_work::kind::host:
      break;
    }
    streams_.enqueue(stream, op);
  }

  static void begin_copy(void* context, u64 at) {
    virtual_driver& self = *static_cast<virtual_driver*>(context);
    block_copy const& c = self.works_[at].copy;
    std::memset(self.memory_.peek(c.to).data() + c.to_offset, static_cast<int>(poison), c.bytes);
  }

  static void end_work(void* context, u64 at, bool abandoned) {
    virtual_driver& self = *static_cast<virtual_driver*>(context);
    driver_work const w = self.works_[at];  // a kernel may enqueue more
    self.free_works_.push_back(at);
    self.refer(w, false);
    self.finish(w, abandoned);
  }

  void finish(driver_work const& w, bool abandoned) noexcept {
    stream_facts& s = stream_info_[w.stream];
    switch (w.of) {
    case driver_work::kind::copy:
      if (faults_.strikes(fault_point::copy) || abandoned) {
        ++n_failed_copies_;
        s.failed = true;
      } else {
        block_copy const& c = w.copy;
        std::memcpy(memory_.peek(c.to).data() + c.to_offset,
                    memory_.peek(c.from).data() + c.from_offset, c.bytes);
        copied_bytes_ += c.bytes;
      }
      break;
    case driver_work::kind::kernel:
      if (!abandoned) {
        kernel_access access(*this, w.device);
        w.kernel.run(w.kernel.context, access);
      }
      break;
    case driver_work::kind::host:
      if (!abandoned) {
        w.host(w.kernel.context);
      }
      break;
    case driver_work::kind::record:
      event_failed_[w.event] = s.failed ? 1 : 0;
      s.failed = false;
      break;
    case driver_work::kind::wait:
    case driver_work::kind::word:
      break;
    }
  }

  fault_injector faults_;
  host_memory memory_;
  virtual_streams streams_;
  std::vector<virtual_device> devices_;
  std::vector<stream_facts> stream_info_;
  std::vector<u8> event_failed_;
  std::vector<driver_work> works_;  ///< what streams hold, and places that are free
  std::vector<u64> free_works_;
  open_capture capture_;
  std::vector<driver_work> nodes_;  ///< of the open capture
  std::vector<std::vector<driver_work>> graphs_;
  u64 calls_[n_stream_calls] = {};
  u64 captured_[n_stream_calls] = {};
  u64 n_failed_copies_ = 0;
  u64 copied_bytes_ = 0;
  u64 n_access_faults_ = 0;
  u32 n_owners_ = 0;
};

inline std::span<std::byte> kernel_access::bytes(block_id block, u64 offset, u64 n) noexcept {
  host_memory& memory = driver_.memory_;
  bool const visible =
      memory.covers(block, offset, n) && is_kernel_readable(memory.kind(block)) &&
      (memory.kind(block) == memory_kind::mapped || memory.device(block) == device_);
  if (!visible) {
    ++driver_.n_access_faults_;
    return {};
  }
  return memory.peek(block).subspan(offset, n);
}

}  // namespace move
}  // namespace warmset::inline v0
