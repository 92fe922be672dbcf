// SPDX-License-Identifier: Apache-2.0
// A worker that is stepped by hand: what it decides, answers, retries and lets go of.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <warmset/gate/held_by.hpp>
#include <warmset/observe/health_facts.hpp>
#include <warmset/observe/laws.hpp>

#include "device_model.hpp"
#include "support/count_allocations.hpp"

using namespace warmset;
using namespace warmset::signal;
using namespace warmset_test;

namespace {

template <class W>
void require_sound(W& w) {
  audit_result const a = w.cache().audit();
  INFO(name_of(a.broken) << " at " << a.where);
  REQUIRE(a);
  law_result const l = check_laws(w.total(), w.cache().slot_counts());
  INFO(name_of(l.broken) << ": " << l.left << " against " << l.right);
  REQUIRE(l);
}

template <class W>
bool answered(W& w, u32 sequence, u32 wave = 0) {
  return w.channels[0]->view().answers().template ready<host_words>(sequence, wave);
}

/// No slot, scratch or lease is held for a demand.
template <class W>
bool nothing_is_held(W& w) {
  for (auto& pool : w.cache().pools()) {
    auto const& view = pool.view();
    for (u32 s = 0; s < view.header().n_slots; ++s) {
      if (slot_word::leases(view.word(s)) != 0) {
        return false;
      }
    }
    for (u32 s = 0; s < view.header().n_scratch; ++s) {
      if (view.scratch_word(s) != 0) {
        return false;
      }
    }
  }
  return true;
}

template <class W>
u64 dropped(W& w, reason why) {
  return w.total().hints_dropped[static_cast<u32>(why)].value;
}

/// A bundle without hints.
struct demand_only : default_policy {
  using score = warmset::score::lru;
};

using by_hand = worked<>;

}  // namespace

TEST_CASE("a demand is answered once its bytes are in place") {
  by_hand w{{}};
  REQUIRE(w.worker->start_by_hand());
  w.memory.polls = 3;
  routed_id const ids[] = {5, 7, -1, 5, 99};
  published const sent = w.end().publish(layer_id{1}, ids);
  REQUIRE(sent);
  CHECK_FALSE(answered(w, sent.sequence));
  w.worker->step();  // decided
  CHECK_FALSE(answered(w, sent.sequence));
  w.settle();
  REQUIRE(answered(w, sent.sequence));
  answer const a = w.end().answer_to(sent.sequence);
  CHECK(a.why() == reason::none);
  REQUIRE(a.size() == 5);
  CHECK(w.memory.holds(1, a.slot(0), {layer_id{1}, expert_id{5}}));
  CHECK(w.memory.holds(1, a.slot(1), {layer_id{1}, expert_id{7}}));
  CHECK(a.slot(3) == a.slot(0));  // the same expert
  CHECK(a.slot(2) == no_slot);    // padding
  CHECK(a.slot(4) == no_slot);    // out of range
  CHECK_FALSE(nothing_is_held(w));
  w.end().finish(sent.sequence);
  w.settle();
  CHECK(nothing_is_held(w));
  require_sound(w);
  CHECK(w.total()[access_kind::load].value == 2);
}

TEST_CASE("layers that the model lacks and steps without ids are answered") {
  by_hand w{{}};
  REQUIRE(w.worker->start_by_hand());
  routed_id const ids[] = {5, 7};
  published const unknown = w.end().publish(layer_id{9}, ids);
  published const empty = w.end().publish(layer_id{0}, {});
  w.settle();
  CHECK(w.end().answer_to(unknown.sequence).why() == reason::unknown_layer);
  CHECK(w.end().answer_to(unknown.sequence).slot(1) == no_slot);
  CHECK(w.end().answer_to(empty.sequence).why() == reason::none);
  // a refusal ends the wait with its reason, or with what the source serves
  wait_result const refused = w.end().wait(unknown.sequence, u64_max);
  CHECK(refused.why == reason::unknown_layer);
  CHECK(refused.by == served::nobody);
  mapped_source source;
  CHECK(w.end().wait(unknown.sequence, u64_max, 0, source).by == served::source);
  CHECK(source.served == 1);
  CHECK(w.end().answer_to(empty.sequence).size() == 0);
  CHECK(w.worker->counters()[tally::refused] == 1);
  std::vector<routed_id> const many(17, 1);
  CHECK(w.end().publish(layer_id{0}, many).why == reason::limited);
  CHECK(w.end().hint(layer_id{0}, many).why == reason::limited);
}

TEST_CASE("a step wider than the pool goes through scratch in waves") {
  by_hand w{{}};
  REQUIRE(w.worker->start());
  graph_step wide{0, {}};
  for (routed_id i = 0; i < 11; ++i) {
    wide.ids.push_back(i);
  }
  w.dev().run({0, {3, 9}});
  w.dev().run(wide);
  w.dev().run({1, {3, 9}});
  w.dev().run(wide);
  CHECK(w.dev().report().wrong == 0);
  CHECK(w.dev().report().from_slots == 4);
  w.worker->stop();
  CHECK(w.total().overflow_steps.value == 2);
  require_sound(w);
}

TEST_CASE("waves come one by one, as the device says that it has read them") {
  by_hand w{{}};
  REQUIRE(w.worker->start_by_hand());
  std::vector<routed_id> wide;
  for (routed_id i = 0; i < 7; ++i) {
    wide.push_back(i);
  }
  u32 const s = w.end().publish(layer_id{0}, wide).sequence;
  w.settle();
  REQUIRE(answered(w, s));
  answer const a = w.end().answer_to(s);
  REQUIRE(a.n_waves() == 4);  // two scratch slots
  for (u32 wave = 1; wave < 4; ++wave) {
    w.settle();
    CHECK_FALSE(answered(w, s, wave));
    w.end().wave_read(s, wave - 1);
    w.settle();
    REQUIRE(answered(w, s, wave));
    for (u32 i = 0; i < 7; ++i) {
      if (a.wave(i) == wave) {
        CHECK(w.memory.holds(0, a.slot(i), {layer_id{0}, expert_id{i}}));
      }
    }
  }
  w.end().finish(s);
  w.settle();
  CHECK(nothing_is_held(w));
}

TEST_CASE("a transfer that fails is started again, and its slot is free afterwards") {
  by_hand w{{}};
  REQUIRE(w.worker->start_by_hand());
  w.memory.fail_next = 3;  // both, then one of them again
  graph_step const step{0, {4, 6}};
  u32 const s = w.end().publish(layer_id{0}, step.ids).sequence;
  w.settle();
  REQUIRE(answered(w, s));
  w.dev().read(step, s);
  CHECK(w.dev().report().wrong == 0);
  CHECK(w.worker->counters()[tally::retried] == 3);
  CHECK(w.memory.failures == 3);
  CHECK(w.cache().slot_counts().in_flight[0] == 0);
  w.end().finish(s);
  w.settle();
  CHECK(nothing_is_held(w));
  CHECK_FALSE(w.cache().is_resident({layer_id{0}, expert_id{4}}));
  require_sound(w);
}

TEST_CASE("a failure that the table has yet to take in is started again afterwards") {
  by_hand w{{}};
  REQUIRE(w.worker->start_by_hand());
  w.memory.polls = 2;
  w.memory.fail_next = 1;
  u32 const first = w.end().publish(layer_id{0}, std::vector<routed_id>{4}).sequence;
  w.worker->step();
  u32 const second = w.end().publish(layer_id{1}, std::vector<routed_id>{6}).sequence;
  w.worker->step();  // the decision for layer 1 polls after layer 0 was settled
  CHECK(w.memory.failures == 1);
  CHECK(w.cache().slot_counts().in_flight[0] == 2);
  w.settle();
  w.dev().read({0, {4}}, first);
  w.dev().read({1, {6}}, second);
  CHECK(w.dev().report().wrong == 0);
  CHECK(w.dev().report().from_slots == 2);
  CHECK(w.cache().slot_counts().in_flight[0] == 0);
  w.end().finish(second);
  w.settle();
  CHECK(nothing_is_held(w));
  CHECK(w.cache().pools()[0].view().header().free() == 4);
  require_sound(w);
}

TEST_CASE("a hint that fails under the demand that joined it is served") {
  by_hand w{{}};
  REQUIRE(w.worker->start_by_hand());
  w.memory.held = true;
  routed_id const ids[] = {4};
  REQUIRE(w.end().hint(layer_id{0}, ids));
  w.settle(4);
  u32 const s = w.end().publish(layer_id{0}, ids).sequence;
  w.settle(4);
  CHECK(w.total()[access_kind::late].value == 1);
  w.memory.fail_next = 1;
  w.memory.held = false;
  w.settle();
  w.dev().read({0, {4}}, s);
  CHECK(w.dev().report().wrong == 0);
  CHECK(w.dev().report().from_slots == 1);
  CHECK(w.worker->counters()[tally::retried] == 1);
  w.end().finish(s);
  w.settle();
  require_sound(w);
}

TEST_CASE("demands that share a transfer share every further one, however often it fails") {
  u32 const n_failures = GENERATE(1u, 2u, 3u, 7u);
  u32 const n_channels = GENERATE(1u, 2u);
  CAPTURE(n_failures, n_channels);
  by_hand w{{.channels = n_channels}};
  REQUIRE(w.worker->start_by_hand());
  w.memory.held = true;
  graph_step const step{0, {4}};
  u32 const other = n_channels - 1;
  u32 const first = w.end(0).publish(layer_id{0}, step.ids).sequence;
  u32 const second = w.end(other).publish(layer_id{0}, step.ids).sequence;
  w.settle(4);
  w.memory.fail_next = n_failures;
  w.memory.held = false;
  w.settle();
  REQUIRE(w.channels[0]->view().answers().ready<host_words>(first));
  REQUIRE(w.channels[other]->view().answers().ready<host_words>(second));
  w.dev(0).read(step, first);
  w.dev(other).read(step, second);
  CHECK(w.dev(0).report().from_slots + (other != 0 ? w.dev(1).report().from_slots : 0) == 2);
  CHECK(w.dev(0).report().wrong + w.dev(other).report().wrong == 0);
  CHECK(w.memory.starts == 1 + n_failures);
  w.end(0).finish(first);
  w.settle();
  w.dev(other).read(step, second);  // still held
  CHECK(w.dev(other).report().wrong == 0);
  w.end(other).finish(second);
  w.settle();
  CHECK(nothing_is_held(w));
  require_sound(w);
}

TEST_CASE("a slot that is read is not filled again when the table gives its expert up") {
  by_hand w{{.channels = 2}};
  REQUIRE(w.worker->start_by_hand());
  graph_step const read{0, {4}};
  u32 const first = w.end(0).publish(layer_id{0}, read.ids).sequence;
  w.settle();
  w.dev(0).read(read, first);  // and goes on reading
  w.memory.held = true;
  u32 const second = w.end(1).publish(layer_id{0}, std::vector<routed_id>{4, 6}).sequence;
  w.settle(4);
  CHECK(w.memory.starts == 2);
  REQUIRE(w.cache().resize(layer_id{0}, 2));
  REQUIRE(w.cache().invalidate(layer_id{0}));  // both experts leave the table, their slots are held
  w.settle(4);
  w.memory.held = false;
  w.settle();
  CHECK(w.memory.starts == 2);
  w.dev(0).read(read, first);
  w.dev(1).read({0, {4, 6}}, second);
  CHECK(w.dev(0).report().wrong + w.dev(1).report().wrong == 0);
  CHECK(w.dev(1).report().from_slots == 1);
  w.end(0).finish(first);
  w.end(1).finish(second);
  w.settle();
  CHECK(nothing_is_held(w));
  require_sound(w);
}

TEST_CASE("several demands of a channel wait for their transfers together") {
  by_hand w{{.layers = 4}};
  REQUIRE(w.worker->start_by_hand());
  w.memory.held = true;
  u32 sequence[4];
  for (u32 l = 0; l < 4; ++l) {
    routed_id const ids[] = {static_cast<routed_id>(l)};
    sequence[l] = w.end().publish(layer_id{l}, ids).sequence;
  }
  w.settle(4);
  CHECK(w.memory.starts == 4);
  w.memory.held = false;
  w.settle();
  for (u32 l = 0; l < 4; ++l) {
    CHECK(answered(w, sequence[l]));
  }
}

TEST_CASE("a demand that the device has finished is let go, and its transfers end first") {
  by_hand w{{}};
  REQUIRE(w.worker->start_by_hand());
  w.memory.held = true;
  std::vector<routed_id> wide{0, 1, 2, 3, 4, 5};
  u32 const s = w.end().publish(layer_id{0}, wide).sequence;  // an overflow step: scratch
  w.settle(4);
  w.end().finish(s);
  w.settle(4);
  CHECK_FALSE(nothing_is_held(w));  // something is still written there
  w.memory.held = false;
  w.settle();
  CHECK(nothing_is_held(w));
  CHECK(w.worker->counters()[tally::abandoned] == 1);
  CHECK(w.worker->counters()[tally::answered] == 0);
  require_sound(w);
}

namespace {

/// Mapped memory of the source, on the worker's side.
struct filling_source {
  static constexpr bool mapped = true;
  byte_link* to = nullptr;
  u32* calls = nullptr;
  bool serve_from_source(u32 pool, slot_id slot, expert_key key) noexcept {
    ++*calls;
    to->fill(pool, slot, key);
    return true;
  }
};

}  // namespace

TEST_CASE(
    "an overdue demand is served into scratch from the source, and counted where there is none") {
  std::atomic<u64> time{0};
  graph_step const step{0, {4, 6}};
  SECTION("mapped") {
    byte_link memory;
    u32 calls = 0;
    worked<hinted, filling_source, set_clock> w{
        {}, {.deadline = 100, .source = {&memory, &calls}, .clock = {&time}}, &memory};
    REQUIRE(w.worker->start_by_hand());
    w.memory.held = true;
    u32 const s = w.end().publish(layer_id{0}, step.ids).sequence;
    w.settle(6);
    time = 99;
    w.settle(6);
    CHECK_FALSE(answered(w, s));
    CHECK(calls == 0);
    time = 100;
    w.settle(6);
    REQUIRE(answered(w, s));
    CHECK(calls == 2);
    w.dev().read(step, s);
    CHECK(w.dev().report().wrong == 0);
    answer const a = w.end().answer_to(s);
    CHECK(a.slot(0).value >= 4);  // scratch
    w.end().finish(s);
    w.memory.held = false;
    w.settle();
    CHECK(nothing_is_held(w));
    CHECK(w.worker->counters()[tally::from_source] == 2);
    CHECK(w.worker->counters()[tally::overdue] == 1);
    require_sound(w);
  }
  SECTION("not mapped") {
    worked<hinted, no_source, set_clock> w{{}, {.deadline = 100, .clock = {&time}}};
    REQUIRE(w.worker->start_by_hand());
    w.memory.held = true;
    u32 const s = w.end().publish(layer_id{0}, step.ids).sequence;
    w.settle(4);
    time = 1'000'000;
    w.settle(4);
    w.settle(4);
    CHECK_FALSE(answered(w, s));
    CHECK(w.worker->counters()[tally::overdue] == 1);
    CHECK(host_words::load(w.channels[0]->view().at(channel_view::overdue)) == 1);
    w.memory.held = false;
    w.settle();
    CHECK(answered(w, s));
  }
}

TEST_CASE("the waiting side serves itself past the deadline, or waits on and says so") {
  by_hand w{{}};
  REQUIRE(w.worker->start_by_hand());  // and never steps: a worker that hangs
  mapped_source source;
  w.dev().run({0, {1}}, 1'000'000, source);
  CHECK(source.served == 1);
  CHECK(w.dev().report().from_source == 1);
  CHECK(w.end().counters().from_source == 1);

  u32 const s = w.end().publish(layer_id{0}, std::vector<routed_id>{2}).sequence;
  std::atomic<bool> waits{false};
  std::atomic<bool> came{false};
  std::thread waiter([&] {
    waits = true;
    came = static_cast<bool>(w.end().wait(s, 1'000'000));
  });
  while (!waits) {
    std::this_thread::yield();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // far beyond the deadline of 1 ms
  CHECK_FALSE(came);
  w.settle();
  waiter.join();
  CHECK(came);
  CHECK(w.end().counters().overdue == 1);
  CHECK(w.worker->counters()[tally::abandoned] == 1);  // the first, which its device had finished
  CHECK(w.total()[access_kind::load].value == 1);
}

TEST_CASE("a publisher that finds the ring full waits for an answer, and no longer than the worker "
          "runs") {
  by_hand w{{.shape = {2, 8}}};
  REQUIRE(w.worker->start_by_hand());
  std::vector<routed_id> const ids{1};
  for (bool answers : {true, false}) {
    u32 const first = w.end().next_demand();
    REQUIRE(w.end().publish(layer_id{0}, ids));
    REQUIRE(w.end().publish(layer_id{0}, ids));
    CHECK(w.end().try_publish(layer_id{0}, ids).why == reason::ring_full);
    std::atomic<bool> back{false};
    published third;
    std::thread publisher([&] {
      third = w.end().publish(layer_id{0}, ids);
      back = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK_FALSE(back);
    if (answers) {
      w.settle();
    } else {
      w.worker->stop();
    }
    publisher.join();
    CHECK(third.why == (answers ? reason::none : reason::worker_down));
    if (answers) {
      CHECK(third.sequence == first + 2);
      w.end().finish(third.sequence);
      w.settle();
    }
  }
}

TEST_CASE("only waits for hints expire") {
  by_hand w{{}};
  REQUIRE(w.worker->start_by_hand());
  routed_id const ids[] = {3};
  published const h = w.end().hint(layer_id{0}, ids);
  CHECK(w.end().wait_hint(h.sequence, 1'000'000) == status{reason::deadline});
  CHECK(w.end().counters().waited_empty == 1);
  w.settle();
  CHECK(w.end().wait_hint(h.sequence, 0));
  CHECK(w.total().issued[static_cast<u32>(intent::speculative)].value == 1);
}

TEST_CASE("all demands come before one hint, and a hint whose step has been decided is too late") {
  by_hand w{{.layers = 3}};
  REQUIRE(w.worker->start_by_hand());
  routed_id const ids[] = {3, 4};
  routed_id const other[] = {9};
  REQUIRE(w.end().hint(layer_id{1}, ids));
  REQUIRE(w.end().hint(layer_id{2}, other));
  REQUIRE(w.end().publish(layer_id{0}, ids));
  REQUIRE(w.end().publish(layer_id{1}, other));  // published after the hint for layer 1
  w.worker->step();
  CHECK(w.worker->counters()[tally::demands] == 2);
  CHECK(w.worker->counters()[tally::hints] == 1);
  w.settle();
  worker_counters const c = w.worker->counters();
  CHECK(c[tally::hints] == 2);
  CHECK(c[reason::too_late] == 2);
  CHECK(c[tally::hint_loads] == 1);  // that for layer 2
  CHECK_FALSE(w.cache().is_resident({layer_id{1}, expert_id{3}}));
  CHECK(w.cache().is_resident({layer_id{2}, expert_id{9}}));
  REQUIRE(w.end().hint(layer_id{1}, ids));  // for the next step of layer 1
  w.settle();
  CHECK(w.worker->counters()[tally::hint_loads] == 2);
}

TEST_CASE("hints that the ring drops are counted by reason, and with the others they add up") {
  by_hand w{{}};
  REQUIRE(w.worker->start_by_hand());
  u64 offered = 0;
  dice d{7};
  for (u32 i = 0; i < 200; ++i) {
    routed_id const ids[] = {static_cast<routed_id>(d.below(16)),
                             static_cast<routed_id>(d.below(16))};
    published const h = w.end().hint(layer_id{d.below(2)}, ids);
    CHECK((h.why == reason::none || h.why == reason::ring_full));
    offered += 2;
    if (d.below(4) == 0) {
      w.settle(3);
    }
    if (d.below(8) == 0) {
      u32 const s = w.end().publish(layer_id{d.below(2)}, ids).sequence;
      w.settle();
      w.end().finish(s);
    }
  }
  w.settle();
  worker_counters const c = w.worker->counters();
  CHECK(c[reason::ring_full] != 0);
  CHECK(c[tally::hint_ids] + c[reason::ring_full] == offered);
  CHECK(w.total().hints_offered.value == offered);
  CHECK(dropped(w, reason::ring_full) == c[reason::ring_full]);
  CHECK(dropped(w, reason::too_late) == c[reason::too_late]);
  require_sound(w);
}

TEST_CASE("hints that never reach the cache are in its counters, by reason") {
  by_hand w{{.layers = 3}};
  routed_id const ids[] = {3, 4, 5};
  auto const is_counted = [&](reason why, u64 n, u64 offered) {
    INFO(name_of(why));
    w.settle();
    CHECK(dropped(w, why) == n);
    CHECK(w.worker->counters()[why] == n);
    CHECK(w.total().hints_offered.value == offered);
    require_sound(w);
  };
  CHECK(w.end().hint(layer_id{0}, ids).why == reason::worker_down);
  REQUIRE(w.worker->start_by_hand());
  is_counted(reason::worker_down, 3, 3);
  REQUIRE(w.worker->pause());
  CHECK(w.end().hint(layer_id{1}, ids).why == reason::worker_down);
  REQUIRE(w.worker->resume());
  is_counted(reason::worker_down, 6, 6);
  std::vector<routed_id> const many(17, 1);
  CHECK(w.end().hint(layer_id{0}, many).why == reason::limited);
  is_counted(reason::limited, 17, 23);
  CHECK(w.end().hint(layer_id{9}, ids));
  is_counted(reason::unknown_layer, 3, 26);
  // the first layer has what says no layer
  CHECK(w.cache().observer().total(0, phase::decode).hints_offered.value == 26);

  REQUIRE(w.end().hint(layer_id{2}, ids));
  REQUIRE(w.end().publish(layer_id{2}, ids));
  is_counted(reason::too_late, 3, 29);
  CHECK(w.cache().observer().total(2, phase::decode).hints_offered.value == 3);

  // the next worker of the channel goes on where this one stopped
  w.worker->stop();
  CHECK(w.end().hint(layer_id{0}, ids).why == reason::worker_down);
  w.worker.reset();
  CHECK(w.end().hint(layer_id{0}, ids).why == reason::worker_down);
  channel_view const views[] = {w.channels[0]->view()};
  byte_link other;
  by_hand::worker_type next{
      views, {}, small_model(3, 16, 2), budget::of_slots(4), tuning{}, byte_backend{&other}};
  REQUIRE(next.start_by_hand());
  next.step();
  CHECK(next.counters()[reason::worker_down] == 6);
  CHECK(next.counters()[reason::limited] == 0);
  CHECK(next.cache().observer().total().hints_offered.value == 6);
  next.stop();
}

TEST_CASE("hints for a bundle that takes none are dropped in its counters") {
  worked<demand_only> w{{}};
  REQUIRE(w.worker->start_by_hand());
  REQUIRE(w.end().hint(layer_id{1}, std::vector<routed_id>{8, 9}));
  w.settle();
  CHECK(dropped(w, reason::speculative_budget) == 2);
  CHECK(w.cache().observer().total(1, phase::decode).hints_offered.value == 2);
  require_sound(w);
}

TEST_CASE("speculation of which the ring drops every hint is inert, and its health says why") {
  by_hand w{{.channels = 2}};
  REQUIRE(w.worker->start_by_hand());
  // readers hold every slot of layer 0 and the scratch: one demand waits, and so do all hints
  published sent[4];
  for (u32 i = 0; i < 4; ++i) {
    std::vector<routed_id> const ids{static_cast<routed_id>(2 * i),
                                     static_cast<routed_id>(2 * i + 1)};
    sent[i] = w.end(1).publish(layer_id{0}, ids);
  }
  std::vector<routed_id> const one{1};
  REQUIRE(w.end().hint(layer_id{1}, one));
  REQUIRE(w.end().hint(layer_id{1}, one));
  health_monitor monitor{health_setup_of(w.cache()), {.window_steps = 50, .min_hints = 8}};
  for (u32 i = 0; i < 60; ++i) {  // layer 1 is served all along
    CHECK(w.end().hint(layer_id{1}, one).why == reason::ring_full);
    u32 const s = w.end().publish(layer_id{1}, one).sequence;
    w.settle();
    REQUIRE(w.end().wait(s, 0));
    w.end().finish(s);
    monitor.update(w.total());
    if (i == 10) {
      CHECK(monitor.report().state == health_state::active);
    }
  }
  CHECK(w.worker->counters()[tally::hints] == 0);
  CHECK(w.total().hints_offered.value == 60);
  CHECK(dropped(w, reason::ring_full) == 60);
  health_report const& r = monitor.report();
  CHECK(r.state == health_state::inert);
  CHECK(r.why == reason::inert);
  CHECK(r[health_condition::nothing_issued].cause == reason::ring_full);
  CHECK(r.producers_may_stop());
  for (published const& p : sent) {
    w.end(1).finish(p.sequence);
    w.settle();
  }
  CHECK(w.worker->counters()[tally::hints] == 2);
  require_sound(w);
}

TEST_CASE("a watch tells a worker that hangs from one that waits") {
  std::atomic<u64> time{0};
  worked<> w{{}};
  stall_watch<set_clock> watch{w.channels[0]->view(), {&time}};
  auto const stalled_after = [&](u64 ticks) {
    (void)watch.stalled(100);
    time += ticks;
    return watch.stalled(100);
  };
  CHECK_FALSE(stalled_after(1000));  // it does not run
  REQUIRE(w.worker->start());
  w.memory.held = true;  // the link hangs, and the worker waits for it
  published const sent = w.end().publish(layer_id{0}, std::vector<routed_id>{1});
  REQUIRE(eventually([&] { return w.memory.starts == 1; }));
  u32* const beats = w.channels[0]->view().at(channel_view::heartbeat);
  auto const has_stepped = [&] {
    u32 const before = host_words::load(beats);
    return eventually([&] { return host_words::load(beats) != before; });
  };
  for (u32 i = 0; i < 3; ++i) {
    (void)watch.stalled(100);
    time += 1000;
    REQUIRE(has_stepped());
    CHECK_FALSE(watch.stalled(100));
  }
  // the worker itself hangs, in the middle of what it does
  std::atomic<bool> inside{false};
  std::atomic<bool> hangs{true};
  std::thread other([&] {
    (void)w.worker->with([&](auto&) {
      inside = true;
      while (hangs) {
        std::this_thread::yield();
      }
    });
  });
  REQUIRE(eventually([&] { return inside.load(); }));
  CHECK_FALSE(stalled_after(99));
  time += 1;
  CHECK(watch.stalled(100));
  CHECK(w.worker->state() == worker_state::running);  // so it says
  hangs = false;
  other.join();
  REQUIRE(has_stepped());
  CHECK_FALSE(watch.stalled(100));
  w.memory.held = false;
  CHECK(w.end().wait(sent.sequence, u64_max));
  w.worker->stop();
  CHECK_FALSE(stalled_after(1000));
}

TEST_CASE("scratch that others still fill is waited for") {
  by_hand w{{}};
  REQUIRE(w.worker->start_by_hand());
  w.memory.held = true;
  std::vector<routed_id> wide{0, 1, 2, 3, 4, 5};
  REQUIRE(w.cache().step(layer_id{0}, wide).kind == plan_kind::overflow);
  (void)w.cache().start_wave(0);  // of a step that nobody leases
  REQUIRE(w.memory.starts == 2);
  graph_step const step{0, {10, 11, 12, 13, 14}};
  u32 const s = w.end().publish(layer_id{0}, step.ids).sequence;
  w.settle(4);
  CHECK_FALSE(answered(w, s));
  CHECK(w.memory.starts == 2);
  w.memory.held = false;
  w.settle();
  REQUIRE(answered(w, s));
  answer const a = w.end().answer_to(s);
  for (u32 i = 0; i < 5; ++i) {
    if (a.wave(i) == 0) {
      CHECK(w.memory.holds(0, a.slot(i), {layer_id{0}, expert_id{10 + i}}));
    }
  }
  w.end().finish(s);
  w.settle();
  CHECK(nothing_is_held(w));
  require_sound(w);
}

TEST_CASE("over a gated cache a demand is served, or refused for the gate's reason and served "
          "otherwise") {
  using gated = cache<hinted, byte_backend, observe::counting, gate::held_by<gate::holder::worker>>;
  for (bool threaded : {false, true}) {
    gate::authority groups{2};
    gate::references kept;
    REQUIRE(groups.publish(0, gate::holder::worker, kept));
    REQUIRE(groups.publish(1, gate::holder::worker, kept));
    channel memory{{16, 16}};
    channel_view const views[] = {memory.view()};
    byte_link link;
    signal::worker<gated> worker{views,
                                 {},
                                 small_model(2, 16, 2),
                                 budget::of_slots(4),
                                 tuning{},
                                 byte_backend{&link},
                                 observe::counting{},
                                 gate::held_by<gate::holder::worker>{groups}};
    device dev{memory.view(), link};
    REQUIRE((threaded ? worker.start() : worker.start_by_hand()));
    auto const settle = [&](auto&& until) {
      return eventually([&] {
        if (!threaded) {
          worker.step();
        }
        return until();
      });
    };
    graph_step const step{0, {1, 2}};
    u32 last = 0;
    auto const publish = [&](u32 layer = 0) {
      last = dev.end().publish(layer_id{layer}, step.ids).sequence;
      REQUIRE(settle([&] { return memory.view().answers().ready<host_words>(last); }));
      return dev.end().answer_to(last).why();
    };
    auto const finish = [&] {
      dev.end().finish(last);
      REQUIRE(settle([&] { return groups.look(0).active == 0; }));
    };
    REQUIRE(publish() == reason::none);
    dev.read(step, last);
    CHECK(dev.report().from_slots == 1);
    CHECK(dev.report().wrong == 0);

    // refused, and served from the source at once; the wait ends without one as well
    auto const is_refused = [&](reason why) {
      INFO(name_of(why));
      u64 const starts = link.starts;
      CHECK(publish() == why);
      CHECK(dev.end().answer_to(last).slot(0) == no_slot);
      mapped_source source;
      wait_result const got = dev.end().wait(last, u64_max, 0, source);
      CHECK(got);
      CHECK(got.by == served::source);
      CHECK(dev.end().wait(last, u64_max).why == why);
      published const hint = dev.end().hint(layer_id{0}, std::vector<routed_id>{9});
      REQUIRE(hint);
      REQUIRE(settle([&] { return static_cast<bool>(dev.end().wait_hint(hint.sequence, 0)); }));
      CHECK(link.starts == starts);
    };
    // closed while the first demand is still read
    u32 const first = last;
    auto t = groups.begin(0, gate::holder::host);
    REQUIRE(t);
    CHECK(t.prepare().why == reason::busy);
    is_refused(reason::gate_closed);
    CHECK(t.prepare().why == reason::busy);
    dev.read(step, first);  // its slots are its own until it has finished
    CHECK(dev.report().wrong == 0);
    finish();
    REQUIRE(t.prepare());
    REQUIRE(t.complete());
    is_refused(reason::no_authority);

    // it comes back under another epoch than that of the worker's table
    t = groups.begin(0, gate::holder::worker);
    REQUIRE(t.prepare());
    REQUIRE(t.complete());
    is_refused(reason::stale_epoch);
    REQUIRE(publish(1) == reason::none);  // another group is served all along

    REQUIRE(worker.pause());
    worker.cache().pools()[0].view().header().epoch = groups.look(0).epoch;
    REQUIRE(worker.resume());
    REQUIRE(publish() == reason::none);
    dev.read(step, last);
    CHECK(dev.report().wrong == 0);
    finish();
    worker.stop();
    CHECK(worker.counters()[tally::refused] == 3);
    total_counters const sum = worker.cache().observer().total();
    for (reason const why : {reason::gate_closed, reason::no_authority, reason::stale_epoch}) {
      CHECK(sum.hints_dropped[static_cast<u32>(why)].value == 1);
    }
    CHECK(worker.cache().audit());
    CHECK(check_laws(sum, worker.cache().slot_counts()));
  }
}

TEST_CASE("a worker that died goes on with what it owed, and so does another one") {
  by_hand w{{}};
  REQUIRE(w.worker->start());
  w.memory.held = true;
  u32 const s = w.end().publish(layer_id{0}, std::vector<routed_id>{1, 2}).sequence;
  REQUIRE(eventually([&] { return w.worker->counters()[tally::demands] == 1; }));
  REQUIRE(w.worker->die());
  CHECK(w.end().wait(s, 1000).why == reason::worker_down);
  w.memory.held = false;
  REQUIRE(w.worker->start());
  CHECK(w.end().wait(s, 1000));
  CHECK(w.worker->counters()[tally::demands] == 1);
  u32 const second = w.end().publish(layer_id{1}, std::vector<routed_id>{3}).sequence;
  CHECK(w.end().wait(second, 1000));
  w.end().finish(s);
  w.worker->stop();
  u64 const starts = w.memory.starts;

  // the same channel under a new worker: what was answered is not served again
  channel_view const views[] = {w.channels[0]->view()};
  CHECK_THROWS_AS((by_hand::worker_type{views,
                                        {},
                                        small_model(2, 16, 2),
                                        budget::of_slots(4),
                                        tuning{},
                                        byte_backend{&w.memory}}),
                  config_error);
  w.worker.reset();
  // as if it had gone between its answers and their acknowledgement
  host_words::store(w.channels[0]->view().demands().at(ring_view<demand_ring>::consumed), 0);
  by_hand::worker_type next{
      views, {}, small_model(2, 16, 2), budget::of_slots(4), tuning{}, byte_backend{&w.memory}};
  REQUIRE(next.start_by_hand());
  for (int i = 0; i < 20; ++i) {
    next.step();
  }
  CHECK(w.memory.starts == starts);
  CHECK(next.counters()[tally::repeated] == 2);
  CHECK(next.counters()[tally::demands] == 0);
  u32 const third = w.end().publish(layer_id{1}, std::vector<routed_id>{3}).sequence;
  for (int i = 0; i < 20; ++i) {
    next.step();
  }
  CHECK(w.end().wait(third, 1000));
  next.stop();
}

TEST_CASE("functions run on the owner's thread, or not at all") {
  by_hand w{{}};
  std::thread::id ran{};
  auto const note = [&](auto&) { ran = std::this_thread::get_id(); };
  CHECK(w.worker->with(note) == status{reason::worker_down});
  REQUIRE(w.worker->start());
  CHECK(w.worker->with(note));
  CHECK(ran != std::thread::id{});
  CHECK(ran != std::this_thread::get_id());
  REQUIRE(w.worker->pause());
  ran = {};
  CHECK(w.worker->with(note) == status{reason::worker_down});
  REQUIRE(w.worker->resume());
  CHECK(w.worker->resize(layer_id{0}, 3));
  CHECK(w.worker->resize(layer_id{7}, 3) == status{reason::unknown_layer});
  w.worker->stop();
  CHECK(ran == std::thread::id{});
  REQUIRE(w.worker->start_by_hand());
  CHECK(w.worker->with(note, 1'000'000) == status{reason::deadline});  // nobody steps
  w.worker->step();
  CHECK(ran == std::thread::id{});  // withdrawn
}

TEST_CASE("a running worker allocates nothing") {
  by_hand w{{.channels = 2, .slots = 3}};
  REQUIRE(w.worker->start_by_hand());
  w.memory.fail_every = 5;
  dice d{3};
  routed_id ids[6];
  for (u32 round = 0; round < 2; ++round) {
    unsigned long const before = warmset_test::n_allocations();
    for (u32 i = 0; i < 2000; ++i) {
      u32 const c = d.below(2);
      u32 const n = 1 + d.below(6);
      for (u32 j = 0; j < n; ++j) {
        ids[j] = static_cast<routed_id>(d.below(16));
      }
      array_view<routed_id const> const some{ids, n};
      (void)w.end(c).hint(layer_id{d.below(2)}, some);
      published const sent = w.end(c).try_publish(layer_id{d.below(2)}, some);
      u32 waves = 1;
      for (u32 wave = 0; sent && wave < waves; ++wave) {
        while (!w.channels[c]->view().answers().ready<host_words>(sent.sequence, wave)) {
          w.worker->step();
        }
        waves = max_of(waves, w.end(c).answer_to(sent.sequence).n_waves());
        w.end(c).wave_read(sent.sequence, wave);
      }
      w.end(c).finish(sent.sequence);
    }
    CHECK(warmset_test::n_allocations() == before);
  }
  w.settle();
  CHECK(w.worker->counters()[tally::retried] != 0);
  CHECK(nothing_is_held(w));
  require_sound(w);
}
