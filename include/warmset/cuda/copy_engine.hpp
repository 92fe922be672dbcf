// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "../move/copy_planner.hpp"
#include "../move/host_flights.hpp"
#include "../move/host_options.hpp"
#include "../move/source.hpp"
#include "copy_runtime.hpp"

namespace warmset::inline v0::cuda {

struct copy_options {
  u32 device = 0;
  u64 tail_bytes = 0;  ///< zeroed behind each bank
  u64 own_bytes = 0;   ///< behind the scratch of each bank, for kernels that fetch by themselves: see own_scratch_bytes
  u64 headroom = 0;    ///< bytes of the device's memory that open leaves free
  u64 large_copy = move::large_copy_bytes;  ///< smaller copies never share a batch with larger ones
  bool batches = true;         ///< where the runtime has them
  u32 batch_copies = 256;      ///< most copies of one batch: an event lies behind each
  u32 events = 256;            ///< batches and runs under way; what is beyond waits for poll
  bool register_source = true; ///< pins pageable memory of the source until close
  move::if_pageable pageable = move::if_pageable::stage;  ///< what to do where that fails
  u32 staging_slots = 4;       ///< at least 2
  u64 staging_bytes = u64{1} << 20;  ///< of one slot of the ring
};

/// Bytes behind each bank that hold so many experts of any layer: `copy_options::own_bytes`.
inline u64 own_scratch_bytes(geometry const& model, u32 n_experts) noexcept {
  u64 largest = 0;
  for (layer_geometry const& layer : model.layers()) {
    for (std::size_t bank = 0; bank < layer.bank_bytes.size(); ++bank) {
      largest = max_of(largest, layer.bank_bytes[bank]);
    }
  }
  return largest * n_experts;
}

/// The first call of the runtime that failed.
struct first_failure {
  char const* call = nullptr;  ///< nullptr: none has
  call_result result{};
};

/// The backend of one device: slots in its memory, filled from host memory (or from another device's) by copies in a
/// stream of its own.
///
/// Memory: one allocation per geometry group, laid out by group_layout; its tail begins with `own_bytes` of scratch that
/// belongs to kernels. The source's memory is taken as it is where it is pinned, registered or a device's; pageable memory
/// is registered, and where that cannot be, copied through a pinned ring: `degraded()` then says pageable.
///
/// start makes copies of orders (move/copy_planner.hpp): neighbours are one copy, and small copies never share a batch with
/// large ones. Where the runtime has batches each stretch is one call, else each copy is; an event lies behind each batch,
/// or behind each run of neighbours. poll asks the events in their order and writes an expert's arrival word when its last
/// bank has come; what found no event or no room in the ring goes on there. A batch that is refused is tried copy by copy.
///
/// An event that answers with an error is asked again in `max_tries` polls, since its copies may still run; then they
/// count as failed. A later copy into the same slot comes later in the stream all the same.
///
/// Errors: open throws config_error (a device that is not there, too little memory left, pageable memory where that is not
/// allowed) and bad_alloc. The results of all calls after it are transfers that failed, and `failure()`. After open nothing
/// allocates, on either side. Each call makes its device the current one and restores the one before. close waits for the
/// stream. Complexity: start O(orders · banks), poll O(copies that have come).
template <copy_runtime Runtime, class Source = move::span_source>
class basic_copy_engine {
 public:
  using runtime_type = Runtime;
  static constexpr move::memory_kind slot_memory = move::memory_kind::device;
  static constexpr u32 max_tries = 4;

  explicit basic_copy_engine(copy_options options = {}, Source source = {}, Runtime runtime = {})
      : options_(options), source_(std::move(source)), runtime_(std::move(runtime)) {}
  basic_copy_engine(basic_copy_engine&&) = default;
  basic_copy_engine& operator=(basic_copy_engine&& other) noexcept {
    std::swap(options_, other.options_);
    std::swap(source_, other.source_);
    std::swap(runtime_, other.runtime_);
    std::swap(state_, other.state_);
    std::swap(failure_, other.failure_);
    return *this;
  }
  ~basic_copy_engine() { close(); }

  // ---- backend

  u64 tail_bytes() const noexcept { return options_.own_bytes + options_.tail_bytes; }

  void open(geometry const& model, array_view<pool_site const> sites) {
    check_sites(model, sites);
    if (options_.events == 0 || options_.batch_copies == 0) {
      throw config_error("a copy engine with ", options_.events, " events and batches of ", options_.batch_copies,
                         " copies can copy nothing");
    }
    u32 n_devices = 0;
    (void)runtime_.count_devices(n_devices);
    if (options_.device >= n_devices) {
      throw config_error("there are ", n_devices, " devices and none with number ", options_.device);
    }
    on_device<Runtime> const here(runtime_, options_.device);
    if (!here.result()) {
      throw config_error("device ", options_.device, " cannot be used; the runtime says ",
                         static_cast<u32>(here.result().code));
    }
    state_ = std::unique_ptr<state>(open_state(model, sites));
  }

  u32 const* arrivals(u32 pool) const noexcept { return state_->flights.words().of(pool); }

  void start(u32 pool, array_view<transfer_order const> orders) noexcept {
    state& s = *state_;
    pool_site const& site = s.sites[pool];
    group_memory const& g = s.groups[site.group];
    u32 n = 0;
    for (transfer_order const& order : orders) {
      if (!s.flights.words().has(pool, order.slot)) {
        ++s.ledger.refused;
        continue;
      }
      u32 const index = site.bank_index(order.slot);
      if (!s.is_open || s.flights.is_busy(site.group, index) || n == s.accepted.size() ||
          s.find(pool, order.expert) == nullptr) {
        refuse(pool, order);
        continue;
      }
      s.flights.begin(site.group, index, pool, order, g.layout.n_banks(), s.ledger.transfers);
      s.accepted[n++] = order;
    }
    if (n == 0) {
      return;
    }
    array_view<transfer_order const> const accepted(s.accepted.data(), n);
    move::copy_plan const plan = move::plan_copies(accepted, site, g.layout, options_.large_copy, s.planned);
    s.ledger.large_copies += plan.n_large;
    s.ledger.small_copies += plan.n_small;
    s.ledger.merged += n - plan.n_runs;
    put_in_queue(pool, 0, plan.n_large);
    put_in_queue(pool, plan.n_large, plan.n_small);
    on_device<Runtime> const here(runtime_, options_.device);
    if (note("the device", here.result())) {
      launch_what_can(s);
    }
  }

  void poll() noexcept {
    if (!state_ || !state_->is_open || state_->head == state_->tail) {
      return;
    }
    state& s = *state_;
    on_device<Runtime> const here(runtime_, options_.device);
    if (!note("the device", here.result())) {
      if (++s.lost == max_tries) {
        fail_everything(s);
        s.lost = 0;
      }
      return;
    }
    s.lost = 0;
    take_in(s);
    launch_what_can(s);
  }

  /// Waits for what is under way: that has arrived then, and what was not launched has failed.
  void close() noexcept {
    if (!state_ || !state_->is_open) {
      return;
    }
    state& s = *state_;
    s.is_open = false;
    on_device<Runtime> const here(runtime_, options_.device);
    bool const ended = note("waiting for the copy stream", runtime_.synchronise(s.stream));
    while (s.n_launched != 0) {
      finish_oldest(s, !ended);
    }
    fail_everything(s);
    release_copies(s);
  }

  // ---- where things lie

  /// A bank of a group in device memory: index i of it lies at i times the bytes of one expert.
  unsigned char* bank(u32 group, u32 bank) const noexcept {
    return state_->groups[group].memory + state_->groups[group].layout.offset(bank, 0);
  }
  group_layout const& layout(u32 group) const noexcept { return state_->groups[group].layout; }
  u32 n_groups() const noexcept { return state_ ? static_cast<u32>(state_->groups.size()) : 0; }
  array_view<pool_site const> sites() const noexcept { return state_->sites; }
  /// One bank of one slot in device memory.
  unsigned char* slot(u32 pool, slot_id slot, u32 bank) const noexcept {
    pool_site const& site = state_->sites[pool];
    return state_->groups[site.group].memory +
           state_->groups[site.group].layout.offset(bank, site.bank_index(slot));
  }
  /// The scratch of kernels: from this index of the group's banks on, so many experts.
  u32 first_own(u32 group) const noexcept { return layout(group).n_slots() + layout(group).n_scratch(); }
  u32 n_own(u32 group) const noexcept {
    u64 least = u32_max;
    for (u32 b = 0; b < layout(group).n_banks(); ++b) {
      least = min_of(least, options_.own_bytes / layout(group).stride(b));
    }
    return static_cast<u32>(least);
  }

  // ---- streams

  /// The stream of the copies, such as for what they have to wait for.
  typename Runtime::stream stream() const noexcept { return state_->stream; }

  /// What the stream is given from now on begins after the transfer into this slot, and waits for no later one. `busy`
  /// where its copies are not all launched yet: poll, and ask again. Not while the stream is being captured.
  call_result order_after_arrival(typename Runtime::stream stream, u32 pool, slot_id slot) noexcept {
    state& s = *state_;
    pool_site const& site = s.sites[pool];
    u32 const index = site.bank_index(slot);
    if (!s.is_open || !s.flights.is_busy(site.group, index)) {
      return {};
    }
    u64 last = s.head;
    bool any = false;
    for (u64 i = s.head; i != s.tail; ++i) {
      queued const& q = s.at(i);
      if (q.group == site.group && index >= q.copy.first_index && index < q.copy.first_index + q.copy.n_experts) {
        last = i;
        any = true;
      }
    }
    if (!any || last >= s.sent) {
      return {reason::busy, 0};
    }
    u64 copies = s.head;
    for (u32 i = 0; i < s.n_launched; ++i) {
      launched const& l = s.launch(i);
      copies += l.n_copies;
      if (copies > last) {
        return l.recorded ? told("ordering a stream", runtime_.order(stream, s.events[l.event])) : call_result{reason::busy, 0};
      }
    }
    return {reason::busy, 0};
  }

  // ---- what it is like

  /// Why copies are slower than asked for: `pageable`, or none.
  reason degraded() const noexcept { return state_ && state_->n_ring != 0 ? reason::pageable : reason::none; }
  /// Whether stretches of copies are one call each.
  bool batches() const noexcept { return state_ && state_->batches; }
  move::move_ledger const& ledger() const noexcept { return state_->ledger; }
  first_failure const& failure() const noexcept { return failure_; }
  copy_options const& options() const noexcept { return options_; }
  Source const& source() const noexcept { return source_; }
  Runtime& runtime() noexcept { return runtime_; }

 private:
  struct group_memory {
    group_layout layout;
    unsigned char* memory = nullptr;
  };
  struct layer_room {
    layer_id layer;
    u32 pool;
    u32 n_experts;
    u32 first_bank;  ///< in `banks`
  };
  struct queued {
    u32 group = 0;
    u32 batch = 0;       ///< copies of the same start and size class have the same
    bool failed = false;
    u64 staged = 0;      ///< bytes that have been launched, where there is a ring
    unsigned char const* from = nullptr;
    move::copy_entry copy{};
  };
  /// What lies before one event: the oldest copies that are not accounted for.
  struct launched {
    u32 event = 0;
    u32 n_copies = 0;
    bool recorded = false;
    bool takes_ring = false;
    u32 tries = 0;
  };
  struct span_of_pages {
    std::uintptr_t begin;
    std::uintptr_t end;
  };

  /// All that open makes. Its destructor gives back what is left.
  struct state {
    explicit state(Runtime& r, u32 d) noexcept : runtime(r), device(d) {}
    state(state const&) = delete;
    state& operator=(state const&) = delete;
    ~state() {
      on_device<Runtime> const here(runtime, device);
      for (group_memory const& g : groups) {
        if (g.memory != nullptr) {
          (void)runtime.release(g.memory);
        }
      }
      release();
    }
    /// Everything but the slots, which readers may still be reading.
    void release() noexcept {
      for (std::size_t i = 0; i < events.size(); ++i) {
        (void)runtime.destroy_event(events[i]);
      }
      events.clear();
      if (has_stream) {
        (void)runtime.destroy_stream(stream);
        has_stream = false;
      }
      if (ring != nullptr) {
        (void)runtime.release_pinned(ring);
        ring = nullptr;
      }
      for (std::size_t i = 0; i < registered.size(); ++i) {
        (void)runtime.unregister_host(reinterpret_cast<void const*>(registered[i].begin));
      }
      registered.clear();
    }

    layer_room const* find(u32 pool, expert_key key) const noexcept {
      for (layer_room const& room : rooms) {
        if (room.pool == pool && room.layer == key.layer) {
          return key.expert.value < room.n_experts ? &room : nullptr;
        }
      }
      return nullptr;
    }
    queued& at(u64 i) noexcept { return queue[i % queue.size()]; }
    /// The i-th oldest.
    launched& launch(u32 i) noexcept { return launches[(first_launched + i) % launches.size()]; }

    Runtime runtime;
    u32 device;
    std::vector<pool_site> sites;
    std::vector<group_memory> groups;
    std::vector<layer_room> rooms;
    std::vector<unsigned char const*> banks;  ///< of each room: where its experts begin
    move::host_flights flights;
    std::vector<transfer_order> accepted;
    std::vector<move::copy_entry> planned;
    std::vector<queued> queue;  ///< a ring of copies: head <= sent <= tail
    std::vector<launched> launches;
    std::vector<void*> to;
    std::vector<void const*> from;
    std::vector<std::size_t> bytes;
    std::vector<typename Runtime::event> events;
    std::vector<span_of_pages> registered;
    typename Runtime::stream stream{};
    unsigned char* ring = nullptr;  ///< pinned
    u64 ring_bytes = 0;             ///< of one slot
    u32 n_ring = 0;                 ///< slots; 0 = copies take the source as it is
    u32 next_ring = 0;
    u32 used_ring = 0;
    u64 head = 0;  ///< oldest copy that has not ended
    u64 sent = 0;  ///< first copy that is not launched
    u64 tail = 0;
    u32 first_launched = 0;
    u32 n_launched = 0;
    u32 next_event = 0;
    u32 batch = 0;
    u32 lost = 0;
    bool batches = false;
    bool has_stream = false;
    bool is_open = false;
    move::move_ledger ledger;
  };

  // ---- results

  bool note(char const* call, call_result r) noexcept {
    if (!r && r.why != reason::busy && failure_.call == nullptr) {
      failure_ = {call, r};
    }
    return static_cast<bool>(r);
  }
  call_result told(char const* call, call_result r) noexcept {
    (void)note(call, r);
    return r;
  }
  /// For what open cannot do without.
  void require(char const* call, call_result r) {
    if (note(call, r)) {
      return;
    }
    if (r.why == reason::no_memory) {
      throw std::bad_alloc();
    }
    throw config_error(call, " failed on device ", options_.device, "; the runtime says ", static_cast<u32>(r.code));
  }

  // ---- opening

  state* open_state(geometry const& model, array_view<pool_site const> sites) {
    std::unique_ptr<state> made(new state(runtime_, options_.device));
    state& s = *made;
    s.sites.assign(sites.begin(), sites.end());
    for (group_layout& layout : layouts_of(model, sites, tail_bytes())) {
      s.groups.push_back({std::move(layout), nullptr});
    }
    std::size_t most_orders = 0;
    std::size_t most_planned = 0;
    for (pool_site const& site : s.sites) {
      most_orders = max_of(most_orders, std::size_t{site.n_words()});
      most_planned = max_of(most_planned, std::size_t{site.n_words()} * s.groups[site.group].layout.n_banks());
      for (layer_id layer : site.layers) {
        layer_geometry const& of = *model.find(layer);
        source_.check(of);
        s.rooms.push_back({layer, site.pool, of.n_experts, static_cast<u32>(s.banks.size())});
        for (u32 bank = 0; bank < of.bank_bytes.size(); ++bank) {
          s.banks.push_back(reinterpret_cast<unsigned char const*>(source_.bytes(layer, bank).data()));
        }
        s.ledger.source += of.n_experts * of.expert_bytes();
      }
    }
    std::vector<u32> n_indices;
    std::size_t n_copies = 1;
    u64 wanted = 0;
    for (group_memory const& g : s.groups) {
      u32 const n = g.layout.n_slots() + g.layout.n_scratch();
      n_indices.push_back(n);
      n_copies += std::size_t{n} * g.layout.n_banks();
      wanted += g.layout.bytes();
    }
    s.flights = move::host_flights(sites, n_indices);
    s.accepted.resize(most_orders);
    s.planned.resize(most_planned);
    s.queue.resize(n_copies);
    std::size_t const n_batch = min_of(n_copies, std::size_t{options_.batch_copies});
    s.to.resize(n_batch);
    s.from.resize(n_batch);
    s.bytes.resize(n_batch);
    s.batches = options_.batches && runtime_.has_batch_copy();

    take_memory(s, wanted);
    require("creating a stream", runtime_.make_stream(s.stream));
    s.has_stream = true;
    std::size_t const n_events = min_of(n_copies, std::size_t{options_.events});
    s.events.reserve(n_events);
    for (std::size_t i = 0; i < n_events; ++i) {
      typename Runtime::event made_event{};
      require("creating an event", runtime_.make_event(made_event));
      s.events.push_back(made_event);
    }
    s.launches.resize(n_events);
    if (!pin_source(s, model)) {
      make_ring(s);
    }
    try_a_batch(s);
    for (group_memory& g : s.groups) {
      if (g.memory != nullptr) {
        require("zeroing device memory", runtime_.clear(g.memory, g.layout.bytes(), s.stream));
      }
    }
    require("zeroing device memory", runtime_.synchronise(s.stream));
    s.is_open = true;
    return made.release();
  }

  void take_memory(state& s, u64 wanted) {
    u64 left = 0;
    require("asking for free memory", runtime_.free_bytes(left));
    if (left < wanted || left - wanted < options_.headroom) {
      throw config_error("device ", options_.device, " has ", left, " bytes left; ", wanted, " are asked for, and ",
                         options_.headroom, " are to stay free");
    }
    for (group_memory& g : s.groups) {
      if (g.layout.bytes() != 0) {
        void* memory = nullptr;
        require("allocating device memory", runtime_.allocate(memory, g.layout.bytes()));
        g.memory = static_cast<unsigned char*>(memory);
        s.ledger.allocated += g.layout.bytes();
      }
    }
  }

  bool is_pageable(void const* memory) noexcept {
    move::memory_kind kind = move::memory_kind::pageable;
    return !note("asking where memory lies", runtime_.kind_of(memory, kind)) || kind == move::memory_kind::pageable;
  }

  /// Whether copies can take all of the source as it is. Spans that share a page are registered together.
  bool pin_source(state& s, geometry const& model) {
    constexpr std::uintptr_t page = 4096;
    std::vector<span_of_pages> pageable;
    for (layer_room const& room : s.rooms) {
      for (u32 bank = 0; bank < model.find(room.layer)->bank_bytes.size(); ++bank) {
        auto const bytes = source_.bytes(room.layer, bank);
        std::uintptr_t const begin = reinterpret_cast<std::uintptr_t>(bytes.data());
        if (is_pageable(bytes.data()) || is_pageable(bytes.data() + (bytes.size() - 1))) {
          pageable.push_back({begin / page * page, (begin + bytes.size() + page - 1) / page * page});
        }
      }
    }
    if (!pageable.empty() && !options_.register_source) {
      return false;
    }
    std::sort(pageable.begin(), pageable.end(),
              [](span_of_pages const& a, span_of_pages const& b) { return a.begin < b.begin; });
    std::size_t n = 0;
    for (std::size_t i = 0; i < pageable.size(); ++i) {
      if (n != 0 && pageable[i].begin < pageable[n - 1].end) {
        pageable[n - 1].end = max_of(pageable[n - 1].end, pageable[i].end);
      } else {
        pageable[n++] = pageable[i];
      }
    }
    s.registered.reserve(n);
    for (std::size_t i = 0; i < n; ++i) {
      span_of_pages const& p = pageable[i];
      if (!runtime_.register_host(reinterpret_cast<void const*>(p.begin), p.end - p.begin)) {
        return false;  // said by degraded(), or by open
      }
      s.registered.push_back(p);
    }
    return true;
  }

  /// Whether batches work, and what the runtime makes at the first of them is made now: not while a kernel waits.
  void try_a_batch(state& s) noexcept {
    s.batches = s.batches && s.n_ring == 0 && s.to.size() > 1 && !s.banks.empty();
    for (group_memory const& g : s.groups) {
      if (s.batches && g.memory != nullptr) {
        for (u32 i = 0; i < 2; ++i) {
          s.to[i] = g.memory + i;
          s.from[i] = s.banks[0];
          s.bytes[i] = 1;
        }
        s.batches = static_cast<bool>(runtime_.copy_batch(s.to.data(), s.from.data(), s.bytes.data(), 2, s.stream));
        return;
      }
    }
  }

  void make_ring(state& s) {
    if (options_.pageable == move::if_pageable::fail) {
      throw config_error("the source is pageable memory that cannot be pinned, and staging is not allowed");
    }
    if (options_.staging_slots < 2 || options_.staging_bytes == 0) {
      throw config_error("a staging ring of ", options_.staging_slots, " slots of ", options_.staging_bytes,
                         " bytes cannot overlap; it needs at least 2 slots with room");
    }
    void* memory = nullptr;
    require("allocating pinned memory", runtime_.allocate_pinned(memory, options_.staging_slots * options_.staging_bytes));
    s.ring = static_cast<unsigned char*>(memory);
    s.ring_bytes = options_.staging_bytes;
    s.n_ring = options_.staging_slots;
    s.ledger.staging = s.n_ring * s.ring_bytes;
  }

  // ---- copies

  /// The word says failed, but for a slot with a transfer running.
  void refuse(u32 pool, transfer_order const& order) noexcept {
    ++state_->ledger.refused;
    u32& word = state_->flights.words().at(pool, order.slot);
    if (arrival::state(word) != transfer::loading) {
      word = arrival::word(order.generation, transfer::failed);
    }
  }

  void put_in_queue(u32 pool, u32 first, u32 n) noexcept {
    state& s = *state_;
    ++s.batch;
    for (u32 i = first; i < first + n; ++i) {
      move::copy_entry const& copy = s.planned[i];
      layer_room const& room = *s.find(pool, {copy.layer, {copy.first_expert}});
      s.at(s.tail++) = {s.sites[pool].group, s.batch, false, 0, s.banks[room.first_bank + copy.bank] + copy.source_offset, copy};
      ++s.ledger.copies.issued;
      ++s.ledger.copies.in_flight;
      s.ledger.bytes.issued += copy.bytes;
      s.ledger.bytes.in_flight += copy.bytes;
    }
  }

  void launch_what_can(state& s) noexcept {
    while (s.sent != s.tail && s.n_launched < s.launches.size() && (s.n_ring == 0 || s.used_ring < s.n_ring)) {
      if (s.n_ring != 0) {
        launch_staged(s);
      } else {
        launch_stretch(s);
      }
    }
  }

  static unsigned char* target(state& s, queued const& q) noexcept {
    return s.groups[q.group].memory + q.copy.device_offset;
  }

  /// The next copies that may share a batch, or the next run of neighbours.
  void launch_stretch(state& s) noexcept {
    queued const& first = s.at(s.sent);
    std::size_t n = 0;
    while (s.sent + n != s.tail && n < s.to.size()) {
      queued const& q = s.at(s.sent + n);
      if (q.batch != first.batch || (!s.batches && q.copy.first_order != first.copy.first_order)) {
        break;
      }
      s.to[n] = target(s, q);
      s.from[n] = q.from;
      s.bytes[n] = q.copy.bytes;
      ++n;
    }
    bool launched_all = false;
    if (s.batches && n > 1) {
      call_result const r = runtime_.copy_batch(s.to.data(), s.from.data(), s.bytes.data(), n, s.stream);
      launched_all = note("a batch of copies", r);
      s.batches = r.why != reason::unsupported;
      s.ledger.batches += launched_all ? 1 : 0;
    }
    for (std::size_t i = 0; !launched_all && i < n; ++i) {
      queued& q = s.at(s.sent + i);
      q.failed = !note("a copy", runtime_.copy(s.to[i], s.from[i], s.bytes[i], s.stream));
      s.ledger.batches += 1;
    }
    s.sent += n;
    push_launch(s, static_cast<u32>(n), false);
  }

  /// The next piece of the next copy, by way of the ring.
  void launch_staged(state& s) noexcept {
    queued& q = s.at(s.sent);
    u64 const bytes = min_of(q.copy.bytes - q.staged, s.ring_bytes);
    unsigned char* const piece = s.ring + s.next_ring * s.ring_bytes;
    std::memcpy(piece, q.from + q.staged, bytes);
    q.failed = !note("a copy", runtime_.copy(target(s, q) + q.staged, piece, bytes, s.stream));
    q.staged += bytes;
    bool const is_last = q.failed || q.staged == q.copy.bytes;
    s.ledger.batches += 1;
    s.next_ring = (s.next_ring + 1) % s.n_ring;
    ++s.used_ring;
    s.sent += is_last ? 1 : 0;
    push_launch(s, is_last ? 1 : 0, true);
  }

  void push_launch(state& s, u32 n_copies, bool takes_ring) noexcept {
    launched& l = s.launch(s.n_launched++);
    l = {s.next_event, n_copies, false, takes_ring, 0};
    s.next_event = (s.next_event + 1) % static_cast<u32>(s.events.size());
    l.recorded = note("recording an event", runtime_.record(s.events[l.event], s.stream));
  }

  void take_in(state& s) noexcept {
    while (s.n_launched != 0) {
      launched& l = s.launch(0);
      if (!l.recorded) {  // a record now comes behind the copies as well
        l.recorded = note("recording an event", runtime_.record(s.events[l.event], s.stream));
      }
      call_result const r = l.recorded ? runtime_.query(s.events[l.event]) : call_result{reason::device_error, 0};
      if (r.why == reason::busy) {
        return;
      }
      if (!r) {
        (void)(l.recorded && note("asking an event", r));
        if (++l.tries < max_tries) {
          return;
        }
      }
      finish_oldest(s, !r);
    }
  }

  void finish_oldest(state& s, bool failed) noexcept {
    launched const l = s.launch(0);
    s.first_launched = (s.first_launched + 1) % static_cast<u32>(s.launches.size());
    --s.n_launched;
    s.used_ring -= l.takes_ring ? 1 : 0;
    if (l.takes_ring && failed && l.n_copies == 0 && s.head != s.tail) {
      s.at(s.head).failed = true;  // a piece of it
    }
    for (u32 i = 0; i < l.n_copies; ++i) {
      end_copy(s, s.at(s.head++), failed);
    }
  }

  void end_copy(state& s, queued const& q, bool event_failed) noexcept {
    bool const failed = event_failed || q.failed;
    ++(failed ? s.ledger.copies.failed : s.ledger.copies.completed);
    --s.ledger.copies.in_flight;
    (failed ? s.ledger.bytes.failed : s.ledger.bytes.completed) += q.copy.bytes;
    s.ledger.bytes.in_flight -= q.copy.bytes;
    for (u32 i = 0; i < q.copy.n_experts; ++i) {
      s.flights.end_bank(q.group, q.copy.first_index + i, failed, nullptr, s.ledger.transfers);
    }
  }

  void fail_everything(state& s) noexcept {
    while (s.n_launched != 0) {
      finish_oldest(s, true);
    }
    for (; s.head != s.tail; ++s.head) {
      end_copy(s, s.at(s.head), true);
    }
    s.sent = s.tail;
  }

  void release_copies(state& s) noexcept { s.release(); }

  copy_options options_;
  Source source_;
  Runtime runtime_;
  std::unique_ptr<state> state_;
  first_failure failure_;
};

}  // namespace warmset::inline v0::cuda
