// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "../move/adaptor.hpp"
#include "../predict/adversarial.hpp"
#include "../predict/none.hpp"
#include "../predict/oracle.hpp"
#include "../predict/random.hpp"
#include "../table/plan_demand.hpp"
#include "equivalence_report.hpp"
#include "routed.hpp"

namespace warmset::inline v0 {
namespace trace {

/// A backend whose slots can be read as a kernel would read them: `read(pool, slot, expert, generation, bank)` gives a
/// result that has the `bytes` of one bank and converts to false where the slot does not hold what is claimed.
/// move::host is one; an engine's own backend copies its bytes back.
template <class B>
concept readable_backend = requires(B const& b, slot_id slot, expert_key key) {
  { static_cast<bool>(b.read(u32{}, slot, key, u32{}, u32{})) }
  noexcept;
  { b.read(u32{}, slot, key, u32{}, u32{}).bytes.data() } -> std::convertible_to<std::byte const*>;
  { b.read(u32{}, slot, key, u32{}, u32{}).bytes.size() } -> std::convertible_to<std::size_t>;
};

/// How equivalence is checked.
struct equivalence_options {
  u32 width = 8;                 ///< hints per step
  u64 max_events = ~u64{0};      ///< steps of a layer that are played, from the first
  u64 seed = 1;                  ///< of the random predictor
  bool hints_in_prefill = true;  ///< whether predictors are asked in prefill too
  u32 attempts = 16;  ///< transfers of an expert into scratch before it counts as not delivered
  u32 max_polls = 1u << 20;  ///< polls until a transfer has to have ended
};

namespace detail {

/// One expert that a step delivered, and what its bytes came to.
struct delivery {
  u64 step;
  layer_id layer;
  u32 expert;
  u64 digest;
};

/// Order-dependent digest of bytes, eight at a time. Not cryptographic.
class digest {
 public:
  void add(u64 word) noexcept {
    state_ = (state_ ^ word) * 0x9E37'79B9'7F4A'7C15ull;
    state_ ^= state_ >> 32;
  }
  void add(std::byte const* bytes, std::size_t n) noexcept {
    add(n);
    for (; n >= 8; n -= 8, bytes += 8) {
      u64 word;
      std::memcpy(&word, bytes, 8);
      add(word);
    }
    u64 last = 0;
    std::memcpy(&last, bytes, n);
    add(last);
  }
  u64 value() const noexcept { return state_; }

 private:
  u64 state_ = 0xCBF2'9CE4'8422'2325ull;
};

/// The first backend from outside that can be read.
template <class B>
auto const& readable_part(B& b) noexcept {
  if constexpr (readable_backend<B>) {
    return std::as_const(b);
  } else {
    static_assert(
        requires { b.inner(); },
        "neither the backend nor one inside it has read(pool, slot, expert, generation, bank)");
    return readable_part(b.inner());
  }
}

/// A predictor behind pointers, so that a run is compiled once for all of them.
class any_predictor {
 public:
  template <class P>
  requires(!std::same_as<P, any_predictor>) explicit any_predictor(P& p) noexcept
      : name(P::name), horizon(P::horizon), speculates(P::speculates), self_(&p),
        open_([](void* self, geometry const& model) { static_cast<P*>(self)->open(model); }),
        learn_([](void* self, routing_snapshot const& s) { static_cast<P*>(self)->learn(s); }),
        tell_([](void* self, u32 row, array_view<u32 const> next) {
          if constexpr (requires(P & told) { told.tell(row, next); }) {
            static_cast<P*>(self)->tell(row, next);
          }
        }),
        predict_([](void const* self, routing_snapshot const& s, u32 width, array_view<hint> out) {
          return static_cast<P const*>(self)->predict(s, width, out);
        }) {}

  void open(geometry const& model) const { open_(self_, model); }
  void learn(routing_snapshot const& s) const { learn_(self_, s); }
  void tell(u32 row, array_view<u32 const> next) const { tell_(self_, row, next); }
  u32 predict(routing_snapshot const& s, u32 width, array_view<hint> out) const {
    return predict_(self_, s, width, out);
  }

  char const* name;
  u32 horizon;
  bool speculates;

 private:
  void* self_;
  void (*open_)(void*, geometry const&);
  void (*learn_)(void*, routing_snapshot const&);
  void (*tell_)(void*, u32, array_view<u32 const>);
  u32 (*predict_)(void const*, routing_snapshot const&, u32, array_view<hint>);
};

/// Plays one run: every step is demanded under a lease, its experts are read out of slots and scratch like a kernel
/// would, after the hints for later layers have been given; so a hint that takes a slot too early shows.
template <class Cache>
class equivalence_player {
 public:
  equivalence_player(Cache& cache, any_predictor predictor, equivalence_options const& options)
      : cache_(cache), predictor_(predictor), options_(options), hints_(max_of(options.width, 1u)) {
    predictor_.open(cache_.model());
    made_.predictor = predictor_.name;
  }

  /// @param reference  deliveries of the run without hints; filled by that run, compared by the others
  void play(recording const& r, selection const& which, std::vector<delivery>& reference,
            equivalence_report& report) {
    bool const first = report.runs.empty();
    u32 const run = static_cast<u32>(report.runs.size());
    std::size_t at = 0;
    u64 events = 0;
    equivalence_report found;
    auto const fail = [&](equivalence_fault f, layer_id layer, u32 expert) {
      if (found.fault == equivalence_fault::none) {
        found = {f, run, made_.steps, layer, {expert}, {}};
      }
    };
    routed_steps(r, which).for_each(
        predictor_.horizon,
        [&](event const& e, routing_snapshot const& seen, array_view<u32 const> next) {
          if (events++ >= options_.max_events || !found) {
            return false;
          }
          step(e, seen, next, fail);
          for (delivery const& d : step_) {
            whole_.add(u64{d.layer.value} << 32 | d.expert);
            whole_.add(d.digest);
            ++made_.delivered;
            if (first) {
              reference.push_back(d);
            } else if (at == reference.size() || reference[at].step != d.step ||
                       reference[at].layer != d.layer || reference[at].expert != d.expert) {
              fail(equivalence_fault::other_expert, d.layer, d.expert);
            } else if (reference[at].digest != d.digest) {
              fail(equivalence_fault::other_bytes, d.layer, d.expert);
            }
            ++at;
          }
          ++made_.steps;
          return true;
        });
    if (found && at != reference.size()) {
      made_.steps = reference[at].step;
      fail(equivalence_fault::other_expert, reference[at].layer, reference[at].expert);
    }
    made_.digest = whole_.value();
    report.runs.push_back(std::move(made_));
    if (!found) {
      found.runs = std::move(report.runs);
      report = std::move(found);
    }
  }

 private:
  template <class Fail>
  void step(event const& e, routing_snapshot const& seen, array_view<u32 const> next, Fail&& fail) {
    step_.clear();
    auto lease = cache_.demand(e.layer, seen.experts, facts_of(seen));
    if (!lease) {
      if (!seen.experts.empty()) {
        fail(equivalence_fault::refused_step, e.layer, seen.experts[0]);
      }
      return;
    }
    auto const& view = lease.view();
    u32 row = 0;
    (void)cache_.find(e.layer, pool_, row);
    n_slots_ = cache_.sites()[pool_].n_slots;
    for (u32 expert : view.experts) {
      step_.push_back({made_.steps, e.layer, expert, 0});
    }
    done_.assign(view.experts.size(), false);
    bool failed = false;
    for (std::size_t i = 0; i < view.experts.size(); ++i) {
      if (view.slots[i] < n_slots_ &&
          (view.how[i] == access_kind::load || view.how[i] == access_kind::late)) {
        failed = wait(view.slots[i], generation(view.slots[i])) != transfer::arrived || failed;
      }
    }
    for (u32 wave = 0; wave < view.n_waves; ++wave) {
      cache_.start_wave(wave);
      read_scratch(view, wave, fail);
    }
    if (failed && cache_.serve_failed() != 0) {
      read_scratch(view, 0, fail);
    }
    held_.clear();
    for (std::size_t i = 0; i < view.experts.size(); ++i) {
      if (!done_[i]) {
        held_.push_back(
            {i, view.slots[i], view.slots[i] < n_slots_ ? generation(view.slots[i]) : 0});
      }
    }
    give_hints(seen, next);
    for (held const& h : held_) {  // the view is the hints' now
      if (h.slot >= n_slots_) {
        fail(equivalence_fault::not_delivered, e.layer, step_[h.index].expert);
      } else {
        read(h.index, h.slot, h.generation, fail);
      }
    }
  }

  static auto facts_of(routing_snapshot const& seen) noexcept {
    return step_facts{seen.in_phase, seen.sequence, seen.token, {}};
  }

  void give_hints(routing_snapshot const& seen, array_view<u32 const> next) {
    predictor_.learn(seen);
    if (predictor_.speculates) {
      if (seen.in_phase == phase::prefill && !options_.hints_in_prefill) {
        return;
      }
      u32 const n_rows = static_cast<u32>(cache_.model().layers().size());
      predictor_.tell((seen.row + predictor_.horizon) % n_rows, next);
      ++made_.asked;
      u32 const n = predictor_.predict(seen, options_.width, hints_);
      made_.hints += n;
      for (u32 i = 0; i < n;) {
        layer_id const layer = hints_[i].layer;
        batch_.clear();
        for (; i < n && hints_[i].layer == layer; ++i) {
          batch_.push_back(hints_[i].expert);
        }
        made_.loads += cache_.advise(layer, batch_);
      }
    }
  }

  u32 generation(u32 slot) const noexcept { return cache_.pools()[pool_].view().generation(slot); }

  /// How the transfer into a slot ended; `loading` where it never did.
  transfer wait(u32 slot, u32 generation) {
    for (u32 polls = 0; polls < options_.max_polls; ++polls) {
      u32 const word = cache_.backend().arrivals(pool_)[slot];
      if (arrival::is_of(word, generation) && arrival::state(word) != transfer::loading) {
        return arrival::state(word);
      }
      cache_.backend().poll();
    }
    return transfer::loading;
  }

  /// Reads what a wave that has been started brings into scratch; what fails is sent again.
  template <class View, class Fail>
  void read_scratch(View const& view, u32 wave, Fail&& fail) {
    for (u32 attempt = 0; attempt < options_.attempts; ++attempt) {
      bool all = true;
      for (std::size_t i = 0; i < view.experts.size(); ++i) {
        if (done_[i] || view.slots[i] < n_slots_ || view.waves[i] != wave) {
          continue;
        }
        if (wait(view.slots[i], cache_.scratch_generation()) == transfer::arrived) {
          read(i, view.slots[i], cache_.scratch_generation(), fail);
        } else {
          all = false;
        }
      }
      if (all) {
        return;
      }
      cache_.start_wave(wave);
    }
  }

  template <class Fail>
  void read(std::size_t i, u32 slot, u32 generation, Fail&& fail) {
    delivery& d = step_[i];
    digest sum;
    layer_geometry const& layer = *cache_.model().find(d.layer);
    for (u32 bank = 0; bank < layer.bank_bytes.size(); ++bank) {
      auto const got =
          readable_part(cache_.backend())
              .read(pool_, slot_id{slot}, expert_key{d.layer, {d.expert}}, generation, bank);
      if (!got) {
        fail(equivalence_fault::faulty_read, d.layer, d.expert);
        return;
      }
      sum.add(got.bytes.data(), got.bytes.size());
      made_.bytes += got.bytes.size();
    }
    d.digest = sum.value();
    done_[i] = true;
  }

  struct held {
    std::size_t index;
    u32 slot;
    u32 generation;
  };

  Cache& cache_;
  any_predictor predictor_;
  equivalence_options const& options_;
  equivalence_run made_;
  digest whole_;
  u32 pool_ = 0;
  u32 n_slots_ = 0;
  std::vector<delivery> step_;
  std::vector<bool> done_;
  std::vector<held> held_;
  std::vector<hint> hints_;
  std::vector<routed_id> batch_;
};

}  // namespace detail

/// Runs one input without hints, under the oracle, under chance and under the adversary, and compares the bytes that
/// every demanded expert had where a kernel would have read them.
///
/// @param make_cache  gives a new cache, the same one every time: `make_cache()`. Its bundle takes hints
///                    (`predict::supplied`), its layers are the recording's, its backend is a readable_backend or an
///                    adaptor of one; bytes per expert are its own and may be few
/// @param own         predictors of the user's, each played after the four; they are opened here
///
/// It fails, besides on a difference, when a run delivers nothing, when a predictor is never asked or has no hints, when
/// no hint becomes a load, and when the backend says that a read is faulty. A transfer that fails is served as an engine
/// would: through scratch. The report names the first difference; later runs are then not played.
///
/// Allocates: 24 bytes per delivered expert. O(events, and bytes of their experts), times runs.
template <class MakeCache, checked_predictor... Own>
equivalence_report check_equivalence(recording const& r, selection const& which,
                                     MakeCache&& make_cache,
                                     equivalence_options const& options = {}, Own&... own) {
  std::vector<detail::delivery> reference;
  equivalence_report report;
  auto const run = [&](detail::any_predictor predictor) {
    if (report) {
      auto cache = make_cache();
      detail::equivalence_player<decltype(cache)>(cache, predictor, options)
          .play(r, which, reference, report);
    }
  };
  predict::none none;
  predict::oracle<> oracle;
  predict::random<> random{options.seed};
  predict::adversarial<> adversarial;
  run(detail::any_predictor(none));
  run(detail::any_predictor(oracle));
  run(detail::any_predictor(random));
  run(detail::any_predictor(adversarial));
  (run(detail::any_predictor(own)), ...);
  return report ? vacuous(std::move(report.runs)) : report;
}

}  // namespace trace
}  // namespace warmset::inline v0
