// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <random>

#include <warmset/trace/builder.hpp>

using namespace trace_test;

namespace {

constexpr u32 token_at(u32 sequence, u32 position) {
  return 1000 * (sequence + 1) + position;
}

/// Two sequences of six prompt tokens and four decode tokens, three layers, 8 experts, k 2.
trace::recording two_sequences() {
  trace::builder b;
  b.parts.geometry = geometry::uniform(3, 8, 2, 10);
  b.parts.labels = {{0, "a"}, {5, "b"}};
  u16 id = 0;
  for (u32 sequence : {0u, 5u}) {
    for (u32 position = 0; position < 10; ++position) {
      for (u32 row = 0; row < 3; ++row) {
        std::vector<u16> const ids = {id, static_cast<u16>((id + 1) % 8)};
        u32 const token = token_at(sequence, position);
        b.add(sequence, position, position < 6 ? phase::prefill : phase::decode, row, 1, 2, ids,
              {&token, 1});
        id = static_cast<u16>((id + 3) % 8);
      }
    }
  }
  b.parts.residency.assign(120, trace::recorded_access::miss);
  return trace::recording(b.take());
}

std::string fault_of(trace::contents c) {
  std::optional<trace::fault> const f = trace::recording::place(c);
  return f ? f->what : "";
}

}  // namespace

TEST_CASE("trace: events come by block, step, layer, and by index") {
  trace::recording const r = two_sequences();
  REQUIRE(r.blocks().size() == 4);
  CHECK(r.n_events() == 60);
  CHECK(r.n_token_rows() == 60);
  CHECK(r.n_inputs() == 20);
  CHECK(r.tokens().size() == 20);
  u64 n = 0;
  trace::for_each_event(r, [&](trace::event const& e) {
    CHECK(e.index == n);
    trace::event const same = r[n];
    CHECK(same.ids.data() == e.ids.data());
    CHECK(same.position == e.position);
    CHECK(same.sequence == e.sequence);
    CHECK(same.row == e.row);
    REQUIRE(e.tokens.size() == 1);
    CHECK(e.tokens[0] == token_at(e.sequence, e.position));
    CHECK(same.tokens.data() == e.tokens.data());
    CHECK(e.position == n / 3 % 10);
    CHECK(e.row == n % 3);
    CHECK(e.layer.value == e.row);
    CHECK((e.phase == phase::prefill) == (e.position < 6));
    CHECK(ids_of(e)[0] == n * 3 % 8);
    ++n;
  });
  CHECK(n == 60);
}

TEST_CASE("trace: selections by sequence and phase") {
  trace::recording const r = two_sequences();
  auto count = [&](trace::selection const& s) {
    u64 n = 0;
    trace::for_each_event(r, s, [&](trace::event const&) { ++n; });
    return n;
  };
  CHECK(count(trace::selection::parse("all")) == 60);
  CHECK(count(trace::selection::parse("even")) == 30);
  CHECK(count(trace::selection::parse("odd")) == 30);
  CHECK(count(trace::selection::parse("5")) == 30);
  CHECK(count(trace::selection::parse("0-5")) == 60);
  CHECK(count(trace::selection::parse("1-4")) == 0);
  trace::selection decode = trace::selection::parse("odd");
  decode.prefill = false;
  CHECK(count(decode) == 12);
  for (char const* wrong : {"", "evens", "5-1", "-3", "3-", "4294967296", "1-2-3", " 1"}) {
    INFO(wrong);
    CHECK_THROWS_AS(trace::selection::parse(wrong), config_error);
  }
  trace::recording const part = trace::select(r, decode);
  CHECK(part.n_events() == 12);
  CHECK(part.label(5) == "b");
  CHECK(part.label(0).empty());
  CHECK(ids_of(part[0]) == ids_of(r[48]));
  CHECK(part.residency().size() == 24);
  REQUIRE(part.tokens().size() == 4);
  CHECK(part.tokens()[3] == token_at(5, 9));
  CHECK(part[0].tokens[0] == token_at(5, 6));
  CHECK(trace::select(r, trace::selection::parse("1-4")).n_events() == 0);
}

TEST_CASE("trace: rebatch joins steps into micro-batches and keeps every token") {
  trace::recording const r = two_sequences();
  trace::recording const wide = trace::rebatch(r, phase::prefill, 4);
  // 4 + 2 prompt tokens, then decode as it was.
  REQUIRE(wide.blocks().size() == 6);
  CHECK(wide.blocks()[0].n_tokens == 4);
  CHECK(wide.blocks()[1].n_tokens == 2);
  CHECK(wide.blocks()[1].first_position == 4);
  CHECK(wide.blocks()[2].n_tokens == 1);
  CHECK(wide.residency().empty());
  CHECK(wide.ids().size() == r.ids().size());
  trace::event const e = wide[1];  // layer row 1 of tokens 0 to 3
  for (u32 token = 0; token < 4; ++token) {
    CHECK(e.ids[2 * token] == r[token * 3 + 1].ids[0]);
    CHECK(e.ids[2 * token + 1] == r[token * 3 + 1].ids[1]);
  }
  CHECK(wide.tokens().size() == r.tokens().size());
  trace::for_each_event(wide, [](trace::event const& event) {
    REQUIRE(event.tokens.size() == event.n_tokens);
    for (u32 i = 0; i < event.n_tokens; ++i) {
      CHECK(event.tokens[i] == token_at(event.sequence, event.position + i));
    }
  });
  CHECK(trace::rebatch(r, phase::prefill, 1000).blocks()[0].n_tokens == 6);
  CHECK_THROWS_AS(trace::rebatch(r, phase::prefill, 0), config_error);
}

TEST_CASE("trace: the builder splits an unfinished step off") {
  trace::builder b;
  b.parts.geometry = geometry::uniform(3, 8, 1, 10);
  u16 const id = 1;
  auto add = [&](u32 position, u32 row) {
    u32 const token = token_at(0, position);
    b.add(0, position, phase::decode, row, 1, 1, {&id, 1}, {&token, 1});
  };
  for (u32 row : {0u, 1u, 2u}) {
    add(0, row);
  }
  for (u32 row : {0u, 1u}) {
    add(1, row);
  }
  add(7, 2);
  trace::recording const r{b.take()};
  REQUIRE(r.blocks().size() == 3);
  CHECK(r.blocks()[1].n_rows == 2);
  CHECK(r.blocks()[1].first_position == 1);
  CHECK(r.blocks()[2].first_row == 2);
  CHECK(r.n_events() == 6);
  REQUIRE(r.tokens().size() == 3);
  trace::for_each_event(
      r, [](trace::event const& e) { CHECK(e.tokens[0] == token_at(0, e.position)); });
}

TEST_CASE("trace: broken contents are refused with a sentence") {
  trace::contents good;
  good.geometry =
      geometry({{layer_id{0}, 8, 2, {1}}, {layer_id{1}, 4, 2, {1}}, {layer_id{2}, 4, 3, {1}}});
  trace::block b;
  b.n_rows = 2;
  b.n_steps = 1;
  b.k = 2;
  good.blocks = {b};
  good.ids = {7, 6, 3, 2};
  CHECK(fault_of(good).empty());
  auto broken = [&](auto change) {
    trace::contents c = good;
    change(c);
    return fault_of(c);
  };
  using C = trace::contents;
  CHECK(broken([](C& c) { c.ids[2] = 4; }) == "expert 4 of a layer with 4 experts");
  CHECK(broken([](C& c) { c.ids[1] = 7; }) == "expert 7 occurs twice in the row of one token");
  CHECK(broken([](C& c) { c.ids[1] = trace::padding; }).empty());
  CHECK(broken([](C& c) { c.ids.assign(4, trace::padding); }).empty());
  CHECK(broken([](C& c) { c.ids.push_back(1); }) == "5 ids, but the blocks hold 4");
  CHECK(broken([](C& c) { c.ids.pop_back(); }).find("ids left") != std::string::npos);
  CHECK(broken([](C& c) { c.blocks[0].k = 1; }).find("k is 1") != std::string::npos);
  CHECK(broken([](C& c) { c.blocks[0].n_rows = 3; }).find("uses 3") != std::string::npos);
  CHECK(broken([](C& c) { c.blocks[0].n_rows = 0; }).find("none may be 0") != std::string::npos);
  CHECK(broken([](C& c) { c.blocks[0].first_row = 3; }).find("rows 3 + 2 of 3") !=
        std::string::npos);
  CHECK(broken([](C& c) { c.blocks[0].n_steps = u32_max; }).find("ids left") != std::string::npos);
  CHECK(broken([](C& c) {
          c.blocks[0].n_steps = u32_max;
          c.blocks[0].n_tokens = u32_max;
        }).find("ids left") != std::string::npos);
  CHECK(broken([](C& c) {
          c.blocks[0].n_steps = 2;
          c.blocks[0].first_position = u32_max;
          c.ids.insert(c.ids.end(), {0, 1, 0, 1});
        }).find("do not fit") != std::string::npos);
  CHECK(broken([](C& c) { c.blocks[0].phase = static_cast<phase>(9); }).find("phase 9") !=
        std::string::npos);
  CHECK(broken([](C& c) { c.residency.resize(3); }).find("residency") != std::string::npos);
  CHECK(broken([](C& c) { c.weights.assign(5, 0.f); }).find("weights") != std::string::npos);
  CHECK(broken([](C& c) { c.tokens = {5}; }).empty());
  CHECK(broken([](C& c) { c.tokens = {trace::token_bound - 1}; }).empty());
  CHECK(broken([](C& c) { c.tokens = {5, 6}; }) == "2 input tokens, but the blocks have 1");
  CHECK(broken([](C& c) { c.tokens = {u32_max}; }) == "input token 4294967295 is not below 2^31");
  CHECK(broken([](C& c) { c.lookahead_width = 1; }).find("look-ahead") != std::string::npos);
  CHECK(broken([](C& c) {
          c.lookahead_width = 1;
          c.lookahead = {7, 4};
        }) == "expert 4 of a layer with 4 experts");
  CHECK(broken([](C& c) { c.labels = {{1, "a"}, {1, "b"}}; }).find("labels") != std::string::npos);
  CHECK_THROWS_AS(trace::recording(
                      trace::contents{{}, false, "", "", {b}, {1, 2, 3, 4}, {}, 0, {}, {}, {}, {}}),
                  config_error);
}

TEST_CASE("trace: the word-wise check of rows says what the plain check says") {
  std::mt19937 random(7);
  for (u32 k : {1u, 2u, 3u, 4u, 6u, 8u, 12u}) {
    for (u32 n_experts : {12u, 64u, 32768u, 40000u, 65535u}) {
      for (int round = 0; round < 300; ++round) {
        u64 const rows = round % 3 == 0 ? 300 : 3;
        std::vector<u16> ids;
        bool bad = false;
        for (u64 row = 0; row < rows; ++row) {
          std::vector<u16> seen;
          for (u32 rank = 0; rank < k; ++rank) {
            u16 id = 0;
            do {
              id = static_cast<u16>(random() % n_experts);
            } while (std::find(seen.begin(), seen.end(), id) != seen.end());
            seen.push_back(id);
          }
          ids.insert(ids.end(), seen.begin(), seen.end());
        }
        std::size_t const at = random() % ids.size();
        switch (round % 4) {
        case 0:
          break;
        case 1:
          ids[at] = trace::padding;
          break;
        case 2:
          ids[at] = static_cast<u16>(n_experts + random() % (65536 - n_experts));
          bad = ids[at] != trace::padding;
          break;
        default:
          bad = k > 1;
          ids[at] = ids[at / k * k + (at % k + 1) % k];
        }
        CHECK(trace::detail::check_rows(ids.data(), rows, k, n_experts, 0, trace::fault::list::id)
                  .has_value() == bad);
        if (bad) {
          CHECK_FALSE(trace::detail::rows_are_plain(ids.data(), rows, k, n_experts));
        }
      }
    }
  }
}
