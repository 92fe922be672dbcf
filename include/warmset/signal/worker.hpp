// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "../core/arrival.hpp"
#include "../move/backend.hpp"
#include "../table/table.hpp"
#include "channel.hpp"

namespace warmset::inline v0::signal {

/// What a worker counts of itself; of experts the cache's observer counts.
enum class tally : u32 {
  demands,      ///< messages taken
  answered,     ///< answers published, refusals included
  refused,      ///< answers with a reason
  abandoned,    ///< demands whose device had finished with them before they were answered
  repeated,     ///< messages that had been answered already
  busy,         ///< times that a demand found every slot and every scratch slot held, and stayed
  retried,      ///< failed transfers that were started again
  from_source,  ///< experts of overdue demands that the source filled in
  overdue,      ///< demands not answered by their deadline
  hints,        ///< hint messages taken
  hint_ids,
  hint_loads,  ///< transfers that hints started
  torn,        ///< looks at a message that was not what its number says
  requests,    ///< functions run by `with`
  intruders,   ///< steps refused because another thread was inside one
};
inline constexpr u32 n_tallies = static_cast<u32>(tally::intruders) + 1;

/// A snapshot of a worker's counters.
struct worker_counters {
  u64 n[n_tallies];
  u64 dropped
      [n_drop_reasons];  ///< ids of hints that never reached the cache; its observer counts them too
  constexpr u64 operator[](tally t) const noexcept { return n[static_cast<u32>(t)]; }
  constexpr u64 operator[](reason r) const noexcept { return dropped[static_cast<u32>(r)]; }
};

/// Numbers and parts of a worker.
///
/// A `Source` with `mapped` has `serve_from_source(pool, scratch slot, expert) noexcept -> bool`: it puts the
/// bytes of the expert into the slot before it returns.
template <class Source = no_source, class Clock = steady_clock>
struct worker_options {
  u64 deadline = 100'000'000;  ///< ticks of the clock after which a demand is overdue
  u32 idle_spins = 2000;       ///< looks at the rings before an idle worker lets others run
  [[no_unique_address]] Source source{};
  [[no_unique_address]] Clock clock{};
};

/// Finds the second thread: a place where one may be.
class single_owner {
 public:
  class visit {
   public:
    explicit visit(single_owner& of) noexcept
        : place_(of.inside_.exchange(true, std::memory_order_acquire) ? nullptr : &of.inside_) {}
    visit(visit const&) = delete;
    visit& operator=(visit const&) = delete;
    ~visit() {
      if (place_ != nullptr) {
        place_->store(false, std::memory_order_release);
      }
    }
    bool alone() const noexcept { return place_ != nullptr; }

   private:
    std::atomic<bool>* place_;
  };

 private:
  std::atomic<bool> inside_{false};
};

/// What a worker needs of a cache: warmset::cache of any bundle but `off`.
template <class C>
concept owned_cache = requires(C& c, layer_id layer, array_view<routed_id const> ids, u32& out) {
  requires C::enabled;
  typename C::policy;
  typename C::lease;
  c.demand(layer, ids, phase::decode);
  c.settle();
  c.start_wave(0u);
  c.scratch_generation();
  c.find(layer, out, out);
  c.backend();
  c.pools();
  c.sites();
  c.model();
  c.observer();
};

/// The owner of a cache in host-directed mode: takes demands and hints from channels, decides with the
/// cache's own functions, and answers when the bytes are in place.
///
/// A step takes all demands before it takes one hint. Demands of a channel are decided in their order;
/// they wait for their transfers together. A transfer that fails is started again, as often as it takes,
/// into the slot that the demand holds (and that is free afterwards): a demand ends by its answer, or when its
/// device finishes it. Past the deadline it is counted, and served into scratch by the source where that is
/// mapped.
///
/// Runs on a thread of its own (`start`), or by hand (`start_by_hand`, then `step`). While it runs, only its
/// thread touches the cache: others use the channels, or `with`. Allocates and throws in the constructor and
/// in start alone. The control functions may be called from any thread but the worker's.
template <class Cache, class Source = no_source, class Clock = steady_clock>
requires owned_cache<Cache>
class worker {
 public:
  using policy = typename Cache::policy;
  using options_type = worker_options<Source, Clock>;

  /// Makes the cache from `arguments` and takes the consuming ends of the channels. Throws config_error
  /// where a channel has a consumer already, and what the cache's constructor throws.
  template <class... Arguments>
  explicit worker(array_view<channel_view const> channels, options_type options,
                  Arguments&&... arguments)
      : options_(options), cache_(static_cast<Arguments&&>(arguments)...) {
    u32 last_layer = 0;
    for (auto const& site : cache_.sites()) {
      for (layer_id layer : site.layers) {
        last_layer = max_of(last_layer, layer.value);
      }
    }
    index_of_layer_ = fixed_array<u32>(last_layer + 1);
    for (u32& index : index_of_layer_) {
      index = no_layer;
    }
    u32 n_layers = 0;
    for (layer_geometry const& layer : cache_.model().layers()) {
      index_of_layer_[layer.layer.value] = n_layers++;
    }
    u32 most_ids = 1;
    ends_.reserve(channels.size());
    for (channel_view const& c : channels) {
      ends_.emplace_back(c, last_layer + 1);
      most_ids = max_of(most_ids, c.shape.max_ids);
    }
    ids_ = fixed_array<routed_id>(most_ids);
    orders_ = fixed_array<transfer_order>(most_ids);
    announce(worker_state::stopped);
  }
  worker(worker const&) = delete;
  worker& operator=(worker const&) = delete;

  /// Stops and joins. Nothing is called or written afterwards; what waits in the rings stays there.
  ~worker() { stop(); }

  // ---- control --------------------------------------------------------------------------------------

  /// Starts the thread. `in_use` where it runs or is paused.
  status start() {
    std::lock_guard const lock{control_};
    if (!next_of(state(), worker_event::start).allowed) {
      return {reason::in_use};
    }
    wish_.store(worker_state::running, std::memory_order_relaxed);
    thread_ = std::thread([this] { run(); });
    announce(worker_state::running);
    return done;
  }
  /// Lets messages in; the caller's thread is the owner and calls `step`.
  status start_by_hand() noexcept { return change(worker_event::start, reason::in_use); }

  /// Ends the thread, in every state. Who waits for an answer returns with `stopped`, who publishes is
  /// refused with `worker_down`. Demands that were not decided leave no trace; they are served after the
  /// next start, unless their device finishes them before.
  void stop() noexcept { (void)change(worker_event::stop, reason::none); }
  /// Takes nothing more until `resume`; returns when the thread is idle, so that the caller may use the cache.
  status pause() noexcept { return change(worker_event::pause, reason::worker_down); }
  status resume() noexcept { return change(worker_event::resume, reason::worker_down); }
  /// For tests: the thread ends where it stands, as a crash would end it; `start` takes up what it owed.
  status die() noexcept { return change(worker_event::die, reason::worker_down); }
  /// For tests: sleeps this long after each step of its thread.
  void slow_down(u64 nanoseconds) noexcept { slow_.store(nanoseconds, std::memory_order_relaxed); }

  worker_state state() const noexcept { return state_.load(std::memory_order_acquire); }

  /// Has the worker's thread run f(cache) between two steps, and waits for that: for everything that is not
  /// a step or a hint, such as a resize. `worker_down` where it does not run, `deadline` after `ticks`; f is
  /// then not called any more. Not from the worker's thread, and not where it is stepped by hand: there the
  /// owner has `cache()`.
  template <class F>
  status with(F&& f, u64 ticks = u64_max) noexcept {
    std::lock_guard const lock{requests_};  // between callers; the worker's thread never takes it
    using function = std::remove_reference_t<F>;
    request_function_ = [](void* of, Cache& c) { (*static_cast<function*>(of))(c); };
    request_ = const_cast<void*>(static_cast<void const*>(&f));
    request_at_.store(request::posted, std::memory_order_release);
    u64 const begin = options_.clock.now();
    for (backoff pause; request_at_.load(std::memory_order_acquire) != request::done;
         pause.once()) {
      bool const down = state() != worker_state::running;
      if (down || options_.clock.now() - begin >= ticks) {
        request expected = request::posted;
        if (request_at_.compare_exchange_strong(expected, request::idle)) {
          return {down ? reason::worker_down : reason::deadline};
        }
      }
    }
    request_at_.store(request::idle, std::memory_order_relaxed);
    return done;
  }

  /// cache::resize on the worker's thread.
  status resize(layer_id layer, u32 capacity, u64 ticks = u64_max) noexcept {
    status result = done;
    status const asked = with([&](Cache& c) { result = c.resize(layer, capacity); }, ticks);
    return asked ? result : asked;
  }

  /// The cache. The worker's thread must not run: it is stopped, paused, dead, or stepped by hand.
  Cache& cache() noexcept { return cache_; }

  /// What has been counted. Any thread; each number by itself.
  worker_counters counters() const noexcept {
    worker_counters c{};
    for (u32 i = 0; i < n_tallies; ++i) {
      c.n[i] = tallies_[i].load(std::memory_order_relaxed);
    }
    for (u32 r = 0; r < n_drop_reasons; ++r) {
      c.dropped[r] = dropped_[r].load(std::memory_order_relaxed);
    }
    return c;
  }

  // ---- work -----------------------------------------------------------------------------------------

  /// Does what there is to do now and does not wait. False where there was nothing. One thread at a time:
  /// a second one is refused, and in debug builds an assertion fails.
  bool step() noexcept {
    single_owner::visit const here{owner_};
    WARMSET_ASSERT(here.alone(), "a second thread steps this worker: a cache has one owner");
    if (!here.alone()) {
      tallies_[static_cast<u32>(tally::intruders)].fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    bool worked = run_request();
    cache_.settle();
    bool owes_decisions = false;
    for (end& e : ends_) {
      host_words::store(e.channel.at(channel_view::heartbeat), ++e.beats);
      count_hints_without_message(e);
      worked |= let_go_of_finished(e);
      worked |= take_demands(e);
      worked |= decide_demands(e);
      worked |= serve_demands(e);
      owes_decisions |= e.undecided != e.demands.next() || e.demands.has_message();
    }
    return (!owes_decisions && take_hint()) || worked;
  }

 private:
  enum class stage : u8 {
    ended,    ///< nothing is owed
    taken,    ///< not decided
    loading,  ///< the bytes of a wave are under way
    reading,  ///< the device reads a wave, and another follows
    answered,
  };
  /// Which arrival word says that the bytes of one expert are in place.
  enum class route : u32 {
    none,   ///< they are: a hit, or the source has put them there
    table,  ///< that of the table's transfer
    own,    ///< that of a transfer which the table does not know: a wave, or one started again
  };
  enum class standing : u8 { ready, loading, failed };
  enum class request : u32 { idle, posted, running, done };

  /// One demand from its message to the end of its lease.
  struct entry {
    stage at = stage::ended;
    phase in_phase = phase::decode;
    bool overdue = false;
    bool blocked = false;  ///< transfers of others run into the scratch of wave 0
    reason why = reason::none;
    u32 sequence = 0;
    layer_id layer{};
    u32 pool = 0;
    u32 row = 0;
    u32 n_ids = 0;
    u32 n = 0;  ///< distinct experts
    u32 wave = 0;
    u32 n_waves = 0;
    u32 n_extra = 0;
    u64 since = 0;
    typename Cache::lease held;
    routed_id* ids = nullptr;
    u32* expert = nullptr;
    u32* slot = nullptr;
    u32* wave_of = nullptr;
    u32* generation = nullptr;
    u32* by = nullptr;     ///< route
    u32* extra = nullptr;  ///< scratch slots leased beside the plan's
  };

  /// The worker's end of a channel.
  struct end {
    end(channel_view c, u32 n_layers)
        : channel(c), demands(c.demands()), hints(c.hints()), oldest(demands.next()),
          undecided(oldest), acknowledged(oldest - 1), entries(c.shape.demands),
          words(6 * std::size_t{c.shape.demands} * c.shape.max_ids),
          ids(std::size_t{c.shape.demands} * c.shape.max_ids), planned(n_layers) {
      for (u32 i = 0; i < n_hint_refusals; ++i) {
        refused[i] = host_words::load(c.refused_folded(i));
      }
      u32* next = words.data();
      for (u32 i = 0; i < c.shape.demands; ++i) {
        entry& x = entries[i];
        x.ids = ids.data() + std::size_t{i} * c.shape.max_ids;
        for (u32** part : {&x.expert, &x.slot, &x.wave_of, &x.generation, &x.by, &x.extra}) {
          *part = next;
          next += c.shape.max_ids;
        }
      }
    }
    entry& of(u32 sequence) noexcept { return entries[sequence & (channel.shape.demands - 1)]; }

    struct last_planned {
      u32 sequence;
      bool any;
    };
    channel_view channel;
    consumer<demand_ring> demands;
    consumer<hint_ring> hints;
    u32 oldest;     ///< demand whose lease may still be held
    u32 undecided;  ///< demand that is decided next
    u32 acknowledged;
    u32 beats = 0;
    u32 refused[n_hint_refusals];  ///< ids of hints without a message, as far as they are counted
    fixed_array<entry> entries;
    fixed_array<u32> words;
    fixed_array<routed_id> ids;
    fixed_array<last_planned> planned;  ///< by layer id: of this channel's demands
  };

  // ---- demands

  bool let_go_of_finished(end& e) noexcept {
    u32 const finished = finished_of(e);
    bool worked = false;
    while (e.oldest != e.demands.next() && reached(finished, e.oldest)) {
      entry& x = e.of(e.oldest);
      if (x.at != stage::answered && x.at != stage::ended) {
        count(tally::abandoned);
        x.at = stage::ended;
      }
      if (transfers_run(x)) {
        break;  // nobody else may have the slots yet
      }
      x.held.release();
      for (u32 i = 0; i < x.n_extra; ++i) {
        return_scratch(x.pool, x.extra[i]);
      }
      x.n_extra = 0;
      if (e.undecided == e.oldest) {
        ++e.undecided;
      }
      give_back(e, e.oldest++);
      worked = true;
    }
    return worked;
  }

  /// Up to where the device has finished. A number beyond what it has published is none of its own: none.
  u32 finished_of(end const& e) const noexcept {
    u32 const finished = host_words::load_acquire(e.channel.at(channel_view::finished));
    u32 const published =
        host_words::load(e.channel.demands().at(ring_view<demand_ring>::published));
    return reached(published, finished) ? finished : e.oldest - 1;
  }

  bool take_demands(end& e) noexcept {
    bool worked = false;
    u32 const finished = finished_of(e);
    while (e.demands.next() - e.oldest < e.channel.shape.demands) {
      u32 const sequence = e.demands.next();
      entry& x = e.of(sequence);
      message m;
      pull const got = e.demands.take(m, x.ids);
      if (got != pull::taken) {
        if (got != pull::empty) {
          count(tally::torn);
        }
        break;
      }
      x.at = stage::taken;
      x.in_phase = m.tag == static_cast<u32>(phase::prefill) ? phase::prefill : phase::decode;
      x.overdue = false;
      x.blocked = false;
      x.why = reason::none;
      x.sequence = sequence;
      x.layer = {m.layer};
      x.n_ids = m.n;
      x.n = x.wave = x.n_waves = 0;
      x.since = options_.clock.now();
      if (e.channel.answers().template is_of<host_words>(sequence)) {
        x.at = stage::answered;  // by a worker before this one
        count(tally::repeated);
      } else {
        count(tally::demands);
      }
      if (x.at == stage::taken && reached(finished, sequence)) {
        x.at = stage::ended;  // its device has given up
        count(tally::abandoned);
      }
      worked = true;
    }
    return worked;
  }

  /// In the order of the channel: a demand that finds nothing free holds up the later ones.
  bool decide_demands(end& e) noexcept {
    bool worked = false;
    for (; e.undecided != e.demands.next(); ++e.undecided) {
      entry& x = e.of(e.undecided);
      if (x.at == stage::taken && !decide(e, x)) {
        break;
      }
      worked = true;
    }
    return worked;
  }

  bool decide(end& e, entry& x) noexcept {
    x.held = cache_.demand(x.layer, array_view<routed_id const>{x.ids, x.n_ids}, x.in_phase);
    auto const& decided = x.held.view();
    if (decided.kind == plan_kind::busy) {
      count(tally::busy);
      return false;
    }
    x.at = stage::loading;
    x.why = decided.why;
    if (x.why != reason::none || !cache_.find(x.layer, x.pool, x.row)) {
      return true;
    }
    e.planned[x.layer.value] = {x.sequence, true};
    x.n = static_cast<u32>(decided.experts.size());
    x.n_waves = decided.n_waves;
    if (x.n_waves != 0) {
      x.blocked = cache_.start_wave(0).why == reason::in_flight;
    }
    auto& pool = cache_.pools()[x.pool];
    auto const& table = pool.view();
    for (u32 i = 0; i < x.n; ++i) {
      access_kind const how = decided.how[i];
      bool const in_scratch = how == access_kind::declined || how == access_kind::overflow_miss;
      bool const loads = how == access_kind::load || how == access_kind::late;
      x.expert[i] = decided.experts[i];
      x.slot[i] = decided.slots[i];
      x.wave_of[i] = in_scratch ? decided.waves[i] : 0;
      x.by[i] = static_cast<u32>(in_scratch ? route::own : loads ? route::table : route::none);
      x.generation[i] = in_scratch ? cache_.scratch_generation()
                        : loads    ? table.generation(x.slot[i])
                                   : 0;
    }
    return true;
  }

  bool serve_demands(end& e) noexcept {
    bool worked = false;
    bool looked = false;
    u64 now = 0;
    for (u32 sequence = e.oldest; sequence != e.demands.next(); ++sequence) {
      entry& x = e.of(sequence);
      if (x.at == stage::answered || x.at == stage::ended) {
        continue;
      }
      if (!looked) {
        now = options_.clock.now();
        looked = true;
      }
      if (!x.overdue && now - x.since >= options_.deadline) {
        x.overdue = true;
        count(tally::overdue);
        u32* const word = e.channel.at(channel_view::overdue);
        host_words::store(word, host_words::load(word) + 1);
      }
      if (x.at == stage::reading) {
        start_next_wave(e, x);
      }
      if (x.blocked && scratch_is_free(x)) {
        x.blocked = false;
        start_wave(x);
      }
      if (x.at == stage::loading && bytes_are_in_place(x)) {
        publish(e, x);
        worked = true;
      }
    }
    acknowledge(e);
    return worked;
  }

  /// Gives back the cells of the demands that are answered, as far as there is none before them that is not.
  void acknowledge(end& e) noexcept {
    u32 sequence = e.oldest;
    while (sequence != e.demands.next() &&
           (e.of(sequence).at == stage::answered || e.of(sequence).at == stage::ended)) {
      ++sequence;
    }
    give_back(e, sequence - 1);
  }
  void give_back(end& e, u32 sequence) noexcept {
    if (!reached(e.acknowledged, sequence)) {
      e.acknowledged = sequence;
      e.demands.acknowledge(sequence);
    }
  }

  bool bytes_are_in_place(entry& x) noexcept {
    bool all = true;
    for (u32 i = 0; i < x.n; ++i) {
      if (x.wave_of[i] != x.wave) {
        continue;
      }
      standing now = standing_of(x, i);
      if (now != standing::ready && x.overdue && fill_from_source(x, i)) {
        now = standing::ready;
      } else if (now == standing::failed) {
        load_again(x, i);
      }
      all = all && now == standing::ready;
    }
    return all;
  }

  /// The slot is leased: no transfer of another expert runs into it, whatever the table says of it since.
  standing standing_of(entry& x, u32 i) noexcept {
    if (static_cast<route>(x.by[i]) == route::none) {
      return standing::ready;
    }
    u32 const word = cache_.backend().arrivals(x.pool)[x.slot[i]];
    if (x.slot[i] < cache_.sites()[x.pool].n_slots && is_own(word) && starts_after(x, i, word >> 2)) {
      x.by[i] = static_cast<u32>(route::own);  // another demand that holds the slot has started it again
      x.generation[i] = word >> 2;
    }
    if (!arrival::is_of(word, x.generation[i])) {
      return standing::loading;
    }
    transfer const now = arrival::state(word);
    return now == transfer::arrived  ? standing::ready
           : now == transfer::failed ? standing::failed
                                     : standing::loading;
  }

  /// Starts a failed transfer again, into the same slot: the lease keeps everybody else out of it.
  void load_again(entry& x, u32 i) noexcept {
    auto& pool = cache_.pools()[x.pool];
    auto const& table = pool.view();
    if (x.slot[i] < table.header().n_slots) {
      u32 const word = table.word(x.slot[i]);
      if (slot_word::state(word) == slot_state::reserved || (word & slot_word::loading) != 0) {
        return;  // the table has yet to settle it
      }
    }
    x.by[i] = static_cast<u32>(route::own);
    x.generation[i] = next_generation();
    transfer_order const order{{x.slot[i]}, {x.layer, {x.expert[i]}}, x.generation[i]};
    cache_.backend().start(x.pool, {&order, 1});
    count(tally::retried);
  }

  bool fill_from_source(entry& x, u32 i) noexcept {
    if constexpr (Source::mapped) {
      slot_id const slot = x.n_extra < x.n ? lease_scratch(x.pool) : no_slot;
      if (slot == no_slot) {
        return false;
      }
      if (!options_.source.serve_from_source(x.pool, slot, expert_key{x.layer, {x.expert[i]}})) {
        return_scratch(x.pool, slot.value);
        return false;
      }
      x.extra[x.n_extra++] = slot.value;
      x.slot[i] = slot.value;
      x.by[i] = static_cast<u32>(route::none);
      count(tally::from_source);
      return true;
    } else {
      (void)x, (void)i;
      return false;
    }
  }

  void start_next_wave(end& e, entry& x) noexcept {
    u32 const mark = host_words::load_acquire(e.channel.at(channel_view::wave_mark));
    if (mark >> 16 != (x.sequence & 0xFFFF) || (mark & 0xFFFF) != x.wave + 1) {
      return;  // it cannot have read more than there was
    }
    ++x.wave;
    start_wave(x);
    x.at = stage::loading;
  }
  /// Starts the transfers into scratch of the wave that the demand has come to.
  void start_wave(entry& x) noexcept {
    u32 const generation = next_generation();
    u32 n = 0;
    for (u32 i = 0; i < x.n; ++i) {
      if (waits_for_scratch(x, i)) {
        x.generation[i] = generation;
        transfer_order const order{{x.slot[i]}, {x.layer, {x.expert[i]}}, generation};
        u32 at = n++;  // ascending expert index
        for (; at != 0 && order.expert < orders_[at - 1].expert; --at) {
          orders_[at] = orders_[at - 1];
        }
        orders_[at] = order;
      }
    }
    cache_.backend().start(x.pool, {orders_.data(), n});
  }

  void publish(end& e, entry& x) noexcept {
    answers_view const answers = e.channel.answers();
    for (u32 p = 0; p < x.n_ids; ++p) {
      u32 i = 0;
      while (i < x.n && static_cast<routed_id>(x.expert[i]) != x.ids[p]) {
        ++i;
      }
      if (i == x.n || x.wave_of[i] == x.wave || x.wave == 0) {
        host_words::store(answers.slots(x.sequence) + p, i < x.n ? x.slot[i] : no_slot.value);
        host_words::store(answers.waves(x.sequence) + p, i < x.n ? x.wave_of[i] : 0);
      }
    }
    if (x.wave == 0) {
      answers.publish<host_words>(x.sequence, x.why, x.n_ids, x.n_waves);
      count(tally::answered);
      count(tally::refused, x.why != reason::none ? 1 : 0);
    } else {
      answers.publish_wave<host_words>(x.sequence, x.wave);
    }
    x.at = x.wave + 1 < x.n_waves ? stage::reading : stage::answered;
  }

  // ---- scratch

  /// A scratch slot that nobody holds, leased; no_slot where there is none.
  slot_id lease_scratch(u32 pool) noexcept {
    auto const& table = cache_.pools()[pool].view();
    for (u32 i = 0; i < table.header().n_scratch; ++i) {
      if (table.scratch_word(i) == 0) {
        table.scratch_word(i) += slot_word::one_lease;
        ++table.header().version;
        return {table.header().n_slots + i};
      }
    }
    return no_slot;
  }
  void return_scratch(u32 pool, u32 slot) noexcept {
    auto const& table = cache_.pools()[pool].view();
    table.scratch_word(slot - table.header().n_slots) -= slot_word::one_lease;
    ++table.header().version;
  }
  /// Whether a transfer that the table does not know of writes what this demand holds.
  bool transfers_run(entry const& x) noexcept {
    u32 const first_scratch = cache_.sites()[x.pool].n_slots;
    u32 const* const words = cache_.backend().arrivals(x.pool);
    auto const runs = [&](u32 slot) {
      return (slot >= first_scratch || is_own(words[slot])) &&
             arrival::state(words[slot]) == transfer::loading;
    };
    if (x.held) {
      for (u32 slot : x.held.slots()) {
        if (runs(slot)) {
          return true;
        }
      }
    }
    for (u32 i = 0; i < x.n_extra; ++i) {
      if (runs(x.extra[i])) {
        return true;
      }
    }
    return false;
  }
  /// Whether the demand's wave brings this expert into scratch.
  bool waits_for_scratch(entry const& x, u32 i) noexcept {
    return x.wave_of[i] == x.wave && static_cast<route>(x.by[i]) == route::own &&
           x.slot[i] >= cache_.sites()[x.pool].n_slots;
  }
  /// Whether nothing runs into the scratch of the demand's wave, of no pool that shares it.
  bool scratch_is_free(entry const& x) noexcept {
    array_view<pool_site const> const sites = cache_.sites();
    pool_site const& own = sites[x.pool];
    for (u32 i = 0; i < x.n; ++i) {
      if (!waits_for_scratch(x, i)) {
        continue;
      }
      for (pool_site const& site : sites) {
        u32 const at = x.slot[i] - own.n_slots + site.n_slots;
        if (site.group == own.group &&
            arrival::state(cache_.backend().arrivals(site.pool)[at]) == transfer::loading) {
          return false;
        }
      }
    }
    return true;
  }
  /// Tables and the cache count generations from 0; the worker's own have the upper half of the range.
  static constexpr u32 own_generations = (arrival::generation_mask >> 1) + 1;
  static bool is_own(u32 word) noexcept { return (word >> 2 & own_generations) != 0; }
  /// Whether a transfer that the worker started came after the one that the entry waits for.
  static bool starts_after(entry const& x, u32 i, u32 own_generation) noexcept {
    return static_cast<route>(x.by[i]) == route::table ||
           ((x.generation[i] - own_generation) & (own_generations - 1)) > own_generations / 2;
  }
  u32 next_generation() noexcept {
    starts_ = (starts_ + 1) & (own_generations - 1);
    return own_generations | starts_;
  }

  // ---- hints

  /// Takes one message, from the channels in turn.
  bool take_hint() noexcept {
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      next_hint_ = next_hint_ + 1 < ends_.size() ? next_hint_ + 1 : 0;
      end& e = ends_[next_hint_];
      u32 const sequence = e.hints.next();
      message m;
      pull const got = e.hints.take(m, ids_.data());
      if (got == pull::taken) {
        e.hints.acknowledge(sequence);
        count(tally::hints);
        count(tally::hint_ids, m.n);
        advise(e, m);
        mailbox<>{e.channel.at(channel_view::hints_done)}.post(sequence);
        return true;
      }
      if (got != pull::empty) {
        count(tally::torn);
      }
    }
    return false;
  }

  void advise(end& e, message const& m) noexcept {
    u32 const index = m.layer < index_of_layer_.size() ? index_of_layer_[m.layer] : no_layer;
    if (index == no_layer) {
      drop(0, m.n, reason::unknown_layer);
      return;
    }
    if (e.planned[m.layer].any && !reached(m.after, e.planned[m.layer].sequence)) {
      drop(index, m.n, reason::too_late);  // its step has been decided
      return;
    }
    if constexpr (speculates<policy>) {
      array_view<routed_id const> const ids{ids_.data(), m.n};
      count(tally::hint_loads, cache_.advise(layer_id{m.layer}, ids, u32_max, m.tag));
    } else {
      drop(index, m.n, reason::speculative_budget);
    }
  }

  /// Counts ids of hints that do not reach the cache, in its observer and in the worker's own counters.
  void drop(u32 layer_index, u32 n, reason why) noexcept {
    if (n == 0) {
      return;
    }
    add(dropped_[static_cast<u32>(why)], n);
    outcome& out = cache_.observer().record(layer_index, phase::decode);
    out.hints_offered += n;
    out.hints_dropped[static_cast<u32>(why)] += n;
    cache_.observer().close(layer_index, phase::decode);
  }
  /// What the publishing side has counted since the last look. It says no layer: the first one gets it.
  void count_hints_without_message(end& e) noexcept {
    for (u32 i = 0; i < n_hint_refusals; ++i) {
      u32 const said = host_words::load(e.channel.refused_ids(i));
      if (said != e.refused[i]) {
        drop(0, said - e.refused[i], hint_refusals[i]);
        e.refused[i] = said;
        host_words::store(e.channel.refused_folded(i), said);
      }
    }
  }

  // ---- the thread

  bool run_request() noexcept {
    request expected = request::posted;
    if (request_at_.load(std::memory_order_relaxed) != request::posted ||
        !request_at_.compare_exchange_strong(expected, request::running)) {
      return false;
    }
    request_function_(request_, cache_);
    count(tally::requests);
    request_at_.store(request::done, std::memory_order_release);
    return true;
  }

  void run() noexcept {
    backoff idle{options_.idle_spins};
    for (;;) {
      worker_state const wish = wish_.load(std::memory_order_acquire);
      if (wish == worker_state::running) {
        if (step()) {
          idle.reset();
        } else {
          idle.once();
        }
        if (u64 const nanoseconds = slow_.load(std::memory_order_relaxed); nanoseconds != 0) {
          std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds));
        }
      } else if (wish == worker_state::paused) {
        parked_.store(true, std::memory_order_release);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      } else {
        return;
      }
    }
  }

  /// Says it first, so that nobody waits for a thread that takes its time, and then sees it through.
  status change(worker_event event, reason refused) noexcept {
    std::lock_guard const lock{control_};
    auto const step = next_of(state(), event);
    if (!step.allowed) {
      return {refused};
    }
    announce(step.to);
    parked_.store(false, std::memory_order_relaxed);
    wish_.store(step.to, std::memory_order_release);
    if (thread_.joinable()) {
      if (step.to == worker_state::paused) {
        for (backoff pause; !parked_.load(std::memory_order_acquire); pause.once()) {
        }
      } else if (step.to != worker_state::running) {
        thread_.join();
      }
    }
    return done;
  }

  void announce(worker_state s) noexcept {
    state_.store(s, std::memory_order_release);
    for (end& e : ends_) {
      mailbox<>{e.channel.at(channel_view::state)}.post(static_cast<u32>(s));
    }
  }

  /// Has one writer.
  static void add(std::atomic<u64>& c, u64 n) noexcept {
    c.store(c.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  void count(tally t, u64 n = 1) noexcept { add(tallies_[static_cast<u32>(t)], n); }

  options_type options_;
  Cache cache_;
  std::vector<end> ends_;  // after the cache: its leases end first
  static constexpr u32 no_layer = u32_max;
  fixed_array<u32> index_of_layer_;  ///< by layer id: the observer's
  fixed_array<routed_id> ids_;
  fixed_array<transfer_order> orders_;
  u32 starts_ = 0;
  std::size_t next_hint_ = 0;
  single_owner owner_;

  std::atomic<u64> tallies_[n_tallies] = {};
  std::atomic<u64> dropped_[n_drop_reasons] = {};

  std::mutex requests_;
  std::atomic<request> request_at_{request::idle};
  void (*request_function_)(void*, Cache&) = nullptr;
  void* request_ = nullptr;

  std::mutex control_;
  std::atomic<worker_state> state_{worker_state::stopped};
  std::atomic<worker_state> wish_{worker_state::stopped};
  std::atomic<bool> parked_{false};
  std::atomic<u64> slow_{0};
  std::thread thread_;
};

}  // namespace warmset::inline v0::signal
