// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "../core/result.hpp"

namespace warmset::inline v0 {
namespace move {

/// Calls to a driver, as far as capture tells them apart.
enum class stream_call : u8 {
  copy,           ///< of pinned, mapped or device memory
  copy_pageable,  ///< either side is pageable host memory
  copy_batch,
  launch,
  launch_host,      ///< a host function in the stream
  launch_callback,  ///< a host function in the stream, by the older call that no graph can hold
  record,
  wait_captured,  ///< for an event recorded inside this capture, or none of any
  wait_foreign,   ///< inside a capture, for an event recorded outside
  wait_word,      ///< a stream waits for a word of mapped memory
  query,
  synchronise,
  allocate,
  release,
  launch_graph,
};

inline constexpr u32 n_stream_calls = 15;

constexpr char const* name_of(stream_call c) noexcept {
  constexpr char const* names[n_stream_calls] = {
      "copy",     "copy_pageable", "copy_batch",   "launch",    "launch_host", "launch_callback",
      "record",   "wait_captured", "wait_foreign", "wait_word", "query",       "synchronise",
      "allocate", "release",       "launch_graph"};
  return static_cast<u32>(c) < n_stream_calls ? names[static_cast<u32>(c)] : "unknown";
}

/// Where a rule holds while a capture is open.
enum class rule_scope : u8 {
  captured,    ///< for streams that take part in the capture; the others go on
  everywhere,  ///< whichever stream is asked: calls that a capture in global mode forbids to all
};

/// What a call does while a capture is open.
struct capture_rule {
  stream_call call;
  reason why;        ///< none = allowed, and recorded with its addresses and values frozen
  bool invalidates;  ///< a refused call spoils the capture as well
  rule_scope scope;
};

/// The rules, in the order of stream_call: CUDA's, as measured with CUDA 13.0 (driver 580) or as its
/// documentation says, and some that are stricter. docs/host-backend.md says which is which.
inline constexpr capture_rule capture_rules[n_stream_calls] = {
    {stream_call::copy, reason::none, false, rule_scope::captured},
    {stream_call::copy_pageable, reason::pageable, true, rule_scope::everywhere},
    {stream_call::copy_batch, reason::unsupported, false, rule_scope::captured},
    {stream_call::launch, reason::none, false, rule_scope::captured},
    {stream_call::launch_host, reason::none, false, rule_scope::captured},
    {stream_call::launch_callback, reason::unsupported, true, rule_scope::captured},
    {stream_call::record, reason::none, false, rule_scope::captured},
    {stream_call::wait_captured, reason::none, false, rule_scope::captured},
    {stream_call::wait_foreign, reason::unsupported, true, rule_scope::captured},
    {stream_call::wait_word, reason::none, false, rule_scope::captured},
    {stream_call::query, reason::unsupported, true, rule_scope::everywhere},
    {stream_call::synchronise, reason::unsupported, true, rule_scope::everywhere},
    {stream_call::allocate, reason::unsupported, true, rule_scope::everywhere},
    {stream_call::release, reason::unsupported, true, rule_scope::everywhere},
    {stream_call::launch_graph, reason::unsupported, false, rule_scope::captured},
};

constexpr capture_rule const& rule_of(stream_call c) noexcept {
  return capture_rules[static_cast<u32>(c)];
}

namespace detail {

consteval bool capture_rules_are_total() {
  for (u32 i = 0; i < n_stream_calls; ++i) {
    capture_rule const& r = capture_rules[i];
    bool const allowed = r.why == reason::none;
    if (static_cast<u32>(r.call) != i || (allowed && r.invalidates) ||
        (allowed && r.scope == rule_scope::everywhere)) {
      return false;
    }
  }
  return true;
}
static_assert(capture_rules_are_total(),
              "every stream_call has its rule, in order, and only refused calls invalidate or are "
              "a matter of streams outside the capture");

}  // namespace detail

/// A capture that is open: which streams take part, and whether all of them came back. A stream
/// joins by waiting for an event of the capture; it has come back when a participant has waited for
/// an event recorded after its last work.
class open_capture {
 public:
  bool is_open() const noexcept { return !streams_.empty(); }
  bool is_valid() const noexcept { return is_valid_; }
  u32 origin() const noexcept { return streams_.front().stream; }
  stream_call broken_by() const noexcept { return broken_by_; }

  void open(u32 origin) {
    events_.clear();
    is_valid_ = true;
    streams_.assign(1, {origin, 0, true});
  }
  void close() noexcept { streams_.clear(); }
  void invalidate(stream_call by) noexcept {
    if (is_valid_) {
      is_valid_ = false;
      broken_by_ = by;
    }
  }

  bool holds(u32 stream) const noexcept { return find(stream) != nullptr; }
  bool holds_event(u32 event) const noexcept { return find_event(event) != nullptr; }

  /// The stream was given work.
  void note_work(u32 stream) noexcept {
    participant* const p = find(stream);
    ++p->work;
    p->is_back = p == streams_.data();
  }
  void note_record(u32 stream, u32 event) {
    forget(event);
    events_.push_back({event, stream, find(stream)->work});
  }
  /// The event was recorded outside since.
  void forget(u32 event) noexcept {
    for (captured_event& e : events_) {
      e.event = e.event == event ? u32_max : e.event;
    }
  }
  /// The stream waits for an event that the capture holds.
  void note_wait(u32 stream, u32 event) {
    captured_event const& e = *find_event(event);
    if (participant* const p = find(e.stream); p->stream != stream && p->work == e.work) {
      p->is_back = true;
    }
    if (!holds(stream)) {
      streams_.push_back({stream, 0, false});
    } else {
      note_work(stream);
    }
  }
  bool all_back() const noexcept {
    for (participant const& p : streams_) {
      if (!p.is_back) {
        return false;
      }
    }
    return true;
  }

 private:
  struct participant {
    u32 stream;
    u64 work;
    bool is_back;
  };
  struct captured_event {
    u32 event;
    u32 stream;
    u64 work;
  };

  participant const* find(u32 stream) const noexcept {
    for (participant const& p : streams_) {
      if (p.stream == stream) {
        return &p;
      }
    }
    return nullptr;
  }
  participant* find(u32 stream) noexcept {
    return const_cast<participant*>(static_cast<open_capture const*>(this)->find(stream));
  }
  captured_event const* find_event(u32 event) const noexcept {
    for (captured_event const& e : events_) {
      if (e.event == event) {
        return &e;
      }
    }
    return nullptr;
  }

  std::vector<participant> streams_;  ///< the first is the origin; empty = no capture is open
  std::vector<captured_event> events_;
  bool is_valid_ = true;
  stream_call broken_by_ = stream_call::copy;
};

}  // namespace move
}  // namespace warmset::inline v0
