// SPDX-License-Identifier: Apache-2.0

#include <string>

#include <catch2/catch_test_macros.hpp>

#include <warmset/trace/halve.hpp>

#include "support.hpp"

namespace trace_test {
namespace {

using trace::halve;
using trace::halves;
using trace::recording;

trace::block steps(u32 sequence, u32 position, phase p, u32 n, u32 tokens = 1) {
  trace::block b;
  b.sequence = sequence;
  b.first_position = position;
  b.phase = p;
  b.n_rows = 2;
  b.n_steps = n;
  b.n_tokens = tokens;
  b.k = 1;
  return b;
}

/// Blocks whose ids count up, so that each event can be told from all others.
recording counting_up(std::vector<trace::block> blocks) {
  trace::contents c;
  c.geometry = geometry::uniform(2, 1000, 1, 100);
  u16 next = 0;
  for (trace::block const& b : blocks) {
    for (u64 i = 0; i < b.n_ids(); ++i) {
      c.ids.push_back(next++);
    }
    for (u32 i = 0; i < b.n_inputs(); ++i) {
      c.tokens.push_back(100 * b.sequence + b.first_position + i);
    }
  }
  c.blocks = std::move(blocks);
  return recording(std::move(c));
}

std::vector<u16> all_ids(recording const& r) {
  return {r.ids().begin(), r.ids().end()};
}

/// Tokens name sequence and position; so every event can tell whether it has its own.
bool tokens_stayed(recording const& r) {
  bool all = r.n_events() != 0;
  for_each_event(r, [&](trace::event const& e) {
    all = all && e.tokens.size() == e.n_tokens;
    for (u32 i = 0; all && i < e.n_tokens; ++i) {
      all = e.tokens[i] == 100 * e.sequence + e.position + i;
    }
  });
  return all;
}

std::vector<u32> sequences(recording const& r) {
  std::vector<u32> found;
  for (trace::block const& b : r.blocks()) {
    found.push_back(b.sequence);
  }
  return found;
}

}  // namespace

TEST_CASE("several sequences go to the halves in turn") {
  recording const r = counting_up({steps(0, 0, phase::prefill, 1, 3), steps(0, 3, phase::decode, 2),
                                   steps(1, 0, phase::decode, 2), steps(2, 0, phase::decode, 1),
                                   steps(3, 0, phase::decode, 1)});
  halves const h = halve(r, {});
  CHECK(h.by_sequence);
  CHECK(sequences(h.first) == std::vector<u32>{0, 0, 2});
  CHECK(sequences(h.second) == std::vector<u32>{1, 3});
  CHECK(h.first.n_events() + h.second.n_events() == r.n_events());
  CHECK(all_ids(h.second) == std::vector<u16>{10, 11, 12, 13, 16, 17});
  CHECK(tokens_stayed(h.first));
  CHECK(tokens_stayed(h.second));
}

TEST_CASE("the turn is that of the selected sequences, whatever their numbers") {
  recording const r = counting_up({steps(0, 0, phase::decode, 1), steps(2, 0, phase::decode, 1),
                                   steps(4, 0, phase::decode, 1), steps(5, 0, phase::decode, 1)});
  halves const h = halve(r, trace::selection::parse("even"));
  CHECK(sequences(h.first) == std::vector<u32>{0, 4});
  CHECK(sequences(h.second) == std::vector<u32>{2});
}

TEST_CASE("a single sequence is halved in the middle of its decoded tokens") {
  recording const r =
      counting_up({steps(7, 0, phase::prefill, 1, 4), steps(7, 4, phase::decode, 5)});
  halves const h = halve(r, {});
  CHECK(!h.by_sequence);
  REQUIRE(h.first.blocks().size() == 2);
  CHECK(h.first.blocks()[1].n_steps == 2);
  REQUIRE(h.second.blocks().size() == 1);
  CHECK(h.second.blocks()[0].first_position == 6);
  CHECK(h.second.blocks()[0].n_steps == 3);
  CHECK(all_ids(h.second) == std::vector<u16>{12, 13, 14, 15, 16, 17});
  CHECK(tokens_stayed(h.first));
  CHECK(tokens_stayed(h.second));
}

TEST_CASE("a prompt alone is halved in its middle, by the step that starts there") {
  recording const r = counting_up({steps(0, 0, phase::prefill, 3, 2)});
  halves const h = halve(r, {});
  CHECK(h.first.blocks()[0].n_steps == 2);  // positions 0-1 and 2-3; the middle is 3
  CHECK(h.second.blocks()[0].first_position == 4);
  CHECK(tokens_stayed(h.first));
  CHECK(tokens_stayed(h.second));
}

TEST_CASE("what cannot be halved is refused") {
  recording const one = counting_up({steps(0, 0, phase::decode, 1)});
  CHECK_THROWS_AS(halve(one, {}), config_error);
  trace::selection prefill;
  prefill.decode = false;
  CHECK_THROWS_AS(halve(one, prefill), config_error);
}

}  // namespace trace_test
