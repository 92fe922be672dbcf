// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

using namespace trace_test;

namespace {

std::string const header =
    R"({"format":"routing-jsonl-1","model":"tiny","layers":2,"experts":8,"top_k":2,"expert_bytes":100,"order":"x"})"
    "\n";

std::string const good = header + R"({"s":3,"d":"prose","p":0,"f":"p","l":0,"e":[1,2]})"
                                  "\n"
                                  R"({"s":3,"d":"prose","p":0,"f":"p","l":1,"e":[3,4],"a":[3,5,1]})"
                                  "\n"
                                  R"({"s":3,"d":"prose","p":1,"f":"d","l":0,"e":[2,1]})"
                                  "\n"
                                  R"({"s":3,"d":"prose","p":1,"f":"d","l":1,"e":[0,7],"a":[7,0,2]})"
                                  "\n"
                                  R"({"s":1,"d":"code","p":0,"f":"d","l":0,"e":[6,-1]})"
                                  "\n"
                                  R"({"s":1,"d":"code","p":0,"f":"d","l":1,"e":[5,6],"a":[6,5,4]})"
                                  "\n";

}  // namespace

TEST_CASE("tinymoe: blocks, labels, look-ahead and padding") {
  trace::recording const r = trace::read_tinymoe(good);
  CHECK(r.model() == "tiny");
  CHECK(r.geometry() == geometry::uniform(2, 8, 2, 100));
  CHECK_FALSE(r.expert_bytes_assumed());
  REQUIRE(r.blocks().size() == 3);
  CHECK(r.blocks()[0].phase == phase::prefill);
  CHECK(r.blocks()[1].phase == phase::decode);
  CHECK(r.blocks()[1].first_position == 1);
  CHECK(r.blocks()[2].sequence == 1);
  CHECK(r.n_events() == 6);
  CHECK(trace::count_lookups(r) == 11);
  CHECK(r.label(3) == "prose");
  CHECK(r.label(1) == "code");
  CHECK(r.label(2).empty());
  CHECK(r.lookahead_width() == 3);
  CHECK(ids_of(r[1]) == std::vector<u16>{3, 4});
  CHECK(r[1].lookahead[1] == 5);
  CHECK(r[0].lookahead[0] == trace::padding);
  CHECK(trace::routed(r[4].ids[1]) == -1);
}

TEST_CASE("tinymoe: order of members, blanks, CRLF and a missing last line feed do not matter") {
  std::string text = with(
      good, R"({"s":3,"d":"prose","p":0,"f":"p","l":0,"e":[1,2]})",
      R"({ "e" : [ 1 , 2 ], "x":{"y":[1,{"z":"}"}]}, "l":0,"f":"p" ,"p":0, "d":"prose","s":3 })");
  text.pop_back();
  std::string crlf;
  for (char c : text) {
    crlf += c == '\n' ? "\r\n" : std::string(1, c);
  }
  CHECK(trace::write_warmset(trace::read_tinymoe(text)) ==
        trace::write_warmset(trace::read_tinymoe(good)));
  CHECK(trace::write_warmset(trace::read_tinymoe(crlf)) ==
        trace::write_warmset(trace::read_tinymoe(good)));
}

TEST_CASE("tinymoe: malformed inputs name line, field and value") {
  std::string const third = R"({"s":3,"d":"prose","p":0,"f":"p","l":1,"e":[3,4],"a":[3,5,1]})";
  std::vector<malformed> const cases = {
      {"empty", "", 1, "empty"},
      {"blank", "\n", 1, "an object"},
      {"not JSON", "hello", 1, "hello"},
      {"wrong format", with(good, "routing-jsonl-1", "routing-jsonl-2"), 1, "routing-jsonl-2"},
      {"no format", with(good, "\"format\"", "\"vormat\""), 1, "format"},
      {"header only", header, 1, "no events"},
      {"no layers", with(good, R"("layers":2,)", ""), 1, "layers"},
      {"negative layers", with(good, R"("layers":2)", R"("layers":-2)"), 1,
       "layers is '-2', below 0"},
      {"huge layers", with(good, R"("layers":2)", R"("layers":65535)"), 1,
       "more than the input can hold"},
      {"huger layers", with(good, R"("layers":2)", R"("layers":99999999999999999999)"), 1,
       "more than 65535"},
      {"k above experts", with(good, R"("top_k":2)", R"("top_k":9)"), 1, "top_k"},
      {"expert out of range", with(good, "[1,2]", "[1,8]"), 2, "e is '8', more than 7"},
      {"negative expert", with(good, "[1,2]", "[1,-2]"), 2, "e is '-2', below 0"},
      {"fractional expert", with(good, "[1,2]", "[1,2.5]"), 2, "2.5"},
      {"expert twice", with(good, "[1,2]", "[2,2]"), 2, "expert 2 twice"},
      {"look-ahead twice", with(good, "[3,5,1]", "[3,5,5]"), 3, "expert 5 twice"},
      {"k changes", with(good, "[3,4]", "[3,4,5]"), 3, "3 ids; top_k is 2"},
      {"k shrinks", with(good, "[3,4]", "[3]"), 3, "1 ids; top_k is 2"},
      {"layer missing", with(good, third + "\n", ""), 3, "layer 0 where layer 1 is due"},
      {"layer out of range", with(good, R"("l":1)", R"("l":2)"), 3, "l is '2', more than 1"},
      {"position skipped", with(good, R"("p":1,"f":"d","l":0)", R"("p":2,"f":"d","l":0)"), 4,
       "position 2"},
      {"position changes within a step",
       with(good, R"("p":0,"f":"p","l":1)", R"("p":1,"f":"p","l":1)"), 3, "position 1"},
      {"unknown phase", with(good, R"("f":"p","l":0)", R"("f":"q","l":0)"), 2, "neither p nor d"},
      {"member missing",
       with(good, R"("s":3,"d":"prose","p":0,"f":"p","l":0)", R"("d":"prose","p":0,"f":"p","l":0)"),
       2, "missing"},
      {"look-ahead width changes", with(good, "[7,0,2]", "[7,0]"), 5, "a has 2 ids where it had 3"},
      {"look-ahead vanishes", with(good, R"(,"a":[7,0,2])", ""), 5, "a is missing"},
      {"look-ahead appears late", with(good, R"(,"a":[3,5,1])", ""), 5, "a appears"},
      {"truncated in a line", good.substr(0, header.size() + 20), 2, "the line ends"},
      {"truncated between layers", good.substr(0, good.find(third)), 2, "ends before layer 1"},
      {"trailing text", with(good, "[1,2]}", "[1,2]} 7"), 2, "follows the object"},
      {"sequence comes back",
       good + R"({"s":3,"d":"x","p":2,"f":"d","l":0,"e":[0,1]})"
              "\n"
              R"({"s":3,"d":"x","p":2,"f":"d","l":1,"e":[0,1],"a":[0,1,2]})"
              "\n",
       9, "sequence 3"},
  };
  check_malformed(cases, trace::format_error::unit::line,
                  [](std::string const& s) { return trace::read_tinymoe(s); });
}

TEST_CASE("tinymoe: every prefix is refused or read, without a crash") {
  for (std::size_t n = 0; n < good.size(); ++n) {
    format_error_of([&] { return trace::read_tinymoe(good.substr(0, n)); });
  }
}
