// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The device side of host-directed mode, played by threads of the host, and a link with real bytes.

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include <warmset/cache.hpp>
#include <warmset/policy/score/lru.hpp>
#include <warmset/predict/supplied.hpp>
#include <warmset/signal/worker.hpp>

#include "support/dice.hpp"
#include "support/sanitizers.hpp"

namespace warmset_test {

using namespace warmset;

/// A number of the environment, or its default.
inline u64 from_environment(char const* name, u64 otherwise) {
  char const* const text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Messages of the tests that count them: fewer where a sanitizer makes each slow.
inline u64 stress_messages() {
#if WARMSET_TEST_TSAN || WARMSET_TEST_ASAN
  constexpr u64 otherwise = 50'000;
#else
  constexpr u64 otherwise = 1'000'000;
#endif
  return from_environment("WARMSET_STRESS_MESSAGES", otherwise);
}

/// How long the tests that count messages go on at least, in nanoseconds: half of WARMSET_STRESS_SECONDS where
/// that is above its default, under the thread sanitizer.
inline u64 stress_share() {
#if WARMSET_TEST_TSAN
  u64 const seconds = from_environment("WARMSET_STRESS_SECONDS", 2);
  return seconds > 2 ? seconds * 500'000'000 : 0;
#else
  return 0;
#endif
}

/// Whether a stress that has sent so many messages is over. Looks at the clock now and then.
class stress_end {
 public:
  bool reached(u64 sent) const {
    return sent >= messages_ &&
           (share_ == 0 || (sent % 1024 == 0 && signal::steady_clock{}.now() - begin_ >= share_));
  }

 private:
  u64 messages_ = stress_messages();
  u64 share_ = stress_share();
  u64 begin_ = signal::steady_clock{}.now();
};

/// What the bytes of an expert are, in 64-bit words.
inline constexpr u32 expert_words = 8;
inline constexpr u64 word_of(expert_key key, u32 i) noexcept {
  return (u64{key.layer.value} << 40 | u64{key.expert.value} << 8 | i) * 0x9E37'79B9'7F4A'7C15ull;
}
inline geometry small_model(u32 layers, u32 experts, u32 k) {
  return geometry::uniform(layers, experts, k, expert_words * sizeof(u64));
}

/// The memory behind a link, and the test's hand on it.
struct byte_link {
  std::atomic<u32> polls{1};        ///< that a transfer takes
  std::atomic<bool> held{false};    ///< no transfer ends but those that are
  std::atomic<u32> let_through{0};  ///< let through, in the order of their starts
  std::atomic<u32> fail_every{0};   ///< each so many-th transfer fails; 0 = none
  std::atomic<u32> fail_next{0};    ///< so many transfers fail from now on
  std::atomic<u64> starts{0};
  std::atomic<u64> arrivals{0};
  std::atomic<u64> failures{0};
  std::atomic<u64> foreign{0};  ///< starts by another thread than the first
  std::atomic<u64> polled{0};
  std::atomic<std::thread::id> starter{};

  std::vector<u64> memory;
  std::vector<pool_site> sites;

  u64* at(u32 pool, slot_id slot) noexcept {
    return memory.data() + std::size_t{sites[pool].bank_index(slot)} * expert_words;
  }
  bool holds(u32 pool, slot_id slot, expert_key key) noexcept {
    u64 const* const words = at(pool, slot);
    for (u32 i = 0; i < expert_words; ++i) {
      if (words[i] != word_of(key, i)) {
        return false;
      }
    }
    return true;
  }
  void fill(u32 pool, slot_id slot, expert_key key) noexcept {
    for (u32 i = 0; i < expert_words; ++i) {
      at(pool, slot)[i] = word_of(key, i);
    }
  }
};

/// A backend that copies in `poll`, on the thread that calls it: one geometry group, real bytes.
class byte_backend {
 public:
  explicit byte_backend(byte_link* to) noexcept : link_(to) {}
  static constexpr u64 tail_bytes() noexcept { return 0; }
  void open(geometry const&, array_view<pool_site const> sites) {
    link_->sites.assign(sites.begin(), sites.end());
    u32 slots = 0;
    for (pool_site const& s : sites) {
      words_.emplace_back(s.n_words());
      slots = max_of(slots, s.first_scratch + s.n_scratch);
    }
    link_->memory.assign(std::size_t{slots} * expert_words, 0);
    running_.reserve(std::size_t{slots} * sites.size() + 1);
  }
  u32 const* arrivals(u32 pool) const noexcept { return words_[pool].data(); }
  void start(u32 pool, array_view<transfer_order const> orders) noexcept {
    for (transfer_order const& o : orders) {
      std::thread::id nobody{};
      std::thread::id const me = std::this_thread::get_id();
      if (!link_->starter.compare_exchange_strong(nobody, me) && nobody != me) {
        ++link_->foreign;
      }
      words_[pool][o.slot.value] = arrival::word(o.generation, transfer::loading);
      for (u32 i = 0; i < expert_words; ++i) {
        link_->at(pool, o.slot)[i] = ~u64{0};  // torn until it has arrived
      }
      running_.push_back({pool, o, link_->polls.load()});
      ++link_->starts;
    }
  }
  void poll() noexcept {
    ++link_->polled;
    bool const held = link_->held;
    if (held && link_->let_through == 0) {
      return;
    }
    std::size_t kept = 0;
    for (flight& f : running_) {
      if (held && link_->let_through == 0) {
        running_[kept++] = f;
        continue;
      }
      link_->let_through -= held ? 1 : 0;
      if (f.left > 1) {
        --f.left;
        running_[kept++] = f;
        continue;
      }
      u32 const every = link_->fail_every;
      bool fails = every != 0 && ++ended_ % every == 0;
      if (u32 const next = link_->fail_next; next != 0) {
        fails = true;
        link_->fail_next = next - 1;
      }
      if (!fails) {
        link_->fill(f.pool, f.order.slot, f.order.expert);
      }
      ++(fails ? link_->failures : link_->arrivals);
      words_[f.pool][f.order.slot.value] =
          arrival::word(f.order.generation, fails ? transfer::failed : transfer::arrived);
    }
    running_.resize(kept);
  }
  void close() noexcept {
    for (flight const& f : running_) {
      words_[f.pool][f.order.slot.value] = arrival::word(f.order.generation, transfer::failed);
    }
    running_.clear();
  }

 private:
  struct flight {
    u32 pool = 0;
    transfer_order order{};
    u32 left = 0;
  };
  byte_link* link_;
  std::vector<std::vector<u32>> words_;
  std::vector<flight> running_;
  u64 ended_ = 0;
};
static_assert(move_backend<byte_backend>, "the backend must satisfy move_backend");

/// A bundle with hints.
struct hinted : default_policy {
  using score = warmset::score::lru;
  using predictor = warmset::predict::supplied;
};

template <class Policy = hinted>
using byte_cache = cache<Policy, byte_backend>;

/// One step of a captured graph.
struct graph_step {
  u32 layer;
  std::vector<routed_id> ids;
  std::vector<routed_id> hints = {};  ///< for the layer after
};

/// What one thread of the device saw.
struct device_report {
  u64 steps = 0;
  u64 from_slots = 0;
  u64 from_source = 0;
  u64 refused = 0;  ///< not published: the stock path served the step
  u64 ended = 0;    ///< the wait ended with the worker
  u64 wrong = 0;    ///< experts whose bytes were not theirs
  u64 hints = 0;    ///< ids offered
};

/// Mapped memory of the source as the device reads it.
struct mapped_source {
  static constexpr bool mapped = true;
  u64 served = 0;
  bool serve_from_source(u32) noexcept {
    ++served;
    return true;
  }
};

/// Captured kernels of one stream, played by one thread: publish, poll, read the slots, say so. Replaying
/// the graph publishes new numbers, since the device counts them.
class device {
 public:
  device(signal::channel_view c, byte_link& to) : end_(c), link_(to) {}

  signal::device_end& end() noexcept { return end_; }
  device_report const& report() const noexcept { return report_; }

  template <class Source = signal::no_source>
  void run(graph_step const& s, u64 deadline = 60'000'000'000, Source&& source = {}) {
    ++report_.steps;
    signal::published const sent = end_.publish(layer_id{s.layer}, s.ids);
    if (!s.hints.empty()) {
      (void)end_.hint(layer_id{s.layer + 1}, s.hints);
      report_.hints += s.hints.size();
    }
    if (!sent) {
      ++report_.refused;
      return;
    }
    read(s, sent.sequence, deadline, source);
    end_.finish(sent.sequence);
  }
  void play(std::vector<graph_step> const& graph, u32 replays) {
    for (u32 r = 0; r < replays; ++r) {
      for (graph_step const& s : graph) {
        run(s);
      }
    }
  }
  /// Whether every id has a slot with its bytes, all waves.
  template <class Source = signal::no_source>
  void read(graph_step const& s, u32 sequence, u64 deadline = 60'000'000'000,
            Source&& source = {}) {
    u32 waves = 1;
    for (u32 wave = 0; wave < waves; ++wave) {
      signal::wait_result const got = end_.wait(sequence, deadline, wave, source);
      if (!got) {
        ++report_.ended;
        return;
      }
      if (got.by == signal::served::source) {
        ++report_.from_source;
        return;
      }
      signal::answer const a = end_.answer_to(sequence);
      waves = max_of(waves, a.n_waves());
      for (u32 i = 0; i < s.ids.size(); ++i) {
        if (a.wave(i) != wave) {
          continue;
        }
        expert_key const key{layer_id{s.layer}, expert_id{static_cast<u32>(s.ids[i])}};
        bool const fine = s.ids[i] < 0
                              ? a.slot(i) == no_slot
                              : a.slot(i) != no_slot && link_.holds(s.layer, a.slot(i), key);
        report_.wrong += fine ? 0 : 1;
      }
      if (a.size() != s.ids.size()) {
        ++report_.wrong;
      }
      if (waves > 1) {
        end_.wave_read(sequence, wave);
      }
    }
    ++report_.from_slots;
  }

 private:
  signal::device_end end_;
  byte_link& link_;
  device_report report_;
};

/// A clock that a test sets.
struct set_clock {
  std::atomic<u64> const* at = nullptr;
  u64 now() const noexcept { return at->load(); }
};

/// Waits until `condition` holds, for at most ten seconds.
template <class F>
bool eventually(F&& condition) {
  signal::backoff pause;
  u64 const begin = signal::steady_clock{}.now();
  while (!condition()) {
    if (signal::steady_clock{}.now() - begin > 10'000'000'000) {
      return false;
    }
    pause.once();
  }
  return true;
}

/// Channels, a link and a worker over them.
template <class Policy = hinted, class Source = signal::no_source,
          class Clock = signal::steady_clock>
struct worked {
  using cache_type = byte_cache<Policy>;
  using worker_type = signal::worker<cache_type, Source, Clock>;

  struct sizes {
    u32 channels = 1;
    u32 layers = 2;
    u32 experts = 16;
    u32 k = 2;
    u32 slots = 4;
    tuning numbers = Policy::numbers;
    signal::channel_shape shape{16, 16};
    u32 first = 1;
  };

  explicit worked(sizes s, signal::worker_options<Source, Clock> options = {},
                  byte_link* outer = nullptr)
      : memory(outer != nullptr ? *outer : own_memory) {
    std::vector<signal::channel_view> views;
    for (u32 i = 0; i < s.channels; ++i) {
      channels.push_back(std::make_unique<signal::channel>(s.shape, s.first));
      views.push_back(channels.back()->view());
    }
    worker =
        std::make_unique<worker_type>(array_view<signal::channel_view const>{views}, options,
                                      small_model(s.layers, s.experts, s.k),
                                      budget::of_slots(s.slots), s.numbers, byte_backend{&memory});
    for (u32 i = 0; i < s.channels; ++i) {
      devices.push_back(std::make_unique<device>(views[i], memory));
    }
  }
  device& dev(u32 i = 0) { return *devices[i]; }
  signal::device_end& end(u32 i = 0) { return devices[i]->end(); }
  cache_type& cache() { return worker->cache(); }
  total_counters total() { return cache().observer().total(); }
  /// Steps by hand until nothing is left to do.
  void settle(u32 most = 1000) {
    u32 idle = 0;
    for (u32 i = 0; i < most && idle < 8; ++i) {
      idle = worker->step() ? 0 : idle + 1;
    }
  }

  std::vector<std::unique_ptr<signal::channel>> channels;
  byte_link own_memory;
  byte_link& memory;
  std::unique_ptr<worker_type> worker;
  std::vector<std::unique_ptr<device>> devices;
};

}  // namespace warmset_test
