// SPDX-License-Identifier: Apache-2.0
#include <warmset/move/counting.hpp>
#include <warmset/move/failing.hpp>
#include <warmset/move/host.hpp>
#include <warmset/move/limiting.hpp>
#include <warmset/move/throttling.hpp>
#include <warmset/move/tracing.hpp>

#include "backend_conformance.hpp"

#include <algorithm>
#include <cstring>

using namespace warmset;
using namespace warmset_test;
using namespace warmset::move;

namespace {

struct sink {
  std::vector<move_event>* events = nullptr;
  void operator()(move_event const& e) noexcept {
    if (events != nullptr && events->size() < events->capacity()) {
      events->push_back(e);
    }
  }
};

constexpr host_options slow{.bytes_per_tick = 31, .latency = 2, .ticks_per_poll = 3};
using moment = failure_schedule::moment;

transfer_order order_of(u32 layer, u32 expert, u32 slot, u32 generation) {
  return {slot_id{slot}, {layer_id{layer}, expert_id{expert}}, generation};
}

template <class B>
struct opened {
  geometry model = two_groups();
  std::vector<pool_site> sites = make_sites(model, 8, 2);
  B backend;
  explicit opened(B b) : backend(std::move(b)) { backend.open(model, sites); }
  transfer word(u32 pool, u32 slot) const { return arrival::state(backend.arrivals(pool)[slot]); }
};

}  // namespace

TEST_CASE("failing conforms", "[move]") {
  backend_conforms([] { return failing<immediate>{failure_schedule{}}; });
  backend_conforms([] { return failing<external>{failure_schedule::nth(3)}; }, true);
  backend_conforms([] { return failing<host>{failure_schedule::all()}; }, true);
  backend_conforms([] { return failing<host>{failure_schedule::all(moment::at_start)}; }, true);
  backend_conforms(
      [] {
        return failing{failure_schedule::random(1, 30'000, moment::at_start), host{slow}};
      },
      true);
}

TEST_CASE("throttling conforms", "[move]") {
  backend_conforms([] { return throttling<external>{0}; });
  backend_conforms([] { return throttling<immediate>{3}; });
  backend_conforms([] { return throttling<host>{4, host{slow}}; });
  backend_conforms([] { return throttling<host, tick_clock>{50, host{slow}}; });
}

TEST_CASE("limiting conforms", "[move]") {
  backend_conforms([] { return limiting<external>{transfer_limit{}}; });
  backend_conforms([] { return limiting<immediate>{transfer_limit{.transfers = 1}}; });
  backend_conforms([] { return limiting<host>{transfer_limit{.transfers = 3}, host{slow}}; });
  backend_conforms([] { return limiting<host>{transfer_limit{.bytes = 100}, host{slow}}; });
  backend_conforms([] { return limiting<host>{transfer_limit{.bytes = 0}}; });
}

TEST_CASE("counting conforms", "[move]") {
  backend_conforms([] { return counting<external>{}; });
  backend_conforms([] { return counting<immediate>{}; });
  backend_conforms([] { return counting<host>{host{slow}}; });
}

TEST_CASE("tracing conforms", "[move]") {
  backend_conforms([] { return tracing<external, sink>{}; });
  backend_conforms([] { return tracing<host, sink>{sink{}, host{slow}}; });
}

TEST_CASE("stacked adaptors conform", "[move]") {
  backend_conforms([] {
    return counting{throttling{2, limiting{transfer_limit{.transfers = 2}, external{}}}};
  });
  backend_conforms([] {
    return tracing{
        sink{}, limiting{transfer_limit{.bytes = 90}, throttling<host, tick_clock>{7, host{slow}}}};
  });
  backend_conforms(
      [] {
        return counting{
            failing{failure_schedule::random(5, 9'000),
                    limiting{transfer_limit{.transfers = 1},
                             failing{failure_schedule::random(6, 9'000, moment::at_start),
                                     throttling{1, tracing{sink{}, host{slow}}}}}}};
      },
      true);
  backend_conforms([] {
    return limiting{transfer_limit{.transfers = 2},
                    limiting{transfer_limit{.transfers = 1}, immediate{}}};
  });
}

TEST_CASE("innermost reaches through all adaptors", "[move]") {
  counting<throttling<limiting<host>>> backend;
  CHECK(&innermost(backend) == &backend.inner().inner().inner());
  auto const& view = backend;
  CHECK(&innermost(view) == &innermost(backend));
  host alone;
  CHECK(&innermost(alone) == &alone);
}

TEST_CASE("failure schedules say which numbers fail", "[move]") {
  CHECK(failure_schedule::nth(3).fails(3));
  CHECK_FALSE(failure_schedule::nth(3).fails(4));
  CHECK_FALSE(failure_schedule{}.fails(0));
  CHECK(failure_schedule::all().fails(0));
  CHECK(failure_schedule::all().fails(77));
  failure_schedule const third{1, 3, 0, 0, moment::at_end};
  CHECK_FALSE(third.fails(0));
  CHECK(third.fails(1));
  CHECK_FALSE(third.fails(3));
  CHECK(third.fails(4));
  u32 n = 0;
  for (u64 i = 0; i < 65'536; ++i) {
    n += failure_schedule::random(9, 6'553).fails(i);
    CHECK(failure_schedule::random(9, 65'536).fails(i));
    CHECK_FALSE(failure_schedule::random(9, 0).fails(i));
  }
  CHECK(n > 6'000);
  CHECK(n < 7'100);
  static_assert(failure_schedule::nth(2).fails(2));
}

TEST_CASE("failing fails the n-th transfer and no other, whichever n", "[move]") {
  for (moment when : {moment::at_end, moment::at_start}) {
    for (u64 n = 0; n < 7; ++n) {
      opened o{failing{failure_schedule::nth(n, when), host{}}};
      transfer_order const a[] = {order_of(1, 1, 0, 1), order_of(1, 2, 1, 1), order_of(1, 3, 2, 1)};
      transfer_order const b[] = {order_of(1, 4, 3, 1), order_of(1, 5, 4, 1), order_of(1, 6, 5, 1)};
      o.backend.start(0, a);
      o.backend.start(0, b);
      CHECK((n < 6 && o.word(0, static_cast<u32>(n)) == transfer::failed) ==
            (n < 6 && when == moment::at_start));
      o.backend.poll();
      for (u32 s = 0; s < 6; ++s) {
        CHECK(o.word(0, s) == (s == n ? transfer::failed : transfer::arrived));
      }
      CHECK(o.backend.n_started() == 6);
      CHECK(o.backend.n_doomed() == (n < 6 ? 1 : 0));
      CHECK(o.backend.inner().ledger().transfers.issued ==
            (when == moment::at_start && n < 6 ? 5 : 6));
      o.backend.set_schedule({});
      transfer_order const again[] = {order_of(1, 9, 0, 2)};
      o.backend.start(0, again);
      o.backend.poll();
      CHECK(o.word(0, 0) == transfer::arrived);
    }
  }
}

TEST_CASE("throttling shows a word so many polls later", "[move]") {
  for (u64 delay : {0u, 1u, 2u, 5u}) {
    opened o{throttling{delay, immediate{}}};
    transfer_order const order = order_of(1, 1, 0, 1);
    o.backend.start(0, {&order, 1});
    u64 polls = 0;
    while (o.word(0, 0) == transfer::loading && polls < 100) {
      o.backend.poll();
      ++polls;
    }
    CHECK(polls == delay);
    CHECK(o.word(0, 0) == transfer::arrived);
  }
}

TEST_CASE("throttling in ticks follows the clock inside", "[move]") {
  opened o{throttling<host, tick_clock>{10, host{{.ticks_per_poll = 0}}}};
  transfer_order const order = order_of(1, 1, 0, 1);
  o.backend.start(0, {&order, 1});
  o.backend.poll();  // has ended inside at tick 0
  innermost(o.backend).advance(9);
  o.backend.poll();
  CHECK(o.word(0, 0) == transfer::loading);
  innermost(o.backend).advance(1);
  CHECK(o.word(0, 0) == transfer::loading);
  o.backend.poll();
  CHECK(o.word(0, 0) == transfer::arrived);
}

TEST_CASE("limiting passes on so many per start, in order, and loses none", "[move]") {
  std::vector<move_event> events;
  events.reserve(100);
  opened o{limiting{transfer_limit{.transfers = 2}, tracing{sink{&events}, external{}}}};
  transfer_order const a[] = {order_of(1, 1, 0, 1), order_of(1, 2, 1, 1), order_of(1, 9, 2, 1)};
  transfer_order const b[] = {order_of(1, 4, 3, 1), order_of(1, 5, 4, 1)};
  transfer_order const c[] = {order_of(5, 6, 0, 1)};
  o.backend.start(0, a);
  CHECK(events.size() == 2);
  CHECK(o.backend.n_waiting() == 1);
  CHECK(o.word(0, 2) == transfer::loading);
  o.backend.start(0, b);  // the ninth, which has waited, and the fourth
  CHECK(events.size() == 4);
  o.backend.start(1, c);
  CHECK(events.size() == 6);
  CHECK(o.backend.n_waiting() == 0);
  std::vector<u32> experts;
  for (move_event const& e : events) {
    experts.push_back(e.order.expert.expert.value);
  }
  CHECK(experts == std::vector<u32>{1, 2, 9, 4, 5, 6});
}

TEST_CASE("limiting goes on by itself when what it passed on has ended", "[move]") {
  opened o{limiting{transfer_limit{.bytes = 100}, counting{host{}}}};  // an expert has 44 bytes
  std::vector<transfer_order> orders;
  for (u32 i = 0; i < 8; ++i) {
    orders.push_back(order_of(1, i, i, 1));
  }
  o.backend.start(0, orders);
  std::vector<u64> issued;
  for (int i = 0; i < 5; ++i) {
    issued.push_back(o.backend.inner().counts().issued);
    o.backend.poll();
  }
  CHECK(issued == std::vector<u64>{2, 4, 6, 8, 8});
  CHECK(o.backend.n_waiting() == 0);
  CHECK(o.word(0, 7) == transfer::arrived);
}

TEST_CASE("counting counts experts, copies, bytes and failures", "[move]") {
  opened o{counting{failing{failure_schedule::nth(1), external{}}}};
  transfer_order const a[] = {order_of(1, 1, 0, 1), order_of(1, 2, 1, 1), order_of(1, 9, 2, 1)};
  o.backend.start(0, a);
  move_counts const& counts = o.backend.counts();
  CHECK(counts.issued == 3);
  CHECK(counts.in_flight() == 3);
  CHECK(counts.bytes_issued == 3 * 44);
  CHECK(counts.copies == 6);
  CHECK(counts.small_copies == 6);
  CHECK(counts.merged == 1);
  CHECK(counts.batches == 1);
  for (u32 s = 0; s < 3; ++s) {
    innermost(o.backend).arrived(0, slot_id{s});
  }
  o.backend.poll();
  CHECK(counts.arrived == 2);
  CHECK(counts.failed == 1);
  CHECK(counts.bytes_arrived == 88);
  CHECK(counts.bytes_failed == 44);
  CHECK(counts.bytes_in_flight() == 0);
}

TEST_CASE("counting agrees with the ledger of the host inside", "[move]") {
  opened o{counting{host{slow}}};
  for (u32 round = 1; round < 40; ++round) {
    std::vector<transfer_order> orders;
    for (u32 s = 0; s < 8; ++s) {
      if (o.word(0, s) != transfer::loading && (s * round) % 3 != 1) {
        orders.push_back(order_of(1, (s * 2 + round) % 42, s, round));
      }
    }
    std::sort(orders.begin(), orders.end(),
              [](auto const& x, auto const& y) { return x.expert < y.expert; });
    o.backend.start(0, orders);
    o.backend.poll();
    move_counts const& c = o.backend.counts();
    move_ledger const& l = o.backend.inner().ledger();
    CHECK(c.issued == l.transfers.issued);
    CHECK(c.arrived == l.transfers.completed);
    CHECK(c.copies == l.copies.issued);
    CHECK(c.bytes_issued == l.bytes.issued);
    CHECK(c.merged == l.merged);
    CHECK(l.balances());
  }
}

TEST_CASE("tracing tells of every start and end", "[move]") {
  std::vector<move_event> events;
  events.reserve(100);
  opened o{tracing{sink{&events}, external{}}};
  transfer_order const a = order_of(1, 1, 0, 1);
  transfer_order const b = order_of(1, 3, 0, 2);
  o.backend.start(0, {&a, 1});
  innermost(o.backend).arrived(0, slot_id{0});
  o.backend.start(0, {&b, 1});  // without a poll between
  innermost(o.backend).failed(0, slot_id{0});
  o.backend.poll();
  o.backend.poll();
  using kind = move_event::kind;
  CHECK(events ==
        std::vector<move_event>{
            {kind::start, 0, a}, {kind::arrived, 0, a}, {kind::start, 0, b}, {kind::failed, 0, b}});
}

TEST_CASE("the line sink writes one line per event", "[move]") {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  line_sink{file}({move_event::kind::failed, 3, order_of(5, 17, 2, 9)});
  std::rewind(file);
  char line[200] = {};
  CHECK(std::fgets(line, sizeof line, file) != nullptr);
  std::fclose(file);
  CHECK(std::strcmp(line, "failed pool 3 slot 2 layer 5 expert 17 generation 9\n") == 0);
}
