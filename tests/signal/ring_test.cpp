// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <thread>
#include <vector>

#include "device_model.hpp"

using namespace warmset;
using namespace warmset::signal;
using namespace warmset_test;

namespace {

template <class Kind>
struct ring {
  explicit ring(u32 capacity, u32 max_ids = 8, u32 first = 1) {
    ring_shape const shape{capacity, max_ids};
    words.assign(shape.words(), 0xAAAA'AAAA);
    view = {words.data(), shape};
    format_ring(view, first);
  }
  std::vector<u32> words;
  ring_view<Kind> view;
};

message sized(u32 layer, u32 n) {
  return {layer, 0, 0, n};
}

}  // namespace

TEST_CASE("numbers of messages wrap") {
  for (u32 first : {1u, 0u, u32_max, u32_max - 2, 0x7FFF'FFFFu}) {
    ring<demand_ring> r{4, 8, first};
    producer<demand_ring> out{r.view};
    consumer<demand_ring> in{r.view};
    routed_id ids[8];
    message m;
    CHECK(in.take(m, ids) == pull::empty);
    for (u32 i = 0; i < 20; ++i) {
      routed_id const sent[] = {static_cast<routed_id>(i), -1};
      REQUIRE(out.next() == first + i);
      REQUIRE(out(sized(i, 2), sent) == push::published);
      REQUIRE(in.has_message());
      REQUIRE(in.take(m, ids) == pull::taken);
      CHECK(m.layer == i);
      CHECK(m.n == 2);
      CHECK(ids[0] == static_cast<routed_id>(i));
      CHECK(ids[1] == -1);
      CHECK(in.take(m, ids) == pull::empty);  // each once
      in.acknowledge(first + i);
    }
  }
}

TEST_CASE("a full ring of demands takes nothing more until it is acknowledged") {
  ring<demand_ring> r{4, 8, u32_max - 1};
  producer<demand_ring> out{r.view};
  consumer<demand_ring> in{r.view};
  routed_id ids[8] = {7};
  message m;
  for (u32 i = 0; i < 4; ++i) {
    REQUIRE(out(sized(i, 1), ids) == push::published);
  }
  CHECK(out(sized(4, 1), ids) == push::full);
  CHECK(in.take(m, ids) == pull::taken);
  CHECK(out(sized(4, 1), ids) == push::full);  // taken is not acknowledged
  in.acknowledge(u32_max - 1);
  CHECK(out(sized(4, 1), ids) == push::published);
  CHECK(out(sized(5, 1), ids) == push::full);
  for (u32 i = 1; i < 5; ++i) {
    REQUIRE(in.take(m, ids) == pull::taken);
    CHECK(m.layer == i);
  }
  CHECK(host_words::load(r.view.at(ring_view<demand_ring>::dropped)) == 0);
}

TEST_CASE("the ring of hints is two deep and drops the newest") {
  ring<hint_ring> r{hint_ring::depth};
  producer<hint_ring> out{r.view};
  consumer<hint_ring> in{r.view};
  routed_id ids[8] = {};
  message m;
  CHECK(out(sized(0, 3), ids) == push::published);
  CHECK(out(sized(1, 3), ids) == push::published);
  CHECK(out(sized(2, 3), ids) == push::full);
  CHECK(out(sized(3, 5), ids) == push::full);
  CHECK(host_words::load(r.view.at(ring_view<hint_ring>::dropped)) == 2);
  CHECK(host_words::load(r.view.at(ring_view<hint_ring>::dropped_ids)) == 8);
  CHECK(in.take(m, ids) == pull::taken);
  CHECK(m.layer == 0);  // the oldest is kept
  in.acknowledge(1);
  CHECK(out(sized(4, 1), ids) == push::published);
  CHECK(in.take(m, ids) == pull::taken);
  CHECK(m.layer == 1);
  CHECK(in.take(m, ids) == pull::taken);
  CHECK(m.layer == 4);
}

TEST_CASE("a message that is published again is published once") {
  ring<demand_ring> r{4, 8, u32_max};
  producer<demand_ring> out{r.view};
  consumer<demand_ring> in{r.view};
  routed_id ids[8] = {3};
  message m;
  REQUIRE(out.again(u32_max, sized(1, 1), ids) == push::published);
  CHECK(out.again(u32_max, sized(1, 1), ids) == push::replayed);  // before it is taken
  REQUIRE(in.take(m, ids) == pull::taken);
  CHECK(out.again(u32_max, sized(2, 1), ids) == push::replayed);  // after
  in.acknowledge(u32_max);
  CHECK(out.again(u32_max, sized(2, 1), ids) == push::replayed);
  CHECK(in.take(m, ids) == pull::empty);
  CHECK(out(sized(5, 1), ids) == push::published);
  CHECK(in.take(m, ids) == pull::taken);
  CHECK(m.layer == 5);
}

TEST_CASE("ends that are made anew go on where the old ones stood") {
  ring<demand_ring> r{4};
  routed_id ids[8] = {3};
  message m;
  {
    producer<demand_ring> out{r.view};
    consumer<demand_ring> in{r.view};
    for (u32 i = 0; i < 3; ++i) {
      REQUIRE(out(sized(i, 1), ids) == push::published);
      REQUIRE(in.take(m, ids) == pull::taken);
    }
    in.acknowledge(2);
  }
  producer<demand_ring> out{r.view};
  consumer<demand_ring> in{r.view};
  CHECK(out.next() == 4);
  REQUIRE(in.take(m, ids) == pull::taken);  // taken and not acknowledged: taken again
  CHECK(m.layer == 2);
  CHECK(in.take(m, ids) == pull::empty);
}

TEST_CASE("a ring has one producer and one consumer") {
  ring<demand_ring> r{4};
  consumer<demand_ring> in{r.view};
  CHECK_THROWS_AS(consumer<demand_ring>{r.view}, config_error);
  consumer<demand_ring> moved{std::move(in)};
  CHECK_THROWS_AS(consumer<demand_ring>{r.view}, config_error);
  producer<demand_ring> out{r.view};
  CHECK_THROWS_AS(producer<demand_ring>{r.view}, config_error);
}

TEST_CASE("shapes and memory that hold no ring are refused") {
  CHECK_THROWS_AS((ring<demand_ring>{3}), config_error);
  CHECK_THROWS_AS((ring<demand_ring>{1}), config_error);
  CHECK_THROWS_AS((ring<demand_ring>{65'536}), config_error);
  CHECK_THROWS_AS((ring<demand_ring>{4, 0}), config_error);
  ring<demand_ring> r{4};
  CHECK_THROWS_AS(consumer<hint_ring>(ring_view<hint_ring>{r.words.data(), r.view.shape}),
                  config_error);
  CHECK_THROWS_AS(consumer<demand_ring>(ring_view<demand_ring>{r.words.data(), {4, 7}}),
                  config_error);
  CHECK_NOTHROW(consumer<demand_ring>(r.view));
}

TEST_CASE("channels that no block of words holds are refused before anything is written") {
  for (channel_shape const s :
       {channel_shape{32'768, 43'675}, channel_shape{32'768, 65'535}, channel_shape{2, u32_max},
        channel_shape{0, 4}, channel_shape{65'536, 4}, channel_shape{2, 0}}) {
    INFO(s.demands << " demands of " << s.max_ids << " ids");
    CHECK_THROWS_AS(channel(s), config_error);
    alignas(64) u32 words[16] = {};
    CHECK_THROWS_AS(format_channel({words, s}), config_error);
  }
  CHECK(channel_shape{32'768, 43'674}.words() <= u32_max);
  CHECK(channel_shape{32'768, 43'675}.bytes() == 4 * 4'295'054'848);
}

TEST_CASE("a demand that is published again is refused as any other") {
  channel c({4, 3});
  device_end d(c.view());
  consumer<demand_ring> in(c.view().demands());
  routed_id const many[] = {1, 2, 3, 4};
  array_view<routed_id const> const fits{many, 3};
  u32 const next = d.next_demand();
  CHECK(d.publish_again(next, layer_id{0}, fits).why == reason::worker_down);
  host_words::store(c.view().at(channel_view::state), static_cast<u32>(worker_state::running));
  CHECK(d.try_publish(layer_id{0}, many).why == reason::limited);
  CHECK(d.publish_again(next, layer_id{0}, many).why == reason::limited);
  message m;
  routed_id got[3];
  CHECK(in.take(m, got) == pull::empty);
  CHECK(d.publish_again(next, layer_id{0}, fits));
  CHECK(d.publish_again(next, layer_id{0}, fits));
  REQUIRE(in.take(m, got) == pull::taken);
  CHECK(m.n == 3);
  CHECK(in.take(m, got) == pull::empty);
  host_words::store(c.view().at(channel_view::state), static_cast<u32>(worker_state::stopped));
  CHECK(d.try_publish(layer_id{0}, fits).why == reason::worker_down);
  CHECK(d.publish_again(d.next_demand(), layer_id{0}, fits).why == reason::worker_down);
}

TEST_CASE("a message of which any word is not its own is not taken") {
  routed_id const sent[] = {1, 2, 3};
  using view = ring_view<demand_ring>;
  for (u32 w = view::check; w < view::ids + 3; ++w) {
    for (u32 bit = 0; bit < 32; ++bit) {
      ring<demand_ring> r{4};
      producer<demand_ring> out{r.view};
      consumer<demand_ring> in{r.view};
      REQUIRE(out({5, 1, 7, 3}, sent) == push::published);
      r.view.cell(1)[w] ^= 1u << bit;
      message m;
      routed_id ids[8];
      REQUIRE(in.take(m, ids) == pull::torn);
      r.view.cell(1)[w] ^= 1u << bit;
      REQUIRE(in.take(m, ids) == pull::taken);  // it is still there
    }
  }
}

TEST_CASE("a producer that does not wait is found out") {
  ring<demand_ring> r{4};
  consumer<demand_ring> in{r.view};
  producer_state careless{1, 1000};  // believes that all has been consumed
  routed_id ids[8] = {3};
  for (u32 i = 1; i < 6; ++i) {
    REQUIRE(push_as<host_words>(r.view, careless, i, sized(i, 1), ids) == push::published);
  }
  message m;
  CHECK(in.take(m, ids) == pull::lost);
}

TEST_CASE("the layout is words without padding, and sides share no line") {
  using view = ring_view<demand_ring>;
  STATIC_REQUIRE(std::is_standard_layout_v<channel_view>);
  STATIC_REQUIRE(view::published / words_per_line != view::consumed / words_per_line);
  STATIC_REQUIRE(view::published / words_per_line != view::producer_taken / words_per_line);
  STATIC_REQUIRE(view::consumed / words_per_line != view::producer_taken / words_per_line);
  STATIC_REQUIRE(channel_view::overdue / words_per_line != channel_view::finished / words_per_line);
  for (u32 max_ids : {1u, 8u, 10u, 11u, 64u, 300u}) {
    channel_shape const s{8, max_ids};
    CHECK(s.demand().stride() % words_per_line == 0);
    CHECK(s.answers().stride() % words_per_line == 0);
    CHECK(s.words() % words_per_line == 0);
    channel c{s};
    u32* const begin = c.view().base;
    CHECK(static_cast<u64>(c.view().answers().cell(0) - begin) + s.answers().words() == s.words());
    CHECK(reinterpret_cast<std::uintptr_t>(begin) % 64 == 0);
  }
}

// ---- threads

TEST_CASE("messages of the demand ring: none lost, none twice, none torn") {
  constexpr u32 capacity = 64;
  ring<demand_ring> r{capacity, 8, 0u - 1000u};  // wraps early
  consumer<demand_ring> in{r.view};
  std::atomic<u64> messages{u64_max};
  std::atomic<bool> failed{false};
  std::thread sender([&] {
    producer<demand_ring> out{r.view};
    stress_end const end;
    routed_id ids[8];
    u64 i = 0;
    for (; !end.reached(i) && !failed; ++i) {
      u32 const n = static_cast<u32>(i % 9);
      for (u32 j = 0; j < n; ++j) {
        ids[j] = static_cast<routed_id>(i * 8 + j);
      }
      backoff pause;
      while (out({static_cast<u32>(i), n, static_cast<u32>(i >> 8), n}, ids) != push::published) {
        if (failed) {
          return;
        }
        pause.once();
      }
    }
    messages = i;
  });
  u64 wrong = 0;
  routed_id ids[8];
  message m;
  u64 taken = 0;
  for (u64 i = 0;; ++i, ++taken) {
    backoff pause;
    pull got = pull::empty;
    while (i < messages && (got = in.take(m, ids)) == pull::empty) {
      pause.once();
    }
    if (got == pull::empty) {
      break;  // all that were sent
    }
    bool fine = got == pull::taken && m.layer == static_cast<u32>(i) && m.n == i % 9 &&
                m.tag == m.n && m.after == static_cast<u32>(i >> 8);
    for (u32 j = 0; fine && j < m.n; ++j) {
      fine = ids[j] == static_cast<routed_id>(i * 8 + j);
    }
    wrong += fine ? 0 : 1;
    if (got != pull::taken) {
      failed = true;
      break;
    }
    if (i % 16 == 15 || i % 7 == 0) {
      in.acknowledge(in.next() - 1);  // several at once
    }
  }
  in.acknowledge(in.next() - 1);
  sender.join();
  CHECK(wrong == 0);
  CHECK(taken == messages);
  CHECK(in.next() == 0u - 1000u + static_cast<u32>(taken));
  CHECK(in.take(m, ids) == pull::empty);
}

TEST_CASE("messages of the hint ring: taken and dropped add up, in order, none torn") {
  std::atomic<u64> messages{0};
  ring<hint_ring> r{hint_ring::depth};
  consumer<hint_ring> in{r.view};
  std::atomic<bool> ended{false};
  std::thread sender([&] {
    producer<hint_ring> out{r.view};
    stress_end const end;
    routed_id ids[8];
    u64 i = 0;
    while (!end.reached(i)) {
      ++i;
      for (u32 j = 0; j < 4; ++j) {
        ids[j] = static_cast<routed_id>(i + j);
      }
      (void)out({static_cast<u32>(i), 0, 0, 4}, ids);
      if (i % 64 == 0) {
        std::this_thread::yield();
      }
    }
    messages = i;
    ended = true;
  });
  u64 taken = 0;
  u64 wrong = 0;
  u32 last = 0;
  message m;
  routed_id ids[8];
  for (;;) {
    bool const was_ended = ended;
    pull const got = in.take(m, ids);
    if (got == pull::taken) {
      wrong +=
          m.layer != last && reached(m.layer, last) && ids[3] == static_cast<routed_id>(m.layer + 3)
              ? 0
              : 1;
      last = m.layer;
      in.acknowledge(in.next() - 1);
      ++taken;
    } else if (got != pull::empty) {
      ++wrong;
    } else if (was_ended) {
      break;
    }
  }
  sender.join();
  CHECK(wrong == 0);
  CHECK(taken != 0);
  u32 const dropped = host_words::load(r.view.at(ring_view<hint_ring>::dropped));
  CHECK(static_cast<u32>(taken) + dropped == static_cast<u32>(messages));
}
