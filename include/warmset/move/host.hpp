// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "backend.hpp"
#include "copy_planner.hpp"
#include "source.hpp"

namespace warmset::inline v0 {
namespace move {

/// The link of a host backend and how its clock runs. Ticks are virtual and have no length.
struct host_options {
  u64 bytes_per_tick = u64_max;       ///< bandwidth
  u64 latency = 0;                    ///< ticks that every copy takes besides its bytes
  u64 ticks_per_poll = 1;             ///< what poll advances the clock by; 0 = nothing
  u64 large_copy = large_copy_bytes;  ///< smallest copy of the large batch
  u64 tail_bytes = 0;                 ///< zeroed bytes behind each bank
  bool compare_bytes = true;          ///< reads compare every byte with the source
};

/// What was wrong with a read of a slot.
enum class read_fault : u8 {
  none,
  out_of_range,      ///< no such pool, slot or bank
  empty,             ///< nothing was ever copied there
  torn,              ///< a copy was writing it
  poisoned,          ///< a copy into it failed
  other_expert,      ///< it holds another expert
  other_generation,  ///< it holds this expert, brought there by another transfer
  other_bytes,       ///< its bytes are not the source's
  changed,           ///< it was written between the read's begin and end
  closed,            ///< the backend was closed before the read ran
};

inline constexpr u32 n_read_faults = 10;

constexpr char const* name_of(read_fault f) noexcept {
  constexpr char const* names[n_read_faults] = {
      "none",         "out_of_range",     "empty",       "torn",    "poisoned",
      "other_expert", "other_generation", "other_bytes", "changed", "closed"};
  return static_cast<u32>(f) < n_read_faults ? names[static_cast<u32>(f)] : "unknown";
}

/// Bytes of one bank of a slot, or why they are not what the reader claimed.
struct [[nodiscard]] read_result {
  std::span<std::byte const> bytes;
  read_fault fault = read_fault::none;
  explicit operator bool() const noexcept { return fault == read_fault::none; }
};

/// What a read claims to find.
struct read_claim {
  u32 pool;
  slot_id slot;
  expert_key expert;
  u32 generation;
  u32 bank;
};

/// How a deferred read ended.
struct read_report {
  u32 ticket;
  read_claim claim;
  read_fault fault;
  u64 begin;  ///< tick
  u64 end;
};

/// Amounts of one unit: issued = completed + failed + in_flight, at every moment.
struct ledger_line {
  u64 issued = 0;
  u64 completed = 0;
  u64 failed = 0;
  u64 in_flight = 0;
  bool balances() const noexcept { return issued == completed + failed + in_flight; }
  bool operator==(ledger_line const&) const = default;
};

/// What a host backend allocated and moved.
struct move_ledger {
  u64 allocated = 0;  ///< bytes of all groups: slots, scratch and tails
  ledger_line bytes;
  ledger_line copies;
  ledger_line transfers;  ///< experts
  u64 large_copies = 0;
  u64 small_copies = 0;
  u64 merged = 0;   ///< transfers that travelled in a neighbour's copies
  u64 refused = 0;  ///< orders that named no slot or expert, or a slot with a transfer running
  bool balances() const noexcept {
    return bytes.balances() && copies.balances() && transfers.balances();
  }
};

/// One copy as a failure predicate sees it. `n` counts copies from 0, in the order they run.
struct copy_attempt {
  u64 n;
  u32 group;
  copy_entry const& copy;
};

/// The backend of tests and of hosts without a device: real bytes, copied by a stream that lags
/// behind on a virtual clock.
///
/// Memory: one allocation per geometry group, laid out by group_layout; zeroed at open. start
/// enqueues copies; advance runs them in order, each for `latency + bytes / bytes_per_tick` ticks,
/// and writes an expert's arrival word when its last bank has ended. A copy that is made to fail
/// leaves its slots poisoned; the word says `failed` once no bank of the expert is under way any
/// more. enqueue_read puts a reader into a second stream, so that a use before arrival and an
/// eviction under a reader show.
///
/// Errors: open throws config_error and bad_alloc. Instruments of tests (enqueue_read, fail_copy)
/// may allocate; the members of move_backend and advance do not. One thread. Complexity: start
/// O(orders · banks); advance O(copies and bytes that run).
template <byte_source Source = patterned_source>
class basic_host {
 public:
  basic_host() = default;
  explicit basic_host(host_options options, Source source = Source{})
      : options_(options), source_(std::move(source)) {}

  // ---- backend

  u64 tail_bytes() const noexcept { return options_.tail_bytes; }

  void open(geometry const& model, std::span<pool_site const> sites) {
    check_sites(model, sites);
    std::vector<group_layout> layouts = layouts_of(model, sites, options_.tail_bytes);
    std::vector<group_memory> groups(layouts.size());
    u64 allocated = 0;
    std::size_t n_copies = 0;
    for (std::size_t g = 0; g < layouts.size(); ++g) {
      group_memory& group = groups[g];
      std::size_t const indices = std::size_t{layouts[g].n_slots()} + layouts[g].n_scratch();
      group.layout = std::move(layouts[g]);
      group.bytes = std::vector<std::byte>(group.layout.bytes());
      group.tags.resize(indices * group.layout.n_banks());
      group.flights.resize(indices);
      allocated += group.layout.bytes();
      n_copies += indices * group.layout.n_banks();
    }
    std::size_t most_planned = 0;
    std::size_t most_orders = 0;
    std::vector<layer_room> rooms;
    for (pool_site const& site : sites) {
      most_orders = max_of(most_orders, std::size_t{site.n_words()});
      most_planned =
          max_of(most_planned, std::size_t{site.n_words()} * groups[site.group].layout.n_banks());
      for (layer_id layer : site.layers) {
        layer_geometry const& of = *model.find(layer);
        source_.check(of);
        rooms.push_back({layer, site.pool, of.n_experts});
      }
    }
    detail::arrival_words words;
    words.open(sites);
    std::vector<pool_site> own_sites(sites.begin(), sites.end());
    std::vector<copy_entry> planned(most_planned);
    std::vector<transfer_order> accepted(most_orders);
    std::vector<queued_copy> copies(n_copies);

    words_ = std::move(words);
    sites_ = std::move(own_sites);
    groups_ = std::move(groups);
    rooms_ = std::move(rooms);
    planned_ = std::move(planned);
    accepted_ = std::move(accepted);
    copies_ = std::move(copies);
    ledger_ = {};
    ledger_.allocated = allocated;
    first_copy_ = n_queued_ = 0;
    copy_runs_ = read_runs_ = false;
    is_open_ = true;
  }

  u32 const* arrivals(u32 pool) const noexcept { return words_.of(pool); }

  void start(u32 pool, std::span<transfer_order const> orders) noexcept {
    pool_site const& site = sites_[pool];
    group_memory& group = groups_[site.group];
    u32 n = 0;
    for (transfer_order const& order : orders) {
      if (!words_.has(pool, order.slot)) {
        ++ledger_.refused;
        continue;
      }
      u32& word = words_.at(pool, order.slot);
      flight& f = group.flights[site.bank_index(order.slot)];
      if (!is_open_ || f.banks_left != 0 || n == accepted_.size() || !serves(pool, order.expert)) {
        if (arrival::state(word) != transfer::loading) {
          word = arrival::word(order.generation, transfer::failed);
        }
        ++ledger_.refused;
        continue;
      }
      word = arrival::word(order.generation, transfer::loading);
      f = {pool, order.slot, order.generation, 0, false};
      for (u32 bank = 0; bank < group.layout.n_banks(); ++bank) {
        f.banks_left += group.layout.stride(bank) != 0 ? 1 : 0;
      }
      accepted_[n++] = order;
    }
    std::span<transfer_order const> const accepted(accepted_.data(), n);
    copy_plan const plan = plan_copies(accepted, site, group.layout, options_.large_copy, planned_);
    for (u32 i = 0; i < plan.n_copies(); ++i) {
      copies_[(first_copy_ + n_queued_) % copies_.size()] = {now_, sequence_++, site.group,
                                                             planned_[i]};
      ++n_queued_;
    }
    ledger_.transfers.issued += n;
    ledger_.transfers.in_flight += n;
    ledger_.copies.issued += plan.n_copies();
    ledger_.copies.in_flight += plan.n_copies();
    ledger_.bytes.issued += plan.bytes;
    ledger_.bytes.in_flight += plan.bytes;
    ledger_.large_copies += plan.n_large;
    ledger_.small_copies += plan.n_small;
    ledger_.merged += n - plan.n_runs;
  }

  /// Advances the clock by `ticks_per_poll`: with the default options all that was started has
  /// ended.
  void poll() noexcept { advance(options_.ticks_per_poll); }

  void close() noexcept {
    while (n_queued_ != 0) {
      if (!copy_runs_) {
        begin_copy();
      }
      end_copy(true);
    }
    for (std::size_t i = first_read_; i < reads_.size(); ++i) {
      reports_.push_back({reads_[i].ticket, reads_[i].claim, read_fault::closed, now_, now_});
    }
    first_read_ = reads_.size();
    read_runs_ = false;
    is_open_ = false;
  }

  // ---- clock

  u64 now() const noexcept { return now_; }
  bool idle() const noexcept { return n_queued_ == 0 && first_read_ == reads_.size(); }

  /// Moves the clock and runs what both streams get to by then. At one tick ends come before
  /// begins, and begins in the order they were enqueued. Words are written here.
  void advance(u64 ticks) noexcept {
    u64 const until = ticks > u64_max - now_ ? u64_max : now_ + ticks;
    while (run_next(until)) {
    }
    now_ = until;
  }

  /// Runs both streams to their end; the clock stops where the last of them ended. Returns the
  /// ticks that took.
  u64 advance_to_idle() noexcept {
    u64 const from = now_;
    while (run_next(u64_max)) {
    }
    return now_ - from;
  }

  // ---- readers

  /// The bytes of one bank of a slot at this moment, where it holds exactly what is claimed. O(bank
  /// bytes) with compare_bytes, else O(1).
  read_result read(u32 pool, slot_id slot, expert_key expert, u32 generation,
                   u32 bank) const noexcept {
    return read(read_claim{pool, slot, expert, generation, bank});
  }

  read_result read(read_claim const& claim) const noexcept {
    tag const* const t = find_tag(claim);
    if (t == nullptr) {
      return {{}, read_fault::out_of_range};
    }
    switch (t->state) {
    case tag_state::empty:
      return {{}, read_fault::empty};
    case tag_state::torn:
      return {{}, read_fault::torn};
    case tag_state::poisoned:
      return {{}, read_fault::poisoned};
    case tag_state::holds:
      break;
    }
    if (t->expert != claim.expert) {
      return {{}, read_fault::other_expert};
    }
    if (t->generation != claim.generation) {
      return {{}, read_fault::other_generation};
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
    reads_.push_back({now_, sequence_++, ticks, ticket, claim, read_fault::none, 0, 0});
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
  u32 n_groups() const noexcept { return static_cast<u32>(groups_.size()); }
  group_layout const& layout(u32 group) const noexcept { return groups_[group].layout; }
  /// The group's allocation. Its address does not change while the backend is open.
  std::span<std::byte const> memory(u32 group) const noexcept { return groups_[group].bytes; }
  std::span<std::byte const> tail(u32 group, u32 bank) const noexcept {
    group_layout const& layout = groups_[group].layout;
    return memory(group).subspan(layout.tail_offset(bank), layout.tail_bytes(bank));
  }
  /// The bytes of one bank of a slot, whatever they are.
  std::span<std::byte const> raw(u32 pool, slot_id slot, u32 bank) const noexcept {
    pool_site const& site = sites_[pool];
    group_layout const& layout = groups_[site.group].layout;
    return memory(site.group)
        .subspan(layout.offset(bank, site.bank_index(slot)), layout.stride(bank));
  }
  /// For tests of the checks themselves: the same, writable.
  std::span<std::byte> raw(u32 pool, slot_id slot, u32 bank) noexcept {
    std::span<std::byte const> const view = std::as_const(*this).raw(pool, slot, bank);
    std::span<std::byte> const all{groups_[sites_[pool].group].bytes};
    return all.subspan(static_cast<std::size_t>(view.data() - all.data()), view.size());
  }

 private:
  enum class tag_state : u8 { empty, torn, poisoned, holds };

  /// What one bank of one slot holds.
  struct tag {
    expert_key expert{};
    u32 generation = 0;
    tag_state state = tag_state::empty;
    u64 writes = 0;  ///< begins and ends of copies into it
  };

  /// The transfer that runs into one slot; none where banks_left is 0.
  struct flight {
    u32 pool = 0;
    slot_id slot{};
    u32 generation = 0;
    u32 banks_left = 0;
    bool failed = false;
  };

  struct group_memory {
    group_layout layout;
    std::vector<std::byte> bytes;
    std::vector<tag> tags;  ///< bank after bank
    std::vector<flight> flights;
  };

  struct queued_copy {
    u64 ready;
    u64 sequence;
    u32 group;
    copy_entry copy;
  };

  struct queued_read {
    u64 ready;
    u64 sequence;
    u64 ticks;
    u32 ticket;
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

  static constexpr std::byte poison{0xDB};

  bool serves(u32 pool, expert_key key) const noexcept {
    for (layer_room const& room : rooms_) {
      if (room.pool == pool && room.layer == key.layer) {
        return key.expert.value < room.n_experts;
      }
    }
    return false;
  }

  tag& tag_of(group_memory& group, u32 bank, u32 index) noexcept {
    return group.tags[bank * group.flights.size() + index];
  }

  tag const* find_tag(read_claim const& claim) const noexcept {
    if (!words_.has(claim.pool, claim.slot)) {
      return nullptr;
    }
    pool_site const& site = sites_[claim.pool];
    group_memory const& group = groups_[site.group];
    if (claim.bank >= group.layout.n_banks()) {
      return nullptr;
    }
    return &group.tags[claim.bank * group.flights.size() + site.bank_index(claim.slot)];
  }

  u64 ticks_of(u64 bytes) const noexcept {
    u64 const ticks = options_.bytes_per_tick == u64_max
                          ? 0
                          : ceil_div(bytes, max_of(options_.bytes_per_tick, u64{1}));
    return options_.latency + ticks;
  }

  queued_copy& front() noexcept { return copies_[first_copy_]; }

  /// Runs the earliest event at or before `until`; false where there is none.
  bool run_next(u64 until) noexcept {
    enum class event { none, copy_end, read_end, copy_begin, read_begin };
    event next = event::none;
    u64 when = until;
    auto const consider = [&](event e, u64 at) {
      if (at < when || (at == when && next == event::none)) {
        next = e;
        when = at;
      }
    };
    if (copy_runs_) {
      consider(event::copy_end, copy_end_);
    }
    if (read_runs_) {
      consider(event::read_end, read_end_);
    }
    bool const copy_waits = !copy_runs_ && n_queued_ != 0;
    bool const read_waits = !read_runs_ && first_read_ != reads_.size();
    u64 const copy_at = copy_waits ? max_of(front().ready, copy_end_) : u64_max;
    u64 const read_at = read_waits ? max_of(reads_[first_read_].ready, read_end_) : u64_max;
    bool const read_first = copy_waits && read_waits && copy_at == read_at &&
                            reads_[first_read_].sequence < front().sequence;
    if (read_waits && read_first) {
      consider(event::read_begin, read_at);
    }
    if (copy_waits) {
      consider(event::copy_begin, copy_at);
    }
    if (read_waits && !read_first) {
      consider(event::read_begin, read_at);
    }
    if (next == event::none) {
      return false;
    }
    now_ = when;
    switch (next) {
    case event::copy_end:
      end_copy(false);
      break;
    case event::read_end:
      end_read();
      break;
    case event::copy_begin:
      begin_copy();
      break;
    case event::read_begin:
      begin_read();
      break;
    case event::none:
      break;
    }
    return true;
  }

  void begin_copy() noexcept {
    queued_copy const& q = front();
    group_memory& group = groups_[q.group];
    for (u32 i = 0; i < q.copy.n_experts; ++i) {
      tag& t = tag_of(group, q.copy.bank, q.copy.first_index + i);
      t.state = tag_state::torn;
      ++t.writes;
    }
    copy_runs_ = true;
    copy_end_ = now_ + ticks_of(q.copy.bytes);
  }

  void end_copy(bool abandoned) noexcept {
    queued_copy const q = front();
    group_memory& group = groups_[q.group];
    bool const fails = is_doomed(copy_attempt{n_run_, q.group, q.copy}) || abandoned;
    ++n_run_;
    u64 const stride = group.layout.stride(q.copy.bank);
    for (u32 i = 0; i < q.copy.n_experts; ++i) {
      u32 const index = q.copy.first_index + i;
      flight& f = group.flights[index];
      tag& t = tag_of(group, q.copy.bank, index);
      expert_key const key{q.copy.layer, {q.copy.first_expert + i}};
      std::span<std::byte> const to =
          std::span<std::byte>{group.bytes}.subspan(q.copy.device_offset + i * stride, stride);
      if (fails) {
        std::memset(to.data(), static_cast<int>(poison), to.size());
      } else {
        source_.read(key, q.copy.bank, 0, to);
      }
      t.expert = key;
      t.generation = f.generation;
      t.state = fails ? tag_state::poisoned : tag_state::holds;
      ++t.writes;
      f.failed = f.failed || fails;
      if (--f.banks_left == 0) {
        words_.publish(f.pool, f.slot, f.failed ? transfer::failed : transfer::arrived);
        ++(f.failed ? ledger_.transfers.failed : ledger_.transfers.completed);
        --ledger_.transfers.in_flight;
      }
    }
    ++(fails ? ledger_.copies.failed : ledger_.copies.completed);
    --ledger_.copies.in_flight;
    (fails ? ledger_.bytes.failed : ledger_.bytes.completed) += q.copy.bytes;
    ledger_.bytes.in_flight -= q.copy.bytes;
    copy_runs_ = false;
    first_copy_ = (first_copy_ + 1) % copies_.size();
    --n_queued_;
  }

  bool is_doomed(copy_attempt const& attempt) const noexcept {
    for (u64 n : doomed_) {
      if (n == attempt.n) {
        return true;
      }
    }
    return predicate_ != nullptr && predicate_(context_, attempt);
  }

  void begin_read() noexcept {
    queued_read& r = reads_[first_read_];
    tag const* const t = find_tag(r.claim);
    r.begin = now_;
    r.writes = t == nullptr ? 0 : t->writes;
    r.fault = read(r.claim).fault;
    read_runs_ = true;
    read_end_ = now_ + r.ticks;
  }

  void end_read() noexcept {
    queued_read& r = reads_[first_read_];
    tag const* const t = find_tag(r.claim);
    if (r.fault == read_fault::none && t->writes != r.writes) {
      r.fault = read_fault::changed;
    }
    reports_.push_back({r.ticket, r.claim, r.fault, r.begin, now_});  // has room since enqueue_read
    read_runs_ = false;
    ++first_read_;
  }

  host_options options_;
  Source source_;
  std::vector<pool_site> sites_;
  std::vector<group_memory> groups_;
  std::vector<layer_room> rooms_;
  detail::arrival_words words_;
  std::vector<copy_entry> planned_;
  std::vector<transfer_order> accepted_;
  std::vector<queued_copy> copies_;  ///< a ring
  std::size_t first_copy_ = 0;
  std::size_t n_queued_ = 0;
  std::vector<queued_read> reads_;
  std::size_t first_read_ = 0;
  std::vector<read_report> reports_;
  std::vector<u64> doomed_;
  bool (*predicate_)(void*, copy_attempt const&) = nullptr;
  void* context_ = nullptr;
  move_ledger ledger_;
  u64 now_ = 0;
  u64 sequence_ = 0;
  u64 n_run_ = 0;
  u64 copy_end_ = 0;
  u64 read_end_ = 0;
  bool copy_runs_ = false;
  bool read_runs_ = false;
  bool is_open_ = false;
};

/// The host backend over patterned bytes.
using host = basic_host<>;

}  // namespace move

static_assert(move_backend<move::host>, "host must satisfy move_backend");
static_assert(move_backend<move::basic_host<move::span_source>>,
              "a host over spans must satisfy move_backend");

}  // namespace warmset::inline v0
