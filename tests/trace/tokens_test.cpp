// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

using namespace trace_test;

namespace {

/// The input tokens of an event, as a vector that prints and compares.
std::vector<u32> tokens_of(trace::event const& e) {
  return {e.tokens.begin(), e.tokens.end()};
}

// Two sequences, 3 and 1, of one and two positions.
std::string const jsonl =
    R"({"format":"routing-jsonl-1","model":"tiny","layers":2,"experts":8,"top_k":2,"expert_bytes":100})"
    "\n"
    R"({"s":3,"d":"prose","p":0,"f":"p","l":0,"e":[1,2]})"
    "\n"
    R"({"s":3,"d":"prose","p":0,"f":"p","l":1,"e":[3,4]})"
    "\n"
    R"({"s":1,"d":"code","p":5,"f":"d","l":0,"e":[6,0]})"
    "\n"
    R"({"s":1,"d":"code","p":5,"f":"d","l":1,"e":[5,6]})"
    "\n"
    R"({"s":1,"d":"code","p":6,"f":"d","l":0,"e":[6,1]})"
    "\n"
    R"({"s":1,"d":"code","p":6,"f":"d","l":1,"e":[5,7]})"
    "\n";

std::string const lists = R"({"s":1,"d":"code","tokens":[10,11,12,13,14,15,2147483647,17]})"
                          "\n"
                          R"({"s":2,"d":"code","tokens":[]})"
                          "\n"
                          R"({ "tokens" : [ 30 ] , "s" : 3 })"
                          "\n";

trace::recording with_lists(std::string const& text) {
  return trace::with_tokens(trace::read_tinymoe(jsonl), text);
}

/// RTB1: two layers, 8 experts, k 2, two sequences of 1 and 2 rows.
trace::recording rtb1() {
  std::string s = "RTB1";
  for (u32 v : {2u, 8u, 2u, 2u, 3u, 1u, 2u}) {
    for (int i = 0; i < 4; ++i) {
      s += static_cast<char>(v >> (8 * i));
    }
  }
  for (char const* id = "012345671032"; *id != '\0'; ++id) {
    s += {static_cast<char>(*id - '0'), '\0'};
  }
  return trace::read_rtb1(trace::bytes_of(s));
}

}  // namespace

TEST_CASE("tokens: lists of sequences go to tinymoe's positions, the same for all layers") {
  trace::recording const bare = trace::read_tinymoe(jsonl);
  CHECK(bare.tokens().empty());
  CHECK(bare[0].tokens.empty());
  trace::recording const r = with_lists(lists);
  CHECK(r.n_inputs() == 3);
  CHECK(r.tokens().size() == 3);
  for (u64 layer = 0; layer < 2; ++layer) {
    CHECK(tokens_of(r[layer]) == std::vector<u32>{30});
    CHECK(tokens_of(r[2 + layer]) == std::vector<u32>{15});
    CHECK(tokens_of(r[4 + layer]) == std::vector<u32>{2147483647});
  }
  // Nothing else changes, and a list replaces another.
  CHECK(std::equal(r.ids().begin(), r.ids().end(), bare.ids().begin(), bare.ids().end()));
  CHECK(r.blocks() == bare.blocks());
  CHECK(r.labels() == bare.labels());
  CHECK(tokens_of(trace::with_tokens(r, with(lists, "30", "31"))[1]) == std::vector<u32>{31});
}

TEST_CASE("tokens: a list of all steps goes to RTB1's rows") {
  trace::recording const r = trace::with_tokens(
      rtb1(), R"({"model":"m","sequences":[{"tokens":1},{"tokens":2}],"vocab":["a","\"]",""],)"
              R"("token":[2,0,1]})");
  CHECK(tokens_of(r[0]) == std::vector<u32>{2});
  CHECK(tokens_of(r[1]) == std::vector<u32>{2});
  CHECK(tokens_of(r[2]) == std::vector<u32>{0});
  CHECK(tokens_of(r[5]) == std::vector<u32>{1});
  for (char const* wrong : {R"({"token":[2,0]})", R"({"token":[2,0,1,1]})", R"({"token":[]})"}) {
    INFO(wrong);
    auto const error = format_error_of([&] { return trace::with_tokens(rtb1(), wrong); });
    REQUIRE(error.has_value());
    CHECK(error->at() == 1);
    CHECK(std::string_view(error->what()).find("a trace of 3") != std::string_view::npos);
  }
}

TEST_CASE("tokens: micro-batches get a token per position, the last layer's shorter one too") {
  trace::recording const r = trace::with_tokens(
      trace::read_bigmoe("# route_trace v1\n"
                         "# model=tiny.gguf n_layer=2 n_expert=8 n_expert_used=1\n"
                         "# layer=0 expert_bytes=100\n"
                         "# layer=1 expert_bytes=100\n"
                         "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n"
                         "0,0,0,0,0,1,1,0,100\n"
                         "0,0,1,0,0,2,1,0,100\n"
                         "0,0,1,1,0,3,1,0,100\n"
                         "0,1,2,0,0,4,1,0,100\n"
                         "0,1,2,1,0,5,1,0,100\n"),
      R"({"s":0,"tokens":[7,8,9]})");
  REQUIRE(r.n_events() == 4);
  CHECK(tokens_of(r[0]) == std::vector<u32>{7, 8});
  CHECK(tokens_of(r[1]) == std::vector<u32>{8});
  CHECK(tokens_of(r[2]) == std::vector<u32>{9});
  CHECK(tokens_of(r[3]) == std::vector<u32>{9});
  CHECK(r.residency().size() == 5);
  CHECK(r.weights().size() == 5);
}

TEST_CASE("tokens: renumbered ones are equal where they were, and start at 0") {
  trace::recording const r =
      trace::renumber_tokens(trace::with_tokens(rtb1(), R"({"token":[2147483647,5,2147483647]})"));
  CHECK(tokens_of(r[1]) == std::vector<u32>{0});
  CHECK(tokens_of(r[3]) == std::vector<u32>{1});
  CHECK(tokens_of(r[4]) == std::vector<u32>{0});
  CHECK(ids_of(r[2]) == std::vector<u16>{4, 5});
  CHECK(trace::renumber_tokens(rtb1()).tokens().empty());
}

TEST_CASE("tokens: malformed lists name line, field and value") {
  std::vector<malformed> const cases = {
      {"empty", "", 1, "empty"},
      {"not JSON", "hello", 1, "hello"},
      {"a list", "[1,2]", 1, "an object"},
      {"no tokens", lists + "{\"s\":4}\n", 4, "tokens are missing"},
      {"tokens are no list", with(lists, "[ 30 ]", "30"), 3, "a list"},
      {"negative", with(lists, "30", "-1"), 3, "tokens is '-1', below 0"},
      {"from 2^31 on", with(lists, "2147483647", "2147483648"), 1, "more than 2147483647"},
      {"a fraction", with(lists, "11", "1.1"), 1, "1.1"},
      {"a text", with(lists, "11", "\"a\""), 1, "a value is due"},
      {"a blank line", with(lists, "\n", "\n\n"), 2, "an object"},
      {"cut off", lists.substr(0, lists.size() - 10), 3, "the line ends"},
      {"a sequence twice", lists + "{\"s\":1,\"tokens\":[1]}\n", 4, "tokens on line 1"},
      {"a sequence missing", with(lists, "\"s\" : 3", "\"s\" : 4"), 3, "sequence 3"},
      {"too few", with(lists, ",2147483647,17", ""), 1, "sequence 1 has 6 tokens"},
      {"too few by one", with(lists, ",2147483647,17", ""), 1, "position 6"},
      {"s goes", lists + "{\"tokens\":[1,2,3]}\n", 4, "stands alone"},
      {"s comes", "{\"tokens\":[1,2,3]}\n" + lists, 2, "stands alone"},
  };
  check_malformed(cases, trace::format_error::unit::line, with_lists);
}

TEST_CASE("tokens: every prefix is refused or read, without a crash") {
  for (std::size_t n = 0; n < lists.size() - 2; ++n) {
    CHECK(format_error_of([&] { return with_lists(lists.substr(0, n)); }).has_value());
  }
}
