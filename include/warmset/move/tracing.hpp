// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdio>

#include "adaptor.hpp"
#include "external.hpp"

namespace warmset::inline v0 {
namespace move {

/// What happened to one transfer.
struct move_event {
  enum class kind : u8 { start, arrived, failed };
  kind what;
  u32 pool;
  transfer_order order;
  bool operator==(move_event const&) const = default;
};

constexpr char const* name_of(move_event::kind k) noexcept {
  constexpr char const* names[] = {"start", "arrived", "failed"};
  return static_cast<u32>(k) < 3 ? names[static_cast<u32>(k)] : "unknown";
}

/// Takes the events of a tracing adaptor, on the owner's thread.
template <class S>
concept move_sink = requires(S& s, move_event const& event) {
  { s(event) }
  noexcept;
};

/// A sink that writes one line per event: what, pool, slot, layer, expert, generation. Write errors
/// are the file's.
struct line_sink {
  std::FILE* file = stderr;

  void operator()(move_event const& e) const noexcept {
    std::fprintf(file, "%s pool %u slot %u layer %u expert %u generation %u\n", name_of(e.what),
                 e.pool, e.order.slot.value, e.order.expert.layer.value,
                 e.order.expert.expert.value, e.order.generation);
  }
};

/// A backend that tells a sink of every start, arrival and failure, as often as they happen and in
/// the order in which start and poll see them.
///
/// Errors: those of B. Does not allocate after open. Complexity: O(transfers in flight) per start
/// and poll.
template <move_backend B, move_sink Sink = line_sink>
class tracing {
 public:
  tracing() = default;
  explicit tracing(Sink sink, B inner = B{}) : inner_(std::move(inner)), sink_(std::move(sink)) {}

  u64 tail_bytes() const noexcept { return inner_.tail_bytes(); }

  void open(geometry const& model, array_view<pool_site const> sites) {
    flights_.open(sites);
    inner_.open(model, sites);
  }

  u32 const* arrivals(u32 pool) const noexcept { return inner_.arrivals(pool); }

  void start(u32 pool, array_view<transfer_order const> orders) noexcept {
    take_in();  // before a slot's next transfer hides how its last one ended
    for (transfer_order const& order : orders) {
      sink_(move_event{move_event::kind::start, pool, order});
      flights_.add({pool, order});
    }
    inner_.start(pool, orders);
    take_in();
  }

  void poll() noexcept {
    inner_.poll();
    take_in();
  }

  void close() noexcept {
    inner_.close();
    take_in();
  }

  B& inner() noexcept { return inner_; }
  B const& inner() const noexcept { return inner_; }
  Sink& sink() noexcept { return sink_; }
  Sink const& sink() const noexcept { return sink_; }

 private:
  struct flight {
    u32 pool;
    transfer_order order;
  };

  void take_in() noexcept {
    flights_.drop_if([this](flight const& f) {
      transfer const end = detail::end_of(inner_, f.pool, f.order.slot, f.order.generation);
      if (end == transfer::loading) {
        return false;
      }
      sink_(move_event{end == transfer::arrived ? move_event::kind::arrived
                                                : move_event::kind::failed,
                       f.pool, f.order});
      return true;
    });
  }

  B inner_{};
  [[no_unique_address]] Sink sink_{};
  detail::flight_list<flight> flights_;
};

}  // namespace move

static_assert(move_backend<move::tracing<move::external>>, "tracing must satisfy move_backend");

}  // namespace warmset::inline v0
