// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fault_scenario.hpp"

#include <warmset/gate/held_by.hpp>
#include <warmset/signal/worker.hpp>

#include <algorithm>
#include <deque>

namespace warmset_test {

/// A worker that owns a gated cache over a host backend, stepped by hand while two devices publish, read and finish,
/// groups change hands and faults strike. Keeps count of what must never happen.
///
/// The script is a function of its seed alone: the same operations whatever fails.
class worker_scenario {
 public:
  using gate_type = gate::held_by<gate::holder::worker>;
  using cache_type = cache<fault_scenario::small, move::host, observe::counting, gate_type>;
  using worker_type = signal::worker<cache_type>;

  /// What must stay 0, and what the script came by.
  struct tally {
    u32 wrong_reads = 0;  ///< a wave that is ready, and other bytes than the experts'
    u32 broken = 0;       ///< audits, laws, ledgers, refusals that nobody caused
    u32 lost = 0;         ///< demands that were never answered
    u32 capacity = 0;     ///< slots that every pool has at the end, summed
    u32 delivered = 0;    ///< experts
    u32 renumbered = 0;   ///< of these, in a slot into which the worker had them brought again
    u32 reread = 0;       ///< answers that were read again before they were finished
    u32 refused = 0, abandoned = 0, waves = 0, handed_over = 0, put_off = 0;
    u64 retried = 0, speculated = 0, dropped = 0;
    bool operator==(tally const&) const = default;
  };

  static constexpr u32 n_layers = fault_scenario::n_layers;
  static constexpr u32 n_channels = 2;

  explicit worker_scenario(u64 script_seed, move::failure_schedule faults,
                           move::host_options options)
      : random_(script_seed), driver_(move::shared_driver::make({fault_scenario::link()})),
        groups_(n_layers), fallbacks_(n_layers) {
    driver_->faults().schedule(faults);
    for (u32 g = 0; g < n_layers; ++g) {
      tally_.broken += !groups_.publish(g, gate::holder::worker, memory_);
    }
    for (u32 i = 0; i < n_channels; ++i) {
      channels_.push_back(std::make_unique<signal::channel>(signal::channel_shape{4, 16}));
      ends_.push_back(std::make_unique<signal::device_end>(channels_.back()->view()));
    }
    open(options);
    (void)worker_->start_by_hand();
  }

  /// Plays n operations and then to the end; what is left is checked last.
  tally play(u32 n) {
    for (u32 i = 0; i < n; ++i) {
      operation();
      look();
      check();
    }
    finish();
    return tally_;
  }

  move::virtual_driver& driver() noexcept { return *driver_; }

 private:
  /// A demand that its device has not finished.
  struct asked {
    u32 sequence;
    u32 layer;
    std::vector<routed_id> ids;
    u32 wave = 0;
    bool is_done = false;
    bool is_refused = false;
  };

  u32 any(u32 n) { return static_cast<u32>(random_() % n); }
  cache_type& owned() { return worker_->cache(); }
  move::host& host() { return owned().backend(); }
  void step() { (void)worker_->step(); }

  void open(move::host_options const& options) {
    std::vector<signal::channel_view> views;
    for (auto const& c : channels_) {
      views.push_back(c->view());
    }
    for (u32 attempt = 0; attempt < 64 && worker_ == nullptr; ++attempt) {
      try {
        worker_ = std::make_unique<worker_type>(
            array_view<signal::channel_view const>{views}, signal::worker_options<>{},
            fault_scenario::model(), budget{0, 5, 2}, tuning{},
            move::host(options, move::patterned_source{}, driver_), observe::counting{},
            gate_type{groups_, 0, &fallbacks_});
      } catch (std::bad_alloc const&) {
      }
    }
    if (worker_ == nullptr) {
      throw std::bad_alloc();
    }
  }

  void operation() {
    // every kind draws as many numbers, whatever happens: the script does not depend on faults
    u32 const layer = any(n_layers), channel = any(n_channels), what = any(100);
    u32 const a = any(1u << 16), b = any(1u << 16), c = any(1u << 16);
    if (what < 40) {
      publish(channel, layer, ids_of(layer, a, b, what < 5 ? 9 : 1 + c % 4));
      step();
    } else if (what < 52) {
      (void)ends_[channel]->hint(fault_scenario::layer_of(layer), ids_of(layer, a, b, 1 + c % 2));
      step();
    } else if (what < 72) {
      step();
    } else if (what < 82) {
      host().advance(a % 40);
      step();
    } else if (what < 90) {
      end_oldest(channel, c % 4 == 0);
      step();
    } else if (what < 92) {
      (void)owned().resize(fault_scenario::layer_of(layer), 3 + a % 5);
    } else if (what < 94) {
      (void)owned().invalidate(fault_scenario::layer_of(layer));
    } else {
      change_hands(layer, channel, ids_of(layer, a, b, 2), c % 2 == 0);
    }
  }

  std::vector<routed_id> ids_of(u32 layer, u32 a, u32 b, u32 n) const {
    u32 const n_experts = layer == 2 ? 10 : 12;
    std::vector<routed_id> ids;
    for (u32 i = 0; i < n; ++i) {
      // few experts are wanted often
      u32 const e = n > 4 ? a + i : (b >> 3 * i & 7) < 5 ? (a >> i & 3) : (a >> 2 * i) % n_experts;
      ids.push_back(static_cast<routed_id>(e % n_experts));
    }
    return ids;
  }

  void publish(u32 channel, u32 layer, std::vector<routed_id> ids) {
    if (asked_[channel].size() == 3) {
      end_oldest(channel, false);
    }
    signal::published const sent =
        ends_[channel]->try_publish(fault_scenario::layer_of(layer), ids);
    if (!sent) {
      tally_.broken += sent.why != reason::ring_full;
      ++tally_.put_off;
      return;
    }
    asked_[channel].push_back({sent.sequence, layer, std::move(ids)});
  }

  /// The oldest demand's readers are done, or give up.
  void end_oldest(u32 channel, bool gives_up) {
    std::deque<asked>& of = asked_[channel];
    if (of.empty()) {
      return;
    }
    if (!of.front().is_done && !gives_up) {
      drive([&] { return of.front().is_done; }, channel);
    }
    asked const& x = of.front();
    if (x.is_done && !x.is_refused) {
      judge(channel, x);  // the slots have outlived whatever came since
      ++tally_.reread;
    }
    tally_.abandoned += !x.is_done;
    ends_[channel]->finish(x.sequence);
    of.pop_front();
  }

  /// Steps until something is so. What else is done is finished meanwhile, since demands wait for its slots.
  template <class Condition>
  void drive(Condition&& is_so, u32 but) {
    for (u32 i = 0; i < 4000 && !is_so(); ++i) {
      for (u32 c = 0; c < n_channels; ++c) {
        if (c != but && !asked_[c].empty() && asked_[c].front().is_done) {
          end_oldest(c, false);
        }
      }
      host().advance(3);
      step();
      look();
    }
    tally_.lost += !is_so();
  }

  /// Reads what has been answered, as a stream does: one demand after the other.
  void look() {
    for (u32 c = 0; c < n_channels; ++c) {
      signal::answers_view const answers = channels_[c]->view().answers();
      for (asked& x : asked_[c]) {
        while (!x.is_done && answers.ready<signal::host_words>(x.sequence, x.wave)) {
          signal::answer const got = ends_[c]->answer_to(x.sequence);
          x.is_refused = got.why() != reason::none;
          if (!x.is_refused) {
            judge(c, x);
          }
          x.is_done = x.is_refused || x.wave + 1 >= got.n_waves();
          tally_.refused += x.is_refused;
          if (!x.is_done) {
            ends_[c]->wave_read(x.sequence, x.wave++);
            ++tally_.waves;
          }
        }
        if (!x.is_done) {
          break;
        }
      }
    }
  }

  /// Compares the bytes of the wave that the demand has come to.
  void judge(u32 channel, asked const& x) {
    signal::answer const got = ends_[channel]->answer_to(x.sequence);
    u32 pool = 0, row = 0;
    owned().find(fault_scenario::layer_of(x.layer), pool, row);
    u32 const n_slots = owned().sites()[pool].n_slots;
    tally_.broken += got.size() != x.ids.size();
    for (u32 i = 0; i < x.ids.size(); ++i) {
      if (got.wave(i) != x.wave) {
        continue;
      }
      slot_id const slot = got.slot(i);
      bool const is_in_table = slot.value < n_slots;
      expert_key const key{fault_scenario::layer_of(x.layer), {static_cast<u32>(x.ids[i])}};
      u32 const generation = is_in_table ? owned().pools()[pool].view().generation(slot.value) : 0;
      ++tally_.delivered;
      bool is_renumbered = false;
      for (u32 bank = 0; bank < (x.layer == 2 ? 1u : 3u); ++bank) {
        // the worker numbers what it starts itself: the bytes are the expert's, the transfer is not the table's
        move::read_fault const fault = host().read(pool, slot, key, generation, bank).fault;
        is_renumbered |= fault == move::read_fault::other_generation;
        bool const is_own =
            fault == move::read_fault::none || fault == move::read_fault::other_generation;
        tally_.wrong_reads +=
            !is_own || !host().source().equals(key, bank, 0, host().raw(pool, slot, bank));
      }
      tally_.renumbered += is_renumbered && is_in_table;
    }
  }

  /// A transition of the layer's group: it fails where somebody is inside, and is called off or comes back else.
  void change_hands(u32 layer, u32 channel, std::vector<routed_id> ids, bool goes_through) {
    u32 pool = 0, row = 0;
    owned().find(fault_scenario::layer_of(layer), pool, row);
    auto const ask = [&] {  // meanwhile
      publish(channel, layer, ids);
      (void)ends_[channel]->hint(fault_scenario::layer_of(layer), ids);
      step();
      check();
    };
    auto const move_to = [&](gate::holder who) {
      gate::authority::transition moving = groups_.begin(pool, who);
      tally_.broken += !moving;
      ask();
      if (!goes_through || !moving.prepare()) {
        return false;
      }
      owned().pools()[pool].view().header().epoch = moving.next_epoch();
      tally_.broken += !moving.complete();
      return true;
    };
    if (move_to(gate::holder::host)) {
      ask();
      ++tally_.handed_over;
      tally_.broken += !move_to(gate::holder::worker);  // nobody is inside for the other side
    }
  }

  void check() {
    owned().settle();
    tally_.broken += !owned().audit();
    tally_.broken += !check_laws(owned().observer().total(), owned().slot_counts());
    tally_.broken += !host().ledger().balances();
    // what the gate refused was answered with its reason, and nothing else was refused
    tally_.broken += worker_->counters()[signal::tally::refused] !=
                     fallbacks_.total(reason::gate_closed) + fallbacks_.total(reason::no_authority);
  }

  void finish() {
    for (u32 c = 0; c < n_channels; ++c) {
      while (!asked_[c].empty()) {
        end_oldest(c, false);
      }
    }
    for (u32 i = 0; i < 8; ++i) {
      host().advance_to_idle();
      step();
    }
    // whole again: every pool at its full size, and every layer serves
    for (u32 layer = 0; layer < n_layers; ++layer) {
      tally_.broken += !owned().resize(fault_scenario::layer_of(layer), 7);
      publish(0, layer, ids_of(layer, layer, 0, 2));
      step();
      end_oldest(0, false);
      step();
    }
    host().advance_to_idle();
    step();
    check();
    for (u32 pool = 0; pool < owned().pools().size(); ++pool) {
      block_header const& h = owned().pools()[pool].view().header();
      tally_.capacity += h.free() + h.resident;
      tally_.broken += h.reserved + h.draining + h.retired + h.in_flight + h.leases != 0;
      tally_.broken += groups_.look(pool).active != 0;
      tally_.broken += !groups_.withdraw(pool);
    }
    tally_.broken += host().ledger().transfers.in_flight + host().ledger().copies.in_flight != 0;
    total_counters const c = owned().observer().total();
    tally_.speculated = c.issued[static_cast<u32>(intent::speculative)].value;
    tally_.dropped = c.dropped.value;
    tally_.retried = worker_->counters()[signal::tally::retried];
  }

  std::mt19937 random_;
  move::shared_driver driver_;
  gate::references memory_;
  gate::authority groups_;
  gate::fallback_counts fallbacks_;
  std::vector<std::unique_ptr<signal::channel>> channels_;
  std::vector<std::unique_ptr<signal::device_end>> ends_;
  std::unique_ptr<worker_type> worker_;
  std::deque<asked> asked_[n_channels];
  tally tally_;
};

}  // namespace warmset_test
