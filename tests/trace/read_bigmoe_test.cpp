// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

using namespace trace_test;

namespace {

// Three prompt tokens, of which the last layer sees one; two decode steps. Layers of two sizes.
std::string const good =
    "# route_trace v1\n"
    "# model=/somewhere/else/Tiny-Q4.gguf arch=tiny n_layer=3 n_expert=8 n_expert_used=2\n"
    "# layer=0 expert_bytes=100 dense_bytes=7\n"
    "# layer=1 expert_bytes=200 dense_bytes=7\n"
    "# layer=2 expert_bytes=200 dense_bytes=7\n"
    "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n"
    "0,0,0,0,0,1,0.6,0,100\n"
    "0,0,0,0,1,2,0.4,0,100\n"
    "0,0,1,0,0,2,0.5,0,0\n"
    "0,0,1,0,1,3,0.5,0,100\n"
    "0,0,2,0,0,1,0.7,0,0\n"
    "0,0,2,0,1,4,0.3,0,100\n"
    "0,0,0,1,0,5,0.6,0,200\n"
    "0,0,0,1,1,6,0.4,0,200\n"
    "0,0,1,1,0,6,0.6,0,0\n"
    "0,0,1,1,1,5,0.4,0,0\n"
    "0,0,2,1,0,7,0.6,0,200\n"
    "0,0,2,1,1,0,0.4,0,200\n"
    "0,0,2,2,0,3,0.6,0,200\n"
    "0,0,2,2,1,1,0.4,0,200\n"
    "0,1,3,0,0,1,0.6,1,0\n"
    "0,1,3,0,1,5,0.4,0,100\n"
    "0,1,3,1,0,0,0.6,1,0\n"
    "0,1,3,1,1,5,0.4,1,0\n"
    "0,1,3,2,0,3,0.6,1,0\n"
    "0,1,3,2,1,2,0.4,0,200\n"
    "0,1,4,0,0,5,0.6,1,0\n"
    "0,1,4,0,1,6,0.4,0,100\n"
    "0,1,4,1,0,0,9.6e-1,1,0\n"
    "0,1,4,1,1,7,0.04,1,0\n"
    "0,1,4,2,0,2,0.6,1,0\n"
    "0,1,4,2,1,3,0.4,1,0\n";

}  // namespace

TEST_CASE("bigmoe: a prompt is one event per layer, a decode step too") {
  trace::recording const r = trace::read_bigmoe(good);
  CHECK(r.model() == "Tiny-Q4");
  CHECK(r.geometry().layers()[0].expert_bytes() == 100);
  CHECK(r.geometry().layers()[2].expert_bytes() == 200);
  CHECK(r.geometry().layers()[1].k == 2);
  REQUIRE(r.blocks().size() == 3);
  CHECK(r.blocks()[0].n_tokens == 3);
  CHECK(r.blocks()[0].n_rows == 2);
  CHECK(r.blocks()[1].n_tokens == 1);
  CHECK(r.blocks()[1].first_row == 2);
  CHECK(r.blocks()[1].first_position == 2);
  CHECK(r.blocks()[2].n_steps == 2);
  CHECK(r.blocks()[2].first_position == 3);
  CHECK(r.n_events() == 9);
  CHECK(ids_of(r[0]) == std::vector<u16>{1, 2, 2, 3, 1, 4});
  CHECK(r[0].residency[2] == trace::recorded_access::repeat);
  CHECK(r[0].residency[3] == trace::recorded_access::miss);
  CHECK(r[3].residency[0] == trace::recorded_access::hit);
  CHECK(r[7].weights[0] == 0.96f);
  CHECK(r[8].position == 4);
  CHECK(trace::count_lookups(r) == 4 + 4 + 2 + 12);
  std::vector<u16> distinct;
  trace::detail::row_marks marks(8);
  trace::append_distinct(r[0].ids, marks, distinct);
  CHECK(distinct == std::vector<u16>{2, 3, 1, 4});  // by last occurrence
}

TEST_CASE("bigmoe: prompt tokens of one layer that follow each other are one event") {
  std::string const text =
      "# route_trace v1\n# model=m n_layer=2 n_expert=4 n_expert_used=1\n"
      "# layer=0 expert_bytes=1 dense_bytes=0\n# layer=1 expert_bytes=1 dense_bytes=0\n"
      "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n"
      "0,0,0,0,0,1,1,0,1\n0,0,1,0,0,2,1,0,1\n"
      "0,0,2,0,0,3,1,0,1\n0,0,3,0,0,0,1,0,1\n0,0,3,1,0,2,1,0,1\n";
  CHECK(trace::read_bigmoe(text).blocks().size() == 2);
  CHECK(trace::read_bigmoe(text)[0].n_tokens == 4);
}

TEST_CASE("bigmoe: malformed inputs name line, field and value") {
  std::string const first = "0,0,0,0,0,1,0.6,0,100\n";
  std::string const rows = good.substr(0, good.find(first));
  std::string decode_without_layer_1 = with(good, "0,1,3,1,0,0,0.6,1,0\n0,1,3,1,1,5,0.4,1,0\n", "");
  std::vector<malformed> const cases = {
      {"empty", "", 1, "empty"},
      {"wrong version", with(good, "route_trace v1", "route_trace v2"), 1, "route_trace v2"},
      {"header cut off", good.substr(0, good.find("turn,phase")), 5, "ends in its header"},
      {"no rows", rows, 6, "no rows"},
      {"other columns", with(good, "turn,phase,step", "turn,step,phase"), 6, "turn,step"},
      {"no layers",
       with(good,
            "# layer=0 expert_bytes=100 dense_bytes=7\n# layer=1 expert_bytes=200 dense_bytes=7\n"
            "# layer=2 expert_bytes=200 dense_bytes=7\n",
            ""),
       3, "no layer"},
      {"layers out of order", with(good, "# layer=1", "# layer=0"), 4, "layer 0 follows layer 0"},
      {"no bytes", with(good, "expert_bytes=100", "expert_bytes=0"), 3, "expert_bytes is 0"},
      {"negative bytes", with(good, "expert_bytes=100", "expert_bytes=-100"), 3, "below 0"},
      {"huge experts", with(good, "n_expert=8", "n_expert=4000000000"), 2,
       "n_expert is '4000000000', more than 65535"},
      {"k above experts", with(good, "n_expert_used=2", "n_expert_used=9"), 2,
       "n_expert_used is '9', more than 8"},
      {"k missing", with(good, " n_expert_used=2", ""), 2, "n_expert_used is ''"},
      {"expert out of range", with(good, first, "0,0,0,0,0,8,0.6,0,100\n"), 7,
       "expert is '8', more than 7"},
      {"negative expert", with(good, first, "0,0,0,0,0,-1,0.6,0,100\n"), 7,
       "expert is '-1', below 0"},
      {"expert twice", with(good, "0,0,0,0,1,2,0.4", "0,0,0,0,1,1,0.4"), 8,
       "expert 1 occurs twice"},
      {"slot missing", with(good, "0,0,0,0,1,2,0.4,0,100\n", ""), 8, "ends after 1 of 2"},
      {"slot too many", with(good, "0,0,1,0,0,2", "0,0,0,0,2,2"), 9, "slot 2"},
      {"first slot missing", with(good, first, ""), 7, "slot 1"},
      {"layer missing in prefill",
       with(good,
            "0,0,0,1,0,5,0.6,0,200\n0,0,0,1,1,6,0.4,0,200\n0,0,1,1,0,6,0.6,0,0\n"
            "0,0,1,1,1,5,0.4,0,0\n0,0,2,1,0,7,0.6,0,200\n0,0,2,1,1,0,0.4,0,200\n",
            ""),
       13, "layer 2 where layer 1 is due"},
      {"last layer missing", with(good, "0,0,2,2,0,3,0.6,0,200\n0,0,2,2,1,1,0.4,0,200\n", ""), 19,
       "layer 2 is missing"},
      {"layer missing in decode", decode_without_layer_1, 23, "layer 2 where layer 1 is due"},
      {"tokens missing in a middle layer",
       with(good, "0,0,0,1,0,5,0.6,0,200\n0,0,0,1,1,6,0.4,0,200\n", ""), 17, "layer 1 has steps"},
      {"cut off in a row", good.substr(0, good.size() - 8), 32, "fields than 9"},
      {"cut off in a token", good.substr(0, good.rfind("0,1,4,2,1")), 31, "within the row"},
      {"cut off between layers", good.substr(0, good.rfind("0,1,4,2,0")), 30, "layer 2 is missing"},
      {"ten fields", with(good, first, "0,0,0,0,0,1,0.6,0,100,1\n"), 7, "9"},
      {"phase 2", with(good, first, "0,2,0,0,0,1,0.6,0,100\n"), 7, "phase is '2', more than 1"},
      {"residency 2", with(good, first, "0,0,0,0,0,1,0.6,2,100\n"), 7,
       "residency is '2', more than 1"},
      {"a hit that reads", with(good, first, "0,0,0,0,0,1,0.6,1,100\n"), 7, "a hit reads 0"},
      {"another size", with(good, first, "0,0,0,0,0,1,0.6,0,200\n"), 7, "a miss reads 100"},
      {"weight no number", with(good, first, "0,0,0,0,0,1,x,0,100\n"), 7, "weight is 'x'"},
      {"weight nan", with(good, first, "0,0,0,0,0,1,nan,0,100\n"), 7, "weight is 'nan'"},
  };
  check_malformed(cases, trace::format_error::unit::line,
                  [](std::string const& s) { return trace::read_bigmoe(s); });
}

TEST_CASE("bigmoe: every prefix is refused or read, without a crash") {
  for (std::size_t n = 0; n < good.size(); ++n) {
    format_error_of([&] { return trace::read_bigmoe(good.substr(0, n)); });
  }
}
