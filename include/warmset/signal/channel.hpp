// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/array_view.hpp"
#include "../core/fixed_array.hpp"
#include "../core/intent.hpp"
#include "answers.hpp"
#include "mailbox.hpp"
#include "ring.hpp"
#include "worker_state.hpp"

namespace warmset::inline v0::signal {

/// Sizes of a channel. `demands` is a power of two: the messages of one captured graph fit, or the
/// publishing side will wait for the worker in the middle of it. `max_ids` bounds the ids of one message,
/// duplicates and padding included. All words of a channel are counted in 32 bits: together the two have a limit
/// as well, such as 43674 ids with 32768 demands.
struct channel_shape {
  u32 demands = 64;
  u32 max_ids = 64;

  WARMSET_HD constexpr ring_shape demand() const noexcept { return {demands, max_ids}; }
  WARMSET_HD constexpr ring_shape hint() const noexcept { return {hint_ring::depth, max_ids}; }
  WARMSET_HD constexpr answer_shape answers() const noexcept { return {demands, max_ids}; }

  static constexpr u32 head_words = 2 * words_per_line;
  WARMSET_HD constexpr u64 words() const noexcept {
    return u64{head_words} + demand().words() + hint().words() + u64{demands} * answers().stride();
  }
  WARMSET_HD constexpr u64 bytes() const noexcept { return words() * sizeof(u32); }
};

/// Throws config_error where no channel has this shape.
inline void require_possible(channel_shape s) {
  require_possible<demand_ring>(s.demand());
  if (s.words() > u32_max) {
    throw config_error("a channel of ", s.demands, " demands of ", s.max_ids, " ids takes ",
                       s.words(), " words; fewer than 2^32 are possible");
  }
}

/// Why ids of hints are in no message: counted by the publishing side, and taken in by the worker.
inline constexpr reason hint_refusals[] = {
    reason::ring_full, reason::worker_down,
    reason::limited,  // more ids than a message holds
};
inline constexpr u32 n_hint_refusals = sizeof(hint_refusals) / sizeof(hint_refusals[0]);

/// All that one stream of a device and one worker say to each other: a block of plain words, aligned to 64
/// bytes, that can be mapped into both. Trivially copyable.
///
///     line 0    worker's state, heartbeat, hints done, demands overdue, refused ids that are counted    the worker
///     line 1    finished, wave mark, refused ids                                                        the device
///     demand ring, hint ring, answers
struct channel_view {
  u32* base = nullptr;
  channel_shape shape{};

  enum word : u32 {
    state = 0,
    heartbeat = 1,
    hints_done = 2,             ///< number of the last hint that the worker has dealt with
    overdue = 3,                ///< demands that were not answered by their deadline
    folded = 4,                 ///< of each of hint_refusals: the ids that the worker has counted
    finished = words_per_line,  ///< number up to which the slots of demands have been read
    wave_mark = words_per_line + 1,     ///< number << 16 | waves of that demand that have been read
    refused_down = words_per_line + 2,  ///< ids of hints refused with `worker_down`
    refused_limited = words_per_line + 3,  ///< ids of hints refused with `limited`
  };

  WARMSET_HD constexpr u32* at(word w) const noexcept { return base + w; }
  WARMSET_HD constexpr ring_view<demand_ring> demands() const noexcept {
    return {base + channel_shape::head_words, shape.demand()};
  }
  WARMSET_HD constexpr ring_view<hint_ring> hints() const noexcept {
    return {demands().base + shape.demand().words(), shape.hint()};
  }
  WARMSET_HD constexpr answers_view answers() const noexcept {
    return {hints().base + shape.hint().words(), shape.answers()};
  }
  /// The word in which the publishing side counts ids of hints that it refused for the i-th of hint_refusals.
  WARMSET_HD constexpr u32* refused_ids(u32 i) const noexcept {
    return i == 0 ? hints().at(ring_view<hint_ring>::dropped_ids) : at(refused_down) + (i - 1);
  }
  /// How many of these a worker has counted. In the channel, so that the next worker goes on from there.
  WARMSET_HD constexpr u32* refused_folded(u32 i) const noexcept { return at(folded) + i; }
  /// A word that is no state is nobody's: `stopped`, and nobody waits for it.
  worker_state announced() const noexcept {
    u32 const said = host_words::load_acquire(at(state));
    return said < n_worker_states ? static_cast<worker_state>(said) : worker_state::stopped;
  }
};

static_assert(std::is_trivially_copyable_v<channel_view>, "a view goes to a kernel");

/// Writes an empty channel whose first demand and hint will have the number `first`.
/// Throws config_error where the memory is not aligned or the shape is not possible.
inline void format_channel(channel_view c, u32 first = 1) {
  require_possible(c.shape);
  if (reinterpret_cast<std::uintptr_t>(c.base) % (words_per_line * sizeof(u32)) != 0) {
    throw config_error("the memory of a channel must be aligned to 64 bytes");
  }
  for (u32 i = 0; i < channel_shape::head_words; ++i) {
    host_words::store(c.base + i, 0);
  }
  host_words::store(c.at(channel_view::hints_done), first - 1);
  host_words::store(c.at(channel_view::finished), first - 1);
  host_words::store(c.at(channel_view::wave_mark), (first - 1) << 16);
  format_ring(c.demands(), first);
  format_ring(c.hints(), first);
  c.answers().format<host_words>(first);
}

/// A channel in ordinary memory of the host.
class channel {
 public:
  explicit channel(channel_shape shape = {}, u32 first = 1) : lines_(n_lines(shape)) {
    view_ = {lines_.data()->words, shape};
    format_channel(view_, first);
  }
  channel_view view() const noexcept { return view_; }

 private:
  struct alignas(words_per_line * sizeof(u32)) line {
    u32 words[words_per_line];
  };
  static std::size_t n_lines(channel_shape shape) {
    require_possible(shape);
    return static_cast<std::size_t>((shape.words() + words_per_line - 1) / words_per_line);
  }
  fixed_array<line> lines_;
  channel_view view_;
};

/// The source of a waiting side that has none it can read: past its deadline a demand is waited for on.
struct no_source {
  static constexpr bool mapped = false;
};

/// Who served a demand in the end.
enum class served : u8 {
  nobody,
  slots,   ///< the worker: the answer names slots
  source,  ///< the waiting side, from mapped memory, past the deadline
};

struct [[nodiscard]] wait_result {
  reason why = reason::none;  ///< `stopped`, `worker_down`, or what the answer refuses with
  served by = served::nobody;
  explicit operator bool() const noexcept { return why == reason::none; }
};

/// Waits for the answer to a demand. Any number of threads may, each with counters of its own.
///
/// The wait does not expire. Once `ticks` have passed, a source with `mapped` is asked to serve the demand:
/// `source.serve_from_source(sequence) noexcept -> bool`; where there is none, or it says false, the wait is
/// counted as overdue and goes on. It ends when the answer comes, or when the worker is stopped or dead. An
/// answer that refuses names no slots: the source is asked at once, and the reason is returned where it does
/// not serve.
template <class Source = no_source, class Clock = steady_clock>
wait_result wait_for_answer(channel_view c, u32 sequence, u32 wave, u64 ticks,
                            wait_counters& counters, Source&& source = {},
                            Clock const& clock = {}) noexcept {
  ++counters.waits;
  u64 const begin = clock.now();
  bool late = false;
  for (backoff pause;; pause.once()) {
    worker_state const announced = c.announced();  // before the answer, which may be its last
    if (c.answers().ready<host_words>(sequence, wave)) {
      reason const refused = answer{c.answers(), sequence}.why();
      if (refused == reason::none) {
        return {reason::none, served::slots};
      }
      if constexpr (std::remove_cvref_t<Source>::mapped) {
        if (source.serve_from_source(sequence)) {
          ++counters.from_source;
          return {reason::none, served::source};
        }
      }
      ++counters.waited_empty;
      return {refused, served::nobody};
    }
    if (announced == worker_state::stopped || announced == worker_state::dead) {
      ++counters.waited_empty;
      return {announced == worker_state::stopped ? reason::stopped : reason::worker_down,
              served::nobody};
    }
    if (!late && clock.now() - begin >= ticks) {
      late = true;
      if constexpr (std::remove_cvref_t<Source>::mapped) {
        if (source.serve_from_source(sequence)) {
          ++counters.from_source;
          return {reason::none, served::source};
        }
      }
      ++counters.overdue;
    }
  }
}

/// Watches a worker's heartbeat: it tells one that hangs from one that waits for a link, since a worker that
/// waits goes on stepping. Who watches keeps it and asks now and then; one thread at a time.
template <class Clock = steady_clock>
class stall_watch {
 public:
  explicit stall_watch(channel_view c, Clock clock = {}) noexcept
      : channel_(c), clock_(clock), since_(clock_.now()), last_(beat()) {}

  /// Whether the worker says that it runs and has taken no step for at least `ticks`, as far as this watch
  /// has looked. One that is paused, stopped or dead is not stalled.
  bool stalled(u64 ticks) noexcept {
    u64 const now = clock_.now();
    u32 const seen = beat();
    if (seen != last_ || channel_.announced() != worker_state::running) {
      last_ = seen;
      since_ = now;
    }
    return now - since_ >= ticks && channel_.announced() == worker_state::running;
  }

 private:
  u32 beat() const noexcept { return host_words::load(channel_.at(channel_view::heartbeat)); }
  channel_view channel_;
  [[no_unique_address]] Clock clock_;
  u64 since_;
  u32 last_;
};

/// What came of publishing a message.
struct [[nodiscard]] published {
  reason why =
      reason::none;  ///< `worker_down`, `ring_full`, or `limited`: more ids than a message holds
  u32 sequence = 0;
  explicit operator bool() const noexcept { return why == reason::none; }
};

/// The publishing end of a channel: what captured kernels do, done by a thread of the host. One thread at a
/// time. Throws config_error where the channel has one already.
class device_end {
 public:
  explicit device_end(channel_view c) : channel_(c), demands_(c.demands()), hints_(c.hints()) {}

  /// Publishes a demand; `ring_full` where the worker owes as many as fit. Does not wait, and asks nobody
  /// where the worker is not running.
  published try_publish(layer_id layer, array_view<routed_id const> ids,
                        phase p = phase::decode) noexcept {
    return publish_again(demands_.next(), layer, ids, p);
  }
  /// The same, waiting while the ring is full: for as long as the worker takes to answer one of the demands
  /// that it owes, and no longer than it runs.
  published publish(layer_id layer, array_view<routed_id const> ids,
                    phase p = phase::decode) noexcept {
    for (backoff pause;; pause.once()) {
      published const result = try_publish(layer, ids, p);
      if (result.why != reason::ring_full) {
        return result;
      }
    }
  }
  /// Publishes a demand under a number that it may have had before; then it is not published again. Refused
  /// as by try_publish.
  published publish_again(u32 sequence, layer_id layer, array_view<routed_id const> ids,
                          phase p = phase::decode) noexcept {
    if (ids.size() > channel_.shape.max_ids) {
      return {reason::limited};
    }
    if (channel_.announced() != worker_state::running) {
      return {reason::worker_down};
    }
    message const m{layer.value, static_cast<u32>(p), 0, static_cast<u32>(ids.size())};
    return demands_.again(sequence, m, ids.data()) == push::full
               ? published{reason::ring_full}
               : published{reason::none, sequence};
  }
  /// Number of the next demand: what a kernel counts on the device.
  u32 next_demand() const noexcept { return demands_.next(); }

  /// Publishes hints for one layer, surest first; never waits. `ring_full`, `worker_down`, `limited`: dropped,
  /// and counted in words that the worker takes in, once it runs.
  published hint(layer_id layer, array_view<routed_id const> ids, u32 ahead = 1) noexcept {
    if (ids.size() > channel_.shape.max_ids) {
      count_refused(channel_view::refused_limited, ids.size());
      return {reason::limited};
    }
    if (channel_.announced() != worker_state::running) {
      count_refused(channel_view::refused_down, ids.size());
      return {reason::worker_down};
    }
    u32 const sequence = hints_.next();
    message const m{layer.value, ahead, demands_.next() - 1, static_cast<u32>(ids.size())};
    return hints_(m, ids.data()) == push::published ? published{reason::none, sequence}
                                                    : published{reason::ring_full};
  }

  /// Waits for the answer: see wait_for_answer.
  template <class Source = no_source, class Clock = steady_clock>
  wait_result wait(u32 sequence, u64 ticks, u32 wave = 0, Source&& source = {},
                   Clock const& clock = {}) noexcept {
    return wait_for_answer(channel_, sequence, wave, ticks, counters_,
                           static_cast<Source&&>(source), clock);
  }
  /// Waits until the worker has dealt with a hint, for at most `ticks`; then it is `deadline` and nothing
  /// is lost.
  template <class Clock = steady_clock>
  status wait_hint(u32 sequence, u64 ticks, Clock const& clock = {}) noexcept {
    return mailbox<>{channel_.at(channel_view::hints_done)}.wait(sequence, ticks, counters_, clock);
  }

  /// The answer to a demand that has been waited for.
  answer answer_to(u32 sequence) const noexcept { return {channel_.answers(), sequence}; }

  /// Says that the slots of this wave have been read; the worker fills scratch with the next.
  void wave_read(u32 sequence, u32 wave) noexcept {
    host_words::store_release(channel_.at(channel_view::wave_mark), sequence << 16 | (wave + 1));
  }
  /// Ends the leases of all demands up to this number: their readers are done, or have given up.
  void finish(u32 sequence) noexcept {
    mailbox<> const box{channel_.at(channel_view::finished)};
    u32 const now = box.read();
    if (!reached(now, sequence) ||
        reached(now, demands_.next())) {  // not yet, or no number of ours
      box.post(sequence);
    }
  }

  channel_view view() const noexcept { return channel_; }
  wait_counters const& counters() const noexcept { return counters_; }
  /// Hints that the ring dropped, in messages and in ids.
  u32 dropped_hints() const noexcept {
    return host_words::load(channel_.hints().at(ring_view<hint_ring>::dropped));
  }
  u32 dropped_ids() const noexcept {
    return host_words::load(channel_.hints().at(ring_view<hint_ring>::dropped_ids));
  }

 private:
  void count_refused(channel_view::word w, std::size_t n) noexcept {
    u32* const word = channel_.at(w);
    host_words::store(word, host_words::load(word) + static_cast<u32>(n));
  }
  channel_view channel_;
  producer<demand_ring> demands_;
  producer<hint_ring> hints_;
  wait_counters counters_;
};

}  // namespace warmset::inline v0::signal
