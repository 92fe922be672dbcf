// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <cmath>

using namespace trace_test;

namespace {

std::string u32s(std::initializer_list<u32> values) {
  std::string s;
  for (u32 v : values) {
    for (int i = 0; i < 4; ++i) {
      s += static_cast<char>(v >> (8 * i));
    }
  }
  return s;
}

std::string u16s(std::initializer_list<u16> values) {
  std::string s;
  for (u16 v : values) {
    s += static_cast<char>(v & 0xFF);
    s += static_cast<char>(v >> 8);
  }
  return s;
}

// Two layers, 8 experts, k 2; two sequences of 1 and 2 rows.
std::string file(std::initializer_list<u32> counts, std::initializer_list<u32> lengths,
                 std::initializer_list<u16> ids) {
  return "RTB1" + u32s(counts) + u32s(lengths) + u16s(ids);
}
std::string const good = file({2, 8, 2, 2, 3}, {1, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 1, 0, 3, 2});

trace::recording read_text(std::string const& s) {
  return trace::read_rtb1(trace::bytes_of(s));
}

}  // namespace

TEST_CASE("rtb1: sequences become decode blocks, bytes are assumed") {
  trace::recording const r = read_text(good);
  CHECK(r.geometry() == geometry::uniform(2, 8, 2, 13'219'200));
  CHECK(r.expert_bytes_assumed());
  CHECK(r.model() == "gpt-oss-20b");
  REQUIRE(r.blocks().size() == 2);
  CHECK(r.blocks()[1].n_steps == 2);
  CHECK(r.blocks()[1].phase == phase::decode);
  CHECK(r.n_events() == 6);
  CHECK(ids_of(r[2]) == std::vector<u16>{4, 5});
  CHECK(r[5].sequence == 1);
  CHECK(r[5].position == 1);
  CHECK(r[5].row == 1);

  trace::rtb1_options options;
  options.expert_bytes = 7;
  options.model = "other";
  std::string const halves = u16s({0x3C00, 0x3800, 0x0001, 0x0400, 0x8000, 0x3555, 0x7BFF, 0x3800,
                                   0x3800, 0x3800, 0x3800, 0xC000});
  options.weights = trace::bytes_of(halves);
  trace::recording const w = trace::read_rtb1(trace::bytes_of(good), options);
  CHECK(w.geometry().layers()[0].expert_bytes() == 7);
  CHECK(w.weights()[0] == 1.0f);
  CHECK(w.weights()[1] == 0.5f);
  CHECK(w.weights()[2] == std::ldexp(1.0f, -24));
  CHECK(w.weights()[3] == std::ldexp(1.0f, -14));
  CHECK(w.weights()[6] == 65504.0f);
  CHECK(w.weights()[11] == -2.0f);

  options.weights = options.weights.first(10);
  CHECK(format_error_of([&] {
          return trace::read_rtb1(trace::bytes_of(good), options);
        }).has_value());
}

TEST_CASE("rtb1: malformed inputs name byte, field and value") {
  u32 const most = 0xFFFF'FFFF;
  std::vector<malformed> const cases = {
      {"empty", "", 0, "empty"},
      {"two bytes", "RT", 0, "magic needs 4 bytes"},
      {"wrong magic", "RTB2" + good.substr(4), 0, "RTB1"},
      {"cut off in the counts", good.substr(0, 14), 12, "k needs 4 bytes"},
      {"no layers", file({0, 8, 2, 2, 3}, {1, 2}, {}), 4, "layers is 0"},
      {"huge layers", file({most, 8, 2, 2, 3}, {1, 2}, {}), 4, "layers is 4294967295"},
      {"huge experts", file({2, 65536, 2, 2, 3}, {1, 2}, {}), 8, "experts is 65536"},
      {"k above experts", file({2, 8, 9, 2, 3}, {1, 2}, {}), 12, "k is 9 of 8"},
      {"huge rows", file({65535, 65535, 65535, most, most}, {1, 2}, {}), 24, "need"},
      {"no sequences", file({2, 8, 2, 0, 3}, {}, {}), 16, "sequences is 0"},
      {"cut off in the ids", good.substr(0, good.size() - 1), 24, "need 32 bytes, but 31 follow"},
      {"bytes left over", good + "x", 24, "need 32 bytes, but 33 follow"},
      {"length beyond the rows",
       file({2, 8, 2, 2, 3}, {1, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 1, 0, 3, 2}), 28, "length 3 where 2"},
      {"length 0", file({2, 8, 2, 2, 3}, {0, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 1, 0, 3, 2}), 24,
       "length 0"},
      {"rows without sequence", file({2, 8, 2, 2, 3}, {1, 1}, {0, 1, 2, 3, 4, 5, 6, 7, 1, 0, 3, 2}),
       32, "2 rows of 3"},
      {"expert out of range", file({2, 8, 2, 2, 3}, {1, 2}, {0, 1, 2, 3, 4, 5, 6, 8, 1, 0, 3, 2}),
       46, "expert 8"},
      {"expert far out of range",
       file({2, 8, 2, 2, 3}, {1, 2}, {0, 1, 2, 3, 4, 5, 6, 0x8001, 1, 0, 3, 2}), 46,
       "expert 32769"},
      {"expert twice", file({2, 8, 2, 2, 3}, {1, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 1, 0, 3, 3}), 54,
       "twice"},
  };
  check_malformed(cases, trace::format_error::unit::byte, read_text);
}

TEST_CASE("rtb1: every prefix is refused, without a crash") {
  for (std::size_t n = 0; n < good.size(); ++n) {
    CHECK(format_error_of([&] { return read_text(good.substr(0, n)); }).has_value());
  }
}
