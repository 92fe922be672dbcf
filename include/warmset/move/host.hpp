// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "backend.hpp"
#include "copy_planner.hpp"
#include "host_flights.hpp"
#include "host_options.hpp"
#include "host_reads.hpp"
#include "host_slots.hpp"
#include "host_staging.hpp"
#include "source.hpp"

namespace warmset::inline v0 {
namespace move {

/// One copy as a failure predicate sees it. `n` counts copies from 0, in the order they run.
struct copy_attempt {
  u64 n;
  u32 group;
  copy_entry const& copy;
};

/// The backend of tests and of hosts without a device: real bytes, moved by a virtual driver whose
/// streams lag behind on a virtual clock.
///
/// Memory: one block per geometry group on one device, laid out by group_layout; zeroed at open.
/// start puts copies into the copy stream; they write when they end, and an expert's arrival word
/// is written when its last bank has. A copy that is made to fail leaves its slots poisoned; the
/// word says `failed` once no bank of the expert is under way any more. enqueue_read puts a reader
/// into the compute stream, so that a use before arrival and an eviction under a reader show.
/// Several hosts may share a driver: its clock, its links, its devices' budgets.
///
/// Faults: `driver().faults()` numbers them. allocate: open throws bad_alloc, or, where it was the
/// pinning of the source, stages. launch, copy: the experts of the copy fail. event: the expert's
/// completion is not seen, and it fails. publish: the word is not written; the next poll writes
/// `failed`. release: a slot's old bytes cannot be given up, and the copy onto them fails.
///
/// Errors: open throws config_error and bad_alloc. Instruments of tests (enqueue_read, fail_copy)
/// may allocate; the members of move_backend and advance do not. One thread. Does not move while it
/// is open. Complexity: start O(orders · banks); advance O(copies and bytes that run).
template <byte_source Source = patterned_source>
class basic_host {
 public:
  static constexpr memory_kind slot_memory = memory_kind::device;

  basic_host() : basic_host(host_options{}) {}
  /// @param driver  null = one of its own, with one device and one link
  explicit basic_host(host_options options, Source source = Source{}, shared_driver driver = {})
      : options_(options), source_(std::move(source)), driver_(std::move(driver)) {
    if (!driver_) {
      link_model link;
      link.bytes = options.bytes_per_tick;
      link.latency = options.latency;
      link.large_from = options.large_copy;
      driver_ = shared_driver::make(std::vector<link_model>(1, link));
    }
  }
  basic_host(basic_host&&) = default;
  basic_host& operator=(basic_host&&) = default;
  ~basic_host() { close(); }

  // ---- backend

  u64 tail_bytes() const noexcept { return options_.tail_bytes; }

  void open(geometry const& model, array_view<pool_site const> sites) {
    check_sites(model, sites);
    if (options_.device >= driver_->n_devices()) {
      throw config_error("the driver has ", driver_->n_devices(), " devices and none with number ",
                         options_.device);
    }
    host_slots slots(model, sites, options_.tail_bytes,
                     [this](u64 bytes) { return take(options_.device, bytes); });
    move_ledger ledger;
    ledger.allocated = slots.bytes();
    std::size_t most_planned = 0;
    std::size_t most_orders = 0;
    std::vector<layer_room> rooms;
    for (pool_site const& site : sites) {
      std::size_t const orders = site.n_words();
      most_orders = max_of(most_orders, orders);
      most_planned = max_of(most_planned, orders * slots[site.group].layout.n_banks());
      for (layer_id layer : site.layers) {
        layer_geometry const& of = *model.find(layer);
        source_.check(of);
        rooms.push_back({layer, site.pool, of.n_experts});
        ledger.source += of.n_experts * of.expert_bytes();
      }
    }
    host_flights flights(sites, slots.n_indices());
    bool const stages = !pin_source();
    owned_block staging;
    if (stages) {
      ledger.staging = slots.largest_bank() * options_.staging_slots;
      staging = take(host_tier, ledger.staging);
    }
    std::vector<copy_entry> planned(most_planned);
    std::vector<transfer_order> accepted(most_orders);
    std::vector<queued_copy> copies(slots.n_banks());
    make_streams(copies.size());

    slots_ = std::move(slots);
    flights_ = std::move(flights);
    rooms_ = std::move(rooms);
    planned_ = std::move(planned);
    accepted_ = std::move(accepted);
    copies_ = std::move(copies);
    staging_ = std::move(staging);
    ring_.slots = stages ? options_.staging_slots : 0;
    ring_.slot_bytes = slots_.largest_bank();
    ledger_ = ledger;
    n_queued_ = next_copy_ = 0;
    is_open_ = true;
  }

  u32 const* arrivals(u32 pool) const noexcept { return flights_.words().of(pool); }

  void start(u32 pool, array_view<transfer_order const> orders) noexcept {
    flights_.publish_late(ledger_.transfers);
    pool_site const& site = slots_.sites()[pool];
    group_layout const& layout = slots_[site.group].layout;
    u32 const n_banks = layout.n_banks();
    u32 n = 0;
    for (transfer_order const& order : orders) {
      if (!flights_.words().has(pool, order.slot)) {
        ++ledger_.refused;
        continue;
      }
      u32 const index = site.bank_index(order.slot);
      if (!is_open_ || flights_.is_busy(site.group, index) || n == accepted_.size() ||
          !serves(pool, order.expert)) {
        refuse(pool, order);
        continue;
      }
      flights_.begin(site.group, index, pool, order, n_banks, ledger_.transfers);
      accepted_[n++] = order;
    }
    array_view<transfer_order const> const accepted(accepted_.data(), n);
    copy_plan const plan = plan_copies(accepted, site, layout, options_.large_copy, planned_);
    ledger_.large_copies += plan.n_large;
    ledger_.small_copies += plan.n_small;
    ledger_.merged += n - plan.n_runs;
    launch_batch(site.group, 0, plan.n_large);
    launch_batch(site.group, plan.n_large, plan.n_small);
  }

  /// Advances the clock by `ticks_per_poll`: with the default options all that was started has
  /// ended.
  void poll() noexcept {
    flights_.publish_late(ledger_.transfers);
    advance(options_.ticks_per_poll);
  }

  void close() noexcept {
    if (!is_open_ || !driver_) {
      return;
    }
    is_open_ = false;  // from here on words are written without faults
    if (ring_.slots != 0) {
      streams().abandon(ring_.stream);
    }
    streams().abandon(copy_stream_);
    streams().abandon(compute_stream_);
    flights_.publish_late(ledger_.transfers);
  }

  // ---- clock

  virtual_driver& driver() noexcept { return *driver_; }
  virtual_driver const& driver() const noexcept { return *driver_; }
  /// Streams of the driver since open: copies run in one, enqueue_read and kernels in the other.
  u32 copy_stream() const noexcept { return copy_stream_; }
  u32 compute_stream() const noexcept { return compute_stream_; }

  u64 now() const noexcept { return driver_->now(); }
  bool idle() const noexcept {
    return n_queued_ == 0 && (!has_streams_ || driver_->streams().idle(compute_stream_));
  }

  /// Moves the clock and runs what the streams get to by then: at one tick ends come before begins,
  /// and begins in the order they were enqueued. Words are written here.
  void advance(u64 ticks) noexcept { streams().advance(ticks); }

  /// Runs until nothing can run; the clock stops there. Returns the ticks that took.
  u64 advance_to_idle() noexcept { return streams().advance_to_idle(); }

  /// A slow, paused or dead copy engine, from the next copy on.
  void set_copy_engine(engine_state e) noexcept { streams().set_engine(copy_stream_, e); }

  /// Why copies are slower than asked for: `pageable`, or none.
  reason degraded() const noexcept { return ring_.slots != 0 ? reason::pageable : reason::none; }

  // ---- readers

  /// The bytes of one bank of a slot at this moment, where it holds exactly what is claimed. O(bank
  /// bytes) with compare_bytes, else O(1).
  read_result read(u32 pool, slot_id slot, expert_key expert, u32 generation,
                   u32 bank) const noexcept {
    return read(read_claim{pool, slot, expert, generation, bank});
  }

  read_result read(read_claim const& claim) const noexcept {
    bank_tag const* const t = slots_.find(claim);
    if (t == nullptr) {
      return {{}, read_fault::out_of_range};
    }
    if (read_fault const fault = t->judge(claim.expert, claim.generation);
        fault != read_fault::none) {
      return {{}, fault};
    }
    std::span<std::byte const> const bytes = raw(claim.pool, claim.slot, claim.bank);
    if (options_.compare_bytes && !source_.equals(claim.expert, claim.bank, 0, bytes)) {
      return {{}, read_fault::other_bytes};
    }
    return {bytes, read_fault::none};
  }

  /// Puts a reader into the compute stream: it begins when the readers before it have ended, runs
  /// for `ticks`, and is judged at its begin and at its end. Allocates. Returns its ticket.
  u32 enqueue_read(read_claim const& claim, u64 ticks = 0) {
    if (reports_.capacity() <= reads_.size()) {
      reports_.reserve(2 * reads_.size() + 16);
    }
    u32 const ticket = static_cast<u32>(reads_.size());
    reads_.push_back({claim, read_fault::none, now(), 0});
    if (driver_->faults().strikes(fault_point::launch)) {
      reports_.push_back({ticket, claim, read_fault::not_launched, now(), now()});
      return ticket;
    }
    stream_op op;
    op.ticks = ticks;
    op.begin = &basic_host::begin_read;
    op.end = &basic_host::end_read;
    op.context = this;
    op.argument = ticket;
    streams().enqueue(compute_stream_, op);
    return ticket;
  }

  /// Readers that have ended, in that order, from the first of this backend.
  std::span<read_report const> reports() const noexcept { return reports_; }

  /// Readers that have ended with a fault.
  u32 n_faults() const noexcept {
    u32 n = 0;
    for (read_report const& r : reports_) {
      n += r.fault != read_fault::none ? 1 : 0;
    }
    return n;
  }

  // ---- failures

  /// Makes the n-th copy fail, counted from 0 over the life of the backend. Allocates.
  void fail_copy(u64 n) { doomed_.push_back(n); }

  /// Makes every copy fail for which `predicate(context, attempt)` is true; null = none.
  void fail_when(bool (*predicate)(void* context, copy_attempt const&),
                 void* context = nullptr) noexcept {
    predicate_ = predicate;
    context_ = context;
  }

  // ---- what it holds

  move_ledger const& ledger() const noexcept { return ledger_; }
  Source const& source() const noexcept { return source_; }
  host_options const& options() const noexcept { return options_; }
  u32 n_groups() const noexcept { return slots_.n_groups(); }
  group_layout const& layout(u32 group) const noexcept { return slots_[group].layout; }
  /// The group's block in the driver.
  block_id block(u32 group) const noexcept { return slots_[group].memory.id(); }
  /// The group's allocation. Its address does not change while the backend is open.
  std::span<std::byte const> memory(u32 group) const noexcept { return slots_.memory(group); }
  std::span<std::byte const> tail(u32 group, u32 bank) const noexcept {
    return memory(group).subspan(layout(group).tail_offset(bank), layout(group).tail_bytes(bank));
  }
  /// The bytes of one bank of a slot, whatever they are.
  std::span<std::byte const> raw(u32 pool, slot_id slot, u32 bank) const noexcept {
    return slots_.raw(pool, slot, bank);
  }
  /// For tests of the checks themselves: the same, writable.
  std::span<std::byte> raw(u32 pool, slot_id slot, u32 bank) noexcept {
    return slots_.raw(pool, slot, bank);
  }

 private:
  struct queued_copy {
    u32 group = 0;
    u32 staging_slot = 0;
    bool is_staged = false;  ///< its bytes are in the staging ring
    bool cannot = false;     ///< the slot's old bytes could not be given up
    copy_entry copy{};
  };

  struct queued_read {
    read_claim claim;
    read_fault fault;
    u64 begin;
    u64 writes;  ///< of the slot's tag at the begin
  };

  struct layer_room {
    layer_id layer;
    u32 pool;
    u32 n_experts;
  };

  virtual_streams& streams() noexcept { return driver_->streams(); }

  // ---- opening

  owned_block take(u32 device, u64 bytes) {
    allocation const a = device == host_tier ? driver_->allocate_host(memory_kind::pinned, bytes)
                                             : driver_->allocate(device, bytes);
    if (a.why == reason::over_budget) {
      throw config_error("device ", device, " has ", driver_->memory().ledger(device).left(),
                         " bytes of its budget left and ", bytes, " are asked for");
    }
    if (!a) {
      throw std::bad_alloc();
    }
    return owned_block(driver_, a.block);
  }

  /// False: copies must go through a staging ring.
  bool pin_source() {
    if (!options_.pageable_source && !driver_->faults().strikes(fault_point::allocate)) {
      return true;
    }
    if (options_.pageable == if_pageable::fail) {
      throw config_error("the source is pageable memory, and staging is not allowed");
    }
    if (options_.staging_slots < 2) {
      throw config_error("a staging ring of ", options_.staging_slots,
                         " slots cannot overlap; it needs at least 2");
    }
    return false;
  }

  void make_streams(std::size_t n_copies) {
    if (!has_streams_) {
      compute_stream_ = driver_->make_stream(options_.device);
      copy_stream_ = driver_->make_stream(options_.device);
      ring_.stream = driver_->make_stream(options_.device);
      ring_.staged = driver_->make_event();
      ring_.copied = driver_->make_event();
      has_streams_ = true;
    }
    streams().reserve(copy_stream_, n_copies);
    streams().reserve(ring_.stream, n_copies);
  }

  // ---- looking up

  bool serves(u32 pool, expert_key key) const noexcept {
    for (layer_room const& room : rooms_) {
      if (room.pool == pool && room.layer == key.layer) {
        return key.expert.value < room.n_experts;
      }
    }
    return false;
  }

  // ---- copies

  /// The word says failed, but for a slot with a transfer running.
  void refuse(u32 pool, transfer_order const& order) noexcept {
    ++ledger_.refused;
    u32& word = flights_.words().at(pool, order.slot);
    if (arrival::state(word) != transfer::loading) {
      word = arrival::word(order.generation, transfer::failed);
    }
  }

  /// Puts planned copies into the copy stream: as one batch, or each by itself.
  void launch_batch(u32 group, u32 first, u32 n) noexcept {
    ledger_.batches += n != 0 ? 1 : 0;
    link_model const& link = streams().link(driver_->link_of(options_.device)).model;
    size_class least = size_class::large_copy;
    for (u32 i = first; i < first + n; ++i) {
      least = min_of(least, link.class_of(planned_[i].bytes));
    }
    bool leads = true;
    for (u32 i = first; i < first + n; ++i) {
      copy_entry const& planned = planned_[i];
      u32 const pieces = ring_.slots == 0 ? 1 : planned.n_experts;  // a ring slot takes one bank
      for (u32 piece = 0; piece < pieces; ++piece) {
        copy_entry const copy = pieces == 1 ? planned : one_of(planned, piece);
        u64 const alone = link.copy_ticks(copy.bytes);
        u64 const entry = link.entry_ticks(copy.bytes, least) + (leads ? link.latency : 0);
        ++ledger_.copies.issued;
        ++ledger_.copies.in_flight;
        ledger_.bytes.issued += copy.bytes;
        ledger_.bytes.in_flight += copy.bytes;
        if (driver_->faults().strikes(fault_point::launch)) {
          end_banks(group, copy, true);
        } else {
          launch(group, copy, options_.batches ? entry : alone);
          leads = false;
        }
      }
    }
  }

  static copy_entry one_of(copy_entry const& c, u32 i) noexcept {
    u64 const stride = c.bytes / c.n_experts;
    copy_entry one = c;
    one.first_expert += i;
    one.first_index += i;
    one.first_order += i;
    one.n_experts = 1;
    one.source_offset += i * stride;
    one.device_offset += i * stride;
    one.bytes = stride;
    return one;
  }

  void launch(u32 group, copy_entry const& copy, u64 ticks) noexcept {
    stream_op op;
    op.ticks = ticks;
    op.link = driver_->link_of(options_.device);
    op.begin = &basic_host::begin_copy;
    op.end = &basic_host::end_copy;
    op.context = this;
    op.argument = next_copy_;
    queued_copy& q = copies_[next_copy_];
    q = {group, 0, false, false, copy};
    next_copy_ = (next_copy_ + 1) % copies_.size();
    ++n_queued_;
    if (ring_.slots != 0) {
      stream_op stage;
      stage.ticks = link_model{options_.staging_rate}.byte_ticks(copy.bytes);
      stage.end = &basic_host::end_stage;
      stage.context = this;
      stage.argument = op.argument;
      q.staging_slot = ring_.next(stage, op);
      streams().enqueue(ring_.stream, stage);
    }
    streams().enqueue(copy_stream_, op);
  }

  static void end_stage(void* context, u64 at, bool abandoned) {
    basic_host& self = *static_cast<basic_host*>(context);
    queued_copy& q = self.copies_[at];
    q.is_staged = !abandoned;
    if (!abandoned) {
      self.source_.read({q.copy.layer, {q.copy.first_expert}}, q.copy.bank, 0,
                        self.staged_bytes(q));
    }
  }

  std::span<std::byte> staged_bytes(queued_copy const& q) noexcept {
    return staging_.bytes().subspan(q.staging_slot * ring_.slot_bytes, q.copy.bytes);
  }

  static void begin_copy(void* context, u64 at) {
    basic_host& self = *static_cast<basic_host*>(context);
    queued_copy& q = self.copies_[at];
    host_slots::group& group = self.slots_[q.group];
    fault_injector& faults = self.driver_->faults();
    for (u32 i = 0; i < q.copy.n_experts; ++i) {
      bool const is_taken =
          group.tag(q.copy.bank, q.copy.first_index + i).state != bank_tag::content::empty;
      q.cannot = (is_taken && faults.strikes(fault_point::release)) || q.cannot;
    }
    if (q.cannot) {
      return;
    }
    u64 const stride = group.layout.stride(q.copy.bank);
    for (u32 i = 0; i < q.copy.n_experts; ++i) {
      bank_tag& t = group.tag(q.copy.bank, q.copy.first_index + i);
      self.ledger_.filled += stride;
      self.ledger_.released += t.state != bank_tag::content::empty ? stride : 0;
      t.state = bank_tag::content::torn;
      ++t.writes;
    }
  }

  static void end_copy(void* context, u64 at, bool abandoned) {
    static_cast<basic_host*>(context)->finish_copy(at, abandoned);
  }

  void finish_copy(u64 at, bool abandoned) noexcept {
    queued_copy const q = copies_[at];
    bool const is_doomed = dooms(copy_attempt{n_run_++, q.group, q.copy}) ||
                           driver_->faults().strikes(fault_point::copy);
    bool const fails = is_doomed || abandoned || q.cannot || (ring_.slots != 0 && !q.is_staged);
    if (!q.cannot) {
      write_banks(q, fails);
    }
    --n_queued_;
    end_banks(q.group, q.copy, fails);
  }

  /// Writes the bytes of a copy, or poison.
  void write_banks(queued_copy const& q, bool fails) noexcept {
    host_slots::group& group = slots_[q.group];
    for (u32 i = 0; i < q.copy.n_experts; ++i) {
      bank_tag& t = group.tag(q.copy.bank, q.copy.first_index + i);
      expert_key const key{q.copy.layer, {q.copy.first_expert + i}};
      std::span<std::byte> const to = group.bytes(q.copy.bank, q.copy.first_index + i);
      if (fails) {
        std::memset(to.data(), static_cast<int>(virtual_driver::poison), to.size());
      } else if (ring_.slots != 0) {
        std::memcpy(to.data(), staged_bytes(q).data(), to.size());
      } else {
        source_.read(key, q.copy.bank, 0, to);
      }
      t.expert = key;
      t.generation = flights_.generation(q.group, q.copy.first_index + i);
      t.state = fails ? bank_tag::content::poisoned : bank_tag::content::holds;
      ++t.writes;
    }
  }

  /// One bank less of each of the copy's experts is under way.
  void end_banks(u32 group, copy_entry const& copy, bool failed) noexcept {
    ++(failed ? ledger_.copies.failed : ledger_.copies.completed);
    --ledger_.copies.in_flight;
    (failed ? ledger_.bytes.failed : ledger_.bytes.completed) += copy.bytes;
    ledger_.bytes.in_flight -= copy.bytes;
    for (u32 i = 0; i < copy.n_experts; ++i) {
      flights_.end_bank(group, copy.first_index + i, failed,
                        is_open_ ? &driver_->faults() : nullptr, ledger_.transfers);
    }
  }

  bool dooms(copy_attempt const& attempt) const noexcept {
    for (u64 n : doomed_) {
      if (n == attempt.n) {
        return true;
      }
    }
    return predicate_ != nullptr && predicate_(context_, attempt);
  }

  // ---- deferred reads

  static void begin_read(void* context, u64 at) {
    basic_host& self = *static_cast<basic_host*>(context);
    queued_read& r = self.reads_[at];
    bank_tag const* const t = self.slots_.find(r.claim);
    r.begin = self.now();
    r.writes = t == nullptr ? 0 : t->writes;
    r.fault = self.read(r.claim).fault;
  }

  static void end_read(void* context, u64 at, bool abandoned) {
    basic_host& self = *static_cast<basic_host*>(context);
    queued_read& r = self.reads_[at];
    bank_tag const* const t = self.slots_.find(r.claim);
    if (r.fault == read_fault::none && t->writes != r.writes) {
      r.fault = read_fault::changed;
    }
    if (abandoned) {
      r.fault = read_fault::closed;
    }
    // has room since enqueue_read
    self.reports_.push_back({static_cast<u32>(at), r.claim, r.fault, r.begin, self.now()});
  }

  host_options options_;
  Source source_;
  shared_driver driver_;
  host_slots slots_;
  host_flights flights_;
  std::vector<layer_room> rooms_;
  std::vector<copy_entry> planned_;
  std::vector<transfer_order> accepted_;
  std::vector<queued_copy> copies_;  ///< a ring; as many as fit at a time
  std::size_t next_copy_ = 0;
  std::size_t n_queued_ = 0;
  staging_ring ring_;  ///< of no slots: copies take the source as it is
  owned_block staging_;
  std::vector<queued_read> reads_;
  std::vector<read_report> reports_;
  std::vector<u64> doomed_;
  bool (*predicate_)(void*, copy_attempt const&) = nullptr;
  void* context_ = nullptr;
  move_ledger ledger_;
  u64 n_run_ = 0;
  u32 copy_stream_ = 0;
  u32 compute_stream_ = 0;
  bool has_streams_ = false;
  bool is_open_ = false;
};

/// The host backend over patterned bytes.
using host = basic_host<>;

}  // namespace move

static_assert(move_backend<move::host>, "host must satisfy move_backend");
static_assert(move_backend<move::basic_host<move::span_source>>,
              "a host over spans must satisfy move_backend");

}  // namespace warmset::inline v0
