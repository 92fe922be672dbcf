// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "link.hpp"

namespace warmset::inline v0 {
namespace move {

inline constexpr u32 no_event = u32_max;
inline constexpr u32 no_link = u32_max;

/// What one operation of a stream waits for, occupies and does. `begin` and `end` run at their
/// ticks; a null one does nothing. `end` learns whether the operation was abandoned: its engine is
/// dead, or its stream was closed. Both must not throw.
struct stream_op {
  u64 ticks = 0;
  u32 link = no_link;  ///< occupied from begin to end
  u32 after = no_event;
  u64 after_record = 0;       ///< begins once `after` has completed this record
  u32 const* word = nullptr;  ///< begins once *word >= at_least
  u32 at_least = 0;
  u32 records = no_event;  ///< completes this event at its end
  void (*begin)(void* context, u64 argument) = nullptr;
  void (*end)(void* context, u64 argument, bool abandoned) = nullptr;
  void* context = nullptr;
  u64 argument = 0;
};

/// How the engine behind a stream does.
struct engine_state {
  enum class kind : u8 {
    running,
    paused,  ///< what runs ends, nothing begins
    dead,    ///< everything is abandoned at its turn, in no time
  };
  kind state = kind::running;
  u64 slowness = 1;  ///< every operation takes so many times its ticks
};

/// Streams that lag behind on one virtual clock: operations of a stream run in order, those of
/// different streams side by side, those over one link one at a time.
///
/// Order at one tick: ends before begins; ends in stream order, begins in the order they were
/// enqueued. Everything is a function of the calls. enqueue allocates only where a stream has more
/// operations than room was made for; nothing else does but the makers. Complexity: O(streams) per
/// begin and end.
class virtual_streams {
 public:
  u64 now() const noexcept { return now_; }
  u32 n_streams() const noexcept { return static_cast<u32>(streams_.size()); }

  u32 add_link(link_model const& m) {
    links_.push_back({m});
    return static_cast<u32>(links_.size() - 1);
  }
  serial_link const& link(u32 id) const noexcept { return links_[id]; }

  /// @param room  operations it holds without allocating
  u32 add_stream(std::size_t room = 16) {
    streams_.emplace_back();
    streams_.back().ring.resize(max_of(room, std::size_t{1}));
    return static_cast<u32>(streams_.size() - 1);
  }
  /// Makes room for so many operations.
  void reserve(u32 stream, std::size_t room) {
    while (streams_[stream].ring.size() < room) {
      grow(streams_[stream]);
    }
  }
  u32 add_event() {
    events_.emplace_back();
    return static_cast<u32>(events_.size() - 1);
  }

  /// Puts an operation at the end of a stream. Where it records an event, that is the event's next
  /// record.
  void enqueue(u32 stream, stream_op const& op) {
    lane& s = streams_[stream];
    if (s.n == s.ring.size()) {
      grow(s);
    }
    u64 const record = op.records == no_event ? 0 : ++events_[op.records].recorded;
    s.ring[(s.first + s.n++) % s.ring.size()] = {op, now_, sequence_++, record};
  }

  /// Records of the event that were enqueued, and the highest that has completed.
  u64 recorded(u32 event) const noexcept { return events_[event].recorded; }
  u64 completed(u32 event) const noexcept { return events_[event].completed; }

  u32 pending(u32 stream) const noexcept { return static_cast<u32>(streams_[stream].n); }
  bool idle(u32 stream) const noexcept { return streams_[stream].n == 0; }
  bool idle() const noexcept {
    for (lane const& s : streams_) {
      if (s.n != 0) {
        return false;
      }
    }
    return true;
  }

  engine_state engine(u32 stream) const noexcept { return streams_[stream].engine; }
  /// Takes effect at the next begin.
  void set_engine(u32 stream, engine_state e) noexcept { streams_[stream].engine = e; }

  /// Moves the clock and runs what the streams get to by then.
  void advance(u64 ticks) noexcept {
    u64 const until = ticks > u64_max - now_ ? u64_max : now_ + ticks;
    while (run_next(until)) {
    }
    now_ = until;
  }

  /// Runs until nothing can run; the clock stops there. What waits for a paused engine, a word or a
  /// record that nobody enqueued stays. Returns the ticks that took.
  u64 advance_to_idle() noexcept {
    u64 const from = now_;
    while (run_next(u64_max)) {
    }
    return now_ - from;
  }

  /// Runs until the stream is idle. False: it waits for what will not come by itself.
  bool advance_to_idle(u32 stream) noexcept {
    while (!idle(stream) && run_next(u64_max)) {
    }
    return idle(stream);
  }

  /// Abandons what a stream runs and holds, now and in order.
  void abandon(u32 stream) noexcept {
    while (streams_[stream].n != 0) {
      lane& s = streams_[stream];
      if (!s.runs) {
        start_front(s, true);
      } else if (u32 const link = s.ring[s.first].op.link; link != no_link) {
        links_[link].give_back(s.end, now_);
      }
      s.end = min_of(s.end, now_);
      finish_front(stream, true);
    }
  }

 private:
  struct queued {
    stream_op op;
    u64 ready = 0;
    u64 sequence = 0;
    u64 record = 0;
  };
  struct lane {
    std::vector<queued> ring;
    std::size_t first = 0;
    std::size_t n = 0;
    engine_state engine;
    u64 end = 0;  ///< of what runs, or of what ran last
    bool runs = false;
  };
  struct event_count {
    u64 recorded = 0;
    u64 completed = 0;
  };

  static void grow(lane& s) {
    std::vector<queued> more(2 * s.ring.size());
    for (std::size_t i = 0; i < s.n; ++i) {
      more[i] = s.ring[(s.first + i) % s.ring.size()];
    }
    s.ring.swap(more);
    s.first = 0;
  }

  bool may_begin(lane const& s) const noexcept {
    stream_op const& op = s.ring[s.first].op;
    return s.engine.state != engine_state::kind::paused &&
           (s.engine.state == engine_state::kind::dead ||
            ((op.after == no_event || events_[op.after].completed >= op.after_record) &&
             (op.word == nullptr || *op.word >= op.at_least)));
  }

  u64 begin_at(lane const& s) const noexcept {
    queued const& q = s.ring[s.first];
    u64 const at = max_of(max_of(q.ready, s.end), now_);
    bool const waits = q.op.link != no_link && s.engine.state != engine_state::kind::dead;
    return waits ? max_of(at, links_[q.op.link].free_at) : at;
  }

  /// Runs the earliest begin or end at or before `until`; false where there is none.
  bool run_next(u64 until) noexcept {
    u32 next = u32_max;
    bool is_end = false;
    u64 when = until;
    u64 sequence = 0;
    for (u32 i = 0; i < streams_.size(); ++i) {
      lane const& s = streams_[i];
      if (s.runs) {
        if (s.end < when || (s.end == when && !is_end)) {
          next = i;
          is_end = true;
          when = s.end;
        }
      } else if (s.n != 0 && may_begin(s)) {
        u64 const at = begin_at(s);
        u64 const own = s.ring[s.first].sequence;
        if (at < when || (at == when && !is_end && (next == u32_max || own < sequence))) {
          next = i;
          is_end = false;
          when = at;
          sequence = own;
        }
      }
    }
    if (next == u32_max) {
      return false;
    }
    now_ = when;
    if (is_end) {
      finish_front(next, false);
    } else {
      start_front(streams_[next], false);
    }
    return true;
  }

  void start_front(lane& s, bool closed) noexcept {
    stream_op const op = s.ring[s.first].op;
    s.runs = true;
    u64 const slowness = max_of(s.engine.slowness, u64{1});
    u64 const ticks = op.ticks > u64_max / slowness ? u64_max : op.ticks * slowness;
    if (closed || s.engine.state == engine_state::kind::dead) {
      s.end = now_;
    } else if (op.link != no_link) {
      s.end = links_[op.link].occupy(now_, ticks);
    } else {
      s.end = now_ + ticks;
    }
    if (op.begin != nullptr) {
      op.begin(op.context, op.argument);
    }
  }

  void finish_front(u32 stream, bool closed) noexcept {
    lane& s = streams_[stream];
    queued const q = s.ring[s.first];
    bool const abandoned = closed || s.engine.state == engine_state::kind::dead;
    s.first = (s.first + 1) % s.ring.size();
    --s.n;
    s.runs = false;
    if (q.op.end != nullptr) {
      q.op.end(q.op.context, q.op.argument, abandoned);
    }
    if (q.op.records != no_event) {
      event_count& e = events_[q.op.records];
      e.completed = max_of(e.completed, q.record);
    }
  }

  std::vector<lane> streams_;
  std::vector<event_count> events_;
  std::vector<serial_link> links_;
  u64 now_ = 0;
  u64 sequence_ = 0;
};

}  // namespace move
}  // namespace warmset::inline v0
